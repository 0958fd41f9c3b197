//! The mark of how far a log has come: a small record that is written to two pages in turn, so that
//! an interrupted write leaves the other page whole.

use super::proof::{CHAIN_LEN, Chain, ID_LEN, Id, Proof, TAG_LEN};
use crate::codec::{Reader, Writer};
use crate::error::Result;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that a disk may damage if the power fails while it writes some of them.
pub const PAGE_LEN: usize = 4096;
/// Bytes of both pages.
pub const MARKS_LEN: usize = 2 * PAGE_LEN;

/// Bytes of a position.
pub const POSITION_LEN: usize = 8 + ID_LEN + 8 + 8 + CHAIN_LEN;
const TAG_AT: usize = Mark::MAGIC.len() + 8 + POSITION_LEN;
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
        let mut out = Writer::with_capacity(POSITION_LEN);
        out.u64(self.generation).bytes(&self.id);
        out.u64(self.entries).u64(self.end).bytes(&self.chain);
        out.into_array()
    }

    /// Takes a position.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            generation: from.u64()?,
            id: from.array()?,
            entries: from.u64()?,
            end: from.u64()?,
            chain: from.array()?,
        })
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
        let mut out = Writer::with_capacity(MARK_LEN);
        out.bytes(Self::MAGIC).u64(self.sequence).bytes(&self.position.encode());
        let tag = proof.tag(out.as_bytes());
        out.bytes(&tag);
        out.into_array()
    }

    fn decode<P: Proof>(page: &[u8], proof: &P) -> Option<Self> {
        let mark = page.first_chunk::<MARK_LEN>()?;
        let (content, tag) = mark.split_at(TAG_AT);
        let content = content.strip_prefix(Self::MAGIC).filter(|_| proof.fits(content, tag))?;
        let mut from = Reader::new(content);
        let sequence = from.u64().ok()?;
        Some(Self { sequence, position: Position::decode(&mut from).ok()? })
    }
}
