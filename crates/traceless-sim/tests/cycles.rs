//! Skipping cycles changes nothing: a run with a `tick` in each cycle has the same results as a run
//! that skips cycles in which nothing happens.

use traceless::rng::{Rng, SeededRng};
use traceless_sim::backend::{Answer, Backend};
use traceless_sim::dram::{AddressMap, ChannelStats, Memory};
use traceless_sim::error::Result;
use traceless_sim::llc::{self, EarlyWriteBack, LastLevel};
use traceless_sim::oram::{Allocation, Config, Counts, Early, Oram, Pace, Scheme, Small, Start};
use traceless_sim::processor::{self, Run};
use traceless_sim::workload::{LINE_LEN, Op, Record, Workload};
use traceless_sim::{constant, dram};

const BLOCKS: u64 = 1 << 13;

/// A memory that counts its ticks; with `at_each` it demands one in each cycle.
struct Looked<B> {
    inner: B,
    at_each: bool,
    now: u64,
    looks: u64,
}

impl<B> Looked<B> {
    fn new(inner: B, at_each: bool) -> Self {
        Self { inner, at_each, now: 0, looks: 0 }
    }
}

impl<B: Backend> Backend for Looked<B> {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer> {
        self.inner.read(now, addr, ticket)
    }

    fn write(&mut self, now: u64, addr: u64) -> Result {
        self.inner.write(now, addr)
    }

    fn takes_writes(&self) -> bool {
        self.inner.takes_writes()
    }

    fn is_written(&self) -> bool {
        self.inner.is_written()
    }

    fn warm(&mut self, op: Op, addr: u64) -> Result {
        self.inner.warm(op, addr)
    }

    fn wake(&self) -> u64 {
        if self.at_each { self.now + 1 } else { self.inner.wake() }
    }

    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.now = now;
        self.looks += 1;
        self.inner.tick(now, done)
    }
}

fn oram(scheme: Scheme, pace: Pace) -> Config {
    Config {
        scheme,
        pace,
        blocks: Some(BLOCKS),
        levels: 12,
        cached_levels: 6,
        plb_bytes: 1024,
        small: Small { levels: 7, cached_levels: 2, sets: 16, ways: 4, ..Small::default() },
        warm_up: 500,
        ..Config::default()
    }
}

/// Bursts, and long stretches without memory.
fn workload(seed: u64, longest: u64) -> Box<dyn Workload> {
    let mut rng = SeededRng::new(seed);
    Box::new((0..250).map(move |_| {
        let range = if rng.below(2) == 0 { BLOCKS } else { 300 };
        Record {
            before: if rng.below(3) == 0 { rng.below(longest) } else { rng.below(4) },
            op: if rng.below(3) == 0 { Op::Write } else { Op::Read },
            addr: rng.below(range) * LINE_LEN,
        }
    }))
}

/// All results that are compared.
type Outcome = (Run, llc::CacheCounts, Counts, Vec<ChannelStats>);

fn early(config: &Config) -> Option<EarlyWriteBack> {
    match config.resolved().early {
        Some(Early::Scan) => Some(EarlyWriteBack::scan(1, config.early_pause)),
        Some(Early::Queue) => Some(EarlyWriteBack::queue(config.early_queue)),
        _ => None,
    }
}

/// Runs the workload. Also returns the number of ticks.
fn run(core: &processor::Config, config: &Config, dram: bool, at_each: bool) -> (Outcome, u64) {
    let memory = dram::Config { map: AddressMap::ROWS_TOGETHER, ..dram::Config::FOUR_CHANNELS };
    let oram = if dram {
        Oram::over_dram(config, Memory::new(memory).unwrap()).unwrap()
    } else {
        Oram::over_constant(config, &constant::Config::default()).unwrap()
    };
    let last_level = llc::Config {
        bytes: 8 << 10,
        ways: 4,
        latency: 10,
        reads_before_writes: false,
        brought_before: 0,
    };
    let mut cached = LastLevel::new(&last_level, oram).unwrap();
    if let Some(early) = early(config) {
        cached.write_back_early(early);
    }
    let mut cached = Looked::new(cached, at_each);
    let mut workloads = [workload(3, 40), workload(4, 6000)];
    let run = processor::run(core, &mut cached, &mut workloads).unwrap();
    let oram = cached.inner.behind();
    ((run, cached.inner.counts(), oram.counts(), oram.stats(run.cycles)), cached.looks)
}

/// Both kinds of run have the same results, and the one that skips cycles has fewer ticks.
fn is_the_same(core: &processor::Config, config: &Config, dram: bool) -> Outcome {
    let (observed, looks) = run(core, config, dram, true);
    let (passing, looks_passing) = run(core, config, dram, false);
    assert_eq!(observed, passing, "{core:?} {config:?}, over a DRAM: {dram}");
    assert_eq!(looks, observed.0.cycles);
    assert!(looks_passing < looks, "{looks_passing} of {looks}");
    observed
}

const CORES: [processor::Config; 2] =
    [processor::Config::FOUR_CHANNELS, processor::Config::IN_ORDER];

const PACES: [Pace; 4] =
    [Pace::Asked, Pace::StartToStart(900), Pace::AfterCompletion(200), Pace::FetchSlots(1000)];

#[test]
fn skipping_changes_nothing_in_any_scheme() {
    for (name, scheme) in Scheme::NAMED {
        if scheme == Scheme::Dram {
            continue;
        }
        for core in CORES {
            for dram in [true, false] {
                let (.., paths, _) =
                    is_the_same(&core, &oram(scheme, Pace::AfterCompletion(200)), dram);
                assert!(paths.data > 0, "{name}");
            }
        }
        is_the_same(&CORES[1], &oram(scheme, Pace::Asked), true);
    }
}

#[test]
fn skipping_changes_nothing_at_any_pace() {
    for pace in PACES {
        for core in CORES {
            for scheme in [Scheme::Baseline, Scheme::Unified, Scheme::LlcD] {
                is_the_same(&core, &oram(scheme, pace), true);
                is_the_same(&core, &oram(scheme, pace), false);
            }
        }
    }
}

/// Either search finds its lines in the same cycles.
#[test]
fn skipping_changes_nothing_with_early_write_backs() {
    for search in [Early::Scan, Early::Queue] {
        for pace in PACES {
            for core in CORES {
                let config = Config { early: Some(search), ..oram(Scheme::IrOram, pace) };
                let (_, cache, paths, _) = is_the_same(&core, &config, true);
                assert!(cache.early.offered > 5 && cache.early.aborted > 0, "{cache:?}");
                assert_eq!(paths.early_lines > 0, pace != Pace::Asked, "{pace:?}");
            }
        }
    }
}

/// Paths that touch no line, or bytes that take no time, take a cycle.
#[test]
fn skipping_changes_nothing_with_empty_paths() {
    for pace in PACES {
        let slots = [vec![5; 11], vec![0]].concat();
        let allocation = Some(Allocation::Levels(slots));
        let cached = Config { cached_levels: 11, allocation, ..oram(Scheme::Baseline, pace) };
        is_the_same(&CORES[1], &cached, true);
        is_the_same(&CORES[1], &cached, false);
    }
    let at_once = constant::Config {
        bytes_per_cycle: 1 << 20,
        latency: 0,
        oram_latency: 0,
        capacity: 1 << 30,
    };
    let run = |at_each| {
        let inner = Oram::over_constant(&oram(Scheme::Path, Pace::Asked), &at_once).unwrap();
        let mut memory = Looked::new(inner, at_each);
        let run = processor::run(&CORES[1], &mut memory, &mut [workload(3, 40)]).unwrap();
        (run, memory.inner.counts())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn skipping_changes_nothing_without_a_scheme() {
    let config = constant::Config { bytes_per_cycle: 1, ..constant::Config::default() };
    let run = |at_each| {
        let mut memory = Looked::new(constant::Straight::new(&config).unwrap(), at_each);
        let mut workloads = [workload(3, 40), workload(4, 6000)];
        let run = processor::run(&CORES[0], &mut memory, &mut workloads).unwrap();
        (run, memory.looks)
    };
    let ((each, looks), (passing, looks_passing)) = (run(true), run(false));
    assert_eq!(each, passing);
    assert!(looks_passing * 4 < looks);
}

/// Instructions between two misses take their time, no matter how the first miss was served: a
/// cycle for each instruction, and for a path as many as it is long.
#[test]
fn instructions_between_misses_take_their_time() {
    let config = Config { start: Start::Empty, warm_up: 0, ..oram(Scheme::Path, Pace::Asked) };
    let cycles = |misses: u64| {
        let mut memory = Oram::over_constant(&config, &constant::Config::default()).unwrap();
        let record = |nth: u64| Record { before: 10_000, op: Op::Read, addr: nth * LINE_LEN };
        let mut workloads: [Box<dyn Workload>; 1] = [Box::new((0..misses).map(record))];
        let run =
            processor::run(&processor::Config::IN_ORDER, &mut memory, &mut workloads).unwrap();
        (run.cycles, memory.counts().busy)
    };
    for misses in [1, 2, 5] {
        let (cycles, busy) = cycles(misses);
        let least = misses * 10_001 + busy;
        assert!((least..least + 4 * misses).contains(&cycles), "{cycles}, not {least}");
    }
}
