//! The superblock: the scheme's trusted state, sealed. There are two of 64 KiB. Each state is
//! written to one, made durable, then written to the other as the next generation.
//!
//! So a crash leaves the old state or the new one, and damage to either superblock loses nothing.

use super::{Keys, SUPERBLOCK_LEN, SUPERBLOCKS_AT, u32_at, u64_at};
use crate::error::{Error, Result};
use crate::format::Anchor;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};
use traceless_core::durable::Vault;
use traceless_core::rng::Rng;
use traceless_core::seal::{Aead, Nonce, Sealer, TAG_LEN};
use traceless_core::store::{RecordPair, Store};

const MAGIC: [u8; 8] = *b"TLSUPERB";
const SALT_AT: usize = 16;
const HEAD_LEN: usize = 32;
const TAG_AT: usize = SUPERBLOCK_LEN - TAG_LEN;
const CONTENTS_LEN: usize = TAG_AT - HEAD_LEN;
const STATE_AT: usize = 40;

/// The places of the superblocks.
const SUPERBLOCKS: RecordPair = RecordPair::new(SUPERBLOCKS_AT, SUPERBLOCK_LEN);

/// Most bytes of a state.
const STATE_LEN_MAX: usize = CONTENTS_LEN - STATE_AT;

/// One generation of the trusted state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Superblocks written before this one.
    pub generation: u64,
    /// A hash over the salts of all generations: two forks of one image have different chains.
    pub chain: [u8; 32],
    /// The scheme's state.
    pub state: Vec<u8>,
}

impl Superblock {
    /// The newest superblock that verifies.
    pub fn read(store: &dyn Store, keys: &Keys) -> Result<Self> {
        let open = |bytes: &[u8]| Self::open(keys, bytes).map(|found| (found.generation, found));
        let (_, newest) = SUPERBLOCKS.newest(store, open)?.ok_or(Error::SuperblockDamaged)?;
        Ok(newest)
    }

    /// The names of the superblocks that do not verify.
    pub fn damaged(store: &dyn Store, keys: &Keys) -> Result<Vec<&'static str>> {
        let both = SUPERBLOCKS.open_both(store, |bytes| Self::open(keys, bytes))?;
        let named = both.iter().zip(["superblock A", "superblock B"]);
        Ok(named.filter(|(found, _)| found.is_none()).map(|(_, name)| name).collect())
    }

    /// The superblock sealed in `bytes`, if it is whole.
    pub fn open(keys: &Keys, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != SUPERBLOCK_LEN || bytes[..8] != MAGIC {
            return None;
        }
        let (head, rest) = bytes.split_at(HEAD_LEN);
        let (sealed, tag) = rest.split_at(CONTENTS_LEN);
        let salt: [u8; 16] = head[SALT_AT..].try_into().expect("16 bytes");
        let generation = u64_at(head, 8);
        let mut contents = vec![0; CONTENTS_LEN];
        sealer(keys, &salt)
            .open(Nonce::of_fresh_key(generation), head, sealed, tag, &mut contents)
            .ok()?;
        let (chain, state) = Self::decode_contents(&contents)?;
        Some(Self { generation, chain, state })
    }

    /// The chain and the state in a superblock's opened contents.
    pub fn decode_contents(contents: &[u8]) -> Option<([u8; 32], Vec<u8>)> {
        let chain = contents.get(..32)?.try_into().ok()?;
        let len = u32_at(contents.get(..STATE_AT)?, 32) as usize;
        let state = contents.get(STATE_AT..STATE_AT.checked_add(len)?)?;
        Some((chain, state.to_vec()))
    }

    fn seal(&self, keys: &Keys, salt: &[u8; 16]) -> Vec<u8> {
        let mut out = vec![0; SUPERBLOCK_LEN];
        out[..8].copy_from_slice(&MAGIC);
        out[8..16].copy_from_slice(&self.generation.to_le_bytes());
        out[SALT_AT..HEAD_LEN].copy_from_slice(salt);
        let mut contents = vec![0; CONTENTS_LEN];
        contents[..32].copy_from_slice(&self.chain);
        let len = u32::try_from(self.state.len()).expect("a state fits a superblock");
        contents[32..36].copy_from_slice(&len.to_le_bytes());
        contents[STATE_AT..STATE_AT + self.state.len()].copy_from_slice(&self.state);
        let (head, rest) = out.split_at_mut(HEAD_LEN);
        let (body, tag) = rest.split_at_mut(CONTENTS_LEN);
        sealer(keys, salt).seal(Nonce::of_fresh_key(self.generation), head, &contents, body, tag);
        out
    }
}

/// A fresh salt makes a fresh key, so forks that reach the same generation share no nonce.
fn sealer(keys: &Keys, salt: &[u8; 16]) -> Aead {
    Aead::new(&keys.superblock().derive(&[salt]))
}

/// The newest superblock, shared between the scheme, which changes it, and the volume.
pub type Newest = Arc<Mutex<Superblock>>;

/// Keeps a scheme's state in the superblocks, and records it in the anchor.
pub struct SuperblockVault {
    store: Arc<dyn Store>,
    keys: Arc<Keys>,
    rng: Box<dyn Rng>,
    newest: Newest,
    anchor: Option<Arc<Anchor>>,
}

impl SuperblockVault {
    /// A vault that goes on from `newest`; the state of a new volume is empty.
    pub fn new(
        store: Arc<dyn Store>,
        keys: Arc<Keys>,
        rng: Box<dyn Rng>,
        newest: Newest,
        anchor: Option<Arc<Anchor>>,
    ) -> Self {
        Self { store, keys, rng, newest, anchor }
    }

    fn write_next(&mut self, state: &[u8]) -> traceless_core::Result {
        let mut newest = self.newest.lock().expect("nothing panics under this lock");
        let mut salt = [0; 16];
        self.rng.fill(&mut salt);
        let next = Superblock {
            generation: newest.generation + 1,
            chain: Sha256::new().chain_update(newest.chain).chain_update(salt).finalize().into(),
            state: state.to_vec(),
        };
        SUPERBLOCKS.write(&*self.store, next.generation, &next.seal(&self.keys, &salt))?;
        *newest = next;
        Ok(())
    }
}

impl Vault for SuperblockVault {
    fn keep(&mut self, state: &[u8]) -> traceless_core::Result {
        if state.len() > STATE_LEN_MAX {
            return Err(traceless_core::Error::State("it is longer than a superblock"));
        }
        if let Some(anchor) = &self.anchor {
            anchor.confirm().map_err(crate::Error::into_scheme)?;
        }
        self.write_next(state)?;
        self.write_next(state)?;
        if let Some(anchor) = &self.anchor {
            let newest = self.newest.lock().expect("nothing panics under this lock").clone();
            anchor
                .note_generation(newest.generation, newest.chain)
                .map_err(crate::Error::into_scheme)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;
    use traceless_core::scheme::openings;
    use traceless_core::store::MemStore;
    use traceless_core::types::Extent;

    const _: () = assert!(openings::STATE_LEN_MAX <= STATE_LEN_MAX);

    fn vault(store: &Arc<MemStore>, keys: &Arc<Keys>, from: Superblock) -> SuperblockVault {
        let rng = Box::new(SeededRng::new(from.generation + 1));
        SuperblockVault::new(store.clone(), keys.clone(), rng, Arc::new(Mutex::new(from)), None)
    }

    fn blank() -> Superblock {
        Superblock { generation: 0, chain: [0; 32], state: vec![] }
    }

    #[test]
    fn survives_the_loss_of_either_and_refuses_flips() {
        let store = Arc::new(MemStore::new(super::super::AREAS_AT));
        let keys = Arc::new(Keys::for_fuzzing());
        assert!(matches!(Superblock::read(&*store, &keys), Err(Error::SuperblockDamaged)));
        vault(&store, &keys, blank()).keep(b"first").unwrap();
        vault(&store, &keys, Superblock::read(&*store, &keys).unwrap()).keep(b"second").unwrap();
        assert_eq!(Superblock::read(&*store, &keys).unwrap().state, b"second");
        for at in [0, 9, 20, 40, 5000, SUPERBLOCK_LEN - 1] {
            for which in 0..2 {
                let place = Extent::new(SUPERBLOCKS_AT + (which * SUPERBLOCK_LEN + at) as u64, 1);
                let mut byte = [0];
                store.read(&[place], &mut byte).unwrap();
                store.write(&[place], &[byte[0] ^ 4]).unwrap();
                assert_eq!(Superblock::read(&*store, &keys).unwrap().state, b"second");
                store.write(&[place], &byte).unwrap();
            }
        }
    }

    /// Each thread flips half of the bits, as each opening deciphers a whole superblock.
    #[test]
    fn every_flipped_bit_is_refused() {
        let keys = Keys::for_fuzzing();
        let superblock = Superblock { generation: 7, chain: [8; 32], state: vec![9; 100] };
        let sound = superblock.seal(&keys, &[6; 16]);
        assert_eq!(Superblock::open(&keys, &sound).unwrap(), superblock);
        let flips = |bits: std::ops::Range<usize>| {
            let mut bytes = sound.clone();
            for bit in bits {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(Superblock::open(&keys, &bytes).is_none(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        };
        let all = sound.len() * 8;
        std::thread::scope(|scope| {
            scope.spawn(|| flips(0..all / 2));
            flips(all / 2..all);
        });
        for len in 0..sound.len() {
            assert!(Superblock::open(&keys, &sound[..len]).is_none(), "{len} bytes");
        }
    }

    #[test]
    fn forks_have_different_chains() {
        let store = Arc::new(MemStore::new(super::super::AREAS_AT));
        let keys = Arc::new(Keys::for_fuzzing());
        vault(&store, &keys, blank()).keep(b"x").unwrap();
        let fork = Arc::new(MemStore::from_bytes(&store.snapshot()));
        let base = Superblock::read(&*store, &keys).unwrap();
        vault(&store, &keys, base.clone()).keep(b"x").unwrap();
        let mut other = vault(&fork, &keys, base);
        other.rng = Box::new(SeededRng::new(77));
        other.keep(b"x").unwrap();
        let (a, b) =
            (Superblock::read(&*store, &keys).unwrap(), Superblock::read(&*fork, &keys).unwrap());
        assert_eq!(a.generation, b.generation);
        assert_ne!(a.chain, b.chain);
    }
}
