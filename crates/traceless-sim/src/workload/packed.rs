//! Our own format: a few bytes an operation.
//!
//! `TRCLSWL1`, then for each operation two numbers of 7 bits a byte, lowest first: instructions
//! before it, doubled, and one more for a write; and the step from the line before, doubled, or
//! doubled and less one if it leads down. A step of 0 first begins at line 0.

use super::{LINE_LEN, Op, Record, Workload};
use crate::error::{Error, Result};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

/// How files of this format begin.
pub const PACKED_MAGIC: [u8; 8] = *b"TRCLSWL1";

/// A workload in that format, read as it is needed.
pub struct Packed {
    path: PathBuf,
    bytes: Box<dyn BufRead + Send>,
    line: u64,
    record: u64,
}

impl Packed {
    /// What follows the magic bytes; errors name it `path`.
    pub fn from_reader(bytes: impl BufRead + Send + 'static, path: &Path) -> Self {
        Self { path: path.into(), bytes: Box::new(bytes), line: 0, record: 0 }
    }

    fn refused(&self, what: &'static str) -> Error {
        Error::Workload { path: self.path.clone(), record: self.record, what }
    }

    /// None at the end of the file.
    fn number(&mut self) -> Result<Option<u64>> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let Some(byte) = byte else {
                return if shift == 0 { Ok(None) } else { Err(self.refused(CUT_SHORT)) };
            };
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(Some(number));
            }
        }
        Err(self.refused("a number is too large"))
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

const CUT_SHORT: &str = "it is cut short";

impl Workload for Packed {
    fn next(&mut self) -> Result<Option<Record>> {
        self.record += 1;
        let Some(before) = self.number()? else { return Ok(None) };
        let step = self.number()?.ok_or_else(|| self.refused(CUT_SHORT))?;
        let step = (step >> 1).cast_signed() ^ -(step & 1).cast_signed();
        self.line = self.line.wrapping_add_signed(step);
        let addr = self.line.checked_mul(LINE_LEN);
        let addr = addr.ok_or_else(|| self.refused("its address is too large"))?;
        let op = if before & 1 == 0 { Op::Read } else { Op::Write };
        Ok(Some(Record { before: before >> 1, op, addr }))
    }
}

/// Writes a workload in that format.
pub struct PackedWriter<W> {
    out: W,
    line: u64,
}

impl<W: Write> PackedWriter<W> {
    /// Begins a file.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&PACKED_MAGIC)?;
        Ok(Self { out, line: 0 })
    }

    /// Adds an operation.
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        let line = record.addr / LINE_LEN;
        let step = line.wrapping_sub(self.line).cast_signed();
        self.line = line;
        self.number(record.before << 1 | u64::from(record.op == Op::Write))?;
        self.number((step << 1 ^ step >> 63).cast_unsigned())
    }

    /// Hands over what is left, and what it wrote to.
    pub fn finish(mut self) -> io::Result<W> {
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
    use traceless::rng::{Rng, Seeded};

    fn read(bytes: &[u8]) -> Result<Vec<Record>> {
        let bytes = io::Cursor::new(bytes[PACKED_MAGIC.len()..].to_vec());
        let mut workload = Packed::from_reader(bytes, Path::new("w"));
        let mut records = vec![];
        while let Some(record) = workload.next()? {
            records.push(record);
        }
        Ok(records)
    }

    #[test]
    fn what_is_written_is_read() {
        let mut rng = Seeded::new(1);
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
        assert!(read(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn small_steps_take_two_bytes() {
        let mut writer = PackedWriter::new(Vec::new()).unwrap();
        let record = |addr| Record { before: 20, op: Op::Read, addr };
        (0..100).for_each(|nth| writer.append(record(nth % 60 * LINE_LEN)).unwrap());
        assert_eq!(writer.finish().unwrap().len(), PACKED_MAGIC.len() + 200);
    }

    #[test]
    fn nonsense_is_refused() {
        let file = |tail: &[u8]| [&PACKED_MAGIC[..], tail].concat();
        assert!(read(&file(&[0])).is_err(), "no step");
        assert!(read(&file(&[0xff; 11])).is_err(), "a number without end");
        let large = [&[0][..], &[0xff; 9], &[1]].concat();
        assert!(read(&file(&large)).is_err(), "an address beyond all");
    }
}
