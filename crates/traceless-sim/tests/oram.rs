//! Schemes over the DRAM: which lines they request, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use traceless::rng::{Rng, SeededRng};
use traceless::trace::{self, Recorder};
use traceless_sim::Watch;
use traceless_sim::constant;
use traceless_sim::dram::{self, AddressMap};
use traceless_sim::llc;
use traceless_sim::machine::{Machine, Outcome};
use traceless_sim::oram::{Allocation, Config, Pace, Scheme};
use traceless_sim::workload::{LINE_LEN, Op, Record, Workload};

const LEVELS: usize = 14;

fn machine(scheme: Scheme, pace: Pace) -> Machine {
    let oram = Config {
        scheme,
        pace,
        blocks: Some(1 << LEVELS),
        levels: LEVELS,
        cached_levels: 4,
        plb_bytes: 2048,
        row_len: 32 << 10,
        ..Config::default()
    };
    let last_level = Some(llc::Config {
        bytes: 64 << 10,
        ways: 8,
        latency: 10,
        reads_before_writes: false,
        brought_before: 0,
    });
    let memory = dram::Config { map: AddressMap::ROWS_TOGETHER, ..dram::Config::FOUR_CHANNELS };
    Machine { oram: Some(oram), last_level, memory, ..Machine::FOUR_CHANNELS }
}

fn workload(records: u64, before: u64) -> Box<dyn Workload> {
    let mut rng = SeededRng::new(5);
    Box::new((0..records).map(move |_| Record {
        before,
        op: if rng.below(4) == 0 { Op::Write } else { Op::Read },
        addr: rng.below(1 << LEVELS) * LINE_LEN,
    }))
}

fn run(machine: &Machine, records: u64, before: u64) -> Outcome {
    machine.run(&mut [workload(records, before)]).unwrap()
}

#[test]
fn each_path_access_moves_all_its_lines() {
    for scheme in [Scheme::Path, Scheme::Baseline] {
        for pace in [Pace::Asked, Pace::StartToStart(2000), Pace::AfterCompletion(300)] {
            let outcome = run(&machine(scheme, pace), 3000, 10);
            let (paths, cache) = (outcome.paths.unwrap(), outcome.last_level.unwrap());
            assert_eq!(outcome.run.records, 3000);
            let requests = cache.read_misses + cache.write_backs;
            assert_eq!(paths.data + paths.at_hand, requests, "{scheme:?} {pace:?}");
            assert_eq!(paths.map > 0, scheme == Scheme::Baseline);
            assert_eq!(paths.dummy > 0, pace != Pace::Asked, "{pace:?}");
            let lines = paths.paths() * 4 * (LEVELS as u64 - 4);
            let served = |of: fn(&traceless_sim::dram::ChannelStats) -> u64| {
                outcome.channels.iter().map(of).sum::<u64>()
            };
            let reads = served(|c| c.reads.served + c.reads.merged);
            let writes = served(|c| c.writes.served + c.writes.merged);
            // The last path may have been cut off by the end of the program.
            assert!(lines - reads < 40 && lines - writes <= 40, "{lines} {reads} {writes}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let machine = machine(Scheme::Baseline, Pace::AfterCompletion(1000));
    assert_eq!(run(&machine, 2000, 50), run(&machine, 2000, 50));
    let mut other = machine.clone();
    other.oram.as_mut().unwrap().seed = 2;
    assert_ne!(run(&machine, 2000, 50), run(&other, 2000, 50));
}

/// The length of a run depends on the program, but the number of path accesses in a time does not.
#[test]
fn a_fixed_rate_is_kept_for_any_requests() {
    let machine = machine(Scheme::Baseline, Pace::StartToStart(4000));
    for (records, before) in [(500, 0), (500, 1000), (2, 500_000)] {
        let outcome = run(&machine, records, before);
        let paths = outcome.paths.unwrap();
        assert_eq!(paths.paths(), (outcome.run.cycles - 1) / 4000 + 1, "{paths:?}");
    }
}

/// The cache holds the lines of the warm-up, and none of the warm-up is counted.
#[test]
fn warm_caches_hold_the_requested_lines() {
    let machine = machine(Scheme::Unified, Pace::Asked);
    let lines = |n: u64| {
        (0..n).map(|nth| nth % 500).map(|line| Record {
            before: 10,
            op: Op::Read,
            addr: line * LINE_LEN,
        })
    };
    let run = |warm_up, records| {
        machine.run_after(warm_up, &mut [Box::new(lines(warm_up + records))]).unwrap()
    };
    let (cold, warm) = (run(0, 500), run(500, 500));
    assert_eq!((cold.run.records, warm.run.records), (500, 500));
    assert_eq!(cold.last_level.unwrap().read_misses, 500);
    assert_eq!(warm.last_level.unwrap().read_misses, 0);
    assert_eq!((warm.paths.unwrap().paths(), warm.dram.unwrap().reads), (0, 0));
    assert!(warm.run.cycles * 50 < cold.run.cycles);
}

#[test]
fn fewer_lines_take_less_time() {
    let base = machine(Scheme::Baseline, Pace::Asked);
    let mut small = base.clone();
    small.oram.as_mut().unwrap().allocation = Some(Allocation::named("ir-alloc1"));
    assert!(run(&small, 3000, 10).run.cycles < run(&base, 3000, 10).run.cycles);
    let mut straight = base.clone();
    straight.oram = None;
    assert!(run(&straight, 3000, 10).run.cycles * 4 < run(&small, 3000, 10).run.cycles);
}

#[test]
fn impossible_schemes_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut machine = machine(Scheme::Baseline, Pace::Asked);
        change(machine.oram.as_mut().unwrap());
        assert!(machine.run(&mut [workload(1, 0)]).is_err());
    };
    refused(|c| c.allocation = Some(Allocation::named("none")));
    refused(|c| c.blocks = Some(0));
    refused(|c| c.blocks = Some(u64::MAX));
    refused(|c| c.levels = 0);
    refused(|c| c.levels = 64);
    refused(|c| c.plb_bytes = 0);
    refused(|c| c.plb_ways = 0);
    refused(|c| c.map_fanout = Some(1));
    refused(|c| c.stash_blocks = 0);
    refused(|c| c.stash_blocks = usize::MAX);
    refused(|c| c.plb_bytes = 1 << 62);
    refused(|c| c.row_len = usize::MAX);
    refused(|c| c.levels = 33);
    refused(|c| c.warm_up = u64::MAX);
    refused(|c| c.early_pause = u64::MAX);
    refused(|c| c.small.per_main = 0);
    refused(|c| (c.scheme, c.blocks) = (Scheme::Ring, Some(1 << 31)));
    refused(|c| (c.top_ways, c.top_sets) = (usize::MAX, Some(usize::MAX)));
    refused(|c| c.row_len = 0);
    refused(|c| c.queue = 0);
    refused(|c| c.pace = Pace::StartToStart(u64::MAX));
    refused(|c| c.decrypt = u64::MAX);
}

#[test]
fn a_probe_sees_each_line_on_the_bus_and_none_that_is_known_by_its_bandwidth() {
    let machine = machine(Scheme::Path, Pace::AfterCompletion(300));
    let (recorder, requests) = (Arc::new(Recorder::default()), Arc::new(AtomicU64::new(0)));
    let count = requests.clone();
    let watch = Watch {
        bus: Some(recorder.clone()),
        on_request: Some(Arc::new(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        })),
        ..Watch::default()
    };
    let outcome = machine.run_watched(0, &mut [workload(1000, 10).into()], &watch).unwrap();
    let events = recorder.take();
    let served = |op| events.iter().filter(|event| event.op == op).count() as u64;
    let channels = || outcome.channels.iter();
    assert_eq!(served(trace::Op::Read), channels().map(|c| c.reads.served).sum::<u64>());
    assert_eq!(served(trace::Op::Write), channels().map(|c| c.writes.served).sum::<u64>());
    assert!(
        events.iter().all(|event| event.at % LINE_LEN == 0 && event.time <= outcome.run.cycles)
    );
    let cache = outcome.last_level.unwrap();
    assert_eq!(requests.load(Ordering::Relaxed), cache.read_misses + cache.write_backs);
    let alone = machine.run(&mut [workload(1000, 10)]).unwrap();
    assert_eq!(alone, outcome, "who is watched does the same");
    let no_bus = Machine { constant: Some(constant::Config::default()), ..machine };
    assert!(no_bus.run_watched(0, &mut [workload(10, 10).into()], &watch).is_err());
}
