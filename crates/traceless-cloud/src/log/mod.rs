//! A log in a file, of which damage is told from a write that was cut short.
//!
//! | at byte | what |
//! |---|---|
//! | 0 | the head: magic, generation, a random id, what the owner adds (with its length), a tag |
//! | 4096 | two marks, a page each: how far the log is durable |
//! | 12288 | entries, one behind the other |
//!
//! An *entry* is what is written at once. Its header has a tag of its own, so its length is proved
//! before it is used; it names the entry's number and the tag of the entry before, so no entry can
//! be left out, moved or taken from another file. Its body is sealed, or only hashed ([`Proof`]).
//!
//! After an entry is written, and durable where that was asked for, a mark says so. The mark is not
//! waited for: the next entry's wait covers it. So on the disk a mark never is ahead of the
//! entries, and behind them by what was written since the wait before the last. Hence what
//! [`read`](read::read) makes of a file:
//!
//! * An entry up to the newest mark that is not whole is damage.
//! * Behind the mark, an entry that is not whole is damage if one with a higher number follows
//!   anywhere: that was written after the wait for it.
//! * Anything else behind the mark, be it a part of an entry, zeros or noise, is a write that was
//!   cut short and that nobody was told of.
//!
//! A file that was cut is damaged in the entries that the mark names. Only a power cut within
//! moments of an answer together with damage of that same last entry could pass for a write that
//! was cut short.

mod layout;
mod marks;
mod proof;
mod read;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use layout::{ENTRIES_AT, Head, Magic};
pub use marks::{MARKS_LEN, Mark, POSITION_LEN, Position};
pub use proof::{HashProof, ID_LEN, Proof, SealProof};
pub use read::{Damage, WholeEntries, read};

use crate::durable::Durability;
use crate::error::{Error, Result};
use layout::{HEADER_LEN, Header, MARKS_AT};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use traceless::rng::Rng;

/// What becomes an entry.
pub struct Draft {
    /// Room for the header, then the body.
    bytes: Vec<u8>,
    records: u32,
}

impl Default for Draft {
    fn default() -> Self {
        Self { bytes: vec![0; HEADER_LEN], records: 0 }
    }
}

impl Draft {
    /// With this body, in which so many records are.
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

    /// Forgets all of it.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER_LEN);
        self.records = 0;
    }

    /// Makes it the entry behind `position`, and moves that on.
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

/// A log that is open for writing.
pub struct Log<P> {
    file: File,
    proof: P,
    /// Where salts come from.
    rng: Box<dyn Rng>,
    durability: Durability,
    position: Position,
    /// A write failed, so nobody knows what is in the file.
    broken: bool,
}

impl<P: Proof> Log<P> {
    /// Writes a file that begins with these entries, durably. It is a log's once it is
    /// [`put`](crate::durable::put) in its place.
    pub fn create(
        new: &Path,
        head: &Head,
        key: &P::Key,
        entries: impl Iterator<Item = Draft>,
        durability: Durability,
        mut rng: Box<dyn Rng>,
    ) -> Result<Self> {
        let proof = P::new(key, &head.id);
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(new)?;
        let (generation, id) = (head.generation, head.id);
        let (end, chain) = (ENTRIES_AT as u64, head.chain(&proof));
        let mut position = Position { generation, id, entries: 0, end, chain };
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

    /// Goes on behind what was found in a file that ends there.
    pub fn go_on(
        file: File,
        found: WholeEntries<P>,
        durability: Durability,
        rng: Box<dyn Rng>,
    ) -> Self {
        let WholeEntries { proof, position, .. } = found;
        Self { file, proof, rng, durability, position, broken: false }
    }

    /// How far it has come.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Whether a write failed, so that nothing can be written any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Writes nothing any more, as another file may have taken its place.
    pub fn give_up(&mut self) {
        self.broken = true;
    }

    /// Writes an entry, and empties the draft. On return it has survived what was asked for.
    pub fn write(&mut self, draft: &mut Draft) -> Result {
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
