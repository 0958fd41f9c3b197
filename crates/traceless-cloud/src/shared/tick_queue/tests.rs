//! Steps of several clients beside the thread of the ticks.

use super::*;
use crate::gateway::testing::{BLOCK, HookedHost, gateway_behind, params};
use crate::gateway::{LoadStep, Namespace, RemoveStep, StoreStep, Value};
use crate::host::{DamagedSlot, Host, InProcess, QueryRequest, Stage};
use crate::kernel::Choice;
use crate::local_deployment::LocalDeployment;
use crate::params::Params;
use crate::shared::{RateThread, Wall};
use crate::store::Durability;
use crate::store::{MemStore, NodeVersion};
use crate::tee::Policy;
use std::sync::atomic::AtomicUsize;
use std::sync::{OnceLock, Weak};
use std::thread::ThreadId;
use traceless_core::clock::{Clock as _, Monotonic};
use traceless_core::rng::{Rng as _, SeededRng};

fn shared(gateway: Gateway) -> Arc<SharedGateway> {
    Arc::new(SharedGateway::new(gateway, Arc::default(), Arc::new(Wall)))
}

/// A gateway with a journal in a folder.
fn durable(folder: &std::path::Path, params: Params) -> Arc<SharedGateway> {
    let local = LocalDeployment::new(folder, None, None, Policy::Simulated);
    let mut gateway = local.open(params, Choice::Benes, Durability::Process).unwrap().gateway;
    gateway.keep_copies(1 << 20);
    shared(gateway)
}

fn store(front: &SharedGateway, name: &[u8], bytes: &[u8]) -> Result {
    front.run_step(StoreStep::new(&[Value { name, bytes, note: b"" }]), |_| ())
}

/// A gateway with a value of ones, the blocks of which are not at hand.
fn with_value_away(name: &[u8], blocks: usize) -> Arc<SharedGateway> {
    let front = shared(gateway_behind(params(900), 9, |host| Arc::new(host)));
    store(&front, name, &vec![1; blocks * BLOCK]).unwrap();
    let round = params(900).round_blocks;
    front.run(|gateway| (0..2 * round).try_for_each(|_| gateway.dummy())).unwrap();
    front
}

fn load(front: &SharedGateway, name: &[u8]) -> Result<Option<Vec<u8>>> {
    front.load_many(vec![name.to_vec()])?.pop().flatten().transpose()
}

#[test]
fn copies_are_read_while_other_clients_wait_for_ticks() {
    let folder = tempfile::tempdir().unwrap();
    let front = durable(folder.path(), params(900));
    let value = vec![5; 3 * BLOCK];
    store(&front, b"copied", &value).unwrap();
    store(&front, b"away", b"far away").unwrap();
    // The blocks leave the ring, and copies of one value only stay.
    let round = params(900).round_blocks;
    front.run(|gateway| (0..2 * round).try_for_each(|_| gateway.dummy())).unwrap();
    front.lock().keep_copies(0);
    front.lock().keep_copies(1 << 20);
    assert_eq!(load(&front, b"copied").unwrap().unwrap(), value);
    front.run(|gateway| (0..2 * round).try_for_each(|_| gateway.dummy())).unwrap();

    let ticks = || front.inspect(|gateway| gateway.counts().queries);
    let (clock, period) = (Monotonic::start(), 1_000_000_000);
    let _rate_thread = RateThread::start(&front, 1, 1).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| load(&front, b"away").unwrap().unwrap());
        let before = ticks();
        for _ in 0..200 {
            assert_eq!(load(&front, b"copied").unwrap().unwrap(), value);
        }
        // A slow machine may need a tick or two, where each read would need three.
        let passed = clock.now() / period + 1;
        assert!(passed < 100 && ticks() - before <= passed, "{passed}");
        assert_eq!(waiting.join().unwrap(), b"far away");
    });
    let counts = front.inspect(Gateway::counts);
    assert!(counts.hits >= 600 && counts.ticks_used >= 1, "{counts:?}");
}

#[test]
fn a_value_is_not_answered_before_its_change_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let front = durable(folder.path(), params(300));
    store(&front, b"old", b"1").unwrap();
    store(&front, b"new", b"1").unwrap();
    let timer = Arc::new(traceless_core::clock::SimulatedClock::default());
    let mut gateway = front.lock();
    gateway.start_constant_rate(10, timer).unwrap();
    gateway.unbind(Namespace::Values, b"new").unwrap();
    let waits = |gateway: &Gateway, names: &[&[u8]]| {
        let names = names.iter().map(|name| name.to_vec()).collect();
        LoadStep::new(names).waits_for_records(gateway)
    };
    assert!(waits(&gateway, &[b"old", b"new"]) && !waits(&gateway, &[b"old", b"none"]));
    gateway.fill_tick().unwrap();
    assert!(!waits(&gateway, &[b"old", b"new"]));
    gateway.note(Namespace::Values, b"old", b"note").unwrap();
    assert!(waits(&gateway, &[b"old"]));
}

#[test]
fn clients_at_a_constant_rate_get_their_own_answers() {
    for together in [1, 16] {
        serve_clients_in_ticks(together);
    }
}

fn serve_clients_in_ticks(together: usize) {
    const CLIENTS: u64 = 6;
    const REQUESTS: u64 = 150;
    let folder = tempfile::tempdir().unwrap();
    let front = durable(folder.path(), params(1500));
    let rate_thread = RateThread::start(&front, 3000, together).unwrap();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let front = &front;
            scope.spawn(move || {
                let (mut rng, mut model) = (SeededRng::new(client), vec![None; 20]);
                for nth in 0..REQUESTS {
                    let at = rng.below(20) as usize;
                    let name = format!("{client} {at}").into_bytes();
                    match rng.below(4) {
                        0 => {
                            let bytes = vec![nth as u8; rng.below(600) as usize];
                            store(front, &name, &bytes).unwrap();
                            model[at] = Some(bytes);
                        }
                        1 => {
                            let step = RemoveStep::new(vec![name], Box::new(|_, _, _| ()));
                            let removed = front.run_step(step, |step| step.removed).unwrap();
                            assert_eq!(removed, usize::from(model[at].take().is_some()));
                        }
                        2 => assert_eq!(load(front, &name).unwrap(), model[at]),
                        _ => {
                            let twice = front.load_many(vec![name.clone(), name]).unwrap();
                            let both = twice.into_iter().map(|value| value.transpose().unwrap());
                            assert_eq!(both.collect::<Vec<_>>(), vec![model[at].clone(); 2]);
                        }
                    }
                }
            });
        }
        // Its operations have the gateway for themselves, and use ticks of their own.
        for nth in 0..20 {
            front.run(|gateway| gateway.put(1499, &[nth; BLOCK])).unwrap();
            assert_eq!(front.run(|gateway| gateway.get(1499)).unwrap(), [nth; BLOCK]);
        }
    });
    drop(rate_thread);
    let counts = front.inspect(Gateway::counts);
    assert_eq!(counts.ticks_used + counts.ticks_unused, counts.queries);
    assert!(counts.hits > 0 && counts.rounds > 0, "{counts:?}");
}

#[test]
fn a_failed_tick_ends_all_waiting_steps_and_later_ones_succeed() {
    let failures = Arc::new(AtomicUsize::new(0));
    let planned = failures.clone();
    let gateway = gateway_behind(params(900), 7, |host| {
        HookedHost::new(host).at_queries(move |host, requests| {
            let fails =
                planned.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if fails.is_ok() {
                return vec![Err(Error::Unreachable("planned".to_owned()))];
            }
            host.query_many(requests)
        })
    });
    let front = shared(gateway);
    let _rate_thread = RateThread::start(&front, 500, 1).unwrap();
    for nth in 0..8 {
        store(&front, &[nth], &[nth; 4 * BLOCK]).unwrap();
    }
    failures.store(3, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for nth in 0..8 {
            let front = &front;
            scope.spawn(move || {
                let new = [nth + 100; 4 * BLOCK];
                while store(front, &[nth], &new).is_err() {}
                assert_eq!(load(front, &[nth]).unwrap().unwrap(), new);
            });
        }
    });
    assert_eq!(failures.load(Ordering::SeqCst), 0);
    assert_eq!(front.inspect(Gateway::blocks_used), 8 * 4, "nothing stays reserved");
}

#[test]
fn steps_that_wait_when_the_rate_ends_get_an_error() {
    let front = shared(gateway_behind(params(900), 8, |host| Arc::new(host)));
    let rate_thread = RateThread::start(&front, 1, 1).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store(&front, b"a", &[1; 40 * BLOCK]));
        while !front.ticks.is_any_waiting() {
            std::thread::yield_now();
        }
        drop(rate_thread);
        assert!(matches!(waiting.join().unwrap(), Err(Error::Store(_))));
    });
    assert_eq!(front.inspect(Gateway::blocks_used), 0);
    assert!(matches!(load(&front, b"a"), Err(Error::Store(_))), "no query goes without a tick");
}

/// The second block of a value is at the gateway, so another client's write of it need not wait.
#[test]
fn blocks_of_a_value_that_is_read_are_not_reused() {
    let front = with_value_away(b"read", 2);
    front.run(|gateway| gateway.get(1)).unwrap();
    let _rate_thread = RateThread::start(&front, 1, 1).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| load(&front, b"read").unwrap());
        while !front.ticks.is_any_waiting() {
            std::thread::yield_now();
        }
        front.update_state(|gateway| gateway.unbind(Namespace::Values, b"read")).unwrap();
        let other = scope.spawn(|| store(&front, b"other", &[2; BLOCK]));
        assert_eq!(waiting.join().unwrap().unwrap(), [1; 2 * BLOCK]);
        other.join().unwrap().unwrap();
    });
}

#[test]
fn a_long_value_takes_as_many_ticks_as_they_have_queries() {
    let front = with_value_away(b"long", 64);
    let wrong = |together| RateThread::start(&front, 160, together).err();
    for together in [0, 3, 80] {
        assert!(matches!(wrong(together), Some(Error::Parameters(_))), "{together}");
    }
    let rate_thread = RateThread::start(&front, 160, 16).unwrap();
    let before = front.inspect(Gateway::counts).ticks_used;
    assert_eq!(load(&front, b"long").unwrap().unwrap(), [1; 64 * BLOCK]);
    drop(rate_thread);
    let counts = front.inspect(Gateway::counts);
    assert_eq!(counts.ticks_used - before, 64, "no block is requested twice");
    // With one block a tick, 64 ticks would have 15 dummies each. A slow machine has idle ticks.
    assert!(counts.ticks_unused < 64 * 15 / 2, "{counts:?}");
}

/// Both values fit only one after the other: each one's old blocks are the other one's room.
#[test]
fn a_step_has_the_room_that_a_waiting_one_gives_back() {
    let front = shared(gateway_behind(params(300), 11, |host| Arc::new(host)));
    for name in [&b"a"[..], b"b"] {
        store(&front, name, &[1; 120 * BLOCK]).unwrap();
    }
    let _rate_thread = RateThread::start(&front, 2000, 16).unwrap();
    std::thread::scope(|scope| {
        for name in [&b"a"[..], b"b"] {
            let front = &front;
            scope.spawn(move || store(front, name, &[2; 60 * BLOCK]).unwrap());
        }
    });
    assert!(matches!(store(&front, b"c", &vec![1; 400 * BLOCK]), Err(Error::Full { .. })));
}

/// What a host observes of a gateway, and whether it is in doubt.
#[derive(Default)]
struct HostWatch {
    front: OnceLock<Weak<SharedGateway>>,
    /// Of each query: whether clients could have the gateway.
    free: Mutex<Vec<bool>>,
    /// Of each commit: how many queries were before it.
    commits: Mutex<Vec<usize>>,
    /// Whether only a message would show that the host still serves this gateway.
    in_doubt: AtomicBool,
    /// The threads that have sent a message to find that out.
    checked_by: Mutex<Vec<ThreadId>>,
}

struct WatchedHost(InProcess<MemStore>, Arc<HostWatch>);

impl WatchedHost {
    /// A gateway, and what its host observes.
    fn start() -> (Arc<SharedGateway>, Arc<HostWatch>) {
        let watch = Arc::new(HostWatch::default());
        let wrap = |host| Arc::new(Self(host, watch.clone())) as Arc<dyn Host>;
        let front = shared(gateway_behind(params(900), 12, wrap));
        assert!(watch.front.set(Arc::downgrade(&front)).is_ok());
        (front, watch)
    }
}

impl Host for WatchedHost {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        let front = self.1.front.get().and_then(Weak::upgrade);
        let is_free = front.is_some_and(|front| front.gateway.try_lock().is_ok());
        lock(&self.1.free).push(is_free);
        self.0.query(request)
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        self.0.stage(stage)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        let queries = lock(&self.1.free).len();
        lock(&self.1.commits).push(queries);
        self.0.commit(sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        self.0.sequence()
    }

    fn check(&self) -> Result {
        lock(&self.1.checked_by).push(std::thread::current().id());
        self.1.in_doubt.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn check_quietly(&self) -> Result<bool> {
        Ok(!self.1.in_doubt.load(Ordering::SeqCst))
    }
}

/// What clients do with the gateway must not delay messages that follow a reply.
#[test]
fn the_gateway_is_kept_when_messages_of_a_round_follow() {
    let (front, watched) = WatchedHost::start();
    let rate_thread = RateThread::start(&front, 4000, 4).unwrap();
    while front.inspect(Gateway::counts).rounds < 6 {
        std::thread::yield_now();
    }
    drop(rate_thread);
    let (free, commits) = (lock(&watched.free), lock(&watched.commits));
    // The first commits may be of an operation that has the gateway for itself.
    for &before in commits.iter().skip(1) {
        assert!(free[before - 4..before].iter().all(|free| !free), "{before}: {free:?}");
    }
    // Of twenty ticks one sends a round, and one commits it; this test has the gateway at times.
    let kept = free.iter().filter(|free| !**free).count();
    assert!(kept < free.len() / 2, "{kept} of {}", free.len());
}

/// A host must not learn from its own silence when clients send requests.
#[test]
fn nothing_is_sent_for_a_client_between_ticks() {
    let (front, watched) = WatchedHost::start();
    store(&front, b"a", b"value").unwrap();
    let rate_thread = RateThread::start(&front, 100, 1).unwrap();
    lock(&watched.checked_by).clear();
    let doubted = |work: &dyn Fn()| {
        watched.in_doubt.store(true, Ordering::SeqCst);
        work();
        assert!(!watched.in_doubt.load(Ordering::SeqCst), "it was answered in doubt");
    };
    for _ in 0..3 {
        doubted(&|| assert_eq!(load(&front, b"a").unwrap().unwrap(), b"value"));
        doubted(&|| assert_eq!(front.read_state(Gateway::blocks_used).unwrap(), 1));
        doubted(&|| {
            front.update_state(|gateway| gateway.note(Namespace::Values, b"a", b"")).unwrap();
        });
        doubted(&|| drop(front.run(|gateway| gateway.get(1)).unwrap()));
    }
    drop(rate_thread);
    let own = std::thread::current().id();
    let checked_by = lock(&watched.checked_by);
    assert!(!checked_by.is_empty() && checked_by.iter().all(|thread| *thread != own));
}
