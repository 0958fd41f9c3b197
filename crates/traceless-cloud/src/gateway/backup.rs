//! A backup of all names and their contents in one sealed file, which does not depend on the shape,
//! the place and the version of the tree: it can be restored into any empty gateway with the same
//! master key.
//!
//! The host observes that all blocks are read once, as by a client that reads everything.
//!
//! Sealed (`sealed_file`) is a row of items: each name with its space, its note, the lengths of its
//! pieces and its bytes, and at last how many names there were.

mod sealed_file;
#[cfg(test)]
mod tests;

use super::names::{ByteRange, Namespace, Object, blocks_of};
use super::record::Record;
use super::{Draft, Gateway};
use crate::codec::{Reader, Writer};
use crate::error::{Error, Result};
use core::ops::Bound;
use sealed_file::{SealedReader, SealedWriter};
use std::io::{Read, Write};

const END: u8 = 0;
const NAME: u8 = 1;
/// Bytes that are read or written together.
const STEP_LEN: usize = 64 << 10;
/// Most bytes of a name, of a note and of a list of pieces.
const FIELD_LEN_MAX: usize = 64 << 20;
const DAMAGED: Error = Error::State("the backup");

/// What a backup holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BackupContents {
    /// How many names, of all spaces.
    pub names: u64,
    /// Bytes of their contents.
    pub bytes: u64,
}

impl Gateway {
    /// Writes a backup. Calls `progress` after each name with what was written. A lost block, or
    /// an empty store, is an error.
    pub fn back_up(
        &mut self,
        out: impl Write,
        mut progress: impl FnMut(BackupContents),
    ) -> Result<BackupContents> {
        if Namespace::ALL.into_iter().all(|namespace| self.names(namespace) == 0) {
            return Err(Error::Parameters("this store is empty: is it the right one?"));
        }
        let mut out = SealedWriter::begin(out, &self.backup_key, &mut *self.rng)?;
        let mut contents = BackupContents::default();
        for namespace in Namespace::ALL {
            let mut last: Option<Vec<u8>> = None;
            loop {
                let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let next = self.names_from(namespace, from).next();
                let Some((name, object)) = next else { break };
                let (name, object) = (name.to_vec(), object.clone());
                out.write_all(&head(namespace, &name, &object)?)?;
                contents.add(object.len())?;
                self.copy_out(object, &mut out)?;
                progress(contents);
                last = Some(name);
            }
        }
        let mut end = Writer::with_capacity(9);
        end.u8(END).u64(contents.names);
        out.write_all(end.as_bytes())?;
        out.end()?;
        Ok(contents)
    }

    fn copy_out(&mut self, object: Object, out: &mut impl Write) -> Result {
        if object.blocks() == 0 {
            return Ok(());
        }
        let len = object.len();
        let mut reading = ByteRange::new(object, 0..len);
        while !reading.is_done() {
            out.write_all(&self.read(&mut reading, STEP_LEN)?)?;
        }
        Ok(())
    }

    /// Verifies all of a backup and that it fits into the empty tree, and changes nothing.
    pub fn verify_backup(&self, from: impl Read) -> Result<BackupContents> {
        let mut from = SealedReader::begin(from, &self.backup_key)?;
        let (block_len, mut blocks) = (self.params().geometry.block_len as u64, 0);
        let contents = read_items(&mut from, |from, item, _| {
            let own = item.pieces.iter().map(|&len| blocks_of(len, block_len) as u64);
            blocks = own.fold(blocks, u64::saturating_add);
            read_in_steps(from, item.len()?, |_| Ok(()))
        })?;
        let room = self.params().blocks;
        if blocks > room { Err(Error::Full { blocks: room }) } else { Ok(contents) }
    }

    /// Writes all of a backup into the empty tree. Names are bound once all their blocks are
    /// written: after an error or a crash, none is.
    pub fn restore(
        &mut self,
        from: impl Read,
        mut progress: impl FnMut(BackupContents),
    ) -> Result<BackupContents> {
        if Namespace::ALL.into_iter().any(|namespace| self.names(namespace) > 0) {
            return Err(Error::Parameters("a backup is restored into an empty store only"));
        }
        let mut from = SealedReader::begin(from, &self.backup_key)?;
        let (mut names, mut all_ids) = (Vec::new(), Vec::new());
        let read = read_items(&mut from, |from, item, contents| {
            let first = all_ids.len();
            for &len in &item.pieces {
                all_ids.extend(self.copy_in(len, from)?);
            }
            let ids = all_ids[first..].into();
            let object = Object { pieces: item.pieces, ids, note: item.note };
            let (namespace, name) = (item.namespace, item.name);
            names.push(Record::Bind { namespace, name, object });
            progress(contents);
            Ok(())
        });
        let contents = match read {
            Ok(contents) => contents,
            Err(error) => {
                self.release(all_ids);
                return Err(error);
            }
        };
        for bind in names {
            self.state.apply(bind)?;
        }
        // The next generation of the state has all names, or the old one has none.
        self.save()?;
        Ok(contents)
    }

    /// Writes one piece, and returns its blocks.
    fn copy_in(&mut self, len: u64, from: &mut impl Read) -> Result<Vec<u32>> {
        let mut draft = Draft::default();
        let written = read_in_steps(from, len, |bytes| self.append(&mut draft, bytes));
        match written.and_then(|()| self.complete(&mut draft, usize::MAX)) {
            Ok(_) => Ok(draft.into_parts().1),
            Err(error) => {
                self.abandon(draft);
                Err(error)
            }
        }
    }
}

impl BackupContents {
    /// Counts a name with so many bytes.
    fn add(&mut self, bytes: u64) -> Result {
        self.names += 1;
        self.bytes = self.bytes.checked_add(bytes).ok_or(DAMAGED)?;
        Ok(())
    }
}

/// A name in a backup, before its bytes.
struct BackupItem {
    namespace: Namespace,
    name: Vec<u8>,
    note: Vec<u8>,
    pieces: Vec<u64>,
}

impl BackupItem {
    fn len(&self) -> Result<u64> {
        let sum = |sum: u64, piece: &u64| sum.checked_add(*piece);
        self.pieces.iter().try_fold(0, sum).ok_or(DAMAGED)
    }
}

fn head(namespace: Namespace, name: &[u8], object: &Object) -> Result<Vec<u8>> {
    let lens = [name.len(), object.note().len(), 8 * object.pieces().len()];
    if lens.into_iter().any(|len| len > FIELD_LEN_MAX) {
        return Err(Error::Malformed("a name with a note of 64 MiB or more"));
    }
    // A name without blocks, as of a bucket, has no pieces.
    let pieces = if object.blocks() == 0 { &[][..] } else { object.pieces() };
    let mut fields = Writer::with_capacity(64 + name.len() + object.note().len());
    fields.u8(NAME).u8(namespace as u8);
    fields.counted(name).counted(object.note());
    fields.u32(pieces.len() as u32).u64s(pieces);
    Ok(fields.into_bytes())
}

/// Calls `take` with each name, which must read its bytes, and with what there was up to it.
/// Returns what there was.
fn read_items<R: Read>(
    from: &mut SealedReader<R>,
    mut take: impl FnMut(&mut SealedReader<R>, BackupItem, BackupContents) -> Result,
) -> Result<BackupContents> {
    let mut contents = BackupContents::default();
    loop {
        match read_array::<1>(from)?[0] {
            NAME => {
                let [number] = read_array(from)?;
                let namespace = *Namespace::ALL.get(usize::from(number)).ok_or(DAMAGED)?;
                let (name, note) = (read_counted(from)?, read_counted(from)?);
                let count = u32::from_le_bytes(read_array(from)?) as usize;
                let mut bytes = vec![0; field_len(count.saturating_mul(8))?];
                read_exactly(from, &mut bytes)?;
                let mut pieces = vec![0; count];
                Reader::new(&bytes).u64s(&mut pieces)?;
                let item = BackupItem { namespace, name, note, pieces };
                contents.add(item.len()?)?;
                take(from, item, contents)?;
            }
            END if u64::from_le_bytes(read_array(from)?) == contents.names => {
                from.expect_end()?;
                return Ok(contents);
            }
            _ => return Err(DAMAGED),
        }
    }
}

/// Calls `take` with so many bytes, a part at a time.
fn read_in_steps(from: &mut impl Read, len: u64, mut take: impl FnMut(&[u8]) -> Result) -> Result {
    let (mut step, mut left) = (vec![0; STEP_LEN], len);
    while left > 0 {
        let part = &mut step[..left.min(STEP_LEN as u64) as usize];
        read_exactly(from, part)?;
        take(part)?;
        left -= part.len() as u64;
    }
    Ok(())
}

fn read_counted(from: &mut impl Read) -> Result<Vec<u8>> {
    let len = u32::from_le_bytes(read_array(from)?) as usize;
    let mut bytes = vec![0; field_len(len)?];
    read_exactly(from, &mut bytes)?;
    Ok(bytes)
}

fn read_array<const N: usize>(from: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    read_exactly(from, &mut bytes)?;
    Ok(bytes)
}

/// Reads bytes that must be there.
fn read_exactly(from: &mut impl Read, into: &mut [u8]) -> Result {
    from.read_exact(into).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => DAMAGED,
        _ => error.into(),
    })
}

fn field_len(len: usize) -> Result<usize> {
    if len <= FIELD_LEN_MAX { Ok(len) } else { Err(DAMAGED) }
}
