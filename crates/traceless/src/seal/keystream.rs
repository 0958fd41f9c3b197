//! Bytes that nobody can tell from ciphertext, as fast as memory takes them.

use super::Secret;
use aes::Aes256;
use ctr::cipher::{KeyIvInit, StreamCipher};

/// AES-256 in counter mode. Ask for at least 1 KiB a call: short ones are ten times slower.
pub struct Keystream(ctr::Ctr128BE<Aes256>);

impl Keystream {
    /// The stream of `key`. A key makes one stream only.
    pub fn new(key: &Secret) -> Self {
        Self(ctr::Ctr128BE::new(key.bytes().into(), &[0; 16].into()))
    }

    /// Fills `out` with the next bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        out.fill(0);
        self.0.apply_keystream(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_on_where_it_stopped() {
        let key = Secret::from_bytes([1; 32]);
        let (mut whole, mut parts) = ([0; 100], [0; 100]);
        Keystream::new(&key).fill(&mut whole);
        let mut stream = Keystream::new(&key);
        stream.fill(&mut parts[..33]);
        stream.fill(&mut parts[33..]);
        assert_eq!(whole, parts);
        assert_ne!(whole, [0; 100]);
    }
}
