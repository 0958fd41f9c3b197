//! Whether a store is an earlier state of another one.

use super::super::{BoxedStore, CopyableStore, NodeStore as _, NodeVersion};
use super::Mirror;
use crate::error::{Error, Result};
use std::collections::HashSet;

/// Nodes that are compared.
const SAMPLES: usize = 16;

const NEWER: &str = "the second copy is newer than the store: name it as the store, or empty it";
const STRANGE: &str =
    "the second copy has no node in common with the store: empty it, or name another place";

/// Whether a copy was refused because the operator has named a wrong one. Any other copy may be
/// away or damaged, and the store goes on without it.
pub(super) fn is_mistake(refused: &Error) -> bool {
    match refused {
        Error::Parameters(_) | Error::InUse(_) | Error::Fenced { .. } => true,
        Error::Store(reason) => *reason == NEWER,
        _ => false,
    }
}

impl<S: CopyableStore> Mirror<S> {
    /// Fails unless `copy` is empty, or has an earlier state of the store: a copy that is named by
    /// mistake must not be overwritten.
    pub(super) async fn check_kinship(&self, copy: &BoxedStore) -> Result {
        let (own, copied) = (self.first.sequence().await?, copy.sequence().await?);
        let of_copy = copy.current()?;
        if of_copy.is_empty() {
            return Ok(());
        }
        if copied > own {
            return Err(Error::Store(NEWER));
        }
        let of_store: HashSet<NodeVersion> = self.first.current()?.into_iter().collect();
        let common = of_copy.into_iter().filter(|version| of_store.contains(version));
        let mut outcome = Err(Error::Store(STRANGE));
        for version in common.take(SAMPLES) {
            match self.has_slot_in_common(copy, version).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // Another node may be readable in both.
                Err(failed @ Error::Io(_)) => outcome = Err(failed),
                Err(failed) => return Err(failed),
            }
        }
        outcome
    }

    /// Whether a slot of a version is the same in both: a part of each may be damaged.
    async fn has_slot_in_common(&self, copy: &BoxedStore, version: NodeVersion) -> Result<bool> {
        let node_len = self.geometry.node_len(self.geometry.layer_of(version.node));
        let (mut own, mut copied) = (vec![0; node_len], vec![0; node_len]);
        self.first.read_node(version, &mut own).await?;
        copy.read_node(version, &mut copied).await?;
        let len = self.geometry.slot_len();
        let mut slots = own.chunks_exact(len).zip(copied.chunks_exact(len));
        Ok(slots.any(|(own, copied)| own == copied && own.iter().any(|byte| *byte != 0)))
    }
}
