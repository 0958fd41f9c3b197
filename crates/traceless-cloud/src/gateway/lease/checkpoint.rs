//! A checkpoint of the log: the head of a saved state. The pieces of the state are stored apart.

use super::entry::TREE_LEN;
use crate::codec::{Reader, Writer};
use crate::error::Result;
use crate::log::{HEAD_LEN, Head, Magic, Position, SealProof};
use crate::state_log::PieceName;
use crate::wire::fence::Opening;
use bytes::Bytes;
use traceless_core::seal::{Mac, SECRET_LEN, Secret};

/// The first bytes of each head.
pub const HEAD_MAGIC: Magic = *b"tlgenr01";
/// The first bytes of each checkpoint.
pub const MAGIC: &[u8; 8] = b"tlsaved1";
/// Names the checkpoint in errors about its content.
const CONTENT: &str = "the checkpoint in the storage engine of the gateway's state";

/// A saved state, with which a generation begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// The number of the tree.
    pub tree: [u8; TREE_LEN],
    /// The head of the generation, a page. Its own tag authenticates it.
    pub head: Vec<u8>,
    /// The length of each piece. A piece is an entry of the generation.
    pub lens: Vec<u32>,
}

impl Checkpoint {
    /// The proof of entries of a generation, and what its head says; `None` if the head is damaged
    /// or of another key.
    pub fn about(&self, key: &Secret) -> Option<GenerationAbout> {
        let (head, _) = Head::decode::<SealProof>(&self.head, HEAD_MAGIC, &generation_key(key))?;
        GenerationAbout::decode(&head.about).ok()
    }

    /// The pieces of a save, with their lengths.
    pub fn pieces(&self, save: u64) -> Vec<(PieceName, usize)> {
        let piece = |(piece, len): (u32, &u32)| (PieceName { save, piece }, *len as usize);
        (0..).zip(&self.lens).map(piece).collect()
    }

    /// The checkpoint as bytes, with a tag that also covers its position in the log.
    pub fn encode(&self, position: u64, key: &Secret) -> Bytes {
        let mut out = Writer::default();
        // The rest of the page is zeros, which nothing authenticates.
        let len = self.head.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        out.bytes(MAGIC).bytes(&self.tree).counted(&self.head[..len]);
        out.u32(self.lens.len() as u32).u32s(&self.lens);
        let tag = tag(out.as_bytes(), position, key);
        out.bytes(tag.bytes());
        out.into_bytes().into()
    }

    /// The number of the tree in front of a checkpoint.
    pub fn tree_of(bytes: &[u8]) -> Option<[u8; TREE_LEN]> {
        bytes.strip_prefix(MAGIC)?.first_chunk().copied()
    }

    /// The checkpoint at a position of the log.
    pub fn decode(bytes: &[u8], position: u64, key: &Secret) -> Result<Self> {
        let wrong = crate::Error::State(CONTENT);
        let Some((content, found)) = bytes.split_last_chunk::<SECRET_LEN>() else {
            return Err(wrong);
        };
        let fields = content.strip_prefix(MAGIC).ok_or(wrong.clone())?;
        if !tag(content, position, key).fits(found) {
            return Err(wrong);
        }
        let mut from = Reader::of_state(fields, CONTENT);
        let (tree, mut head) = (from.array()?, from.counted()?.to_vec());
        if head.len() > HEAD_LEN || head.last() == Some(&0) {
            return Err(wrong);
        }
        head.resize(HEAD_LEN, 0);
        let mut lens = vec![0; from.count(4)?];
        from.u32s(&mut lens)?;
        from.end()?;
        Ok(Self { tree, head, lens })
    }
}

fn tag(content: &[u8], position: u64, key: &Secret) -> Mac {
    key.mac(&[&position.to_le_bytes(), content].concat())
}

/// What the head of a generation says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GenerationAbout {
    /// The end of the previous generation.
    pub parent: Position,
    /// The opening that saved the state.
    pub opening: Opening,
    /// How long the lease of that opening lasts, in milliseconds.
    pub period_ms: u64,
    /// The number of the save.
    pub save: u64,
}

impl GenerationAbout {
    /// The user's bytes of the head.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(&self.parent.encode()).bytes(&self.opening.encode());
        out.u64(self.period_ms).u64(self.save);
        out.into_bytes()
    }

    /// Takes the user's bytes of a head.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Reader::of_state(bytes, CONTENT);
        let (parent, opening) = (Position::decode(&mut from)?, Opening::decode(&mut from)?);
        let about = Self { parent, opening, period_ms: from.u64()?, save: from.u64()? };
        from.end().map(|()| about)
    }
}

/// The key of all generations in a log.
pub fn generation_key(key: &Secret) -> Secret {
    key.derive(&[b"leased generation"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_and_moved_checkpoints_are_refused() {
        let key = Secret::from_bytes([5; 32]);
        let checkpoint = Checkpoint { tree: [1; 16], head: vec![2; HEAD_LEN], lens: vec![3, 4] };
        let bytes = checkpoint.encode(9, &key);
        assert_eq!(Checkpoint::tree_of(&bytes), Some([1; 16]));
        assert_eq!(Checkpoint::decode(&bytes, 9, &key).unwrap(), checkpoint);
        assert!(Checkpoint::decode(&bytes, 8, &key).is_err());
        assert!(Checkpoint::decode(&bytes, 9, &Secret::from_bytes([6; 32])).is_err());
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1;
            assert!(Checkpoint::decode(&changed, 9, &key).is_err(), "{at}");
            assert!(Checkpoint::decode(&bytes[..at], 9, &key).is_err(), "{at}");
        }
        let names = checkpoint.pieces(7);
        assert_eq!(
            names,
            [(PieceName { save: 7, piece: 0 }, 3), (PieceName { save: 7, piece: 1 }, 4)]
        );
    }
}
