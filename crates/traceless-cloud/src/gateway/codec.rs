//! A gateway's state as bytes: encodes and decodes numbers and lists.

use crate::error::{Error, Result};

/// Appends values to bytes.
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Appends a number.
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a number.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends an optional number.
    pub fn option(&mut self, value: Option<u32>) {
        self.0.push(u8::from(value.is_some()));
        self.u32(value.unwrap_or_default());
    }

    /// Appends bytes after their length.
    pub fn counted(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    /// Appends numbers, without their count.
    pub fn u32s(&mut self, values: &[u32]) {
        self.0.reserve(size_of_val(values));
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    /// Appends numbers, without their count.
    pub fn u64s(&mut self, values: &[u64]) {
        traceless_core::durable::save_words(values, &mut self.0);
    }
}

/// Takes values off the front of bytes.
pub struct RecordReader<'a>(pub &'a [u8]);

impl<'a> RecordReader<'a> {
    /// Takes `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let short = Error::State("the gateway's state");
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(short)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Takes a number.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().expect("4 bytes")))
    }

    /// Takes a number.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().expect("8 bytes")))
    }

    /// Takes an optional number.
    pub fn option(&mut self) -> Result<Option<u32>> {
        let is_some = self.bytes(1)?[0] != 0;
        let value = self.u32()?;
        Ok(is_some.then_some(value))
    }

    /// Takes bytes after their length.
    pub fn counted(&mut self) -> Result<Vec<u8>> {
        let len = self.u32()? as usize;
        Ok(self.bytes(len)?.to_vec())
    }

    /// Takes the length of a list with entries of at least `len` bytes.
    pub fn count(&mut self, len: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count > self.0.len() / len {
            return Err(Error::State("the gateway's state"));
        }
        Ok(count)
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
