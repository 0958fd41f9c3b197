//! The rows to be permuted, in the enclave's memory.

use crate::error::{Error, Result};
use crate::geometry::PART_LEN;
use traceless_sys::Words;
use traceless_sys::ct::{bytes_of, bytes_of_mut};

/// Words of a cache line.
const LINE: usize = 8;
/// Words of a row: a part of a slot, in whole cache lines.
pub(super) const ROW: usize = PART_LEN.div_ceil(LINE * size_of::<u64>()) * LINE;

/// One part of each row of a node and of the slots evicted into it.
pub struct Slab {
    words: Words,
    rows: usize,
}

impl Slab {
    /// Room for `rows` rows.
    pub fn new(rows: usize) -> Result<Self> {
        let words = Words::zeroed(rows * ROW).ok_or(Error::Memory)?;
        Ok(Self { words, rows })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes that `rows` rows take up.
    pub fn bytes(rows: usize) -> usize {
        rows * ROW * size_of::<u64>()
    }

    /// A row as bytes.
    pub fn row(&self, row: usize) -> &[u8] {
        bytes_of(&self.words[row * ROW..][..ROW])
    }

    /// A row as mutable bytes.
    pub fn row_mut(&mut self, row: usize) -> &mut [u8] {
        bytes_of_mut(&mut self.words[row * ROW..][..ROW])
    }

    /// The first `rows` rows.
    pub fn rows_mut(&mut self, rows: usize) -> Rows<'_> {
        Rows(&mut self.words[..rows * ROW])
    }
}

/// Consecutive rows.
pub struct Rows<'a>(&'a mut [u64]);

impl Rows<'_> {
    /// The rows before row `at`, and the rows from `at` on.
    pub fn split_at(&mut self, at: usize) -> (Rows<'_>, Rows<'_>) {
        let (before, after) = self.0.split_at_mut(at * ROW);
        (Rows(before), Rows(after))
    }

    /// Each row as mutable bytes.
    pub fn bytes_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.0.chunks_exact_mut(ROW).map(bytes_of_mut)
    }

    /// Each row as words.
    #[expect(clippy::inline_always, reason = "called by work that is compiled for each processor")]
    #[inline(always)]
    pub(super) fn words_mut(&mut self) -> impl Iterator<Item = &mut [u64]> {
        self.0.chunks_exact_mut(ROW)
    }
}
