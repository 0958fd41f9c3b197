//! The tests that every scheme must pass: one function, called for each scheme.
//!
//! *Is it an array? Is its trace public? Does it survive failing stores? Is it the same when it is
//! opened again? Does it refuse what was tampered with?*
//!
//! The tests of a scheme call [`conforms`], or only some of its parts. `Scan` of the example `scan`
//! keeps blocks in plain text, so it would not pass [`refuses_tampering`]. Each part panics if the
//! scheme fails it:
//!
//! ```
//! # mod scan { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/scan/scan.rs")); }
//! # use scan::Scan;
//! use traceless_core::suite;
//!
//! let scheme = Scan(10);
//! suite::behaves_like_an_array(&scheme);
//! suite::trace_is_public(&scheme);
//! ```

mod copies;
mod faulty;
mod reads;
pub mod rig;
mod unsalted;

use crate::durable::{MemVault, Vault};
use crate::error::{Error, Result};
use crate::oram::{Hides, Oram};
use crate::rng::{Rng, SeededRng};
use crate::scheme::SchemeContext;
use crate::scheme::contract::Scheme;
use crate::seal::{Cipher, Secret};
use crate::store::{MemStore, Store, WatchedStore};
use crate::trace::{Event, Op, Recorder};
use crate::types::{Addr, Extent};
pub use copies::nonces_that_copies_share;
use faulty::Faulty;
pub use reads::{FailingReads, continues_after_failed_read, is_read_again, survives_failing_reads};
use std::collections::HashMap;
use std::sync::Arc;
pub use unsalted::UnsaltedRng;

/// Runs every test of the suite on one scheme. Panics with the failure.
pub fn conforms(scheme: &dyn Scheme) {
    behaves_like_an_array(scheme);
    trace_is_public(scheme);
    survives_failing_stores(scheme);
    survives_failing_reads(scheme);
    reopens_equal(scheme);
    refuses_tampering(scheme);
}

/// A scheme on a store in memory, with everything needed to open it again.
struct Subject<'a> {
    scheme: &'a dyn Scheme,
    vault: MemVault,
    seed: u64,
}

impl<'a> Subject<'a> {
    fn new(scheme: &'a dyn Scheme) -> Self {
        Self { scheme, vault: MemVault::default(), seed: 1 }
    }

    fn store(&self) -> Arc<MemStore> {
        Arc::new(MemStore::new(self.scheme.store_len()))
    }

    fn context(&mut self, store: Arc<dyn Store>) -> SchemeContext {
        self.seed += 1;
        SchemeContext {
            store,
            first: 0,
            key: Secret::from_bytes([9; 32]),
            vault: Box::new(self.vault.clone()),
            rng: Box::new(SeededRng::new(self.seed)),
            read_only: false,
            cipher: Cipher::ALL[self.scheme.blocks() as usize % Cipher::ALL.len()],
            expect_writes: 0,
        }
    }

    fn create(&mut self, store: Arc<dyn Store>) -> Result<Box<dyn Oram>> {
        let scheme = self.scheme;
        scheme.create(self.context(store))
    }

    fn open(&mut self, store: Arc<dyn Store>) -> Result<Box<dyn Oram>> {
        let (scheme, state) = (self.scheme, self.vault.kept());
        scheme.open(self.context(store), &state, &mut |_, _| {})
    }
}

/// Compares random reads, writes, batches, updates and syncs with a plain array.
pub fn behaves_like_an_array(scheme: &dyn Scheme) {
    let mut subject = Subject::new(scheme);
    let mut oram = subject.create(subject.store()).unwrap();
    let mut model = vec![0; scheme.blocks() as usize * scheme.block_len()];
    let mut rng = SeededRng::new(17);
    for _ in 0..1500 {
        step(&mut *oram, &mut model, &mut rng).unwrap();
    }
    assert_holds(&mut *oram, &model);
    let (n, len) = (oram.blocks(), oram.block_len());
    assert!(matches!(oram.read(Addr(n), &mut vec![0; len]), Err(Error::OutOfRange { .. })));
    assert!(matches!(oram.write(Addr(u64::MAX), &vec![0; len]), Err(Error::OutOfRange { .. })));
    assert!(matches!(oram.read(Addr(0), &mut vec![0; len + 1]), Err(Error::WrongLength { .. })));
    assert!(matches!(oram.write_many(&[], &[0]), Err(Error::WrongLength { .. })));
    oram.read_many(&[], &mut []).unwrap();
    oram.write_many(&[], &[]).unwrap();
}

/// One random operation on a scheme and on the array that models it.
fn step(oram: &mut dyn Oram, model: &mut [u8], rng: &mut SeededRng) -> Result {
    let (n, len) = (oram.blocks(), oram.block_len());
    let hot = if rng.below(2) == 0 { n } else { n.div_ceil(8) };
    let longest = if rng.below(4) == 0 { 40 } else { 2 };
    let count = 1 + rng.below(longest);
    let start = rng.below(hot);
    let scattered = rng.below(2) == 0;
    let addrs: Vec<Addr> = (0..count)
        .map(|i| Addr(if scattered { rng.below(hot) } else { (start + i) % n }))
        .collect();
    let at = |a: Addr| a.0 as usize * len..(a.0 as usize + 1) * len;
    match rng.below(10) {
        0..5 => {
            let mut data = vec![0; addrs.len() * len];
            rng.fill(&mut data);
            oram.write_many(&addrs, &data)?;
            for (&a, block) in addrs.iter().zip(data.chunks(len)) {
                model[at(a)].copy_from_slice(block);
            }
        }
        5..8 => {
            let mut data = vec![0; addrs.len() * len];
            oram.read_many(&addrs, &mut data)?;
            for (&a, block) in addrs.iter().zip(data.chunks(len)) {
                assert_eq!(&model[at(a)], block, "block {} is not what was written", a.0);
            }
        }
        8 => {
            oram.update(addrs[0], &mut |block| block[0] ^= 0xff)?;
            model[at(addrs[0]).start] ^= 0xff;
        }
        _ => oram.sync()?,
    }
    Ok(())
}

fn assert_holds(oram: &mut dyn Oram, model: &[u8]) {
    let addrs: Vec<Addr> = (0..oram.blocks()).map(Addr).collect();
    let mut all = vec![0; model.len()];
    oram.read_many(&addrs, &mut all).unwrap();
    for (i, (want, got)) in
        model.chunks(oram.block_len()).zip(all.chunks(oram.block_len())).enumerate()
    {
        assert_eq!(want, got, "block {i} is not what was written");
    }
}

/// Equal numbers of operations on very different addresses and contents cause the same events, as
/// far as the scheme claims it. The traces of a scheme without a claim must differ: otherwise the
/// test could not detect a leak.
pub fn trace_is_public(scheme: &dyn Scheme) {
    let n = scheme.blocks();
    let workloads: [&dyn Fn(u64) -> u64; 4] =
        [&|_| 0, &|i| i % n, &|i| (n - 1) - (i * 7) % n, &|i| (i * i + 3 * i) % n];
    let traces: Vec<Vec<Event>> = workloads.iter().map(|w| trace_of(scheme, *w, 1)).collect();
    let shown: Vec<Vec<Event>> = traces.iter().map(|t| scheme.public_trace(t)).collect();
    let equal = shown.iter().all(|t| *t == shown[0]);
    assert!(!shown[0].is_empty(), "the scheme calls no event public");
    match scheme.hides() {
        Hides::Nothing => assert!(!equal, "the control looks secure: the test is blind"),
        _ => assert!(equal, "the trace distinguishes the workloads"),
    }
    assert!(traces[0].iter().filter(|e| e.op != Op::Sync).count() > 100, "too few events");
    // Places that are drawn at random change with the draws; all other places must not.
    let redrawn = trace_of(scheme, workloads[0], 77) != traces[0];
    assert_eq!(redrawn, scheme.draws_places(), "places follow the draws, or there are none");
}

fn trace_of(scheme: &dyn Scheme, address: &dyn Fn(u64) -> u64, seed: u64) -> Vec<Event> {
    let witness = Arc::new(Recorder::default());
    let mut subject = Subject { seed, ..Subject::new(scheme) };
    let store: Arc<dyn Store> = Arc::new(WatchedStore::new(subject.store(), witness.clone()));
    let mut oram = subject.create(store.clone()).unwrap();
    let mut block = vec![0; scheme.block_len()];
    let run = |oram: &mut dyn Oram, block: &mut [u8], from: u64| {
        for i in from..from + 3 * scheme.blocks().max(20) {
            block.fill(address(i) as u8);
            oram.write(Addr(address(i)), block).unwrap();
            oram.read(Addr(address(i + 1)), block).unwrap();
            if i % 23 == 0 {
                oram.sync().unwrap();
            }
            if i % 31 == 0 {
                let addrs: Vec<_> = (i..i + 5).map(|j| Addr(address(j))).collect();
                oram.write_many(&addrs, &vec![1; 5 * scheme.block_len()]).unwrap();
            }
        }
    };
    run(&mut *oram, &mut block, 0);
    // Also across an opening without a close.
    drop(oram);
    let mut oram = subject.open(store).unwrap();
    run(&mut *oram, &mut block, 1000);
    oram.close().unwrap();
    let hides = oram.hides();
    assert_eq!(hides, scheme.hides(), "the ORAM claims what its scheme claims");
    witness
        .take()
        .into_iter()
        .filter(|e| hides == Hides::ReadsAndWrites || e.op != Op::Read)
        .collect()
}

/// A store call fails, and then every later one; the reopened scheme holds everything synced, and
/// each block is old or new as a whole.
pub fn survives_failing_stores(scheme: &dyn Scheme) {
    for fuse in (0..40).chain((40..400).step_by(9)) {
        let mut subject = Subject::new(scheme);
        let store = subject.store();
        let faulty = Arc::new(Faulty::new(store.clone(), fuse));
        let created = subject.create(faulty.clone());
        let Ok(mut oram) = created else { continue };
        let mut history = History::new(scheme);
        let mut rng = SeededRng::new(fuse);
        while history.step(&mut *oram, &mut rng).is_ok() {}
        assert!(faulty.has_failed(), "an operation failed on a sound store");
        drop(oram);
        let mut again = subject.open(store).expect("a crash is not damage");
        history.check(&mut *again);
        // The reopened scheme works on.
        history.settle(&mut *again);
        for _ in 0..100 {
            history.step(&mut *again, &mut rng).unwrap();
        }
        history.check(&mut *again);
    }
}

/// The values that each block may hold: its value at the last sync, or any written since.
struct History {
    len: usize,
    allowed: HashMap<u64, Vec<Vec<u8>>>,
}

impl History {
    fn new(scheme: &dyn Scheme) -> Self {
        let len = scheme.block_len();
        let allowed = (0..scheme.blocks()).map(|a| (a, vec![vec![0; len]])).collect();
        Self { len, allowed }
    }

    fn step(&mut self, oram: &mut dyn Oram, rng: &mut SeededRng) -> Result {
        if rng.below(8) == 0 {
            oram.sync()?;
            for values in self.allowed.values_mut() {
                values.drain(..values.len() - 1);
            }
            return Ok(());
        }
        let count = 1 + rng.below(6);
        let addrs: Vec<Addr> = (0..count).map(|_| Addr(rng.below(oram.blocks()))).collect();
        let mut data = vec![0; addrs.len() * self.len];
        rng.fill(&mut data);
        for (a, block) in addrs.iter().zip(data.chunks(self.len)) {
            self.allowed.get_mut(&a.0).expect("every block").push(block.to_vec());
        }
        oram.write_many(&addrs, &data)
    }

    fn check(&self, oram: &mut dyn Oram) {
        let mut block = vec![0; self.len];
        for (&addr, values) in &self.allowed {
            match oram.read(Addr(addr), &mut block) {
                // Encryption in place has only one copy of a block, and the planted fault tears it.
                Err(Error::Tampered { .. }) if oram.hides() == Hides::Nothing => continue,
                other => other.unwrap(),
            }
            assert!(values.contains(&block), "block {addr} holds what it never should");
        }
    }

    /// Takes the present contents for the only allowed values.
    fn settle(&mut self, oram: &mut dyn Oram) {
        for (&addr, values) in &mut self.allowed {
            let mut block = vec![0; self.len];
            if oram.read(Addr(addr), &mut block).is_err() {
                oram.write(Addr(addr), &block).unwrap();
            }
            *values = vec![block];
        }
    }
}

/// After a sync or a close, the reopened scheme has the same blocks, again and again.
pub fn reopens_equal(scheme: &dyn Scheme) {
    let mut subject = Subject::new(scheme);
    let store = subject.store();
    let mut oram = subject.create(store.clone()).unwrap();
    let mut model = vec![0; scheme.blocks() as usize * scheme.block_len()];
    let mut rng = SeededRng::new(3);
    for round in 0..20 {
        for _ in 0..rng.below(60) {
            step(&mut *oram, &mut model, &mut rng).unwrap();
        }
        if round % 2 == 0 { oram.sync() } else { oram.close() }.unwrap();
        drop(oram);
        oram = subject.open(store.clone()).unwrap();
        assert_holds(&mut *oram, &model);
    }
}

/// Flips bytes and restores old bytes in all places: an error or no effect must follow. Done under
/// an open scheme, and between a close and the next opening.
pub fn refuses_tampering(scheme: &dyn Scheme) {
    let mut subject = Subject::new(scheme);
    let store = subject.store();
    let mut oram = subject.create(store.clone()).unwrap();
    let mut model = vec![0; scheme.blocks() as usize * scheme.block_len()];
    let mut rng = SeededRng::new(5);
    let mut old = vec![];
    for i in 0..300 {
        if i == 150 {
            old = store.snapshot();
        }
        step(&mut *oram, &mut model, &mut rng).unwrap();
    }
    let hides = oram.hides();
    let mut caught = 0;
    // Where reads rewrite the store, a change cannot be undone under an open scheme.
    if hides != Hides::ReadsAndWrites {
        oram.sync().unwrap();
        let sound = store.snapshot();
        for (at, bytes) in changes(scheme, &sound, &old, hides) {
            store.write(&[Extent::new(at as u64, bytes.len())], &bytes).unwrap();
            caught += refusals(&mut *oram, &model);
            let back = &sound[at..at + bytes.len()];
            store.write(&[Extent::new(at as u64, bytes.len())], back).unwrap();
        }
        assert_holds(&mut *oram, &model);
    }
    oram.close().unwrap();
    let (sound, state) = (store.snapshot(), subject.vault.kept());
    for (at, bytes) in changes(scheme, &sound, &old, hides) {
        let mut changed = sound.clone();
        changed[at..at + bytes.len()].copy_from_slice(&bytes);
        subject.vault.clone().keep(&state).unwrap();
        match subject.open(Arc::new(MemStore::from_bytes(&changed))) {
            Ok(mut oram) => caught += refusals(&mut *oram, &model),
            Err(e) if is_refusal(&e) => caught += 1,
            Err(other) => panic!("bytes at {at} were changed: {other}"),
        }
    }
    assert!(caught > 5, "only {caught} changes were noticed: the test is blind");
}

/// Whether an opening was refused because of the store's contents.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Tampered { .. } | Error::RolledBack { .. } | Error::WrongMap { .. })
}

/// Changes, as places and new bytes: everywhere on a small store, spread evenly on a large one.
fn changes(scheme: &dyn Scheme, sound: &[u8], old: &[u8], hides: Hides) -> Vec<(usize, Vec<u8>)> {
    let unit = scheme.block_len().min(512);
    let most = (300_000 / scheme.blocks() as usize).clamp(50, 1000);
    let mut list = vec![];
    for at in (0..sound.len() - unit).step_by((sound.len() / most).max(unit) + 1) {
        list.push((at, vec![sound[at] ^ (1 << (at % 8))]));
        let start = at / unit * unit;
        let replay = &old[start..start + unit];
        // The control claims no freshness.
        if hides != Hides::Nothing && *replay != sound[start..start + unit] {
            list.push((start, replay.to_vec()));
        }
    }
    list
}

/// Reads every block, and returns how many reads were refused. All other reads must be right.
fn refusals(oram: &mut dyn Oram, model: &[u8]) -> u32 {
    let len = oram.block_len();
    let mut block = vec![0; len];
    let mut refused = 0;
    for (addr, want) in model.chunks(len).enumerate() {
        match oram.read(Addr(addr as u64), &mut block) {
            Ok(()) => assert_eq!(block, want, "a change went unnoticed, and block {addr} is wrong"),
            Err(Error::Tampered { .. }) => refused += 1,
            // Schemes that write on reads allow no access after a refusal.
            Err(Error::EarlierDamage) if refused > 0 && oram.hides() == Hides::ReadsAndWrites => {
                break;
            }
            Err(other) => panic!("block {addr}: {other}"),
        }
    }
    refused
}
