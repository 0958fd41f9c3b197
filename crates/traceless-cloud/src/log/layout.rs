//! The layout of a log's file.

use super::marks::{MARKS_LEN, PAGE_LEN, Position};
use super::proof::{CHAIN_LEN, Chain, Id, Proof, TAG_LEN};
use crate::codec::{Reader, Writer};
use traceless_core::rng::Rng;

const MAGIC_LEN: usize = 8;
/// The kind of a log and the version of its format.
pub type Magic = [u8; MAGIC_LEN];
/// Bytes of a head.
pub const HEAD_LEN: usize = PAGE_LEN;
/// Offset of the marks.
pub const MARKS_AT: usize = HEAD_LEN;
/// Offset of the first entry.
pub const ENTRIES_AT: usize = MARKS_AT + MARKS_LEN;

/// The first bytes of each entry.
pub const ENTRY_MAGIC: &[u8; 4] = b"tlen";
/// Bytes of zeros between an entry's chain value and its tag.
const PADDING: [u8; 4] = [0; 4];
const HEADER_TAG_AT: usize = ENTRY_MAGIC.len() + 4 + 8 + 4 + CHAIN_LEN + PADDING.len();
/// Bytes of an entry's header.
pub const HEADER_LEN: usize = HEADER_TAG_AT + TAG_LEN;

/// The head of a log's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// The kind of log and the version of its format.
    pub magic: Magic,
    /// The number of this file among all files of the log, in order of creation.
    pub generation: u64,
    /// A random number of this file.
    pub id: Id,
    /// Bytes that the log's user adds.
    pub about: Vec<u8>,
}

impl Head {
    /// The head of a new file, with a random id.
    pub fn draw(magic: Magic, generation: u64, about: Vec<u8>, rng: &mut dyn Rng) -> Self {
        let mut id = Id::default();
        rng.fill(&mut id);
        Self { magic, generation, id, about }
    }

    /// The head as one page.
    pub fn encode<P: Proof>(&self, proof: &P) -> Vec<u8> {
        let mut out = self.content();
        let tag = proof.tag(&out);
        out.extend_from_slice(&tag);
        assert!(out.len() <= PAGE_LEN, "a head is a page");
        out.resize(PAGE_LEN, 0);
        out
    }

    /// Decodes the front of a file. Also returns the proof for the rest of the file.
    pub fn decode<P: Proof>(bytes: &[u8], magic: Magic, key: &P::Key) -> Option<(Self, P)> {
        let page = bytes.get(..PAGE_LEN)?;
        let mut from = Reader::new(page.strip_prefix(&magic)?);
        let (generation, id) = (from.u64().ok()?, from.array().ok()?);
        let about = from.counted().ok()?.to_vec();
        let content = &page[..PAGE_LEN - from.remaining().len()];
        let tag = from.bytes(TAG_LEN).ok()?;
        let proof = P::new(key, &id);
        proof.fits(content, tag).then_some((Self { magic, generation, id, about }, proof))
    }

    /// The position before the first entry.
    pub fn position<P: Proof>(&self, proof: &P) -> Position {
        let (generation, id, chain) = (self.generation, self.id, self.chain(proof));
        Position { generation, id, entries: 0, end: ENTRIES_AT as u64, chain }
    }

    /// The chain value before the first entry.
    fn chain<P: Proof>(&self, proof: &P) -> Chain {
        let mut chain = [0; CHAIN_LEN];
        chain[..TAG_LEN].copy_from_slice(&proof.tag(&self.content()));
        chain
    }

    /// What the tag authenticates.
    fn content(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(&self.magic).u64(self.generation).bytes(&self.id).counted(&self.about);
        out.into_bytes()
    }
}

/// The header of an entry.
pub struct Header {
    /// Bytes of the entry's body.
    pub len: u32,
    /// The entry's number; the first entry has number 1.
    pub number: u64,
    /// How many records the entry holds.
    pub records: u32,
    /// The tag of the previous entry.
    pub chain: Chain,
}

impl Header {
    /// The header as bytes.
    pub fn encode<P: Proof>(&self, proof: &P) -> [u8; HEADER_LEN] {
        let mut out = Writer::with_capacity(HEADER_LEN);
        out.bytes(ENTRY_MAGIC).u32(self.len).u64(self.number).u32(self.records);
        out.bytes(&self.chain).bytes(&PADDING);
        let tag = proof.tag(out.as_bytes());
        out.bytes(&tag);
        out.into_array()
    }

    /// Decodes the front of `bytes`, if it is a header of this file.
    pub fn decode<P: Proof>(bytes: &[u8], proof: &P) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        let (content, tag) = header.split_at(HEADER_TAG_AT);
        let fields = content.strip_prefix(ENTRY_MAGIC).filter(|_| proof.fits(content, tag))?;
        let mut from = Reader::new(fields);
        let (len, number) = (from.u32().ok()?, from.u64().ok()?);
        Some(Self { len, number, records: from.u32().ok()?, chain: from.array().ok()? })
    }
}
