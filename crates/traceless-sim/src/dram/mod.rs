//! Dynamic memory, command by command: channels, ranks, banks and rows, with every constraint
//! between two commands.
//!
//! The model matches USIMM's, cycle for cycle, but skips cycles in which nothing can happen.
//!
//! Two lines are read from one row. A third, from another row of the same bank, takes longer:
//!
//! ```
//! use traceless_sim::backend::Answer;
//! use traceless_sim::dram::{Config, Memory};
//!
//! # fn main() -> traceless_sim::Result {
//! let config = Config::ONE_CHANNEL;
//! let first = config.map.locate(&config.geometry, 0);
//! let in_row = |addr: &u64| config.map.locate(&config.geometry, *addr).row == first.row;
//! let other_row = (0..).step_by(64).find(|addr| {
//!     let place = config.map.locate(&config.geometry, *addr);
//!     (place.rank, place.bank) == (first.rank, first.bank) && !in_row(addr)
//! });
//! let mut memory = Memory::new(config)?;
//! for (ticket, addr) in [0, 64, other_row.expect("a bank has rows")].into_iter().enumerate() {
//!     assert_eq!(memory.read(0, addr, ticket as u64), Answer::Later);
//! }
//! let mut served = vec![];
//! while served.len() < 3 {
//!     let now = memory.wake();
//!     memory.tick(now, |ticket, there| served.push((ticket, there)));
//! }
//! assert_eq!(served.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [0, 1, 2]);
//! let [a, b, c] = [served[0].1, served[1].1, served[2].1];
//! assert!(b - a < c - b);
//! # Ok(())
//! # }
//! ```

mod address;
mod channel;
mod checker;
mod config;
mod energy;
mod geometry;
mod log;
mod power;
mod queue;
mod stats;
mod summary;

pub use address::{AddressMap, Field, Location};
pub use checker::{Breach, Checker, first_breach};
pub use config::{Apart, Config, Scheduler, Timing, WriteDrain};
pub use energy::Energy;
pub use geometry::Geometry;
pub use log::{Command, CommandRecord};
pub use power::Power;
pub use stats::{ChannelStats, ChannelTimes, OpStats};
pub use summary::Summary;

use crate::backend::{Answer, Backend};
use crate::error::Result;
use crate::workload::Op;
use channel::{Channel, NEVER};
use queue::Request;
use std::sync::Arc;
use traceless::trace::Witness;

/// A memory. Times are in cycles of the processor.
pub struct Memory {
    config: Config,
    channels: Vec<Channel>,
}

impl Memory {
    /// An idle memory with all rows closed.
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        let channels = (0..config.geometry.channels).map(|_| Channel::new(&config)).collect();
        Ok(Self { config, channels })
    }

    /// The configuration of the memory.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Requests the line at byte `addr`, after the commands of time `now` went out. `ticket` is the
    /// caller's.
    #[inline]
    pub fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Answer {
        let (channel, request) = self.request(now, addr, ticket);
        let channel = &mut self.channels[channel];
        if channel.writes().holds(request.addr) {
            channel.note_merged_read(self.config.forward);
            return Answer::At(now + self.config.forward);
        }
        if channel.reads().holds(request.addr) {
            channel.note_merged_read(1);
            return Answer::At(now + 1);
        }
        channel.add(Op::Read, request);
        Answer::Later
    }

    /// Hands over a line to be written. The caller checks first that there is room.
    #[inline]
    pub fn write(&mut self, now: u64, addr: u64) {
        let (channel, request) = self.request(now, addr, 0);
        let channel = &mut self.channels[channel];
        if channel.writes().holds(request.addr) {
            channel.note_merged_write();
        } else {
            channel.add(Op::Write, request);
        }
    }

    /// Whether every channel has room for another write.
    pub fn takes_writes(&self) -> bool {
        self.channels.iter().all(|channel| channel.writes().len() < self.config.drain.capacity)
    }

    /// Whether no write waits.
    pub fn is_written(&self) -> bool {
        self.channels.iter().all(|channel| channel.writes().is_empty())
    }

    /// The next time at which [`tick`](Self::tick) does anything: `u64::MAX` if nothing waits.
    #[inline]
    pub fn wake(&self) -> u64 {
        self.channels.iter().map(Channel::wake).min().unwrap_or(NEVER)
    }

    /// Issues at most one command a channel. For each read that is served, calls `done` with its
    /// ticket and the time at which the data is there. The caller may leave out times at which
    /// nothing happens.
    #[inline]
    pub fn tick(&mut self, now: u64, mut done: impl FnMut(u64, u64)) {
        if now.is_multiple_of(self.config.clock_ratio) {
            self.channels.iter_mut().for_each(|channel| channel.tick(now, &mut done));
        }
    }

    /// What each channel did until `end`.
    pub fn stats(&self, end: u64) -> Vec<ChannelStats> {
        self.channels.iter().map(|channel| channel.stats(end)).collect()
    }

    /// How long requests to each channel took.
    pub fn times(&self) -> impl Iterator<Item = &ChannelTimes> {
        self.channels.iter().map(Channel::times)
    }

    /// Reports to `witness` from now on each line that is read or written, when its command goes
    /// out.
    pub fn watch(&mut self, witness: &Arc<dyn Witness>) {
        self.channels.iter_mut().for_each(|channel| channel.watch(witness.clone()));
    }

    /// Logs every command from now on.
    pub fn keep_log(&mut self) {
        self.channels.iter_mut().for_each(Channel::keep_log);
    }

    /// The commands of a channel since [`keep_log`](Self::keep_log).
    pub fn log(&self, channel: usize) -> &[CommandRecord] {
        self.channels[channel].log()
    }

    #[inline]
    fn request(&self, now: u64, addr: u64, ticket: u64) -> (usize, Request) {
        let Location { channel, rank, bank, row, .. } =
            self.config.map.locate(&self.config.geometry, addr);
        let Geometry { banks, groups, .. } = self.config.geometry;
        let group = (rank * groups + bank % groups) as usize;
        let bank = (rank * banks + bank) as usize;
        let rank = rank as usize;
        let request = Request { addr, ticket, arrived: now, rank, group, bank, row };
        (channel as usize, request)
    }
}

/// A memory without an ORAM: the addresses of its reads and writes are visible to an adversary.
impl Backend for Memory {
    fn capacity(&self) -> u64 {
        self.config.geometry.capacity()
    }

    #[inline]
    fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer> {
        Ok(Self::read(self, now, addr, ticket))
    }

    #[inline]
    fn write(&mut self, now: u64, addr: u64) -> Result {
        Self::write(self, now, addr);
        Ok(())
    }

    fn takes_writes(&self) -> bool {
        Self::takes_writes(self)
    }

    fn is_written(&self) -> bool {
        Self::is_written(self)
    }

    /// Warming up leaves no trace in a DRAM: rows are open only for a short time.
    fn warm(&mut self, _: Op, _: u64) -> Result {
        Ok(())
    }

    fn wake(&self) -> u64 {
        Self::wake(self)
    }

    #[inline]
    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        Self::tick(self, now, done);
        Ok(())
    }
}
