//! The block seal, the inner layer of encryption: the gateway's seal of a block, which the enclave
//! cannot open.
//!
//! Blocks are sealed one batch a round. Each round has its own key, derived from its number and its
//! random attempt; both are in the block's header. The block's index in the batch is the nonce.

use crate::error::{Error, Result};
use crate::geometry::{HEADER_LEN, TAG_LEN};
use traceless_core::seal::{Aead, Nonce, Prf, Sealer, Secret};

/// The keys of all rounds.
pub struct BlockKeys {
    halves: [Prf; 2],
}

impl BlockKeys {
    /// Derives the keys from one that only the gateway has.
    pub fn new(key: &Secret) -> Self {
        let half = |name: &[u8]| Prf::new(&key.derive(&[b"inner", name]));
        Self { halves: [half(b"low"), half(b"high")] }
    }

    /// The seal of a round.
    pub fn round(&self, round: u64, attempt: u64) -> BatchSeal {
        let input = u128::from(round) << 64 | u128::from(attempt);
        let mut key = [0; 32];
        for (half, prf) in key.as_chunks_mut::<16>().0.iter_mut().zip(&self.halves) {
            *half = prf.at(input).to_le_bytes();
        }
        BatchSeal { round, attempt, aead: Aead::new(&Secret::from_bytes(key)) }
    }

    /// Opens the block `id` from the sealed content of a slot.
    pub fn open(&self, id: u64, sealed: &[u8]) -> Result<Vec<u8>> {
        let forged = Error::Forged { id };
        let (header, rest) = sealed.split_first_chunk::<HEADER_LEN>().ok_or(forged)?;
        let forged = || Error::Forged { id };
        let at = rest.len().checked_sub(TAG_LEN).ok_or_else(forged)?;
        let (body, tag) = rest.split_at(at);
        let header = u128::from_le_bytes(*header);
        let (place, attempt) = ((header >> 64) as u64, header as u64);
        let seal = self.round(place >> 16, attempt);
        let mut block = vec![0; body.len()];
        let bound = id.to_le_bytes();
        let nonce = Nonce::of_fresh_key(place & 0xffff);
        seal.aead.open(nonce, &bound, body, tag, &mut block).map_err(|_| forged())?;
        Ok(block)
    }
}

/// The seal of one round's batch.
pub struct BatchSeal {
    round: u64,
    attempt: u64,
    aead: Aead,
}

impl BatchSeal {
    /// Seals a block with number `index` of the batch. Each index may be used once.
    pub fn seal(&self, index: u16, id: u64, block: &[u8], sealed: &mut [u8]) {
        assert!(self.round < 1 << 48, "a round for each microsecond of nine years");
        let place = self.round << 16 | u64::from(index);
        let header = u128::from(place) << 64 | u128::from(self.attempt);
        let (front, rest) = sealed.split_at_mut(HEADER_LEN);
        front.copy_from_slice(&header.to_le_bytes());
        let (body, tag) = rest.split_at_mut(block.len());
        let nonce = Nonce::of_fresh_key(u64::from(index));
        self.aead.seal(nonce, &id.to_le_bytes(), block, body, tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_opens_under_its_own_number_only() {
        let inner = BlockKeys::new(&Secret::from_bytes([1; 32]));
        let mut sealed = [0; 96];
        inner.round(70_000, 5).seal(799, 42, &[7; 64], &mut sealed);
        assert_eq!(inner.open(42, &sealed).unwrap(), [7; 64]);
        assert!(matches!(inner.open(43, &sealed), Err(Error::Forged { id: 43 })));
        for byte in 0..96 {
            let mut changed = sealed;
            changed[byte] ^= 1;
            assert!(inner.open(42, &changed).is_err(), "{byte}");
        }
        assert!(inner.open(42, &sealed[..20]).is_err() && inner.open(42, &[]).is_err());
    }
}
