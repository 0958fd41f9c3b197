//! Steps of several clients, carried out together.
//!
//! A client that finds no leader leads: it takes all waiting steps, plans them while it holds the
//! gateway, lets the gateway go while their queries are on the way, and takes it again for the
//! replies. Steps that arrive meanwhile wait for the next batch, which one of their clients leads.
//! So clients share a round trip.

use super::SharedGateway;
use crate::error::{Error, Result};
use crate::gateway::BatchStep;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use traceless_core::clock::{Clock as _, Monotonic};

/// Most steps of a batch.
const STEPS_MAX: usize = 64;
/// A leader waits for the clients of the last batch for this share of its time, as they are about
/// to send their next steps.
const WAIT_SHARE: u32 = 8;
/// The longest wait for them.
const WAIT_MAX: Duration = Duration::from_micros(500);

/// The steps that wait.
pub struct StepQueue {
    state: Mutex<QueueState>,
    /// Notified when a step arrives.
    arrived: Condvar,
    clock: Monotonic,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Arc<QueuedStep<dyn BatchStep>>>,
    /// Whether a client leads.
    is_led: bool,
    /// Steps of the last batch, and how long it took.
    last: (usize, Duration),
}

/// A step, and how far it is.
struct QueuedStep<S: ?Sized> {
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
        Self { state: Mutex::default(), arrived: Condvar::new(), clock: Monotonic::start() }
    }
}

impl SharedGateway {
    /// Carries out a step, together with the steps of other clients, and returns what `output`
    /// takes from it. At a constant rate each step is carried out alone.
    pub(crate) fn run_step<S: BatchStep + 'static, T>(
        &self,
        mut step: S,
        output: impl FnOnce(&mut S) -> T,
    ) -> Result<T> {
        if self.has_constant_rate() {
            self.run(|gateway| gateway.run_step(&mut step))?;
            return Ok(output(&mut step));
        }
        let _request = self.metrics.waiting_request();
        let queued = Arc::new(QueuedStep {
            progress: Mutex::new(Progress::Waits),
            changed: Condvar::new(),
            step: Mutex::new(step),
        });
        if self.steps.join(queued.clone()) || queued.wait() {
            self.lead(&queued);
        }
        let outcome = queued.outcome();
        if matches!(outcome, Err(Error::Full { .. })) {
            // Steps that were planned before may have given room back.
            let mut step = lock(&queued.step);
            self.run(|gateway| gateway.run_step(&mut *step))?;
            return Ok(output(&mut step));
        }
        match &outcome {
            Ok(()) => self.metrics.succeeded(),
            Err(error) => self.metrics.failed(error),
        }
        outcome.map(|()| output(&mut lock(&queued.step)))
    }

    /// Carries out batches until the own step has ended, and hands the lead over.
    fn lead<S: BatchStep>(&self, own: &QueuedStep<S>) {
        let _guard = LeadGuard(&self.steps);
        while !own.has_ended() {
            let batch = Batch(self.steps.next_batch());
            let began = self.steps.clock.now();
            let outcomes = self.carry_out(&batch.0);
            let took = Duration::from_nanos(self.steps.clock.now() - began);
            lock(&self.steps.state).last = (batch.0.len(), took);
            for (queued, outcome) in batch.0.iter().zip(outcomes) {
                queued.set(Progress::Ended(outcome));
            }
        }
    }

    fn carry_out(&self, batch: &[Arc<QueuedStep<dyn BatchStep>>]) -> Vec<Result> {
        let mut guards: Vec<_> = batch.iter().map(|queued| lock(&queued.step)).collect();
        let mut steps: Vec<&mut dyn BatchStep> =
            guards.iter_mut().map(|guard| &mut **guard as &mut dyn BatchStep).collect();
        let turn = self.turns.wait();
        let mut gateway = self.lock();
        if let Err(error) = gateway.check_host() {
            return batch.iter().map(|_| Err(error.clone())).collect();
        }
        let under_way = gateway.begin_steps(&mut steps);
        let replies = if under_way.requests.is_empty() {
            Vec::new()
        } else {
            // The state can be looked at meanwhile. The turn keeps other threads from sending.
            drop(gateway);
            let replies = self.host.query_many(&under_way.requests);
            gateway = self.lock();
            replies
        };
        let mut outcomes = gateway.end_steps(&mut steps, under_way, replies);
        self.metrics.observe(&gateway);
        drop(turn);
        // A constant rate may have begun since the steps were queued.
        if let Err(error) = self.wait_for_ack(gateway) {
            outcomes.fill_with(|| Err(error.clone()));
        }
        outcomes
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
struct Batch(Vec<Arc<QueuedStep<dyn BatchStep>>>);

impl Drop for Batch {
    fn drop(&mut self) {
        for queued in self.0.iter().filter(|queued| !queued.has_ended()) {
            queued.set(Progress::Ended(Err(Error::Store("the thread of another client failed"))));
        }
    }
}

impl StepQueue {
    /// Adds a step. Returns whether its client leads.
    fn join(&self, step: Arc<QueuedStep<dyn BatchStep>>) -> bool {
        let mut state = lock(&self.state);
        state.waiting.push_back(step);
        self.arrived.notify_all();
        !core::mem::replace(&mut state.is_led, true)
    }

    /// The steps of the next batch, oldest first.
    fn next_batch(&self) -> Vec<Arc<QueuedStep<dyn BatchStep>>> {
        let state = lock(&self.state);
        let (expected, took) = state.last;
        let expected = expected.min(STEPS_MAX);
        let wait = (took / WAIT_SHARE).min(WAIT_MAX);
        let (mut state, _) = self
            .arrived
            .wait_timeout_while(state, wait, |state| state.waiting.len() < expected)
            .unwrap_or_else(PoisonError::into_inner);
        let count = state.waiting.len().min(STEPS_MAX);
        state.waiting.drain(..count).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::{BLOCK, HookedHost, gateway_behind, params};
    use crate::gateway::{Gateway, LoadStep, StoreStep, Value};
    use crate::shared::Wall;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// The calls of a host that is far away.
    #[derive(Default)]
    struct Journeys {
        calls: AtomicUsize,
        under_way: AtomicUsize,
        /// Whether no call comes back.
        is_stopped: AtomicBool,
    }

    impl Journeys {
        fn calls(&self) -> usize {
            self.calls.load(Ordering::SeqCst)
        }

        /// Takes the time of a call.
        fn travel(&self) {
            assert_eq!(self.under_way.fetch_add(1, Ordering::SeqCst), 0, "one batch at a time");
            self.calls.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
            while self.is_stopped.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            self.under_way.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn far(blocks: u64, seed: u64) -> (SharedGateway, Arc<Journeys>) {
        let journeys = Arc::new(Journeys::default());
        let shared = journeys.clone();
        let gateway = gateway_behind(params(blocks), seed, |host| {
            HookedHost::new(host).at_queries(move |host, requests| {
                shared.travel();
                host.query_many(requests)
            })
        });
        (SharedGateway::new(gateway, Arc::default(), Arc::new(Wall)), journeys)
    }

    fn name(client: usize, nth: usize) -> Vec<u8> {
        format!("{client} {nth}").into_bytes()
    }

    fn store(front: &SharedGateway, name: &[u8], bytes: &[u8]) -> Result {
        front.run_step(StoreStep::new(&[Value { name, bytes, note: b"" }]), |_| ())
    }

    #[test]
    fn clients_share_round_trips_and_each_gets_its_own_answer() {
        const CLIENTS: usize = 8;
        const REQUESTS: usize = 25;
        let (front, journeys) = far(2000, 1);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let front = &front;
                scope.spawn(move || {
                    for nth in 0..REQUESTS {
                        let (own, bytes) = (name(client, nth), vec![client as u8; nth]);
                        store(front, &own, &bytes).unwrap();
                        let mut loaded = front.load_many(vec![own, b"none".to_vec()]).unwrap();
                        assert!(loaded.pop().unwrap().is_none());
                        assert_eq!(loaded.pop().unwrap().unwrap().unwrap(), bytes);
                    }
                });
            }
            // Its requests have the gateway for themselves, and come to their turn.
            for nth in 0..20 {
                front.run(|gateway| gateway.put(1999, &[nth; BLOCK])).unwrap();
                assert_eq!(front.run(|gateway| gateway.get(1999)).unwrap(), [nth; BLOCK]);
            }
        });
        let alone = 2 * CLIENTS * REQUESTS;
        let calls = journeys.calls();
        assert!(calls < alone / 3, "{calls} of {alone}");
        let all = (0..CLIENTS).flat_map(|client| (0..REQUESTS).map(move |nth| (client, nth)));
        for (client, nth) in all {
            let loaded = front.load_many(vec![name(client, nth)]).unwrap().pop().unwrap();
            assert_eq!(loaded.unwrap().unwrap(), vec![client as u8; nth]);
        }
    }

    #[test]
    fn a_step_that_fails_harms_no_other() {
        let (front, _) = far(300, 2);
        std::thread::scope(|scope| {
            for client in 0..6 {
                let front = &front;
                scope.spawn(move || {
                    for nth in 0..15 {
                        let own = name(client, nth);
                        if client % 2 == 0 {
                            let full = store(front, &own, &vec![1; 400 * BLOCK]);
                            assert!(matches!(full, Err(Error::Full { .. })));
                        } else {
                            store(front, &own, &own).unwrap();
                            let loaded = front.load_many(vec![own.clone()]).unwrap();
                            assert_eq!(*loaded[0].as_ref().unwrap().as_ref().unwrap(), own);
                        }
                    }
                });
            }
        });
        assert_eq!(front.inspect(Gateway::blocks_used), 45, "nothing stays reserved");
    }

    /// A step for which there is no room until one of its batch gives room back is tried again.
    #[test]
    fn a_step_has_the_room_that_one_of_its_batch_gives_back() {
        let (front, journeys) = far(300, 5);
        store(&front, b"a", &vec![1; 200 * BLOCK]).unwrap();
        store(&front, b"b", b"1").unwrap();
        // Nine blocks and the dummy query of their size class.
        store(&front, b"c", &vec![1; 9 * BLOCK]).unwrap();
        let wait_for = |waiting: usize| {
            while lock(&front.steps.state).waiting.len() < waiting {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let before = journeys.calls();
            journeys.is_stopped.store(true, Ordering::SeqCst);
            // While this one is under way, the next batch collects.
            let first = scope.spawn(|| front.load_many(vec![b"c".to_vec()]).map(drop));
            while journeys.calls() == before {
                std::thread::yield_now();
            }
            let small = scope.spawn(|| store(&front, b"a", b"1"));
            wait_for(1);
            let large = scope.spawn(|| store(&front, b"b", &vec![2; 250 * BLOCK]));
            wait_for(2);
            journeys.is_stopped.store(false, Ordering::SeqCst);
            for step in [first, small, large] {
                step.join().unwrap().unwrap();
            }
        });
        assert_eq!(front.inspect(Gateway::blocks_used), 260);
    }

    /// While a batch is on its way, the state can be looked at.
    #[test]
    fn a_look_at_the_state_waits_for_no_round_trip() {
        let (front, journeys) = far(300, 3);
        // Nine blocks and the dummy query of their size class, which is sent in any case.
        store(&front, b"a", &vec![1; 9 * BLOCK]).unwrap();
        std::thread::scope(|scope| {
            let before = journeys.calls();
            journeys.is_stopped.store(true, Ordering::SeqCst);
            let step = scope.spawn(|| front.run_step(LoadStep::new(vec![b"a".to_vec()]), |_| ()));
            while journeys.calls() == before {
                std::thread::yield_now();
            }
            assert_eq!(front.inspect(Gateway::blocks_used), 9);
            assert!(!step.is_finished(), "it waits in the host");
            journeys.is_stopped.store(false, Ordering::SeqCst);
            step.join().unwrap().unwrap();
        });
    }

    /// A step that panics.
    struct PanickingStep;

    impl BatchStep for PanickingStep {
        fn plan(&mut self, _: &mut Gateway) -> Result<Vec<crate::gateway::Access>> {
            panic!("planned")
        }
        fn finish(&mut self, _: &mut Gateway, _: Result<Vec<crate::gateway::BlockRead>>) -> Result {
            Ok(())
        }
    }

    #[test]
    fn a_client_that_fails_stops_no_other() {
        let (front, _) = far(300, 4);
        store(&front, b"a", b"1").unwrap();
        std::thread::scope(|scope| {
            for nth in 0..6 {
                let front = &front;
                scope.spawn(move || {
                    // A step panics in the thread that leads, which may be that of another client.
                    let call = std::panic::AssertUnwindSafe(|| match nth % 3 {
                        0 => drop(front.run_step(PanickingStep, |_| ())),
                        _ => drop(front.load_many(vec![b"a".to_vec()])),
                    });
                    drop(std::panic::catch_unwind(call));
                });
            }
        });
        let loaded = front.load_many(vec![b"a".to_vec()]).unwrap().pop().unwrap();
        assert_eq!(loaded.unwrap().unwrap(), b"1");
    }
}
