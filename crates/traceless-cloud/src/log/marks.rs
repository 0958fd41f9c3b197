//! The mark of how far a log has come: a small record that is written to two pages in turn, so that
//! an interrupted write leaves the other page whole.

use super::proof::{CHAIN_LEN, Chain, ID_LEN, Id, Proof, TAG_LEN};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that a disk may damage if the power fails while it writes some of them.
pub const PAGE_LEN: usize = 4096;
/// Bytes of both pages.
pub const MARKS_LEN: usize = 2 * PAGE_LEN;

const SEQUENCE_AT: usize = Mark::MAGIC.len();
const POSITION_AT: usize = SEQUENCE_AT + 8;
/// Bytes of a position.
pub const POSITION_LEN: usize = 8 + ID_LEN + 8 + 8 + CHAIN_LEN;
const TAG_AT: usize = POSITION_AT + POSITION_LEN;
const MARK_LEN: usize = TAG_AT + TAG_LEN;

/// How far a log has come: the position includes all entries up to here and no later ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Position {
    /// The number of the log's file, in order of creation.
    pub generation: u64,
    /// Distinguishes the file from other files with the same number.
    pub id: Id,
    /// How many entries the file has.
    pub entries: u64,
    /// Offset of the end of the last entry.
    pub end: u64,
    /// The tag of the last entry, which depends on all entries.
    pub chain: Chain,
}

impl Position {
    /// The position as bytes.
    pub fn encode(&self) -> [u8; POSITION_LEN] {
        let mut out = [0; POSITION_LEN];
        out[..8].copy_from_slice(&self.generation.to_le_bytes());
        out[8..24].copy_from_slice(&self.id);
        out[24..32].copy_from_slice(&self.entries.to_le_bytes());
        out[32..40].copy_from_slice(&self.end.to_le_bytes());
        out[40..].copy_from_slice(&self.chain);
        out
    }

    /// Decodes a position.
    pub fn decode(bytes: &[u8; POSITION_LEN]) -> Self {
        Self {
            generation: u64_at(bytes, 0),
            id: *bytes[8..].first_chunk().expect("an id"),
            entries: u64_at(bytes, 24),
            end: u64_at(bytes, 32),
            chain: *bytes[40..].first_chunk().expect("a chain"),
        }
    }
}

/// A recorded position, numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The number of the mark.
    pub sequence: u64,
    /// The position.
    pub position: Position,
}

impl Mark {
    /// The first bytes of each mark.
    pub const MAGIC: &[u8; 8] = b"tlmark01";

    /// Writes the mark to one of the two pages at `at`: odd and even numbers alternate.
    pub fn write<P: Proof>(&self, file: &File, at: u64, proof: &P) -> io::Result<()> {
        let page = (self.sequence % 2) * PAGE_LEN as u64;
        file.write_all_at(&self.encode(proof), at + page)
    }

    /// The newest whole mark of two pages, if there is one.
    pub fn newest<P: Proof>(pages: &[u8], proof: &P) -> Option<Self> {
        let marks = pages.chunks(PAGE_LEN).take(2).filter_map(|page| Self::decode(page, proof));
        marks.max_by_key(|mark| mark.sequence)
    }

    /// Both pages, with this mark in each.
    pub fn pages<P: Proof>(&self, proof: &P) -> Vec<u8> {
        let mut page = self.encode(proof).to_vec();
        page.resize(PAGE_LEN, 0);
        page.repeat(2)
    }

    fn encode<P: Proof>(&self, proof: &P) -> [u8; MARK_LEN] {
        let mut out = [0; MARK_LEN];
        out[..SEQUENCE_AT].copy_from_slice(Self::MAGIC);
        out[SEQUENCE_AT..POSITION_AT].copy_from_slice(&self.sequence.to_le_bytes());
        out[POSITION_AT..TAG_AT].copy_from_slice(&self.position.encode());
        let tag = proof.tag(&out[..TAG_AT]);
        out[TAG_AT..].copy_from_slice(&tag);
        out
    }

    fn decode<P: Proof>(page: &[u8], proof: &P) -> Option<Self> {
        let mark = page.first_chunk::<MARK_LEN>()?;
        let (said, tag) = mark.split_at(TAG_AT);
        if !said.starts_with(Self::MAGIC) || !proof.fits(said, tag) {
            return None;
        }
        let position = said[POSITION_AT..].first_chunk().expect("a position");
        let position = Position::decode(position);
        Some(Self { sequence: u64_at(said, SEQUENCE_AT), position })
    }
}

/// The number at offset `at`.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("8 bytes"))
}
