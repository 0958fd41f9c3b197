//! The layout of a log's file.

use super::marks::{MARKS_LEN, PAGE_LEN, u64_at};
use super::proof::{CHAIN_LEN, Chain, ID_LEN, Id, Proof, TAG_LEN};

const MAGIC_LEN: usize = 8;
/// The kind of a log and the version of its format.
pub type Magic = [u8; MAGIC_LEN];
const GENERATION_AT: usize = MAGIC_LEN;
const ID_AT: usize = GENERATION_AT + 8;
const ABOUT_LEN_AT: usize = ID_AT + ID_LEN;
const ABOUT_AT: usize = ABOUT_LEN_AT + 4;
/// Offset of the marks.
pub const MARKS_AT: usize = PAGE_LEN;
/// Offset of the first entry.
pub const ENTRIES_AT: usize = MARKS_AT + MARKS_LEN;

/// The first bytes of each entry.
pub const ENTRY_MAGIC: &[u8; 4] = b"tlen";
const LEN_AT: usize = 4;
const NUMBER_AT: usize = 8;
const RECORDS_AT: usize = 16;
const CHAIN_AT: usize = 20;
const HEADER_TAG_AT: usize = CHAIN_AT + CHAIN_LEN + 4;
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
    /// The head as one page.
    pub fn encode<P: Proof>(&self, proof: &P) -> Vec<u8> {
        let mut out = self.said();
        let tag = proof.tag(&out);
        out.extend_from_slice(&tag);
        assert!(out.len() <= PAGE_LEN, "a head is a page");
        out.resize(PAGE_LEN, 0);
        out
    }

    /// Decodes the front of a file. Also returns the proof for the rest of the file.
    pub fn decode<P: Proof>(bytes: &[u8], magic: Magic, key: &P::Key) -> Option<(Self, P)> {
        let page = bytes.get(..PAGE_LEN)?;
        let about_len = u32::from_le_bytes(*page[ABOUT_LEN_AT..].first_chunk()?) as usize;
        let about_end = ABOUT_AT.checked_add(about_len).filter(|end| end + TAG_LEN <= PAGE_LEN)?;
        let head = Self {
            magic,
            generation: u64_at(page, GENERATION_AT),
            id: *page[ID_AT..].first_chunk()?,
            about: page[ABOUT_AT..about_end].to_vec(),
        };
        let proof = P::new(key, &head.id);
        let tag = &page[about_end..about_end + TAG_LEN];
        (page.starts_with(&magic) && proof.fits(&page[..about_end], tag)).then_some((head, proof))
    }

    /// The chain value before the first entry.
    pub fn chain<P: Proof>(&self, proof: &P) -> Chain {
        let mut chain = [0; CHAIN_LEN];
        chain[..TAG_LEN].copy_from_slice(&proof.tag(&self.said()));
        chain
    }

    fn said(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&(self.about.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.about);
        out
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
        let mut out = [0; HEADER_LEN];
        out[..LEN_AT].copy_from_slice(ENTRY_MAGIC);
        out[LEN_AT..NUMBER_AT].copy_from_slice(&self.len.to_le_bytes());
        out[NUMBER_AT..RECORDS_AT].copy_from_slice(&self.number.to_le_bytes());
        out[RECORDS_AT..CHAIN_AT].copy_from_slice(&self.records.to_le_bytes());
        out[CHAIN_AT..CHAIN_AT + CHAIN_LEN].copy_from_slice(&self.chain);
        let tag = proof.tag(&out[..HEADER_TAG_AT]);
        out[HEADER_TAG_AT..].copy_from_slice(&tag);
        out
    }

    /// Decodes the front of `bytes`, if it is a header of this file.
    pub fn decode<P: Proof>(bytes: &[u8], proof: &P) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        let (said, tag) = header.split_at(HEADER_TAG_AT);
        if !said.starts_with(ENTRY_MAGIC) || !proof.fits(said, tag) {
            return None;
        }
        Some(Self {
            len: u32::from_le_bytes(*said[LEN_AT..].first_chunk()?),
            number: u64_at(said, NUMBER_AT),
            records: u32::from_le_bytes(*said[RECORDS_AT..].first_chunk()?),
            chain: *said[CHAIN_AT..].first_chunk()?,
        })
    }
}
