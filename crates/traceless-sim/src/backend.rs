//! The interface between a processor's cores and its memory.
//!
//! A memory of the user's own, in which each read takes ten cycles and writes take none:
//!
//! ```
//! use traceless_sim::Result;
//! use traceless_sim::backend::{Answer, Backend};
//! use traceless_sim::processor::{self, Config};
//! use traceless_sim::workload::{Op, named};
//!
//! struct TenCycles;
//!
//! impl Backend for TenCycles {
//!     fn capacity(&self) -> u64 {
//!         1 << 30
//!     }
//!     fn read(&mut self, now: u64, _: u64, _: u64) -> Result<Answer> {
//!         Ok(Answer::At(now + 10))
//!     }
//! #     fn write(&mut self, _: u64, _: u64) -> Result {
//! #         Ok(())
//! #     }
//! #     fn takes_writes(&self) -> bool {
//! #         true
//! #     }
//! #     fn is_written(&self) -> bool {
//! #         true
//! #     }
//! #     fn warm(&mut self, _: Op, _: u64) -> Result {
//! #         Ok(())
//! #     }
//! #     fn wake(&self) -> u64 {
//! #         u64::MAX
//! #     }
//! #     fn tick(&mut self, _: u64, _: &mut dyn FnMut(u64, u64)) -> Result {
//! #         Ok(())
//! #     }
//!     // The other methods do nothing.
//! }
//!
//! # fn main() -> Result {
//! let mut workloads = [named("sequential?write_share=0&before=0", 100, 1)?];
//! let run = processor::run(&Config::IN_ORDER, &mut TenCycles, &mut workloads)?;
//! assert!((1000..1200).contains(&run.cycles), "{run:?}");
//! # Ok(())
//! # }
//! ```

use crate::error::Result;
use crate::workload::{LINE_LEN, Op};

/// The ticket of a read that no core waits for.
pub const NOBODY: u64 = u64::MAX;

/// The ticket with which [`Backend::tick`] reports that an offered line was written back.
pub const OFFERED: u64 = u64::MAX - 1;

/// Memory, however it is reached. Times are in cycles of the processor. Object-safe.
pub trait Backend {
    /// Bytes that it holds.
    fn capacity(&self) -> u64;

    /// Requests the line at byte `addr`, after what happened at `now`. `ticket` is the caller's.
    fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer>;

    /// Hands over a line to be written. The caller checks first that there is room.
    fn write(&mut self, now: u64, addr: u64) -> Result;

    /// Whether there is room for another write, wherever it goes.
    fn takes_writes(&self) -> bool;

    /// Whether no write waits.
    fn is_written(&self) -> bool;

    /// Behaves as if the line had been requested before the simulation: caches, and what is behind
    /// them, hold it afterwards. No time passes, and nothing is counted.
    fn warm(&mut self, op: Op, addr: u64) -> Result;

    /// Warms up as if a clean line had been [dropped](Self::drop_clean).
    fn warm_drop(&mut self, addr: u64) -> Result {
        let _ = addr;
        Ok(())
    }

    /// The next time at which [`tick`](Self::tick) does anything, later than its last call;
    /// `u64::MAX` if it will do nothing. An earlier call of it changes nothing.
    fn wake(&self) -> u64;

    /// A clean line has left the cache above. Only a backend that gives blocks away needs this.
    fn drop_clean(&mut self, now: u64, addr: u64) -> Result {
        let _ = (now, addr);
        Ok(())
    }

    /// Whether a dirty line could be written back when there is nothing else to do, and none is
    /// [offered](Self::offer) yet.
    fn wants_offer(&self) -> bool {
        false
    }

    /// Offers a dirty line. [`Backend::tick`] reports its write-back with the ticket [`OFFERED`].
    fn offer(&mut self, addr: u64) -> Result {
        let _ = addr;
        Ok(())
    }

    /// Replaces the contents of `lines` by the groups that were handed over since the last call.
    fn take_prefetched(&mut self, lines: &mut Vec<LineGroup>) {
        lines.clear();
    }

    /// Takes the offer back.
    fn withdraw(&mut self) {}

    /// Counts a memory operation of a program, whether a cache or memory serves it.
    fn note_operation(&mut self) {}

    /// Does what is due at `now`. For each read that is served, calls `done` with its ticket and
    /// the time at which the data is there. The caller may leave out times at which nothing
    /// happens.
    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result;
}

/// Lines that lie together in memory and were at hand all at once. If the cache holds a dirty copy
/// of a line that was not requested, that copy is written back with the group; a requested line is
/// written back later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineGroup {
    /// The first byte of the first line.
    pub addr: u64,
    /// The number of lines.
    pub lines: u64,
    /// A bit for each line, the lowest for the first: set if the line was requested. Other lines
    /// may only be kept in the cache if at least one bit is set.
    pub requested: u64,
}

/// A line that came together with requested lines.
#[derive(Clone, Copy)]
pub struct Other {
    /// The first byte of the line.
    pub addr: u64,
    /// Whether the cache may keep the line: some line of its group was requested.
    pub is_prefetched: bool,
}

impl LineGroup {
    /// The lines that were not requested.
    pub fn other_lines(&self) -> impl Iterator<Item = Other> + use<> {
        let Self { addr, lines, requested } = *self;
        let other = (0..lines).filter(move |nth| requested >> nth & 1 == 0);
        other.map(move |nth| Other { addr: addr + nth * LINE_LEN, is_prefetched: requested != 0 })
    }
}

/// When a read has its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// At this time.
    At(u64),
    /// [`Backend::tick`] reports it later.
    Later,
}
