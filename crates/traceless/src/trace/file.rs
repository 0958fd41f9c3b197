//! The trace file, version 1 (docs/trace.md): a header, then records of 24 bytes each.

use super::{Event, Op, Surface, Witness};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::sync::Mutex;

/// First eight bytes of every trace file.
pub const TRACE_MAGIC: [u8; 8] = *b"TLTRACE\0";

const VERSION: u16 = 1;
const HEADER_LEN: usize = 16;
const RECORD_LEN: usize = 24;

/// A trace file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Not a trace file at all.
    #[error("this is not a trace file: it does not begin with TLTRACE")]
    Magic,
    /// A later version of the format.
    #[error("trace format {0} is not known here (this program reads version 1)")]
    Version(u16),
    /// A field holds a value that the format does not define.
    #[error("record {record} is damaged: {what}")]
    Record {
        /// Number of the record, from 0.
        record: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Appends events to a file.
pub struct TraceWriter<W: Write> {
    out: BufWriter<W>,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header; the events follow.
    pub fn new(out: W) -> io::Result<Self> {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&TRACE_MAGIC);
        header[8..10].copy_from_slice(&VERSION.to_le_bytes());
        header[10..12].copy_from_slice(&(RECORD_LEN as u16).to_le_bytes());
        let mut out = BufWriter::with_capacity(1 << 16, out);
        out.write_all(&header)?;
        Ok(Self { out })
    }

    /// Appends one event.
    pub fn append(&mut self, event: Event) -> io::Result<()> {
        let mut record = [0; RECORD_LEN];
        record[..8].copy_from_slice(&event.time.to_le_bytes());
        record[8..16].copy_from_slice(&event.at.to_le_bytes());
        record[16..20].copy_from_slice(&event.len.to_le_bytes());
        record[20] = match event.op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Sync => 2,
        };
        record[21] = match event.surface {
            Surface::Storage => 0,
            Surface::Dram => 1,
            Surface::Page => 2,
            Surface::Wire => 3,
        };
        self.out.write_all(&record)
    }

    /// Hands everything appended so far to the underlying writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads the events of a trace file in order.
pub struct TraceReader<R: Read> {
    input: BufReader<R>,
    next: u64,
}

impl<R: Read> TraceReader<R> {
    /// Checks the header.
    pub fn new(input: R) -> Result<Self, TraceError> {
        let mut input = BufReader::with_capacity(1 << 16, input);
        let mut header = [0; HEADER_LEN];
        match input.read_exact(&mut header) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(TraceError::Magic),
            other => other?,
        }
        if header[..8] != TRACE_MAGIC {
            return Err(TraceError::Magic);
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version != VERSION {
            return Err(TraceError::Version(version));
        }
        if usize::from(u16::from_le_bytes([header[10], header[11]])) != RECORD_LEN {
            return Err(TraceError::Record { record: 0, what: "its length is not 24 bytes" });
        }
        Ok(Self { input, next: 0 })
    }

    fn read_event(&mut self) -> Result<Option<Event>, TraceError> {
        let mut record = [0; RECORD_LEN];
        let mut have = 0;
        while have < RECORD_LEN {
            match self.input.read(&mut record[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(self.damaged("the file ends in the middle of it")),
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
        let op = match record[20] {
            0 => Op::Read,
            1 => Op::Write,
            2 => Op::Sync,
            _ => return Err(self.damaged("unknown operation")),
        };
        let surface = match record[21] {
            0 => Surface::Storage,
            1 => Surface::Dram,
            2 => Surface::Page,
            3 => Surface::Wire,
            _ => return Err(self.damaged("unknown surface")),
        };
        let len = u32::from_le_bytes(record[16..20].try_into().expect("4 bytes"));
        self.next += 1;
        Ok(Some(Event { time: word(0), surface, op, at: word(8), len }))
    }

    fn damaged(&self, what: &'static str) -> TraceError {
        TraceError::Record { record: self.next, what }
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_event().transpose()
    }
}

/// A witness that writes to a file. The first failure is kept and reported by `finish`.
pub struct FileWitness<W: Write + Send>(Mutex<(TraceWriter<W>, Option<io::Error>)>);

impl<W: Write + Send> FileWitness<W> {
    /// Writes the header at once.
    pub fn new(out: W) -> io::Result<Self> {
        Ok(Self(Mutex::new((TraceWriter::new(out)?, None))))
    }

    /// Hands everything seen so far to the underlying writer, and reports the first failure.
    pub fn finish(&self) -> io::Result<()> {
        let (writer, failed) = &mut *self.0.lock().expect("no witness panics");
        match failed.take() {
            Some(e) => Err(e),
            None => writer.flush(),
        }
    }
}

impl<W: Write + Send> Witness for FileWitness<W> {
    fn see(&self, event: Event) {
        let (writer, failed) = &mut *self.0.lock().expect("no witness panics");
        if failed.is_none() {
            *failed = writer.append(event).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Event> {
        let event = |time, op, at, len| Event { time, surface: Surface::Storage, op, at, len };
        vec![event(0, Op::Write, 1 << 40, 4096), event(5, Op::Read, 0, 1), event(9, Op::Sync, 0, 0)]
    }

    #[test]
    fn events_come_back_as_they_went() {
        let mut bytes = vec![];
        let mut writer = TraceWriter::new(&mut bytes).unwrap();
        for event in sample() {
            writer.append(event).unwrap();
        }
        writer.flush().unwrap();
        drop(writer);
        assert_eq!(bytes.len(), 16 + 3 * 24);
        let back: Result<Vec<_>, _> = TraceReader::new(&bytes[..]).unwrap().collect();
        assert_eq!(back.unwrap(), sample());
    }

    #[test]
    fn damaged_files_are_refused() {
        assert!(matches!(TraceReader::new(&b"nonsense"[..]), Err(TraceError::Magic)));
        let mut bytes = vec![];
        let mut writer = TraceWriter::new(&mut bytes).unwrap();
        writer.append(sample()[0]).unwrap();
        writer.flush().unwrap();
        drop(writer);
        let cut: Result<Vec<_>, _> = TraceReader::new(&bytes[..bytes.len() - 1]).unwrap().collect();
        assert!(matches!(cut, Err(TraceError::Record { record: 0, .. })));
        bytes[16 + 20] = 9;
        let odd: Result<Vec<_>, _> = TraceReader::new(&bytes[..]).unwrap().collect();
        assert!(matches!(odd, Err(TraceError::Record { record: 0, .. })));
        bytes[8] = 2;
        assert!(matches!(TraceReader::new(&bytes[..]), Err(TraceError::Version(2))));
    }
}
