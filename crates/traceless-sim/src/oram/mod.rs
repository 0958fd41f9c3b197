//! Oblivious memory: a scheme between the last cache and the memory that holds its trees.
//!
//! Each step of the scheme is a path access. Over a DRAM, all lines of the path are read; when the
//! last one is there, the block is handed over, and all lines are written. The access ends when the
//! memory has written them. Over a memory that is known by its bandwidth, an access moves a number
//! of bytes. The scheme is the library's, over a tree without bodies.
//!
//! Path ORAM over a DRAM. Each access moves a path of 11 buckets with 4 lines, twice:
//!
//! ```
//! use traceless_sim::dram::{self, Memory};
//! use traceless_sim::oram::{Config, LayoutKind, Oram, Scheme};
//! use traceless_sim::processor;
//! use traceless_sim::workload::named;
//!
//! # fn main() -> traceless_sim::Result {
//! let config = Config {
//!     scheme: Scheme::Path,
//!     blocks: Some(1 << 12),
//!     levels: 11,
//!     cached_levels: 0,
//!     layout: LayoutKind::Buckets,
//!     ..Config::default()
//! };
//! let mut oram = Oram::over_dram(&config, Memory::new(dram::Config::FOUR_CHANNELS)?)?;
//! let mut workloads = [named("uniform?bytes=256K&write_share=0", 100, 1)?];
//! processor::run(&processor::Config::FOUR_CHANNELS, &mut oram, &mut workloads)?;
//!
//! let counts = oram.counts();
//! assert!((80..=100).contains(&counts.data), "a request may find its block in the stash");
//! assert_eq!(counts.lines, 2 * 11 * 4 * counts.paths());
//! # Ok(())
//! # }
//! ```

mod build;
mod config;
mod controller;
mod counts;
mod latency;
mod layout;
mod recursive;
mod requests;
mod step_trace;
mod storage;
mod tree;

pub use config::{
    Allocation, Bucket, Config, Early, LabelKind, MapTree, Pace, Remap, Scheme, Small, Start, Top,
};
pub use controller::SimController;
pub use counts::{Counts, MAP_LEVELS, MapCounts};
pub use latency::{Latencies, PathLatencies, READ_LEVELS};
pub use layout::{Layout, LayoutKind};
pub use step_trace::StepTrace;
pub use storage::Storage;

use crate::backend::{Answer, LineGroup};
use crate::constant;
use crate::dram::{self, ChannelStats, ChannelTimes, CommandRecord, Memory};
use crate::error::{Error, Result};
use crate::workload::LINE_LEN;
use build::{Built, build};
use latency::LatencyProbe;
use requests::BlockRequest;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use step_trace::Step;
use traceless::controller::{StepKind, StepOutcome};
use traceless::rng::{Rng, SeededRng};
use traceless::store::DrawnPlaces;
use traceless::trace::{self, Event, Surface, Witness};
use traceless::types::Addr;
use tree::LevelCounts;

/// A scheme, and the memory that holds its trees.
pub struct Oram {
    config: Config,
    controller: Box<dyn SimController>,
    step_trace: StepTrace,
    seen: LevelCounts,
    memory: Backing,
    /// For each tree, the places of its slots, and the bytes of a path.
    layouts: Vec<Layout>,
    path_bytes: Vec<u64>,
    phase: Phase,
    /// The last cycle that was simulated, and whether a request has come since.
    now: u64,
    has_request: bool,
    /// When the next path access is due, and when the last one ended.
    due: u64,
    ended: u64,
    /// Memory operations since the last path access ended.
    operations: u64,
    /// The lines that the path access under way touches, and the lines that the memory must read or
    /// write next.
    step: Step,
    lines: Vec<u64>,
    /// Requests that wait, with the tickets of their reads. Write-backs have no tickets.
    requests: HashMap<u64, BlockRequest>,
    /// If lines share a block: the number of the request that waits for the block, which requests
    /// for its other lines join.
    of_block: HashMap<u64, u64>,
    next_request: u64,
    /// Groups of lines that came to hand since the cache last took them.
    brought: Vec<LineGroup>,
    /// Blocks that have left the memory, and whether blocks of this scheme can leave.
    out: HashSet<u64>,
    blocks_leave: bool,
    /// The numbers of lines that the last cache holds with their labels, if it keeps labels.
    labelled: HashSet<u64>,
    /// The block of the line that is offered for an early write-back.
    offered: Option<u64>,
    counts: Counts,
    map: MapCounts,
    /// Group remaps before the timing started.
    remaps_before: u64,
    measured: LatencyProbe,
    /// The path access that is under way, and whether it is in place of a dummy.
    kind: (StepKind, bool),
    /// Accesses to the position map since a request was finished.
    walked: usize,
    /// The witness of the bus.
    witness: Option<Arc<dyn Witness>>,
}

/// The places of the paths of each tree of `config` in this memory; empty for a scheme that does
/// not read whole paths.
pub fn layouts(config: &Config, memory: &dram::Config) -> Result<Vec<Layout>> {
    Ok(build(config, memory.channels_in_a_row(), memory.geometry.capacity())?.layouts)
}

/// The memory that holds the trees.
enum Backing {
    Dram(Box<Memory>),
    Constant(constant::Config, constant::ConstantBus),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// `left` lines are still to come; the last line so far is there at `there`.
    Reading {
        started: u64,
        left: usize,
        there: u64,
        finished: Option<u64>,
    },
    /// All lines are handed over to be written.
    Writing {
        started: u64,
    },
    /// The memory moves bytes until the cycle `until`.
    Moving {
        started: u64,
        until: u64,
        finished: Option<u64>,
    },
}

/// The number of a request before the timing starts.
const UNTIMED: u64 = u64::MAX - 1;

impl Oram {
    /// The scheme of `config`, in `memory`.
    pub fn over_dram(config: &Config, memory: Memory) -> Result<Self> {
        let (channels, capacity) =
            (memory.config().channels_in_a_row(), memory.config().geometry.capacity());
        let built = build(config, channels, capacity)?;
        Self::new(config, built, Backing::Dram(Box::new(memory)))
    }

    /// The scheme of `config`, in a memory that is known by its bandwidth.
    pub fn over_constant(config: &Config, memory: &constant::Config) -> Result<Self> {
        memory.check()?;
        let built = build(config, 1, memory.capacity)?;
        Self::new(config, built, Backing::Constant(*memory, constant::ConstantBus::new(memory)))
    }

    /// A scheme of the caller's own, in `memory`. `make` gets the trace of a step, to which the
    /// scheme's trees must report what they touch: a [`GhostTree`](traceless::tree::GhostTree) does
    /// so with the trace as its witness. Of `config` only `pace`, `fetch_slots`, `decrypt`,
    /// `queue`, `warm_up` and `seed` count, and blocks stay in the memory while caches hold their
    /// lines.
    pub fn over_dram_with(
        config: &Config,
        memory: Memory,
        make: impl FnOnce(StepTrace) -> Result<Box<dyn SimController>>,
    ) -> Result<Self> {
        let config = Config {
            scheme: Scheme::Path,
            bundle: None,
            remap: None,
            early: None,
            ..config.clone()
        };
        config.check()?;
        let step_trace = StepTrace::default();
        let controller = make(step_trace.clone())?;
        if controller.blocks() == 0 {
            return Err(Error::Oram("a scheme has blocks"));
        }
        let built = Built {
            controller,
            step_trace,
            seen: LevelCounts::default(),
            layouts: vec![],
            path_bytes: vec![],
            slots: 0,
            pointer_bits: 0,
        };
        Self::new(&config, built, Backing::Dram(Box::new(memory)))
    }

    fn new(config: &Config, built: Built, memory: Backing) -> Result<Self> {
        let config = config.resolved();
        let Built { controller, step_trace, seen, layouts, path_bytes, slots, pointer_bits } =
            built;
        let is_unified = config.scheme.is_unified();
        if config.early != Some(Early::Nothing) && !is_unified {
            return Err(Error::Oram("only a unified ORAM writes lines back early"));
        }
        let mut oram = Self {
            blocks_leave: is_unified && config.remap == Some(Remap::Delayed),
            config,
            controller,
            step_trace,
            seen,
            memory,
            layouts,
            path_bytes,
            phase: Phase::Idle,
            now: 0,
            has_request: false,
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
            measured: LatencyProbe::default(),
            kind: (StepKind::Dummy, false),
            walked: 0,
            witness: None,
        };
        oram.warm_up()?;
        Ok(oram)
    }

    /// What paths show of the tree with the most leaves; `None` if no whole paths are read.
    pub(crate) fn drawn_leaves(&self) -> Option<Box<dyn DrawnPlaces>> {
        let trees = self.layouts.iter().filter_map(Layout::drawn_leaves);
        trees.max_by_key(DrawnPlaces::places).map(|leaves| Box::new(leaves) as _)
    }

    /// From now on reports to `witness` each line that the memory must read or write, with the time
    /// of the request, as an observer of the bus sees it. From a memory that is known by its
    /// bandwidth, all lines of a path are requested at once.
    pub fn watch(&mut self, witness: Arc<dyn Witness>) {
        self.witness = Some(witness);
    }

    /// The commands that went to a channel of the memory, if it keeps a [log](Memory::keep_log).
    pub fn commands(&self, channel: usize) -> &[CommandRecord] {
        match &self.memory {
            Backing::Dram(memory) => memory.log(channel),
            Backing::Constant(..) => &[],
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        let Self { seen, counts, .. } = self;
        let (found, looked_at, full) = (seen.found(), seen.slots(), seen.full());
        Counts { found, looked_at, full, ..*counts }
    }

    /// The costs of the position map so far.
    pub fn map_counts(&self) -> MapCounts {
        MapCounts {
            block_bits: self.controller.map_block_bits(),
            group_remaps: self.controller.group_remaps() - self.remaps_before,
            ..self.map
        }
    }

    /// The latencies so far.
    pub fn latencies(&self) -> Latencies {
        self.measured.latencies()
    }

    /// What each channel of the memory did until `end`.
    pub fn stats(&self, end: u64) -> Vec<ChannelStats> {
        match &self.memory {
            Backing::Dram(memory) => memory.stats(end),
            Backing::Constant(..) => vec![],
        }
    }

    /// How long requests to each channel of the memory took.
    pub fn times(&self) -> Vec<ChannelTimes> {
        match &self.memory {
            Backing::Dram(memory) => memory.times().cloned().collect(),
            Backing::Constant(..) => vec![],
        }
    }

    /// Accesses random blocks, so that stash and cached levels are as full as in a long run.
    fn warm_up(&mut self) -> Result {
        let mut rng = SeededRng::new(self.config.seed);
        for _ in 0..self.config.warm_up {
            let addr = rng.below(self.controller.blocks());
            self.controller.submit(UNTIMED, Addr(addr))?;
            self.finish_untimed()?;
        }
        Ok(())
    }

    /// Steps until the last request is finished, and counts nothing.
    fn finish_untimed(&mut self) -> Result {
        while self.controller.finish_without_path(&mut |_, _| {})? != Some(UNTIMED) {
            let issued = self.controller.step(&mut |_, _| {})?;
            self.step_trace.take(&mut self.step);
            if issued.finished == Some(UNTIMED) {
                break;
            }
        }
        self.seen.reset();
        self.remaps_before = self.controller.group_remaps();
        Ok(())
    }

    /// Simulates up to the cycle `now`.
    fn advance(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.now = now;
        let phase = &mut self.phase;
        if let Backing::Dram(memory) = &mut self.memory {
            memory.tick(now, |_, time| {
                if let Phase::Reading { left, there, .. } = phase {
                    *left -= 1;
                    *there = time.max(*there);
                }
            });
        }
        self.finish_phases(now, done);
        if self.phase == Phase::Idle {
            self.begin(now, done)?;
        }
        Ok(())
    }

    /// The next cycle at which something may happen.
    fn next_wake(&self) -> u64 {
        let own = match self.phase {
            // A request may be finished without a path access.
            Phase::Idle if self.has_request => 0,
            Phase::Idle if self.config.pace == Pace::Asked && self.requests.is_empty() => u64::MAX,
            Phase::Idle => self.due,
            Phase::Reading { left: 0, there, .. } => there,
            Phase::Reading { .. } | Phase::Writing { .. } => u64::MAX,
            Phase::Moving { until, .. } => until,
        };
        let own = own.max(self.now + 1);
        match &self.memory {
            Backing::Dram(memory) => own.min(memory.wake()),
            Backing::Constant(..) => own,
        }
    }

    /// Begins a path access if one is due.
    fn begin(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.has_request = false;
        while let Some(request) = self.controller.finish_without_path(&mut |_, _| {})? {
            self.counts.at_hand += 1;
            self.finish_after(None, request, now + self.config.decrypt, done);
        }
        if now < self.due || self.config.pace == Pace::Asked && self.requests.is_empty() {
            return Ok(());
        }
        let is_early = self.requests.is_empty();
        let StepOutcome { kind, finished } = self.controller.step(&mut |_, _| {})?;
        self.step_trace.take(&mut self.step);
        let bytes = self.count(kind, is_early);
        self.phase = match &mut self.memory {
            Backing::Dram(memory) => {
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
            Backing::Constant(config, bus) => {
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

    /// Counts a path access. Returns how many bytes it moves.
    fn count(&mut self, kind: StepKind, is_early: bool) -> u64 {
        let Step { reads, writes, tree } = &self.step;
        let lines = reads.count(&self.layouts) + writes.count(&self.layouts);
        let bytes = match (&self.memory, self.path_bytes.get(*tree)) {
            (Backing::Constant(..), Some(path)) => 2 * path,
            _ => lines * LINE_LEN,
        };
        let is_early = is_early && self.offered.is_some();
        self.kind = (kind, is_early);
        self.walked += usize::from(matches!(kind, StepKind::PosMap(_)) && !is_early);
        let counts = &mut self.counts;
        counts.count(kind, is_early);
        counts.lines += lines;
        counts.bytes += bytes;
        counts.other_trees += u64::from(*tree > 0);
        let is_maps = self.config.scheme == Scheme::Recursive && *tree > 0;
        if is_maps || matches!(kind, StepKind::PosMap(_)) {
            self.map.bytes += bytes;
        }
        counts.stash_peak = counts.stash_peak.max(self.controller.stash());
        bytes
    }

    /// Ends the path access that is under way, as far as it is done.
    fn finish_phases(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) {
        if let Phase::Reading { started, left: 0, there, finished } = self.phase
            && there <= now
        {
            self.phase = Phase::Writing { started };
            if let Some(request) = finished {
                self.finish(request, now + self.config.decrypt, done);
            }
            if let Backing::Dram(memory) = &mut self.memory {
                self.step.writes.find(&self.layouts, &mut self.lines);
                show(self.witness.as_deref(), now, trace::Op::Write, &self.lines);
                self.lines.iter().for_each(|&line| memory.write(now, line));
            }
        }
        let ends = match (self.phase, &self.memory) {
            (Phase::Writing { started }, Backing::Dram(memory)) if memory.is_written() => {
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
            _ if self.config.paced_rounds && self.controller.is_under_way() => self.ended,
            Pace::Asked => self.ended,
            Pace::StartToStart(interval) => self.ended.max(started + interval),
            Pace::AfterCompletion(interval) => self.ended + interval,
            Pace::FetchSlots(slots) => {
                self.ended + (slots + self.operations).div_ceil(self.config.fetch_slots)
            }
        }
    }
}

/// Reports to the witness the lines that the memory must read or write.
fn show(witness: Option<&dyn Witness>, now: u64, op: trace::Op, lines: &[u64]) {
    let Some(witness) = witness else { return };
    for &at in lines {
        let len = LINE_LEN as u32;
        witness.record(Event { time: now, surface: Surface::Dram, op, at, len });
    }
}
