//! Recording with Valgrind's tool lackey.

use super::{Report, Writer, finish};
use crate::args::RecordArgs;
use crate::failure::{DEVICE, Failure};
use crate::output::Meter;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::fcntl_setpipe_size;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use traceless_sim::workload::lackey::{self, LackeyLine};
use traceless_sim::workload::{Filter, Op, Record};

const BUFFER_LEN: usize = 1 << 20;

/// Runs the program to its end, or until enough is recorded.
pub fn record(args: &RecordArgs, filter: Filter, writer: Writer) -> Result<Report, Failure> {
    let (lines, program) = start(args)?;
    let mut recording = LackeyRecording::new(args, filter, writer);
    let done = recording.take(lines);
    recording.end(done, program)
}

/// Starts the program under Valgrind, which reports through the pipe. The program's own input and
/// output are the ones of this process.
fn start(args: &RecordArgs) -> Result<(PipeReader, Child), Failure> {
    let fail = |e: io::Error| Failure::new(DEVICE, format!("valgrind: {e}"));
    let (lines, log) = io::pipe().map_err(fail)?;
    // Lackey writes a little at a time; a larger pipe lets it go on while this process catches up.
    let _ = fcntl_setpipe_size(&log, BUFFER_LEN);
    // No other process is started meanwhile that could inherit the pipe.
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

/// A recording in progress.
struct LackeyRecording<'a> {
    args: &'a RecordArgs,
    filter: Filter,
    writer: Writer,
    meter: Meter,
    /// Misses left out so far.
    skipped: u64,
    reads: u64,
    writes: u64,
    /// The numbers of instructions before the first record, and until the last.
    first: u64,
    last: u64,
}

/// How the recording ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordEnd {
    ByItself,
    WithEnough,
}

impl<'a> LackeyRecording<'a> {
    fn new(args: &'a RecordArgs, filter: Filter, writer: Writer) -> Self {
        let meter = Meter::new("recording", args.progress.progress);
        Self { args, filter, writer, meter, skipped: 0, reads: 0, writes: 0, first: 0, last: 0 }
    }

    fn take(&mut self, lines: PipeReader) -> io::Result<RecordEnd> {
        let mut lines = BufReader::with_capacity(BUFFER_LEN, lines);
        let mut line = Vec::new();
        let mut records = Vec::new();
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line)? == 0 {
                return Ok(RecordEnd::ByItself);
            }
            match lackey::parse(&line) {
                Some(LackeyLine::Instruction) => self.filter.instruction(),
                Some(LackeyLine::Access { op, first, last }) => {
                    self.filter.access(op, first, last, |record| records.push(record));
                    for record in records.drain(..) {
                        self.keep(record)?;
                    }
                }
                None => {}
            }
            if self.args.misses.is_some_and(|misses| self.reads >= misses) {
                return Ok(RecordEnd::WithEnough);
            }
        }
    }

    fn keep(&mut self, record: Record) -> io::Result<()> {
        let now = self.filter.instructions();
        if self.skipped < self.args.skip || self.reads == 0 && record.op == Op::Write {
            self.skipped += u64::from(record.op == Op::Read);
            (self.first, self.last) = (now, now);
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

    fn end(mut self, done: io::Result<RecordEnd>, mut program: Child) -> Result<Report, Failure> {
        self.meter.finish();
        let cut_short = matches!(done, Ok(RecordEnd::WithEnough));
        if cut_short || done.is_err() {
            // The program may have ended meanwhile.
            let _ = program.kill();
        }
        let fail = |e: io::Error| Failure::new(DEVICE, format!("while recording: {e}"));
        let status = program.wait().map_err(fail)?;
        done.map_err(fail)?;
        if self.filter.instructions() == 0 {
            let what = format!("valgrind recorded nothing of the program; it ended with {status}");
            return Err(Failure::usage(what));
        }
        finish(self.writer).map_err(fail)?;
        let status = (!cut_short).then_some(status);
        Ok(Report::new(self.last - self.first, self.reads, self.writes, status))
    }
}
