//! Whether a store is an earlier state of another one.

use super::super::{BoxedStore, CopyableStore, NodeStore as _, NodeVersion};
use super::Mirror;
use crate::error::{Error, Result};
use std::collections::HashSet;

/// Nodes that are compared.
const SAMPLES: usize = 8;

impl<S: CopyableStore> Mirror<S> {
    /// Fails unless `copy` is empty, or has an earlier state of the store: a copy that is named by
    /// mistake must not be overwritten.
    pub(super) async fn check_kinship(&self, copy: &BoxedStore) -> Result {
        let (own, copied) = (self.first.sequence().await?, copy.sequence().await?);
        let of_copy = copy.current();
        if of_copy.is_empty() {
            return Ok(());
        }
        if copied > own {
            return Err(Error::Store(
                "the second copy is newer than the store: name it as the store, or empty it",
            ));
        }
        let of_store: HashSet<NodeVersion> = self.first.current().into_iter().collect();
        let common = of_copy.into_iter().filter(|version| of_store.contains(version));
        for version in common.take(SAMPLES) {
            let len = self.geometry.node_len(self.geometry.layer_of(version.node));
            let (mut own, mut copied) = (vec![0; len], vec![0; len]);
            self.first.read_node(version, &mut own).await?;
            copy.read_node(version, &mut copied).await?;
            let len = self.geometry.slot_len();
            // A part of both may be damaged.
            let mut slots = own.chunks_exact(len).zip(copied.chunks_exact(len));
            if slots.any(|(own, copied)| own == copied && own.iter().any(|byte| *byte != 0)) {
                return Ok(());
            }
        }
        Err(Error::Store(
            "the second copy has no node of this tree: empty it, or name another place",
        ))
    }
}
