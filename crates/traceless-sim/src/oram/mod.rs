//! Oblivious memory: a scheme between the last cache and the DRAM.
//!
//! Each step of the scheme is a path access: all its lines are read; when the last one is there,
//! the block is handed over, and all lines are written. It ends when the memory has written them.
//! The scheme is the library's, over a tree without bodies.

mod bus;
mod config;

pub use config::{Config, Pace, Scheme};

use crate::backend::{Answer, Backend};
use crate::dram::{ChannelStats, Memory};
use crate::error::{Error, Result};
use crate::workload::{LINE_LEN, Op};
use bus::Bus;
use serde::Serialize;
use std::collections::HashMap;
use traceless::controller::{Controller, Issued, Kind};
use traceless::types::Addr;

/// A scheme, and the memory that it lies in.
pub struct Oram {
    config: Config,
    controller: Box<dyn Controller>,
    bus: Bus,
    memory: Memory,
    phase: Phase,
    /// When the next path access is due.
    due: u64,
    /// Lines of the path access that is under way.
    reads: Vec<u64>,
    writes: Vec<u64>,
    /// The tickets of reads that wait, by request; write-backs have none.
    tickets: HashMap<u64, u64>,
    next_request: u64,
    /// Requests that wait, and the write-backs among them.
    waiting: usize,
    write_backs: usize,
    counts: Counts,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// So many lines are still to come; the last of the others is there at `there`.
    Reading {
        started: u64,
        left: usize,
        there: u64,
        finished: Option<u64>,
    },
    /// All lines are handed over.
    Writing {
        started: u64,
    },
}

/// Path accesses, by what they were for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Counts {
    /// A block that a program uses.
    pub data: u64,
    /// A block of the position map.
    pub map: u64,
    /// Nothing.
    pub dummy: u64,
    /// They only emptied the stash.
    pub eviction: u64,
    /// Requests that took none.
    pub at_hand: u64,
    /// Cycles from their begin to their end, in all.
    pub busy: u64,
}

impl Counts {
    /// All of them.
    pub fn paths(&self) -> u64 {
        self.data + self.map + self.dummy + self.eviction
    }
}

impl Oram {
    /// The scheme that `config` says, in `memory`.
    pub fn new(config: &Config, memory: Memory) -> Result<Self> {
        config.check()?;
        let bus = Bus::default();
        let (controller, len) = config.controller(&bus)?;
        if len > memory.config().geometry.capacity() {
            return Err(Error::Oram("the memory is smaller than the tree"));
        }
        Ok(Self {
            config: config.clone(),
            controller,
            bus,
            memory,
            phase: Phase::Idle,
            due: 0,
            reads: vec![],
            writes: vec![],
            tickets: HashMap::new(),
            next_request: 0,
            waiting: 0,
            write_backs: 0,
            counts: Counts::default(),
        })
    }

    /// Path accesses so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What each channel of the memory did until `end`.
    pub fn stats(&self, end: u64) -> Vec<ChannelStats> {
        self.memory.stats(end)
    }

    fn submit(&mut self, addr: u64) -> Result<u64> {
        let block = addr / LINE_LEN % self.config.blocks;
        let request = self.next_request;
        self.next_request += 1;
        self.waiting += 1;
        self.controller.submit(request, Addr(block))?;
        Ok(request)
    }

    /// A request is served, and its data there at `there`.
    fn finish(&mut self, request: u64, there: u64, done: &mut dyn FnMut(u64, u64)) {
        self.waiting -= 1;
        match self.tickets.remove(&request) {
            Some(ticket) => done(ticket, there),
            None => self.write_backs -= 1,
        }
    }

    /// Begins a path access if one is due.
    fn begin(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        while let Some(request) = self.controller.finish_at_hand(&mut |_, _| {})? {
            self.counts.at_hand += 1;
            self.finish(request, now + self.config.decrypt, done);
        }
        if now < self.due || self.config.pace == Pace::Asked && self.waiting == 0 {
            return Ok(());
        }
        let Issued { kind, finished } = self.controller.step(&mut |_, _| {})?;
        match kind {
            Kind::Data => self.counts.data += 1,
            Kind::PosMap(_) => self.counts.map += 1,
            Kind::Dummy => self.counts.dummy += 1,
            Kind::Eviction => self.counts.eviction += 1,
        }
        self.reads.clear();
        self.writes.clear();
        self.bus.take(&mut self.reads, &mut self.writes);
        let (mut left, mut there) = (0, now);
        for &line in &self.reads {
            match self.memory.read(now, line, 0) {
                Answer::At(time) => there = there.max(time),
                Answer::Later => left += 1,
            }
        }
        self.phase = Phase::Reading { started: now, left, there, finished };
        Ok(())
    }

    /// Ends the path access that is under way, as far as it is done.
    fn go_on(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) {
        if let Phase::Reading { started, left: 0, there, finished } = self.phase
            && there <= now
        {
            if let Some(request) = finished {
                self.finish(request, now + self.config.decrypt, done);
            }
            for &line in &self.writes {
                self.memory.write(now, line);
            }
            self.phase = Phase::Writing { started };
        }
        if let Phase::Writing { started } = self.phase
            && self.memory.is_written()
        {
            self.counts.busy += now - started;
            self.due = match self.config.pace {
                Pace::Asked => now,
                Pace::StartToStart(interval) => now.max(started + interval),
                Pace::AfterCompletion(interval) => now + interval,
            };
            self.phase = Phase::Idle;
        }
    }
}

impl Backend for Oram {
    fn capacity(&self) -> u64 {
        self.config.blocks * LINE_LEN
    }

    fn read(&mut self, _: u64, addr: u64, ticket: u64) -> Result<Answer> {
        let request = self.submit(addr)?;
        self.tickets.insert(request, ticket);
        Ok(Answer::Later)
    }

    fn write(&mut self, _: u64, addr: u64) -> Result {
        self.write_backs += 1;
        self.submit(addr).map(|_| ())
    }

    fn takes_writes(&self) -> bool {
        self.write_backs < self.config.queue
    }

    fn is_written(&self) -> bool {
        self.write_backs == 0
    }

    fn warm(&mut self, _: Op, addr: u64) -> Result {
        let request = self.next_request;
        self.next_request += 1;
        self.controller.submit(request, Addr(addr / LINE_LEN % self.config.blocks))?;
        loop {
            if self.controller.finish_at_hand(&mut |_, _| {})? == Some(request) {
                break;
            }
            if self.controller.step(&mut |_, _| {})?.finished == Some(request) {
                break;
            }
        }
        self.reads.clear();
        self.writes.clear();
        self.bus.take(&mut self.reads, &mut self.writes);
        Ok(())
    }

    fn wake(&self) -> u64 {
        let own = match self.phase {
            Phase::Idle if self.config.pace == Pace::Asked && self.waiting == 0 => u64::MAX,
            Phase::Idle => self.due,
            Phase::Reading { left: 0, there, .. } => there,
            Phase::Reading { .. } | Phase::Writing { .. } => u64::MAX,
        };
        own.min(self.memory.wake())
    }

    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        let phase = &mut self.phase;
        self.memory.tick(now, |_, time| {
            if let Phase::Reading { left, there, .. } = phase {
                *left -= 1;
                *there = time.max(*there);
            }
        });
        self.go_on(now, done);
        if self.phase == Phase::Idle {
            self.begin(now, done)?;
        }
        Ok(())
    }
}
