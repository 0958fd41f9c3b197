//! Trusted state that is saved together with a log of pending bucket writes, so that a crash takes
//! both back to the last sync: for schemes that rewrite what they read.
//!
//! Between two syncs, written buckets stay in memory, so the areas in the store keep the contents
//! of the last sync. A sync writes these buckets to a log and the sealed trusted state beside it,
//! makes both durable, and records them in the vault; only then does it write the buckets to their
//! places. There are two logs and two states, used in turns, so that one sync of the store serves
//! both the new log and the places of the log before. An opening reads the state that the vault
//! records and writes its log to its places once more.

use crate::tree::PendingBuckets;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::durable::{load_words, save_words};
use traceless_core::error::{Error, Place, Result};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::lifecycle::Lifecycle;
use traceless_core::scheme::openings::{Opening, Openings, SchemeState};
use traceless_core::seal::{Aead, Nonce, Salt, Sealer, Secret, TAG_LEN};
use traceless_core::store::Store;
use traceless_core::types::Extent;
use traceless_sys::ct::secret::declassify;

/// Layout of one of the two copies of the trusted state.
#[derive(Clone)]
pub(crate) struct CopyLayout {
    /// First byte of the first copy.
    pub at: u64,
    /// Bytes of a copy.
    pub len: u64,
    /// Bytes of the part of the state with a fixed length, without its tag.
    pub fixed: u64,
    /// First byte of each log in a copy.
    pub logs: Vec<u64>,
}

impl CopyLayout {
    /// Copies of `saved` bytes of trusted state from byte `at` on, with one log for each entry of
    /// `held`: at most that many pieces, with so many bytes in all.
    pub fn new(at: u64, saved: u64, held: &[(u64, u64)]) -> Self {
        let fixed = saved + held.len() as u64 * WORD;
        let table: u64 = held.iter().map(|(pieces, _)| pieces * WORD).sum();
        let mut len = fixed + table + 2 * FRONT_LEN as u64;
        let mut logs = Vec::new();
        for (_, bytes) in held {
            logs.push(len);
            len += bytes;
        }
        Self { at, len, fixed, logs }
    }

    /// First byte behind both copies.
    pub fn end(&self) -> u64 {
        self.at + 2 * self.len
    }

    /// Bytes that each save writes besides the pending buckets, which take 8 more bytes each.
    pub fn state_len(&self) -> u64 {
        self.fixed + 2 * FRONT_LEN as u64
    }
}

const WORD: u64 = size_of::<u64>() as u64;

/// Bytes in front of a sealed part: its salt and its tag.
const FRONT_LEN: usize = Salt::LEN + TAG_LEN;

/// The contents of the last save.
pub(crate) struct Checkpoint {
    /// The trusted state.
    pub saved: Vec<u8>,
    /// The places (first bytes) of the pieces in each log.
    pub places: Vec<Vec<u64>>,
}

/// See the [module](self).
pub(crate) struct Saves {
    copies: CopyLayout,
    store: Arc<dyn Store>,
    first: u64,
    key: Secret,
    /// The purpose label of the states' key.
    purpose: &'static [u8],
    /// Associated data of the states: all public parameters.
    bound: Vec<u8>,
    /// The openings, with the keys of the states.
    openings: Openings<Aead>,
    pub life: Lifecycle,
    /// Saves made since creation: the number of the newest state.
    count: u64,
    /// The state that the vault keeps. An opening that began since then has sealed nothing that was
    /// saved.
    kept: SchemeState,
}

impl Saves {
    /// For the vault's `state`; its newest save must be found.
    pub fn new(
        copies: CopyLayout,
        purpose: &'static [u8],
        bound: Vec<u8>,
        context: SchemeContext,
        state: &SchemeState,
    ) -> Result<Self> {
        if state.at_least < context.expect_writes {
            let (expected, found) = (context.expect_writes, state.at_least);
            return Err(Error::RolledBack { expected, found });
        }
        context.check(copies.end())?;
        let SchemeContext { store, first, key, vault, rng, read_only, .. } = context;
        Ok(Self {
            openings: Openings::new(state, |opening| state_key(&key, purpose, opening)),
            life: Lifecycle::new(read_only, vault, rng),
            count: state.at_least,
            kept: state.clone(),
            copies,
            store,
            first,
            key,
            purpose,
            bound,
        })
    }

    /// The store and the first byte of the areas.
    pub fn store(&self) -> (&Arc<dyn Store>, u64) {
        (&self.store, self.first)
    }

    /// The master key, from which all other keys are derived.
    pub fn key(&self) -> &Secret {
        &self.key
    }

    pub fn openings(&self) -> &Openings<Aead> {
        &self.openings
    }

    /// Draws a new id for what is sealed after `start` writes. Nothing is sealed again under a
    /// known id, so the id may be kept with the next state.
    pub fn begin_opening(&mut self, start: u64) -> Result<Opening> {
        let id = self.life.draw_id();
        let opening = self.openings.next(id, start);
        self.openings.push(opening, state_key(&self.key, self.purpose, &opening))?;
        Ok(opening)
    }

    /// Forgets the openings from before `start`, once everything was resealed after `start` writes.
    pub fn forget_before(&mut self, start: u64) {
        self.openings.prune(|next| next <= start);
    }

    /// Records the scheme as open: from the first access on, an end without a close is a crash.
    pub fn keep_open(&mut self) -> Result {
        self.kept = self.openings.state(false, self.count);
        self.life.keep(&self.kept.encode())
    }

    /// Writes log and state, makes them durable, and records them in the vault. Then the pending
    /// buckets may go to their places. `saved` must always have the same length. The caller makes
    /// sure that no access is incomplete.
    pub fn save(&mut self, saved: Vec<u8>, held: &[&PendingBuckets]) -> Result {
        self.life.writable()?;
        self.try_save(saved, held).inspect_err(|_| self.life.poison())
    }

    fn try_save(&mut self, mut fixed: Vec<u8>, held: &[&PendingBuckets]) -> Result {
        self.count += 1;
        let mut table = Vec::new();
        for held in held {
            save_words(&[held.extents().len() as u64], &mut fixed);
            held.extents().iter().for_each(|e| save_words(&[e.at], &mut table));
        }
        assert_eq!(fixed.len() as u64, self.copies.fixed, "its length is public");
        let at = self.copy_at();
        let mut sealed = self.seal(2 * self.count, &mut fixed);
        sealed.extend(self.seal(2 * self.count + 1, &mut table));
        self.store.write(&[Extent::new(at, sealed.len())], &sealed)?;
        for (held, log) in held.iter().zip(&self.copies.logs) {
            if !held.bytes().is_empty() {
                let extent = Extent::new(at + log, held.bytes().len());
                self.store.write(&[extent], held.bytes())?;
            }
        }
        self.life.sync(&*self.store, self.count)?;
        self.keep_open()
    }

    /// Loads the newest state.
    pub fn load(&self) -> Result<Checkpoint> {
        let mut saved = self.open(2 * self.count, 0, self.copies.fixed)?;
        let mut counts = vec![0; self.copies.logs.len()];
        let words = saved.split_off(saved.len() - counts.len() * WORD as usize);
        load_words(&mut counts, &mut &words[..])?;
        let table = self.copies.fixed + FRONT_LEN as u64;
        let table = self.open(2 * self.count + 1, table, WORD * counts.iter().sum::<u64>())?;
        let mut rest = &table[..];
        let mut places = Vec::new();
        for count in counts {
            let mut of_log = vec![0; count as usize];
            load_words(&mut of_log, &mut rest)?;
            places.push(of_log);
        }
        Ok(Checkpoint { saved, places })
    }

    /// Writes log number `nth` to its places, since the last save may not have finished that. Bytes
    /// that differ from what was logged do not verify there later.
    pub fn redo(&self, nth: usize, extents: &[Extent]) -> Result {
        if extents.is_empty() {
            return Ok(());
        }
        let mut bytes = vec![0; traceless_core::types::total_len(extents)];
        let log = Extent::new(self.copy_at() + self.copies.logs[nth], bytes.len());
        self.store.read(&[log], &mut bytes)?;
        self.store.write(extents, &bytes)
    }

    /// Ends the scheme after a save, or without one if there were no accesses. Makes the bucket
    /// places durable, so that the next opening need not write them again.
    pub fn close(&mut self) -> Result {
        self.life.sync(&*self.store, self.count)?;
        // The last opening in this list is the one that sealed the state.
        self.life.keep(&SchemeState { clean: true, ..self.kept.clone() }.encode())?;
        self.life.end();
        Ok(())
    }

    /// First byte of the copy with the newest state.
    fn copy_at(&self) -> u64 {
        self.first + self.copies.at + self.count % 2 * self.copies.len
    }

    /// Salt, tag and sealed bytes of one part of the state.
    fn seal(&mut self, version: u64, part: &mut [u8]) -> Vec<u8> {
        let mut sealed = vec![0; FRONT_LEN];
        let salt = self.life.rng.salt();
        let (_, key) = self.openings.find(|_| true);
        let nonce = Nonce::new(version, salt);
        key.seal_in_place(nonce, &self.bound, part, salt.put(&mut sealed));
        sealed.extend_from_slice(part);
        declassify(&mut sealed);
        sealed
    }

    fn open(&self, version: u64, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut sealed = vec![0; FRONT_LEN + len as usize];
        self.store.read(&[Extent::new(self.copy_at() + at, sealed.len())], &mut sealed)?;
        let (front, sealed) = sealed.split_at(FRONT_LEN);
        let (salt, tag) = Salt::split(front);
        let mut plain = vec![0; sealed.len()];
        let (_, key) = self.openings.find(|_| true);
        key.open(Nonce::new(version, salt), &self.bound, sealed, tag, &mut plain).map_err(
            |_| {
                let area = if self.count.is_multiple_of(2) { "state 0" } else { "state 1" };
                Error::Tampered { place: Place { area, slot: self.count, block: None } }
            },
        )?;
        Ok(plain)
    }
}

fn state_key(key: &Secret, purpose: &[u8], opening: &Opening) -> Aead {
    Aead::new(&key.derive(&[purpose, &opening.id]))
}
