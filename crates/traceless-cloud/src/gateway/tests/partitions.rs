//! A tree that is divided among hosts.

use super::failing_host::keys;
use super::*;
use crate::channel::Nonce;
use crate::gateway::rounds::Wait;
use crate::observed_host::Observation;
use traceless_core::trace::{Event, Recorder};

/// A host in memory, and what a test does to it.
pub struct Watched {
    host: InProcess<MemStore>,
    /// Keeps stages from returning while it is set.
    blocks_stages: AtomicBool,
    /// The next query loses the session.
    loses_query: AtomicBool,
    is_lost: AtomicBool,
    pub queries: AtomicU64,
    renewals: AtomicU64,
}

impl Host for Watched {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        self.queries.fetch_add(1, Ordering::SeqCst);
        if self.loses_query.swap(false, Ordering::SeqCst) {
            self.is_lost.store(true, Ordering::SeqCst);
        }
        if self.is_lost.load(Ordering::SeqCst) {
            return Err(Error::SessionLost);
        }
        self.host.query(request)
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        while self.blocks_stages.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.host.stage(stage)
    }

    fn place(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        self.host.place(version, bytes)
    }

    fn node(&self, version: NodeVersion) -> Result<Vec<u8>> {
        self.host.node(version)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.host.commit(sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        self.host.sequence()
    }

    /// The enclave of a test goes on with the session that it has.
    fn renew(&self) -> Result<(Nonce, Nonce)> {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        self.is_lost.store(false, Ordering::SeqCst);
        Err(Error::Unreachable("planned".into()))
    }
}

/// A gateway to hosts that a recorder observes.
pub fn watched(
    params: Params,
    hosts: usize,
    seed: u64,
) -> (Gateway, Vec<Arc<Watched>>, Arc<Recorder>) {
    let (mut rng, keys) = (SeededRng::new(seed), keys());
    let shared = keys.shared(&params, Choice::Benes);
    let recorder = Arc::new(Recorder::default());
    let observation = Observation::new(params.geometry, recorder.clone());
    let (mut connected, mut watched) = (Vec::new(), Vec::new());
    for number in 0..hosts {
        let (nonce, store) = ([number as u8; 16], MemStore::new(params.geometry));
        let (host, own) = InProcess::start(&shared, store, &nonce, &mut rng).unwrap();
        let host = Arc::new(Watched {
            host,
            blocks_stages: AtomicBool::new(false),
            loses_query: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            queries: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
        });
        watched.push(host.clone());
        let host = if hosts == 1 { observation.of(host) } else { observation.of_rounds(host) };
        connected.push(ConnectedHost { host, session: (nonce, own) });
    }
    let hosts = (connected, Some(observation));
    let gateway =
        Gateway::open_divided(params, &keys, Choice::Benes, hosts, None, Box::new(rng)).unwrap();
    (gateway, watched, recorder)
}

#[test]
fn a_divided_tree_agrees_with_an_array() {
    for hosts in [2, 3, 8] {
        let (mut gateway, watched, _) = watched(params(1500), hosts, 40 + hosts as u64);
        agrees_with_an_array(&mut gateway, 6000, 41);
        assert!(gateway.counts().rounds > 30);
        gateway.save().unwrap();
        for host in &watched {
            let share = gateway.counts().queries / hosts as u64;
            let own = host.queries.load(Ordering::SeqCst);
            assert!((share / 2..share * 2).contains(&own), "{own} of {share}");
            assert!(host.sequence().unwrap() > 10);
        }
    }
}

#[test]
fn a_divided_tree_is_filled_at_once() {
    let (mut gateway, watched, _) = watched(params(3000), 3, 45);
    let contents = |id: u64, into: &mut [u8]| into[..8].copy_from_slice(&id.to_le_bytes());
    gateway.fill(&contents).unwrap();
    assert!(watched.iter().all(|host| host.sequence().unwrap() == 1));
    for id in 0..3000 {
        assert!(gateway.get(id).unwrap()[..8] == id.to_le_bytes());
    }
}

/// The reads of single slots: threads of rounds report other events in any order.
fn queries(events: &[Event], params: &Params) -> Vec<(u64, u32)> {
    let slot = params.geometry.slot_len() as u32;
    let queries = events.iter().filter(|event| event.len == slot);
    queries.map(|event| (event.at, event.len)).collect()
}

/// The hosts together observe as many queries, and as many rounds, as one host would.
#[test]
fn hosts_together_observe_what_one_host_would() {
    let params = params(1500);
    let run = |hosts| {
        let (mut gateway, watched, recorder) = watched(params, hosts, 50);
        // Rounds end at the same queries, however long they take.
        for id in 0..1200 {
            gateway.put(id * 7 % 1500, &block(id, 1)).unwrap();
            gateway.finish_all(Wait::Long).unwrap();
        }
        drop(watched);
        (queries(&recorder.take(), &params).len(), gateway.counts().rounds)
    };
    let one = run(1);
    assert!(one.1 > 10);
    assert_eq!([2, 4].map(run), [one; 2]);
}

/// Rounds of different partitions are in progress at once, and begin in the order of their numbers.
#[test]
fn rounds_of_several_partitions_are_in_progress_at_once() {
    let (mut gateway, hosts, _) = watched(params(1500), 2, 60);
    for host in &hosts {
        host.blocks_stages.store(true, Ordering::SeqCst);
    }
    let round_blocks = gateway.params().round_blocks;
    gateway.dummies(2 * round_blocks + 1).unwrap();
    let running = |gateway: &Gateway| {
        gateway.state.partitions.running().map(|one| one.round().unwrap()).collect::<Vec<u64>>()
    };
    assert_eq!(running(&gateway), [0, 1]);
    // The second host is fast. The third round is the first host's, and waits for its first one.
    hosts[1].blocks_stages.store(false, Ordering::SeqCst);
    gateway.finish(1, Wait::Long).unwrap();
    assert_eq!(running(&gateway), [0]);
    gateway.dummies(round_blocks - 1).unwrap();
    assert_eq!(running(&gateway), [0]);
    let slow = hosts[0].clone();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        slow.blocks_stages.store(false, Ordering::SeqCst);
    });
    gateway.dummy().unwrap();
    opener.join().unwrap();
    assert_eq!(running(&gateway), [2]);
    assert_eq!(gateway.counts().rounds, 2);
}

/// The blocks of rounds in progress at all hosts wait at the gateway, and that is no overflow.
#[test]
fn rounds_at_all_hosts_fit_the_stash() {
    // A node that has no more dummies is renewed before, which ends a round.
    let most = (65..85).map(|seed| {
        let most = stash_of_blocked_hosts(seed);
        (most.0 > most.1, most)
    });
    assert!(most.clone().any(|(is_more, _)| is_more), "{:?}", most.collect::<Vec<_>>());
}

/// Most blocks in the stash while no round of eight hosts ends, and the limit for one host.
fn stash_of_blocked_hosts(seed: u64) -> (usize, usize) {
    let (mut gateway, hosts, _) = watched(params(3000), 8, seed);
    let round_blocks = gateway.params().round_blocks as u64;
    for id in 0..10 * round_blocks {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.save().unwrap();
    let block_all = |is_blocked| {
        for host in &hosts {
            host.blocks_stages.store(is_blocked, Ordering::SeqCst);
        }
    };
    block_all(true);
    std::thread::scope(|scope| {
        let (ends, ended) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let _ = ended.recv_timeout(Duration::from_millis(300));
            block_all(false);
        });
        for id in 10 * round_blocks..17 * round_blocks {
            gateway.put(id, &block(id, 1)).unwrap();
        }
        drop(ends);
    });
    gateway.save().unwrap();
    (gateway.counts().stash_max, gateway.params().stash_max())
}

/// Only the session that was lost begins anew.
#[test]
fn a_lost_session_is_that_of_its_host() {
    let (mut gateway, hosts, _) = watched(params(600), 2, 70);
    hosts[1].loses_query.store(true, Ordering::SeqCst);
    let mut lost = Ok(());
    for _ in 0..100 {
        lost = gateway.dummy();
        if lost.is_err() {
            break;
        }
    }
    assert!(matches!(lost, Err(Error::Unreachable(_))), "{lost:?}");
    let renewals = [0, 1].map(|host: usize| hosts[host].renewals.load(Ordering::SeqCst));
    assert_eq!(renewals, [0, 1]);
}

/// A failed round is made again before any other, also if later ones have been committed.
#[test]
fn a_failed_round_is_made_again_first() {
    let params = params(1500);
    let mut state = State::new(params);
    let divided = state.partitions.divided_among(2);
    state.apply(divided).unwrap();
    state.queries = 4 * params.round_blocks;
    let begin = |state: &mut State, attempt| {
        let begun = Record::Begin { attempt, seed: [attempt as u8; 32], node: None };
        state.apply(begun).unwrap().unwrap().round
    };
    assert_eq!([begin(&mut state, 1), begin(&mut state, 2)], [0, 1]);
    let third = Record::Begin { attempt: 3, seed: [3; 32], node: None };
    assert!(state.apply(third).is_err(), "the first partition has a round in progress");
    state.apply(Record::Commit { partition: 1 }).unwrap();
    state.apply(Record::Fail { partition: 0 }).unwrap();
    let rounds_at = |state: &State| [0, 1, 2].map(|root| state.partitions.round_at(root));
    assert_eq!((state.partitions.next_round(), rounds_at(&state)), (0, [0, 2, 2]));
    // So it is after a restart.
    let mut saved = Writer::default();
    state.save(&mut saved);
    let mut state = State::load(params, &mut Reader::new(saved.as_bytes())).unwrap();
    assert_eq!((state.partitions.next_round(), rounds_at(&state)), (0, [0, 2, 2]));
    assert_eq!(state.queries, 3 * params.round_blocks);
    assert_eq!(begin(&mut state, 4), 0);
    assert_eq!(state.running(0).unwrap().begun(), 2, "it has the time until the third round");
    assert_eq!(rounds_at(&state), [0, 2, 2]);
    state.apply(Record::Commit { partition: 0 }).unwrap();
    assert_eq!([begin(&mut state, 5), begin(&mut state, 6)], [2, 3]);
    // Rounds after which none has begun count as not begun.
    state.apply(Record::Fail { partition: 0 }).unwrap();
    state.apply(Record::Fail { partition: 1 }).unwrap();
    assert_eq!((state.partitions.begun(), state.partitions.next_round()), (2, 2));
    let unknown = Record::Commit { partition: 2 };
    assert!(state.apply(unknown).is_err() && state.apply(Record::Commit { partition: 0 }).is_err());
}

/// A host with nothing but damage is found to be away, however sound another one is.
#[test]
fn damage_is_counted_for_each_partition() {
    let mut found = FoundDamage::default();
    let is_given_up = |found: &mut FoundDamage| {
        assert!(found.count_query(0, false));
        found.count_query(1, true)
    };
    let given_up = (0..100).filter(|_| is_given_up(&mut found)).count();
    assert_eq!(given_up, 16);
    assert!(found.count_query(1, false) && is_given_up(&mut found), "it is back");
}

/// A commit in one partition leaves the old versions of another one as they are.
#[test]
fn queries_are_old_in_their_own_partition() {
    let params = params(1500);
    let mut state = State::new(params);
    state.apply(state.partitions.divided_among(2)).unwrap();
    let slots = vec![0; params.geometry.layers];
    let query = Record::Query { leaf: 0, slots, id: None, target: None, write: None };
    state.apply(query).unwrap();
    let renewal = |node| Record::Begin { attempt: 1, seed: [1; 32], node: Some(node) };
    state.apply(renewal(1)).unwrap();
    state.apply(Record::Commit { partition: 1 }).unwrap();
    assert_eq!([0, 1].map(|partition| state.has_old_pending(partition)), [false; 2]);
    state.apply(renewal(0)).unwrap();
    state.apply(Record::Commit { partition: 0 }).unwrap();
    assert_eq!([0, 1].map(|partition| state.has_old_pending(partition)), [true, false]);
}

#[test]
fn divisions_that_do_not_fit_are_refused() {
    let state = || State::new(params(1500));
    let roots = state().params.geometry.roots as usize;
    let divide = |sequences: &[u64], of_root: Vec<u32>, failed: &[u64]| Record::Divide {
        sequences: sequences.to_vec(),
        of_root,
        failed: failed.to_vec(),
    };
    state().apply(divide(&[0, 0], vec![1; roots], &[])).unwrap();
    for wrong in [
        divide(&[], vec![0; roots], &[]),
        divide(&[0, 0], vec![2; roots], &[]),
        divide(&[0, 0], vec![0; roots - 1], &[]),
        divide(&[0, 0], vec![0; roots], &[0]),
    ] {
        assert!(matches!(state().apply(wrong), Err(Error::State(_))));
    }
    let mut running = state();
    running.queries = running.params.round_blocks;
    running.apply(Record::Begin { attempt: 1, seed: [0; 32], node: None }).unwrap();
    assert!(running.apply(divide(&[0, 0], vec![0; roots], &[])).is_err());
}

#[test]
fn a_divided_tree_needs_all_its_hosts() {
    let mut world = crash::World::new(600, 80);
    let mut used = crash::World::new(600, 81);
    used.open(u64::MAX).unwrap().dummies(100).unwrap();
    // A new tree, and a host with the store of another one.
    let other = used.remove_host();
    world.add_store(other);
    assert!(matches!(world.open(u64::MAX), Err(Error::RolledBack { gateway: 0, .. })));
    world.remove_host();
    world.add_hosts(1);
    let mut gateway = world.open(u64::MAX).unwrap();
    for id in 0..600 {
        gateway.put(id, &block(id, 1)).unwrap();
    }
    gateway.close().unwrap();
    drop(gateway);
    let second = world.remove_host();
    assert!(matches!(world.open(u64::MAX), Err(Error::Parameters(_))));
    // A new store in the place of the second.
    world.add_hosts(1);
    assert!(matches!(world.open(u64::MAX), Err(Error::RolledBack { host: 0, .. })));
    world.remove_host();
    world.add_store(second);
    // More hosts than trees.
    world.add_hosts(7);
    assert!(matches!(world.open(u64::MAX), Err(Error::Parameters(_))));
    for _ in 0..7 {
        world.remove_host();
    }
    let mut gateway = world.open(u64::MAX).unwrap();
    for id in 0..600 {
        assert!(gateway.get(id).unwrap() == block(id, 1));
    }
}
