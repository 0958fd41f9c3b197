//! Steps of several clients at a host that is far away.

use super::*;
use crate::gateway::testing::{BLOCK, HookedHost, gateway_behind, params};
use crate::gateway::{LoadStep, Namespace, StoreStep, Value, WriteStep};
use crate::shared::Wall;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use traceless_core::rng::{Rng as _, SeededRng};

/// The calls of a host that is far away.
#[derive(Default)]
struct Journeys {
    calls: AtomicUsize,
    under_way: AtomicUsize,
    /// Most calls at once.
    most: AtomicUsize,
    /// Whether no call comes back.
    is_stopped: AtomicBool,
    /// Of so many calls one gets no reply, or not all replies; 0 for none.
    fails_every: AtomicUsize,
}

impl Journeys {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Takes the time of a call.
    fn travel(&self) {
        let others = self.under_way.fetch_add(1, Ordering::SeqCst);
        assert!(others < BATCHES_MAX);
        self.most.fetch_max(others + 1, Ordering::SeqCst);
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
            let mut replies = host.query_many(requests);
            let (every, call) = (shared.fails_every.load(Ordering::SeqCst), shared.calls());
            if every > 0 && call % every == 0 {
                replies.truncate(call / every % (replies.len() + 1));
                replies.push(Err(Error::Unreachable("planned".to_owned())));
            }
            replies
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
    assert!(calls < alone * 3 / 5, "{calls} of {alone}");
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
    let (front, _) = far(300, 5);
    store(&front, b"a", &vec![1; 200 * BLOCK]).unwrap();
    store(&front, b"b", b"1").unwrap();
    let wait_for = |waiting: usize| {
        while lock(&front.steps.state).waiting.len() < waiting {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        // While this one has the gateway, a batch collects.
        let first = scope.spawn(|| {
            front.run(|_| {
                wait_for(2);
                Ok(())
            })
        });
        while !front.turns.is_taken() {
            std::thread::yield_now();
        }
        let small = scope.spawn(|| store(&front, b"a", b"1"));
        wait_for(1);
        let large = scope.spawn(|| store(&front, b"b", &vec![2; 250 * BLOCK]));
        for step in [first, small, large] {
            step.join().unwrap().unwrap();
        }
    });
    assert_eq!(front.inspect(Gateway::blocks_used), 251);
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

/// Steps with many accesses fill a batch, so that it needs no second message.
#[test]
fn a_batch_has_room_for_as_many_accesses_as_a_message() {
    let lens = |weights: &[usize]| {
        let queue = StepQueue::default();
        for &weight in weights {
            let step = WriteStep::dummies(weight);
            queue.join(Arc::new(QueuedStep {
                weight: step.weight(),
                progress: Mutex::new(Progress::Waits),
                changed: Condvar::new(),
                step: Mutex::new(step),
            }));
        }
        let mut lens = Vec::new();
        while !lock(&queue.state).waiting.is_empty() {
            lens.push(queue.next_batch().steps.len());
        }
        lens
    };
    assert_eq!(lens(&[1; STEPS_MAX + 1]), [STEPS_MAX, 1]);
    assert_eq!(lens(&[40, 24, 40, 40, 1]), [2, 1, 2]);
    assert_eq!(lens(&[1, 2 * TOGETHER_MAX, 2 * TOGETHER_MAX, 1]), [1, 1, 1, 1], "alone");
}

#[test]
fn blocks_of_a_write_that_fails_are_given_back() {
    let (front, journeys) = far(300, 7);
    journeys.fails_every.store(1, Ordering::SeqCst);
    let written = front.run_step(WriteStep::blocks(vec![vec![1; BLOCK]; 3]), |_| ());
    assert!(matches!(written, Err(Error::Unreachable(_))));
    journeys.fails_every.store(0, Ordering::SeqCst);
    assert_eq!(front.inspect(Gateway::blocks_used), 0);
}

/// Names change while a batch is on its way, and the steps of the batch see that at their end.
#[test]
fn a_change_of_state_waits_for_no_round_trip() {
    let (front, journeys) = far(300, 4);
    store(&front, b"a", &vec![1; 9 * BLOCK]).unwrap();
    let bound = |name: &[u8]| front.inspect(|g| g.find(Namespace::Values, name).is_some());
    let new = |name| StoreStep::new(&[Value { name, bytes: b"2", note: b"" }]).only_if(Some(false));
    std::thread::scope(|scope| {
        let before = journeys.calls();
        journeys.is_stopped.store(true, Ordering::SeqCst);
        let step = scope.spawn(|| front.run_step(new(b"b"), |step| step.is_stored));
        while journeys.calls() == before {
            std::thread::yield_now();
        }
        let note = b"a note";
        front.update_state(|g| g.bind(Namespace::Values, b"b", None, note)).unwrap();
        front.update_state(|g| g.unbind(Namespace::Values, b"a")).unwrap();
        assert!(!bound(b"a") && bound(b"b") && !step.is_finished());
        journeys.is_stopped.store(false, Ordering::SeqCst);
        assert!(!step.join().unwrap().unwrap(), "another client was faster");
    });
    front.inspect(|g| assert_eq!(g.find(Namespace::Values, b"b").unwrap().note(), b"a note"));
    assert_eq!(front.inspect(Gateway::blocks_used), 0, "nothing stays reserved");
}

#[test]
#[should_panic(expected = "a change of state sends nothing")]
fn a_change_of_state_that_sends_a_query_is_a_bug() {
    let (front, _) = far(300, 6);
    drop(front.update_state(|gateway| gateway.put(7, &[1; BLOCK])));
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

fn load(front: &SharedGateway, names: Vec<Vec<u8>>) -> Result<Vec<Option<Vec<u8>>>> {
    let values = front.run_step(LoadStep::new(names), |step| core::mem::take(&mut step.values))?;
    Ok(values.into_iter().map(|value| value.map(Result::unwrap)).collect())
}

/// Clients keep several batches under way, and some replies are lost. Each
/// client finds what it has stored, or after an error what it may have stored.
#[test]
fn several_batches_are_under_way_and_lost_replies_lose_nothing() {
    const CLIENTS: usize = 12;
    const REQUESTS: usize = 60;
    for (seed, failures) in [(6, 0), (7, 25), (8, 8)] {
        let (front, journeys) = far(1500, seed);
        journeys.fails_every.store(failures, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let front = &front;
                scope.spawn(move || use_names(front, client, REQUESTS));
            }
        });
        journeys.fails_every.store(0, Ordering::SeqCst);
        let most = journeys.most.load(Ordering::SeqCst);
        assert!(most > 1 && most <= BATCHES_MAX, "{most}");
        assert!(front.inspect(|gateway| gateway.counts().rounds) > 5);
        let loaded = load(&front, vec![b"shared".to_vec(), b"shared".to_vec()]).unwrap();
        assert!(loaded.iter().all(|value| value.as_ref().unwrap() == b"both"));
    }
}

/// Stores and loads names of a client's own, and one that all clients load and store.
fn use_names(front: &SharedGateway, client: usize, requests: usize) {
    let mut rng = SeededRng::new(client as u64);
    let mut possible: Vec<Vec<Vec<u8>>> = vec![vec![Vec::new()]; 4];
    for nth in 0..4 {
        while store(front, &name(client, nth), b"").is_err() {}
    }
    for version in 0..requests {
        let nth = rng.below(4) as usize;
        let own = name(client, nth);
        if rng.below(2) == 0 {
            let bytes = vec![version as u8; rng.below(5 * BLOCK as u64) as usize];
            let _ = store(front, b"shared", b"both");
            match store(front, &own, &bytes) {
                Ok(()) => possible[nth] = vec![bytes],
                Err(_) => possible[nth].push(bytes),
            }
        } else if let Ok(mut loaded) = load(front, vec![own, b"shared".to_vec()]) {
            assert!(loaded.pop().unwrap().is_none_or(|bytes| bytes == b"both"));
            let found = loaded.pop().unwrap().unwrap();
            assert!(possible[nth].contains(&found), "{client} {nth}: {found:?}");
            possible[nth] = vec![found];
        }
    }
    for (nth, possible) in possible.iter().enumerate() {
        let found = loop {
            if let Ok(mut loaded) = load(front, vec![name(client, nth)]) {
                break loaded.pop().unwrap().unwrap();
            }
        };
        assert!(possible.contains(&found));
    }
}
