//! Cycles by USIMM's rules in cases that the two known runs of `goldens.rs` do not cover: one
//! channel, full write queues, requests that merge, refreshes in idle stretches, stretches longer
//! than the reorder buffer and than the time between refreshes, bytes within lines, addresses past
//! the memory, one bank alone, rows that conflict, several cores.
//!
//! The numbers come from an independent model: USIMM's rules, written down a second time apart from
//! this crate, by a program that is not kept in this repository. It simulates each cycle by itself
//! and reproduces the known runs.

use traceless_sim::dram;
use traceless_sim::machine::Machine;
use traceless_sim::processor;
use traceless_sim::workload::{Op, Record, Workload};

/// 34 bits that look random.
fn scattered(nth: u64) -> u64 {
    nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 30
}

fn line(addr: u64) -> u64 {
    addr & !63
}

fn op(writes: bool) -> Op {
    if writes { Op::Write } else { Op::Read }
}

fn record(what: &str, nth: u64) -> Record {
    let (before, writes, addr) = match what {
        "writes" => (2, true, line(scattered(nth))),
        "mixed" => {
            let bits = scattered(nth);
            ((bits >> 6) % 30, (bits >> 11) % 5 < 3, line(bits % (64 << 20)))
        }
        "idle" => {
            let before = [0, 5, 200_000, 1_000_000][nth as usize % 4];
            (before, nth / 4 % 2 == 1, line(scattered(nth)))
        }
        "rob" => {
            let before = [0, 127, 128, 160, 161, 500][nth as usize % 6];
            (before, nth % 3 == 2, line(scattered(nth)))
        }
        "row" => (0, nth.is_multiple_of(3), nth % 40 * 256),
        "bytes" => (3, nth.is_multiple_of(5), nth * 8),
        "one bank" => {
            let (row, column) = (scattered(nth) % 512, scattered(nth * 3 + 1) % 128);
            (nth % 7, !nth.is_multiple_of(10), (row << 19) | (column << 12))
        }
        "conflicts" => {
            let (bits, bank, rank) = (scattered(nth), nth % 8, nth / 8 % 2);
            let bank_of_channel = (rank << 11) | (bank << 8) | (((bits >> 9) % 4) << 6);
            ((bits >> 5) % 60, bits.is_multiple_of(3), (nth << 19) | bank_of_channel)
        }
        "pauses" => {
            let before = [0, 1_000_000, 3, 796_000, 0, 798_000][nth as usize % 6];
            (before, [1, 4].contains(&(nth % 6)), line(scattered(nth / 2)))
        }
        "up" => (5, nth.is_multiple_of(4), on_its_way(nth)),
        "down" => (8, nth % 4 == 1, on_its_way(7999 - nth)),
        "beyond" => (3, nth.is_multiple_of(3), line(scattered(nth) * 64)),
        _ => unreachable!("there are no others"),
    };
    Record { before, op: op(writes), addr }
}

/// Columns of a row one after another, in three banks in turn.
fn on_its_way(nth: u64) -> u64 {
    (nth / 64) << 19 | (nth % 64) << 12 | (nth % 3) << 8
}

fn workload(what: &'static str) -> Box<dyn Workload> {
    let records = match what {
        "mixed" => 30_000,
        "idle" => 300,
        "rob" => 10_000,
        "one bank" => 6000,
        "conflicts" | "up" | "down" => 8000,
        "pauses" => 48,
        _ => 20_000,
    };
    Box::new((0..records).map(move |nth| record(what, nth)))
}

const ONE_CHANNEL: Machine = Machine {
    processor: processor::Config::ONE_CHANNEL,
    memory: dram::Config::ONE_CHANNEL,
    ..Machine::FOUR_CHANNELS
};

/// Cycles on a machine with more memory, so that each core has as much as one core alone.
fn cycles(machine: &Machine, whats: &[&'static str]) -> u64 {
    let mut machine = machine.clone();
    machine.memory.geometry.rows *= whats.len().next_power_of_two() as u32;
    let mut workloads: Vec<_> = whats.iter().map(|what| workload(what)).collect();
    machine.run(&mut workloads).unwrap().run.cycles
}

#[test]
fn cycles_equal_the_independent_models() {
    for (what, four, one) in [
        ("writes", 96_549, 384_333),
        ("mixed", 445_853, 1_000_617),
        ("idle", 22_509_560, 45_009_976),
        ("rob", 1_059_816, 1_597_756),
        ("row", 40_397, 57_197),
        ("bytes", 96_841, 336_629),
        ("beyond", 126_777, 424_181),
        ("one bank", 1_036_609, 132_397),
        ("conflicts", 225_620, 1_308_613),
        ("pauses", 5_191_796, 10_383_476),
    ] {
        assert_eq!(cycles(&Machine::FOUR_CHANNELS, &[what]), four, "{what}, four channels");
        assert_eq!(cycles(&ONE_CHANNEL, &[what]), one, "{what}, one channel");
    }
}

#[test]
fn cycles_of_several_cores_equal_the_independent_models() {
    assert_eq!(cycles(&Machine::FOUR_CHANNELS, &["mixed", "rob"]), 1_095_480);
    assert_eq!(cycles(&ONE_CHANNEL, &["mixed", "rob"]), 2_001_888);
    assert_eq!(cycles(&Machine::FOUR_CHANNELS, &["mixed", "rob", "row"]), 1_138_468);
    assert_eq!(cycles(&Machine::FOUR_CHANNELS, &["up", "down"]), 309_529);
    assert_eq!(cycles(&ONE_CHANNEL, &["up", "down"]), 310_577);
}
