//! A store with what is before and beside it.

use super::{BoxedStore, CachedStore, MirroredStore, OpenStore, Opening};
use crate::error::Result;
use crate::geometry::Geometry;
use std::sync::Arc;

/// Where a tree is, and what is before and beside it.
pub struct StorePlace {
    /// Where the tree is.
    pub store: Box<dyn OpenStore>,
    /// Bytes of memory for nodes of the top layers.
    pub cache: u64,
    /// Where a second copy of the tree is, if there is one.
    pub copy: Option<Arc<dyn OpenStore>>,
}

impl StorePlace {
    /// A place without a second copy, and with `cache` bytes of memory for nodes of the top layers.
    pub fn new(store: Box<dyn OpenStore>, cache: u64) -> Self {
        Self { store, cache, copy: None }
    }
}

impl OpenStore for StorePlace {
    fn open(&self, geometry: Geometry, opening: Opening) -> Result<BoxedStore> {
        let store = self.store.open(geometry, opening)?;
        // The cache is below the second copy: damage in it must not hide the copy.
        let store = CachedStore::new(store, geometry, self.cache);
        match &self.copy {
            None => Ok(BoxedStore::new(store)),
            Some(copy) => {
                let mirrored = MirroredStore::open(store, copy.clone(), geometry, opening)?;
                Ok(BoxedStore::new(mirrored))
            }
        }
    }
}
