//! Faults of a lane, planted between the scheme and its disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use traceless::store::{MemStore, SlotLayout, Store, WatchedStore};
use traceless::trace::Recorder;
use traceless::types::total_len;
use traceless::{Extent, Result};

/// A fault that shows whether hidden volumes are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneFault {
    Nothing,
    /// Slots without a hidden block are zeros.
    EmptyZeros,
    /// In slots without a hidden block the highest bit of each sixteenth byte is clear.
    WeakFiller,
    /// Slots without a hidden block are not written.
    SkipsEmpty,
    /// A hidden request makes a public write.
    WritesAtOnce,
}

/// A disk with a lane, and the fault before it.
pub struct FaultyDisk {
    inner: WatchedStore<Arc<MemStore>, Arc<Recorder>>,
    fault: LaneFault,
    /// First byte and layout of the lane.
    lane: (u64, SlotLayout),
    /// Whether no hidden block waits for the slots that are written now.
    pub is_empty: AtomicBool,
}

impl FaultyDisk {
    pub fn new(
        inner: WatchedStore<Arc<MemStore>, Arc<Recorder>>,
        fault: LaneFault,
        lane: (u64, SlotLayout),
    ) -> Self {
        Self { inner, fault, lane, is_empty: AtomicBool::new(true) }
    }

    /// Whether the extent holds bodies of lane slots.
    fn has_bodies(&self, extent: &Extent) -> bool {
        let (first, layout) = self.lane;
        let within = extent.at.checked_sub(first).filter(|within| *within < layout.len());
        within.is_some_and(|within| within % layout.stripe_len() >= layout.header_len() as u64)
    }

    /// Changes what is written to slots of the lane without a hidden block.
    fn spoil(&self, extents: &[Extent], bytes: &mut [u8]) {
        let mut rest = bytes;
        for extent in extents {
            let (part, next) = rest.split_at_mut(extent.len);
            if self.has_bodies(extent) {
                match self.fault {
                    LaneFault::EmptyZeros => part.fill(0),
                    LaneFault::WeakFiller => {
                        part.iter_mut().step_by(16).for_each(|byte| *byte &= 0x7f);
                    }
                    _ => {}
                }
            }
            rest = next;
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for FaultyDisk {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
    fn unit(&self) -> usize {
        self.inner.unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.inner.read(extents, into)
    }
    fn prefetch(&self, extents: &[Extent]) {
        self.inner.prefetch(extents);
    }
    fn takes_discards(&self) -> bool {
        self.inner.takes_discards()
    }
    fn discard(&self, extents: &[Extent]) {
        self.inner.discard(extents);
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        let is_of_lane = extents.iter().any(|extent| self.has_bodies(extent));
        if !is_of_lane || !self.is_empty.load(Ordering::Relaxed) {
            return self.inner.write(extents, from);
        }
        if self.fault == LaneFault::SkipsEmpty {
            return Ok(());
        }
        let mut bytes = from[..total_len(extents)].to_vec();
        self.spoil(extents, &mut bytes);
        self.inner.write(extents, &bytes)
    }
    fn sync(&self) -> Result {
        self.inner.sync()
    }
}
