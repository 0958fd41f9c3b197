//! Steps that read and write objects.

use super::Gateway;
use super::lost_block::BlockRead;
use super::names::{ByteRange, Namespace, Object, blocks_of};
use super::queries::Access;
use super::record::Record;
use super::steps::BatchStep;
use super::value::{NAME_LEN_MAX, VALUE_LEN_MAX, Value, size_class};
use crate::error::{Error, Result};
use crate::params::Params;
use core::ops::Range;

/// Reads values.
pub(crate) struct LoadStep {
    names: Vec<Vec<u8>>,
    /// Each value's object, which keeps its blocks from being reused, and the parts of its blocks;
    /// `None` for a name without a value.
    groups: Vec<Option<(Object, Vec<Range<usize>>)>>,
    /// The values, once the step has ended.
    pub values: Vec<Option<Result<Vec<u8>>>>,
}

impl LoadStep {
    /// Reads the values under these names of [`Namespace::Values`].
    pub fn new(names: Vec<Vec<u8>>) -> Self {
        Self { names, groups: Vec::new(), values: Vec::new() }
    }
}

impl BatchStep for LoadStep {
    fn plan(&mut self, gateway: &mut Gateway) -> Result<Vec<Access>> {
        let block_len = gateway.params().geometry.block_len;
        let (mut accesses, mut missing) = (Vec::new(), 0);
        for name in &self.names {
            let parts = gateway.find(Namespace::Values, name).cloned().map(|object| {
                let (len, mut parts) = (object.len(), Vec::new());
                let mut reading = ByteRange::new(object.clone(), 0..len);
                while let Some((id, part)) = reading.next(block_len) {
                    reading.blocks += 1;
                    accesses.push(Access::Read(id));
                    parts.push(part);
                }
                missing += size_class(parts.len()) - parts.len();
                (object, parts)
            });
            self.groups.push(parts);
        }
        accesses.resize(accesses.len() + missing, Access::Dummy);
        Ok(accesses)
    }

    fn finish(&mut self, _: &mut Gateway, read: Result<Vec<BlockRead>>) -> Result {
        let mut blocks = read?.into_iter();
        let mut value = |(_, parts): (Object, Vec<Range<usize>>)| {
            let mut bytes = Ok(Vec::new());
            for (part, block) in parts.into_iter().zip(&mut blocks) {
                match (&mut bytes, block) {
                    (Ok(bytes), Ok(block)) => bytes.extend_from_slice(&block[part]),
                    (Ok(_), Err(lost)) => bytes = Err(lost.into()),
                    (Err(_), _) => {}
                }
            }
            bytes
        };
        let groups = core::mem::take(&mut self.groups).into_iter();
        self.values = groups.map(|group| group.map(&mut value)).collect();
        Ok(())
    }

    fn waits_for_records(&self, gateway: &Gateway) -> bool {
        self.names.iter().any(|name| gateway.is_unwritten(name))
    }
}

/// A value to be stored, with its name and note.
struct OwnedValue {
    name: Vec<u8>,
    bytes: Vec<u8>,
    note: Vec<u8>,
}

/// Called with each name that is bound or removed, its old object, and its new note.
pub(crate) type BindObserver = Box<dyn FnMut(&[u8], Option<&Object>, &[u8]) + Send>;

/// Stores values.
pub(crate) struct StoreStep {
    values: Vec<OwnedValue>,
    /// Blocks that are reserved for the values.
    ids: Vec<u32>,
    observer: Option<BindObserver>,
    /// Whether the names must exist, or must not.
    wanted: Option<bool>,
    keeps_notes: bool,
    /// Whether the values were stored, once the step has ended.
    pub is_stored: bool,
}

impl StoreStep {
    /// Stores values under names of [`Namespace::Values`], one after the other.
    pub fn new(values: &[Value<'_>]) -> Self {
        let owned = |value: &Value<'_>| OwnedValue {
            name: value.name.to_vec(),
            bytes: value.bytes.to_vec(),
            note: value.note.to_vec(),
        };
        Self {
            values: values.iter().map(owned).collect(),
            ids: Vec::new(),
            observer: None,
            wanted: None,
            keeps_notes: false,
            is_stored: false,
        }
    }

    /// Stores nothing unless all names exist, or none does.
    pub fn only_if(self, wanted: Option<bool>) -> Self {
        Self { wanted, ..self }
    }

    /// Keeps the notes of names that exist.
    pub fn keeping_notes(self, keeps_notes: bool) -> Self {
        Self { keeps_notes, ..self }
    }

    /// Also calls `observer` before a name is bound, while nothing else changes names.
    pub fn observed_by(self, observer: BindObserver) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Whether the names exist, or do not, as they must.
    fn is_wanted(&self, gateway: &Gateway) -> bool {
        let exists = |name: &[u8]| gateway.find(Namespace::Values, name).is_some();
        let wanted = self.wanted;
        self.values.iter().all(|value| wanted.is_none_or(|wanted| wanted == exists(&value.name)))
    }

    fn bind(&mut self, gateway: &mut Gateway) -> Result {
        let block_len = gateway.params().geometry.block_len as u64;
        let mut ids = core::mem::take(&mut self.ids);
        for OwnedValue { name, bytes, mut note } in core::mem::take(&mut self.values) {
            let old = gateway.find(Namespace::Values, &name);
            if self.keeps_notes {
                note = old.map_or_else(Vec::new, |old| old.note().to_vec());
            }
            if let Some(observer) = &mut self.observer {
                observer(&name, old, &note);
            }
            let rest = ids.split_off(blocks_of(bytes.len() as u64, block_len));
            let object = Object { pieces: vec![bytes.len() as u64], ids: ids.into(), note };
            ids = rest;
            gateway.log_for_answer(Record::Bind { namespace: Namespace::Values, name, object })?;
        }
        self.is_stored = true;
        Ok(())
    }
}

impl BatchStep for StoreStep {
    fn plan(&mut self, gateway: &mut Gateway) -> Result<Vec<Access>> {
        let is_long = |value: &OwnedValue| {
            value.name.len() > NAME_LEN_MAX || value.bytes.len() > VALUE_LEN_MAX
        };
        if self.values.iter().any(is_long) {
            return Err(Error::Malformed("a name of 1 KiB and a value of 64 MiB is the most"));
        }
        if !self.is_wanted(gateway) {
            self.values.clear();
        }
        let Params { blocks, geometry, .. } = *gateway.params();
        let block_len = geometry.block_len;
        let count = |value: &OwnedValue| blocks_of(value.bytes.len() as u64, block_len as u64);
        let all: usize = self.values.iter().map(count).sum();
        self.ids = gateway.reserve(all).ok_or(Error::Full { blocks })?;
        let (mut accesses, mut missing) = (Vec::with_capacity(all), 0);
        let mut ids = self.ids.iter();
        for value in &self.values {
            for nth in 0..count(value) {
                let rest = &value.bytes[nth * block_len..];
                let mut block = rest[..rest.len().min(block_len)].to_vec();
                block.resize(block_len, 0);
                accesses.push(Access::Write(*ids.next().expect("one for each block"), block));
            }
            missing += size_class(count(value)) - count(value);
        }
        accesses.resize(accesses.len() + missing, Access::Dummy);
        Ok(accesses)
    }

    fn finish(&mut self, gateway: &mut Gateway, read: Result<Vec<BlockRead>>) -> Result {
        // Another client's step may have ended since the plan.
        if read.is_err() || self.values.is_empty() || !self.is_wanted(gateway) {
            gateway.release(core::mem::take(&mut self.ids));
            return read.map(drop);
        }
        self.bind(gateway)
    }
}

/// Reads a part of an object, or fills its size class once all is read.
pub(crate) struct ReadStep {
    /// What is left to be read.
    pub reading: ByteRange,
    len: usize,
    parts: Vec<Range<usize>>,
    /// Dummy queries of this step.
    dummies: usize,
    /// The bytes, once the step has ended.
    pub bytes: Vec<u8>,
}

impl ReadStep {
    /// Reads `len` bytes, or up to a block more.
    pub fn new(reading: ByteRange, len: usize) -> Self {
        Self { reading, len, parts: Vec::new(), dummies: 0, bytes: Vec::new() }
    }
}

impl BatchStep for ReadStep {
    fn weight(&self) -> usize {
        self.reading.blocks_in(self.len)
    }

    fn plan(&mut self, gateway: &mut Gateway) -> Result<Vec<Access>> {
        let block_len = gateway.params().geometry.block_len;
        let (mut accesses, mut planned_len) = (Vec::new(), 0);
        while planned_len < self.len
            && let Some((id, part)) = self.reading.next(block_len)
        {
            self.reading.blocks += 1;
            planned_len += part.len();
            accesses.push(Access::Read(id));
            self.parts.push(part);
        }
        if planned_len == 0 {
            let missing = size_class(self.reading.blocks) - self.reading.blocks;
            let left = missing.saturating_sub(self.reading.padded);
            let most = self.len.div_ceil(block_len).max(1);
            // An empty range has read one block above, which the padding follows at once.
            self.dummies = left.min(most);
            accesses.resize(accesses.len() + self.dummies, Access::Dummy);
        }
        Ok(accesses)
    }

    fn finish(&mut self, _: &mut Gateway, read: Result<Vec<BlockRead>>) -> Result {
        for (block, part) in read?.into_iter().zip(&self.parts) {
            match block {
                Ok(block) => self.bytes.extend_from_slice(&block[part.clone()]),
                Err(lost) => {
                    self.bytes.resize(self.bytes.len() + part.len(), 0);
                    self.reading.lost = self.reading.lost.or(Some(lost));
                }
            }
        }
        if self.bytes.is_empty() {
            self.reading.padded += self.dummies;
            let missing = size_class(self.reading.blocks) - self.reading.blocks;
            self.reading.done = self.reading.padded >= missing;
        }
        // Only the end is an error, so that the host observes as many queries as without damage.
        match self.reading.lost {
            Some(lost) if self.reading.done => Err(lost.into()),
            _ => Ok(()),
        }
    }

    /// The object was bound before, and its blocks written before that.
    fn waits_for_records(&self, _: &Gateway) -> bool {
        false
    }
}
