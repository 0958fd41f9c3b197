//! Steps of several clients, carried out together.
//!
//! A client that finds no leader leads: it takes all waiting steps, plans them while it holds the
//! gateway, hands the lead over, and lets the gateway go while the queries are under way. So
//! clients share a round trip. Meanwhile the steps of other clients are the next batches: a few, so
//! that messages stay long. Batches end in the order in which they were planned.

#[cfg(test)]
mod tests;

use super::SharedGateway;
use super::turns::Turn;
use crate::error::{Error, Result};
use crate::gateway::{BatchStep, Gateway, TOGETHER_MAX};
use crate::wire::message::QUERY_LINES;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Most steps of a batch.
const STEPS_MAX: usize = 64;
/// Most batches under way: each has a connection of its own to a remote host.
const BATCHES_MAX: usize = QUERY_LINES;

/// The steps that wait.
pub struct StepQueue {
    state: Mutex<QueueState>,
    /// Notified when a step arrives, or a batch ends.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Arc<QueuedStep<dyn BatchStep>>>,
    /// Whether a client leads.
    is_led: bool,
    /// Batches under way, and their steps.
    batches: usize,
    steps_under_way: usize,
}

impl QueueState {
    /// Whether the waiting steps are to be the next batch now, while batches are under way.
    fn is_batch_due(&self) -> bool {
        let all = self.waiting.len() + self.steps_under_way;
        self.batches < BATCHES_MAX && self.waiting.len() * BATCHES_MAX >= all
    }
}

/// A step, and how far it is.
struct QueuedStep<S: ?Sized> {
    /// About how many accesses it makes.
    weight: usize,
    progress: Mutex<Progress>,
    changed: Condvar,
    step: Mutex<S>,
}

enum Progress {
    Waits,
    /// Its client is to lead the next batch.
    Leads,
    Ended(Result),
}

impl Default for StepQueue {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new() }
    }
}

impl SharedGateway {
    /// Carries out a step, together with the steps of other clients, and returns what `output`
    /// takes from it. At a constant rate each access has its own tick.
    pub(crate) fn run_step<S: BatchStep + 'static, T>(
        &self,
        step: S,
        output: impl FnOnce(&mut S) -> T,
    ) -> Result<T> {
        if self.has_constant_rate() {
            return self.run_in_ticks(step, output);
        }
        let _request = self.metrics.waiting_request();
        let queued = Arc::new(QueuedStep {
            weight: step.weight(),
            progress: Mutex::new(Progress::Waits),
            changed: Condvar::new(),
            step: Mutex::new(step),
        });
        if self.steps.join(queued.clone()) || queued.wait() {
            self.lead();
        }
        let outcome = queued.outcome();
        if matches!(outcome, Err(Error::Full { .. })) {
            // Steps that were planned before may have given room back.
            let mut step = lock(&queued.step);
            self.run(|gateway| gateway.run_step(&mut *step))?;
            return Ok(output(&mut step));
        }
        self.note(&outcome);
        outcome.map(|()| output(&mut lock(&queued.step)))
    }

    /// Carries out the next batch, of which the own step is the first.
    fn lead(&self) {
        let lead = LeadGuard(&self.steps);
        let turn = self.turns.wait();
        self.steps.wait_for_batch();
        let gateway =
            self.lock_when(|gateway| gateway.has_none_under_way() || gateway.may_plan_beside());
        let batch = self.steps.next_batch();
        self.carry_out(&batch, lead, turn, gateway);
    }

    fn carry_out<'a>(
        &'a self,
        batch: &Batch<'_>,
        lead: LeadGuard<'_>,
        turn: Turn<'_>,
        gateway: MutexGuard<'a, Gateway>,
    ) {
        // It locks the gateway when it is dropped, so it is dropped after the gateway's guard.
        let mut batch_guard = None;
        let mut gateway = gateway;
        let mut guards: Vec<_> = batch.steps.iter().map(|queued| lock(&queued.step)).collect();
        let mut steps: Vec<&mut dyn BatchStep> =
            guards.iter_mut().map(|guard| &mut **guard as &mut dyn BatchStep).collect();
        if let Err(error) = gateway.check_host() {
            return batch.end(vec![Err(error); steps.len()]);
        }
        let under_way = gateway.begin_steps(&mut steps);
        // While a batch has to be alone at its end, no other one is planned.
        let turn = under_way.has_rest().then_some(turn);
        let mut replies = Vec::new();
        if let Some(number) = under_way.batch() {
            batch_guard = Some(UnderWayGuard { front: self, number });
            drop((gateway, lead));
            if !under_way.requests.is_empty() {
                replies = self.hosts.query_many(&under_way.requests);
            }
            gateway = self.lock_when(|gateway| gateway.may_end(number));
        }
        let mut outcomes = gateway.end_steps(&mut steps, under_way, replies);
        if let Some(guard) = batch_guard.take() {
            guard.end(&mut gateway);
        }
        self.metrics.observe(&gateway);
        drop(turn);
        // A constant rate may have begun since the steps were queued.
        if let Err(error) = self.wait_for_ack(gateway) {
            outcomes.fill_with(|| Err(error.clone()));
        }
        drop(steps);
        drop(guards);
        batch.end(outcomes);
    }
}

/// A batch under way. If its thread panics, its queries are sent again with the next request.
struct UnderWayGuard<'a> {
    front: &'a SharedGateway,
    number: u64,
}

impl UnderWayGuard<'_> {
    /// Ends the batch.
    fn end(self, gateway: &mut Gateway) {
        gateway.end_batch(self.number);
        self.front.batch_ended.notify_all();
        core::mem::forget(self);
    }
}

impl Drop for UnderWayGuard<'_> {
    fn drop(&mut self) {
        self.front.lock().end_batch(self.number);
        self.front.batch_ended.notify_all();
    }
}

/// The lead, which is handed over at its end, also if the leader panics.
struct LeadGuard<'a>(&'a StepQueue);

impl Drop for LeadGuard<'_> {
    fn drop(&mut self) {
        self.0.hand_over();
    }
}

/// The steps of a batch. If the leader panics, their clients get an error.
struct Batch<'a> {
    queue: &'a StepQueue,
    steps: Vec<Arc<QueuedStep<dyn BatchStep>>>,
}

impl Batch<'_> {
    /// Ends the steps.
    fn end(&self, outcomes: Vec<Result>) {
        for (queued, outcome) in self.steps.iter().zip(outcomes) {
            queued.set(Progress::Ended(outcome));
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for queued in self.steps.iter().filter(|queued| !queued.has_ended()) {
            queued.set(Progress::Ended(Err(Error::Store("the thread of another client failed"))));
        }
        let mut state = lock(&self.queue.state);
        state.batches -= 1;
        state.steps_under_way -= self.steps.len();
        self.queue.changed.notify_all();
    }
}

impl StepQueue {
    /// Adds a step. Returns whether its client leads.
    fn join(&self, step: Arc<QueuedStep<dyn BatchStep>>) -> bool {
        let mut state = lock(&self.state);
        state.waiting.push_back(step);
        self.changed.notify_all();
        !core::mem::replace(&mut state.is_led, true)
    }

    /// Waits until the next batch is due: none is under way, or enough steps wait.
    fn wait_for_batch(&self) {
        let is_early = |state: &mut QueueState| state.batches > 0 && !state.is_batch_due();
        drop(self.changed.wait_while(lock(&self.state), is_early));
    }

    /// The steps of the next batch, oldest first.
    fn next_batch(&self) -> Batch<'_> {
        let mut state = lock(&self.state);
        let mut room = TOGETHER_MAX;
        let fits = |step: &&Arc<QueuedStep<dyn BatchStep>>| {
            let fits = step.weight <= room || room == TOGETHER_MAX;
            room = room.saturating_sub(step.weight);
            fits
        };
        let count = state.waiting.iter().take(STEPS_MAX).take_while(fits).count();
        let steps: Vec<_> = state.waiting.drain(..count).collect();
        state.batches += 1;
        state.steps_under_way += count;
        Batch { queue: self, steps }
    }

    /// Lets the client of the oldest waiting step lead, if there is one.
    fn hand_over(&self) {
        let mut state = lock(&self.state);
        match state.waiting.front() {
            Some(next) => next.set(Progress::Leads),
            None => state.is_led = false,
        }
    }
}

impl<S: ?Sized> QueuedStep<S> {
    fn set(&self, progress: Progress) {
        *lock(&self.progress) = progress;
        self.changed.notify_all();
    }

    /// Waits until the step has ended or its client is to lead. Returns whether it is to lead.
    fn wait(&self) -> bool {
        let progress = lock(&self.progress);
        let progress = self
            .changed
            .wait_while(progress, |progress| matches!(progress, Progress::Waits))
            .unwrap_or_else(PoisonError::into_inner);
        matches!(*progress, Progress::Leads)
    }

    fn has_ended(&self) -> bool {
        matches!(*lock(&self.progress), Progress::Ended(_))
    }

    fn outcome(&self) -> Result {
        match &*lock(&self.progress) {
            Progress::Ended(outcome) => outcome.clone(),
            Progress::Waits | Progress::Leads => Err(Error::Store("a step was not carried out")),
        }
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
