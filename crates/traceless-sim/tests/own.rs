//! A user's own scheme in the simulator.

use std::collections::VecDeque;
use traceless::controller::{Controller, Serve, StepKind, StepOutcome};
use traceless::oram::Hides;
use traceless::trace::{Event, Op, Surface, Witness};
use traceless::types::Addr;
use traceless_sim::Result;
use traceless_sim::dram::Memory;
use traceless_sim::machine::Machine;
use traceless_sim::oram::{Config, Counts, Oram, Pace, Remap, Scheme, SimController, StepTrace};
use traceless_sim::processor;
use traceless_sim::workload::{LINE_LEN, Op as Asked, Record, Workload};

const READS: u64 = 100;

/// A scheme that reads and writes all lines in each step.
struct Scan {
    blocks: u64,
    step_trace: StepTrace,
    requests: VecDeque<u64>,
}

impl Controller for Scan {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        0
    }

    fn submit(&mut self, id: u64, _: Addr) -> traceless::Result {
        self.requests.push_back(id);
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.requests.len()
    }

    fn step(&mut self, serve: Serve<'_>) -> traceless::Result<StepOutcome> {
        for op in [Op::Read, Op::Write] {
            let len = (self.blocks * LINE_LEN) as u32;
            self.step_trace.record(Event { time: 0, surface: Surface::Dram, op, at: 0, len });
        }
        let finished = self.requests.pop_front();
        if let Some(id) = finished {
            serve(id, &mut []);
        }
        let kind = if finished.is_some() { StepKind::Data } else { StepKind::Dummy };
        Ok(StepOutcome { kind, finished })
    }

    fn sync(&mut self) -> traceless::Result {
        Ok(())
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

impl SimController for Scan {
    fn stash(&self) -> usize {
        7
    }
}

fn over(config: &Config, blocks: u64) -> Result<Oram> {
    let memory = Memory::new(Machine::ir_oram().memory)?;
    Oram::over_dram_with(config, memory, |step_trace| {
        Ok(Box::new(Scan { blocks, step_trace, requests: VecDeque::new() }))
    })
}

/// The cycles of a run, and its counts.
fn run(config: &Config, blocks: u64) -> (u64, Counts) {
    let mut oram = over(config, blocks).unwrap();
    let reads = (0..READS).map(|nth| Record { before: 5, op: Asked::Read, addr: nth * LINE_LEN });
    let mut workloads: [Box<dyn Workload>; 1] = [Box::new(reads)];
    let run = processor::run(&Machine::ir_oram().processor, &mut oram, &mut workloads).unwrap();
    (run.cycles, oram.counts())
}

#[test]
fn a_scheme_from_outside_is_timed_line_by_line() {
    let config = Config { pace: Pace::Asked, warm_up: 10, ..Config::default() };
    let (few_cycles, few) = run(&config, 64);
    let (many_cycles, many) = run(&config, 256);
    for (blocks, counts) in [(64, few), (256, many)] {
        assert_eq!((counts.data, counts.dummy), (READS, 0));
        assert_eq!(counts.lines, 2 * blocks * READS);
        assert_eq!(counts.stash_peak, 7);
    }
    // The bus of four channels takes sixteen cycles for a line in each.
    assert!(few_cycles > 2 * 64 / 4 * 16 * READS && many_cycles > 3 * few_cycles);
}

#[test]
fn idle_times_are_filled_with_its_dummies() {
    let config = Config { pace: Pace::AfterCompletion(50), ..Config::default() };
    let mut oram = over(&config, 64).unwrap();
    let read = std::iter::once(Record { before: 1_000_000, op: Asked::Read, addr: 0 });
    let mut workloads: [Box<dyn Workload>; 1] = [Box::new(read)];
    processor::run(&Machine::ir_oram().processor, &mut oram, &mut workloads).unwrap();
    assert!(oram.counts().dummy > 100 && oram.counts().data == 1);
}

/// Options that only the library's own schemes support are ignored.
#[test]
fn only_issue_is_configured() {
    let config = Config { pace: Pace::Asked, ..Config::default() };
    let other = Config { scheme: Scheme::IrOram, remap: Some(Remap::Delayed), ..config.clone() };
    assert_eq!(run(&config, 64), run(&other, 64));
}

#[test]
fn a_scheme_without_blocks_is_refused() {
    assert!(over(&Config::default(), 0).is_err());
}
