//! The last cache before memory.

use crate::backend::{Answer, Backend};
use crate::cache::{self, Cache, Found};
use crate::error::Result;
use crate::workload::Op;
use serde::Serialize;

/// A cache that all cores share, and what is behind it. A line is here as soon as it is asked for:
/// who asks for it again, while it is on its way, does not wait.
pub struct LastLevel<B> {
    cache: Cache,
    /// Cycles that a hit takes.
    latency: u64,
    behind: B,
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
}

impl<B: Backend> LastLevel<B> {
    /// An empty one before `behind`.
    pub fn new(config: &cache::Config, latency: u64, behind: B) -> Result<Self> {
        Ok(Self { cache: Cache::new(config)?, latency, behind, counts: Counts::default() })
    }

    /// What is behind it.
    pub fn behind(&self) -> &B {
        &self.behind
    }

    /// What it was asked for.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the line is here. If not, it is from now on.
    fn access(&mut self, now: u64, addr: u64, op: Op) -> Result<bool> {
        let Found::Miss { victim } = self.cache.access(addr, op) else { return Ok(true) };
        if let Some(victim) = victim {
            self.counts.write_backs += 1;
            self.behind.write(now, victim)?;
        }
        Ok(false)
    }
}

impl<B: Backend> Backend for LastLevel<B> {
    fn capacity(&self) -> u64 {
        self.behind.capacity()
    }

    fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer> {
        self.counts.reads += 1;
        if self.access(now, addr, Op::Read)? {
            return Ok(Answer::At(now + self.latency));
        }
        self.counts.read_misses += 1;
        self.behind.read(now, addr, ticket)
    }

    /// A whole line comes from above: what was in memory before need not be read.
    fn write(&mut self, now: u64, addr: u64) -> Result {
        self.counts.writes += 1;
        if !self.access(now, addr, Op::Write)? {
            self.counts.write_misses += 1;
        }
        Ok(())
    }

    fn takes_writes(&self) -> bool {
        self.behind.takes_writes()
    }

    fn is_written(&self) -> bool {
        self.behind.is_written()
    }

    fn warm(&mut self, op: Op, addr: u64) -> Result {
        let Found::Miss { victim } = self.cache.access(addr, op) else { return Ok(()) };
        if let Some(victim) = victim {
            self.behind.warm(Op::Write, victim)?;
        }
        if op == Op::Read {
            self.behind.warm(Op::Read, addr)?;
        }
        Ok(())
    }

    fn wake(&self) -> u64 {
        self.behind.wake()
    }

    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.behind.tick(now, done)
    }
}
