//! Masks that the optimiser cannot see through.

use core::ops::{BitAnd, BitOr, Not};

/// All ones or all zeros: the result of a comparison of secrets.
#[derive(Clone, Copy)]
pub struct Mask(u32);

impl Mask {
    /// All zeros.
    pub const NO: Self = Self(0);

    /// Whether a bit of `bits` is set.
    #[inline(always)]
    pub fn any(bits: u64) -> Self {
        Self::nonzero_bit((bits >> 1) | (bits & 1))
    }

    /// Whether `value` is not zero. `value` must be below 2^31.
    #[inline(always)]
    pub fn nonzero(value: u32) -> Self {
        Self::sign(0u32.wrapping_sub(value))
    }

    /// Whether a bit of `bits` is set. Bit 63 must not be.
    #[inline(always)]
    pub fn nonzero_bit(bits: u64) -> Self {
        let ones = 0_u64.wrapping_sub(bits).cast_signed().wrapping_shr(63).cast_unsigned();
        Self(hide(ones) as u32)
    }

    /// Whether `a` and `b` are equal. Both must be below 2^31.
    #[inline(always)]
    pub fn equal(a: u32, b: u32) -> Self {
        !Self::nonzero(a ^ b)
    }

    /// Whether `a` is below `b`. Both must be below 2^31.
    #[inline(always)]
    pub fn below(a: u32, b: u32) -> Self {
        Self::sign(a.wrapping_sub(b))
    }

    #[inline(always)]
    fn sign(value: u32) -> Self {
        let ones = value.cast_signed().wrapping_shr(31).cast_unsigned();
        Self(hide(u64::from(ones)) as u32)
    }

    /// `yes` if the mask is ones, else `no`.
    #[inline(always)]
    pub fn select(self, yes: u32, no: u32) -> u32 {
        no ^ ((yes ^ no) & self.0)
    }

    /// `value` if the mask is ones, else zero.
    #[inline(always)]
    pub fn keep(self, value: u32) -> u32 {
        value & self.0
    }

    /// The mask of `bits`, which must be all ones or all zeros and have passed through
    /// [`hide_all`].
    #[inline(always)]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The mask as 64 bits.
    #[inline(always)]
    pub fn spread(self) -> u64 {
        i64::from(self.0.cast_signed()).cast_unsigned()
    }

    /// The mask as 32 bits.
    #[inline(always)]
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl BitAnd for Mask {
    type Output = Self;
    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Mask {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Not for Mask {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// Replaces `key`, `a` and `c` by `other`, `b` and `d` if `key` is below `other`. The keys must be
/// below 2^31.
#[inline(always)]
pub fn raise(key: &mut u64, other: u64, (a, b): (&mut u64, u64), (c, d): (&mut u64, u64)) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: moves between registers only.
    unsafe {
        core::arch::asm!(
            "cmp {key}, {other}",
            "cmovb {key}, {other}",
            "cmovb {a}, {b}",
            "cmovb {c}, {d}",
            key = inout(reg) *key,
            other = in(reg) other,
            a = inout(reg) *a,
            b = in(reg) b,
            c = inout(reg) *c,
            d = in(reg) d,
            options(pure, nomem, nostack)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mask = Mask::below(*key as u32, other as u32).spread();
        *key ^= (*key ^ other) & mask;
        *a ^= (*a ^ b) & mask;
        *c ^= (*c ^ d) & mask;
    }
}

/// The same value, about which the optimiser knows nothing.
#[inline(always)]
pub fn hide(value: u64) -> u64 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut value = value;
        // SAFETY: no instruction at all; it only claims that it might change the value.
        unsafe {
            core::arch::asm!(
                "/* {0} */",
                inout(reg) value,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        value
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    core::hint::black_box(value)
}

/// Makes the optimiser forget what it knows about `values`: for masks computed many at a time.
#[inline(always)]
pub fn hide_all<T: Copy>(values: &mut [T]) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: no instruction at all; it only claims that it might change memory.
    unsafe {
        core::arch::asm!(
            "/* {0} */",
            in(reg) values.as_mut_ptr(),
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    core::hint::black_box(values);
}

#[cfg(test)]
mod tests {
    use super::{Mask, raise};

    #[test]
    fn masks_are_right_at_both_ends_of_the_range() {
        let most = (1 << 31) - 1;
        let numbers = [0, 1, 2, 31, 32, 255, 1 << 30, most - 1, most];
        assert_eq!(Mask::NO.bits(), 0);
        for bits in [1, 2, 3 << 31, 1 << 32, 1 << 63, u64::MAX] {
            assert_eq!((Mask::any(bits).bits(), Mask::any(0).bits()), (u32::MAX, 0), "{bits:x}");
        }
        for a in numbers {
            assert_eq!(Mask::nonzero(a).bits(), if a == 0 { 0 } else { u32::MAX });
            for b in numbers {
                assert_eq!(Mask::equal(a, b).bits(), if a == b { u32::MAX } else { 0 });
                assert_eq!(Mask::below(a, b).bits(), if a < b { u32::MAX } else { 0 });
                assert_eq!(Mask::below(a, b).select(a, b), a.min(b));
                assert_eq!((!Mask::equal(a, b)).keep(a), if a == b { 0 } else { a });
                let (mut key, mut x, mut y) = (u64::from(a), 1, 2);
                raise(&mut key, u64::from(b), (&mut x, 3), (&mut y, u64::MAX));
                assert_eq!(key, u64::from(a.max(b)));
                assert_eq!((x, y), if a < b { (3, u64::MAX) } else { (1, 2) });
            }
        }
    }
}
