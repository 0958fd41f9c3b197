//! A veil over bytes with structure, which look random without its key.
//!
//! Each 16 bytes are enciphered alone, under AES-256 with a tweak of their place (XEX): so parts
//! can be read and written without the rest. It hides no change, and authenticates nothing.

use super::Secret;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};

/// Bytes that are enciphered together.
const UNIT: usize = 16;

/// Units that go through the cipher at a time.
const UNITS_PER_PASS: usize = 32;

/// The veil of one key.
pub struct Veil {
    tweaks: Aes256,
    units: Aes256,
}

impl Veil {
    /// The veil of `key`, which must have no other use.
    pub fn new(key: &Secret) -> Self {
        let cipher = |part: &[u8]| Aes256::new(key.derive(&[b"veil", part]).bytes().into());
        Self { tweaks: cipher(b"tweaks"), units: cipher(b"units") }
    }

    /// Covers the bytes at `at` in place. Both the place and the length are multiples of 16.
    pub fn cover(&self, at: u64, bytes: &mut [u8]) {
        self.pass(at, bytes, |units| self.units.encrypt_blocks(units));
    }

    /// Uncovers bytes that [`cover`](Self::cover) covered at the same place.
    pub fn uncover(&self, at: u64, bytes: &mut [u8]) {
        self.pass(at, bytes, |units| self.units.decrypt_blocks(units));
    }

    fn pass(&self, at: u64, bytes: &mut [u8], cipher: impl Fn(&mut [Block])) {
        assert!(at.is_multiple_of(UNIT as u64) && bytes.len().is_multiple_of(UNIT), "whole units");
        let mut number = at / UNIT as u64;
        for part in bytes.chunks_mut(UNIT * UNITS_PER_PASS) {
            let count = part.len() / UNIT;
            let mut tweaks = [Block::default(); UNITS_PER_PASS];
            for tweak in &mut tweaks[..count] {
                tweak[..8].copy_from_slice(&number.to_le_bytes());
                number += 1;
            }
            self.tweaks.encrypt_blocks(&mut tweaks[..count]);
            let mut units = [Block::default(); UNITS_PER_PASS];
            for ((unit, tweak), bytes) in units.iter_mut().zip(&tweaks).zip(part.chunks(UNIT)) {
                unit.copy_from_slice(bytes);
                xor(unit, tweak);
            }
            cipher(&mut units[..count]);
            for ((unit, tweak), bytes) in units.iter_mut().zip(&tweaks).zip(part.chunks_mut(UNIT)) {
                xor(unit, tweak);
                bytes.copy_from_slice(unit);
            }
        }
    }
}

fn xor(unit: &mut [u8], tweak: &[u8]) {
    unit.iter_mut().zip(tweak).for_each(|(byte, tweak)| *byte ^= tweak);
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn parts_are_uncovered_alone_and_equal_units_differ() {
        let veil = Veil::new(&Secret::from_bytes([1; 32]));
        let mut covered = [0; 2048];
        veil.cover(4096, &mut covered);
        let units: HashSet<_> = covered.chunks(UNIT).collect();
        assert_eq!(units.len(), 2048 / UNIT);
        for from in (0..2048).step_by(UNIT) {
            let mut part = covered[from..(from + 3 * UNIT).min(2048)].to_vec();
            veil.uncover(4096 + from as u64, &mut part);
            assert!(part.iter().all(|&byte| byte == 0), "{from}");
        }
        let mut elsewhere = [0; 2048];
        veil.cover(8192, &mut elsewhere);
        assert!(elsewhere.chunks(UNIT).all(|unit| !units.contains(unit)));
        let mut foreign = covered;
        Veil::new(&Secret::from_bytes([2; 32])).uncover(4096, &mut foreign);
        assert_ne!(foreign, [0; 2048]);
    }
}
