//! A hash join with a table that is twenty times as large as the memory for it.
//!
//! Which buckets are touched follows from the keys of both relations. Plain paging shows it to an
//! observer of the store: each page is written to its own place. Here the places that are written
//! follow from the number of page faults.
//!
//! `cargo run --release -p traceless-pager --example hash_join`

use std::error::Error;
use std::sync::Arc;
use traceless::rng::{Rng, SeededRng, System};
use traceless::seal::Secret;
use traceless_block::detwo::Refresh;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{Config, PagedRegion, SharedMemory};
use traceless_pager::scheme::{Areas, DetWo};
use traceless_pager::slots::Cipher;

const RESIDENT: usize = 32;
const PAGES: usize = 20 * RESIDENT;

/// A slot of the table: key and value, of eight bytes each. Key 0 is an empty slot.
const SLOT_LEN: usize = 16;
const SLOTS: usize = PAGES * PAGE_LEN / SLOT_LEN;

const CUSTOMERS: u64 = SLOTS as u64 / 4;
const ORDERS: u64 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let refresh = Refresh::new(3, 1)?;
    let store = SharedMemory::unnamed(Areas::store_len(PAGES as u64, refresh))?;
    let key = Secret::random(&mut System);
    let (store, salts) = (Arc::new(store), Box::new(System));
    let areas = Areas::new(store, PAGES as u64, refresh, Cipher::default(), &key, salts)?;
    let config = Config { frames: RESIDENT, ..Config::default() };
    let mut table = PagedRegion::new(Box::new(DetWo::new(areas)), config)?;

    // Build: customers by their number.
    for customer in 1..=CUSTOMERS {
        insert(&mut table, customer, customer * 3);
    }
    // Probe: half of the orders are of customers that are not in the table.
    let mut rng = SeededRng::new(1);
    let (mut joined, mut expected) = (0, 0);
    for _ in 0..ORDERS {
        let customer = 1 + rng.below(2 * CUSTOMERS);
        expected += u64::from(customer <= CUSTOMERS);
        if let Some(value) = find(&table, customer) {
            assert_eq!(value, customer * 3, "the table holds what was put in");
            joined += 1;
        }
    }
    let stats = table.stats();
    println!("{joined} of {ORDERS} orders have a customer");
    println!("{PAGES} pages, {} of them resident, {} faults", stats.resident_max, stats.faults);
    assert_eq!(joined, expected, "every order found its customer, if there is one");
    Ok(())
}

fn insert(table: &mut [u8], key: u64, value: u64) {
    let mut slot = first_slot(key);
    while number(table, slot * SLOT_LEN) != 0 {
        slot = (slot + 1) % SLOTS;
    }
    table[slot * SLOT_LEN..][..8].copy_from_slice(&key.to_le_bytes());
    table[slot * SLOT_LEN + 8..][..8].copy_from_slice(&value.to_le_bytes());
}

fn find(table: &[u8], key: u64) -> Option<u64> {
    let mut slot = first_slot(key);
    loop {
        match number(table, slot * SLOT_LEN) {
            0 => return None,
            found if found == key => return Some(number(table, slot * SLOT_LEN + 8)),
            _ => slot = (slot + 1) % SLOTS,
        }
    }
}

/// Where the search for a key begins.
fn first_slot(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % SLOTS
}

fn number(table: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(table[at..at + 8].try_into().expect("eight bytes"))
}
