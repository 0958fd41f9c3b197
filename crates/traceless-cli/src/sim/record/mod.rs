//! `traceless sim record`: records the memory accesses of an unmodified program.

mod lackey;
mod qemu;

use crate::args::{RecordArgs, Recorder};
use crate::failure::{DEVICE, Failure};
use crate::output::{print_error, print_json, print_line};
use crate::signals;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use traceless_sim::cache;
use traceless_sim::workload::{Filter, PackedWriter};

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
    let l1 = cache::Config { bytes: args.l1_kib.saturating_mul(1024), ways: args.l1_ways };
    let filter = Filter::new(&l1)?;
    let out = Output::create(&args.out)?;
    // The program gets the user's signal, too. The flag only prevents that half a recording is
    // kept.
    let interrupted = signals::flag()?;
    let writer = out.writer()?;
    let report = match args.with {
        Recorder::Lackey => lackey::record(args, filter, writer)?,
        Recorder::Qemu => qemu::record(args, &l1, &out, writer)?,
    };
    if interrupted.load(Ordering::Relaxed) {
        return Err(Failure::usage("interrupted"));
    }
    out.keep()?;
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
    /// The report of a program that ended with `status`, or, without one, was cut short.
    fn new(instructions: u64, reads: u64, writes: u64, status: Option<ExitStatus>) -> Self {
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

type Writer = PackedWriter<BufWriter<File>>;

/// Makes the file whole and durable.
fn finish(writer: Writer) -> io::Result<()> {
    writer.finish()?.get_ref().sync_all()
}

/// A file that gets its name only once it is whole.
struct Output<'a> {
    path: &'a Path,
    coming: PathBuf,
}

impl<'a> Output<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        let mut coming = path.as_os_str().to_owned();
        coming.push(format!(".{}.part", std::process::id()));
        let output = Self { path, coming: coming.into() };
        File::create_new(&output.coming).map_err(|e| output.failed(&e))?;
        Ok(output)
    }

    fn writer(&self) -> Result<Writer, Failure> {
        let file = File::options().write(true).open(&self.coming);
        file.and_then(|file| PackedWriter::new(BufWriter::new(file))).map_err(|e| self.failed(&e))
    }

    fn keep(&self) -> Result<(), Failure> {
        std::fs::rename(&self.coming, self.path).map_err(|e| self.failed(&e))
    }

    fn failed(&self, e: &io::Error) -> Failure {
        Failure::new(DEVICE, format!("{}: {e}", self.path.display()))
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        // After `keep` the file has moved, and there is nothing to remove.
        let _ = std::fs::remove_file(&self.coming);
    }
}
