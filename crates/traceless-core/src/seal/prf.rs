//! A pseudorandom function: without its key, its values look random.

use super::Secret;
use aes::Aes256;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

/// A pseudorandom function of 16 bytes: one block of AES-256.
pub struct Prf(Aes256);

impl Prf {
    /// The function of `key`, which must have no other use.
    pub fn new(key: &Secret) -> Self {
        Self(Aes256::new(key.bytes().into()))
    }

    /// The function's value at `input`.
    pub fn at(&self, input: u128) -> u128 {
        let mut block = input.to_le_bytes().into();
        self.0.encrypt_block(&mut block);
        u128::from_le_bytes(block.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vector of FIPS 197, appendix C.3.
    #[test]
    fn is_aes() {
        let key: [u8; 32] = core::array::from_fn(|i| i as u8);
        let input: [u8; 16] = core::array::from_fn(|i| (i * 0x11) as u8);
        let output = Prf::new(&Secret::from_bytes(key)).at(u128::from_le_bytes(input));
        let want: u128 = 0x8ea2_b7ca_5167_45bf_eafc_4990_4b49_6089;
        assert_eq!(output.to_le_bytes(), want.to_be_bytes());
    }
}
