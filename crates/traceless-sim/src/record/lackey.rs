//! Recording with Valgrind's tool lackey.

use super::{Recording, RecordingConfig, Writer, failed, finish};
use crate::error::{Error, Result};
use crate::workload::lackey::{self, LackeyLine};
use crate::workload::{Filter, Op, Record};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::fcntl_setpipe_size;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::fd::AsRawFd;
use std::process::{Child, Command};

const BUFFER_LEN: usize = 1 << 20;

/// Runs the program to its end, or until enough is recorded.
pub fn record(
    config: &RecordingConfig,
    filter: Filter,
    writer: Writer,
    progress: &mut dyn FnMut(u64),
) -> Result<Recording> {
    let (lines, program) = start(config)?;
    let mut recording = LackeyRecording {
        config,
        filter,
        writer,
        progress,
        skipped: 0,
        reads: 0,
        writes: 0,
        first: 0,
        last: 0,
    };
    let done = recording.take(lines);
    recording.end(done, program)
}

/// Starts the program under Valgrind, which reports through the pipe. The program's own input and
/// output are the ones of this process.
fn start(config: &RecordingConfig) -> Result<(PipeReader, Child)> {
    let (lines, log) = io::pipe().map_err(failed("valgrind"))?;
    // Lackey writes a little at a time; a larger pipe lets it go on while this process catches up.
    let _ = fcntl_setpipe_size(&log, BUFFER_LEN);
    // No other process is started meanwhile that could inherit the pipe.
    fcntl_setfd(&log, FdFlags::empty()).map_err(|e| failed("valgrind")(e.into()))?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=lackey", "--basic-counts=no", "--trace-mem=yes"]);
    valgrind.arg(format!("--log-fd={}", log.as_raw_fd())).arg("--").args(&config.program);
    let program = valgrind.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::NotRecorded(
            "valgrind is not installed: recording needs it (Debian: apt install valgrind)".into(),
        ),
        _ => failed("valgrind")(e),
    })?;
    Ok((lines, program))
}

/// A recording in progress.
struct LackeyRecording<'a> {
    config: &'a RecordingConfig,
    filter: Filter,
    writer: Writer,
    progress: &'a mut dyn FnMut(u64),
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

impl LackeyRecording<'_> {
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
            if self.config.misses.is_some_and(|misses| self.reads >= misses) {
                return Ok(RecordEnd::WithEnough);
            }
        }
    }

    fn keep(&mut self, record: Record) -> io::Result<()> {
        let now = self.filter.instructions();
        if self.skipped < self.config.skip || self.reads == 0 && record.op == Op::Write {
            self.skipped += u64::from(record.op == Op::Read);
            (self.first, self.last) = (now, now);
            return Ok(());
        }
        match record.op {
            Op::Read => self.reads += 1,
            Op::Write => self.writes += 1,
        }
        self.last = now;
        (self.progress)(self.reads);
        self.writer.append(record)
    }

    fn end(self, done: io::Result<RecordEnd>, mut program: Child) -> Result<Recording> {
        let cut_short = matches!(done, Ok(RecordEnd::WithEnough));
        if cut_short || done.is_err() {
            // The program may have ended meanwhile.
            let _ = program.kill();
        }
        let out = &self.config.out;
        let status = program.wait().map_err(failed(out))?;
        done.map_err(failed(out))?;
        if self.filter.instructions() == 0 {
            let what = format!("valgrind recorded nothing of the program; it ended with {status}");
            return Err(Error::NotRecorded(what));
        }
        finish(self.writer).map_err(failed(out))?;
        Ok(Recording {
            instructions: self.last - self.first,
            reads: self.reads,
            writes: self.writes,
            status: (!cut_short).then_some(status),
        })
    }
}
