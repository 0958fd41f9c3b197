//! Moving blocks by masks. A mask is 32 ones or zeros. Every word of a source is read and every
//! word of a target is written, for both masks.

use super::mask::hide;
use super::vector::{Line, Vector};
use core::borrow::BorrowMut;

/// A block on its way from one slot to another.
pub trait MovingBlock<V: Vector> {
    /// Sets the block to zeros.
    fn clear(&mut self);

    /// Takes a copy of `slot` where the mask is ones; the block must hold zeros before. One step of
    /// selecting a block out of many.
    fn gather(&mut self, slot: &[u64], mask: u32);

    /// Copies the block to `slot` where the mask is ones. `slot` is always written.
    fn copy_into(&self, slot: &mut [u64], mask: u32);

    /// Exchanges the block with `slot` where the mask is ones. Both are always written.
    fn exchange(&mut self, slot: &mut [u64], mask: u32);
}

/// A block of `LINES` lines, few enough for the registers.
pub struct InRegisters<V: Vector, const LINES: usize> {
    vector: V,
    lines: [V::Line; LINES],
}

impl<V: Vector, const LINES: usize> InRegisters<V, LINES> {
    /// A block of zeros.
    #[inline(always)]
    pub fn new(vector: V) -> Self {
        Self { vector, lines: [vector.zero(); LINES] }
    }

    /// A copy of the block `from`.
    #[inline(always)]
    pub fn loaded(vector: V, from: &[u64]) -> Self {
        let mut block = Self::new(vector);
        for (line, from) in block.lines.iter_mut().zip(from.as_chunks().0) {
            *line = vector.load(from);
        }
        block
    }

    /// Writes the block to `into`.
    #[inline(always)]
    pub fn store(&self, into: &mut [u64]) {
        for (line, into) in self.lines.iter().zip(into.as_chunks_mut().0) {
            self.vector.store(*line, into);
        }
    }
}

impl<V: Vector, const LINES: usize> MovingBlock<V> for InRegisters<V, LINES> {
    #[inline(always)]
    fn clear(&mut self) {
        self.lines = [self.vector.zero(); LINES];
    }

    #[inline(always)]
    fn gather(&mut self, slot: &[u64], mask: u32) {
        let (v, mask) = (self.vector, self.vector.splat(mask));
        let slot: &[Line; LINES] = slot.as_chunks().0.first_chunk().expect("a slot of LINES lines");
        for (own, line) in self.lines.iter_mut().zip(slot) {
            *own = v.gather(*own, v.load(line), mask);
        }
    }

    #[inline(always)]
    fn copy_into(&self, slot: &mut [u64], mask: u32) {
        let (v, mask) = (self.vector, self.vector.splat(mask));
        let slot: &mut [Line; LINES] = lines_of(slot);
        for (own, line) in self.lines.iter().zip(slot) {
            v.store(v.select(mask, *own, v.load(line)), line);
        }
    }

    #[inline(always)]
    fn exchange(&mut self, slot: &mut [u64], mask: u32) {
        let (v, mask) = (self.vector, self.vector.splat(mask));
        let slot: &mut [Line; LINES] = lines_of(slot);
        for (own, line) in self.lines.iter_mut().zip(slot) {
            let (there, here) = (v.load(line), *own);
            v.store(v.select(mask, here, there), line);
            *own = v.select(mask, there, here);
        }
    }
}

#[inline(always)]
fn lines_of<const LINES: usize>(slot: &mut [u64]) -> &mut [Line; LINES] {
    slot.as_chunks_mut().0.first_chunk_mut().expect("a slot of LINES lines")
}

/// A block of any length, in a buffer of as many words.
pub struct InMemory<V: Vector, B: BorrowMut<[u64]>> {
    vector: V,
    words: B,
}

impl<V: Vector, B: BorrowMut<[u64]>> InMemory<V, B> {
    /// The block in `words`.
    #[inline(always)]
    pub fn new(vector: V, words: B) -> Self {
        Self { vector, words }
    }

    /// Returns the buffer.
    #[inline(always)]
    pub fn into_words(self) -> B {
        self.words
    }
}

impl<V: Vector, B: BorrowMut<[u64]>> MovingBlock<V> for InMemory<V, B> {
    #[inline(always)]
    fn clear(&mut self) {
        self.words.borrow_mut().fill(0);
    }

    #[inline(always)]
    fn gather(&mut self, slot: &[u64], mask: u32) {
        let v = self.vector;
        let (lines, rest) = self.words.borrow_mut().as_chunks_mut();
        let (from, from_rest) = slot.as_chunks();
        for (line, from) in lines.iter_mut().zip(from) {
            v.store(v.gather(v.load(line), v.load(from), v.splat(mask)), line);
        }
        let mask = spread(mask);
        for (word, from) in rest.iter_mut().zip(from_rest) {
            *word |= *from & mask;
        }
    }

    #[inline(always)]
    fn copy_into(&self, slot: &mut [u64], mask: u32) {
        let v = self.vector;
        let (lines, rest) = self.words.borrow().as_chunks();
        let (into, into_rest) = slot.as_chunks_mut();
        for (line, into) in lines.iter().zip(into) {
            v.store(v.select(v.splat(mask), v.load(line), v.load(into)), into);
        }
        let mask = spread(mask);
        for (word, into) in rest.iter().zip(into_rest) {
            *into = (*word & mask) | (*into & !mask);
        }
    }

    #[inline(always)]
    fn exchange(&mut self, slot: &mut [u64], mask: u32) {
        let v = self.vector;
        let (lines, rest) = self.words.borrow_mut().as_chunks_mut();
        let (slot_lines, slot_rest) = slot.as_chunks_mut();
        for (line, other) in lines.iter_mut().zip(slot_lines) {
            let (here, there) = (v.load(line), v.load(other));
            v.store(v.select(v.splat(mask), there, here), line);
            v.store(v.select(v.splat(mask), here, there), other);
        }
        let mask = spread(mask);
        for (word, other) in rest.iter_mut().zip(slot_rest) {
            let (here, there) = (*word, *other);
            *word = (there & mask) | (here & !mask);
            *other = (here & mask) | (there & !mask);
        }
    }
}

/// Extends a mask to 64 bits, hidden from the optimiser.
#[inline(always)]
fn spread(mask: u32) -> u64 {
    hide(i64::from(mask.cast_signed()).cast_unsigned())
}

/// The bytes of `words`, as they lie in memory.
#[inline(always)]
pub fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: the same memory, of which every byte is initialised; bytes need no alignment.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// The bytes of `words`, as they lie in memory.
#[inline(always)]
pub fn bytes_of_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: the same memory, borrowed for as long; every pattern of bytes is a word.
    unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ct::{Kernel, dispatch};

    struct Moves;

    impl Kernel for Moves {
        type Output = ();

        #[inline(always)]
        fn run<V: Vector>(self, v: V) {
            let block = |seed: u64, len| (0..len).map(|i| seed.wrapping_mul(i + 7)).collect();
            for len in [1, 3, 8, 16, 19] {
                let a: Vec<u64> = block(0x9e37_79b9_7f4a_7c15, len);
                moves(&mut InMemory::new(v, vec![0; len as usize]), &a);
                if len == 16 {
                    moves(&mut InRegisters::<V, 2>::new(v), &a);
                }
            }
            let block = InRegisters::<V, 1>::loaded(v, &[5; 8]);
            let mut out = [0; 8];
            block.store(&mut out);
            assert_eq!(out, [5; 8]);
        }
    }

    fn moves<V: Vector>(block: &mut impl MovingBlock<V>, a: &[u64]) {
        let b: Vec<u64> = a.iter().map(|word| !word).collect();
        for mask in [0, u32::MAX] {
            let out = |block: &dyn Fn(&mut [u64])| {
                let mut out = b.clone();
                block(&mut out);
                out
            };
            block.clear();
            block.gather(a, mask);
            block.gather(&b, !mask);
            let first = if mask == 0 { &b } else { a };
            assert_eq!(out(&|out| block.copy_into(out, u32::MAX)), first);
            assert_eq!(out(&|out| block.copy_into(out, 0)), b);
            let mut slot = vec![3; a.len()];
            block.exchange(&mut slot, mask);
            let (here, there) = if mask == 0 { (first, 3) } else { (&slot[..], 0) };
            if mask == 0 {
                assert!(slot.iter().all(|&word| word == there));
                assert_eq!(out(&|out| block.copy_into(out, u32::MAX)), here);
            } else {
                assert_eq!(here, first);
                assert_eq!(out(&|out| block.copy_into(out, u32::MAX)), vec![3; a.len()]);
            }
        }
    }

    #[test]
    fn masks_decide_whole_blocks() {
        Moves.run(super::super::vector::Base(()));
        dispatch(Moves);
    }

    #[test]
    fn bytes_of_words_lie_as_in_memory() {
        let mut words = [0x0807_0605_0403_0201_u64.to_le(), 9_u64.to_le()];
        assert_eq!(bytes_of(&words)[..9], [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        bytes_of_mut(&mut words)[8] = 1;
        assert_eq!(u64::from_le(words[1]), 1);
    }
}
