//! Latencies of operations, compared with known values.

use traceless_sim::latency::Latency;
use traceless_sim::machine::{Machine, Outcome};
use traceless_sim::oram::{Config, Latencies, Pace, Scheme, Small, Start};
use traceless_sim::workload::{Op, Record, Workload, named};
use traceless_sim::{constant, llc, processor};

/// Cycles of a path, in the memory of [`straight`].
const PATH: u64 = 100;

/// Three levels of buckets of four blocks: 3 · 4 · 64 bytes, there and back, in 96 cycles of 16
/// bytes, and four cycles besides.
fn straight(oram: Config) -> Machine {
    let bucket =
        traceless_sim::oram::Bucket { slot_bits: 0, counter_bits: 0, hash_bytes: 0, align: 1 };
    let oram = Config {
        levels: 3,
        cached_levels: 0,
        stash_blocks: 60,
        drain_above: Some(60),
        plb_bytes: 128,
        plb_ways: 1,
        pace: Pace::Asked,
        warm_up: 0,
        start: Start::Empty,
        searches_first: Some(false),
        bucket,
        ..oram
    };
    let constant =
        constant::Config { bytes_per_cycle: 16, latency: 1, oram_latency: 4, capacity: 1 << 20 };
    Machine {
        processor: processor::Config::IN_ORDER,
        last_level: None,
        oram: Some(oram),
        constant: Some(constant),
        ..Machine::FOUR_CHANNELS
    }
}

fn run(machine: &Machine, records: &[(u64, Op, u64)]) -> Outcome {
    let records: Vec<_> =
        records.iter().map(|&(before, op, line)| Record { before, op, addr: line * 64 }).collect();
    let mut workloads: [Box<dyn Workload>; 1] = [Box::new(records.into_iter())];
    machine.run(&mut workloads).unwrap()
}

fn each(count: u64, cycles: u64) -> Latency {
    Latency { count, mean: cycles as f64, p50: cycles, p99: cycles, max: cycles }
}

/// Without a map each read takes a path, which begins in the next cycle. Two hundred instructions
/// lie between the reads, so that none waits.
#[test]
fn a_read_of_an_idle_memory_takes_a_path() {
    let machine = straight(Config { scheme: Scheme::Path, blocks: Some(12), ..Config::default() });
    let latencies = run(&machine, &[(200, Op::Read, 3), (200, Op::Read, 4)]).latencies.unwrap();
    let mut expected = Latencies { reads: each(2, 1 + PATH), ..Latencies::default() };
    expected.reads_by_map[0] = each(2, 1 + PATH);
    expected.paths.data = each(2, PATH);
    assert_eq!(latencies, expected);
}

/// A read behind a write-back waits for the path of the write-back; it is requested a cycle later.
#[test]
fn a_waiting_read_takes_as_much_longer() {
    let machine = straight(Config { scheme: Scheme::Path, blocks: Some(12), ..Config::default() });
    let latencies = run(&machine, &[(200, Op::Write, 3), (0, Op::Read, 4)]).latencies.unwrap();
    assert_eq!(latencies.write_backs, each(1, 1 + PATH));
    assert_eq!(latencies.reads, each(1, 2 * PATH));
    assert_eq!(latencies.paths.data, each(2, PATH));
}

/// The first read of a unified ORAM looks up the whole map; the next read of the same group looks
/// up nothing, because the PLB has the label.
#[test]
fn accesses_to_the_map_are_counted_for_each_read() {
    let machine = straight(Config {
        scheme: Scheme::Unified,
        blocks: Some(16),
        map_levels: Some(2),
        map_fanout: Some(2),
        remap: Some(traceless_sim::oram::Remap::AtAccess),
        ..Config::default()
    });
    let machine = Machine {
        oram: machine.oram.map(|oram| Config { levels: 4, plb_bytes: 1024, ..oram }),
        ..machine
    };
    let latencies = run(&machine, &[(900, Op::Read, 0), (900, Op::Read, 1), (900, Op::Read, 2)])
        .latencies
        .unwrap();
    // Four levels: 128 cycles of bytes, and 4.
    let path = 132;
    assert_eq!(latencies.reads_by_map[2], each(1, 1 + 3 * path), "map, map, data");
    assert_eq!(latencies.reads_by_map[0], each(1, 1 + path), "of the same block of the map");
    assert_eq!(latencies.reads_by_map[1], each(1, 1 + 2 * path), "of its neighbour");
    assert_eq!(latencies.reads.count, 3);
    assert_eq!((latencies.paths.map, latencies.paths.data), (each(3, path), each(3, path)));
}

/// In every scheme, each read and each path access is of one kind, and the latencies of path
/// accesses sum up to the cycles counted for them.
#[test]
fn nothing_is_left_out_and_nothing_counted_twice() {
    for (name, scheme) in Scheme::NAMED.into_iter().filter(|(_, s)| *s != Scheme::Dram) {
        let oram = Config {
            scheme,
            blocks: Some(1 << 13),
            levels: 12,
            cached_levels: 6,
            plb_bytes: 1024,
            pace: Pace::AfterCompletion(300),
            small: Small { levels: 7, cached_levels: 2, sets: 16, ways: 4, ..Small::default() },
            warm_up: 500,
            ..Config::default()
        };
        let last_level = llc::Config {
            bytes: 8 << 10,
            ways: 4,
            latency: 10,
            reads_before_writes: true,
            brought_before: 0,
        };
        let machine =
            Machine { oram: Some(oram), last_level: Some(last_level), ..Machine::ir_oram() };
        let made_up = "uniform?bytes=512K&before=500&write_share=0.3";
        let mut workloads = [named(made_up, 900, 1).unwrap()];
        let Outcome { paths, latencies, last_level, .. } =
            machine.run_after(300, &mut workloads).unwrap();
        let (paths, latencies) = (paths.unwrap(), latencies.unwrap());
        let Latencies { reads, reads_at_hand, reads_by_map, .. } = latencies;
        let kinds = [reads_at_hand].into_iter().chain(reads_by_map);
        assert_eq!(kinds.map(|kind| kind.count).sum::<u64>(), reads.count, "{name}");
        assert_eq!(
            reads.count,
            last_level.unwrap().read_misses + last_level.unwrap().write_misses,
            "{name}"
        );
        let of = latencies.paths;
        let all = [of.data, of.map, of.dummy, of.eviction, of.early];
        let counted = [paths.data, paths.map, paths.dummy, paths.eviction, paths.early];
        let under_way = counted.iter().sum::<u64>() - all.iter().map(|l| l.count).sum::<u64>();
        assert!(under_way <= 1, "{name}: {under_way} path accesses have no end");
        let busy: f64 = all.iter().map(|latency| latency.mean * latency.count as f64).sum();
        assert!((busy - paths.busy as f64).abs() < 1.0, "{name}: {busy} of {}", paths.busy);
        for latency in all.into_iter().chain([reads, latencies.write_backs]) {
            assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.max, "{name}");
        }
        assert!(reads.mean > of.data.mean, "{name}: who waits for a path waits for all of it");
    }
}

/// In a memory with a bandwidth alone, a line takes its latency, and one behind it waits for the
/// bus.
#[test]
fn a_memory_that_hides_nothing_has_latencies_too() {
    let scheme = Config { scheme: Scheme::Path, blocks: Some(12), ..Config::default() };
    let machine = Machine { oram: None, ..straight(scheme) };
    let latencies = run(&machine, &[(200, Op::Read, 3), (200, Op::Write, 4)]).latencies.unwrap();
    let mut expected = Latencies { reads: each(1, 1), ..Latencies::default() };
    expected.reads_by_map[0] = each(1, 1);
    expected.write_backs = each(1, 4);
    assert_eq!(latencies, expected);
}

/// A read of a DRAM with its row closed: a command each for row and column, eleven cycles of the
/// DRAM between them, and eleven and four for the data. A second read of the same line finds the
/// first in the queue; a read of a line that waits to be written has its data at once.
#[test]
fn reads_of_a_dram_are_distinguished() {
    let outcome = run(&Machine::FOUR_CHANNELS, &[(200, Op::Read, 0), (0, Op::Read, 0)]);
    let latencies = outcome.latencies.unwrap();
    // The request comes within a cycle of the DRAM, which is four of the processor.
    let alone = latencies.reads_by_map[0].max;
    let most = 4 * (1 + 11 + 11 + 4);
    assert!((most - 4..most).contains(&alone), "{alone} of {most}");
    assert_eq!(latencies.reads_by_map[0], each(1, alone));
    assert_eq!(latencies.reads_at_hand, each(1, 1), "it joined the first");
    assert_eq!((latencies.reads.count, latencies.reads.max), (2, alone));

    let outcome = run(&Machine::FOUR_CHANNELS, &[(0, Op::Write, 0), (0, Op::Read, 0)]);
    let latencies = outcome.latencies.unwrap();
    assert_eq!(latencies.reads, each(1, 10), "what a queued write holds");
    assert_eq!(latencies.reads_at_hand, latencies.reads);
    assert_eq!(latencies.write_backs.count, 1);
}

/// Counts and means agree with the channels' own counters, channel by channel and together.
/// `goldens.rs` compares these counters with USIMM's, and `usimm.rs` compares cycles.
#[test]
fn times_of_a_dram_are_what_its_channels_count() {
    for (name, len) in [("uniform?before=3&write_share=0.4", 20_000), ("uniform?bytes=1K", 5000)] {
        let mut workloads = [named(name, len, 1).unwrap()];
        let outcome = Machine::FOUR_CHANNELS.run(&mut workloads).unwrap();
        let Outcome { latencies, channels, channel_times, .. } = outcome;
        let latencies = latencies.unwrap();
        let mut merged = 0;
        for (stats, times) in channels.iter().zip(&channel_times) {
            for (stats, times) in [(stats.reads, &times.reads), (stats.writes, &times.writes)] {
                let latency = Latency::of(times);
                assert_eq!(latency.count, stats.served);
                assert!((latency.mean - stats.latency()).abs() < 1e-9);
                assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.max);
            }
            assert_eq!(Latency::of(&times.merged_reads).count, stats.reads.merged);
            merged += stats.reads.merged;
        }
        let all = |of: fn(&traceless_sim::dram::ChannelStats) -> u64| channels.iter().map(of).sum();
        let (reads, writes): (u64, u64) = (all(|c| c.reads.served), all(|c| c.writes.served));
        assert_eq!(latencies.reads.count, reads + merged);
        assert_eq!(
            (latencies.reads_by_map[0].count, latencies.reads_at_hand.count),
            (reads, merged)
        );
        assert_eq!(latencies.write_backs.count, writes);
        assert!(latencies.reads.count > 0 && writes > 0);
        let most = channel_times.iter().map(|times| Latency::of(&times.reads).max).max();
        assert_eq!(Some(latencies.reads_by_map[0].max), most);
    }
}
