//! A vault in the same store as the areas that its trusted state describes.
//!
//! ```
//! use std::sync::Arc;
//! use traceless_core::durable::Vault;
//! use traceless_core::scheme::store_vault::{StoreVault, VAULT_LEN};
//! use traceless_core::seal::Secret;
//! use traceless_core::store::MemStore;
//!
//! # fn main() -> traceless_core::Result {
//! let key = || Secret::from_bytes([7; 32]);
//! let store = Arc::new(MemStore::new(VAULT_LEN + 1_000_000));
//! let mut vault = StoreVault::create(store.clone(), key(), VAULT_LEN + 1_000_000)?;
//! vault.keep(b"some state")?;
//! vault.keep(b"a later state")?;
//!
//! let (_, state) = StoreVault::open(store.clone(), key())?;
//! assert_eq!(state, b"a later state");
//! assert!(StoreVault::open(store, Secret::from_bytes([8; 32])).is_err(), "another key");
//! # Ok(())
//! # }
//! ```

use super::SchemeContext;
use super::openings::STATE_LEN_MAX;
use crate::durable::Vault;
use crate::error::{Error, Result};
use crate::rng::Rng;
use crate::seal::{Cipher, Secret};
use crate::store::{RecordPair, Store};
use crate::types::Extent;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

const MAC_LEN: usize = 32;
const HEAD_LEN: usize = MAC_LEN + 8 + 4;

/// Bytes of one of the two records: whole pages.
const RECORD_LEN: usize = (HEAD_LEN + STATE_LEN_MAX).next_multiple_of(4096);

/// Bytes that a vault takes on a store.
pub const VAULT_LEN: u64 = 2 * RECORD_LEN as u64;

/// What [`Error::State`] says of a store in which no record opens with the key.
pub const NOTHING_SAVED: &str = "nothing was saved there, or under another key";

/// The places of the state.
const RECORDS: RecordPair = RecordPair::new(0, RECORD_LEN);

/// Two records that are written in turns: a MAC, a number, the length of the state, and the state.
/// The state is public, but it cannot be forged without the key.
///
/// Each state is written to both records, so that damage to one of them does not roll the state
/// back: otherwise blocks would silently read as they did at the sync before, or an open scheme
/// would pass for one that was closed.
///
/// An adversary that rolls back the whole store also rolls back the vault, which nothing in the
/// store can detect.
pub struct StoreVault {
    store: Arc<dyn Store>,
    key: Secret,
    /// The number of the newest record; 0 if there is none.
    number: u64,
}

impl StoreVault {
    /// An empty vault in the first [`VAULT_LEN`] bytes of `store`, with its own key. A store
    /// smaller than `room`, the bytes of everything that will lie there, is refused and not
    /// changed.
    pub fn create(store: Arc<dyn Store>, key: Secret, room: u64) -> Result<Self> {
        check_room(&*store, room.max(VAULT_LEN))?;
        for number in 0..2 {
            store.write(&[Extent::new(RECORDS.place(number).at, HEAD_LEN)], &[0; HEAD_LEN])?;
        }
        Ok(Self { store, key, number: 0 })
    }

    /// Opens the vault that lies there; returns it and the state that it kept last.
    pub fn open(store: Arc<dyn Store>, key: Secret) -> Result<(Self, Vec<u8>)> {
        check_room(&*store, VAULT_LEN)?;
        let newest = RECORDS.newest(&*store, |record| decode(record, &key))?;
        let (number, state) = newest.ok_or(Error::State(NOTHING_SAVED))?;
        Ok((Self { store, key, number }, state))
    }
}

impl SchemeContext {
    /// The context in which a product is made or opened in a store that begins with its vault.
    pub fn after_vault(
        vault: StoreVault,
        product: &[u8],
        store: Arc<dyn Store>,
        key: &Secret,
        rng: Box<dyn Rng>,
    ) -> Self {
        Self {
            store,
            first: VAULT_LEN,
            key: key.derive(&[product, b"scheme"]),
            vault: Box::new(vault),
            rng,
            read_only: false,
            cipher: Cipher::default(),
            expect_writes: 0,
        }
    }
}

impl Vault for StoreVault {
    fn keep(&mut self, state: &[u8]) -> Result {
        assert!(state.len() <= STATE_LEN_MAX, "no scheme has a longer state");
        self.write(state)?;
        self.write(state)
    }
}

impl StoreVault {
    fn write(&mut self, state: &[u8]) -> Result {
        self.number += 1;
        let mut record = vec![0; MAC_LEN];
        record.extend_from_slice(&self.number.to_le_bytes());
        record.extend_from_slice(&(state.len() as u32).to_le_bytes());
        record.extend_from_slice(state);
        let mac = self.key.mac(&record[MAC_LEN..]);
        record[..MAC_LEN].copy_from_slice(mac.bytes());
        RECORDS.write(&*self.store, self.number, &record)
    }
}

fn check_room(store: &dyn Store, room: u64) -> Result {
    let small = Error::Geometry("the store is smaller than what is to lie there");
    if store.len() < room { Err(small) } else { Ok(()) }
}

/// Number and state of a record, if it verifies.
fn decode(record: &[u8], key: &Secret) -> Option<(u64, Vec<u8>)> {
    let (mac, rest) = record.split_at(MAC_LEN);
    let number = u64::from_le_bytes(rest[..8].try_into().expect("8 bytes"));
    let len = u32::from_le_bytes(rest[8..12].try_into().expect("4 bytes")) as usize;
    let signed = rest.get(..12 + len)?;
    key.mac(signed).fits(mac).then(|| (number, signed[12..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemStore;

    fn key() -> Secret {
        Secret::from_bytes([3; 32])
    }

    #[test]
    fn the_newest_whole_record_counts() {
        let store = Arc::new(MemStore::new(VAULT_LEN));
        let mut vault = StoreVault::create(store.clone(), key(), VAULT_LEN).unwrap();
        assert!(StoreVault::open(store.clone(), key()).is_err(), "nothing was kept");
        for byte in 1..=5 {
            vault.keep(&vec![byte; 100 * usize::from(byte)]).unwrap();
            let kept = StoreVault::open(store.clone(), key()).unwrap().1;
            assert_eq!(kept, vec![byte; 100 * usize::from(byte)]);
        }
        // The sixth write is torn in its first record: the fifth state is still there.
        vault.write(&[6; 600]).unwrap();
        let at = RECORDS.place(vault.number).at;
        store.write(&[Extent::new(at + 200, 1)], &[9]).unwrap();
        assert_eq!(StoreVault::open(store.clone(), key()).unwrap().1, [5; 500]);
        assert!(StoreVault::open(store, Secret::from_bytes([4; 32])).is_err());
    }

    /// If either record is damaged, the other one still has the last state.
    #[test]
    fn damage_does_not_take_back_what_was_kept() {
        for nth in 0..2 {
            let store = Arc::new(MemStore::new(VAULT_LEN));
            let mut vault = StoreVault::create(store.clone(), key(), VAULT_LEN).unwrap();
            (0..3).for_each(|byte| vault.keep(&[byte; 50]).unwrap());
            store.write(&[Extent::new(nth * RECORD_LEN as u64 + 60, 1)], &[0xff]).unwrap();
            assert_eq!(StoreVault::open(store, key()).unwrap().1, [2; 50]);
        }
    }

    /// If either record is damaged, the other one still records the opening.
    #[test]
    fn damage_does_not_take_back_an_opening() {
        for nth in 0..2 {
            let store = Arc::new(MemStore::new(VAULT_LEN));
            let mut vault = StoreVault::create(store.clone(), key(), VAULT_LEN).unwrap();
            vault.keep(b"opened").unwrap();
            vault.keep(b"closed").unwrap();
            let (mut vault, state) = StoreVault::open(store.clone(), key()).unwrap();
            assert_eq!(state, b"closed");
            vault.keep(b"opened again").unwrap();
            store.write(&[Extent::new(nth * RECORD_LEN as u64, 1)], &[0]).unwrap();
            store.write(&[Extent::new(nth * RECORD_LEN as u64 + 1, 1)], &[0]).unwrap();
            assert_eq!(StoreVault::open(store, key()).unwrap().1, b"opened again");
        }
    }

    #[test]
    fn making_another_forgets_the_first() {
        let store = Arc::new(MemStore::new(VAULT_LEN));
        let mut vault = StoreVault::create(store.clone(), key(), VAULT_LEN).unwrap();
        vault.keep(&[1]).unwrap();
        vault.keep(&[2]).unwrap();
        assert!(StoreVault::create(store.clone(), key(), VAULT_LEN + 1).is_err(), "no room");
        assert_eq!(StoreVault::open(store.clone(), key()).unwrap().1, [2]);
        StoreVault::create(store.clone(), key(), VAULT_LEN).unwrap();
        assert!(StoreVault::open(store, key()).is_err());
        assert!(StoreVault::create(Arc::new(MemStore::new(9)), key(), 0).is_err());
    }
}
