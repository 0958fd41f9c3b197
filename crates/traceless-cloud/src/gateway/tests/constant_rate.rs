//! A constant rate: the sent messages and their times follow from the number of ticks alone.

use super::failing_host::no_job;
use super::*;
use traceless_core::clock::{Clock as _, SimulatedClock};

const PERIOD: u64 = 2_000_000;

/// A message that a host receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Message {
    Query,
    /// A round or renewal of this many nodes.
    Stage(usize),
    Commit,
}

/// A host that records each call with its time, and fails on request.
struct Timed {
    host: InProcess<MemStore>,
    clock: Arc<SimulatedClock>,
    observed: Arc<Mutex<Vec<(Message, u64)>>>,
    /// The delay of each answer.
    delay: Arc<AtomicU64>,
    fails: Arc<AtomicU64>,
}

impl Timed {
    fn record(&self, message: Message) -> Result {
        self.observed.lock().unwrap().push((message, self.clock.now()));
        self.clock.advance(self.delay.load(Ordering::Relaxed));
        if self.fails.load(Ordering::Relaxed) > 0 {
            self.fails.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::Store("planned"));
        }
        Ok(())
    }
}

impl Host for Timed {
    fn query(&self, request: &QueryRequest) -> Result<Vec<u8>> {
        self.record(Message::Query)?;
        self.host.query(request)
    }

    fn stage(&self, stage: &Stage) -> Result<Vec<DamagedSlot>> {
        // Called by another thread, so the clock does not advance here.
        let message = Message::Stage(stage.nodes.len());
        self.observed.lock().unwrap().push((message, self.clock.now()));
        self.host.stage(stage)
    }

    fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.record(Message::Commit)?;
        self.host.commit(sequence, versions)
    }

    fn sequence(&self) -> Result<u64> {
        self.host.sequence()
    }
}

struct World {
    gateway: Gateway,
    clock: Arc<SimulatedClock>,
    observed: Arc<Mutex<Vec<(Message, u64)>>>,
    delay: Arc<AtomicU64>,
    fails: Arc<AtomicU64>,
}

impl World {
    fn new(blocks: u64, drawn: u64) -> Self {
        Self::of(params(blocks), drawn)
    }

    fn of(params: Params, drawn: u64) -> Self {
        let mut rng = SeededRng::new(drawn);
        let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
        let nonce = [3; 16];
        let shared = keys.shared(&params, Choice::Benes);
        let store = MemStore::new(params.geometry);
        let (host, own) = InProcess::start(&shared, store, &nonce, &mut rng).unwrap();
        let (clock, observed) = (Arc::new(SimulatedClock::default()), Arc::default());
        let (delay, fails) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let timed = Timed {
            host,
            clock: clock.clone(),
            observed: Arc::clone(&observed),
            delay: delay.clone(),
            fails: fails.clone(),
        };
        let host = Arc::new(timed);
        let session = (&nonce, &own);
        let mut gateway =
            Gateway::open(params, &keys, Choice::Benes, host, session, None, Box::new(rng))
                .unwrap();
        gateway.start_constant_rate(500, clock.clone()).unwrap();
        Self { gateway, clock, observed, delay, fails }
    }

    fn times(&self, expected: Message) -> Vec<u64> {
        let observed = self.observed.lock().unwrap();
        observed.iter().filter(|(message, _)| *message == expected).map(|(_, at)| *at).collect()
    }
}

#[test]
fn behaves_as_an_array_at_a_constant_rate() {
    let mut world = World::new(1500, 41);
    assert_eq!(agrees_with_an_array(&mut world.gateway, 6000, 41), 0);
    let counts = world.gateway.counts();
    assert!(counts.rounds > 20 && counts.hits > 100, "{counts:?}");
    assert!(counts.stash_max <= expected_stash(world.gateway.params()), "{counts:?}");
    assert_eq!((counts.ticks_used, counts.ticks_unused), (counts.queries, 0));
}

#[test]
fn messages_follow_from_the_clock_alone() {
    let runs: Vec<_> = (0..4)
        .map(|user| {
            let mut world = World::new(1500, 50 + user);
            let gateway = &mut world.gateway;
            gateway.keep_copies(100 * BLOCK);
            while world.clock.now() < 1000 * PERIOD {
                let step = world.clock.now() / PERIOD;
                match user {
                    0 => {}
                    1 => gateway.put(step % 1500, &[1; BLOCK]).unwrap(),
                    2 => assert!(gateway.get(1500).is_err()),
                    // A cache hit except for the first time; then several accesses at once.
                    _ => drop(gateway.get_many(&[7, step % 3, step, 7]).unwrap()),
                }
                gateway.dummy().unwrap();
                gateway.fill_tick().unwrap();
            }
            let own: Vec<u64> = world.times(Message::Query);
            assert!(own.iter().zip(1..).all(|(at, tick)| *at == tick * PERIOD), "one a tick");
            assert!(world.gateway.counts().rounds > 10);
            assert_eq!(world.gateway.counts().ticks_late, 0);
            (own[..1000].to_vec(), world.times(Message::Commit)[..10].to_vec())
        })
        .collect();
    assert!(runs.iter().all(|other| *other == runs[0]));
    let params = params(1500);
    let commit = (params.round_blocks + params.commit_after()) as u64;
    assert_eq!(runs[0].1[0], commit * PERIOD);
}

#[test]
fn late_ticks_are_sent_late_and_none_is_skipped() {
    let mut world = World::new(300, 60);
    for _ in 0..5 {
        world.gateway.fill_tick().unwrap();
    }
    world.delay.store(PERIOD / 2, Ordering::Relaxed);
    world.gateway.fill_tick().unwrap();
    world.delay.store(7 * PERIOD / 2, Ordering::Relaxed);
    world.gateway.fill_tick().unwrap();
    world.delay.store(0, Ordering::Relaxed);
    for _ in 0..3 {
        world.gateway.fill_tick().unwrap();
    }
    let halves: Vec<u64> = world.times(Message::Query).iter().map(|at| at * 2 / PERIOD).collect();
    // The seventh query took three and a half periods, so the eighth and all later ones are late by
    // two and a half.
    assert_eq!(halves, [2, 4, 6, 8, 10, 12, 14, 21, 23, 25]);
    let counts = world.gateway.counts();
    assert_eq!((counts.ticks_late, counts.tick_delay_max_ns), (1, 5 * PERIOD / 2));
}

#[test]
fn a_failed_tick_is_over_and_its_query_is_repeated() {
    let mut world = World::new(300, 61);
    world.fails.store(2, Ordering::Relaxed);
    assert!(world.gateway.put(5, &block(5, 1)).is_err());
    assert!(world.gateway.fill_tick().is_err());
    assert_eq!(world.gateway.get(5).unwrap(), block(5, 1), "it was sent in the third slot");
    assert_eq!(world.times(Message::Query), [PERIOD, 2 * PERIOD, 3 * PERIOD]);
    let counts = world.gateway.counts();
    assert_eq!((counts.ticks_used, counts.ticks_unused), (1, 2));
    assert!(matches!(
        world.gateway.start_constant_rate(0, world.clock.clone()),
        Err(Error::Parameters(_))
    ));
}

#[test]
fn a_tick_is_due_at_its_time_and_decided_half_a_period_before() {
    let mut world = World::new(300, 62);
    for tick in 1..4 {
        assert_eq!(world.gateway.next_tick(), Some(tick * PERIOD - PERIOD / 2));
        world.clock.advance(PERIOD - 1);
        assert!(!world.gateway.is_tick_due());
        world.clock.advance(1);
        assert!(world.gateway.is_tick_due());
        world.gateway.fill_tick().unwrap();
    }
    world.clock.advance(2 * PERIOD);
    assert!(world.gateway.is_tick_due(), "it is still due when it is late");
    let gateway = in_memory(300, 62);
    assert!(gateway.next_tick().is_none() && !gateway.is_tick_due(), "there is no constant rate");
}

#[test]
fn a_tick_late_by_a_period_delays_all_later_ticks() {
    let mut world = World::new(300, 63);
    for late in [0, 7, 0, 0, 8, 0] {
        world.clock.advance(late * PERIOD / 4);
        world.gateway.fill_tick().unwrap();
    }
    let quarters: Vec<u64> = world.times(Message::Query).iter().map(|at| at * 4 / PERIOD).collect();
    // The second tick is late by three quarters of a period, the fifth by a whole period.
    assert_eq!(quarters, [4, 11, 12, 16, 24, 28]);
    assert_eq!(world.gateway.counts().ticks_late, 1);
}

/// Work besides queries, like the renewal of a node that was read too often, waits for a tick, too.
#[test]
fn no_message_is_sent_between_ticks() {
    let mut params = params(6000);
    params.geometry.leaf_slots = params.leaf_blocks + params.reads_max(1) / 3;
    params.geometry.inner_slots = params.inner_blocks + params.round_blocks / 2;
    let mut world = World::of(params, 64);
    for id in 0..1000 {
        world.clock.advance(PERIOD / 3);
        world.gateway.put(id, &block(id, 1)).unwrap();
    }
    assert!(world.gateway.counts().renewed > 5, "{:?}", world.gateway.counts());
    for message in [Message::Query, Message::Commit] {
        assert!(world.times(message).iter().all(|at| at % PERIOD == 0), "{message:?}");
    }
}

#[test]
fn a_round_is_sent_after_its_tick() {
    let params = params(300);
    // The number of nodes of the first staged job: the round's, or this empty one's after the
    // ticks.
    let sent = |ticks: usize| {
        let mut world = World::new(300, 65);
        for _ in 0..params.round_blocks + ticks {
            world.gateway.fill_tick().unwrap();
        }
        world.gateway.links[0].worker.begin(no_job());
        world.gateway.links[0].worker.result(Wait::Long).unwrap().staged.unwrap();
        let observed = world.observed.lock().unwrap();
        let nodes = |message: &(Message, u64)| match message.0 {
            Message::Stage(nodes) => Some(nodes),
            _ => None,
        };
        observed.iter().find_map(nodes).unwrap()
    };
    let layers = params.geometry.layers;
    assert_eq!([0, 1].map(|more| sent(params.stage_after() - 1 + more)), [0, layers]);
}
