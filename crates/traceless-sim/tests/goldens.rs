//! Two runs with known cycle counts, checked figure by figure.

use rand_mt::Mt;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::Path;
use traceless_sim::dram::{ChannelStats, Scheduler};
use traceless_sim::machine::Machine;
use traceless_sim::processor::Run;
use traceless_sim::workload::{LINE_LEN, Usimm, Workload};

const RECORDS: u64 = 200_000;

/// Python's generator, with the part of its `random` that the runs used.
struct Python(Mt);

impl Python {
    fn bits(&mut self, bits: u32) -> u64 {
        let low = u64::from(self.0.next_u32());
        low | u64::from(self.0.next_u32() >> (64 - bits)) << 32
    }

    /// A number below 2^34, drawn by rejection from one bit more, as Python does.
    fn address(&mut self) -> u64 {
        loop {
            let drawn = self.bits(35);
            if drawn < 1 << 34 {
                return drawn & !(LINE_LEN - 1);
            }
        }
    }

    fn unit(&mut self) -> f64 {
        let (high, low) = (self.0.next_u32() >> 5, self.0.next_u32() >> 6);
        (f64::from(high) * f64::from(1 << 26) + f64::from(low)) / (1u64 << 53) as f64
    }
}

fn rand200k() -> String {
    let mut python = Python(Mt::new_with_key([1]));
    let mut text = String::new();
    for _ in 0..RECORDS {
        let addr = python.address();
        if python.unit() < 0.3 {
            writeln!(text, "10 W {addr:#x}").unwrap();
        } else {
            writeln!(text, "10 R {addr:#x} 0x400000").unwrap();
        }
    }
    text
}

fn stream200k() -> String {
    let mut text = String::new();
    (0..RECORDS).for_each(|i| writeln!(text, "10 R {:#x} 0x400000", LINE_LEN * i).unwrap());
    text
}

fn run(text: String, sha256: &str) -> (Run, Vec<ChannelStats>) {
    let mut digest = String::new();
    Sha256::digest(&text).iter().for_each(|byte| write!(digest, "{byte:02x}").unwrap());
    assert_eq!(digest, sha256, "it is another workload");
    let workload = Usimm::from_reader(std::io::Cursor::new(text), Path::new("golden"));
    let mut workloads: [Box<dyn Workload>; 1] = [Box::new(workload)];
    let outcome = Machine::FOUR_CHANNELS.run(&mut workloads).unwrap();
    (outcome.run, outcome.channels)
}

/// Cycles of a run with another scheduler.
fn cycles(text: &str, scheduler: Scheduler) -> f64 {
    let mut machine = Machine::FOUR_CHANNELS;
    machine.memory.scheduler = scheduler;
    let workload = Usimm::from_reader(std::io::Cursor::new(text.to_owned()), Path::new("golden"));
    machine.run(&mut [Box::new(workload)]).unwrap().run.cycles as f64
}

/// Measurements of USIMM's FR-FCFS: rows that stay open change little; with rows that are closed at
/// once, random lines take 9 % fewer cycles, and lines in order 1.6 times as many.
#[test]
fn open_rows_first_takes_as_long_as_it_does() {
    let (random, in_order) = (rand200k(), stream200k());
    let open = [Scheduler::FrFcfs, Scheduler::FrFcfsClosing(100_000)];
    for scheduler in open {
        let ratio = cycles(&random, scheduler) / 2_963_557.0;
        assert!((1.0..1.0001).contains(&ratio), "{ratio}");
        assert_eq!(cycles(&in_order, scheduler).to_bits(), 1_051_492f64.to_bits());
    }
    let closing = Scheduler::FrFcfsClosing(1);
    let ratio = cycles(&random, closing) / 2_963_557.0;
    assert!((0.905..0.915).contains(&ratio), "{ratio}");
    let ratio = cycles(&in_order, closing) / 1_051_492.0;
    assert!((1.55..1.65).contains(&ratio), "{ratio}");
}

fn rounded(value: f64) -> String {
    format!("{value:.5}")
}

#[test]
fn random_lines_take_as_long_as_they_do() {
    let sha256 = "9221649cbc32fb0e9851ce6e16d726e279917e967d583bba05627af2c938ccbb";
    let (run, channels) = run(rand200k(), sha256);
    assert_eq!(run, Run { cycles: 2_963_557, instructions: 2_200_000, records: RECORDS });
    let expected = [
        (35_155, 14_742, "173.50255", "994.84147", "-0.00006", "-0.44193"),
        (35_149, 14_970, "174.37540", "1048.95331", "-0.00003", "-0.47528"),
        (34_822, 15_286, "174.13529", "1007.53107", "0.00000", "-0.44649"),
        (34_893, 14_983, "174.26954", "1004.37095", "-0.00006", "-0.45144"),
    ];
    for (ChannelStats { reads, writes, .. }, expected) in channels.into_iter().zip(expected) {
        assert_eq!((reads.served, writes.served), (expected.0, expected.1));
        assert_eq!((reads.merged, writes.merged), (0, 0));
        let latencies = [reads.latency(), writes.latency()].map(rounded);
        assert_eq!(latencies, [expected.2, expected.3]);
        assert_eq!([reads.row_hits(), writes.row_hits()].map(rounded), [expected.4, expected.5]);
    }
}

#[test]
fn lines_in_order_take_as_long_as_they_do() {
    let sha256 = "7fd157e6765a612bdc4c5aea51ba8488e224e570464927c2f9f9306767e13a59";
    let (run, channels) = run(stream200k(), sha256);
    assert_eq!(run, Run { cycles: 1_051_492, instructions: 2_200_000, records: RECORDS });
    let latencies = ["65.51136", "65.71022", "66.73196", "66.31352"];
    for (ChannelStats { reads, writes, .. }, latency) in channels.into_iter().zip(latencies) {
        assert_eq!((reads.served, reads.merged, writes.served), (50_000, 0, 0));
        assert_eq!(rounded(reads.latency()), latency);
        assert_eq!(rounded(reads.row_hits()), "0.99040");
    }
}
