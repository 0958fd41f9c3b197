//! Steps of clients at a constant rate.
//!
//! A client plans its step, and makes the accesses to blocks that are at the gateway at once, also
//! while the query of a tick is under way. Its first access to any other block waits here, with all
//! that follow, until a tick brings the block: the thread of the ticks takes the waiting accesses
//! in order, one for each tick.

#[cfg(test)]
mod tests;

use super::SharedGateway;
use crate::error::{Error, Result};
use crate::gateway::{Access, BatchStep, BlockRead, Gateway};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The accesses that wait for ticks, by client.
#[derive(Default)]
pub struct TickQueue {
    state: Mutex<WaitingSteps>,
    /// Notified when a client begins to wait.
    arrived: Condvar,
    /// One client at a time waits for the gateway, so that the thread of the ticks waits for two of
    /// them at most.
    entrance: Mutex<()>,
    /// Whether the thread of the ticks waits for the gateway.
    is_tick_waiting: AtomicBool,
}

#[derive(Default)]
struct WaitingSteps {
    waiting: VecDeque<Arc<WaitingStep>>,
    /// Whether a thread makes the waiting accesses.
    is_served: bool,
}

/// The accesses of one client's step.
struct WaitingStep {
    progress: Mutex<StepProgress>,
    ended: Condvar,
}

#[derive(Default)]
struct StepProgress {
    /// What is left to be done.
    accesses: VecDeque<Access>,
    read: Vec<BlockRead>,
    outcome: Option<Result>,
}

impl SharedGateway {
    /// Carries out a step at a constant rate.
    pub(super) fn run_in_ticks<S: BatchStep, T>(
        &self,
        mut step: S,
        output: impl FnOnce(&mut S) -> T,
    ) -> Result<T> {
        if !self.ticks.is_served() {
            self.run(|gateway| gateway.run_step(&mut step))?;
            return Ok(output(&mut step));
        }
        let _request = self.metrics.waiting_request();
        let result = self.make_in_ticks(&mut step);
        match &result {
            Ok(()) => self.metrics.succeeded(),
            Err(error) => self.metrics.failed(error),
        }
        result.map(|()| output(&mut step))
    }

    fn make_in_ticks(&self, step: &mut dyn BatchStep) -> Result {
        let mut gateway = self.ticks.lock_for_client(self);
        gateway.check_host()?;
        let accesses: VecDeque<Access> = step.plan(&mut gateway)?.into();
        gateway.observe_accesses(accesses.as_slices().0);
        let mut progress = StepProgress { accesses, ..StepProgress::default() };
        let read = match progress.serve(&mut gateway) {
            Ok(true) => Ok(progress.read),
            Ok(false) => {
                drop(gateway);
                let read = self.ticks.wait(progress);
                gateway = self.ticks.lock_for_client(self);
                // Another gateway may have taken over the store meanwhile.
                gateway.check_host().and(read)
            }
            Err(error) => Err(error),
        };
        step.finish(&mut gateway, read)?;
        if step.waits_for_records(&gateway) { self.wait_for_ack(gateway) } else { Ok(()) }
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
        lock(&self.state).is_served = true;
    }

    /// Ends that, and all waiting steps with an error.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.is_served = false;
        for step in state.waiting.drain(..) {
            step.end(Err(Error::Store("the constant rate has ended")));
        }
    }

    fn is_served(&self) -> bool {
        lock(&self.state).is_served
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

    /// The access that the next tick is for: the first one to a block that is not at the gateway.
    pub fn next_access(&self, gateway: &mut Gateway) -> Access {
        let mut state = lock(&self.state);
        while let Some(step) = state.waiting.front() {
            let mut progress = lock(&step.progress);
            let outcome = match progress.serve(gateway) {
                Ok(false) => return progress.accesses[0].clone(),
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            };
            drop(progress);
            step.end(outcome);
            state.waiting.pop_front();
        }
        Access::Dummy
    }

    /// Ends the access that [`Self::next_access`] returned, which has read this.
    pub fn end_access(&self, read: Option<BlockRead>) {
        let mut state = lock(&self.state);
        let Some(step) = state.waiting.front() else { return };
        let mut progress = lock(&step.progress);
        progress.accesses.pop_front();
        progress.read.extend(read);
        let has_ended = progress.accesses.is_empty();
        drop(progress);
        if has_ended {
            step.end(Ok(()));
            state.waiting.pop_front();
        }
    }

    /// Ends all waiting steps with an error.
    pub fn fail(&self, error: &Error) {
        for step in lock(&self.state).waiting.drain(..) {
            step.end(Err(error.clone()));
        }
    }

    /// Waits until all accesses of a step are made. Returns what was read.
    fn wait(&self, progress: StepProgress) -> Result<Vec<BlockRead>> {
        let step = Arc::new(WaitingStep { progress: Mutex::new(progress), ended: Condvar::new() });
        let mut state = lock(&self.state);
        if !state.is_served {
            return Err(Error::Store("the constant rate has ended"));
        }
        state.waiting.push_back(step.clone());
        drop(state);
        self.arrived.notify_all();
        let is_waiting = |progress: &mut StepProgress| progress.outcome.is_none();
        let ended = step.ended.wait_while(lock(&step.progress), is_waiting);
        let mut progress = ended.unwrap_or_else(PoisonError::into_inner);
        let read = core::mem::take(&mut progress.read);
        progress.outcome.take().expect("the step has ended").map(|()| read)
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
}

impl StepProgress {
    /// Makes the accesses to blocks at the gateway, up to the first one to another block. Returns
    /// whether all are made.
    fn serve(&mut self, gateway: &mut Gateway) -> Result<bool> {
        while let Some(access) = self.accesses.front() {
            // A dummy access takes no tick, as no caller can notice.
            if access.id().is_some() && !gateway.serve_at_hand(access, &mut self.read)? {
                return Ok(false);
            }
            self.accesses.pop_front();
        }
        Ok(true)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
