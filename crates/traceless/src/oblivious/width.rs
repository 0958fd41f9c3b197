//! The length of a block, known when the program is compiled or when it runs.

use alloc::vec;
use alloc::vec::Vec;

/// Words of 8 bytes in a block.
pub trait Width: Copy + Send + Sync {
    /// Room for one block. Its default may be of any length.
    type Block: AsRef<[u64]> + AsMut<[u64]> + Default + Send + Sync;

    /// Words in a block.
    fn words(self) -> usize;

    /// Room for one block.
    fn block(self) -> Self::Block;
}

/// `WORDS` words: blocks that fit registers are moved without a loop.
#[derive(Clone, Copy)]
pub struct Fixed<const WORDS: usize>;

/// A number of words that is known when the program runs.
#[derive(Clone, Copy)]
pub struct Dynamic(pub usize);

macro_rules! fixed {
    ($($words:literal)*) => {$(
        impl Width for Fixed<$words> {
            type Block = [u64; $words];

            #[inline(always)]
            fn words(self) -> usize {
                $words
            }

            #[inline(always)]
            fn block(self) -> Self::Block {
                [0; $words]
            }
        }
    )*};
}

// Arrays of up to 32 elements have a default; what is longer gains nothing.
fixed!(1 2 4 8 16 32);

impl Width for Dynamic {
    type Block = Vec<u64>;

    #[inline(always)]
    fn words(self) -> usize {
        self.0
    }

    fn block(self) -> Vec<u64> {
        vec![0; self.0]
    }
}
