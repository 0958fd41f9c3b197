//! The last cache before memory.
//!
//! A program goes twice through 32 KiB. The second time all of it is in the cache:
//!
//! ```
//! use traceless_sim::constant::{self, Straight};
//! use traceless_sim::llc::{Config, LastLevel};
//! use traceless_sim::processor;
//! use traceless_sim::workload::{LINE_LEN, Op, Record, Workload};
//!
//! # fn main() -> traceless_sim::Result {
//! let (bytes, ways, latency) = (64 << 10, 8, 10);
//! let config = Config { bytes, ways, latency, reads_before_writes: false, brought_before: 0 };
//! let memory = Straight::new(&constant::Config::default())?;
//! let mut cached = LastLevel::new(&config, memory)?;
//!
//! let lines = (0..512).chain(0..512);
//! let reads = lines.map(|line| Record { before: 5, op: Op::Read, addr: line * LINE_LEN });
//! let mut workloads: [Box<dyn Workload>; 1] = [Box::new(reads)];
//! processor::run(&processor::Config::FOUR_CHANNELS, &mut cached, &mut workloads)?;
//! let counts = cached.counts();
//! assert_eq!((counts.reads, counts.read_misses), (1024, 512));
//! # Ok(())
//! # }
//! ```

mod early;

pub use early::{EarlyCounts, EarlyWriteBack};

use crate::backend::{Answer, Backend, LineGroup, NOBODY, OFFERED};
use crate::cache::{self, Cache, Victim};
use crate::error::{Result, within};
use crate::workload::{Op, line_start};
use serde::{Deserialize, Serialize};

/// The last cache before memory, as a machine's file describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Bytes that the cache holds.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u32,
    /// Cycles that a hit takes.
    pub latency: u64,
    /// Whether a write to a line that is not in the cache reads the line first: for workloads with
    /// writes that are stores which missed the first cache, as the IR-ORAM authors' are. In
    /// workloads recorded here, writes are whole lines that the first cache wrote back, and need no
    /// read.
    #[serde(default)]
    pub reads_before_writes: bool,
    /// Where lines are inserted that memory brings without a request: in front of this many lines
    /// of their set that leave next, unless the very next one is dirty.
    #[serde(default)]
    pub brought_before: usize,
}

impl Config {
    /// Refuses values out of range.
    pub fn check(&self) -> Result {
        let Self { bytes, ways, latency, brought_before, .. } = *self;
        cache::Config { bytes, ways }.check()?;
        within("last_level.latency", latency, 0..=LATENCY_MAX)?;
        within("last_level.brought_before", brought_before as u64, 0..=ways.into())
    }
}

/// A cache that all cores share, and the memory behind it. The cache holds a line from its request
/// on: a second request for it does not wait, even if the line is still on its way.
pub struct LastLevel<B> {
    cache: Cache,
    config: Config,
    behind: B,
    early: Option<EarlyWriteBack>,
    /// The last cycle that was simulated.
    now: u64,
    /// Lines on their way that no core waits for.
    posted: usize,
    /// The groups of lines that memory brought last.
    brought: Vec<LineGroup>,
    counts: CacheCounts,
}

/// The requests to a cache, and what they led to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct CacheCounts {
    /// Lines read.
    pub reads: u64,
    /// Lines read that were not in the cache.
    pub read_misses: u64,
    /// Lines written back from the caches above.
    pub writes: u64,
    /// Lines written back from above that were not in the cache.
    pub write_misses: u64,
    /// Lines written back to the memory behind.
    pub write_backs: u64,
    /// Lines that came in together with requested ones.
    pub brought: u64,
    /// Dirty lines that were written back together with another line.
    pub taken_along: u64,
    /// Lines that were offered for an early write-back, and the searches for them.
    pub early: EarlyCounts,
}

const LATENCY_MAX: u64 = 1 << 20;

/// With this many lines on their way that no core waits for, the cache takes no more writes.
const POSTED_MAX: usize = 64;

impl<B: Backend> LastLevel<B> {
    /// An empty cache before `behind`.
    pub fn new(config: &Config, behind: B) -> Result<Self> {
        config.check()?;
        let Config { bytes, ways, .. } = *config;
        Ok(Self {
            cache: Cache::new(&cache::Config { bytes, ways })?,
            config: *config,
            behind,
            early: None,
            now: 0,
            posted: 0,
            brought: vec![],
            counts: CacheCounts::default(),
        })
    }

    /// From now on offers dirty lines to the memory behind before they have to leave.
    pub fn write_back_early(&mut self, early: EarlyWriteBack) {
        self.early = Some(early);
    }

    /// The memory behind the cache.
    pub fn behind(&self) -> &B {
        &self.behind
    }

    /// The counts so far.
    pub fn counts(&self) -> CacheCounts {
        let early = self.early.as_ref().map(EarlyWriteBack::counts).unwrap_or_default();
        CacheCounts { early, ..self.counts }
    }

    /// Whether the cache holds the line. If not, the line comes in.
    fn access(&mut self, now: u64, addr: u64, op: Op) -> Result<bool> {
        self.behind.note_operation();
        let replaced = self.cache.replace(addr, op);
        self.look_after_offer(addr);
        let Some(victim) = replaced else { return Ok(true) };
        self.give_up(now, victim)?;
        Ok(false)
    }

    /// Withdraws the offered line if the change in the set of `addr` made it unfit.
    fn look_after_offer(&mut self, addr: u64) {
        if let Some(early) = &mut self.early
            && early.is_aborted(&self.cache, addr)
        {
            self.behind.withdraw();
        }
    }

    fn give_up(&mut self, now: u64, victim: Option<Victim>) -> Result {
        match victim {
            Some(Victim { addr, dirty: true }) => {
                self.counts.write_backs += 1;
                self.behind.write(now, addr)
            }
            Some(Victim { addr, dirty: false }) => self.behind.drop_clean(now, addr),
            None => Ok(()),
        }
    }

    /// Takes in lines that came with requested ones, and marks as clean the dirty ones that went
    /// along.
    fn take_prefetched(&mut self, now: u64) -> Result {
        let mut all = core::mem::take(&mut self.brought);
        self.behind.take_prefetched(&mut all);
        for line in all.iter().flat_map(LineGroup::other_lines) {
            self.counts.taken_along += u64::from(self.cache.clean(line.addr));
            if line.is_prefetched && !self.cache.holds(line.addr) {
                let victim = self.cache.insert(line.addr, self.config.brought_before);
                self.counts.brought += u64::from(self.cache.holds(line.addr));
                self.give_up(now, victim)?;
            }
            self.look_after_offer(line.addr);
        }
        self.brought = all;
        Ok(())
    }

    /// Takes in lines during the warm-up: a victim's write-back may bring further lines, and so on.
    fn warm_prefetched(&mut self) -> Result {
        let mut all = core::mem::take(&mut self.brought);
        self.behind.take_prefetched(&mut all);
        for line in all.iter().flat_map(LineGroup::other_lines) {
            self.cache.clean(line.addr);
            if line.is_prefetched
                && let Some(victim) = self.cache.insert(line.addr, self.config.brought_before)
            {
                self.warm_give_up(victim)?;
            }
        }
        self.brought = all;
        Ok(())
    }

    fn warm_give_up(&mut self, Victim { addr, dirty }: Victim) -> Result {
        if !dirty {
            return self.behind.warm_drop(addr);
        }
        self.behind.warm(Op::Write, addr)?;
        self.warm_prefetched()
    }
}

impl<B: Backend> Backend for LastLevel<B> {
    fn capacity(&self) -> u64 {
        self.behind.capacity()
    }

    fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer> {
        let addr = line_start(addr);
        self.counts.reads += 1;
        if self.access(now, addr, Op::Read)? {
            return Ok(Answer::At(now + self.config.latency));
        }
        self.counts.read_misses += 1;
        self.behind.read(now, addr, ticket)
    }

    fn write(&mut self, now: u64, addr: u64) -> Result {
        let addr = line_start(addr);
        self.counts.writes += 1;
        if self.access(now, addr, Op::Write)? {
            return Ok(());
        }
        self.counts.write_misses += 1;
        if self.config.reads_before_writes && self.behind.read(now, addr, NOBODY)? == Answer::Later
        {
            self.posted += 1;
        }
        Ok(())
    }

    fn takes_writes(&self) -> bool {
        self.posted < POSTED_MAX && self.behind.takes_writes()
    }

    fn is_written(&self) -> bool {
        self.posted == 0 && self.behind.is_written()
    }

    fn warm(&mut self, op: Op, addr: u64) -> Result {
        let Some(victim) = self.cache.replace(addr, op) else { return Ok(()) };
        if let Some(victim) = victim {
            self.warm_give_up(victim)?;
        }
        if op == Op::Read || self.config.reads_before_writes {
            self.behind.warm(Op::Read, addr)?;
            self.warm_prefetched()?;
        }
        Ok(())
    }

    fn wake(&self) -> u64 {
        let searches = match &self.early {
            Some(early) if self.behind.wants_offer() => early.searches_at(self.now + 1),
            _ => u64::MAX,
        };
        self.behind.wake().min(searches)
    }

    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.now = now;
        if let Some(early) = &mut self.early
            && self.behind.wants_offer()
            && let Some(addr) = early.find(&self.cache, now)
        {
            self.behind.offer(addr)?;
        }
        let Self { cache, early, posted, .. } = self;
        self.behind.tick(now, &mut |ticket, there| match (ticket, &mut *early) {
            (NOBODY, _) => *posted -= 1,
            (OFFERED, Some(early)) => early.finish(cache),
            _ => done(ticket, there),
        })?;
        self.take_prefetched(now)
    }
}
