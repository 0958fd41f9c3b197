//! Faulty schemes that can replace a subject's scheme.

use crate::subjects::{Opened, Subject, open_sound};
use std::collections::VecDeque;
use std::ops::Range;
use traceless_core::Result;
use traceless_core::error::Place;
use traceless_core::oram::{BlockOram, Hides, Oram};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::types::Addr;

/// Last writes that a [`Fault::StaleRewrites`] remembers.
const REMEMBERED: usize = 4;

/// Opens a scheme with a `sync` that returns without syncing.
pub fn open_unsynced(
    subject: &Subject,
    hidden: usize,
    context: SchemeContext,
    state: &[u8],
) -> Result<Opened> {
    open((subject, hidden), context, state, Fault::Unsynced)
}

/// Makes a scheme in which a block that is rewritten within [`REMEMBERED`] writes keeps its older
/// contents, as after a merge that takes the older of two copies.
pub fn create_with_stale_rewrites(
    scheme: &dyn BlockScheme,
    context: SchemeContext,
) -> Result<Box<dyn BlockOram>> {
    let (inner, fault) = (scheme.create_block(context)?, Fault::StaleRewrites(VecDeque::new()));
    Ok(Box::new(FaultyOram { inner, fault }))
}

/// Opens a scheme with the fault of [`create_with_stale_rewrites`].
pub fn open_with_stale_rewrites(
    subject: &Subject,
    hidden: usize,
    context: SchemeContext,
    state: &[u8],
) -> Result<Opened> {
    open((subject, hidden), context, state, Fault::StaleRewrites(VecDeque::new()))
}

fn open(
    (subject, hidden): (&Subject, usize),
    context: SchemeContext,
    state: &[u8],
    fault: Fault,
) -> Result<Opened> {
    let (inner, lane) = open_sound(subject, hidden, context, state)?;
    Ok((Box::new(FaultyOram { inner, fault }), lane))
}

/// A sound scheme, and the fault around it.
struct FaultyOram {
    inner: Box<dyn BlockOram>,
    fault: Fault,
}

enum Fault {
    /// Syncs return without doing it.
    Unsynced,
    /// A block that is written again soon keeps its older contents. Holds the last writes.
    StaleRewrites(VecDeque<(Addr, Vec<u8>)>),
}

impl Fault {
    /// The contents that a write of `from` to `addr` leaves.
    fn written(&mut self, addr: Addr, from: &[u8]) -> Vec<u8> {
        let Self::StaleRewrites(recent) = self else { return from.to_vec() };
        let older = recent.iter().find(|(other, _)| *other == addr);
        let kept = older.map_or(from, |(_, older)| older).to_vec();
        recent.push_back((addr, kept.clone()));
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
        kept
    }
}

#[deny(clippy::missing_trait_methods)]
impl Oram for FaultyOram {
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
        let blocks = addrs.iter().zip(from.chunks(self.inner.block_len()));
        let written: Vec<u8> =
            blocks.flat_map(|(&a, block)| self.fault.written(a, block)).collect();
        self.inner.write_many(addrs, &written)
    }
    fn sync(&mut self) -> Result {
        match self.fault {
            Fault::Unsynced => Ok(()),
            Fault::StaleRewrites(_) => self.inner.sync(),
        }
    }
    fn hides(&self) -> Hides {
        self.inner.hides()
    }
    fn close(&mut self) -> Result {
        self.inner.close()
    }
    fn read(&mut self, addr: Addr, into: &mut [u8]) -> Result {
        self.inner.read(addr, into)
    }
    fn write(&mut self, addr: Addr, from: &[u8]) -> Result {
        let written = self.fault.written(addr, from);
        self.inner.write(addr, &written)
    }
    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        self.inner.update(addr, change)
    }
    fn update_many(&mut self, addrs: &[Addr], change: &mut dyn FnMut(usize, &mut [u8])) -> Result {
        self.inner.update_many(addrs, change)
    }
}

#[deny(clippy::missing_trait_methods)]
impl BlockOram for FaultyOram {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.inner.read_shared(addrs, into)
    }
    fn write_out(&mut self) -> Result {
        self.inner.write_out()
    }
    fn discard(&mut self, blocks: Range<u64>) -> Result {
        self.inner.discard(blocks)
    }
    fn sync_shared(&self) -> Result {
        match self.fault {
            Fault::Unsynced => Ok(()),
            Fault::StaleRewrites(_) => self.inner.sync_shared(),
        }
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
