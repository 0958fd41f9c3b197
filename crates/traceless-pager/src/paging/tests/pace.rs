//! At a constant rate the store shows the same, however many faults a program has.

use super::super::{
    Config, Counters, Error, EvictMethod, Pace, PagedRegion, Policy, SharedCounters, SharedMemory,
};
use super::{EVICT_METHODS, agrees_with_an_array, plain};
use crate::PAGE_LEN;
use crate::scheme::{Areas, DetWo, FusedPath, PageScheme, TreeParts, TreeSize};
use crate::slots::{Cipher, PageAegis};
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;
use traceless::clock::MachineClock;
use traceless::rng::{SeededRng, System};
use traceless::seal::Secret;
use traceless::store::{Store, WatchedStore};
use traceless::trace::{Event, Op, Recorder};
use traceless_block::detwo::Refresh;

const PAGES: u64 = 64;

/// Slow enough that few ticks are late by a quarter of a period, even on a busy machine.
const PACE: Pace = Pace { per_second: 25, length: 12 };
const PERIOD_NS: u64 = 40_000_000;

/// Faults of the two programs, and how long they pause after each. Both end before the length does.
const PROGRAMS: [(usize, Duration); 2] = [(6, Duration::ZERO), (2, Duration::from_millis(70))];

/// Runs of a program that are tried until no tick is late.
const TRIES: usize = 40;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    DetWo,
    FusedPath,
}

impl Kind {
    /// The scheme, over a store that records its events with their times.
    fn build(self) -> (Box<dyn PageScheme>, Arc<Recorder>) {
        let (key, refresh) = (Secret::random(&mut System), Refresh::new(3, 1).unwrap());
        let len = match self {
            Self::DetWo => Areas::store_len(PAGES, refresh),
            Self::FusedPath => TreeSize::path(PAGES, 0, &PageAegis::new(&key)).unwrap().store,
        };
        let recorder = Arc::new(Recorder::default());
        let memory = SharedMemory::unnamed(len).unwrap();
        let store = WatchedStore::with_clock(memory, recorder.clone(), MachineClock);
        let (store, salts) = (Arc::new(store) as Arc<dyn Store>, Box::new(System));
        let scheme: Box<dyn PageScheme> = match self {
            Self::DetWo => {
                let areas = Areas::new(store, PAGES, refresh, Cipher::default(), &key, salts);
                Box::new(DetWo::new(areas.unwrap()))
            }
            Self::FusedPath => {
                let rng = Box::new(SeededRng::drawn(&mut System));
                let sealer = PageAegis::new;
                let parts = TreeParts { store, pages: PAGES, cached: 0, sealer, rng, salts };
                Box::new(FusedPath::path(parts).unwrap())
            }
        };
        (scheme, recorder)
    }

    /// What an observer notes of an event, beside its time: of a write its place; of a tree, which
    /// draws places, how many bytes are read or written.
    fn note(self, event: &Event) -> Option<(Op, u64, u32)> {
        match self {
            Self::DetWo => (event.op == Op::Write).then_some((event.op, event.at, event.len)),
            Self::FusedPath => Some((event.op, 0, event.len)),
        }
    }
}

/// What an observer of the store notes of a program, from its start to the end of the ticks.
struct Observation {
    /// Each event, with the number of the tick that its time is nearest to.
    events: Vec<(u64, (Op, u64, u32))>,
    ticks: u64,
    delay_max_ns: u64,
}

/// Runs a program of so many faults, with a pause after each.
fn observe(kind: Kind, program: (usize, Duration), skips_idle_ticks: bool) -> Observation {
    let (faults, pause) = program;
    let (scheme, recorder) = kind.build();
    let counters: SharedCounters = Arc::new(Box::<Counters>::default());
    let config = Config {
        frames: 8,
        pace: Some(PACE),
        skips_idle_ticks,
        counters: counters.clone(),
        ..Config::default()
    };
    let mut region = PagedRegion::new(scheme, config).unwrap();
    // As many pages as there is room for come without an access.
    for page in 0..8 + faults {
        region[page * PAGE_LEN] = 1;
        if page >= 8 {
            std::thread::sleep(pause);
        }
    }
    drop(region);
    let counted = counters.summary();
    assert_eq!(counted.ticks % PACE.length, 0, "{counted:?}");
    assert_eq!(counted.ticks_used, faults as u64, "{counted:?}");
    let events = recorder.take();
    let first = events[0].time;
    // Lengths of neighbours on a path that are one extent depend on the path alone.
    let mut all: Vec<(u64, (Op, u64, u32))> = vec![];
    for event in &events {
        let tick = (event.time - first + PERIOD_NS / 2) / PERIOD_NS;
        let Some(note) = kind.note(event) else { continue };
        match all.last_mut() {
            Some((last, (op, _, len)))
                if kind == Kind::FusedPath && (*last, *op) == (tick, note.0) =>
            {
                *len += note.2;
            }
            _ => all.push((tick, note)),
        }
    }
    let delay_max_ns = counters.tick_delay_max_ns.load(Relaxed);
    Observation { events: all, ticks: counted.ticks, delay_max_ns }
}

/// A run of the program that ends within the length, without late ticks.
fn observe_quietly(kind: Kind, program: (usize, Duration), skips_idle_ticks: bool) -> Observation {
    let runs = (0..TRIES).map(|_| observe(kind, program, skips_idle_ticks));
    let is_quiet = |run: &Observation| run.delay_max_ns < PERIOD_NS / 4 && run.ticks == PACE.length;
    runs.into_iter().find(is_quiet).expect("the machine is not too busy")
}

/// Whether the two programs look alike.
fn look_alike(kind: Kind, skips_idle_ticks: bool) -> bool {
    let [one, other] = PROGRAMS.map(|program| observe_quietly(kind, program, skips_idle_ticks));
    one.events == other.events
}

#[test]
fn programs_with_other_numbers_of_faults_look_alike_at_a_constant_rate() {
    for kind in [Kind::DetWo, Kind::FusedPath] {
        assert!(look_alike(kind, false), "{kind:?}");
        assert!(!look_alike(kind, true), "{kind:?}: idle ticks that are left out are noticed");
    }
}

#[test]
fn a_region_is_memory_at_a_constant_rate() {
    for method in EVICT_METHODS {
        for policy in [Policy::Fifo, Policy::Clock] {
            if policy == Policy::Clock && method == EvictMethod::Protect {
                continue;
            }
            for kind in [Kind::DetWo, Kind::FusedPath] {
                let (scheme, _) = kind.build();
                let pace = Some(Pace { per_second: 20_000, length: 1 });
                let evict_method = Some(method);
                let config = Config { frames: 12, policy, pace, evict_method, ..Config::default() };
                let mut region = PagedRegion::new(scheme, config).unwrap();
                agrees_with_an_array(&mut region);
                let stats = region.stats();
                assert!(stats.evictions > 300 && stats.resident_max == 12, "{stats:?}");
                assert!(stats.ticks_used <= stats.ticks, "{stats:?}");
            }
        }
    }
}

/// Pages that a tree still has, though they were discarded, come while there is room, and leave.
#[test]
fn discarded_pages_come_and_leave_at_a_constant_rate() {
    for kind in [Kind::DetWo, Kind::FusedPath] {
        let pace = Some(Pace { per_second: 20_000, length: 1 });
        let config = Config { frames: 12, pace, ..Config::default() };
        let mut region = PagedRegion::new(kind.build().0, config).unwrap();
        for round in 1..4 {
            for page in 0..40 {
                assert_eq!(region[page * PAGE_LEN], 0, "{kind:?}, page {page}");
                region[page * PAGE_LEN] = round;
            }
            region.discard(0, 40).unwrap();
        }
    }
}

#[test]
fn a_scheme_that_hides_nothing_has_no_constant_rate() {
    let config = Config { pace: Some(PACE), ..Config::default() };
    assert!(matches!(PagedRegion::new(plain(64), config), Err(Error::Configuration(_))));
}
