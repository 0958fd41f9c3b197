//! Values of any length under names.
//!
//! Which names there are is known here, so to look for one sends nothing. A value takes as many
//! queries as its size class has blocks, read or written or removed: `PADMÉ` classes, at most an
//! eighth above the length. What is new is written to free blocks, and the name turned over at
//! last, so that a value is never seen in parts.

use super::Gateway;
use super::names::Object;
use super::record::Record;
use crate::error::{Error, Result};

/// Bytes of a name.
pub const NAME_LEN_MAX: usize = 1024;
/// Bytes of a value.
pub const VALUE_LEN_MAX: usize = 64 << 20;

impl Gateway {
    /// How many names there are.
    pub fn names(&self) -> usize {
        self.state.names.len()
    }

    /// Bytes under a name, which sends nothing.
    pub fn len_of(&self, name: &[u8]) -> Option<u32> {
        self.state.names.get(name).map(|object| object.len)
    }

    /// Up to `count` names in order, behind `after`.
    pub fn names_behind(&self, after: &[u8], count: usize) -> Vec<Vec<u8>> {
        self.state.names.behind(after).take(count).cloned().collect()
    }

    /// The value under a name.
    pub fn load(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(Object { len, ids }) = self.state.names.get(name).cloned() else {
            return Ok(None);
        };
        let mut value = Vec::with_capacity(ids.len() * self.params().geometry.block_len);
        for &id in &ids {
            value.extend(self.get(u64::from(id))?);
        }
        self.pad(ids.len())?;
        value.truncate(len as usize);
        Ok(Some(value))
    }

    /// Puts a value under a name, in place of what was there.
    pub fn store(&mut self, name: &[u8], value: &[u8]) -> Result {
        if name.len() > NAME_LEN_MAX || value.len() > VALUE_LEN_MAX {
            return Err(Error::Malformed("a name of 1 KiB and a value of 64 MiB is the most"));
        }
        let block_len = self.params().geometry.block_len;
        let blocks = self.params().blocks;
        let count = value.len().div_ceil(block_len).max(1);
        let ids = self.state.names.reserve(count, blocks);
        let ids = ids.ok_or(Error::Store("every block is in use"))?;
        if let Err(error) = self.write_blocks(&ids, value) {
            self.state.names.release(ids);
            return Err(error);
        }
        let object = Object { len: value.len() as u32, ids };
        self.happen(Record::Bound { name: name.to_vec(), object })?;
        Ok(())
    }

    /// Removes a name. Says whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> Result<bool> {
        let Some(count) = self.state.names.get(name).map(|object| object.ids.len()) else {
            return Ok(false);
        };
        for _ in 0..count {
            self.dummy()?;
        }
        self.pad(count)?;
        self.happen(Record::Unbound { name: name.to_vec() })?;
        Ok(true)
    }

    fn write_blocks(&mut self, ids: &[u32], value: &[u8]) -> Result {
        let block_len = self.params().geometry.block_len;
        let mut block = vec![0; block_len];
        let parts = value.chunks(block_len).chain(core::iter::repeat(&[][..]));
        for (&id, part) in ids.iter().zip(parts) {
            block[..part.len()].copy_from_slice(part);
            block[part.len()..].fill(0);
            self.put(u64::from(id), &block)?;
        }
        self.pad(ids.len())
    }

    /// Queries for nothing, up to the class of so many blocks.
    fn pad(&mut self, blocks: usize) -> Result {
        for _ in blocks..size_class(blocks) {
            self.dummy()?;
        }
        Ok(())
    }
}

/// The least number of at least `blocks` whose last binary digits are zeros: as many as leave it as
/// few digits as its length has (Nikitin and others, `PADMÉ`).
fn size_class(blocks: usize) -> usize {
    let exponent = blocks.max(1).ilog2();
    let digits = exponent.checked_ilog2().map_or(0, |log| log + 1);
    blocks.next_multiple_of(1 << (exponent - digits))
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn classes_are_few_and_close() {
        let classes: std::collections::BTreeSet<usize> = (1..=65_536).map(size_class).collect();
        assert!(classes.len() < 220, "{}", classes.len());
        for blocks in 1..=65_536 {
            let class = size_class(blocks);
            assert!(class >= blocks && class * 8 <= blocks * 9, "{blocks} {class}");
            assert_eq!(size_class(class), class);
        }
    }
}
