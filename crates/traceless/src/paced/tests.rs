use super::*;
use crate::controller::StepKind;
use crate::scheme::path::PathOram;
use crate::scheme::tree_rig::{sealed, store_for};
use crate::tree::{BareTree, STASH_BLOCKS, Shape};
use std::boxed::Box;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;
use traceless_core::clock::{Clock as _, Monotonic, SimulatedClock};
use traceless_core::error::Error;
use traceless_core::oram::Oram as _;
use traceless_core::rng::{Rng as _, SeededRng};
use traceless_core::store::{MemStore, Store, WatchedStore};
use traceless_core::trace::{Event, Op, Recorder};
use traceless_core::types::Extent;

const BLOCKS: u64 = 100;
const BLOCK_LEN: usize = 16;

/// A store that takes a time for a request that depends on its place and length.
struct Slow {
    inner: Arc<MemStore>,
    clock: Arc<SimulatedClock>,
}

/// The time of a request.
fn cost(at: u64, len: usize) -> u64 {
    10 + len as u64 / 8 + at % 13
}

impl Slow {
    fn pass(&self, extents: &[Extent]) {
        for extent in extents {
            self.clock.advance(cost(extent.at, extent.len));
        }
    }
}

impl Store for Slow {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.pass(extents);
        self.inner.read(extents, into)
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        self.pass(extents);
        self.inner.write(extents, from)
    }
    fn sync(&self) -> Result {
        self.inner.sync()
    }
}

/// Path ORAM on a slow store that is watched.
fn slow_path(seed: u64) -> (impl Controller, Arc<SimulatedClock>, Arc<Recorder>) {
    let (clock, recorder) = (Arc::<SimulatedClock>::default(), Arc::<Recorder>::default());
    let shape = Shape::uniform(6, 4).unwrap();
    let slow = Slow { inner: store_for(&shape, BLOCK_LEN), clock: clock.clone() };
    let store = WatchedStore::with_clock(slow, recorder.clone(), clock.clone());
    let trees = vec![sealed(Arc::new(store), shape, BLOCK_LEN)];
    let path = PathOram::new(BLOCKS, trees, STASH_BLOCKS, Box::new(SeededRng::new(seed))).unwrap();
    (path, clock, recorder)
}

/// A client's requests: the blocks requested before each step.
type Workload<'a> = &'a dyn Fn(u64, &mut SeededRng) -> Vec<u64>;

const WORKLOADS: [Workload<'static>; 5] = [
    &|_, _| vec![],
    &|_, _| vec![7],
    &|step, rng| if step % 9 == 4 { vec![rng.below(BLOCKS); 5] } else { vec![] },
    &|step, _| if step < 100 { vec![step % BLOCKS] } else { vec![] },
    &|_, rng| if rng.below(3) == 0 { vec![rng.below(BLOCKS)] } else { vec![] },
];

const STEPS: u64 = 300;

/// Whether each step begins, by the time of its first event, when the earlier paths imply it.
fn follows_from_the_paths(events: &[Event], pace: Pace) -> bool {
    let begins = |i: usize| events[i].op == Op::Read && (i == 0 || events[i - 1].op == Op::Write);
    let mut due = 0;
    let (mut start, mut now) = (0, 0);
    for (i, event) in events.iter().enumerate() {
        if begins(i) {
            if i > 0 {
                due = match pace {
                    Pace::StartToStart(interval) => start + interval,
                    Pace::AfterCompletion(interval) => now + interval,
                };
            }
            if event.time != due {
                return false;
            }
            (start, now) = (due, due);
        }
        now += cost(event.at, event.len as usize);
    }
    true
}

fn recorded(pace: Pace, workload: Workload<'_>, seed: u64, skips_idle_slots: bool) -> Vec<Event> {
    let (path, clock, recorder) = slow_path(seed);
    let mut paced = PacedOram::new(path, clock.clone(), pace);
    let mut rng = SeededRng::new(seed + 1000);
    let mut pending = 0;
    for step in 0..STEPS {
        for addr in workload(step, &mut rng) {
            paced.submit(step, Addr(addr)).unwrap();
            pending += 1;
        }
        if skips_idle_slots && pending == 0 {
            // The planted fault: without a request no step is made.
            let Pace::StartToStart(interval) = pace else { unreachable!("not tried") };
            clock.wait_until(paced.due());
            paced.due += interval;
            continue;
        }
        let issued = paced.step(&mut |_, block| block[0] ^= 1).unwrap();
        pending -= i32::from(issued.kind == StepKind::Data);
    }
    assert_eq!(paced.record().late, 0);
    recorder.take()
}

#[test]
fn issue_times_are_a_function_of_the_paths() {
    for pace in [Pace::StartToStart(2000), Pace::AfterCompletion(50), Pace::AfterCompletion(0)] {
        for (seed, workload) in WORKLOADS.into_iter().enumerate() {
            let events = recorded(pace, workload, seed as u64, false);
            assert!(follows_from_the_paths(&events, pace), "{pace:?}, workload {seed}");
            let starts = events.windows(2).filter(|e| e[0].op == Op::Write && e[1].op == Op::Read);
            assert_eq!(starts.count() as u64 + 1, STEPS, "one access a step");
        }
    }
    let pace = Pace::StartToStart(2000);
    let caught = WORKLOADS.map(|workload| {
        let events = recorded(pace, workload, 1, true);
        !events.is_empty() && !follows_from_the_paths(&events, pace)
    });
    // Without any request, or with one at each step, the fault changes nothing.
    assert_eq!(caught, [false, false, true, false, true], "a skipped slot goes unseen");
}

#[test]
fn late_steps_are_reported_and_move_what_follows() {
    let (path, clock, _) = slow_path(1);
    let mut paced = PacedOram::new(path, clock.clone(), Pace::StartToStart(2000));
    let step = |paced: &mut PacedOram<_, Arc<SimulatedClock>>| paced.step(&mut |_, _| {}).unwrap();
    step(&mut paced);
    assert_eq!(paced.due(), 2000);
    step(&mut paced);
    assert_eq!(paced.record(), Record { steps: 2, late: 0, latest: 0, jitter: 0 });
    clock.wait_until(5100);
    step(&mut paced);
    assert_eq!(paced.record(), Record { steps: 3, late: 1, latest: 1100, jitter: 0 });
    assert_eq!(paced.due(), 7100);
    // Accesses that take longer than the interval.
    let (path, clock, _) = slow_path(1);
    let mut paced = PacedOram::new(path, clock, Pace::StartToStart(10));
    (0..20).for_each(|_| _ = step(&mut paced));
    assert_eq!(paced.record().late, 19);
}

fn in_memory() -> impl Controller {
    let trees = vec![BareTree::new(Shape::uniform(6, 4).unwrap(), BLOCK_LEN)];
    PathOram::new(BLOCKS, trees, STASH_BLOCKS, Box::new(SeededRng::new(1))).unwrap()
}

/// Steps with and without a request, in turns, on a real clock: both begin equally late.
#[test]
fn issue_times_do_not_distinguish_requests_from_dummies() {
    const INTERVAL_NS: u64 = 1_000_000;
    let clock = Arc::new(Monotonic::start());
    let mut paced = PacedOram::new(in_memory(), clock.clone(), Pace::StartToStart(INTERVAL_NS));
    let mut waits = [vec![], vec![]];
    for step in 0..600 {
        let has_request = step % 2;
        if has_request == 1 {
            paced.submit(step, Addr(step % BLOCKS)).unwrap();
        }
        let due = paced.due();
        let mut began = None;
        paced.step(&mut |_, _| began = Some(clock.now())).unwrap();
        assert_eq!(began.is_some(), has_request == 1);
        let after = clock.now() - due;
        waits[has_request as usize].push(after);
    }
    let [dummies, requests] = waits.map(|mut waits| {
        waits.sort_unstable();
        waits[waits.len() / 2]
    });
    println!("{dummies} and {requests} ns after they were due were accesses done in the median");
    println!("{:?}", paced.record());
    assert!(dummies.abs_diff(requests) < INTERVAL_NS / 20, "{dummies} {requests}");
}

#[test]
fn a_service_is_an_array_and_never_rests() {
    let clock = Arc::new(Monotonic::start());
    let pace = Pace::StartToStart(100_000);
    let mut service = Service::start(in_memory(), clock.clone(), pace);
    let addrs: Vec<Addr> = (0..50).map(Addr).collect();
    let mut bytes = vec![0; 50 * BLOCK_LEN];
    SeededRng::new(1).fill(&mut bytes);
    service.write_many(&addrs, &bytes).unwrap();
    let mut read = vec![0; bytes.len()];
    service.read_many(&addrs, &mut read).unwrap();
    assert_eq!(read, bytes);
    assert_eq!(service.access(Addr(3), |block| core::mem::take(&mut block[0])).unwrap(), {
        bytes[3 * BLOCK_LEN]
    });
    service.update(Addr(3), &mut |block| block[0] += 5).unwrap();
    service.sync().unwrap();
    assert_eq!(service.access(Addr(3), |block| block[0]).unwrap(), 5);
    assert!(matches!(service.access(Addr(BLOCKS), |_| ()), Err(Error::OutOfRange { .. })));
    clock.wait_until(clock.now() + 20_000_000);
    let record = service.stop().unwrap();
    assert!(record.steps > 103 + 20, "it rested: {record:?}");
}

/// A controller that fails once.
struct Failing;

impl Controller for Failing {
    fn blocks(&self) -> u64 {
        1
    }
    fn block_len(&self) -> usize {
        1
    }
    fn submit(&mut self, _: u64, _: Addr) -> Result {
        Ok(())
    }
    fn waiting(&self) -> usize {
        0
    }
    fn step(&mut self, _: Serve<'_>) -> Result<StepOutcome> {
        Err(Error::Store("planted"))
    }
    fn sync(&mut self) -> Result {
        Ok(())
    }
    fn hides(&self) -> traceless_core::oram::Hides {
        traceless_core::oram::Hides::Nothing
    }
}

#[test]
fn an_error_ends_a_service() {
    let mut service =
        Service::start(Failing, Arc::<SimulatedClock>::default(), Pace::StartToStart(1));
    assert!(matches!(service.write(Addr(0), &[1]), Err(Error::EarlierAbort)));
    assert!(matches!(service.sync(), Err(Error::EarlierAbort)));
    assert!(matches!(service.stop(), Err(Error::Store("planted"))));
}
