//! Opens a store once the shape of its tree is known.

use super::{BoxedStore, Durability, FileStore, Opening, PatientStore};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::geometry::Geometry;
use std::path::PathBuf;
use std::time::Duration;

/// How long a folder with a second copy may take for an answer, besides the time for its bytes. A
/// disk that starts up takes less, and clients wait longer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// A place that has a store, or will have one: a folder, or the URL of an engine.
pub trait OpenStore: Send + Sync {
    /// Opens the store of a tree of this shape for a gateway, or creates an empty one. If several
    /// hosts reach it, and one of them has admitted a newer opening, fails with [`Error::Fenced`].
    fn open(&self, geometry: Geometry, opening: Opening) -> Result<BoxedStore>;

    /// Opens it as a second copy: a call that has no answer for long must fail then.
    fn open_as_copy(&self, geometry: Geometry, opening: Opening) -> Result<BoxedStore> {
        self.open(geometry, opening)
    }
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

    fn open_as_copy(&self, geometry: Geometry, _: Opening) -> Result<BoxedStore> {
        let store = FileStore::open(&self.folder, geometry, self.durability)?;
        PatientStore::new(store, geometry, ANSWER_TIME).map(BoxedStore::new)
    }
}
