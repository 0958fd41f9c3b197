//! Discards with one fault each, around a `DetWo` that is sound itself.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::ops::Range;
use traceless::error::Place;
use traceless::oram::Oram;
use traceless::{Addr, BlockOram, Hides, Result};

/// A fault. The default of each constant is correct.
pub trait DiscardFault: Send + Sync {
    /// Whether a discard of blocks that are discarded already writes nothing.
    const SKIPS_UNCHANGED: bool = false;

    /// Whether a write to a discarded block notes in the map that the block is in use again.
    const NOTES_REWRITES: bool = false;
}

/// No fault.
pub struct SoundDiscards;

impl DiscardFault for SoundDiscards {}

/// The number of writes shows whether a discard changed anything.
pub struct SkipsUnchanged;

impl DiscardFault for SkipsUnchanged {
    const SKIPS_UNCHANGED: bool = true;
}

/// The number of writes shows how many writes went to discarded blocks.
pub struct NotesRewrites;

impl DiscardFault for NotesRewrites {
    const NOTES_REWRITES: bool = true;
}

/// A scheme with the fault `F` in its discards.
pub struct DiscardMutant<F> {
    inner: Box<dyn BlockOram>,
    /// Blocks that were discarded since it was made or opened, and not written since.
    discarded: BTreeSet<u64>,
    fault: PhantomData<F>,
}

impl<F> DiscardMutant<F> {
    pub fn new(inner: Box<dyn BlockOram>) -> Self {
        Self { inner, discarded: BTreeSet::new(), fault: PhantomData }
    }
}

impl<F: DiscardFault> Oram for DiscardMutant<F> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn block_len(&self) -> usize {
        self.inner.block_len()
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.inner.read_many(addrs, into)
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        self.inner.write_many(addrs, from)?;
        for addr in addrs {
            if self.discarded.remove(&addr.0) && F::NOTES_REWRITES {
                // What an adversary observes of a write to the map is what it observes of any.
                self.inner.write_dummy()?;
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result {
        self.inner.sync()
    }

    fn hides(&self) -> Hides {
        self.inner.hides()
    }

    fn close(&mut self) -> Result {
        self.inner.close()
    }
}

impl<F: DiscardFault> BlockOram for DiscardMutant<F> {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.inner.read_shared(addrs, into)
    }

    fn discard(&mut self, blocks: Range<u64>) -> Result {
        if F::SKIPS_UNCHANGED && blocks.clone().all(|block| self.discarded.contains(&block)) {
            return Ok(());
        }
        self.inner.discard(blocks.clone())?;
        self.discarded.extend(blocks);
        Ok(())
    }

    fn write_out(&mut self) -> Result {
        self.inner.write_out()
    }

    fn sync_shared(&self) -> Result {
        self.inner.sync_shared()
    }

    fn writes(&self) -> u64 {
        self.inner.writes()
    }

    fn write_dummy(&mut self) -> Result {
        self.inner.write_dummy()
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        self.inner.verify(progress, damaged)
    }
}
