//! `traceless sim record`: what an unmodified program asks of memory, by Valgrind's tool lackey.

use crate::args::RecordArgs;
use crate::failure::{DEVICE, Failure};
use crate::output::{Meter, say, say_json};
use crate::signals;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::fcntl_setpipe_size;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, PipeReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use traceless_sim::cache;
use traceless_sim::workload::lackey::{self, Step};
use traceless_sim::workload::{Filter, Op, PackedWriter, Record};

const BUFFER_LEN: usize = 1 << 20;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    /// While it was recorded.
    instructions: u64,
    reads: u64,
    writes: u64,
    /// In a thousand instructions.
    reads_per_kilo_instruction: f64,
    writes_per_kilo_instruction: f64,
    /// Whether it was ended because enough was recorded.
    cut_short: bool,
}

pub fn run(args: &RecordArgs) -> Result<(), Failure> {
    let bytes = args.l1_kib.saturating_mul(1024);
    let filter = Filter::new(&cache::Config { bytes, ways: args.l1_ways })?;
    let out = Output::create(&args.out)?;
    // The program gets the user's signal, too: this only sees to it that no half of it is kept.
    let interrupted = signals::flag()?;
    let (lines, program) = start(args)?;
    let mut recording = Recording::new(args, filter, out.writer()?);
    let done = recording.take(lines);
    let report = recording.end(done, program)?;
    if interrupted.load(Ordering::Relaxed) {
        return Err(Failure::usage("interrupted"));
    }
    out.keep()?;
    if args.json {
        return say_json(&report);
    }
    let Report { instructions, reads, writes, .. } = report;
    say(&format!("{instructions} instructions, {reads} reads, {writes} writes"));
    say(&format!(
        "a thousand instructions: {:.2} reads, {:.2} writes",
        report.reads_per_kilo_instruction, report.writes_per_kilo_instruction
    ));
    Ok(())
}

/// Starts the program under Valgrind, which says everything through the pipe. The program's own
/// input and output are those of this process.
fn start(args: &RecordArgs) -> Result<(PipeReader, Child), Failure> {
    let fail = |e: io::Error| Failure::new(DEVICE, format!("valgrind: {e}"));
    let (lines, log) = io::pipe().map_err(fail)?;
    // Lackey hands over little at a time; it may go on while this works through what is there.
    let _ = fcntl_setpipe_size(&log, BUFFER_LEN);
    // Nothing else is started meanwhile that could inherit it.
    fcntl_setfd(&log, FdFlags::empty()).map_err(|e| fail(e.into()))?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=lackey", "--basic-counts=no", "--trace-mem=yes"]);
    valgrind.arg(format!("--log-fd={}", log.as_raw_fd())).arg("--").args(&args.program);
    let program = valgrind.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Failure::usage(
            "valgrind is not installed: recording needs it (Debian: apt install valgrind)",
        ),
        _ => fail(e),
    })?;
    Ok((lines, program))
}

/// What is being recorded.
struct Recording<'a> {
    args: &'a RecordArgs,
    filter: Filter,
    writer: PackedWriter<BufWriter<File>>,
    meter: Meter,
    /// Misses left out so far.
    skipped: u64,
    reads: u64,
    writes: u64,
    /// Instructions before the first record, and until the last.
    first: u64,
    last: u64,
}

/// Whether the program went on to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    ByItself,
    WithEnough,
}

impl<'a> Recording<'a> {
    fn new(args: &'a RecordArgs, filter: Filter, writer: PackedWriter<BufWriter<File>>) -> Self {
        let meter = Meter::new("recording", args.progress.progress);
        Self { args, filter, writer, meter, skipped: 0, reads: 0, writes: 0, first: 0, last: 0 }
    }

    fn take(&mut self, lines: PipeReader) -> io::Result<Ended> {
        let mut lines = BufReader::with_capacity(BUFFER_LEN, lines);
        let mut line = Vec::new();
        let mut records = Vec::new();
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line)? == 0 {
                return Ok(Ended::ByItself);
            }
            match lackey::parse(&line) {
                Some(Step::Instruction) => self.filter.instruction(),
                Some(Step::Access { op, first, last }) => {
                    self.filter.access(op, first, last, |record| records.push(record));
                    for record in records.drain(..) {
                        self.keep(record)?;
                    }
                }
                None => {}
            }
            if self.args.misses.is_some_and(|misses| self.reads >= misses) {
                return Ok(Ended::WithEnough);
            }
        }
    }

    fn keep(&mut self, record: Record) -> io::Result<()> {
        let now = self.filter.instructions();
        if self.skipped < self.args.skip || self.reads == 0 && record.op == Op::Write {
            self.skipped += u64::from(record.op == Op::Read);
            self.first = now;
            return Ok(());
        }
        match record.op {
            Op::Read => self.reads += 1,
            Op::Write => self.writes += 1,
        }
        self.last = now;
        if let Some(misses) = self.args.misses {
            self.meter.update(self.reads, misses);
        }
        self.writer.append(record)
    }

    fn end(self, done: io::Result<Ended>, mut program: Child) -> Result<Report, Failure> {
        self.meter.finish();
        let cut_short = matches!(done, Ok(Ended::WithEnough));
        if cut_short || done.is_err() {
            // It may have ended meanwhile.
            let _ = program.kill();
        }
        let fail = |e: io::Error| Failure::new(DEVICE, format!("while recording: {e}"));
        let status = program.wait().map_err(fail)?;
        done.map_err(fail)?;
        if self.filter.instructions() == 0 {
            let what = format!("valgrind recorded nothing of the program; it ended with {status}");
            return Err(Failure::usage(what));
        }
        self.writer.finish().and_then(|out| out.get_ref().sync_all()).map_err(fail)?;
        let instructions = self.last - self.first;
        let per_kilo = |n: u64| n as f64 * 1e3 / instructions.max(1) as f64;
        Ok(Report {
            schema: "traceless.sim.record.v1",
            instructions,
            reads: self.reads,
            writes: self.writes,
            reads_per_kilo_instruction: per_kilo(self.reads),
            writes_per_kilo_instruction: per_kilo(self.writes),
            cut_short,
        })
    }
}

/// A file that has its name only when it is whole.
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

    fn writer(&self) -> Result<PackedWriter<BufWriter<File>>, Failure> {
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
        // Gone already if it was kept.
        let _ = std::fs::remove_file(&self.coming);
    }
}
