//! The last cache before memory.

mod early;

pub use early::{EarlyCounts, EarlyWriteBack};

use crate::backend::{Answer, Backend, LineGroup, NOBODY, OFFERED};
use crate::cache::{self, Cache, Victim};
use crate::error::{Result, within};
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
    /// Where lines come in that were not asked for, if memory brings any: in front of so many of
    /// their set that are to leave next, if the very next was not written.
    #[serde(default)]
    pub brought_before: usize,
}

impl Config {
    /// Refuses what cannot be.
    pub fn check(&self) -> Result {
        let Self { bytes, ways, latency, brought_before, .. } = *self;
        cache::Config { bytes, ways }.check()?;
        within("last_level.latency", latency, 0..=LATENCY_MAX)?;
        within("last_level.brought_before", brought_before as u64, 0..=ways.into())
    }
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
    /// What was brought at last.
    brought: Vec<LineGroup>,
    counts: CacheCounts,
}

/// What a cache was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct CacheCounts {
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
    /// Lines that came in with others.
    pub brought: u64,
    /// Lines that were written back with others.
    pub taken_along: u64,
    /// Lines that were written back before they had to.
    pub early: EarlyCounts,
}

const LATENCY_MAX: u64 = 1 << 20;

/// Lines on their way for which nobody waits, until no write is taken any more.
const POSTED_MAX: usize = 64;

impl<B: Backend> LastLevel<B> {
    /// An empty one before `behind`.
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

    /// From now on dirty lines are offered to what is behind before they have to leave.
    pub fn write_back_early(&mut self, early: EarlyWriteBack) {
        self.early = Some(early);
    }

    /// What is behind it.
    pub fn behind(&self) -> &B {
        &self.behind
    }

    /// What it was asked for.
    pub fn counts(&self) -> CacheCounts {
        let early = self.early.as_ref().map(EarlyWriteBack::counts).unwrap_or_default();
        CacheCounts { early, ..self.counts }
    }

    /// Whether the line is here. If not, it is from now on.
    fn access(&mut self, now: u64, addr: u64, op: Op) -> Result<bool> {
        self.behind.note_operation();
        let replaced = self.cache.replace(addr, op);
        self.look_after_offer(addr);
        let Some(victim) = replaced else { return Ok(true) };
        self.give_up(now, victim)?;
        Ok(false)
    }

    /// The set of `addr` has changed.
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

    /// Takes in what came with lines that were asked for, and gives out what may go with them.
    fn take_brought(&mut self, now: u64) -> Result {
        let mut all = core::mem::take(&mut self.brought);
        self.behind.take_brought(&mut all);
        for line in all.iter().flat_map(LineGroup::others) {
            self.counts.taken_along += u64::from(self.cache.clean(line.addr));
            if line.is_brought && !self.cache.holds(line.addr) {
                let victim = self.cache.insert(line.addr, self.config.brought_before);
                self.counts.brought += u64::from(self.cache.holds(line.addr));
                self.give_up(now, victim)?;
            }
            self.look_after_offer(line.addr);
        }
        self.brought = all;
        Ok(())
    }

    /// The same before the simulation: who has to leave may bring others, and so on.
    fn warm_brought(&mut self) -> Result {
        let mut all = core::mem::take(&mut self.brought);
        self.behind.take_brought(&mut all);
        for line in all.iter().flat_map(LineGroup::others) {
            self.cache.clean(line.addr);
            if line.is_brought
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
        self.warm_brought()
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
            self.warm_brought()?;
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
        self.take_brought(now)
    }
}
