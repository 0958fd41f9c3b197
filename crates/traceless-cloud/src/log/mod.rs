//! A log in a file. Damage can be distinguished from an interrupted write.
//!
//! | at byte | what |
//! |---|---|
//! | 0 | the head: magic, generation, a random id, the user's bytes (with their length), a tag |
//! | 4096 | two marks, a page each: how far the log is durable |
//! | 12288 | entries, one behind the other |
//!
//! An *entry* is the unit of writing. Its header has its own tag, so the entry's length is verified
//! before it is used. The header holds the entry's number and the tag of the previous entry, so no
//! entry can be left out, moved or taken from another file. The body is sealed, or only hashed
//! ([`Proof`]).
//!
//! After an entry is written, and is durable if the log requires that, a mark records it. The log
//! does not wait for the mark: the wait for the next entry covers it. So a mark on the disk is
//! never ahead of the entries, and lags behind by at most what was written since the wait before
//! the last. From this follows how [`read`](read::read) judges a file:
//!
//! * An entry up to the newest mark that is not whole is damage.
//! * After the mark, an entry that is not whole is damage if an entry with a higher number follows
//!   anywhere: that one was written after the wait for the first.
//! * Anything else after the mark (a part of an entry, zeros or noise) is an interrupted
//!   write that was never acknowledged.
//!
//! A truncated file is damaged in the entries up to its mark. Only a power cut within moments of an
//! answer, together with damage of that same last entry, could pass for an interrupted write.
//!
//! Files: `layout` (the bytes of head and entries), `marks`, `proof` (entries sealed, or hashed),
//! `read`.

mod layout;
mod marks;
mod proof;
mod read;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub use layout::ENTRIES_AT;
pub use layout::{HEAD_LEN, Head, Magic};
pub use marks::{MARKS_LEN, Mark, POSITION_LEN, Position};
pub use proof::{HashProof, Proof, SealProof};
pub use read::{Damage, WholeEntries, check_format, read, read_stored};

use crate::durable::Durability;
use crate::error::{Error, Result};
use layout::{HEADER_LEN, Header, MARKS_AT};
use proof::CHAIN_LEN;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use traceless_core::rng::Rng;

/// An entry that is being composed.
pub struct EntryDraft {
    /// Space for the header, then the body.
    bytes: Vec<u8>,
    records: u32,
}

impl Default for EntryDraft {
    fn default() -> Self {
        Self { bytes: vec![0; HEADER_LEN], records: 0 }
    }
}

impl EntryDraft {
    /// A draft with this body, which holds `records` records.
    pub fn of(records: u32, body: &[u8]) -> Self {
        let mut draft = Self { records, ..Self::default() };
        draft.bytes.extend_from_slice(body);
        draft
    }

    /// Adds a record.
    pub fn add(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.records += 1;
    }

    /// Whether no record was added.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER_LEN);
        self.records = 0;
    }

    /// Adds zeros, so that the finished entry has a multiple of `unit` bytes.
    fn pad(&mut self, unit: usize) {
        let len = (self.bytes.len() + CHAIN_LEN).next_multiple_of(unit);
        self.bytes.resize(len - CHAIN_LEN, 0);
    }

    /// Completes the entry after `position`, and advances the position.
    fn finish<P: Proof>(&mut self, proof: &P, position: &mut Position, rng: &mut dyn Rng) -> &[u8] {
        let (header, body) = self.bytes.split_at_mut(HEADER_LEN);
        let len = u32::try_from(body.len()).expect("an entry is far shorter");
        let number = position.entries + 1;
        let (records, chain) = (self.records, position.chain);
        header.copy_from_slice(&Header { len, number, records, chain }.encode(proof));
        let chain = proof.seal(number, header, body, rng);
        self.bytes.extend_from_slice(&chain);
        position.entries = number;
        position.end += self.bytes.len() as u64;
        position.chain = chain;
        &self.bytes
    }
}

/// Finishes the entries of a log that is stored entry by entry, without marks.
pub struct EntrySealer<P> {
    proof: P,
    /// The source of salts.
    rng: Box<dyn Rng>,
    position: Position,
}

impl<P: Proof> EntrySealer<P> {
    /// The first position of a log with this head. Also returns the head as a page.
    pub fn new(head: &Head, key: &P::Key, rng: Box<dyn Rng>) -> (Self, Vec<u8>) {
        let proof = P::new(key, &head.id);
        let (page, position) = (head.encode(&proof), head.position(&proof));
        (Self { proof, rng, position }, page)
    }

    /// The position of the last finished entry.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Finishes an entry, with so many zeros that its length is a multiple of `unit`, and empties
    /// the draft.
    pub fn finish(&mut self, draft: &mut EntryDraft, unit: usize) -> Vec<u8> {
        draft.pad(unit);
        let entry = draft.finish(&self.proof, &mut self.position, &mut *self.rng).to_vec();
        draft.clear();
        entry
    }
}

/// A log that is open for writing.
pub struct Log<P> {
    file: File,
    proof: P,
    /// The source of salts.
    rng: Box<dyn Rng>,
    durability: Durability,
    position: Position,
    /// A write failed, so the content of the file is unknown.
    broken: bool,
}

impl<P: Proof> Log<P> {
    /// Writes a file that begins with these entries, durably. The caller moves it into place with
    /// [`put`](crate::durable::put).
    pub fn create(
        new: &Path,
        head: &Head,
        key: &P::Key,
        entries: impl Iterator<Item = EntryDraft>,
        durability: Durability,
        mut rng: Box<dyn Rng>,
    ) -> Result<Self> {
        let proof = P::new(key, &head.id);
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(new)?;
        let mut position = head.position(&proof);
        file.write_all(&head.encode(&proof))?;
        file.write_all(&[0; MARKS_LEN])?;
        for mut draft in entries {
            file.write_all(draft.finish(&proof, &mut position, &mut *rng))?;
        }
        let mark = Mark { sequence: position.entries, position };
        file.write_all_at(&mark.pages(&proof), MARKS_AT as u64)?;
        file.sync_all()?;
        Ok(Self { file, proof, rng, durability, position, broken: false })
    }

    /// Continues a file after its whole entries. The file must end there.
    pub fn resume(
        file: File,
        found: WholeEntries<P>,
        durability: Durability,
        rng: Box<dyn Rng>,
    ) -> Self {
        let WholeEntries { proof, position, .. } = found;
        Self { file, proof, rng, durability, position, broken: false }
    }

    /// How far the log has come.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Whether a write failed, which prevents all further writes.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Prevents further writes, because another file may have replaced this one.
    pub fn give_up(&mut self) {
        self.broken = true;
    }

    /// Writes an entry, and empties the draft. On return the entry is as durable as the log
    /// requires.
    pub fn write(&mut self, draft: &mut EntryDraft) -> Result {
        if self.broken {
            return Err(Error::Store("a log could not be written before; open it again"));
        }
        self.broken = true;
        let at = self.position.end;
        let mut position = self.position;
        let entry = draft.finish(&self.proof, &mut position, &mut *self.rng);
        self.file.write_all_at(entry, at)?;
        if self.durability == Durability::Power {
            self.file.sync_data()?;
        }
        let mark = Mark { sequence: position.entries, position };
        mark.write(&self.file, MARKS_AT as u64, &self.proof)?;
        draft.clear();
        (self.position, self.broken) = (position, false);
        Ok(())
    }
}
