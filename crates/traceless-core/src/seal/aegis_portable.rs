//! AEGIS-256 without a C compiler, from the AES rounds of `RustCrypto`.

use super::{Forgery, TAG_LEN};
use aes::hazmat::cipher_round;
use subtle::ConstantTimeEq;

const BLOCK: usize = 16;

/// The draft's constants: Fibonacci numbers modulo 256.
const C0: u128 = u128::from_le_bytes([
    0x00, 0x01, 0x01, 0x02, 0x03, 0x05, 0x08, 0x0d, 0x15, 0x22, 0x37, 0x59, 0x90, 0xe9, 0x79, 0x62,
]);
const C1: u128 = u128::from_le_bytes([
    0xdb, 0x3d, 0x18, 0x55, 0x6d, 0xc2, 0x2f, 0xf1, 0x20, 0x11, 0x31, 0x42, 0x73, 0xb5, 0x28, 0xdd,
]);

/// The state in the draft's section on AEGIS-256.
struct AegisState([u128; 6]);

pub fn encrypt(key: &[u8; 32], nonce: &[u8; 32], bound: &[u8], body: &mut [u8]) -> [u8; TAG_LEN] {
    let mut state = AegisState::new(key, nonce, bound);
    for part in body.chunks_mut(BLOCK) {
        let (plain, mask) = (padded(part), state.mask());
        state.update(plain);
        part.copy_from_slice(&(plain ^ mask).to_le_bytes()[..part.len()]);
    }
    state.tag(bound.len(), body.len())
}

pub fn decrypt(
    key: &[u8; 32],
    nonce: &[u8; 32],
    bound: &[u8],
    body: &mut [u8],
    tag: &[u8; TAG_LEN],
) -> Result<(), Forgery> {
    let mut state = AegisState::new(key, nonce, bound);
    for part in body.chunks_mut(BLOCK) {
        let plain = padded(part) ^ state.mask();
        part.copy_from_slice(&plain.to_le_bytes()[..part.len()]);
        state.update(padded(part));
    }
    let fits: bool = state.tag(bound.len(), body.len()).ct_eq(tag).into();
    if !fits {
        body.fill(0);
        return Err(Forgery);
    }
    Ok(())
}

impl AegisState {
    fn new(key: &[u8; 32], nonce: &[u8; 32], bound: &[u8]) -> Self {
        let [k0, k1] = halves(key);
        let [n0, n1] = halves(nonce);
        let mut state = Self([k0 ^ n0, k1 ^ n1, C1, C0, k0 ^ C0, k1 ^ C1]);
        for _ in 0..4 {
            for word in [k0, k1, k0 ^ n0, k1 ^ n1] {
                state.update(word);
            }
        }
        bound.chunks(BLOCK).for_each(|part| state.update(padded(part)));
        state
    }

    fn update(&mut self, word: u128) {
        let old = self.0;
        for (nth, part) in self.0.iter_mut().enumerate() {
            let input = if nth == 0 { word } else { 0 };
            *part = round(old[(nth + 5) % 6], old[nth] ^ input);
        }
    }

    fn mask(&self) -> u128 {
        let s = &self.0;
        s[1] ^ s[4] ^ s[5] ^ (s[2] & s[3])
    }

    fn tag(mut self, bound_len: usize, body_len: usize) -> [u8; TAG_LEN] {
        let lengths = (bound_len as u128 * 8) | (body_len as u128 * 8) << 64;
        let word = self.0[3] ^ lengths;
        (0..7).for_each(|_| self.update(word));
        self.0.iter().fold(0, |all, part| all ^ part).to_le_bytes()
    }
}

fn round(block: u128, key: u128) -> u128 {
    let mut block = block.to_le_bytes().into();
    cipher_round(&mut block, &key.to_le_bytes().into());
    u128::from_le_bytes(block.into())
}

fn padded(part: &[u8]) -> u128 {
    let mut block = [0; BLOCK];
    block[..part.len()].copy_from_slice(part);
    u128::from_le_bytes(block)
}

fn halves(bytes: &[u8; 32]) -> [u128; 2] {
    let (low, high) = bytes.split_at(BLOCK);
    [padded(low), padded(high)]
}
