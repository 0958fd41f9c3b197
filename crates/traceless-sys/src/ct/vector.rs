//! Operations on 64 bytes at once, a cache line, for each level of processors.
//!
//! Without explicit instructions the optimiser splits lines, or writes only the words that a mask
//! selects, which an adversary could observe. So this module names the instructions, and hides
//! masks from the optimiser.

use super::mask::hide_all;

/// The words of a cache line in memory.
pub type Line = [u64; 8];

/// A token for the instructions of a level: [`dispatch`](super::dispatch) passes it to a kernel.
pub trait Vector: Copy {
    /// A line in registers.
    type Line: Copy;

    /// A line of zeros.
    fn zero(self) -> Self::Line;

    /// Reads a line.
    fn load(self, from: &Line) -> Self::Line;

    /// Writes a line.
    fn store(self, line: Self::Line, into: &mut Line);

    /// A line of 16 copies of `number`.
    fn splat(self, number: u32) -> Self::Line;

    /// A mask of ones for each of the 16 numbers that is equal in `a` and `b`, else of zeros.
    /// Hidden.
    fn equal(self, a: Self::Line, b: Self::Line) -> Self::Line;

    /// `into`, combined by OR with the bits of `line` where the mask has ones.
    fn gather(self, into: Self::Line, line: Self::Line, mask: Self::Line) -> Self::Line;

    /// The bits of `yes` where the mask has ones, else the bits of `no`.
    fn select(self, mask: Self::Line, yes: Self::Line, no: Self::Line) -> Self::Line;
}

/// The instructions of every processor.
#[derive(Clone, Copy)]
pub struct Base(pub(super) ());

impl Vector for Base {
    type Line = Line;

    #[inline(always)]
    fn zero(self) -> Line {
        [0; 8]
    }

    #[inline(always)]
    fn load(self, from: &Line) -> Line {
        *from
    }

    #[inline(always)]
    fn store(self, line: Line, into: &mut Line) {
        *into = line;
    }

    #[inline(always)]
    fn splat(self, number: u32) -> Line {
        [u64::from(number) | u64::from(number) << 32; 8]
    }

    #[inline(always)]
    fn equal(self, a: Line, b: Line) -> Line {
        let half = |x: u64| u64::from(x as u32 == 0).wrapping_neg() & u64::from(u32::MAX);
        let mut mask = [0; 8];
        for i in 0..8 {
            let difference = a[i] ^ b[i];
            mask[i] = half(difference) | half(difference >> 32) << 32;
        }
        hide_all(&mut mask);
        mask
    }

    #[inline(always)]
    fn gather(self, into: Line, line: Line, mask: Line) -> Line {
        core::array::from_fn(|i| into[i] | (line[i] & mask[i]))
    }

    #[inline(always)]
    fn select(self, mask: Line, yes: Line, no: Line) -> Line {
        core::array::from_fn(|i| (yes[i] & mask[i]) | (no[i] & !mask[i]))
    }
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
pub use x86::{Avx2, Avx512};

#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod x86 {
    use super::{Line, Vector};
    use core::arch::asm;
    use core::arch::x86_64::{
        __m256i, __m512i, _mm256_and_si256, _mm256_andnot_si256, _mm256_cmpeq_epi32,
        _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi32, _mm256_setzero_si256,
        _mm256_storeu_si256, _mm512_cmpeq_epi32_mask, _mm512_loadu_si512, _mm512_movm_epi32,
        _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_ternarylogic_epi64,
    };

    /// Proof that the processor has AVX-512 F and DQ.
    #[derive(Clone, Copy)]
    pub struct Avx512(pub(in crate::ct) ());

    /// `a | (b & c)` and `a ? b : c`, as truth tables.
    const OR_AND: i32 = 0xf8;
    const CHOOSE: i32 = 0xca;

    // SAFETY of all blocks here: that there is an `Avx512` proves that the processor has the
    // instructions; loads and stores are of whole lines behind references.
    impl Vector for Avx512 {
        type Line = __m512i;

        #[inline(always)]
        fn zero(self) -> __m512i {
            // SAFETY: see above.
            unsafe { _mm512_setzero_si512() }
        }

        #[inline(always)]
        fn load(self, from: &Line) -> __m512i {
            // SAFETY: see above.
            unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
        }

        #[inline(always)]
        fn store(self, line: __m512i, into: &mut Line) {
            // SAFETY: see above.
            unsafe { _mm512_storeu_si512(into.as_mut_ptr().cast(), line) }
        }

        #[inline(always)]
        fn splat(self, number: u32) -> __m512i {
            // SAFETY: see above.
            unsafe { _mm512_set1_epi32(number.cast_signed()) }
        }

        #[inline(always)]
        fn equal(self, a: __m512i, b: __m512i) -> __m512i {
            // SAFETY: see above.
            unsafe { hide_512(_mm512_movm_epi32(_mm512_cmpeq_epi32_mask(a, b))) }
        }

        #[inline(always)]
        fn gather(self, into: __m512i, line: __m512i, mask: __m512i) -> __m512i {
            // SAFETY: see above.
            unsafe { _mm512_ternarylogic_epi64::<OR_AND>(into, line, mask) }
        }

        #[inline(always)]
        fn select(self, mask: __m512i, yes: __m512i, no: __m512i) -> __m512i {
            // SAFETY: see above.
            unsafe { _mm512_ternarylogic_epi64::<CHOOSE>(mask, yes, no) }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn hide_512(line: __m512i) -> __m512i {
        let mut line = line;
        // SAFETY: no instruction at all; it only claims that it might change the value.
        unsafe {
            asm!("/* {0} */", inout(zmm_reg) line, options(pure, nomem, nostack, preserves_flags));
        }
        line
    }

    /// Proof that the processor has AVX2.
    #[derive(Clone, Copy)]
    pub struct Avx2(pub(in crate::ct) ());

    // SAFETY of all blocks here: that there is an `Avx2` proves that the processor has the
    // instructions; loads and stores are of halves of lines behind references.
    impl Vector for Avx2 {
        type Line = [__m256i; 2];

        #[inline(always)]
        fn zero(self) -> [__m256i; 2] {
            // SAFETY: see above.
            unsafe { [_mm256_setzero_si256(); 2] }
        }

        #[inline(always)]
        fn load(self, from: &Line) -> [__m256i; 2] {
            let halves = from.as_chunks::<4>().0;
            // SAFETY: see above.
            unsafe {
                [
                    _mm256_loadu_si256(halves[0].as_ptr().cast()),
                    _mm256_loadu_si256(halves[1].as_ptr().cast()),
                ]
            }
        }

        #[inline(always)]
        fn store(self, line: [__m256i; 2], into: &mut Line) {
            let halves = into.as_chunks_mut::<4>().0;
            // SAFETY: see above.
            unsafe {
                _mm256_storeu_si256(halves[0].as_mut_ptr().cast(), line[0]);
                _mm256_storeu_si256(halves[1].as_mut_ptr().cast(), line[1]);
            }
        }

        #[inline(always)]
        fn splat(self, number: u32) -> [__m256i; 2] {
            // SAFETY: see above.
            unsafe { [_mm256_set1_epi32(number.cast_signed()); 2] }
        }

        #[inline(always)]
        fn equal(self, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
            // SAFETY: see above.
            unsafe {
                [hide_256(_mm256_cmpeq_epi32(a[0], b[0])), hide_256(_mm256_cmpeq_epi32(a[1], b[1]))]
            }
        }

        #[inline(always)]
        fn gather(
            self,
            into: [__m256i; 2],
            line: [__m256i; 2],
            mask: [__m256i; 2],
        ) -> [__m256i; 2] {
            // SAFETY: see above.
            unsafe {
                [
                    _mm256_or_si256(into[0], _mm256_and_si256(line[0], mask[0])),
                    _mm256_or_si256(into[1], _mm256_and_si256(line[1], mask[1])),
                ]
            }
        }

        #[inline(always)]
        fn select(self, mask: [__m256i; 2], yes: [__m256i; 2], no: [__m256i; 2]) -> [__m256i; 2] {
            // SAFETY: see above.
            unsafe { [select_256(mask[0], yes[0], no[0]), select_256(mask[1], yes[1], no[1])] }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn select_256(mask: __m256i, yes: __m256i, no: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_and_si256(mask, yes), _mm256_andnot_si256(mask, no))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn hide_256(line: __m256i) -> __m256i {
        let mut line = line;
        // SAFETY: no instruction at all; it only claims that it might change the value.
        unsafe {
            asm!("/* {0} */", inout(ymm_reg) line, options(pure, nomem, nostack, preserves_flags));
        }
        line
    }
}
