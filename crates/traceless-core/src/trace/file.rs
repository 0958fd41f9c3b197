//! The trace file (docs/trace-format.md): frames of events, which this library writes (version 2),
//! or records of 24 bytes each, which other programs may write (version 1). Secrets lie in files of
//! the same format.

use super::frame::{BODY_MAX, FRAME_EVENTS, decode, encode};
use super::{Event, Op, Request, Surface};
use std::io::{self, BufReader, Read, Write};

/// First eight bytes of every trace file.
pub const TRACE_MAGIC: [u8; 8] = *b"TLTRACE\0";

const RECORDS: u16 = 1;
const FRAMES: u16 = 2;
const HEADER_LEN: usize = 16;
const RECORD_LEN: usize = 24;

/// Header of a frame: number of events, length of the body, and a checksum over both and the body.
const FRAME_HEADER_LEN: usize = 12;
/// Offset of the checksum in the header.
const SUM_AT: usize = 8;

/// Length of the last frame's body, which holds the total number of events.
const END_LEN: usize = 8;

/// What the entries of a file stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    Trace = 0,
    /// Entries are requests; the time is the number of events recorded before the request.
    Secrets = 1,
}

/// A trace file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Not a trace file at all.
    #[error("this is not a trace file: it does not begin with TLTRACE")]
    Magic,
    /// A later version of the format.
    #[error("trace format {0} is not known here (this program reads versions 1 and 2)")]
    Version(u16),
    /// A file of secrets where a trace was expected, or the other way round.
    #[error("{0}")]
    Content(&'static str),
    /// The file lacks its end mark: its writer was interrupted. Earlier events were read.
    #[error("it is cut after {events} events: its writer did not finish")]
    Cut {
        /// Events that were read.
        events: u64,
    },
    /// A field holds a value that the format does not define. Earlier events were read.
    #[error("it is damaged after {events} events: {what}")]
    Damaged {
        /// Events that were read.
        events: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Appends events to a file. A file that was not [finished](Self::finish) reads as cut.
pub struct TraceWriter<W: Write> {
    out: W,
    events: Vec<Event>,
    frame: Vec<u8>,
    written: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header; the events follow.
    pub fn new(out: W) -> io::Result<Self> {
        Self::with_content(out, Content::Trace)
    }

    fn with_content(mut out: W, content: Content) -> io::Result<Self> {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&TRACE_MAGIC);
        header[8..10].copy_from_slice(&FRAMES.to_le_bytes());
        header[10] = content as u8;
        out.write_all(&header)?;
        Ok(Self { out, events: Vec::with_capacity(FRAME_EVENTS), frame: vec![], written: 0 })
    }

    /// Appends one event.
    #[inline]
    pub fn append(&mut self, event: Event) -> io::Result<()> {
        self.events.push(event);
        if self.events.len() == FRAME_EVENTS { self.write_events() } else { Ok(()) }
    }

    /// Events appended so far.
    pub fn appended(&self) -> u64 {
        self.written + self.events.len() as u64
    }

    /// Writes buffered events and the end mark.
    pub fn finish(mut self) -> io::Result<()> {
        self.write_events()?;
        let all = self.written.to_le_bytes();
        self.write_frame(0, |body| body.extend_from_slice(&all))?;
        self.out.flush()
    }

    /// Writes the events that are buffered.
    pub(super) fn write_events(&mut self) -> io::Result<()> {
        if self.events.is_empty() {
            return Ok(());
        }
        let events = core::mem::take(&mut self.events);
        let written = self.write_frame(events.len(), |body| encode(&events, body));
        self.written += events.len() as u64;
        self.events = events;
        self.events.clear();
        written
    }

    fn write_frame(&mut self, count: usize, body: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.frame.clear();
        self.frame.extend_from_slice(&[0; FRAME_HEADER_LEN]);
        body(&mut self.frame);
        let len = self.frame.len() - FRAME_HEADER_LEN;
        debug_assert!(len <= BODY_MAX);
        self.frame[..4].copy_from_slice(&(count as u32).to_le_bytes());
        self.frame[4..SUM_AT].copy_from_slice(&(len as u32).to_le_bytes());
        let sum = adler32(&[&self.frame[..SUM_AT], &self.frame[FRAME_HEADER_LEN..]]);
        self.frame[SUM_AT..FRAME_HEADER_LEN].copy_from_slice(&sum.to_le_bytes());
        self.out.write_all(&self.frame)
    }
}

/// Buffered events are kept if the writer is dropped, but without the end mark.
impl<W: Write> Drop for TraceWriter<W> {
    fn drop(&mut self) {
        // A drop cannot report an error. The file reads as cut in any case.
        let _ = self.write_events().and_then(|()| self.out.flush());
    }
}

/// Appends client requests to a file of its own, in plain text.
pub struct SecretWriter<W: Write>(TraceWriter<W>);

impl<W: Write> SecretWriter<W> {
    /// Writes the header; the requests follow.
    pub fn new(out: W) -> io::Result<Self> {
        TraceWriter::with_content(out, Content::Secrets).map(Self)
    }

    /// Appends one request.
    pub fn append(&mut self, request: Request) -> io::Result<()> {
        let Request { events_before, op, at, len } = request;
        self.0.append(Event { time: events_before, surface: Surface::Storage, op, at, len })
    }

    /// Writes buffered requests and the end mark.
    pub fn finish(self) -> io::Result<()> {
        self.0.finish()
    }
}

/// Reads the events of a trace file in order. Events before a cut or damage are read; then the
/// error follows, and after it nothing.
pub struct TraceReader<R: Read> {
    input: BufReader<R>,
    is_records: bool,
    /// No more events can be read; the error in `wrong`, if any, is still to be returned.
    has_ended: bool,
    wrong: Option<TraceError>,
    events: Vec<Event>,
    /// Index of the first event in `events` that was not returned yet.
    next: usize,
    body: Vec<u8>,
    /// Number of events read before `events`.
    before: u64,
}

impl<R: Read> TraceReader<R> {
    /// Reads and checks the header.
    pub fn new(input: R) -> Result<Self, TraceError> {
        Self::with_content(input, Content::Trace)
    }

    fn with_content(input: R, wanted: Content) -> Result<Self, TraceError> {
        let mut input = BufReader::with_capacity(1 << 18, input);
        let mut header = [0; HEADER_LEN];
        match input.read_exact(&mut header) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(TraceError::Magic),
            other => other?,
        }
        if header[..8] != TRACE_MAGIC {
            return Err(TraceError::Magic);
        }
        let number = u16::from_le_bytes([header[10], header[11]]);
        let is_records = match u16::from_le_bytes([header[8], header[9]]) {
            RECORDS if usize::from(number) == RECORD_LEN => true,
            RECORDS => {
                let what = "a record has not 24 bytes";
                return Err(TraceError::Damaged { events: 0, what });
            }
            FRAMES => false,
            version => return Err(TraceError::Version(version)),
        };
        let is_secret = !is_records && number == Content::Secrets as u16;
        if !is_records && number > Content::Secrets as u16 {
            return Err(TraceError::Content("it holds neither a trace nor secrets"));
        }
        match wanted {
            Content::Trace if is_secret => {
                return Err(TraceError::Content("these are secrets and not a trace"));
            }
            Content::Secrets if !is_secret => {
                return Err(TraceError::Content("this is a trace and not the secrets of one"));
            }
            _ => {}
        }
        let (events, body) = (vec![], vec![]);
        let (has_ended, wrong) = (false, None);
        Ok(Self { input, is_records, has_ended, wrong, events, next: 0, body, before: 0 })
    }

    /// Replaces `events` by the next events of the file, if there are any.
    #[cold]
    fn read_more(&mut self) -> Result<(), TraceError> {
        self.before += self.events.len() as u64;
        self.events.clear();
        self.next = 0;
        if self.is_records { self.read_records() } else { self.read_frame() }
    }

    fn read_frame(&mut self) -> Result<(), TraceError> {
        let mut header = [0; FRAME_HEADER_LEN];
        self.fill(&mut header)?;
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        let (count, len) = (number(0) as usize, number(4) as usize);
        if len > BODY_MAX {
            return Err(self.damaged("a frame is too long"));
        }
        let mut body = core::mem::take(&mut self.body);
        body.resize(len, 0);
        self.fill(&mut body)?;
        self.body = body;
        if number(SUM_AT) != adler32(&[&header[..SUM_AT], &self.body]) {
            return Err(self.damaged("the sum of a frame is another"));
        }
        if count > 0 {
            let decoded = decode(count, &self.body, &mut self.events);
            return decoded.map_err(|what| {
                self.events.clear();
                self.damaged(what)
            });
        }
        if self.body.len() != END_LEN || self.body[..] != self.before.to_le_bytes() {
            return Err(self.damaged("the number of all events is another"));
        }
        if self.input.read(&mut [0])? > 0 {
            return Err(self.damaged("something follows its end"));
        }
        self.has_ended = true;
        Ok(())
    }

    /// Fills `bytes`. A file that ends earlier is cut.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), TraceError> {
        self.input.read_exact(bytes).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => TraceError::Cut { events: self.before },
            _ => TraceError::Io(e),
        })
    }

    fn read_records(&mut self) -> Result<(), TraceError> {
        let most = FRAME_EVENTS * RECORD_LEN;
        let mut body = core::mem::take(&mut self.body);
        body.clear();
        self.input.by_ref().take(most as u64).read_to_end(&mut body)?;
        self.body = body;
        self.has_ended = self.body.len() < most;
        for record in self.body.chunks(RECORD_LEN) {
            match event_of(record) {
                Ok(event) => self.events.push(event),
                Err(what) => {
                    let events = self.before + self.events.len() as u64;
                    return Err(TraceError::Damaged { events, what });
                }
            }
        }
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> TraceError {
        TraceError::Damaged { events: self.before, what }
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<Event, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.next == self.events.len() {
            if self.has_ended {
                return self.wrong.take().map(Err);
            }
            if let Err(error) = self.read_more() {
                self.has_ended = true;
                self.wrong = Some(error);
            }
        }
        self.next += 1;
        Some(Ok(self.events[self.next - 1]))
    }
}

/// Reads client requests in order, as [`TraceReader`] reads events.
pub struct SecretReader<R: Read>(TraceReader<R>);

impl<R: Read> SecretReader<R> {
    /// Reads and checks the header.
    pub fn new(input: R) -> Result<Self, TraceError> {
        TraceReader::with_content(input, Content::Secrets).map(Self)
    }
}

impl<R: Read> Iterator for SecretReader<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let request =
            |Event { time, op, at, len, .. }| Request { events_before: time, op, at, len };
        self.0.next().map(|event| event.map(request))
    }
}

/// Decodes a record of version 1.
fn event_of(record: &[u8]) -> Result<Event, &'static str> {
    let record: &[u8; RECORD_LEN] =
        record.try_into().map_err(|_| "the file ends in the middle of a record")?;
    let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
    let op = *Op::ALL.get(usize::from(record[20])).ok_or("unknown operation")?;
    let surface = *Surface::ALL.get(usize::from(record[21])).ok_or("unknown surface")?;
    let len = u32::from_le_bytes(record[16..20].try_into().expect("4 bytes"));
    Ok(Event { time: word(0), surface, op, at: word(8), len })
}

/// Adler-32, as in zlib: two sums modulo a prime.
fn adler32(parts: &[&[u8]]) -> u32 {
    const PRIME: u32 = 65_521;
    /// Number of bytes that can be added before a reduction without overflow of either sum.
    const BYTES_MAX: usize = 5_552;
    let (mut a, mut b) = (1, 0);
    for some in parts.iter().flat_map(|part| part.chunks(BYTES_MAX)) {
        for &byte in some {
            a += u32::from(byte);
            b += a;
        }
        a %= PRIME;
        b %= PRIME;
    }
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: u64, op: Op, at: u64, len: u32) -> Event {
        Event { time, surface: Surface::Storage, op, at, len }
    }

    fn sample() -> Vec<Event> {
        vec![
            event(0, Op::Write, 1 << 40, 4096),
            event(5, Op::Read, 0, 1),
            event(9, Op::Sync, 0, 0),
            Event { surface: Surface::Wire, ..event(2, Op::Read, u64::MAX, u32::MAX) },
            Event { surface: Surface::Page, ..event(u64::MAX, Op::Write, 1 << 63, 0) },
            Event { surface: Surface::Dram, ..event(0, Op::Write, 0, 64) },
        ]
    }

    fn written(events: &[Event]) -> Vec<u8> {
        let mut bytes = vec![];
        let mut writer = TraceWriter::new(&mut bytes).unwrap();
        for event in events {
            writer.append(*event).unwrap();
        }
        writer.finish().unwrap();
        bytes
    }

    /// The events that are read, and the error after them.
    fn read(bytes: &[u8]) -> (Vec<Event>, Option<TraceError>) {
        let mut events = vec![];
        for event in TraceReader::new(bytes).unwrap() {
            match event {
                Ok(event) => events.push(event),
                Err(error) => return (events, Some(error)),
            }
        }
        (events, None)
    }

    /// Accesses of a Path ORAM with 20 levels and buckets of 320 bytes, with the times of a disk.
    fn paths(accesses: u64) -> Vec<Event> {
        let mut state = 1u64;
        let mut events = vec![];
        for access in 0..accesses {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let leaf = state >> 45;
            for op in [Op::Read, Op::Write] {
                for level in 0..20u64 {
                    let bucket = (1 << level) - 1 + (leaf >> (19 - level));
                    let time = access * 7001 + if op == Op::Write { 1500 } else { 0 };
                    events.push(event(time, op, bucket * 320, 320));
                }
            }
        }
        events
    }

    fn bytes_an_event(events: &[Event]) -> f64 {
        let bytes = written(events);
        assert_eq!(read(&bytes).0, events);
        bytes.len() as f64 / events.len() as f64
    }

    #[test]
    fn events_come_back_as_they_went() {
        for events in [vec![], sample(), sample().repeat(10_000), paths(1000)] {
            let (back, error) = read(&written(&events));
            assert_eq!(back, events);
            assert!(error.is_none(), "{error:?}");
        }
    }

    #[test]
    fn typical_traces_take_less_than_four_bytes_an_event() {
        let of_paths = bytes_an_event(&paths(5000));
        assert!(of_paths < 2.1, "{of_paths}");
        // Two areas written in turn, as by a volume.
        let areas =
            |i: u64| event(i / 4 * 90_000, Op::Write, i % 4 / 2 * (1 << 40) + i * 4096, 4096);
        let of_areas = bytes_an_event(&(0..100_000).map(areas).collect::<Vec<_>>());
        assert!(of_areas < 2.5, "{of_areas}");
        // Random lines of a memory of 64 GiB.
        let mut lines = paths(2000);
        for (i, event) in (0u64..).zip(&mut lines) {
            let at = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34 << 6;
            *event = Event { time: i * 30, surface: Surface::Dram, at, len: 64, ..*event };
        }
        let of_lines = bytes_an_event(&lines);
        assert!((4.0..6.0).contains(&of_lines), "what is random cannot be shorter: {of_lines}");
    }

    #[test]
    fn many_kinds_and_wide_fields_come_back() {
        for kinds in [1, 2, 3, 5, 17, 257, 5000] {
            let kind = |i: u64| {
                let surface = Surface::ALL[(i % 4) as usize];
                let at = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 64);
                Event { surface, ..event(at, Op::ALL[(i % 3) as usize], at, (i % kinds) as u32) }
            };
            let events: Vec<Event> = (0..40_000).map(kind).collect();
            assert_eq!(read(&written(&events)).0, events, "{kinds}");
        }
    }

    #[test]
    fn what_is_cut_anywhere_is_read_up_to_there() {
        let events = sample().repeat(6000);
        let bytes = written(&events);
        for len in (16..bytes.len()).step_by(97).chain(bytes.len() - 20..bytes.len()) {
            let (back, error) = read(&bytes[..len]);
            assert_eq!(back, events[..back.len()]);
            assert_eq!(
                back.len() / FRAME_EVENTS * FRAME_EVENTS,
                back.len() - back.len() % FRAME_EVENTS
            );
            let cut =
                matches!(error, Some(TraceError::Cut { events }) if events == back.len() as u64);
            assert!(cut, "{len}: {error:?}");
        }
    }

    #[test]
    fn a_writer_that_goes_away_leaves_what_it_had() {
        let mut bytes = vec![];
        let mut writer = TraceWriter::new(&mut bytes).unwrap();
        for event in sample() {
            writer.append(event).unwrap();
        }
        assert_eq!(writer.appended(), 6);
        drop(writer);
        let (back, error) = read(&bytes);
        assert_eq!(back, sample());
        assert!(matches!(error, Some(TraceError::Cut { events: 6 })), "{error:?}");
    }

    #[test]
    fn each_bit_that_flips_is_found() {
        let bytes = written(&sample());
        for bit in 16 * 8..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let (back, error) = read(&bad);
            assert!(error.is_some(), "bit {bit}");
            assert!(back.is_empty() || back == sample());
        }
        let (back, error) = read(&[bytes, vec![0]].concat());
        assert_eq!(back, sample());
        assert!(matches!(error, Some(TraceError::Damaged { events: 6, .. })), "{error:?}");
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        assert!(matches!(TraceReader::new(&b"nonsense"[..]), Err(TraceError::Magic)));
        let mut bytes = written(&sample());
        bytes[8] = 3;
        assert!(matches!(TraceReader::new(&bytes[..]), Err(TraceError::Version(3))));
        bytes[8..11].copy_from_slice(&[2, 0, 2]);
        assert!(matches!(TraceReader::new(&bytes[..]), Err(TraceError::Content(_))));
    }

    #[test]
    fn secrets_are_no_trace() {
        let request = |events_before| Request {
            events_before,
            op: Op::Read,
            at: 4096 * (events_before % 7),
            len: 4096,
        };
        let mut bytes = vec![];
        let mut writer = SecretWriter::new(&mut bytes).unwrap();
        (0..1000).for_each(|i| writer.append(request(i * 42)).unwrap());
        writer.finish().unwrap();
        let back: Vec<Request> =
            SecretReader::new(&bytes[..]).unwrap().map(Result::unwrap).collect();
        assert_eq!(back, (0..1000).map(|i| request(i * 42)).collect::<Vec<_>>());
        assert!(matches!(TraceReader::new(&bytes[..]), Err(TraceError::Content(_))));
        let trace = written(&sample());
        assert!(matches!(SecretReader::new(&trace[..]), Err(TraceError::Content(_))));
    }

    /// Events in version 1 of docs/trace-format.md.
    fn records(events: &[Event]) -> Vec<u8> {
        let mut bytes = [&TRACE_MAGIC[..], &[1, 0, 24, 0, 0, 0, 0, 0]].concat();
        for event in events {
            bytes.extend(event.time.to_le_bytes());
            bytes.extend(event.at.to_le_bytes());
            bytes.extend(event.len.to_le_bytes());
            bytes.extend([event.op as u8, event.surface as u8, 0, 0]);
        }
        bytes
    }

    #[test]
    fn records_of_other_programs_are_read() {
        for events in [vec![], sample(), sample().repeat(10_000)] {
            let (back, error) = read(&records(&events));
            assert_eq!(back, events);
            assert!(error.is_none(), "{error:?}");
        }
        let bytes = records(&sample());
        let (back, error) = read(&bytes[..bytes.len() - 1]);
        assert_eq!(back, sample()[..5]);
        assert!(matches!(error, Some(TraceError::Damaged { events: 5, .. })), "{error:?}");
        for field in [20, 21] {
            let mut odd = records(&sample());
            odd[16 + field] = 9;
            let (_, error) = read(&odd);
            assert!(matches!(error, Some(TraceError::Damaged { events: 0, .. })));
        }
        let mut wide = records(&sample());
        wide[10] = 32;
        assert!(matches!(TraceReader::new(&wide[..]), Err(TraceError::Damaged { .. })));
    }

    #[test]
    fn the_sum_is_that_of_zlib() {
        assert_eq!(adler32(&[b"Wikipedia"]), 0x11e6_0398);
        assert_eq!(adler32(&[&[255; 9000], &[255; 1000]]), adler32(&[&[255; 10_000]]));
    }
}
