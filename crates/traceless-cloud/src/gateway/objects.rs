//! Values of any length under names.
//!
//! The gateway knows all names, so looking one up sends nothing. To read, write or remove a value
//! takes as many queries as the value's size class has blocks: `PADMÉ` classes, at most an eighth
//! above the length. A new value is written to free blocks before its name is bound to it, so no
//! partial value is ever visible. A reader keeps the blocks of its value from being reused, so it
//! reads the value unchanged.

use super::Gateway;
use super::draft::Draft;
use super::name_changes::NameChanges;
use super::names::{ByteRange, Namespace, Object, blocks_of};
use super::object_steps::{LoadStep, ReadStep, StoreStep};
use super::queries::TOGETHER_MAX;
use super::record::Record;
use super::value::{Value, size_class};
use super::write_steps::WriteStep;
use crate::error::{Error, Result};
use crate::params::Params;
use core::ops::Bound;

impl Gateway {
    /// How many names there are in a space.
    pub fn names(&self, namespace: Namespace) -> usize {
        self.state.names.len(namespace)
    }

    /// The object of a name, which sends nothing.
    pub fn find(&self, namespace: Namespace, name: &[u8]) -> Option<&Object> {
        self.state.names.get(namespace, name)
    }

    /// Names in order with their objects, starting at a bound, which sends nothing.
    pub fn names_from(
        &self,
        namespace: Namespace,
        from: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&[u8], &Object)> + use<'_> {
        self.state.names.from(namespace, from)
    }

    /// Blocks in use.
    pub fn blocks_used(&self) -> usize {
        self.state.names.used()
    }

    /// The value under a name of [`Namespace::Values`].
    pub fn load(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.load_many(&[name])?.pop().flatten().transpose()
    }

    /// The values under names of [`Namespace::Values`], read with queries that are sent together. A
    /// value with a lost block is an error in its place.
    pub fn load_many(&mut self, names: &[&[u8]]) -> Result<Vec<Option<Result<Vec<u8>>>>> {
        let mut step = LoadStep::new(names.iter().map(|name| name.to_vec()).collect());
        self.run_step(&mut step)?;
        Ok(step.values)
    }

    /// Stores a value under a name of [`Namespace::Values`], and replaces its old value.
    pub fn store(&mut self, name: &[u8], bytes: &[u8], note: &[u8]) -> Result {
        self.store_many(&[Value { name, bytes, note }])
    }

    /// Stores values under names of [`Namespace::Values`], one after the other, with queries that
    /// are sent together. If this fails before anything is sent, none of them is stored.
    pub fn store_many(&mut self, values: &[Value<'_>]) -> Result {
        self.run_step(&mut StoreStep::new(values))
    }

    /// Removes a name of [`Namespace::Values`]. Returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> Result<bool> {
        let Some(blocks) = self.find(Namespace::Values, name).map(Object::blocks) else {
            return Ok(false);
        };
        self.dummies(size_class(blocks))?;
        self.unbind(Namespace::Values, name)?;
        Ok(true)
    }

    /// Reads the next `len` bytes, or up to a block more. After the last byte the result is empty,
    /// and each call makes dummy queries, at most as many as reading `len` bytes takes, until the
    /// size class of the blocks read is filled. If a block is lost, the last of these calls fails
    /// with [`Error::Lost`], so that the host observes as many queries as without damage.
    pub fn read(&mut self, reading: &mut ByteRange, len: usize) -> Result<Vec<u8>> {
        let mut step = ReadStep::new(reading.clone(), len);
        let done = self.run_step(&mut step);
        *reading = step.reading;
        done.map(|()| step.bytes)
    }

    /// Takes unused blocks, if there are as many.
    pub(super) fn reserve(&mut self, count: usize) -> Option<Vec<u32>> {
        let blocks = self.params().blocks;
        let is_room = self.blocks_used() as u64 + count as u64 <= blocks;
        is_room.then(|| self.state.names.reserve(count, blocks)).flatten()
    }

    /// Gives back blocks that were reserved and not bound.
    pub(super) fn release(&mut self, ids: Vec<u32>) {
        self.state.names.release(ids);
    }

    /// Fails unless there is room for a piece of `len` bytes.
    pub fn check_room(&self, len: u64) -> Result {
        let Params { blocks, geometry, .. } = self.params();
        let used = self.blocks_used() + blocks_of(len, geometry.block_len as u64);
        if used as u64 > *blocks { Err(Error::Full { blocks: *blocks }) } else { Ok(()) }
    }

    /// Appends bytes to a draft. Blocks that get full are written together.
    pub fn append(&mut self, draft: &mut Draft, bytes: &[u8]) -> Result {
        let block_len = self.params().geometry.block_len;
        for blocks in draft.fill(bytes, block_len).chunks(TOGETHER_MAX) {
            self.write_blocks(draft, blocks.to_vec())?;
        }
        Ok(())
    }

    /// Writes the rest of a piece, and makes up to `most` of the dummy queries that fill its size
    /// class. Returns whether [`Gateway::bind`] has none left to make.
    pub fn complete(&mut self, draft: &mut Draft, most: usize) -> Result<bool> {
        let block_len = self.params().geometry.block_len;
        if let Some(last) = draft.take_last_block(block_len) {
            self.write_blocks(draft, vec![last])?;
        }
        let dummies = draft.dummies_left().min(most);
        self.dummies(dummies)?;
        draft.count_dummies(dummies);
        Ok(draft.dummies_left() == 0)
    }

    /// Binds a name to a draft, or to no blocks at all, and keeps a note with the name.
    pub fn bind(
        &mut self,
        namespace: Namespace,
        name: &[u8],
        draft: Option<Draft>,
        note: &[u8],
    ) -> Result {
        let mut changes = NameChanges::default();
        changes.bind(namespace, name, draft, note);
        self.change_names(changes)
    }

    /// Changes names. All of the changes are made or, after an error or a crash, none.
    pub fn change_names(&mut self, changes: NameChanges) -> Result {
        let (mut records, draft) = changes.into_parts();
        if let Some((index, mut draft)) = draft {
            if let Err(error) = self.complete(&mut draft, usize::MAX) {
                self.abandon(draft);
                return Err(error);
            }
            if let Record::Bind { object, .. } = &mut records[index] {
                let (len, ids) = draft.into_parts();
                (object.pieces, object.ids) = (vec![len], ids.into());
            }
        }
        let record = match records.pop() {
            None => return Ok(()),
            Some(only) if records.is_empty() => only,
            Some(last) => {
                records.push(last);
                Record::Together { changes: records }
            }
        };
        self.log_and_apply(record).map(drop)
    }

    /// Gives back the blocks of a draft that was not bound.
    pub fn abandon(&mut self, draft: Draft) {
        self.state.names.release(draft.into_parts().1);
    }

    /// Replaces the note of a name, which sends nothing.
    pub fn note(&mut self, namespace: Namespace, name: &[u8], note: &[u8]) -> Result {
        self.log_and_apply(Record::SetNote {
            namespace,
            name: name.to_vec(),
            note: note.to_vec(),
        })?;
        Ok(())
    }

    /// Removes a name, which sends nothing. The caller makes dummy queries if a removal must look
    /// like a read.
    pub fn unbind(&mut self, namespace: Namespace, name: &[u8]) -> Result {
        self.log_and_apply(Record::Unbind { namespace, name: name.to_vec() })?;
        Ok(())
    }

    /// Writes full blocks.
    fn write_blocks(&mut self, draft: &mut Draft, blocks: Vec<Vec<u8>>) -> Result {
        let mut step = WriteStep::blocks(blocks);
        self.run_step(&mut step)?;
        draft.extend(&step.ids);
        Ok(())
    }
}
