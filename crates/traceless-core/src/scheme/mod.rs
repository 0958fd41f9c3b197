//! What all schemes share: the contract, the context that they are opened in, their life and keys.
//!
//! * `scheme/contract`: what a scheme's parameters say, and how they make and open an ORAM
//! * `scheme/openings`: openings, the state that names them, keys by opening
//! * `scheme/lifecycle`: from opening to close: whether a scheme may write, what is durable, where
//!   its state is kept
//! * `scheme/store_vault`: a vault beside a scheme in one store
//!
//! A scheme places its areas one behind the other, and gets their slots from its context:
//!
//! ```
//! use traceless_core::rng::System;
//! use traceless_core::scheme::{SchemeContext, place_areas};
//! use traceless_core::store::{Run, SlotLayout};
//! use traceless_core::types::Slot;
//!
//! # fn main() -> traceless_core::Result {
//! let layout = SlotLayout { slots: 100, body_len: 4096, entry_len: 16, stripe_slots: 10 };
//! let areas = place_areas([("holding", layout), ("main", layout)].into_iter());
//! assert_eq!(areas[1], ("main", layout.len(), layout.len()));
//!
//! let context = SchemeContext::in_memory(2 * layout.len(), Box::new(System))?;
//! context.check(2 * layout.len())?;
//! let main = context.area(areas[1], layout);
//! let mut run = Run::default();
//! run.add(&main, Slot(7), 1);
//! run.read(&*context.store)?;
//! assert_eq!(run.slot(0).1, [0; 4096], "nothing was written yet");
//! # Ok(())
//! # }
//! ```

pub mod contract;
pub mod lifecycle;
pub mod openings;
pub mod store_vault;

use crate::durable::Vault;
use crate::error::{Error, Result};
use crate::rng::Rng;
use crate::seal::{Cipher, Secret};
#[cfg(feature = "std")]
use crate::store::MemStore;
use crate::store::{Area, SlotLayout, Store};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What a scheme is created and opened with: its store, key, vault and randomness.
pub struct SchemeContext {
    /// The untrusted store; the scheme uses `store_len` bytes of it from `first` on.
    pub store: Arc<dyn Store>,
    /// First byte of the areas.
    pub first: u64,
    /// The key of this scheme's areas; nothing else is sealed under it.
    pub key: Secret,
    /// The cipher that seals the areas, in schemes that let the user choose one.
    pub cipher: Cipher,
    /// Storage for the trusted state.
    pub vault: Box<dyn Vault>,
    /// Source of opening ids and salts.
    pub rng: Box<dyn Rng>,
    /// Whether to open for reading only; then nothing is written, not even by recovery.
    pub read_only: bool,
    /// Writes that the opening must find at least: a count from a source that cannot be rolled
    /// back.
    pub expect_writes: u64,
}

impl SchemeContext {
    /// The context of an ORAM in this program's memory, with areas of `len` bytes, a random key and
    /// no vault: the ORAM cannot be opened again.
    #[cfg(feature = "std")]
    pub fn in_memory(len: u64, rng: Box<dyn Rng>) -> Result<Self> {
        Ok(Self::over(Arc::new(MemStore::with_room(len)?), rng))
    }

    /// The context of an ORAM over all of `store`, with a random key and no vault: the ORAM cannot
    /// be opened again, unless `key` and `vault` are replaced.
    pub fn over(store: Arc<dyn Store>, mut rng: Box<dyn Rng>) -> Self {
        Self {
            store,
            first: 0,
            key: Secret::random(&mut *rng),
            vault: Box::new(()),
            rng,
            read_only: false,
            cipher: Cipher::default(),
            expect_writes: 0,
        }
    }

    /// Refuses a store without room for areas of `len` bytes, and a cipher that this machine
    /// computes wrongly.
    pub fn check(&self, len: u64) -> Result {
        #[cfg(feature = "std")]
        self.cipher.check()?;
        if self.store.len() < self.first + len {
            return Err(Error::Geometry("the store is smaller than its areas"));
        }
        Ok(())
    }

    /// The area that the scheme's geometry puts at this place.
    pub fn area(&self, (name, at, _): PlacedArea, layout: SlotLayout) -> Area {
        Area::new(self.store.clone(), self.first + at, layout, name)
    }
}

/// Name, first byte and length in bytes of an area.
pub type PlacedArea = (&'static str, u64, u64);

/// Places areas one behind the other.
pub fn place_areas(areas: impl Iterator<Item = (&'static str, SlotLayout)>) -> Vec<PlacedArea> {
    let mut end = 0;
    let place = |(name, layout): (&'static str, SlotLayout)| {
        end += layout.len();
        (name, end - layout.len(), layout.len())
    };
    areas.map(place).collect()
}

/// Public facts of a scheme, for display. A fact that the scheme does not have is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Old blocks rewritten with each write, as a ratio.
    pub refresh: Option<String>,
    /// Where the map lies: `memory` or `disk`.
    pub map: Option<&'static str>,
    /// The kind of entry that the map keeps for each block: `counts` or `pointers`.
    pub map_entries: Option<&'static str>,
    /// Bytes of memory that the map takes while the volume is open.
    pub map_bytes: u64,
    /// Bytes of memory that the buffers take while the volume is open, if they are large.
    pub buffer_bytes: u64,
    /// Number of writes after which the cost of a write is constant.
    pub settles_after: u64,
    /// Levels of a hierarchy.
    pub levels: Option<u64>,
    /// Flushes of a queue made so far.
    pub flushes: Option<u64>,
    /// Blocks of a queue, or of a bucket.
    pub bucket: Option<u64>,
    /// The size of a level, as a multiple of the level before.
    pub fanout: Option<u64>,
    /// The rule for flushing a queue: `strict` or `paper`.
    pub cadence: Option<&'static str>,
}
