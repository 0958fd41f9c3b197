//! Fixed layouts as bytes: numbers, least significant byte first, and bytes after their length.
//!
//! ```
//! use traceless_cloud::codec::{Reader, Writer};
//!
//! # fn main() -> traceless_cloud::Result {
//! let mut out = Writer::with_capacity(6);
//! out.u32(258).bytes(b"ab");
//! let bytes = out.into_bytes();
//! let mut from = Reader::new(&bytes);
//! assert_eq!((from.u32()?, from.bytes(2)?), (258, &b"ab"[..]));
//! from.end()
//! # }
//! ```

use crate::error::{Error, Result};
use alloc::vec::Vec;

/// Bytes as hexadecimal digits.
#[cfg(feature = "std")]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[digit as usize])).collect()
}

/// Bytes of the length that precedes counted bytes.
#[cfg(feature = "std")]
pub const LEN_LEN: usize = 4;

/// Appends values to bytes.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// No bytes yet, and memory for `len` of them.
    pub fn with_capacity(len: usize) -> Self {
        Self(Vec::with_capacity(len))
    }

    /// All appended bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// All appended bytes, of which there must be `N`.
    pub fn into_array<const N: usize>(self) -> [u8; N] {
        self.0.try_into().expect("the length of the layout")
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// Appends a number.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a number.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends bytes without their length.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

#[cfg(feature = "std")]
impl Writer {
    /// The bytes appended so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends an optional number.
    pub fn option(&mut self, value: Option<u32>) -> &mut Self {
        self.u8(u8::from(value.is_some())).u32(value.unwrap_or_default())
    }

    /// Appends bytes after their length.
    pub fn counted(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32).bytes(bytes)
    }

    /// Appends numbers, without their count.
    pub fn u32s(&mut self, values: &[u32]) -> &mut Self {
        self.0.reserve(size_of_val(values));
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self
    }

    /// Appends numbers, without their count.
    pub fn u64s(&mut self, values: &[u64]) -> &mut Self {
        self.0.reserve(size_of_val(values));
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self
    }
}

/// Takes values off the front of bytes.
pub struct Reader<'a> {
    remaining: &'a [u8],
    source: Source,
}

/// Decides which error reports that bytes do not have their layout.
enum Source {
    /// A message: [`Error::Malformed`].
    Message,
    /// The content of this file: [`Error::State`].
    #[cfg(feature = "std")]
    State(&'static str),
}

impl<'a> Reader<'a> {
    /// Reads a message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { remaining: bytes, source: Source::Message }
    }

    /// The bytes that were not taken yet.
    pub fn remaining(&self) -> &'a [u8] {
        self.remaining
    }

    /// Takes `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (bytes, remaining) =
            self.remaining.split_at_checked(len).ok_or_else(|| self.error("too short"))?;
        self.remaining = remaining;
        Ok(bytes)
    }

    /// Takes bytes of a fixed number.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.bytes(N)?.try_into().expect("as many bytes"))
    }

    /// Takes one byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Takes a number.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Takes a number.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Fails if bytes are left.
    pub fn end(&self) -> Result {
        if self.remaining.is_empty() { Ok(()) } else { Err(self.error("too long")) }
    }

    /// Takes the length of a list with entries of at least `len` bytes, of which there must be
    /// enough: no memory is reserved for a damaged count.
    pub fn count(&mut self, len: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count > self.remaining.len() / len {
            return Err(self.error("too short"));
        }
        Ok(count)
    }

    fn error(&self, length: &'static str) -> Error {
        match self.source {
            Source::Message => Error::Malformed(length),
            #[cfg(feature = "std")]
            Source::State(file) => Error::State(file),
        }
    }
}

#[cfg(feature = "std")]
impl<'a> Reader<'a> {
    /// Reads the content of a file; errors name it.
    pub fn of_state(bytes: &'a [u8], file: &'static str) -> Self {
        Self { remaining: bytes, source: Source::State(file) }
    }

    /// Takes all bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.remaining)
    }

    /// Takes an optional number.
    pub fn option(&mut self) -> Result<Option<u32>> {
        let is_some = self.u8()? != 0;
        let value = self.u32()?;
        Ok(is_some.then_some(value))
    }

    /// Takes bytes after their length.
    pub fn counted(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()? as usize;
        self.bytes(len)
    }

    /// Takes as many numbers as `into` holds.
    pub fn u32s(&mut self, into: &mut [u32]) -> Result {
        let bytes = self.bytes(size_of_val(into))?;
        for (value, bytes) in into.iter_mut().zip(bytes.as_chunks().0) {
            *value = u32::from_le_bytes(*bytes);
        }
        Ok(())
    }

    /// Takes as many numbers as `into` holds.
    pub fn u64s(&mut self, into: &mut [u64]) -> Result {
        let bytes = self.bytes(size_of_val(into))?;
        for (value, bytes) in into.iter_mut().zip(bytes.as_chunks().0) {
            *value = u64::from_le_bytes(*bytes);
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let mut out = Writer::default();
        out.u8(1).u32(2).u64(3).option(Some(4)).option(None).counted(b"five");
        out.u32s(&[6, 7]).u64s(&[8]).bytes(b"rest");
        let mut from = Reader::new(out.as_bytes());
        assert_eq!((from.u8().unwrap(), from.u32().unwrap(), from.u64().unwrap()), (1, 2, 3));
        assert_eq!((from.option().unwrap(), from.option().unwrap()), (Some(4), None));
        assert_eq!(from.counted().unwrap(), b"five");
        let (mut words, mut long_words) = ([0; 2], [0; 1]);
        from.u32s(&mut words).unwrap();
        from.u64s(&mut long_words).unwrap();
        assert_eq!((words, long_words), ([6, 7], [8]));
        assert_eq!(
            (from.remaining(), from.rest(), from.end().is_ok()),
            (&b"rest"[..], &b"rest"[..], true)
        );
    }

    #[test]
    fn errors_name_a_message_or_the_file() {
        assert!(matches!(Reader::new(&[1]).u32(), Err(Error::Malformed("too short"))));
        assert!(matches!(Reader::new(&[1]).end(), Err(Error::Malformed("too long"))));
        for result in [
            Reader::of_state(&[1], "a file").u32().map(drop),
            Reader::of_state(&[1], "a file").end(),
        ] {
            assert!(matches!(result, Err(Error::State("a file"))));
        }
    }

    /// Memory must be reserved for existing entries, not for a damaged count.
    #[test]
    fn counts_beyond_the_remaining_bytes_are_refused() {
        let mut bytes = [0; 4 + 17];
        bytes[0] = 2;
        for (end, count) in [(4 + 17, Some(2)), (4 + 16, Some(2)), (4 + 15, None), (4, None)] {
            assert_eq!(Reader::of_state(&bytes[..end], "a file").count(8).ok(), count, "{end}");
        }
        bytes[0] = 0;
        assert_eq!(Reader::of_state(&bytes[..4], "a file").count(8).ok(), Some(0));
    }
}
