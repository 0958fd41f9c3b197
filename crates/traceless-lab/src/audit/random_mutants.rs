//! Schemes of random slots with one fault each in the choice of slots.
//!
//! They write in place and keep their map in memory. Without a fault ([`SoundRandom`]) they pass,
//! so what an audit finds in a mutant is the fault.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use traceless::error::{Error, Place};
use traceless::oram::Oram;
use traceless::oram::check_request;
use traceless::rng::Rng;
use traceless::scheme::SchemeContext;
use traceless::seal::{Aead, Nonce, Sealer, TAG_LEN};
use traceless::store::{Area, Run, SlotLayout, Store};
use traceless::{Addr, Hides, Result, Slot};

/// Slots that each write writes anew.
const DRAWS: usize = 3;

/// How the first slot of a write is chosen; the rest are always drawn at random.
pub trait Choice: Send + Sync {
    /// The slot, of `slots`, for a block that is in `current_slot` now; `block_in_slot` holds the
    /// block of each live slot.
    fn choose(
        rng: &mut dyn Rng,
        slots: u64,
        current_slot: Option<u64>,
        block_in_slot: &[Option<u64>],
    ) -> u64;
}

/// No fault: any slot.
pub struct SoundRandom;

impl Choice for SoundRandom {
    fn choose(rng: &mut dyn Rng, slots: u64, _: Option<u64>, _: &[Option<u64>]) -> u64 {
        rng.below(slots)
    }
}

/// Writes the slot that its block is in, so that the stash stays empty; repeated writes to one
/// block are visible to the adversary.
pub struct OwnSlot;

impl Choice for OwnSlot {
    fn choose(rng: &mut dyn Rng, slots: u64, current_slot: Option<u64>, _: &[Option<u64>]) -> u64 {
        current_slot.unwrap_or_else(|| rng.below(slots))
    }
}

/// Draws one slot among the free ones, so that no stash is needed; the adversary learns which slots
/// are free.
pub struct PrefersFree;

impl Choice for PrefersFree {
    fn choose(rng: &mut dyn Rng, slots: u64, _: Option<u64>, block_in_slot: &[Option<u64>]) -> u64 {
        loop {
            let slot = rng.below(slots);
            if block_in_slot[slot as usize].is_none() {
                return slot;
            }
        }
    }
}

/// The scheme with slots chosen by `C`. It cannot be opened again.
pub struct RandomMutant<C> {
    blocks: u64,
    store: Arc<dyn Store>,
    area: Area,
    sealer: Aead,
    rng: Box<dyn Rng>,
    /// The slot of each block.
    map: Vec<Option<u64>>,
    /// The block of each slot.
    block_in_slot: Vec<Option<u64>>,
    /// The version that each slot was sealed with.
    versions: Vec<u64>,
    version: u64,
    stash: VecDeque<(u64, Vec<u8>)>,
    choice: PhantomData<C>,
}

/// A layout with two slots for each block.
pub fn layout(blocks: u64, block_len: usize) -> SlotLayout {
    SlotLayout { slots: 2 * blocks, body_len: block_len, entry_len: 64, stripe_slots: 64 }
}

impl<C: Choice> RandomMutant<C> {
    /// Makes a new mutant; every block reads as zeros.
    pub fn create(blocks: u64, block_len: usize, context: SchemeContext) -> Self {
        let layout = layout(blocks, block_len);
        let slots = layout.slots as usize;
        Self {
            blocks,
            area: Area::new(context.store.clone(), context.first, layout, "slots"),
            store: context.store,
            sealer: Aead::new(&context.key.derive(&[b"random mutant"])),
            rng: context.rng,
            map: vec![None; blocks as usize],
            block_in_slot: vec![None; slots],
            versions: vec![0; slots],
            version: 0,
            stash: VecDeque::new(),
            choice: PhantomData,
        }
    }

    fn write_one(&mut self, block: u64, plain: &[u8]) -> Result {
        let current_slot = self.map[block as usize];
        let mut slots =
            vec![C::choose(&mut *self.rng, self.area.slots(), current_slot, &self.block_in_slot)];
        while slots.len() < DRAWS {
            let slot = self.rng.below(self.area.slots());
            if !slots.contains(&slot) {
                slots.push(slot);
            }
        }
        if let Some(slot) = self.map[block as usize].take() {
            self.block_in_slot[slot as usize] = None;
        }
        self.stash.retain(|(stashed, _)| *stashed != block);
        self.stash.push_back((block, plain.to_vec()));
        let mut run = Run::default();
        for &slot in &slots {
            run.add_in_place(&self.area, Slot(slot), 1);
        }
        for (nth, &slot) in slots.iter().enumerate() {
            let contents = self.next_contents(slot)?;
            self.version += 1;
            self.versions[slot as usize] = self.version;
            let (entry, body) = run.slot_mut(nth);
            entry.fill(0);
            self.sealer.seal(
                Nonce::of_fresh_key(self.version),
                &[],
                &contents,
                body,
                &mut entry[..TAG_LEN],
            );
        }
        run.write(&*self.store)
    }

    /// The plaintext for a slot that is written anew: its live block, the oldest of the stash, or
    /// zeros.
    fn next_contents(&mut self, slot: u64) -> Result<Vec<u8>> {
        let mut contents = vec![0; self.block_len()];
        if self.block_in_slot[slot as usize].is_some() {
            self.fetch(slot, &mut contents)?;
        } else if let Some((block, plain)) = self.stash.pop_front() {
            self.block_in_slot[slot as usize] = Some(block);
            self.map[block as usize] = Some(slot);
            contents = plain;
        }
        Ok(contents)
    }

    fn fetch(&self, slot: u64, into: &mut [u8]) -> Result {
        let mut run = Run::default();
        run.add(&self.area, Slot(slot), 1);
        run.read(&*self.store)?;
        let (entry, body) = run.slot(0);
        let place = Place { area: self.area.name(), slot, block: None };
        self.sealer
            .open(
                Nonce::of_fresh_key(self.versions[slot as usize]),
                &[],
                body,
                &entry[..TAG_LEN],
                into,
            )
            .map_err(|_| Error::Tampered { place })
    }

    fn read_one(&self, block: u64, into: &mut [u8]) -> Result {
        if let Some((_, plain)) = self.stash.iter().find(|(stashed, _)| *stashed == block) {
            into.copy_from_slice(plain);
            return Ok(());
        }
        if let Some(slot) = self.map[block as usize] {
            return self.fetch(slot, into);
        }
        into.fill(0);
        Ok(())
    }
}

impl<C: Choice> Oram for RandomMutant<C> {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.area.layout().body_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.blocks, self.block_len(), addrs, into.len())?;
        let mut blocks = addrs.iter().zip(into.chunks_exact_mut(self.block_len()));
        blocks.try_for_each(|(addr, block)| self.read_one(addr.0, block))
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks, self.block_len(), addrs, from.len())?;
        let mut blocks = addrs.iter().zip(from.chunks_exact(self.block_len()));
        blocks.try_for_each(|(addr, block)| self.write_one(addr.0, block))
    }

    fn sync(&mut self) -> Result {
        self.store.sync()
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn close(&mut self) -> Result {
        self.sync()
    }
}
