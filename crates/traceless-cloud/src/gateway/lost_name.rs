//! Names of values and objects with lost blocks.

use super::names::Namespace;
use super::record::Record;

/// A name with lost blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostName {
    /// What the name is for.
    pub namespace: Namespace,
    /// The name.
    pub name: Vec<u8>,
    /// How many of its blocks are lost.
    pub blocks: usize,
}

impl LostName {
    /// The record that removes the name.
    pub(super) fn removal(&self) -> Record {
        Record::Unbind { namespace: self.namespace, name: self.name.clone() }
    }
}
