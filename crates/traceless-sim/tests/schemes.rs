//! Every scheme over the same machine and workload: how each differs from the other schemes.

use traceless::rng::{Rng, SeededRng};
use traceless_sim::machine::{Machine, Outcome};
use traceless_sim::oram::{
    Allocation, Config, Counts, Early, MapTree, Pace, Remap, Scheme, Small, Start, Top,
};
use traceless_sim::workload::{LINE_LEN, Op, Prefix, Record, Workload};
use traceless_sim::{constant, llc};

const LEVELS: usize = 14;
const BLOCKS: u64 = 1 << 15;

fn oram(scheme: Scheme) -> Config {
    Config {
        scheme,
        blocks: Some(BLOCKS),
        levels: LEVELS,
        cached_levels: 8,
        plb_bytes: 2048,
        pace: Pace::AfterCompletion(300),
        small: Small { levels: 9, cached_levels: 3, sets: 60, ways: 4, ..Small::default() },
        warm_up: 2000,
        ..Config::default()
    }
}

fn machine(oram: Config) -> Machine {
    let last_level = Some(llc::Config {
        bytes: 4 << 10,
        ways: 8,
        latency: 10,
        reads_before_writes: true,
        brought_before: 0,
    });
    Machine { oram: Some(oram), last_level, ..Machine::ir_oram() }
}

/// Half of the lines are hot. `before` instructions come before each.
fn workload(before: u64) -> Box<dyn Workload> {
    let mut rng = SeededRng::new(5);
    Box::new((0..1500).map(move |_| {
        let range = if rng.below(2) == 0 { BLOCKS } else { 2000 };
        Record {
            before,
            op: if rng.below(3) == 0 { Op::Write } else { Op::Read },
            addr: rng.below(range) * LINE_LEN,
        }
    }))
}

fn run_with(config: Config, before: u64) -> Outcome {
    machine(config).run_after(500, &mut [workload(before)]).unwrap()
}

fn run(scheme: Scheme) -> (Outcome, Counts) {
    let outcome = run_with(oram(scheme), 100);
    let paths = outcome.paths.unwrap();
    (outcome, paths)
}

fn hidden() -> impl Iterator<Item = Scheme> {
    Scheme::NAMED.into_iter().map(|(_, scheme)| scheme).filter(|scheme| *scheme != Scheme::Dram)
}

/// The requests of the last cache are each served once. Paths may be under way when the program
/// ends.
#[test]
fn every_scheme_serves_its_requests() {
    for scheme in hidden() {
        let (outcome, paths) = run(scheme);
        let cache = outcome.last_level.unwrap();
        assert!(cache.read_misses > 500 && cache.write_misses > 200 && cache.write_backs > 200);
        let requested = cache.read_misses + cache.write_misses + cache.write_backs;
        let all = paths.requests + paths.returned;
        if config_of(scheme).remap == Some(Remap::Delayed) {
            assert!(all > requested, "clean lines come back, too: {all} and {requested}");
        } else if config_of(scheme).remap == Some(Remap::WithLine) {
            assert_eq!(paths.requests, cache.read_misses + cache.write_misses, "{scheme:?}");
            assert!(paths.returned >= cache.write_backs);
        } else {
            assert_eq!(all, requested, "{scheme:?}");
        }
        if !matches!(scheme, Scheme::Rho | Scheme::LlcD | Scheme::LlcDIrStashIrAlloc) {
            assert_eq!(paths.data + paths.at_hand + paths.joined, paths.requests, "{scheme:?}");
        }
        assert!(paths.dummy + paths.eviction + paths.early > 0, "{scheme:?}");
        assert_eq!(paths.bytes, paths.lines * LINE_LEN);
    }
}

/// One line after the other: reads all of them, or writes all of them.
fn in_order(op: Op) -> Box<dyn Workload> {
    Box::new((0..2000).map(move |line| Record { before: 100, op, addr: line * LINE_LEN }))
}

fn run_in_order(bundle: u64, op: Op) -> (llc::CacheCounts, Counts) {
    let config = Config { bundle: Some(bundle), ..oram(Scheme::Bundled) };
    let outcome = machine(config).run_after(500, &mut [in_order(op)]).unwrap();
    (outcome.last_level.unwrap(), outcome.paths.unwrap())
}

/// A request for a line while another line of its bundle is on its way is served by the same path;
/// a later request finds the line in the cache.
#[test]
fn neighbours_come_with_one_path() {
    let (alone, paths_alone) = run_in_order(1, Op::Read);
    assert_eq!((alone.read_misses, alone.brought), (1500, 0));
    assert_eq!((paths_alone.data, paths_alone.joined), (1500, 0));
    for bundle in [2, 4] {
        let (cache, paths) = run_in_order(bundle, Op::Read);
        assert_eq!(paths.data, 1500 / bundle);
        assert_eq!(cache.read_misses, 1500 / bundle + paths.joined);
        assert_eq!(cache.brought, 1500 - cache.read_misses);
    }
}

/// The written lines of a bundle go back with one path.
#[test]
fn neighbours_go_with_one_path() {
    let (alone, paths_alone) = run_in_order(1, Op::Write);
    assert!(alone.write_backs > 1490 && alone.taken_along == 0, "{alone:?}");
    assert!(paths_alone.data + paths_alone.early > 2900, "{paths_alone:?}");
    let (cache, paths) = run_in_order(2, Op::Write);
    assert!(cache.taken_along + paths.joined > 500, "{cache:?} {paths:?}");
    let both = (paths.data + paths.early) as f64 / (paths_alone.data + paths_alone.early) as f64;
    assert!((0.45..0.55).contains(&both), "{both}");
}

/// Every request takes a path, no matter what is at hand.
#[test]
fn bundles_are_not_found_by_address() {
    let (_, paths) = run(Scheme::Bundled);
    assert_eq!(paths.at_hand, 0);
    assert!(paths.data > 500);
}

#[test]
fn impossible_bundles_are_refused() {
    let refused = |config: Config| config.check().is_err();
    for bundle in [0, 3, 65, 128] {
        assert!(refused(Config { bundle: Some(bundle), ..oram(Scheme::Bundled) }), "{bundle}");
    }
    for scheme in [Scheme::Path, Scheme::Recursive, Scheme::Ring, Scheme::Rho, Scheme::LlcD] {
        assert!(refused(Config { bundle: Some(2), ..oram(scheme) }), "{scheme:?}");
        assert!(!refused(oram(scheme)), "{scheme:?}");
    }
    assert!(!refused(Config { bundle: Some(2), ..oram(Scheme::IrOram) }));
}

fn config_of(scheme: Scheme) -> Config {
    oram(scheme).resolved()
}

#[test]
fn the_same_seed_gives_the_same_run_of_every_scheme() {
    for scheme in hidden() {
        assert_eq!(run(scheme).0, run(scheme).0, "{scheme:?}");
    }
}

#[test]
fn names_lead_to_schemes() {
    for (name, scheme) in Scheme::NAMED {
        assert_eq!(Scheme::named(name), Some(scheme));
    }
    assert_eq!(Scheme::named("oram"), None);
}

/// A field that a scheme's name sets can be overridden: then the scheme is another one.
#[test]
fn what_a_name_sets_can_be_overridden() {
    let base = run(Scheme::Baseline).0;
    for (scheme, back) in [
        (
            Scheme::IrAlloc,
            Config { allocation: Some(Allocation::named("base")), ..Config::default() },
        ),
        (Scheme::IrStash, Config { top: Some(Top::Apart), ..Config::default() }),
        (Scheme::IrDwb, Config { early: Some(Early::Nothing), ..Config::default() }),
        (Scheme::LlcD, Config { remap: Some(Remap::AtAccess), ..Config::default() }),
    ] {
        let Config { allocation, top, early, remap, .. } = back;
        let config = Config { allocation, top, early, remap, ..oram(scheme) };
        let same = run_with(config, 100);
        assert_eq!(same, base, "{scheme:?}");
        assert_ne!(run(scheme).0, base, "{scheme:?}");
    }
}

/// Blocks of the sub-stash, and of the stash, are found by address, and so take no path.
#[test]
fn what_is_found_by_address_takes_no_path() {
    let (base, stash) = (run(Scheme::Baseline).1, run(Scheme::IrStash).1);
    assert!(stash.at_hand > 4 * base.at_hand + 40, "{} and {}", stash.at_hand, base.at_hand);
    assert!(stash.map < base.map, "{} and {}", stash.map, base.map);
    assert!(base.found[..8].iter().sum::<u64>() > 100);
    // A block of the map that is looked up behind other blocks may still lie in the cached levels.
    assert!(stash.found[..8].iter().sum::<u64>() < base.found[..8].iter().sum::<u64>() / 4);
    let merged = run_with(Config { top: Some(Top::Merged), ..oram(Scheme::IrStash) }, 100);
    let merged = merged.paths.unwrap();
    assert!(merged.at_hand > 4 * base.at_hand + 40);
    let unsearched = Config { searches_first: Some(false), ..oram(Scheme::IrStash) };
    assert_eq!(run_with(unsearched, 100).paths.unwrap().at_hand, 0);
}

/// A tree begins with each block as deep as there is room, so that its leaves are four fifths full
/// when half of its slots are. Blocks in a sub-stash count as well.
#[test]
fn levels_are_as_full_as_they_are_known_to_be() {
    let share = |paths: &Counts, level: usize| {
        assert!(paths.looked_at[level] > 200, "{paths:?}");
        paths.full[level] as f64 / paths.looked_at[level] as f64
    };
    let (base, stash) = (run(Scheme::Baseline).1, run(Scheme::IrStash).1);
    for paths in [&base, &stash] {
        let (leaves, above) = (share(paths, LEVELS - 1), share(paths, LEVELS - 2));
        assert!(
            (0.75..0.85).contains(&leaves) && (0.25..0.45).contains(&above),
            "{leaves} {above}"
        );
    }
    let top = |counts: [u64; 32]| counts[..8].iter().sum::<u64>();
    assert!(top(base.full) > 0 && top(stash.full) > 0);
    assert_eq!(base.looked_at[LEVELS], 0);
}

/// The slots that IR-Alloc saves, and the table of IR-Stash, which has 1020 places here.
#[test]
fn what_a_scheme_takes_besides_is_known() {
    let (base, alloc) = (run(Scheme::Baseline).1, run(Scheme::IrAlloc).1);
    assert_eq!(base.slots, 4 * ((1 << LEVELS) - 1));
    assert!(alloc.slots < base.slots && base.pointer_bits == 0 && alloc.pointer_bits == 0);
    assert_eq!(run(Scheme::IrStash).1.pointer_bits, 1020 * 10);
}

/// A block that finds its set full stays in the stash.
#[test]
fn a_sub_stash_of_few_ways_leaves_more_in_the_stash() {
    let peak = |ways| {
        let config = Config { top_ways: ways, ..oram(Scheme::IrStash) };
        run_with(config, 100).paths.unwrap().stash_peak
    };
    assert!(peak(1) > 2 * peak(16), "{} and {}", peak(1), peak(16));
    for ways in [2, 4] {
        assert!(peak(ways) <= peak(1));
    }
}

/// With few requests there are dummies; lines written back in their place need no later write-back.
#[test]
fn dirty_lines_are_written_back_in_place_of_dummies() {
    let run = |early, before| {
        let config = Config { early: Some(early), ..oram(Scheme::Baseline) };
        let outcome = run_with(config, before);
        (outcome.paths.unwrap(), outcome.last_level.unwrap(), outcome.run.cycles)
    };
    let (base, base_cache, base_cycles) = run(Early::Nothing, 4000);
    assert!(base.early == 0 && base.early_lines == 0);
    for early in [Early::Scan, Early::Queue] {
        let (paths, cache, cycles) = run(early, 4000);
        assert!(paths.early_lines > 100 && paths.early >= paths.early_lines, "{paths:?}");
        assert!(paths.dummy < base.dummy, "{} and {}", paths.dummy, base.dummy);
        assert!(cache.write_backs + 50 < base_cache.write_backs, "{cache:?}");
        assert!(cycles <= base_cycles, "{early:?}: {cycles} and {base_cycles}");
        assert!(cache.early.offered >= paths.early_lines && cache.early.aborted > 0, "{cache:?}");
    }
    // While requests wait there are no dummies to replace.
    let (busy, ..) = run(Early::Scan, 0);
    assert!(busy.early_lines < 20, "{}", busy.early_lines);
}

/// The return of a block that has left takes no access of its own, but looking up its label may.
#[test]
fn delayed_remapping_brings_blocks_back_without_a_path_of_their_own() {
    let (outcome, paths) = run(Scheme::LlcD);
    let cache = outcome.last_level.unwrap();
    assert!(paths.data <= cache.read_misses + cache.write_misses);
    let base = run(Scheme::Baseline).1;
    assert!(paths.data < base.data && paths.map > base.map, "{paths:?}");
}

#[test]
fn labels_that_stay_with_lines_make_write_backs_free() {
    let (outcome, paths) = run(Scheme::Unified);
    let cache = outcome.last_level.unwrap();
    assert_eq!(paths.data, cache.read_misses + cache.write_misses);
    assert!(paths.returned >= cache.write_backs);
    assert!(run(Scheme::Compressed).1.map < paths.map, "twice as many labels in a block");
}

/// A line that the cache never read, because all of it was written, has no label to return with.
#[test]
fn lines_that_were_never_read_are_written_back_with_a_path() {
    for scheme in [Scheme::Unified, Scheme::Compressed, Scheme::Recursive] {
        let mut machine = machine(oram(scheme));
        machine.last_level.as_mut().unwrap().reads_before_writes = false;
        let run = |workload| {
            let outcome = machine.run_after(500, &mut [workload]).unwrap();
            (outcome.last_level.unwrap(), outcome.paths.unwrap())
        };
        let (cache, paths) = run(in_order(Op::Write));
        assert_eq!((paths.requests, paths.returned), (cache.write_backs, 0), "{scheme:?}");
        let (cache, paths) = run(workload(100));
        assert!(cache.write_misses > 200 && paths.returned > 200);
        // The 64 lines that the cache held when the counting began may have been read or only
        // written.
        let unread = paths.requests - cache.read_misses;
        assert!(unread.abs_diff(cache.write_misses) <= 64, "{unread}, {}", cache.write_misses);
    }
}

/// Two of three paths are in the small tree, or as many as configured, no matter what is requested.
#[test]
fn rho_follows_its_pattern() {
    for before in [0, 100, 4000] {
        let paths = run_with(oram(Scheme::Rho), before).paths.unwrap();
        let all = paths.paths();
        assert!((all * 2).abs_diff(paths.other_trees * 3) <= 4, "{} of {all}", paths.other_trees);
    }
    for per_main in [1, 4] {
        let small = Small { per_main: per_main as u32, ..oram(Scheme::Rho).small };
        let paths = run_with(Config { small, ..oram(Scheme::Rho) }, 100).paths.unwrap();
        let (all, small) = (paths.paths(), paths.other_trees);
        assert!(
            (all * per_main).abs_diff(small * (per_main + 1)) <= 2 * per_main,
            "{small} of {all}"
        );
        assert!(paths.data > 0);
    }
}

/// Each request takes a path of each tree, and dummies come in whole rounds, too.
#[test]
fn a_recursive_map_takes_a_path_of_each_tree() {
    for trees in [1, 2, 3, 4] {
        let config = Config { trees, pace: Pace::Asked, ..oram(Scheme::Recursive) };
        let paths = run_with(config, 100).paths.unwrap();
        assert_eq!(paths.dummy + paths.eviction, 0);
        for (level, of_level) in (1..).zip(paths.map_levels) {
            assert_eq!(of_level, if level < trees { paths.data } else { 0 });
        }
        assert_eq!(paths.other_trees, paths.map);
    }
    let paths = run(Scheme::Recursive).1;
    assert!(paths.dummy > 0 && paths.other_trees.abs_diff(paths.paths() / 4 * 3) < 4);
}

/// With a PLB for each map, trees are accessed at their rates, no matter what is requested.
#[test]
fn trees_of_the_map_may_have_rates_of_their_own() {
    let mut config = oram(Scheme::Recursive).resolved();
    for (map, rate) in config.map_trees.as_mut().unwrap().iter_mut().zip([800, 500, 250]) {
        map.rate = Some(rate);
    }
    for before in [0, 4000] {
        let paths = run_with(config.clone(), before).paths.unwrap();
        let shares = f64::from(800 + 500 + 250) / f64::from(1000 + 800 + 500 + 250);
        let share = paths.other_trees as f64 / paths.paths() as f64;
        assert!((share - shares).abs() < 0.01, "{share} of {shares}");
        assert!(paths.map < 3 * paths.data, "the PLBs help");
    }
    let slow = |rate| {
        let mut config = config.clone();
        config.map_trees.as_mut().unwrap()[0].rate = Some(rate);
        run_with(config, 0).run.cycles
    };
    assert!(slow(250) > slow(800), "requests wait for a tree that is accessed too seldom");
    let mut mixed = config.clone();
    mixed.map_trees.as_mut().unwrap()[1].rate = None;
    assert!(machine(mixed).run(&mut [workload(0)]).is_err());
}

/// In a tree that begins empty, the stash and the cached levels are emptier than in a long run.
#[test]
fn trees_begin_full() {
    let empty = Config { start: Start::Empty, warm_up: 0, ..oram(Scheme::Path) };
    let found = |config| run_with(config, 100).paths.unwrap().found.iter().sum::<u64>();
    let paths = run(Scheme::Path).1;
    assert!(found(oram(Scheme::Path)) > paths.data * 9 / 10, "blocks are where labels say");
    assert!(found(empty) < paths.data * 8 / 10, "some were never there");
}

/// The authors' T of 1000 is a quarter of 1000 cycles, and memory operations make it longer.
#[test]
fn readings_of_t_differ_as_they_say() {
    let idle = |pace, before| {
        let outcome = run_with(Config { pace, ..oram(Scheme::Baseline) }, before);
        let paths = outcome.paths.unwrap();
        (outcome.run.cycles - paths.busy) as f64 / paths.paths() as f64
    };
    let close = |a: f64, b: f64| assert!((a - b).abs() < 0.03 * b + 4.0, "{a} and {b}");
    close(idle(Pace::AfterCompletion(1000), 400), 1000.0);
    close(idle(Pace::FetchSlots(1000), 400), 250.0);
    // Every second instruction is a memory operation, and the last cache has all of its lines.
    let config = Config { pace: Pace::FetchSlots(1000), ..oram(Scheme::Baseline) };
    let hits =
        (0..100_000).map(|nth| Record { before: 1, op: Op::Read, addr: nth % 32 * LINE_LEN });
    let outcome = machine(config).run_after(32, &mut [Box::new(hits)]).unwrap();
    let paths = outcome.paths.unwrap();
    close((outcome.run.cycles - paths.busy) as f64 / paths.paths() as f64, 500.0);
    let start = run_with(Config { pace: Pace::StartToStart(2000), ..oram(Scheme::Baseline) }, 400);
    let interval = start.run.cycles as f64 / start.paths.unwrap().paths() as f64;
    close(interval, 2000.0);
}

/// The beginning of [`workload`], for trees of the papers' sizes.
fn short(before: u64) -> Box<dyn Workload> {
    Box::new(Prefix::new(workload(before), 300))
}

/// The memory of the paper on unified ORAM, and its trees.
fn paper(scheme: Scheme, maps: usize) -> Machine {
    let map = |(levels, fanout)| MapTree { levels, fanout, block_bytes: 32, rate: None };
    let map_trees =
        [(23, 9), (19, 11), (16, 12), (12, 16)].into_iter().map(map).take(maps).collect();
    let config = Config {
        levels: 26,
        z: 3,
        cached_levels: 0,
        trees: maps + 1,
        map_trees: Some(map_trees),
        plb_bytes: 32 << 10,
        map_levels: Some(3),
        pace: Pace::Asked,
        start: Start::Empty,
        warm_up: 0,
        ..oram(scheme)
    };
    let config = Config { blocks: Some(1 << 20), ..config };
    Machine { constant: Some(constant::Config::default()), ..machine(config) }
}

/// Cycles of an access from its begin to its end, its accesses to the map included.
fn latency(machine: &Machine) -> f64 {
    let paths = machine.run(&mut [short(0)]).unwrap().paths.unwrap();
    assert_eq!(paths.dummy + paths.eviction, 0);
    paths.busy as f64 / if paths.other_trees > 0 { paths.data } else { paths.paths() } as f64
}

/// 632, 1524 and 1728 cycles are the figures of Table 4: paths of 5,824 bytes, and of 58 and 70
/// levels of 128 bytes, read and written at 20 bytes a cycle; 50 cycles for each tree.
#[test]
fn accesses_take_as_long_as_in_the_paper_on_unified_oram() {
    for (scheme, maps, cycles) in [
        (Scheme::Unified, 0, 632.0),
        (Scheme::Compressed, 0, 632.0),
        (Scheme::Recursive, 3, 1524.0),
        (Scheme::Recursive, 4, 1728.0),
    ] {
        let measured = latency(&paper(scheme, maps));
        // Rounding to whole cycles loses up to one cycle for each tree.
        assert!((measured - cycles).abs() < 2.5, "{scheme:?}: {measured}, not {cycles}");
    }
}

/// One line is requested again and again: every sixteenth access fills a counter of four bits, and
/// each of its 31 siblings gets another label by a path of its own.
#[test]
fn the_memory_of_the_map_is_reported() {
    let read = |scheme, maps, counter_bits| {
        let Machine { oram, constant, .. } = paper(scheme, maps);
        let oram = oram.map(|oram| Config { counter_bits, ..oram });
        let machine = Machine { oram, constant, last_level: None, ..Machine::ir_oram() };
        let again = (0..320).map(|_| Record { before: 4000, op: Op::Read, addr: 0 });
        let outcome = machine.run(&mut [Box::new(again)]).unwrap();
        (outcome.paths.unwrap(), outcome.map.unwrap())
    };
    let (paths, map) = read(Scheme::Compressed, 0, Some(4));
    assert_eq!((paths.data, map.group_remaps), (320, 20));
    assert_eq!(paths.map, 3 + 20 * 31, "the map itself is requested for once");
    assert_eq!(map.block_bits, 64 + 32 * 4);
    assert_eq!(map.bytes * paths.paths(), paths.bytes * paths.map, "all paths are alike");

    let (_, map) = read(Scheme::Compressed, 0, None);
    assert_eq!((map.block_bits, map.group_remaps), (512, 0), "section 5.3: 64 and 32 times 14");
    let (_, map) = read(Scheme::Unified, 0, None);
    assert_eq!((map.block_bits, map.group_remaps), (512, 0), "16 labels of 32 bits");

    // Section 2.3.2: 8.7 KB of 14.4 KB belong to the map's four trees.
    let (paths, map) = read(Scheme::Recursive, 4, None);
    let share = map.bytes as f64 / paths.bytes as f64;
    assert!((share - 0.606).abs() < 0.001, "{share}");
    let kib = map.bytes as f64 / paths.data as f64 / 2048.0;
    assert!((kib - 8.75).abs() < 0.01, "{kib}");
}

/// Twenty bytes for a hash in each bucket make a longer path; a fixed pace adds dummies.
#[test]
fn threat_models_cost_what_they_say() {
    let plain = paper(Scheme::Unified, 0);
    let with = |change: fn(&mut Config)| {
        let mut machine = plain.clone();
        change(machine.oram.as_mut().unwrap());
        machine
    };
    // A bucket of 217 and 20 bytes takes 240.
    let hashed = with(|c| c.bucket.hash_bytes = 20);
    assert!((latency(&hashed) - (50.0 + 2.0 * 26.0 * 240.0 / 20.0)).abs() < 1.0);
    let paced = with(|c| c.pace = Pace::AfterCompletion(100));
    let run = |machine: &Machine| machine.run(&mut [short(2000)]).unwrap();
    let (free, paced) = (run(&plain), run(&paced));
    assert!(paced.paths.unwrap().dummy > 0 && paced.run.cycles > free.run.cycles);
    let paths = paced.paths.unwrap();
    let intervals = (paced.run.cycles / (632 + 100)).abs_diff(paths.paths());
    assert!(intervals <= 2 + paths.paths() / 200, "{intervals}");
}

/// The interval of a recursive ORAM may come after each path, or after all five paths of an access.
#[test]
fn rounds_may_have_the_pace() {
    let measured = |paced_rounds| {
        let Machine { oram, .. } = paper(Scheme::Recursive, 4);
        let pace = Pace::AfterCompletion(100);
        let oram = oram.map(|oram| Config { pace, paced_rounds, ..oram });
        let machine = Machine { oram, ..paper(Scheme::Recursive, 4) };
        let Outcome { run, paths, .. } = machine.run(&mut [short(2000)]).unwrap();
        run.cycles as f64 * 5.0 / paths.unwrap().paths() as f64
    };
    let (of_paths, of_rounds) = (measured(false), measured(true));
    assert!((of_paths - (1728.0 + 5.0 * 100.0)).abs() < 10.0, "{of_paths}");
    assert!((of_rounds - (1728.0 + 100.0)).abs() < 10.0, "{of_rounds}");
}

/// If caches keep no labels, a unified ORAM looks up some of them, and a recursive one all of them,
/// and its blocks besides.
#[test]
fn labels_on_chip_save_accesses() {
    let paths = |scheme, maps, remap| {
        let mut machine = paper(scheme, maps);
        machine.oram.as_mut().unwrap().remap = Some(remap);
        machine.run(&mut [short(0)]).unwrap().paths.unwrap().paths() as f64
    };
    let penalty =
        |scheme, maps| paths(scheme, maps, Remap::Delayed) / paths(scheme, maps, Remap::WithLine);
    let (unified, recursive) = (penalty(Scheme::Compressed, 0), penalty(Scheme::Recursive, 4));
    assert!(1.0 < unified && unified < recursive, "{unified} and {recursive}");
    assert!(recursive > 1.6, "{recursive}");
}

/// Without a scheme, a memory of bandwidth and latency is much faster, and has no channels.
#[test]
fn a_memory_of_bandwidth_alone_needs_no_scheme() {
    let machine = paper(Scheme::Dram, 0);
    let outcome = machine.run(&mut [short(0)]).unwrap();
    assert!(outcome.paths.is_none() && outcome.dram.is_none() && outcome.channels.is_empty());
    let hidden = paper(Scheme::Unified, 0).run(&mut [short(0)]).unwrap();
    assert!(outcome.run.cycles * 5 < hidden.run.cycles);
}

/// While no stash fills, the places of blocks affect neither which paths are accessed nor when.
#[test]
fn trees_may_forget() {
    for scheme in [Scheme::Path, Scheme::Recursive, Scheme::Unified, Scheme::Compressed] {
        for (remap, pace) in
            [(Remap::WithLine, Pace::Asked), (Remap::AtAccess, Pace::AfterCompletion(100))]
        {
            let run = |forgets| {
                let start = Start::Empty;
                let oram = Config { cached_levels: 0, start, forgets, pace, ..oram(scheme) };
                let oram = Config { remap: Some(remap), searches_first: Some(false), ..oram };
                let constant = Some(constant::Config::default());
                let machine = Machine { constant, ..machine(oram) };
                let outcome = machine.run_after(500, &mut [workload(20)]).unwrap();
                let counted = outcome.paths.unwrap();
                let Counts { found, looked_at, full, .. } = Counts::default();
                let paths = Counts { found, looked_at, full, stash_peak: 0, ..counted };
                (outcome.run, paths, counted.found.iter().sum::<u64>())
            };
            let (kept, forgotten) = (run(false), run(true));
            assert_eq!((kept.0, kept.1), (forgotten.0, forgotten.1), "{scheme:?}");
            assert_eq!(kept.1.eviction, 0, "{scheme:?}");
            assert!(kept.2 > 100 && forgotten.2 == 0, "{scheme:?}");
        }
    }
    let full = Config { cached_levels: 0, forgets: true, ..oram(Scheme::Unified) };
    let cached = Config { start: Start::Empty, forgets: true, ..oram(Scheme::Unified) };
    for wrong in [full, cached] {
        assert!(machine(wrong).run(&mut [workload(20)]).is_err());
    }
}

/// Cached levels of Ring ORAM are not read from memory.
#[test]
fn cached_levels_of_ring_take_no_lines() {
    let lines = |cached_levels| {
        let config = Config { cached_levels, pace: Pace::Asked, ..oram(Scheme::Ring) };
        let paths = run_with(config, 100).paths.unwrap();
        paths.lines as f64 / paths.paths() as f64
    };
    let (all, some) = (lines(0), lines(4));
    assert!(some < all * 0.9, "{some} and {all}");
}

/// A longer pause after a search in vain finds fewer lines; a queue is limited by its room.
#[test]
fn searches_for_early_write_backs_have_their_bounds() {
    let search = |config| run_with(config, 4000).last_level.unwrap().early;
    let paused =
        [0, 1000, 1 << 30].map(|early_pause| search(Config { early_pause, ..oram(Scheme::IrDwb) }));
    assert!(paused[0].in_vain > paused[1].in_vain && paused[1].in_vain > paused[2].in_vain);
    assert!(paused[1].offered > paused[2].offered, "{paused:?}");
    let queue = |early_queue| {
        search(Config { early: Some(Early::Queue), early_queue, ..oram(Scheme::Baseline) })
    };
    let (short, long) = (queue(0), queue(64));
    assert!(short.offered == 0 && long.offered > 100, "{short:?} {long:?}");
}
