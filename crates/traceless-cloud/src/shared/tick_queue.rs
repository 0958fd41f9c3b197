//! Steps of clients at a constant rate.
//!
//! A client plans its step, and makes the accesses to blocks that are at the gateway at once, also
//! while the queries of a tick are under way. Accesses to other blocks wait here until a tick
//! brings the block: the thread of the ticks takes them in order, one for each query of a tick. No
//! step reads what it writes, so the order of its accesses does not matter.

#[cfg(test)]
mod tests;

use super::SharedGateway;
use super::turns::Turn;
use crate::error::{Error, Result};
use crate::gateway::{Access, BatchStep, BlockRead, Gateway};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most accesses that are made while the gateway is not let go, so that the thread of the ticks
/// need not wait for long.
const AT_ONCE_MAX: usize = 64;
/// How long a client waits for a tick that shows whether the gateway still has the store.
const TICK_PATIENCE: Duration = Duration::from_secs(40);

/// The accesses that wait for ticks, by client.
#[derive(Default)]
pub struct TickQueue {
    state: Mutex<WaitingSteps>,
    /// Notified when a client begins to wait.
    arrived: Condvar,
    /// Notified when a tick has passed, or a step has ended.
    passed: Condvar,
    /// One client at a time waits for the gateway, so that the thread of the ticks waits for two of
    /// them at most.
    entrance: Mutex<()>,
    /// Whether the thread of the ticks waits for the gateway.
    is_tick_waiting: AtomicBool,
}

#[derive(Default)]
struct WaitingSteps {
    waiting: VecDeque<Arc<WaitingStep>>,
    /// The accesses that the queries of the tick are for, which is under way.
    in_tick: Vec<(Arc<WaitingStep>, StepAccess)>,
    /// Steps that are planned, and have not ended.
    unfinished: usize,
    /// How many ticks have passed, and the error of the last one.
    ticks: u64,
    last_error: Option<Error>,
    service: Service,
}

/// Whether a thread makes the waiting accesses.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Service {
    #[default]
    NotBegun,
    Runs,
    Ended,
}

/// The accesses of one client's step.
struct WaitingStep {
    progress: Mutex<StepProgress>,
    ended: Condvar,
}

#[derive(Default)]
struct StepProgress {
    /// What is left to be done.
    accesses: VecDeque<StepAccess>,
    /// What was read, by number of the reading access.
    read: Vec<Option<BlockRead>>,
    outcome: Option<Result>,
}

/// An access that is left to be done.
#[derive(Clone)]
struct StepAccess {
    access: Access,
    /// Of a reading access: how many come before it.
    place: Option<usize>,
}

/// A step that is planned, and has not ended.
struct UnfinishedStep<'a>(&'a TickQueue);

impl Drop for UnfinishedStep<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).unfinished -= 1;
        self.0.passed.notify_all();
    }
}

impl SharedGateway {
    /// Carries out a step at a constant rate.
    pub(super) fn run_in_ticks<S: BatchStep, T>(
        &self,
        mut step: S,
        output: impl FnOnce(&mut S) -> T,
    ) -> Result<T> {
        match self.ticks.service() {
            Service::Runs => {}
            Service::NotBegun => {
                self.run(|gateway| gateway.run_step(&mut step))?;
                return Ok(output(&mut step));
            }
            Service::Ended => return Err(self.end_of_rate()),
        }
        let _request = self.metrics.waiting_request();
        let mut result = self.make_in_ticks(&mut step);
        if matches!(result, Err(Error::Full { .. })) {
            // Each of the steps that were planned before may give room back.
            for _ in 0..self.ticks.unfinished() {
                self.ticks.wait_for_end_of_step();
                result = self.make_in_ticks(&mut step);
                if !matches!(result, Err(Error::Full { .. })) {
                    break;
                }
            }
        }
        self.note(&result);
        result.map(|()| output(&mut step))
    }

    fn make_in_ticks(&self, step: &mut dyn BatchStep) -> Result {
        let mut gateway = self.lock_to_answer()?;
        let accesses = step.plan(&mut gateway)?;
        let _unfinished = self.ticks.count_unfinished();
        gateway.observe_accesses(&accesses);
        let mut progress = StepProgress::new(accesses);
        let read = loop {
            match progress.serve(&mut gateway, 1) {
                Err(error) => break Err(error),
                Ok(_) if progress.accesses.is_empty() => break Ok(progress.take_read()),
                // Another thread may have the gateway in between.
                Ok(0) => {
                    drop(gateway);
                    gateway = self.ticks.lock_for_client(self);
                }
                Ok(_) => {
                    drop(gateway);
                    let read = self.ticks.wait(progress);
                    // Another gateway may have taken over the store meanwhile.
                    let locked = self.lock_to_answer();
                    gateway = match locked {
                        Ok(gateway) => gateway,
                        Err(error) => {
                            let failed = step.finish(&mut self.lock(), Err(error.clone()));
                            return failed.and(Err(error));
                        }
                    };
                    break read;
                }
            }
        };
        step.finish(&mut gateway, read)?;
        if step.waits_for_records(&gateway) { self.wait_for_ack(gateway) } else { Ok(()) }
    }

    /// The gateway, to answer a client. At a constant rate nothing is sent for a client: while it
    /// is in doubt whether another gateway has taken over the store, the next tick shows it.
    pub(super) fn lock_to_answer(&self) -> Result<MutexGuard<'_, Gateway>> {
        let is_served = self.has_constant_rate() && self.ticks.service() != Service::NotBegun;
        if !is_served {
            let gateway = self.lock();
            gateway.check_host()?;
            return Ok(gateway);
        }
        loop {
            let gateway = self.ticks.lock_for_client(self);
            if gateway.check_host_quietly()? {
                return Ok(gateway);
            }
            drop(gateway);
            self.ticks.wait_for_tick()?;
        }
    }

    /// The gateway for an operation that has it for itself, with its turn.
    pub(super) fn lock_for_operation(&self) -> Result<(Turn<'_>, MutexGuard<'_, Gateway>)> {
        loop {
            let turn = self.turns.wait();
            let gateway = self.lock_alone();
            match self.ticks.service() {
                Service::NotBegun => gateway.check_host()?,
                // No query goes without a tick.
                Service::Ended => {
                    drop(gateway);
                    return Err(self.end_of_rate());
                }
                Service::Runs if gateway.check_host_quietly()? => {}
                Service::Runs => {
                    drop((gateway, turn));
                    self.ticks.wait_for_tick()?;
                    continue;
                }
            }
            return Ok((turn, gateway));
        }
    }

    /// Why the thread of the ticks has ended, as far as that is known.
    fn end_of_rate(&self) -> Error {
        self.lock().check_host_quietly().err().unwrap_or_else(TickQueue::end_error)
    }

    /// The gateway, for the thread of the ticks, which goes before all clients.
    pub(super) fn lock_for_tick(&self) -> MutexGuard<'_, Gateway> {
        self.ticks.is_tick_waiting.store(true, Ordering::Relaxed);
        let gateway = self.lock();
        self.ticks.is_tick_waiting.store(false, Ordering::Relaxed);
        gateway
    }
}

impl TickQueue {
    /// Has the waiting accesses made by the calling thread from now on.
    pub fn serve(&self) {
        lock(&self.state).service = Service::Runs;
    }

    /// Ends that, and all steps that wait and that come later with an error.
    pub fn close(&self) {
        lock(&self.state).service = Service::Ended;
        self.fail(&Self::end_error());
        self.passed.notify_all();
    }

    fn end_error() -> Error {
        Error::Store("the constant rate has ended")
    }

    fn service(&self) -> Service {
        lock(&self.state).service
    }

    /// Whether an access waits.
    pub fn is_any_waiting(&self) -> bool {
        !lock(&self.state).waiting.is_empty()
    }

    /// Waits until an access waits, for so long at most.
    pub fn wait_for_access(&self, time: Duration) {
        let is_idle = |state: &mut WaitingSteps| state.waiting.is_empty();
        drop(self.arrived.wait_timeout_while(lock(&self.state), time, is_idle));
    }

    /// The accesses that the next tick is for: the first ones to different blocks that are not at
    /// the gateway, at most `count`.
    pub fn next_accesses(&self, gateway: &mut Gateway, count: usize) -> Vec<Access> {
        let mut state = lock(&self.state);
        let WaitingSteps { waiting, in_tick, .. } = &mut *state;
        in_tick.clear();
        let (mut accesses, mut blocks) = (Vec::new(), HashSet::new());
        waiting.retain(|step| {
            if accesses.len() == count {
                return true;
            }
            let mut progress = lock(&step.progress);
            let served = progress.serve(gateway, count - accesses.len());
            let Ok(misses @ 1..) = served else {
                let has_ended = served.is_err() || progress.accesses.is_empty();
                drop(progress);
                if has_ended {
                    step.end(served.map(drop));
                }
                return !has_ended;
            };
            for missing in progress.accesses.iter().take(misses) {
                if blocks.insert(missing.access.id()) {
                    accesses.push(missing.access.clone());
                    in_tick.push((step.clone(), missing.clone()));
                }
            }
            true
        });
        accesses
    }

    /// Ends the accesses that [`Self::next_accesses`] returned, which have read this in order.
    pub fn end_accesses(&self, mut read: impl Iterator<Item = BlockRead>) {
        let mut state = lock(&self.state);
        let mut has_ended = false;
        for (step, made) in core::mem::take(&mut state.in_tick) {
            let mut progress = lock(&step.progress);
            let is_own = |left: &StepAccess| {
                (left.access.id(), left.place) == (made.access.id(), made.place)
            };
            // It is one of the first.
            if let Some(at) = progress.accesses.iter().position(is_own) {
                progress.accesses.remove(at);
            }
            if let Some(place) = made.place {
                progress.read[place] = read.next();
            }
            if progress.accesses.is_empty() {
                drop(progress);
                step.end(Ok(()));
                has_ended = true;
            }
        }
        if has_ended {
            state.waiting.retain(|step| !step.has_ended());
        }
    }

    /// Takes the outcome of a tick: a failure ends all waiting steps.
    pub fn note_tick(&self, outcome: &Result) {
        if let Err(error) = outcome {
            self.fail(error);
        }
        let mut state = lock(&self.state);
        state.ticks += 1;
        state.last_error = outcome.as_ref().err().cloned();
        drop(state);
        self.passed.notify_all();
    }

    /// Ends all waiting steps with an error.
    fn fail(&self, error: &Error) {
        let mut state = lock(&self.state);
        state.in_tick.clear();
        for step in state.waiting.drain(..) {
            step.end(Err(error.clone()));
        }
    }

    /// Waits until a tick has passed. A failure is that of the tick.
    fn wait_for_tick(&self) -> Result {
        let state = lock(&self.state);
        let before = state.ticks;
        let is_early =
            |state: &mut WaitingSteps| state.ticks == before && state.service == Service::Runs;
        let waited = self.passed.wait_timeout_while(state, TICK_PATIENCE, is_early);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        match &state.last_error {
            Some(error) => Err(error.clone()),
            None if state.ticks == before => Err(Self::end_error()),
            None => Ok(()),
        }
    }

    fn count_unfinished(&self) -> UnfinishedStep<'_> {
        lock(&self.state).unfinished += 1;
        UnfinishedStep(self)
    }

    fn unfinished(&self) -> usize {
        lock(&self.state).unfinished
    }

    /// Waits until a step has ended, if one is under way.
    fn wait_for_end_of_step(&self) {
        let state = lock(&self.state);
        let before = state.unfinished;
        let has_none_ended = |state: &mut WaitingSteps| before > 0 && state.unfinished >= before;
        drop(self.passed.wait_timeout_while(state, TICK_PATIENCE, has_none_ended));
    }

    /// Waits until all accesses of a step are made. Returns what was read.
    fn wait(&self, progress: StepProgress) -> Result<Vec<BlockRead>> {
        let step = Arc::new(WaitingStep { progress: Mutex::new(progress), ended: Condvar::new() });
        let mut state = lock(&self.state);
        if state.service != Service::Runs {
            return Err(Self::end_error());
        }
        state.waiting.push_back(step.clone());
        drop(state);
        self.arrived.notify_all();
        let is_waiting = |progress: &mut StepProgress| progress.outcome.is_none();
        let ended = step.ended.wait_while(lock(&step.progress), is_waiting);
        let mut progress = ended.unwrap_or_else(PoisonError::into_inner);
        progress.outcome.take().expect("the step has ended").map(|()| progress.take_read())
    }

    fn lock_for_client<'a>(&self, front: &'a SharedGateway) -> MutexGuard<'a, Gateway> {
        let _entrance = lock(&self.entrance);
        while self.is_tick_waiting.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        front.lock()
    }
}

impl WaitingStep {
    fn end(&self, outcome: Result) {
        lock(&self.progress).outcome = Some(outcome);
        self.ended.notify_all();
    }

    fn has_ended(&self) -> bool {
        let progress = lock(&self.progress);
        progress.outcome.is_some() || progress.accesses.is_empty()
    }
}

impl StepProgress {
    /// Accesses, of which none is made. A dummy access takes no query, as no caller can notice.
    fn new(accesses: Vec<Access>) -> Self {
        let mut reads = 0;
        let left = |access: Access| {
            let place = matches!(access, Access::Read(_)).then_some(reads);
            reads += usize::from(place.is_some());
            access.id().is_some().then_some(StepAccess { access, place })
        };
        let accesses = accesses.into_iter().filter_map(left).collect();
        Self { accesses, read: vec![None; reads], outcome: None }
    }

    /// Makes accesses to blocks at the gateway, some of the first at most, until it has found
    /// `count` that are to other blocks. Returns how many it has found, which are the first ones
    /// now.
    fn serve(&mut self, gateway: &mut Gateway, count: usize) -> Result<usize> {
        let mut missing = Vec::new();
        for _ in 0..AT_ONCE_MAX {
            if missing.len() == count {
                break;
            }
            let Some(next) = self.accesses.pop_front() else { break };
            let mut read = Vec::new();
            if !gateway.serve_at_hand(&next.access, &mut read)? {
                missing.push(next);
            } else if let Some(place) = next.place {
                self.read[place] = read.pop();
            }
        }
        let found = missing.len();
        for access in missing.into_iter().rev() {
            self.accesses.push_front(access);
        }
        Ok(found)
    }

    /// What was read, once all accesses are made.
    fn take_read(&mut self) -> Vec<BlockRead> {
        let read = core::mem::take(&mut self.read).into_iter();
        read.map(|read| read.expect("every access was made")).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
