//! Traces recorded by other tools, read line by line, as events that an adversary observes.
//!
//! docs/recording.md describes how to record each, and how its fields are used.

mod block;
mod faults;
mod redis;
mod s3;

use block::Block;
use faults::Faults;
use std::io::{self, BufRead, Read};
use traceless_core::trace::{Event, Surface};

/// The most bytes of a line.
pub const LINE_MAX: usize = 1 << 20;

/// Lines that are examined to detect the format.
const DETECTION_LINES: usize = 16;

/// The tool that recorded a trace.
///
/// The format of a file is found by its first bytes:
///
/// ```
/// use traceless_audit::Format;
///
/// let file = b"Attaching 2 probes...\n1000 259,0 WS 2048 8\n1500 259,0 FF 0 0\n";
/// assert_eq!(Format::detect(file), Some(Format::Bpftrace));
/// assert_eq!(Format::named("redis"), Some(Format::Redis));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `blkparse`, as it prints by default.
    Blkparse,
    /// The script `block.bt` of bpftrace.
    Bpftrace,
    /// An access log of S3.
    S3,
    /// `redis-cli monitor`.
    Redis,
    /// The script `page-faults.bt`, or `perf script` of `exceptions:page_fault_user`.
    PageFaults,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] =
        [Self::Blkparse, Self::Bpftrace, Self::S3, Self::Redis, Self::PageFaults];

    /// The name of the format on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blkparse => "blkparse",
            Self::Bpftrace => "bpftrace",
            Self::S3 => "s3",
            Self::Redis => "redis",
            Self::PageFaults => "page-faults",
        }
    }

    /// The format called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The format that `beginning`, the first bytes of a file, looks like.
    pub fn detect(beginning: &[u8]) -> Option<Self> {
        let lines = beginning.split(|&byte| byte == b'\n').map(trimmed);
        let first_lines = lines.filter(|line| !is_idle(line)).take(DETECTION_LINES);
        first_lines.map(|line| Self::ALL.into_iter().find(|format| format.fits(line))).next()?
    }

    fn fits(self, line: &[u8]) -> bool {
        match self {
            Self::Blkparse => block::is_blkparse(line),
            Self::Bpftrace => block::is_bpftrace(line),
            Self::S3 => s3::fits(line),
            Self::Redis => redis::fits(line),
            Self::PageFaults => faults::fits(line),
        }
    }
}

/// A line that is not valid in its format, or a file that cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportError {
    /// A line is not valid in its format.
    Line {
        /// The number of the line, from 1 on.
        line: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The file could not be read.
    Io(io::Error),
}

impl core::fmt::Display for ImportError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Line { line, what } => write!(f, "line {line}: {what}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ImportError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Line { .. } => None,
            Self::Io(error) => Some(error),
        }
    }
}

/// Reads the events of a file that another tool recorded, in order.
///
/// A Redis server received two commands. Equal keys are at equal places:
///
/// ```
/// use traceless_audit::{Format, ImportReader};
/// use traceless_core::trace::{Event, Op};
///
/// # fn main() -> Result<(), traceless_audit::ImportError> {
/// let file = br#"OK
/// 1339518083.107412 [0 127.0.0.1:60866] "SET" "ann" "blue"
/// 1339518087.877697 [0 127.0.0.1:60866] "GET" "ann"
/// "#;
/// let events: Vec<Event> =
///     ImportReader::new(&file[..], Format::Redis).collect::<Result<_, _>>()?;
/// assert_eq!(events.iter().map(|event| event.op).collect::<Vec<_>>(), [Op::Write, Op::Read]);
/// assert_eq!(events[0].at, events[1].at);
/// # Ok(())
/// # }
/// ```
pub struct ImportReader<R> {
    input: R,
    lines: Lines,
    line: Vec<u8>,
    number: u64,
    /// The events of the last line, and how many of them were handed out.
    events: Vec<Event>,
    next: usize,
    has_ended: bool,
}

/// The parser of lines, with its state.
enum Lines {
    Block(Block),
    S3,
    Redis,
    Faults(Faults),
}

/// The reason why a line is not valid.
type LineError = &'static str;

/// The result of a line.
enum LineEvent {
    /// The line gave any number of events.
    Events,
    /// No more events follow.
    End,
}

impl<R: BufRead> ImportReader<R> {
    /// Reads `input`, which is in this format.
    pub fn new(input: R, format: Format) -> Self {
        let lines = match format {
            Format::Blkparse => Lines::Block(Block::of_blkparse()),
            Format::Bpftrace => Lines::Block(Block::of_bpftrace()),
            Format::S3 => Lines::S3,
            Format::Redis => Lines::Redis,
            Format::PageFaults => Lines::Faults(Faults::default()),
        };
        let (line, events) = (vec![], vec![]);
        Self { input, lines, line, number: 0, events, next: 0, has_ended: false }
    }

    fn read_line(&mut self) -> Result<(), ImportError> {
        self.line.clear();
        self.events.clear();
        self.next = 0;
        self.number += 1;
        let invalid = |what| ImportError::Line { line: self.number, what };
        let mut limited = Read::take(&mut self.input, LINE_MAX as u64 + 1);
        let len = limited.read_until(b'\n', &mut self.line).map_err(ImportError::Io)?;
        if len > LINE_MAX {
            return Err(invalid("it has more than a million bytes"));
        }
        self.has_ended = len == 0;
        let line = trimmed(&self.line);
        if is_idle(line) {
            return Ok(());
        }
        let events = &mut self.events;
        let result = match &mut self.lines {
            Lines::Block(block) => block.read(line, events),
            Lines::S3 => s3::read(line, events),
            Lines::Redis => redis::read(line, events),
            Lines::Faults(faults) => faults.read(line, events),
        };
        match result {
            Ok(LineEvent::Events) => Ok(()),
            Ok(LineEvent::End) => {
                self.has_ended = true;
                Ok(())
            }
            Err(what) => {
                self.events.clear();
                Err(invalid(what))
            }
        }
    }
}

impl<R: BufRead> Iterator for ImportReader<R> {
    type Item = Result<Event, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.next == self.events.len() {
            if self.has_ended {
                return None;
            }
            if let Err(error) = self.read_line() {
                self.has_ended = true;
                return Some(Err(error));
            }
        }
        self.next += 1;
        Some(Ok(self.events[self.next - 1]))
    }
}

/// Lines without events: comments, and messages of tools before they begin.
fn is_idle(line: &[u8]) -> bool {
    line.is_empty() || line.starts_with(b"#") || line.starts_with(b"Attaching ") || line == b"OK"
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}

/// The fields of a line, between blanks.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty())
}

fn number<T: core::str::FromStr>(field: &[u8]) -> Option<T> {
    core::str::from_utf8(field).ok()?.parse().ok()
}

fn hexadecimal(field: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(field.strip_prefix(b"0x")?).ok()?, 16).ok()
}

/// Nanoseconds, from seconds with a point and up to nine digits behind it.
fn nanoseconds(field: &[u8]) -> Option<u64> {
    let point = field.iter().position(|&byte| byte == b'.')?;
    let (seconds, rest) = (number::<u64>(&field[..point])?, &field[point + 1..]);
    let is_fraction = (1..=9).contains(&rest.len()) && rest.iter().all(u8::is_ascii_digit);
    let fraction = number::<u64>(rest).filter(|_| is_fraction)?;
    let scale = 10u64.pow(9 - rest.len() as u32);
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction * scale)
}

/// A place for a name: equal names have equal places, in every trace (FNV-1a, 64 bits).
fn place_of(parts: &[&[u8]]) -> u64 {
    let byte = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    parts.iter().copied().flatten().fold(0xcbf2_9ce4_8422_2325, byte)
}

fn len_of(bytes: u64) -> Result<u32, LineError> {
    u32::try_from(bytes).map_err(|_| "a request of 4 GiB or more, which a trace cannot hold")
}

/// An event on the wire to a store that keeps objects by name.
fn wire_event(time: u64, op: traceless_core::trace::Op, at: u64, len: u32) -> Event {
    Event { time, surface: Surface::Wire, op, at, len }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use traceless_core::trace::Op;

    /// The events of `text` before its first wrong line, and the error.
    pub fn read(format: Format, text: &[u8]) -> (Vec<Event>, Option<ImportError>) {
        let mut events = vec![];
        for event in ImportReader::new(text, format) {
            match event {
                Ok(event) => events.push(event),
                Err(error) => return (events, Some(error)),
            }
        }
        (events, None)
    }

    /// The number of the first wrong line.
    pub fn invalid_line(format: Format, text: &[u8]) -> Option<u64> {
        match read(format, text).1? {
            ImportError::Line { line, .. } => Some(line),
            ImportError::Io(error) => panic!("{error}"),
        }
    }

    pub fn ops(events: &[Event]) -> Vec<(Op, u64, u32)> {
        events.iter().map(|e| (e.op, e.at, e.len)).collect()
    }

    #[test]
    fn formats_have_names_and_places_are_fnv_hashes() {
        for format in Format::ALL {
            assert_eq!(Format::named(format.name()), Some(format));
        }
        assert_eq!(Format::named("pcap"), None);
        // The published values of FNV's authors.
        assert_eq!(place_of(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(place_of(&[b"foo", b"bar"]), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn times_are_seconds_with_a_fraction() {
        assert_eq!(nanoseconds(b"12.5"), Some(12_500_000_000));
        assert_eq!(nanoseconds(b"0.000001829"), Some(1829));
        for invalid in ["12", "12.", ".5", "1.0000000000", "-1.0", "1.+1", "99999999999999999.0"] {
            assert_eq!(nanoseconds(invalid.as_bytes()), None, "{invalid}");
        }
    }

    #[test]
    fn lines_that_are_too_long_are_refused() {
        for format in Format::ALL {
            let long = vec![b'x'; LINE_MAX + 10];
            assert_eq!(invalid_line(format, &[b"\n# a comment\n", &long[..]].concat()), Some(3));
            assert_eq!(invalid_line(format, b"\n\nnonsense\n"), Some(3));
            assert!(read(format, b"# nothing\n\n").0.is_empty());
        }
        assert_eq!(Format::detect(b"TLTRACE\0"), None);
        assert_eq!(Format::detect(b"# nothing\n\n"), None);
    }
}
