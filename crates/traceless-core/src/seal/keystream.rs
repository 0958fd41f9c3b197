//! Bytes that look like ciphertext, generated at the speed of memory.

use super::Secret;
use aes::Aes256;
use ctr::cipher::{KeyIvInit, StreamCipher};

/// AES-256 in counter mode. Request at least 1 KiB a call: short calls are ten times slower.
pub struct Keystream(ctr::Ctr128BE<Aes256>);

impl Keystream {
    /// The stream of `key`. One key must make one stream only.
    pub fn new(key: &Secret) -> Self {
        Self(ctr::Ctr128BE::new(key.bytes().into(), &[0; 16].into()))
    }

    /// Encrypts `bytes`, of any content, with the next bytes of the stream.
    pub fn apply(&mut self, bytes: &mut [u8]) {
        self.0.apply_keystream(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continues_where_it_stopped() {
        let key = Secret::from_bytes([1; 32]);
        let (mut whole, mut parts) = ([0; 100], [0; 100]);
        Keystream::new(&key).apply(&mut whole);
        let mut stream = Keystream::new(&key);
        stream.apply(&mut parts[..33]);
        stream.apply(&mut parts[33..]);
        assert_eq!(whole, parts);
        assert_ne!(whole, [0; 100]);
    }
}
