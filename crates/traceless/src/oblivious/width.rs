//! The length of a block, known at compile time or at run time.

use alloc::vec;
use alloc::vec::Vec;
use traceless_sys::ct::{InMemory, InRegisters, MovingBlock, Vector};

/// Words in a cache line.
pub const LINE: usize = 8;

/// The length of blocks, and where a block is while it moves.
pub trait Width: Copy + Send + Sync {
    /// A block on its way from slot to slot.
    type Block<V: Vector>: MovingBlock<V>;

    /// Words of 8 bytes in a block.
    fn words(self) -> usize;

    /// Holds the block in `buffer`, and may take its memory until [`release`](Self::release).
    fn hold<V: Vector>(self, vector: V, buffer: &mut Vec<u64>) -> Self::Block<V>;

    /// Puts the block into `buffer`.
    fn release<V: Vector>(self, block: Self::Block<V>, buffer: &mut Vec<u64>);

    /// A buffer for one block.
    fn buffer(self) -> Vec<u64> {
        vec![0; self.words()]
    }
}

/// `LINES` lines of 64 bytes, in registers.
#[derive(Clone, Copy)]
pub struct Lines<const LINES: usize>;

impl<const LINES: usize> Width for Lines<LINES> {
    type Block<V: Vector> = InRegisters<V, LINES>;

    #[inline(always)]
    fn words(self) -> usize {
        LINES * LINE
    }

    #[inline(always)]
    fn hold<V: Vector>(self, vector: V, buffer: &mut Vec<u64>) -> Self::Block<V> {
        InRegisters::loaded(vector, buffer)
    }

    #[inline(always)]
    fn release<V: Vector>(self, block: Self::Block<V>, buffer: &mut Vec<u64>) {
        block.store(buffer);
    }
}

/// A number of words that is known at run time.
#[derive(Clone, Copy)]
pub struct Dynamic(pub usize);

impl Dynamic {
    /// As many words as `block_len` bytes need.
    pub fn of(block_len: usize) -> Self {
        Self(block_len.div_ceil(size_of::<u64>()))
    }
}

impl Width for Dynamic {
    type Block<V: Vector> = InMemory<V, Vec<u64>>;

    #[inline(always)]
    fn words(self) -> usize {
        self.0
    }

    #[inline(always)]
    fn hold<V: Vector>(self, vector: V, buffer: &mut Vec<u64>) -> Self::Block<V> {
        InMemory::new(vector, core::mem::take(buffer))
    }

    #[inline(always)]
    fn release<V: Vector>(self, block: Self::Block<V>, buffer: &mut Vec<u64>) {
        *buffer = block.into_words();
    }
}

/// A constructor that works for any width.
pub trait Make {
    /// The type of the result.
    type Output;

    /// Makes the result for `width`.
    fn make(self, width: impl Width + 'static) -> Self::Output;
}

/// Calls `make` with the width in which blocks of `block_len` bytes move the fastest. There are few
/// widths, because each is compiled for every processor level.
pub fn fastest<K: Make>(block_len: usize, make: K) -> K::Output {
    match block_len {
        33..=64 => make.make(Lines::<1>),
        97..=128 => make.make(Lines::<2>),
        193..=256 => make.make(Lines::<4>),
        _ => make.make(Dynamic::of(block_len)),
    }
}
