//! Oblivious memory: a scheme between the last cache and what holds its trees.
//!
//! Each step of the scheme is a path access. Over a DRAM all its lines are read; when the last one
//! is there, the block is handed over, and all lines are written. It ends when the memory has
//! written them. Over a memory that is known by its bandwidth it is so many bytes. The scheme is
//! the library's, over a tree without bodies.

mod build;
mod bus;
mod config;
mod counts;
mod front;
mod latency;
mod layout;
mod recursive;
mod storage;
mod tree;

pub use bus::Bus;
pub use config::{
    Allocation, Bucket, Config, Early, LabelKind, MapTree, Pace, Remap, Scheme, Small, Start, Top,
};
pub use counts::{Counts, MAP_LEVELS, MapCounts};
pub use front::Front;
pub use latency::{Latencies, PathLatencies, READ_LEVELS};
pub use layout::{Layout, LayoutKind};
pub use storage::Storage;

use crate::backend::{Answer, Backend, Brought, OFFERED};
use crate::constant;
use crate::dram::{self, ChannelStats, ChannelTimes, Logged, Memory};
use crate::error::{Error, Result};
use crate::workload::{LINE_LEN, Op};
use build::{Built, build};
use bus::Step;
use latency::Measured;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use traceless::controller::{Issued, Kind};
use traceless::rng::{Rng, Seeded};
use traceless::trace::{self, Event, Surface, Witness};
use traceless::types::Addr;
use tree::Seen;

/// A scheme, and the memory that it lies in.
pub struct Oram {
    config: Config,
    front: Box<dyn Front>,
    bus: Bus,
    seen: Seen,
    memory: Under,
    /// Of each tree: where its slots lie, and bytes of a path.
    layouts: Vec<Layout>,
    path_bytes: Vec<u64>,
    phase: Phase,
    /// The last cycle that was looked at, and whether something was asked for since.
    now: u64,
    is_asked: bool,
    /// When the next path access is due, and when the last one ended.
    due: u64,
    ended: u64,
    /// Memory operations since then.
    operations: u64,
    /// What the path access touches that is under way, and lines of it that the memory is asked
    /// for.
    step: Step,
    lines: Vec<u64>,
    /// Requests that wait, with the tickets of reads. Write-backs have none.
    requests: HashMap<u64, Request>,
    /// Where lines share a block: the request that waits for it, which others join.
    of_block: HashMap<u64, u64>,
    next_request: u64,
    /// Lines that were at hand since they were asked for.
    brought: Vec<Brought>,
    /// Blocks that have left the memory, and whether such a thing is possible.
    out: HashSet<u64>,
    blocks_leave: bool,
    /// Lines that the last cache has with their labels, by number, where it keeps labels.
    labelled: HashSet<u64>,
    /// The block of the line that is offered, and may be written back early.
    offered: Option<u64>,
    counts: Counts,
    map: MapCounts,
    /// Group remaps before anything was timed.
    remaps_before: u64,
    measured: Measured,
    /// The path access that is under way, and whether it is in place of a dummy.
    kind: (Kind, bool),
    /// Accesses to the position map since a request was finished.
    walked: usize,
    /// Whoever watches the bus.
    witness: Option<Arc<dyn Witness>>,
}

/// Where the paths of each tree lie that `config` has in such a memory; of a scheme that does not
/// read whole paths nothing is told.
pub fn layouts(config: &Config, memory: &dram::Config) -> Result<Vec<Layout>> {
    Ok(build(config, memory.channels_in_a_row(), memory.geometry.capacity())?.layouts)
}

/// What waits for a block.
#[derive(Default)]
struct Request {
    block: u64,
    /// Of reads, and since when each waits.
    tickets: Vec<(u64, u64)>,
    /// Since when lines wait that came back.
    written: Vec<u64>,
    /// Its lines that are read, a bit each.
    asked: u64,
}

/// What holds the trees.
enum Under {
    Dram(Box<Memory>),
    Constant(constant::Config, constant::Bus),
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
    /// Until then bytes are moved.
    Moving {
        started: u64,
        until: u64,
        finished: Option<u64>,
    },
}

/// What an offered line is called.
const OFFER: u64 = u64::MAX;

/// What is asked for before anything is timed.
const UNTIMED: u64 = u64::MAX - 1;

impl Oram {
    /// The scheme that `config` says, in `memory`.
    pub fn over_dram(config: &Config, memory: Memory) -> Result<Self> {
        let (channels, capacity) =
            (memory.config().channels_in_a_row(), memory.config().geometry.capacity());
        let built = build(config, channels, capacity)?;
        Self::new(config, built, Under::Dram(Box::new(memory)))
    }

    /// The same in a memory that is known by its bandwidth.
    pub fn over_constant(config: &Config, memory: &constant::Config) -> Result<Self> {
        memory.check()?;
        let built = build(config, 1, memory.capacity)?;
        Self::new(config, built, Under::Constant(*memory, constant::Bus::new(memory)))
    }

    /// A scheme of the caller's own, in `memory`. `make` gets the bus that its trees tell what they
    /// touch: a [`GhostTree`](traceless::tree::GhostTree) does, with it as its witness. Of `config`
    /// only `pace`, `fetch_slots`, `decrypt`, `queue`, `warm_up` and `seed` count, and blocks stay
    /// in the memory while caches hold their lines.
    pub fn over_dram_with(
        config: &Config,
        memory: Memory,
        make: impl FnOnce(Bus) -> Result<Box<dyn Front>>,
    ) -> Result<Self> {
        let config = Config {
            scheme: Scheme::Path,
            bundle: None,
            remap: None,
            early: None,
            ..config.clone()
        };
        config.check()?;
        let bus = Bus::default();
        let front = make(bus.clone())?;
        if front.blocks() == 0 {
            return Err(Error::Oram("a scheme has blocks"));
        }
        let built = Built {
            front,
            bus,
            seen: Seen::default(),
            layouts: vec![],
            path_bytes: vec![],
            slots: 0,
            pointer_bits: 0,
        };
        Self::new(&config, built, Under::Dram(Box::new(memory)))
    }

    fn new(config: &Config, built: Built, memory: Under) -> Result<Self> {
        let config = config.resolved();
        let Built { front, bus, seen, layouts, path_bytes, slots, pointer_bits } = built;
        let is_unified = config.scheme.is_unified();
        if config.early != Some(Early::Nothing) && !is_unified {
            return Err(Error::Oram("only a unified ORAM writes lines back early"));
        }
        let mut oram = Self {
            blocks_leave: is_unified && config.remap == Some(Remap::Delayed),
            config,
            front,
            bus,
            seen,
            memory,
            layouts,
            path_bytes,
            phase: Phase::Idle,
            now: 0,
            is_asked: false,
            due: 0,
            ended: 0,
            operations: 0,
            step: Step::default(),
            lines: vec![],
            requests: HashMap::new(),
            of_block: HashMap::new(),
            next_request: 0,
            brought: vec![],
            out: HashSet::new(),
            labelled: HashSet::new(),
            offered: None,
            counts: Counts { slots, pointer_bits, ..Counts::default() },
            map: MapCounts::default(),
            remaps_before: 0,
            measured: Measured::default(),
            kind: (Kind::Dummy, false),
            walked: 0,
            witness: None,
        };
        oram.warm_up()?;
        Ok(oram)
    }

    /// From now on `witness` is told of each line that the memory is asked for, with the time at
    /// which it is, as whoever watches the bus sees it. A memory that is known by its bandwidth is
    /// asked for all lines of a path at once.
    pub fn watch(&mut self, witness: Arc<dyn Witness>) {
        self.witness = Some(witness);
    }

    /// The commands that went to a channel of the memory, if that keeps a
    /// [log](Memory::keep_log).
    pub fn commands(&self, channel: usize) -> &[Logged] {
        match &self.memory {
            Under::Dram(memory) => memory.log(channel),
            Under::Constant(..) => &[],
        }
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        let Self { seen, counts, .. } = self;
        let (found, looked_at, full) = (seen.found(), seen.slots(), seen.full());
        Counts { found, looked_at, full, ..*counts }
    }

    /// What the position map came to.
    pub fn map_counts(&self) -> MapCounts {
        MapCounts {
            block_bits: self.front.map_block_bits(),
            group_remaps: self.front.group_remaps() - self.remaps_before,
            ..self.map
        }
    }

    /// How long that took.
    pub fn latencies(&self) -> Latencies {
        self.measured.latencies()
    }

    /// What each channel of the memory did until `end`.
    pub fn stats(&self, end: u64) -> Vec<ChannelStats> {
        match &self.memory {
            Under::Dram(memory) => memory.stats(end),
            Under::Constant(..) => vec![],
        }
    }

    /// How long requests to each channel of the memory took.
    pub fn times(&self) -> Vec<ChannelTimes> {
        match &self.memory {
            Under::Dram(memory) => memory.times().cloned().collect(),
            Under::Constant(..) => vec![],
        }
    }

    /// Accesses random blocks, so that stash and cached levels are as full as they will be.
    fn warm_up(&mut self) -> Result {
        let mut rng = Seeded::new(self.config.seed);
        for _ in 0..self.config.warm_up {
            let addr = rng.below(self.front.blocks());
            self.front.submit(UNTIMED, Addr(addr))?;
            self.finish_untimed()?;
        }
        Ok(())
    }

    /// Steps until what was asked for last is finished, and counts nothing.
    fn finish_untimed(&mut self) -> Result {
        while self.front.finish_at_hand(&mut |_, _| {})? != Some(UNTIMED) {
            let issued = self.front.step(&mut |_, _| {})?;
            self.bus.take(&mut self.step);
            if issued.finished == Some(UNTIMED) {
                break;
            }
        }
        self.seen.reset();
        self.remaps_before = self.front.group_remaps();
        Ok(())
    }

    /// Lines of a block.
    fn bundle(&self) -> u64 {
        self.config.bundle.expect("it is resolved")
    }

    fn block(&self, addr: u64) -> u64 {
        addr / LINE_LEN / self.bundle() % self.front.blocks()
    }

    /// The number of a line.
    fn line(&self, addr: u64) -> u64 {
        self.block(addr) * self.bundle() + addr / LINE_LEN % self.bundle()
    }

    /// The bit of a line in its block.
    fn bit(&self, addr: u64) -> u64 {
        1 << (addr / LINE_LEN % self.bundle())
    }

    /// A request for a block that `submit` makes: its number.
    fn request(
        &mut self,
        block: u64,
        submit: impl FnOnce(&mut dyn Front, u64) -> traceless::error::Result,
    ) -> Result<u64> {
        let id = self.next_request;
        self.next_request += 1;
        self.is_asked = true;
        submit(&mut *self.front, id)?;
        self.requests.insert(id, Request { block, ..Request::default() });
        if self.bundle() > 1 {
            self.of_block.insert(block, id);
        }
        Ok(id)
    }

    /// A request for a block that may stay: one that waits already, if another line of the block
    /// is why.
    fn join(&mut self, block: u64) -> Result<u64> {
        if let Some(&id) = self.of_block.get(&block) {
            self.counts.joined += 1;
            return Ok(id);
        }
        self.request(block, |front, id| front.submit(id, Addr(block)))
    }

    /// Lines of a block are here, of which these were asked for.
    fn bring(&mut self, block: u64, asked: u64) {
        let lines = self.bundle();
        if lines > 1 {
            self.brought.push(Brought { addr: block * lines * LINE_LEN, lines, asked });
        }
    }

    /// The last cache reads lines of a block, and may keep their labels.
    fn label(&mut self, block: u64) {
        if self.config.remap == Some(Remap::WithLine) {
            let lines = self.bundle();
            self.labelled.extend(block * lines..(block + 1) * lines);
        }
    }

    /// Whether a block is at hand; then the request is served.
    fn is_served(&mut self, block: u64) -> bool {
        self.counts.requests += 1;
        let is_served = self.front.is_at_hand(Addr(block));
        self.counts.at_hand += u64::from(is_served);
        is_served
    }

    /// A line comes from the last cache, and may have been written.
    fn give_back(&mut self, now: u64, addr: u64, is_dirty: bool) -> Result {
        let block = self.block(addr);
        if self.out.remove(&block) {
            self.counts.requests += 1;
            let submit = |front: &mut dyn Front, id| front.submit_return(id, Addr(block));
            let id = self.request(block, submit)?;
            self.wait_written(id, now);
            return Ok(());
        }
        if self.labelled.remove(&self.line(addr)) {
            self.counts.returned += 1;
            return Ok(());
        }
        // A clean line whose block is still here has nothing to bring, where it may stay.
        let has_left = self.config.remap == Some(Remap::Delayed) && !self.blocks_leave;
        if is_dirty || has_left {
            if self.is_served(block) {
                self.measured.write_back(1);
            } else {
                let id = self.join(block)?;
                self.wait_written(id, now);
            }
        }
        Ok(())
    }

    /// A line that came back waits for a request from now on.
    fn wait_written(&mut self, request: u64, now: u64) {
        self.requests.get_mut(&request).expect("it waits").written.push(now);
    }

    /// A request is served by a path access, and its data there at `there`.
    fn finish(&mut self, request: u64, there: u64, done: &mut dyn FnMut(u64, u64)) {
        let walked = core::mem::take(&mut self.walked);
        self.finish_after(Some(walked), request, there, done);
    }

    /// The same after so many accesses to the position map, or without any path access.
    fn finish_after(
        &mut self,
        walked: Option<usize>,
        request: u64,
        there: u64,
        done: &mut dyn FnMut(u64, u64),
    ) {
        if request == OFFER {
            // Else it was withdrawn, after it was on its way.
            if let Some(block) = self.offered.take() {
                self.bring(block, 0);
                self.counts.early_lines += 1;
                done(OFFERED, there);
            }
            return;
        }
        if let Some(Request { block, tickets, written, asked }) = self.requests.remove(&request) {
            self.of_block.remove(&block);
            self.bring(block, asked);
            for since in written {
                self.measured.write_back(there.saturating_sub(since));
            }
            for (ticket, since) in tickets {
                self.measured.read(walked, there.saturating_sub(since));
                done(ticket, there);
            }
        }
    }

    /// Begins a path access if one is due.
    fn begin(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.is_asked = false;
        while let Some(request) = self.front.finish_at_hand(&mut |_, _| {})? {
            self.counts.at_hand += 1;
            self.finish_after(None, request, now + self.config.decrypt, done);
        }
        if now < self.due || self.config.pace == Pace::Asked && self.requests.is_empty() {
            return Ok(());
        }
        let is_early = self.requests.is_empty();
        let Issued { kind, finished } = self.front.step(&mut |_, _| {})?;
        self.bus.take(&mut self.step);
        let bytes = self.count(kind, is_early);
        self.phase = match &mut self.memory {
            Under::Dram(memory) => {
                let (mut left, mut there) = (0, now);
                self.step.reads.find(&self.layouts, &mut self.lines);
                show(self.witness.as_deref(), now, trace::Op::Read, &self.lines);
                for &line in &self.lines {
                    match memory.read(now, line, 0) {
                        Answer::At(time) => there = there.max(time),
                        Answer::Later => left += 1,
                    }
                }
                Phase::Reading { started: now, left, there, finished }
            }
            Under::Constant(config, bus) => {
                if self.witness.is_some() {
                    self.step.reads.find(&self.layouts, &mut self.lines);
                    show(self.witness.as_deref(), now, trace::Op::Read, &self.lines);
                    self.step.writes.find(&self.layouts, &mut self.lines);
                    show(self.witness.as_deref(), now, trace::Op::Write, &self.lines);
                }
                let until = bus.carry(now, bytes);
                Phase::Moving { started: now, until: until + config.oram_latency, finished }
            }
        };
        Ok(())
    }

    /// Counts a path access. Tells how many bytes it moves.
    fn count(&mut self, kind: Kind, is_early: bool) -> u64 {
        let Step { reads, writes, tree } = &self.step;
        let lines = reads.count(&self.layouts) + writes.count(&self.layouts);
        let bytes = match (&self.memory, self.path_bytes.get(*tree)) {
            (Under::Constant(..), Some(path)) => 2 * path,
            _ => lines * LINE_LEN,
        };
        let is_early = is_early && self.offered.is_some();
        self.kind = (kind, is_early);
        self.walked += usize::from(matches!(kind, Kind::PosMap(_)) && !is_early);
        let counts = &mut self.counts;
        counts.count(kind, is_early);
        counts.lines += lines;
        counts.bytes += bytes;
        counts.other_trees += u64::from(*tree > 0);
        let is_maps = self.config.scheme == Scheme::Recursive && *tree > 0;
        if is_maps || matches!(kind, Kind::PosMap(_)) {
            self.map.bytes += bytes;
        }
        counts.stash_peak = counts.stash_peak.max(self.front.stash());
        bytes
    }

    /// Ends the path access that is under way, as far as it is done.
    fn go_on(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) {
        if let Phase::Reading { started, left: 0, there, finished } = self.phase
            && there <= now
        {
            self.phase = Phase::Writing { started };
            if let Some(request) = finished {
                self.finish(request, now + self.config.decrypt, done);
            }
            if let Under::Dram(memory) = &mut self.memory {
                self.step.writes.find(&self.layouts, &mut self.lines);
                show(self.witness.as_deref(), now, trace::Op::Write, &self.lines);
                self.lines.iter().for_each(|&line| memory.write(now, line));
            }
        }
        let ends = match (self.phase, &self.memory) {
            (Phase::Writing { started }, Under::Dram(memory)) if memory.is_written() => {
                Some((started, None))
            }
            (Phase::Moving { started, until, finished }, _) if until <= now => {
                Some((started, finished))
            }
            _ => None,
        };
        if let Some((started, finished)) = ends {
            self.phase = Phase::Idle;
            self.counts.busy += now - started;
            let (kind, is_early) = self.kind;
            self.measured.path(kind, is_early, now - started);
            (self.ended, self.operations) = (now, 0);
            self.due = self.next_due(started);
            if let Some(request) = finished {
                self.finish(request, now + self.config.decrypt, done);
            }
        }
    }

    /// When the next path access is due, if the last one started at `started`.
    fn next_due(&self, started: u64) -> u64 {
        match self.config.pace {
            _ if self.config.paced_rounds && self.front.is_under_way() => self.ended,
            Pace::Asked => self.ended,
            Pace::StartToStart(interval) => self.ended.max(started + interval),
            Pace::AfterCompletion(interval) => self.ended + interval,
            Pace::FetchSlots(slots) => {
                self.ended + (slots + self.operations).div_ceil(self.config.fetch_slots)
            }
        }
    }
}

/// Tells whoever watches that the memory is asked for lines.
fn show(witness: Option<&dyn Witness>, now: u64, op: trace::Op, lines: &[u64]) {
    let Some(witness) = witness else { return };
    for &at in lines {
        let len = LINE_LEN as u32;
        witness.see(Event { time: now, surface: Surface::Dram, op, at, len });
    }
}

impl Backend for Oram {
    fn capacity(&self) -> u64 {
        self.front.blocks() * self.bundle() * LINE_LEN
    }

    fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer> {
        let block = self.block(addr);
        self.label(block);
        let leaves = self.blocks_leave && self.out.insert(block);
        if !leaves && self.is_served(block) {
            self.bring(block, self.bit(addr));
            self.measured.read(None, 1);
            return Ok(Answer::At(now + 1));
        }
        let id = if leaves {
            self.request(block, |front, id| front.submit_fetch(id, Addr(block)))?
        } else {
            self.join(block)?
        };
        self.counts.requests += u64::from(leaves);
        let bit = self.bit(addr);
        let request = self.requests.get_mut(&id).expect("it waits");
        request.tickets.push((ticket, now));
        request.asked |= bit;
        Ok(Answer::Later)
    }

    fn write(&mut self, now: u64, addr: u64) -> Result {
        self.give_back(now, addr, true)
    }

    fn drop_clean(&mut self, now: u64, addr: u64) -> Result {
        self.give_back(now, addr, false)
    }

    fn takes_writes(&self) -> bool {
        self.requests.len() < self.config.queue
    }

    fn is_written(&self) -> bool {
        self.requests.values().all(|request| !request.tickets.is_empty())
    }

    fn wants_offer(&self) -> bool {
        self.offered.is_none() && self.config.early != Some(Early::Nothing)
    }

    fn offer(&mut self, addr: u64) -> Result {
        let block = self.block(addr);
        self.front.offer(OFFER, Addr(block))?;
        self.offered = Some(block);
        Ok(())
    }

    fn withdraw(&mut self) {
        self.front.withdraw();
        self.offered = None;
    }

    fn note_operation(&mut self) {
        if matches!(self.config.pace, Pace::FetchSlots(_)) && self.phase == Phase::Idle {
            self.operations += 1;
            self.due = self.next_due(0);
        }
    }

    fn warm(&mut self, op: Op, addr: u64) -> Result {
        let block = self.block(addr);
        let leaves = self.blocks_leave && op == Op::Read && self.out.insert(block);
        if op == Op::Read {
            self.label(block);
        } else if self.labelled.remove(&self.line(addr)) {
            return Ok(());
        }
        if leaves {
            self.front.submit_fetch(UNTIMED, Addr(block))?;
        } else if op == Op::Write && self.out.remove(&block) {
            self.front.submit_return(UNTIMED, Addr(block))?;
        } else {
            self.front.submit(UNTIMED, Addr(block))?;
        }
        self.bring(block, if op == Op::Read { self.bit(addr) } else { 0 });
        self.finish_untimed()
    }

    fn take_brought(&mut self, lines: &mut Vec<Brought>) {
        lines.clear();
        core::mem::swap(&mut self.brought, lines);
    }

    fn warm_drop(&mut self, addr: u64) -> Result {
        let block = self.block(addr);
        self.labelled.remove(&self.line(addr));
        if self.out.remove(&block) {
            self.front.submit_return(UNTIMED, Addr(block))?;
            self.finish_untimed()?;
        }
        Ok(())
    }

    fn wake(&self) -> u64 {
        let own = match self.phase {
            // It may be finished without a path access.
            Phase::Idle if self.is_asked => 0,
            Phase::Idle if self.config.pace == Pace::Asked && self.requests.is_empty() => u64::MAX,
            Phase::Idle => self.due,
            Phase::Reading { left: 0, there, .. } => there,
            Phase::Reading { .. } | Phase::Writing { .. } => u64::MAX,
            Phase::Moving { until, .. } => until,
        };
        let own = own.max(self.now + 1);
        match &self.memory {
            Under::Dram(memory) => own.min(memory.wake()),
            Under::Constant(..) => own,
        }
    }

    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.now = now;
        let phase = &mut self.phase;
        if let Under::Dram(memory) = &mut self.memory {
            memory.tick(now, |_, time| {
                if let Phase::Reading { left, there, .. } = phase {
                    *left -= 1;
                    *there = time.max(*there);
                }
            });
        }
        self.go_on(now, done);
        if self.phase == Phase::Idle {
            self.begin(now, done)?;
        }
        Ok(())
    }
}
