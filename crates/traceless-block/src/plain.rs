//! The control: authenticated encryption in place, which hides contents and nothing else.
//!
//! Every write shows its address. There is no freshness: a replayed old copy of a block is
//! accepted. Each slot's entry has room for two records, so that a write that is interrupted
//! between entry and body leaves the old block readable; a power cut may still tear a body.
//!
//! Every block has its own slot, so the place of a write shows the address:
//!
//! ```
//! use std::sync::Arc;
//! use traceless_block::plain::PlainScheme;
//! use traceless_core::rng::System;
//! use traceless_core::scheme::SchemeContext;
//! use traceless_core::scheme::contract::Scheme;
//! use traceless_core::store::{MemStore, WatchedStore};
//! use traceless_core::trace::{Op, Recorder};
//! use traceless_core::{Addr, Hides};
//!
//! # fn main() -> traceless_core::Result {
//! let scheme = PlainScheme { blocks: 1000, block_len: 4096 };
//! assert_eq!(scheme.hides(), Hides::Nothing);
//! let witness = Arc::new(Recorder::default());
//! let store = WatchedStore::new(MemStore::new(scheme.store_len()), witness.clone());
//! let mut oram = scheme.create(SchemeContext::over(Arc::new(store), Box::new(System)))?;
//!
//! let mut place_of_write = |addr| -> traceless_core::Result<u64> {
//!     witness.take();
//!     oram.write(Addr(addr), &[1; 4096])?;
//!     oram.sync()?;
//!     let events = witness.take();
//!     Ok(events.iter().filter(|e| e.op == Op::Write).map(|e| e.at).max().expect("a write"))
//! };
//! assert_eq!(place_of_write(8)? - place_of_write(7)?, 4096);
//! # Ok(())
//! # }
//! ```

use crate::pool::Pool;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::{BlockOram, Hides, Oram, check_request};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::lifecycle::Lifecycle;
use traceless_core::scheme::openings::key_bytes_max;
use traceless_core::seal::{Cipher, Nonce, Salt, Sealer, Secret, TAG_LEN};
use traceless_core::store::{Area, Run, SlotLayout, Store};
use traceless_core::types::{Addr, Slot};

/// Bytes of a record: salt, sequence number, tag. A record of zeros was never written.
const RECORD_LEN: usize = Salt::LEN + 8 + TAG_LEN;
const ENTRY_LEN: usize = 2 * RECORD_LEN;
const STATE_LEN: usize = 2 + 1 + 8 + 8;

/// Blocks moved in one round trip, at most.
const BLOCKS_PER_BATCH: usize = 64;

/// Sequence numbers per opening: each opening begins at a multiple of this number.
const WRITES_PER_OPENING: u64 = 1 << 40;

mod scheme;

pub use scheme::{PLAIN, PlainScheme};

/// The scheme. See the [module](self).
pub struct Plain {
    area: Area,
    store: Arc<dyn Store>,
    key: Secret,
    cipher: Cipher,
    /// The sealer of this opening.
    sealer: Box<dyn Sealer>,
    opening: u64,
    before: u64,
    count: u64,
    life: Lifecycle,
    readers: Pool<Scratch>,
    writer: Scratch,
}

#[derive(Default)]
struct Scratch {
    run: Run,
    entries: Vec<u8>,
    /// The key of the opening that sealed the last block read.
    other: Option<(u64, Box<dyn Sealer>)>,
}

impl Plain {
    fn layout(blocks: u64, block_len: usize) -> SlotLayout {
        SlotLayout { slots: blocks, body_len: block_len, entry_len: ENTRY_LEN, stripe_slots: 64 }
    }

    /// Bytes that `blocks` blocks of `block_len` bytes take on a store.
    pub fn store_len(blocks: u64, block_len: usize) -> u64 {
        Self::layout(blocks, block_len).len()
    }

    /// Bytes written to the store per byte that the user writes.
    pub(crate) fn write_amplification(block_len: usize) -> f64 {
        (block_len + ENTRY_LEN) as f64 / block_len as f64
    }

    /// Creates a new store. Entries of zero mean "never written", so all entries are cleared first.
    pub fn create(blocks: u64, block_len: usize, context: SchemeContext) -> Result<Self> {
        let new = Self::begin(blocks, block_len, context, 0, 0)?;
        new.area.clear_entries()?;
        Ok(new)
    }

    /// Opens the store from the last `state` in its vault.
    pub fn open(
        blocks: u64,
        block_len: usize,
        context: SchemeContext,
        state: &[u8],
    ) -> Result<Self> {
        Self::peek_state(state)?;
        let word = |at: usize| u64::from_le_bytes(state[at..at + 8].try_into().expect("8 bytes"));
        Self::begin(blocks, block_len, context, word(3) + 1, word(11))
    }

    /// The number of writes recorded in a state, and whether it was closed.
    pub fn peek_state(state: &[u8]) -> Result<(u64, bool)> {
        if state.len() != STATE_LEN || state[..2] != [1, 0] {
            return Err(Error::State("it is of another version"));
        }
        let count = u64::from_le_bytes(state[11..19].try_into().expect("8 bytes"));
        Ok((count, state[2] == 1))
    }

    fn begin(
        blocks: u64,
        block_len: usize,
        context: SchemeContext,
        opening: u64,
        before: u64,
    ) -> Result<Self> {
        if blocks == 0 {
            return Err(Error::Geometry("there must be at least one block"));
        }
        context.check(Self::store_len(blocks, block_len))?;
        let layout = Self::layout(blocks, block_len);
        let life = Lifecycle::new(context.read_only, context.vault, context.rng);
        let mut new = Self {
            area: Area::new(context.store.clone(), context.first, layout, "plain"),
            store: context.store,
            sealer: sealer(&context.key, context.cipher, opening),
            key: context.key,
            cipher: context.cipher,
            opening,
            before,
            count: 0,
            life,
            readers: Pool::default(),
            writer: Scratch::default(),
        };
        if !new.life.is_read_only() {
            new.keep_state(false)?;
        }
        Ok(new)
    }

    fn keep_state(&mut self, clean: bool) -> Result {
        let mut state = Vec::with_capacity(STATE_LEN);
        state.extend_from_slice(&1u16.to_le_bytes());
        state.push(u8::from(clean));
        state.extend_from_slice(&self.opening.to_le_bytes());
        state.extend_from_slice(&self.writes().to_le_bytes());
        self.life.keep(&state)
    }

    /// Begins a new opening, with another key, before the current key has sealed too much.
    fn renew_key(&mut self) -> Result {
        self.opening += 1;
        self.sealer = sealer(&self.key, self.cipher, self.opening);
        self.before += self.count;
        self.count = 0;
        self.keep_state(false)
    }

    /// Opens a block with the newer record, or with the older one if the newer write was
    /// interrupted.
    fn open_block(
        &self,
        slot: u64,
        entry: &[u8],
        body: &[u8],
        other: &mut Option<(u64, Box<dyn Sealer>)>,
        into: &mut [u8],
    ) -> Result {
        let (a, b) = entry.split_at(RECORD_LEN);
        let (newer, older) = if sequence(a) >= sequence(b) { (a, b) } else { (b, a) };
        for record in [newer, older] {
            if record.iter().all(|&byte| byte == 0) {
                continue;
            }
            let opening = sequence(record) / WRITES_PER_OPENING;
            let sealer = if opening == self.opening {
                &self.sealer
            } else {
                if other.as_ref().is_none_or(|(known, _)| *known != opening) {
                    *other = Some((opening, sealer(&self.key, self.cipher, opening)));
                }
                &other.as_ref().expect("just set").1
            };
            let nonce = Nonce::new(sequence(record), Salt::split(record).0);
            let tag = &record[16..];
            if sealer.open(nonce, &slot.to_le_bytes(), body, tag, into).is_ok() {
                return Ok(());
            }
        }
        if entry.iter().all(|&byte| byte == 0) {
            into.fill(0);
            return Ok(());
        }
        Err(Error::Tampered { place: Place { area: self.area.name(), slot, block: Some(slot) } })
    }

    fn write_batch(&mut self, first: u64, from: &[u8], scratch: &mut Scratch) -> Result {
        let len = self.area.layout().body_len;
        let blocks = from.len() / len;
        let Scratch { run, entries, .. } = scratch;
        entries.resize(blocks * ENTRY_LEN, 0);
        self.area.read_entries(Slot(first), blocks as u64, entries)?;
        run.clear();
        run.add_in_place(&self.area, Slot(first), blocks as u64);
        let salt = self.life.rng.salt();
        for (i, (plain, old)) in
            from.chunks_exact(len).zip(entries.chunks_exact(ENTRY_LEN)).enumerate()
        {
            let slot = first + i as u64;
            let number = self.opening * WRITES_PER_OPENING + self.count + i as u64;
            let (entry, body) = run.slot_mut(i);
            entry.copy_from_slice(old);
            let at = if sequence(old) > sequence(&old[RECORD_LEN..]) { RECORD_LEN } else { 0 };
            let (head, tag) = entry[at..at + RECORD_LEN].split_at_mut(16);
            salt.put(head).copy_from_slice(&number.to_le_bytes());
            self.sealer.seal(Nonce::new(number, salt), &slot.to_le_bytes(), plain, body, tag);
        }
        // These numbers are used up even after a failure, since they may have sealed something.
        self.count += blocks as u64;
        run.write(&*self.store)
    }

    fn read_batch(&self, addrs: &[Addr], into: &mut [u8], scratch: &mut Scratch) -> Result {
        let len = self.area.layout().body_len;
        let Scratch { run, other, .. } = scratch;
        run.clear();
        for (first, range) in stretches(addrs) {
            run.add(&self.area, Slot(first), range.len() as u64);
        }
        run.read(&*self.store)?;
        for (i, (addr, into)) in addrs.iter().zip(into.chunks_exact_mut(len)).enumerate() {
            let (entry, body) = run.slot(i);
            self.open_block(addr.0, entry, body, other, into)?;
        }
        Ok(())
    }
}

/// Splits a request into runs of consecutive blocks: (first block, range in the request).
fn stretches(addrs: &[Addr]) -> impl Iterator<Item = (u64, core::ops::Range<usize>)> + '_ {
    let mut at = 0;
    core::iter::from_fn(move || {
        let first = addrs.get(at)?.0;
        let near = |&(i, a): &(usize, &Addr)| a.0 == first + i as u64 && i < BLOCKS_PER_BATCH;
        let count = addrs[at..].iter().enumerate().take_while(near).count();
        at += count;
        Some((first, at - count..at))
    })
}

impl Oram for Plain {
    fn blocks(&self) -> u64 {
        self.area.slots()
    }

    fn block_len(&self) -> usize {
        self.area.layout().body_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.read_shared(addrs, into)
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks(), self.block_len(), addrs, from.len())?;
        self.life.writable()?;
        let len = self.block_len();
        if (self.count + addrs.len() as u64) * len as u64 > key_bytes_max(len) {
            self.renew_key()?;
        }
        let mut scratch = core::mem::take(&mut self.writer);
        let result = stretches(addrs).try_for_each(|(first, range)| {
            self.write_batch(first, &from[range.start * len..range.end * len], &mut scratch)
        });
        self.writer = scratch;
        result
    }

    fn sync(&mut self) -> Result {
        self.sync_shared()
    }

    fn hides(&self) -> Hides {
        Hides::Nothing
    }

    fn close(&mut self) -> Result {
        if !self.life.takes_writes() {
            return Ok(());
        }
        self.sync_shared()?;
        self.keep_state(true)?;
        self.life.end();
        Ok(())
    }
}

impl BlockOram for Plain {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.blocks(), self.block_len(), addrs, into.len())?;
        let len = self.block_len();
        self.readers.with(|scratch| {
            let batches = addrs.chunks(BLOCKS_PER_BATCH);
            batches
                .zip(into.chunks_mut(BLOCKS_PER_BATCH * len))
                .try_for_each(|(addrs, into)| self.read_batch(addrs, into, scratch))
        })
    }

    fn sync_shared(&self) -> Result {
        self.life.sync(&*self.store, self.writes())
    }

    fn writes(&self) -> u64 {
        self.before + self.count
    }

    fn write_dummy(&mut self) -> Result {
        // This scheme hides nothing, so it needs no dummy writes.
        Ok(())
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        let mut block = vec![0; self.block_len()];
        for addr in 0..self.blocks() {
            match self.read_shared(&[Addr(addr)], &mut block) {
                Err(Error::Tampered { place }) => damaged(place),
                other => other?,
            }
            progress(addr + 1, self.blocks());
        }
        Ok(())
    }
}

/// The sealer of an opening. Two copies of an image may have openings with the same number; then
/// the salts of their nonces differ.
fn sealer(key: &Secret, cipher: Cipher, opening: u64) -> Box<dyn Sealer> {
    cipher.sealer(&key.derive(&[b"plain", &opening.to_le_bytes()]))
}

/// The sequence number of a record.
fn sequence(record: &[u8]) -> u64 {
    u64::from_le_bytes(record[8..16].try_into().expect("8 bytes"))
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use traceless_core::durable::{MemVault, Vault};
    use traceless_core::store::WatchedStore;
    use traceless_core::suite::rig::Rig;
    use traceless_core::trace::Recorder;

    fn rig() -> Rig<()> {
        Rig::with_room((), Plain::store_len(8, 64))
    }

    /// A vault that keeps the first state and fails afterwards.
    struct Once(Option<MemVault>);

    impl Vault for Once {
        fn keep(&mut self, state: &[u8]) -> Result {
            self.0.take().ok_or(Error::Store("the vault is gone"))?.keep(state)
        }
    }

    #[test]
    fn an_id_that_was_not_kept_writes_nothing() {
        let mut rig = rig();
        let mut context = rig.context(rig.store.clone(), false);
        context.vault = Box::new(Once(Some(rig.vault.clone())));
        let mut oram = Plain::create(8, 64, context).unwrap();
        oram.write(Addr(1), &[1; 64]).unwrap();
        oram.count = key_bytes_max(64) / 64;
        let before = rig.store.snapshot();
        assert!(matches!(oram.write(Addr(1), &[2; 64]), Err(Error::Store(_))));
        assert!(matches!(oram.write(Addr(1), &[2; 64]), Err(Error::Poisoned)));
        assert!(matches!(oram.close(), Err(Error::Poisoned)));
        assert!(rig.store.snapshot() == before);
    }

    #[test]
    fn opened_for_reading_nothing_is_synced() {
        let mut rig = rig();
        drop(Plain::create(8, 64, rig.context(rig.store.clone(), false)).unwrap());
        let witness = Arc::new(Recorder::default());
        let watched = Arc::new(WatchedStore::new(rig.store.clone(), witness.clone()));
        let context = rig.context(watched, true);
        let mut oram = Plain::open(8, 64, context, &rig.vault.kept()).unwrap();
        oram.sync().unwrap();
        oram.close().unwrap();
        assert_eq!(witness.take(), []);
    }
}
