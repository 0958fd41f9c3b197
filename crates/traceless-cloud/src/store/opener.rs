//! Opens a store once the shape of its tree is known.

use super::{BoxedStore, Durability, FileStore, Opening};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::geometry::Geometry;
use std::path::PathBuf;

/// A place that has a store, or will have one: a folder, or the URL of an engine.
pub trait OpenStore: Send + Sync {
    /// Opens the store of a tree of this shape for a gateway, or creates an empty one. If several
    /// hosts reach it, and one of them has admitted a newer opening, fails with [`Error::Fenced`].
    fn open(&self, geometry: Geometry, opening: Opening) -> Result<BoxedStore>;
}

/// The folder of a [`FileStore`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreFolder {
    /// The folder.
    pub folder: PathBuf,
    /// What a commit survives once it is acknowledged.
    pub durability: Durability,
}

impl OpenStore for StoreFolder {
    fn open(&self, geometry: Geometry, _: Opening) -> Result<BoxedStore> {
        FileStore::open(&self.folder, geometry, self.durability).map(BoxedStore::new)
    }
}
