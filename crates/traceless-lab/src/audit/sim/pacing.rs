//! A controller separate from the simulator's: IR-ORAM's, with its sub-stash and its early
//! write-backs, and one fault in the times at which paths begin. Without a fault ([`SoundPace`]) it
//! has the times of the simulator's controller.

use super::super::tree::schemes::{Tree, rng};
use super::computer::{BLOCKS, CACHED, LEVELS, MEMORY, layouts_of};
use super::run::{Bench, Job};
use super::trees::observed_tree;
use super::watch::{Atlas, StepLines, Watcher};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use traceless::controller::Controller;
use traceless::posmap::{PlainLabels, Plb};
use traceless::scheme::unified::{Sizes, Unified};
use traceless::trace::{Event, Op, Surface, Witness};
use traceless::tree::{Shape, Substash};
use traceless::types::Addr;
use traceless_sim::backend::{Answer, Backend, OFFERED};
use traceless_sim::dram::Memory;
use traceless_sim::llc::EarlyWriteBack;
use traceless_sim::oram::Pace;
use traceless_sim::workload::{LINE_LEN, Op as RequestOp};
use traceless_sim::{Error, Result};

/// When paths begin. Each default is correct.
pub trait Pacing: Send {
    /// Cycles from the end of a path to the start of the next.
    fn wait(state: &PaceState) -> u64 {
        state.interval
    }

    /// Whether a line is read from memory before the sub-stash has answered.
    const READS_BEFORE_ANSWER: bool = false;

    /// Whether a repeated use of a line ends the path of its early write-back.
    const ABORT_ENDS_STEP: bool = false;
}

/// The state that a faulty T may depend on.
pub struct PaceState {
    /// The correct interval.
    interval: u64,
    /// Steps so far.
    steps: u64,
    /// Requests so far.
    requests: u64,
    /// Whether a request waits.
    has_request: bool,
    /// Whether a line can be written back early.
    has_offer: bool,
    /// Blocks in the stash.
    stash: usize,
}

/// No fault.
pub struct SoundPace;

impl Pacing for SoundPace {}

/// T is shorter for a program with more requests.
pub struct IntervalOfProgram;

impl Pacing for IntervalOfProgram {
    fn wait(state: &PaceState) -> u64 {
        if state.requests * 4 > state.steps { state.interval / 2 } else { state.interval }
    }
}

/// An early write-back does not wait for T, because no request waits.
pub struct EarlyAtOnce;

impl Pacing for EarlyAtOnce {
    fn wait(state: &PaceState) -> u64 {
        if state.has_offer && !state.has_request { 0 } else { state.interval }
    }
}

/// A due dummy first searches the cache, which takes time.
pub struct EarlyLater;

impl Pacing for EarlyLater {
    fn wait(state: &PaceState) -> u64 {
        let searches = state.has_offer && !state.has_request;
        state.interval + if searches { 40 } else { 0 }
    }
}

/// A path that empties the stash does not wait for T.
pub struct EvictsBetween;

impl Pacing for EvictsBetween {
    fn wait(state: &PaceState) -> u64 {
        if state.stash > 0 { 0 } else { state.interval }
    }
}

/// An aborted early write-back ends its step.
pub struct AbortEndsStep;

impl Pacing for AbortEndsStep {
    const ABORT_ENDS_STEP: bool = true;
}

/// Accesses the sub-stash and the memory at the same time.
pub struct ReadsBeforeAnswer;

impl Pacing for ReadsBeforeAnswer {
    const READS_BEFORE_ANSWER: bool = true;
}

/// The places of the tree's paths in memory.
pub fn atlas() -> Result<Atlas> {
    Ok(Atlas::of(&layouts_of(&[memory_shape()?])))
}

fn shape() -> Result<Shape> {
    Ok(Shape::uniform(LEVELS, 4)?)
}

fn memory_shape() -> Result<Shape> {
    Ok(shape()?.only(|level| level >= CACHED))
}

/// Runs a program on a processor with this controller.
pub fn run<F: Pacing>(job: &Job, bench: &Bench) -> Result<()> {
    let early = EarlyWriteBack::scan(job.seed, 500);
    bench.run(job, PacedController::<F>::new(job, bench)?, Some(early))
}

type Scheme = Unified<Substash<Tree>, PlainLabels>;

/// The controller.
struct PacedController<F> {
    scheme: Scheme,
    memory: Memory,
    watcher: Arc<Watcher>,
    accesses: TreeAccesses,
    state: PaceState,
    phase: Phase,
    now: u64,
    due: u64,
    /// Whether a request came since the last call of `begin`.
    is_new: bool,
    /// Waiting requests, with the tickets of reads.
    requests: HashMap<u64, Option<u64>>,
    offered: bool,
    fault: PhantomData<F>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Reading { outstanding: usize, arrival: u64, finished: Option<u64>, is_early: bool },
    Writing,
}

/// The identity of an offered line.
const OFFER: u64 = u64::MAX;

/// The lines that the tree accesses in a step.
#[derive(Clone, Default)]
struct TreeAccesses(Arc<Mutex<StepLines>>);

impl TreeAccesses {
    fn take(&self) -> StepLines {
        core::mem::take(&mut self.0.lock().expect("no witness panics"))
    }
}

impl Witness for TreeAccesses {
    fn record(&self, event: Event) {
        let mut lines = self.0.lock().expect("no witness panics");
        match event.op {
            Op::Read => lines.reads.push(event.at),
            _ => lines.writes.push(event.at),
        }
    }
}

impl<F: Pacing> PacedController<F> {
    fn new(job: &Job, bench: &Bench) -> Result<Self> {
        let Pace::AfterCompletion(interval) = job.pace else {
            return Err(Error::Oram("here T is counted from the end of a path"));
        };
        let accesses = TreeAccesses::default();
        let below = observed_tree(0, memory_shape()?, &bench.atlas, accesses.clone());
        let tree = Substash::new(shape()?, CACHED, (7, 4), below)?;
        let sizes =
            Sizes { blocks: BLOCKS, map_levels: 2, parts: 1, bundled: false, stash_blocks: 200 };
        let labels = || PlainLabels::in_block(LINE_LEN as usize);
        let plb = Plb::new(16, 4, 0)?;
        let mut scheme = Unified::new(sizes, tree, labels()?, labels()?, plb, rng(job.seed, 1))?;
        if F::READS_BEFORE_ANSWER {
            scheme.search_first();
        }
        let state = PaceState {
            interval,
            steps: 0,
            requests: 0,
            has_request: false,
            has_offer: false,
            stash: 0,
        };
        Ok(Self {
            scheme,
            memory: Memory::new(MEMORY)?,
            watcher: bench.watcher.clone(),
            accesses,
            state,
            phase: Phase::Idle,
            now: 0,
            due: 0,
            is_new: false,
            requests: HashMap::new(),
            offered: false,
            fault: PhantomData,
        })
    }

    fn block(addr: u64) -> Addr {
        Addr(addr / LINE_LEN % BLOCKS)
    }

    /// Requests a block, unless it is at hand. Returns whether it is.
    fn request_block(&mut self, now: u64, addr: u64, ticket: Option<u64>) -> Result<bool> {
        let block = Self::block(addr);
        if self.scheme.is_served_without_path(block) {
            if F::READS_BEFORE_ANSWER {
                self.read_line(now, addr, u64::MAX);
            }
            return Ok(true);
        }
        let id = self.state.requests;
        self.state.requests += 1;
        self.scheme.submit(id, block)?;
        self.requests.insert(id, ticket);
        self.is_new = true;
        Ok(false)
    }

    /// Reads a line for step number `step`. Returns its time of arrival, if that is known.
    fn read_line(&mut self, now: u64, at: u64, step: u64) -> Answer {
        self.show(now, Op::Read, at);
        self.memory.read(now, at, step)
    }

    fn show(&self, time: u64, op: Op, at: u64) {
        self.watcher.record(Event { time, surface: Surface::Dram, op, at, len: LINE_LEN as u32 });
    }

    fn finish(&mut self, request: u64, arrival: u64, done: &mut dyn FnMut(u64, u64)) {
        if request == OFFER {
            if core::mem::take(&mut self.offered) {
                done(OFFERED, arrival);
            }
        } else if let Some(Some(ticket)) = self.requests.remove(&request) {
            done(ticket, arrival);
        }
    }

    fn begin(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.is_new = false;
        while let Some(request) = self.scheme.finish_without_path(&mut |_, _| {})? {
            self.finish(request, now, done);
        }
        if now < self.due {
            return Ok(());
        }
        let is_early = self.requests.is_empty() && self.offered;
        let finished = self.scheme.step(&mut |_, _| {})?.finished;
        self.state.steps += 1;
        let lines = self.accesses.take();
        let (mut outstanding, mut arrival) = (0, now);
        for at in lines.reads {
            match self.read_line(now, at, self.state.steps) {
                Answer::At(time) => arrival = arrival.max(time),
                Answer::Later => outstanding += 1,
            }
        }
        self.accesses.0.lock().expect("no witness panics").writes = lines.writes;
        self.phase = Phase::Reading { outstanding, arrival, finished, is_early };
        Ok(())
    }

    fn advance(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) {
        if let Phase::Reading { outstanding: 0, arrival, finished, .. } = self.phase
            && arrival <= now
        {
            self.phase = Phase::Writing;
            if let Some(request) = finished {
                self.finish(request, now, done);
            }
            for at in self.accesses.take().writes {
                self.show(now, Op::Write, at);
                self.memory.write(now, at);
            }
        }
        if self.phase == Phase::Writing && self.memory.is_written() {
            self.phase = Phase::Idle;
            self.state.has_request = !self.requests.is_empty();
            self.state.has_offer = self.offered;
            self.state.stash = self.scheme.engine().stash().len();
            self.due = now + F::wait(&self.state);
        }
    }
}

impl<F: Pacing> Backend for PacedController<F> {
    fn capacity(&self) -> u64 {
        BLOCKS * LINE_LEN
    }

    fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer> {
        let is_cached = self.request_block(now, addr, Some(ticket))?;
        Ok(if is_cached { Answer::At(now + 1) } else { Answer::Later })
    }

    fn write(&mut self, now: u64, addr: u64) -> Result {
        self.request_block(now, addr, None).map(|_| ())
    }

    fn takes_writes(&self) -> bool {
        self.requests.len() < 64
    }

    fn is_written(&self) -> bool {
        self.requests.values().all(Option::is_some)
    }

    fn warm(&mut self, _: RequestOp, _: u64) -> Result {
        Ok(())
    }

    fn wants_offer(&self) -> bool {
        !self.offered
    }

    fn offer(&mut self, addr: u64) -> Result {
        self.scheme.offer(OFFER, Self::block(addr))?;
        self.offered = true;
        Ok(())
    }

    fn withdraw(&mut self) {
        self.scheme.withdraw();
        self.offered = false;
        if F::ABORT_ENDS_STEP && matches!(self.phase, Phase::Reading { is_early: true, .. }) {
            (self.phase, self.due) = (Phase::Idle, self.now);
            self.accesses.take();
        }
    }

    fn wake(&self) -> u64 {
        let phase_end = match self.phase {
            Phase::Idle if self.is_new => 0,
            Phase::Idle => self.due,
            Phase::Reading { outstanding: 0, arrival, .. } => arrival,
            Phase::Reading { .. } | Phase::Writing => u64::MAX,
        };
        phase_end.max(self.now + 1).min(self.memory.wake())
    }

    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.now = now;
        let (phase, step) = (&mut self.phase, self.state.steps);
        self.memory.tick(now, |of, time| {
            if let Phase::Reading { outstanding, arrival, .. } = phase
                && of == step
            {
                *outstanding -= 1;
                *arrival = time.max(*arrival);
            }
        });
        self.advance(now, done);
        if self.phase == Phase::Idle { self.begin(now, done) } else { Ok(()) }
    }
}
