//! `traceless sim record`: records the memory accesses of an unmodified program.

use crate::args::{RecordArgs, RecorderName};
use crate::failure::Failure;
use crate::output::{Meter, print_error, print_json, print_line};
use crate::signals;
use serde::Serialize;
use traceless_sim::cache;
use traceless_sim::record::{Recorder, Recording, RecordingConfig, record};

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    /// Instructions executed during the recording.
    instructions: u64,
    reads: u64,
    writes: u64,
    /// Records in a thousand instructions.
    reads_per_kilo_instruction: f64,
    writes_per_kilo_instruction: f64,
    /// Whether the program was ended because enough was recorded.
    cut_short: bool,
    /// The program's own exit code; `None` if a signal ended it, or it was cut short.
    exit_code: Option<i32>,
}

pub fn run(args: &RecordArgs) -> Result<(), Failure> {
    let config = RecordingConfig {
        program: args.program.clone(),
        l1: cache::Config { bytes: args.l1_kib.saturating_mul(1024), ways: args.l1_ways },
        skip: args.skip,
        misses: args.misses,
        out: args.out.clone(),
    };
    let recorder = match args.with {
        RecorderName::Lackey => Recorder::Lackey,
        RecorderName::Qemu => Recorder::Qemu,
    };
    // The program gets the user's signal, too. The flag only prevents that half a recording is
    // kept.
    let interrupted = signals::flag()?;
    let mut meter = Meter::new("recording", args.progress.progress);
    let mut progress = |reads| {
        if let Some(misses) = args.misses {
            meter.update(reads, misses);
        }
    };
    let recording = record(&config, recorder, &mut progress, &interrupted)?;
    meter.finish();
    let report = Report::new(&recording);
    if !report.cut_short && report.exit_code != Some(0) {
        let code = report.exit_code.map_or("a signal".to_owned(), |code| format!("code {code}"));
        print_error(&format!("the program ended with {code}; what it did until then is recorded"));
    }
    if args.json {
        return print_json(&report);
    }
    let Report { instructions, reads, writes, .. } = report;
    print_line(&format!("{instructions} instructions, {reads} reads, {writes} writes"));
    print_line(&format!(
        "a thousand instructions: {:.2} reads, {:.2} writes",
        report.reads_per_kilo_instruction, report.writes_per_kilo_instruction
    ));
    Ok(())
}

impl Report {
    fn new(recording: &Recording) -> Self {
        let Recording { instructions, reads, writes, status } = *recording;
        let per_kilo = |n: u64| n as f64 * 1e3 / instructions.max(1) as f64;
        Self {
            schema: "traceless.sim.record.v1",
            instructions,
            reads,
            writes,
            reads_per_kilo_instruction: per_kilo(reads),
            writes_per_kilo_instruction: per_kilo(writes),
            cut_short: status.is_none(),
            exit_code: status.and_then(|status| status.code()),
        }
    }
}
