//! The trace of the bus's witness: all lines that the memory must read or write, and when.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use traceless::rng::{Rng, SeededRng};
use traceless::store::DrawnPlaces;
use traceless::trace::{Event, Op, Recorder, Witness};
use traceless_sim::constant;
use traceless_sim::dram::Command;
use traceless_sim::machine::{Machine, Outcome};
use traceless_sim::oram::{Config, MapTree, Pace, Scheme, layouts};
use traceless_sim::workload::{LINE_LEN, Op as Asked, Program, Record, Workload};
use traceless_sim::{LiveObserver, LiveRun, Watch};

const LEVELS: usize = 9;

fn machine(scheme: Scheme) -> Machine {
    let oram = Config {
        scheme,
        blocks: Some(1 << LEVELS),
        levels: LEVELS,
        cached_levels: 3,
        plb_bytes: 1 << 10,
        warm_up: 100,
        ..Config::default()
    };
    Machine { oram: Some(oram), ..Machine::ir_oram() }
}

fn programs() -> [Program; 1] {
    let mut rng = SeededRng::new(3);
    let records = (0..500).map(move |_| Record {
        before: rng.below(300),
        op: if rng.below(3) == 0 { Asked::Write } else { Asked::Read },
        addr: rng.below(1 << LEVELS) * LINE_LEN,
    });
    let workload: Box<dyn Workload> = Box::new(records);
    [workload.into()]
}

fn watched(machine: &Machine, commands: bool) -> (Outcome, Vec<Event>) {
    let recorder = Arc::new(Recorder::default());
    let watch = Watch { lines: Some(recorder.clone()), commands, ..Watch::default() };
    (machine.run_watched(20, &mut programs(), &watch).unwrap(), recorder.take())
}

#[test]
fn all_lines_are_reported_and_nothing_else_changes() {
    for scheme in [Scheme::IrOram, Scheme::Ring, Scheme::Rho, Scheme::Recursive] {
        let mut machine = machine(scheme);
        let oram = machine.oram.as_mut().unwrap();
        oram.map_trees = Some(vec![]);
        oram.small.levels = 6;
        (oram.small.sets, oram.small.ways, oram.small.cached_levels) = (8, 4, 2);
        let alone = machine.run_programs(20, &mut programs()).unwrap();
        let (seen, events) = watched(&machine, false);
        assert_eq!((alone.run, alone.paths), (seen.run, seen.paths), "{scheme:?}");
        assert_eq!(alone.channels, seen.channels, "{scheme:?}");
        assert_eq!(events.len() as u64, seen.paths.unwrap().lines, "{scheme:?}");
        assert!(events.is_sorted_by_key(|event| event.time), "{scheme:?}");
        assert!(seen.commands.iter().all(Vec::is_empty));
    }
}

/// Each requested line is read or written by a later command, except for lines of a path that is
/// under way at the end.
#[test]
fn commands_are_kept_if_they_are_watched() {
    let (outcome, events) = watched(&machine(Scheme::Path), true);
    for (op, command) in [(Op::Read, Command::Read), (Op::Write, Command::Write)] {
        let all = outcome.commands.iter().flatten().filter(|logged| logged.command == command);
        let requested: Vec<_> = events.iter().filter(|event| event.op == op).collect();
        let missing = requested.len() - all.clone().count();
        assert!(missing <= outcome.paths.unwrap().lines as usize / 100, "{op:?}: {missing}");
        let first = all.map(|logged| logged.at).min().unwrap();
        assert!(first >= requested[0].time);
    }
}

/// The last line of a path identifies it to an observer, and each path is one of the layouts'.
#[test]
fn paths_lie_where_layouts_say() {
    let machine = machine(Scheme::IrAlloc);
    let trees = layouts(machine.oram.as_ref().unwrap(), &machine.memory).unwrap();
    let mut paths = vec![];
    for leaf in 0..trees[0].leaves() {
        let mut lines = vec![];
        trees[0].path(traceless::types::Leaf(leaf), &mut lines);
        paths.push(lines);
    }
    let (_, events) = watched(&machine, false);
    let len = trees[0].path_lines();
    assert!(events.len() > 100 * len);
    for path in events.chunks_exact(len) {
        let lines: Vec<u64> = path.iter().map(|event| event.at).collect();
        assert!(path.iter().all(|event| (event.time, event.op) == (path[0].time, path[0].op)));
        assert!(paths.contains(&lines));
    }
}

/// The tree of an access follows from the number of accesses before it, however full stashes are.
#[test]
fn trees_of_a_recursive_map_take_turns() {
    let map = |levels| MapTree { levels, fanout: 16, block_bytes: 64, rate: None };
    let mut machine = machine(Scheme::Recursive);
    let oram = machine.oram.as_mut().unwrap();
    oram.map_trees = Some(vec![map(5), map(2)]);
    (oram.z, oram.drain_above) = (2, Some(0));
    let trees = layouts(machine.oram.as_ref().unwrap(), &machine.memory).unwrap();
    let (outcome, events) = watched(&machine, false);
    let paths = outcome.paths.unwrap();
    assert!(paths.eviction > 20 && paths.dummy > 5 && paths.data > 50, "{paths:?}");
    let mut reads = events.iter().filter(|event| event.op == Op::Read).peekable();
    for nth in 0.. {
        if reads.peek().is_none() {
            break;
        }
        let tree = &trees[2 - nth % 3];
        let path: Vec<_> = reads.by_ref().take(tree.path_lines()).collect();
        let begin = if nth % 3 == 2 { 0 } else { trees[1 - nth % 3].end() };
        let is_here = |at: u64| at >= begin && at < tree.end();
        assert!(path.iter().all(|event| event.time == path[0].time && is_here(event.at)));
    }
}

#[test]
fn a_memory_that_counts_bytes_gets_a_path_at_once() {
    let pace = Pace::StartToStart(5000);
    let mut machine = machine(Scheme::Path);
    machine.constant = Some(constant::Config::default());
    machine.oram.as_mut().unwrap().pace = pace;
    let (outcome, events) = watched(&machine, true);
    assert_eq!(events.len() as u64, outcome.paths.unwrap().lines);
    assert!(events.iter().all(|event| event.time.is_multiple_of(5000)));
    assert_eq!(outcome.commands, [] as [Vec<_>; 0]);
}

/// What a live page gets of a run.
#[derive(Default)]
struct LiveCounts {
    spaces: Mutex<Vec<(u64, u64)>>,
    lines: AtomicU64,
    requests: AtomicU64,
    leaves: Mutex<Option<Box<dyn DrawnPlaces>>>,
    drawn: AtomicU64,
}

impl Witness for LiveCounts {
    fn record(&self, event: Event) {
        self.lines.fetch_add(1, Relaxed);
        let leaves = self.leaves.lock().unwrap();
        let drawn = leaves.as_ref().filter(|leaves| leaves.shown_by() == event.op);
        let shown = drawn.is_some_and(|leaves| leaves.drawn(&event).is_some());
        self.drawn.fetch_add(shown.into(), Relaxed);
    }
}

/// One observer of all runs.
struct SharedCounts(Arc<LiveCounts>);

impl LiveObserver for SharedCounts {
    fn begin(&self, bus: u64) -> Arc<dyn LiveRun> {
        self.0.spaces.lock().unwrap().push((bus, 0));
        self.0.clone()
    }
}

impl LiveRun for LiveCounts {
    fn begin_requests(&self, bytes: u64, leaves: Option<Box<dyn DrawnPlaces>>) {
        self.spaces.lock().unwrap().last_mut().unwrap().1 = bytes;
        *self.leaves.lock().unwrap() = leaves;
    }
    fn record_request(&self, _: Asked, _: u64) {
        self.requests.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_live_observer_follows_every_machine_and_changes_none() {
    let hidden = machine(Scheme::Path);
    let bytes = constant::Config::default();
    let plain = Machine { oram: None, ..hidden.clone() };
    let counted = Machine { constant: Some(bytes), ..hidden.clone() };
    let straight = Machine { constant: Some(bytes), ..plain.clone() };
    for (machine, has_lines) in [(hidden, true), (counted, true), (plain, true), (straight, false)]
    {
        let live = Arc::new(LiveCounts::default());
        let observer = Arc::new(SharedCounts(live.clone()));
        let watch = Watch { live: Some(observer), ..Watch::default() };
        let seen = machine.run_watched(20, &mut programs(), &watch).unwrap();
        assert_eq!(seen.run, machine.run_programs(20, &mut programs()).unwrap().run);
        assert_eq!(live.lines.load(Relaxed) > 0, has_lines);
        if let (Some(paths), Some(_)) = (seen.paths, machine.constant) {
            // Each path shows one leaf.
            let path_lines = layouts(machine.oram.as_ref().unwrap(), &machine.memory).unwrap()[0]
                .path_lines() as u64;
            assert_eq!(live.drawn.load(Relaxed), paths.lines / (2 * path_lines));
            assert_eq!(live.lines.load(Relaxed), paths.lines);
        }
        assert!(live.requests.load(Relaxed) > 0);
        let bus = machine.constant.map_or(machine.memory.geometry.capacity(), |it| it.capacity);
        let spaces = live.spaces.lock().unwrap();
        assert!(spaces.len() == 1 && spaces[0].0 == bus && spaces[0].1 > 0, "{spaces:?}");
    }
}

#[test]
fn where_nothing_is_hidden_nothing_is_watched() {
    let machine = Machine { oram: None, ..machine(Scheme::Path) };
    let watch = Watch { lines: Some(Arc::new(())), ..Watch::default() };
    assert!(machine.run_watched(0, &mut programs(), &watch).is_err());
}
