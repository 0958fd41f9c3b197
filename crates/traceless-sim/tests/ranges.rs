//! Ranges of a machine's numbers: each end of a range is accepted, and one beyond is refused.

use std::path::Path;
use toml::{Table, Value};
use traceless_sim::dram::{Apart, Scheduler};
use traceless_sim::machine::Machine;
use traceless_sim::oram::MapTree;
use traceless_sim::{Error, constant, dram};

const TIME: u64 = 1 << 24;
const LONG: u64 = 1 << 32;
const BUFFER: u64 = 1 << 28;
const CURRENT: u64 = 100_000;

/// The ranges of the fields in [`machine`].
const RANGES: [(&str, u64, u64); 76] = [
    ("processor.rob", 1, 1 << 20),
    ("processor.fetch", 1, 1 << 20),
    ("processor.retire", 1, 1 << 20),
    ("processor.depth", 0, 1 << 20),
    ("last_level.latency", 0, 1 << 20),
    ("last_level.brought_before", 0, 8),
    ("oram.blocks", 1, 1 << 40),
    ("oram.bundle", 1, 64),
    ("oram.levels", 1, 33),
    ("oram.z", 1, 64),
    ("oram.cached_levels", 0, 24),
    ("oram.top_ways", 1, BUFFER),
    ("oram.top_sets", 1, BUFFER / 4),
    ("oram.stash_blocks", 1, BUFFER),
    ("oram.drain_above", 0, 200),
    ("oram.map_levels", 0, 32),
    ("oram.map_fanout", 2, 1 << 20),
    ("oram.counter_bits", 1, 32),
    ("oram.plb_bytes", 64, BUFFER),
    ("oram.plb_ways", 1, 1024),
    ("oram.early_pause", 0, LONG),
    ("oram.early_queue", 0, BUFFER),
    ("oram.trees", 1, 16),
    ("oram.map_trees.levels", 1, 33),
    ("oram.map_trees.fanout", 2, 1 << 20),
    ("oram.map_trees.block_bytes", 1, 4096),
    ("oram.map_trees.rate", 1, 8000),
    ("oram.small.levels", 1, 33),
    ("oram.small.z", 1, 64),
    ("oram.small.cached_levels", 0, 18),
    ("oram.small.sets", 1, BUFFER),
    ("oram.small.ways", 1, BUFFER / 16_000),
    ("oram.small.stash_blocks", 1, BUFFER),
    ("oram.small.drain_above", 0, 200),
    ("oram.small.per_main", 1, 1000),
    ("oram.pace.after-completion", 0, LONG),
    ("oram.fetch_slots", 1, LONG),
    ("oram.decrypt", 0, LONG),
    ("oram.queue", 1, BUFFER),
    ("oram.row_len", 64, BUFFER),
    ("oram.bucket.slot_bits", 0, 1 << 16),
    ("oram.bucket.counter_bits", 0, 1 << 16),
    ("oram.bucket.hash_bytes", 0, 1 << 16),
    ("oram.bucket.align", 1, 1 << 16),
    ("oram.warm_up", 0, LONG),
    ("memory.scheduler.fr-fcfs-closing", 1, u32::MAX as u64),
    ("memory.forward", 0, TIME),
    ("memory.clock_ratio", 1, 1024),
    ("memory.drain.capacity", 1, 1 << 20),
    ("memory.drain.high", 0, 96),
    ("memory.drain.low", 0, 40),
    ("memory.timing.rcd", 1, TIME),
    ("memory.timing.rp", 1, TIME),
    ("memory.timing.cas", 1, TIME),
    ("memory.timing.rc", 28, TIME),
    ("memory.timing.ras", 1, TIME),
    ("memory.timing.rrd", 1, TIME),
    ("memory.timing.faw", 1, TIME),
    ("memory.timing.wr", 1, TIME),
    ("memory.timing.wtr", 1, TIME),
    ("memory.timing.rtp", 1, TIME),
    ("memory.timing.ccd", 1, TIME),
    ("memory.timing.cwd", 1, TIME),
    ("memory.timing.rtrs", 0, TIME),
    ("memory.timing.data", 1, TIME),
    ("memory.timing.refi", 1, TIME),
    ("memory.timing.rfc", 1, TIME),
    ("memory.timing.apart.rrd", 1, 5),
    ("memory.timing.apart.wtr", 1, 6),
    ("memory.timing.apart.ccd", 1, 4),
    ("memory.power.chips", 1, 1024),
    ("memory.power.millivolts", 1, CURRENT),
    ("memory.power.cycle_ps", 1, CURRENT),
    ("memory.power.idd0", 70, CURRENT),
    ("memory.power.idd4r", 67, CURRENT),
    ("memory.power.idd5", 67, CURRENT),
];

/// The ranges of the fields of a memory known by its bandwidth.
const CONSTANT: [(&str, u64, u64); 4] = [
    ("constant.bytes_per_cycle", 1, 1 << 20),
    ("constant.latency", 0, LONG),
    ("constant.oram_latency", 0, LONG),
    ("constant.capacity", 64, 1 << 60),
];

/// A machine that has all parts but a memory known by its bandwidth.
fn machine() -> Machine {
    let machine = Machine::ir_oram();
    let oram = machine.oram.as_ref().unwrap().resolved();
    let tree = MapTree { levels: 20, fanout: 16, block_bytes: 64, rate: Some(1000) };
    let oram = traceless_sim::oram::Config {
        map_trees: Some(vec![tree]),
        top_sets: Some(1),
        plb_ways: 1,
        ..oram
    };
    let memory = dram::Config {
        scheduler: Scheduler::FrFcfsClosing(4),
        timing: dram::Timing {
            apart: Some(Apart { rrd: 4, wtr: 3, ccd: 4 }),
            ..machine.memory.timing
        },
        ..machine.memory
    };
    Machine { oram: Some(oram), memory, ..machine }
}

/// The machine with one number replaced, if the number's type allows the value.
fn with(machine: &Machine, field: &str, value: u64) -> Option<Machine> {
    let mut table = Value::Table(Table::try_from(machine).unwrap());
    let mut at = &mut table;
    for part in field.split('.') {
        if let Value::Array(trees) = at {
            at = &mut trees[0];
        }
        at = at.get_mut(part).unwrap_or_else(|| panic!("there is no {field}"));
    }
    *at = Value::Integer(value.try_into().unwrap());
    table.try_into().ok()
}

/// The range of the field, if its value was refused.
fn refusal(machine: &Machine, field: &str) -> Option<(u64, u64)> {
    match machine.check() {
        Err(Error::Range { field: of, least, most, .. }) if of == field => Some((least, most)),
        _ => None,
    }
}

fn ends_are_taken_and_no_more(machine: &Machine, ranges: &[(&str, u64, u64)]) {
    machine.check().unwrap();
    for &(field, least, most) in ranges {
        for inside in [least, most] {
            let with = with(machine, field, inside).unwrap();
            assert_eq!(refusal(&with, field), None, "{field} = {inside}");
        }
        for outside in least.checked_sub(1).into_iter().chain([most + 1]) {
            if let Some(with) = with(machine, field, outside) {
                let refused = refusal(&with, field);
                assert_eq!(refused, Some((least, most)), "{field} = {outside}");
            }
        }
    }
}

#[test]
fn numbers_are_taken_at_both_ends_of_their_range() {
    ends_are_taken_and_no_more(&machine(), &RANGES);
    let constant = Some(constant::Config::default());
    ends_are_taken_and_no_more(&Machine { constant, ..machine() }, &CONSTANT);
}

#[test]
fn a_refusal_says_what_can_be() {
    let error_of =
        |field, value| with(&machine(), field, value).unwrap().check().unwrap_err().to_string();
    assert_eq!(
        error_of("oram.cached_levels", 25),
        "impossible machine: `oram.cached_levels` is 25, and can be 0 to 24"
    );
    assert!(
        error_of("memory.timing.faw", 0)
            .ends_with("`memory.timing.faw` is 0, and can be 1 to 16777216")
    );
    assert!(error_of("oram.row_len", 1000).contains("`oram.row_len` is a multiple of 64"));
    assert!(error_of("oram.plb_bytes", 100).contains("`oram.plb_bytes` is a multiple of 64"));
    assert!(error_of("memory.geometry.rows", 3).contains("powers of two, 1 to 2^31"));
    assert!(error_of("last_level.bytes", 1000).contains("a power of two, the sets"));
    assert!(error_of("memory.timing.refi", 1).contains("`memory.timing.refi` is more than `rfc`"));
}

#[test]
fn machines_that_are_shipped_can_be() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/machines");
    let mut machines = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let machine: Machine = toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        machine.check().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        machines += 1;
    }
    assert!(machines > 5, "{machines}");
}

#[test]
fn nothing_to_time_is_refused() {
    let empty = || -> Vec<Box<dyn traceless_sim::workload::Workload>> {
        vec![Box::new(std::iter::empty())]
    };
    let refused = Machine::FOUR_CHANNELS.run(&mut empty());
    assert!(matches!(refused, Err(Error::Nothing)), "{refused:?}");
    let mut short = [traceless_sim::workload::named("uniform", 5, 1).unwrap()];
    let refused = Machine::FOUR_CHANNELS.run_after(5, &mut short);
    assert!(matches!(refused, Err(Error::Nothing)), "{refused:?}");
    let mut enough = [traceless_sim::workload::named("uniform", 6, 1).unwrap()];
    assert_eq!(Machine::FOUR_CHANNELS.run_after(5, &mut enough).unwrap().run.records, 1);
}
