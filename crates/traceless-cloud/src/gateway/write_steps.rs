//! Steps that write pieces of objects, and that remove values.

use super::Gateway;
use super::lost_block::BlockRead;
use super::names::{Namespace, Object};
use super::object_steps::BindObserver;
use super::queries::Access;
use super::record::Record;
use super::steps::BatchStep;
use super::value::size_class;
use crate::error::{Error, Result};

/// Writes blocks that no name is bound to yet, and makes dummy queries.
pub(crate) struct WriteStep {
    blocks: Vec<Vec<u8>>,
    dummies: usize,
    /// The blocks' places in the tree, once the step has ended.
    pub ids: Vec<u32>,
}

impl WriteStep {
    /// Writes full blocks.
    pub fn blocks(blocks: Vec<Vec<u8>>) -> Self {
        Self { blocks, dummies: 0, ids: Vec::new() }
    }

    /// Makes so many dummy queries.
    #[cfg(any(test, feature = "http"))]
    pub fn dummies(count: usize) -> Self {
        Self { blocks: Vec::new(), dummies: count, ids: Vec::new() }
    }
}

impl BatchStep for WriteStep {
    fn weight(&self) -> usize {
        self.blocks.len() + self.dummies
    }

    fn plan(&mut self, gateway: &mut Gateway) -> Result<Vec<Access>> {
        let blocks = gateway.params().blocks;
        self.ids = gateway.reserve(self.blocks.len()).ok_or(Error::Full { blocks })?;
        let writes = self.ids.iter().zip(&self.blocks);
        let mut accesses: Vec<Access> =
            writes.map(|(id, bytes)| Access::Write(*id, bytes.clone())).collect();
        accesses.resize(accesses.len() + self.dummies, Access::Dummy);
        Ok(accesses)
    }

    fn finish(&mut self, gateway: &mut Gateway, read: Result<Vec<BlockRead>>) -> Result {
        if read.is_err() {
            gateway.release(core::mem::take(&mut self.ids));
        }
        read.map(drop)
    }

    /// The blocks are written before the record that binds them to a name.
    fn waits_for_records(&self, _: &Gateway) -> bool {
        false
    }
}

/// Removes values, with as many queries as reading them takes.
pub(crate) struct RemoveStep {
    names: Vec<Vec<u8>>,
    observer: BindObserver,
    /// How many of the names there were, once the step has ended.
    pub removed: usize,
}

impl RemoveStep {
    /// Removes names of [`Namespace::Values`]. Calls `observer` before a name is removed, while
    /// nothing else changes names.
    pub fn new(names: Vec<Vec<u8>>, observer: BindObserver) -> Self {
        Self { names, observer, removed: 0 }
    }
}

impl BatchStep for RemoveStep {
    fn plan(&mut self, gateway: &mut Gateway) -> Result<Vec<Access>> {
        self.names.sort_unstable();
        self.names.dedup();
        let objects = self.names.iter().filter_map(|name| gateway.find(Namespace::Values, name));
        let queries = objects.map(|object| size_class(object.blocks())).sum();
        Ok(vec![Access::Dummy; queries])
    }

    fn finish(&mut self, gateway: &mut Gateway, read: Result<Vec<BlockRead>>) -> Result {
        read?;
        for name in core::mem::take(&mut self.names) {
            let old: Option<&Object> = gateway.find(Namespace::Values, &name);
            if old.is_none() {
                continue;
            }
            (self.observer)(&name, old, &[]);
            self.removed += 1;
            gateway.log_for_answer(Record::Unbind { namespace: Namespace::Values, name })?;
        }
        Ok(())
    }
}
