//! The last cache before memory.

mod early;

pub use early::{Counts as EarlyCounts, EarlyWriteBack};

use crate::backend::{Answer, Backend, NOBODY, OFFERED};
use crate::cache::{self, Cache, Victim};
use crate::error::{Error, Result};
use crate::workload::{Op, line_start};
use serde::{Deserialize, Serialize};

/// The last cache before memory, as files say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Bytes that it holds.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u32,
    /// Cycles that a hit takes.
    pub latency: u64,
    /// Whether a write to a line that is not here reads it first: for workloads whose writes are
    /// stores that missed the first cache, as the IR-ORAM authors' are. Where they are lines that
    /// it wrote back, as in workloads recorded here, they are whole.
    #[serde(default)]
    pub reads_before_writes: bool,
}

/// A cache that all cores share, and what is behind it. A line is here as soon as it is asked for:
/// who asks for it again, while it is on its way, does not wait.
pub struct LastLevel<B> {
    cache: Cache,
    config: Config,
    behind: B,
    early: Option<EarlyWriteBack>,
    /// The last cycle that was looked at.
    now: u64,
    /// Lines on their way for which nobody waits.
    posted: usize,
    counts: Counts,
}

/// What a cache was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Counts {
    /// Lines read, and those of them that were not there.
    pub reads: u64,
    /// Of these.
    pub read_misses: u64,
    /// Lines written back from above.
    pub writes: u64,
    /// Of these, those that were not there.
    pub write_misses: u64,
    /// Lines written back to what is behind.
    pub write_backs: u64,
    /// Lines that were written back before they had to.
    pub early: EarlyCounts,
}

const LATENCY_MAX: u64 = 1 << 20;

/// Lines on their way for which nobody waits, until no write is taken any more.
const POSTED_MAX: usize = 64;

impl<B: Backend> LastLevel<B> {
    /// An empty one before `behind`.
    pub fn new(config: &Config, behind: B) -> Result<Self> {
        let Config { bytes, ways, latency, .. } = *config;
        if latency > LATENCY_MAX {
            return Err(Error::Cache("a hit takes more than 2^20 cycles"));
        }
        Ok(Self {
            cache: Cache::new(&cache::Config { bytes, ways })?,
            config: *config,
            behind,
            early: None,
            now: 0,
            posted: 0,
            counts: Counts::default(),
        })
    }

    /// From now on dirty lines are offered to what is behind before they have to leave.
    pub fn write_back_early(&mut self, early: EarlyWriteBack) {
        self.early = Some(early);
    }

    /// What is behind it.
    pub fn behind(&self) -> &B {
        &self.behind
    }

    /// What it was asked for.
    pub fn counts(&self) -> Counts {
        let early = self.early.as_ref().map(EarlyWriteBack::counts).unwrap_or_default();
        Counts { early, ..self.counts }
    }

    /// Whether the line is here. If not, it is from now on.
    fn access(&mut self, now: u64, addr: u64, op: Op) -> Result<bool> {
        self.behind.note_operation();
        let replaced = self.cache.replace(addr, op);
        if let Some(early) = &mut self.early
            && early.is_aborted(&self.cache, addr)
        {
            self.behind.withdraw();
        }
        match replaced {
            None => return Ok(true),
            Some(Some(Victim { addr, dirty: true })) => {
                self.counts.write_backs += 1;
                self.behind.write(now, addr)?;
            }
            Some(Some(Victim { addr, dirty: false })) => self.behind.drop_clean(now, addr)?,
            Some(None) => {}
        }
        Ok(false)
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
        match victim {
            Some(Victim { addr, dirty: true }) => self.behind.warm(Op::Write, addr)?,
            Some(Victim { addr, dirty: false }) => self.behind.warm_drop(addr)?,
            None => {}
        }
        if op == Op::Read || self.config.reads_before_writes {
            self.behind.warm(Op::Read, addr)?;
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
        })
    }
}
