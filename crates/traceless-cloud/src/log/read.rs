//! Reads a log's file, and finds its damage.

use super::layout::{ENTRIES_AT, ENTRY_MAGIC, HEAD_LEN, HEADER_LEN, Head, Header, MARKS_AT, Magic};
use super::marks::{Mark, Position};
use super::proof::{CHAIN_LEN, Chain, Proof};
use crate::error::{Error, Result};
use core::ops::Range;
use std::path::Path;

/// The whole entries of a file, up to the first that is not whole.
pub struct WholeEntries<P> {
    /// The file's generation.
    pub generation: u64,
    /// The user's bytes in the head.
    pub about: Vec<u8>,
    /// The whole entries.
    pub entries: Vec<Entry>,
    /// The position after the whole entries.
    pub position: Position,
    /// Bytes of an interrupted write after the whole entries.
    pub torn: u64,
    /// The damage, if there is any. Nothing after the whole entries can then be read.
    pub damage: Option<Damage>,
    /// The proof of this file.
    pub proof: P,
    /// The file's bytes, with the bodies of whole entries opened.
    bytes: Vec<u8>,
}

impl<P> WholeEntries<P> {
    /// Each entry's number of records, and its body.
    pub fn bodies(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.entries.iter().map(|entry| (entry.records, &self.bytes[entry.body.clone()]))
    }

    /// Fails if the file is damaged.
    pub fn undamaged(self, path: &Path, advice: &'static str) -> Result<Self> {
        self.damage.map_or(Ok(self), |damage| Err(damage.error(path, advice)))
    }
}

/// A whole entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// How many records it holds.
    pub records: u32,
    /// The range of its opened body.
    pub body: Range<usize>,
    /// Its tag.
    pub chain: Chain,
}

/// Damage of a log's file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Damage {
    /// The number of the first entry that is not whole; 0 for what precedes all entries.
    pub entry: u64,
    /// Where that entry begins.
    pub at: u64,
    /// How many entries are known to have existed, from that one on.
    pub lost_entries: u64,
    /// Records in the lost entries with readable headers.
    pub lost_records: u64,
    /// Bytes from there to the end of the file, or to its recorded end if that is further.
    pub lost_bytes: u64,
}

impl Damage {
    /// The damage of a whole file of this length.
    pub fn of_all(len: usize) -> Self {
        Self { lost_bytes: len as u64, ..Self::default() }
    }

    /// The damage as an error.
    pub fn error(&self, path: &Path, advice: &'static str) -> Error {
        let file = path.display().to_string();
        let Self { entry, at, lost_entries: lost, .. } = *self;
        Error::Damaged { file, entry, at, lost, advice }
    }
}

/// Fails if a file has the format of another version of this program.
pub fn check_format<P: Proof>(
    what: &'static str,
    bytes: &[u8],
    magic: Magic,
    key: &P::Key,
) -> Result {
    let head = &bytes[..bytes.len().min(HEAD_LEN)];
    Error::check_format(what, head, &magic, |own| Head::decode::<P>(own, magic, key).is_some())
}

/// Reads the entries in the bytes of a file.
pub fn read<P: Proof>(
    bytes: Vec<u8>,
    magic: Magic,
    key: &P::Key,
) -> Result<WholeEntries<P>, Damage> {
    let len = bytes.len() as u64;
    let Some((head, proof)) = Head::decode::<P>(&bytes, magic, key) else {
        return Err(Damage::of_all(bytes.len()));
    };
    let position = head.position(&proof);
    let mark = bytes.get(MARKS_AT..ENTRIES_AT).and_then(|pages| Mark::newest(pages, &proof));
    let Some(mark) = mark.map(|mark| mark.position) else {
        // It is unknown how far the log was durable. A repair keeps the whole entries.
        let mut found = Reading { bytes, proof, position, mark: position }.all(head);
        let none = Damage { at: MARKS_AT as u64, ..Damage::default() };
        found.damage = Some(found.damage.unwrap_or(none));
        return Ok(found);
    };
    let mut found = Reading { bytes, proof, position, mark }.all(head);
    if let Some(damage) = &mut found.damage {
        damage.lost_bytes = mark.end.max(len) - damage.at;
    }
    Ok(found)
}

/// Reads a log that was stored entry by entry, without marks: its head, and its entries. Each was
/// stored as a whole, so what is not whole is damage.
pub fn read_stored<P: Proof>(
    head: &[u8],
    entries: &[impl AsRef<[u8]>],
    magic: Magic,
    key: &P::Key,
) -> Result<WholeEntries<P>, Damage> {
    let len = entries.iter().map(|entry| entry.as_ref().len()).sum::<usize>();
    let Some((head, proof)) = Head::decode::<P>(head, magic, key) else {
        return Err(Damage::of_all(len));
    };
    // In memory the entries are where they are in a file.
    let mut bytes = vec![0; ENTRIES_AT];
    bytes.reserve(len);
    for entry in entries {
        bytes.extend_from_slice(entry.as_ref());
    }
    let position = head.position(&proof);
    let mut found = Reading { bytes, proof, position, mark: position }.all(head);
    if found.torn > 0 && found.damage.is_none() {
        let (entry, at) = (found.position.entries + 1, found.position.end);
        let (lost_bytes, lost_records) = (found.torn, 0);
        found.damage = Some(Damage { entry, at, lost_entries: 1, lost_records, lost_bytes });
    }
    Ok(found)
}

struct Reading<P> {
    bytes: Vec<u8>,
    proof: P,
    position: Position,
    mark: Position,
}

impl<P: Proof> Reading<P> {
    fn all(mut self, head: Head) -> WholeEntries<P> {
        let mut entries = Vec::new();
        let mut fits = self.fits_mark();
        while fits && let Some(entry) = self.next() {
            entries.push(entry);
            fits = self.fits_mark();
        }
        let damage = self.damage(fits);
        let torn = self.bytes.len() as u64 - self.position.end.min(self.bytes.len() as u64);
        let Head { generation, about, .. } = head;
        let Self { bytes, position, proof, .. } = self;
        WholeEntries { generation, about, entries, position, torn, damage, proof, bytes }
    }

    /// Whether the position agrees with the mark, if it has the mark's number.
    fn fits_mark(&self) -> bool {
        self.position.entries != self.mark.entries || self.position == self.mark
    }

    fn next(&mut self) -> Option<Entry> {
        let at = usize::try_from(self.position.end).ok()?;
        let header = self.header(at)?;
        // The chain depends on the previous entry's number, too.
        if header.chain != self.position.chain {
            return None;
        }
        let body_at = at + HEADER_LEN;
        let (before, rest) = self.bytes.split_at_mut_checked(body_at)?;
        let (body, rest) = rest.split_at_mut_checked(header.len as usize)?;
        let chain = *rest.first_chunk::<CHAIN_LEN>()?;
        if !self.proof.open(header.number, &before[at..], body, &chain) {
            return None;
        }
        let body = body_at..body_at + header.len as usize;
        self.position.end = (body.end + CHAIN_LEN) as u64;
        (self.position.entries, self.position.chain) = (header.number, chain);
        Some(Entry { records: header.records, body, chain })
    }

    /// The header at an offset, if it belongs to this file.
    fn header(&self, at: usize) -> Option<Header> {
        Header::decode(self.bytes.get(at..)?, &self.proof)
    }

    /// The damage of the next entry, if there ever was one.
    fn damage(&self, fits: bool) -> Option<Damage> {
        let (next, at) = (self.position.entries + 1, self.position.end);
        let (mut last, mut lost_records) = (self.mark.entries, 0);
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let mut search = start;
        while let Some(found) = self.find_header(search) {
            if let Some(header) = self.header(found).filter(|header| header.number >= next) {
                // A header of the very next entry may come from an interrupted write.
                if header.number > next {
                    last = last.max(header.number);
                }
                lost_records += u64::from(header.records);
            }
            search = found + 1;
        }
        if fits && last < next {
            return None;
        }
        let (entry, lost_entries) = (next, (last + 1).saturating_sub(next));
        let lost_bytes = (self.bytes.len() as u64).saturating_sub(at);
        Some(Damage { entry, at, lost_entries, lost_records, lost_bytes })
    }

    /// Where the next header may begin.
    fn find_header(&self, from: usize) -> Option<usize> {
        let rest = self.bytes.get(from..)?;
        let found = rest.windows(ENTRY_MAGIC.len()).position(|bytes| bytes == ENTRY_MAGIC)?;
        Some(from + found)
    }
}
