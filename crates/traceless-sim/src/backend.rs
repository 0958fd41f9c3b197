//! What a processor's cores talk to.

use crate::error::Result;
use crate::workload::{LINE_LEN, Op};

/// The ticket of a read for which nobody waits.
pub const NOBODY: u64 = u64::MAX;

/// The ticket by which it is told that an offered line was written back.
pub const OFFERED: u64 = u64::MAX - 1;

/// Memory, however it is reached. Times are in cycles of the processor. Object-safe.
pub trait Backend {
    /// Bytes that it holds.
    fn capacity(&self) -> u64;

    /// Asks for the line at byte `addr`, after what happened at `now`. `ticket` is the caller's.
    fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer>;

    /// Hands over a line to be written. Whether there is room is the caller's to ask.
    fn write(&mut self, now: u64, addr: u64) -> Result;

    /// Whether there is room for another write, wherever it goes.
    fn takes_writes(&self) -> bool;

    /// Whether no write waits.
    fn is_written(&self) -> bool;

    /// Behaves as if the line had been asked for before the simulation: caches hold it, and what is
    /// behind them. No time passes, and nothing is counted.
    fn warm(&mut self, op: Op, addr: u64) -> Result;

    /// The same for a line that is [dropped](Self::drop_clean).
    fn warm_drop(&mut self, addr: u64) -> Result {
        let _ = addr;
        Ok(())
    }

    /// The next time at which [`tick`](Self::tick) does anything, later than the last call of it;
    /// `u64::MAX` if nothing will. To call it earlier changes nothing.
    fn wake(&self) -> u64;

    /// A line that was not written has left the cache above. Only who gives blocks away cares.
    fn drop_clean(&mut self, now: u64, addr: u64) -> Result {
        let _ = (now, addr);
        Ok(())
    }

    /// Whether a dirty line could be written back when there is nothing else to do, and none is
    /// [offered](Self::offer) yet.
    fn wants_offer(&self) -> bool {
        false
    }

    /// Offers one. That it was written back is told as a read is, by [`OFFERED`].
    fn offer(&mut self, addr: u64) -> Result {
        let _ = addr;
        Ok(())
    }

    /// Moves what was handed over since the last call into `lines`, whose own are forgotten.
    fn take_brought(&mut self, lines: &mut Vec<LineGroup>) {
        lines.clear();
    }

    /// Takes the offer back.
    fn withdraw(&mut self) {}

    /// A program made a memory operation, whoever served it.
    fn note_operation(&mut self) {}

    /// Does what is to be done at `now`. Reads that are served are told to `done`: the ticket, and
    /// when the data is there. Times at which nothing happens may be left out.
    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result;
}

/// Lines that lie together in memory and were at hand all at once. Whoever holds one that was
/// written has handed it over; but what was only asked for now is written later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineGroup {
    /// The first byte of the first.
    pub addr: u64,
    /// How many they are.
    pub lines: u64,
    /// Those that were asked for, a bit each, the first the lowest. The others are only brought
    /// where one was.
    pub asked: u64,
}

/// A line that came with others.
#[derive(Clone, Copy)]
pub struct Other {
    /// Its first byte.
    pub addr: u64,
    /// Whether it may be kept where one was asked for.
    pub is_brought: bool,
}

impl LineGroup {
    /// Those that nobody asked for.
    pub fn others(&self) -> impl Iterator<Item = Other> + use<> {
        let Self { addr, lines, asked } = *self;
        let unasked = (0..lines).filter(move |nth| asked >> nth & 1 == 0);
        unasked.map(move |nth| Other { addr: addr + nth * LINE_LEN, is_brought: asked != 0 })
    }
}

/// When a read has its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// At this time.
    At(u64),
    /// [`Backend::tick`] will tell.
    Later,
}
