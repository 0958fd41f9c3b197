//! This project's own format: a few bytes an operation.
//!
//! A file begins with `TRCLSWL2`. Two numbers follow for each operation, 7 bits a byte, lowest
//! first: the instructions before it, doubled, and one more for a write; and the step from the line
//! before, doubled, or doubled and less one if it leads down. The first step begins at line 0.
//!
//! At the end there are two more numbers, like another operation's: the number of operations, and
//! the largest number of 64 bits, which no step is. A file without them is cut short. Nothing
//! follows them.

use super::{LINE_LEN, Op, Record, Workload};
use crate::error::{Error, Result};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

/// The first bytes of files of this format.
pub const PACKED_MAGIC: [u8; 8] = *b"TRCLSWL2";

/// The first bytes of an older version, which had no mark at the end.
pub(super) const UNMARKED_MAGIC: [u8; 8] = *b"TRCLSWL1";

/// Marks the end, in place of a step. Lines have 58 bits, so steps have at most 60.
const END: u64 = u64::MAX;

/// A workload in the packed format, read as it is needed.
pub struct PackedWorkload {
    path: PathBuf,
    bytes: Box<dyn BufRead + Send>,
    line: u64,
    /// Whole operations so far.
    records: u64,
    has_ended: bool,
}

impl PackedWorkload {
    /// The workload in `bytes`, without the magic bytes; errors name it `path`.
    pub fn from_reader(bytes: impl BufRead + Send + 'static, path: &Path) -> Self {
        let bytes = Box::new(bytes);
        Self { path: path.into(), bytes, line: 0, records: 0, has_ended: false }
    }

    fn refused(&self, what: &'static str) -> Error {
        Error::Workload { path: self.path.clone(), record: self.records + 1, what }
    }

    fn cut_short(&self) -> Error {
        Error::CutShort { path: self.path.clone(), records: self.records }
    }

    fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?.ok_or_else(|| self.cut_short())?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.refused("a number is too large"))
    }

    /// Checks the number of operations in the mark at the end, and that nothing follows it.
    fn end(&mut self, records: u64) -> Result {
        if records != self.records {
            return Err(self.refused("its end mark counts other operations than there are"));
        }
        if self.byte()?.is_some() {
            return Err(self.refused("something follows its end mark"));
        }
        self.has_ended = true;
        Ok(())
    }

    #[inline]
    fn byte(&mut self) -> Result<Option<u8>> {
        let bytes = self.bytes.fill_buf();
        let bytes = bytes.map_err(|source| Error::Io { path: self.path.clone(), source })?;
        let byte = bytes.first().copied();
        self.bytes.consume(usize::from(byte.is_some()));
        Ok(byte)
    }
}

impl Workload for PackedWorkload {
    fn next(&mut self) -> Result<Option<Record>> {
        if self.has_ended {
            return Ok(None);
        }
        let (before, step) = (self.number()?, self.number()?);
        if step == END {
            self.end(before)?;
            return Ok(None);
        }
        let step = (step >> 1).cast_signed() ^ -(step & 1).cast_signed();
        self.line = self.line.wrapping_add_signed(step);
        let addr = self.line.checked_mul(LINE_LEN);
        let addr = addr.ok_or_else(|| self.refused("its address is too large"))?;
        self.records += 1;
        let op = if before & 1 == 0 { Op::Read } else { Op::Write };
        Ok(Some(Record { before: before >> 1, op, addr }))
    }
}

/// Writes a workload in the packed format.
pub struct PackedWriter<W> {
    out: W,
    line: u64,
    records: u64,
}

impl<W: Write> PackedWriter<W> {
    /// Begins a file.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&PACKED_MAGIC)?;
        Ok(Self { out, line: 0, records: 0 })
    }

    /// Adds an operation.
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        let line = record.addr / LINE_LEN;
        let step = line.wrapping_sub(self.line).cast_signed();
        self.line = line;
        self.records += 1;
        self.number(record.before << 1 | u64::from(record.op == Op::Write))?;
        self.number((step << 1 ^ step >> 63).cast_unsigned())
    }

    /// Writes the mark at the end, flushes, and returns the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.number(self.records)?;
        self.number(END)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn number(&mut self, mut number: u64) -> io::Result<()> {
        let mut bytes = [0; 10];
        let mut len = 0;
        while number >= 0x80 {
            bytes[len] = number as u8 | 0x80;
            number >>= 7;
            len += 1;
        }
        bytes[len] = number as u8;
        self.out.write_all(&bytes[..=len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::rng::{Rng, SeededRng};

    fn read(bytes: &[u8]) -> Result<Vec<Record>> {
        let bytes = io::Cursor::new(bytes[PACKED_MAGIC.len()..].to_vec());
        let mut workload = PackedWorkload::from_reader(bytes, Path::new("w"));
        let mut records = vec![];
        while let Some(record) = workload.next()? {
            records.push(record);
        }
        Ok(records)
    }

    #[test]
    fn what_is_written_is_read() {
        let mut rng = SeededRng::new(1);
        let records: Vec<_> = (0..2000)
            .map(|nth| Record {
                before: rng.next_u64() >> (1 + nth % 63),
                op: if rng.below(2) == 0 { Op::Read } else { Op::Write },
                addr: (rng.next_u64() >> (nth % 64)) / LINE_LEN * LINE_LEN,
            })
            .collect();
        let mut writer = PackedWriter::new(Vec::new()).unwrap();
        for record in &records {
            writer.append(*record).unwrap();
        }
        let bytes = writer.finish().unwrap();
        assert_eq!(read(&bytes).unwrap(), records);
    }

    /// A file is refused wherever it is cut, between operations as well.
    #[test]
    fn what_is_cut_short_is_refused_and_named() {
        let mut writer = PackedWriter::new(Vec::new()).unwrap();
        let record = |nth| Record { before: nth, op: Op::Write, addr: nth * nth * LINE_LEN };
        (0..300).for_each(|nth| writer.append(record(nth)).unwrap());
        let bytes = writer.finish().unwrap();
        assert_eq!(read(&bytes).unwrap().len(), 300);
        let mut most = 0;
        for end in PACKED_MAGIC.len()..bytes.len() {
            let refused = read(&bytes[..end]).unwrap_err();
            let Error::CutShort { records, .. } = refused else { panic!("{end}: {refused}") };
            most = most.max(records);
            assert!(refused.to_string().contains("record it again"), "{refused}");
        }
        assert_eq!(most, 300, "cut before its end mark");
    }

    #[test]
    fn an_end_that_is_none_is_refused() {
        let mut writer = PackedWriter::new(Vec::new()).unwrap();
        let record = Record { before: 1, op: Op::Read, addr: 64 };
        (0..2).for_each(|_| writer.append(record).unwrap());
        let bytes = writer.finish().unwrap();
        let longer = [&bytes[..], &[0]].concat();
        let error = read(&longer).unwrap_err().to_string();
        assert!(error.contains("something follows"), "{error}");
        let first = PACKED_MAGIC.len();
        let fewer = [&bytes[..first], &bytes[first + 2..]].concat();
        let error = read(&fewer).unwrap_err().to_string();
        assert!(error.contains("counts other operations"), "{error}");
    }

    #[test]
    fn small_steps_take_two_bytes() {
        let mut writer = PackedWriter::new(Vec::new()).unwrap();
        let record = |addr| Record { before: 20, op: Op::Read, addr };
        (0..100).for_each(|nth| writer.append(record(nth % 60 * LINE_LEN)).unwrap());
        assert_eq!(writer.finish().unwrap().len(), PACKED_MAGIC.len() + 200 + 11);
    }

    #[test]
    fn nonsense_is_refused() {
        let file = |tail: &[u8]| [&PACKED_MAGIC[..], tail].concat();
        assert!(read(&file(&[0])).is_err(), "no step");
        assert!(read(&file(&[0xff; 11])).is_err(), "a number without end");
        let large = [&[0, 0xfe][..], &[0xff; 8], &[1]].concat();
        assert!(read(&file(&large)).is_err(), "an address beyond all");
    }
}
