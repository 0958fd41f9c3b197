//! Moving blocks by masks. A mask is a word of ones or of zeros that went through
//! [`hide_all`](super::hide_all); every word of both sides is read, and written where it says so,
//! whatever the mask.

/// Puts `from` over `into` where the mask is ones and `into` was zero: one step of picking a block
/// out of many.
#[inline(always)]
pub fn gather(into: &mut [u64], from: &[u64], mask: u64) {
    for (a, b) in into.iter_mut().zip(from) {
        *a |= *b & mask;
    }
}

/// Exchanges `a` and `b` where the mask is ones. Both are written.
#[inline(always)]
pub fn exchange(a: &mut [u64], b: &mut [u64], mask: u64) {
    for (a, b) in a.iter_mut().zip(b) {
        let (x, y) = (*a, *b);
        *a = (y & mask) | (x & !mask);
        *b = (x & mask) | (y & !mask);
    }
}

/// Puts `from` in place of `into` where the mask is ones. `into` is written.
#[inline(always)]
pub fn replace(into: &mut [u64], from: &[u64], mask: u64) {
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*b & mask) | (*a & !mask);
    }
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

    #[test]
    fn masks_decide_whole_blocks() {
        for len in [1, 3, 8, 17] {
            let a: Vec<u64> = (0..len).map(|i| i * 7 + 1).collect();
            let b: Vec<u64> = (0..len).map(|i| !i).collect();
            for mask in [0, u64::MAX] {
                let (mut x, mut y) = (a.clone(), b.clone());
                exchange(&mut x, &mut y, mask);
                assert_eq!((&x, &y), if mask == 0 { (&a, &b) } else { (&b, &a) });
                replace(&mut x, &a, mask);
                assert_eq!(x, a);
                let mut z = vec![0; len as usize];
                gather(&mut z, &a, mask);
                gather(&mut z, &b, !mask);
                assert_eq!(z, if mask == 0 { b.clone() } else { a.clone() });
            }
        }
    }

    #[test]
    fn bytes_are_those_of_the_words() {
        let mut words = [0x0807_0605_0403_0201_u64.to_le(), 9_u64.to_le()];
        assert_eq!(bytes_of(&words)[..9], [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        bytes_of_mut(&mut words)[8] = 1;
        assert_eq!(u64::from_le(words[1]), 1);
    }
}
