//! The schemes. Each is an [`Oram`](crate::oram::Oram) over a store.
//!
//! * `scheme/contract`: what a scheme's parameters say, and how they make and open an ORAM;
//!   `scheme/registry`: the kinds that volumes can be made with
//! * `scheme/saves`: logs and trusted states in turns, for schemes that rewrite what they read;
//!   `scheme/keys`: keys of their areas; `scheme/store_vault`: a vault beside them in one store
//! * `scheme/openings`: openings, the state that names them, keys by opening
//! * `scheme/lifecycle`: from opening to close: whether it may write, what is durable, where state
//!   is kept
//! * `scheme/log`: slots that take writes in order and describe themselves
//! * `scheme/refreshed`: slots that hold blocks in the order of their addresses, and are written
//!   anew in turns
//! * `scheme/pool`: buffers that readers take turns with
//! * `scheme/tiers`: maps in further tiers of the same scheme: `detwo` and `random`
//! * `scheme/trips`: reads of many blocks, cut into round trips
//! * `scheme/rig`: what the tests of the schemes share
//! * `scheme/plain`, `scheme/linear`: the insecure control; the scheme that touches everything
//! * `scheme/detwo`: `geometry`, `refresh` (K as a ratio), `passes` (where the newest copy lies),
//!   `map` and what its entries lead to (`lead`, `pointer`), `keys`, `read`, `write`, `recover`
//! * `scheme/sq`: levels of sorted runs; `sq/mod.rs` has its files
//! * `scheme/path`: Path ORAM, flat or recursive, as a controller
//! * `scheme/path/durable`: Path ORAM that is saved: log, states, openings; `path/geometry`;
//!   `path/relabel`: every block onto another path; `path/fill`: all at once; `path/unsaved`: in
//!   memory, for once
//! * `scheme/pmmac`: tags of blocks, over any controller
//! * `scheme/unified`: data and position map in one tree, with a PLB; blocks of several parts, each
//!   on a path of its own or all on one (bundles); `at_hand`: without a path, context switches;
//!   `fill`: all at once; `cache_above`: what a cache takes, returns, offers; `rekey`: another key
//!   for all labels; `scheme/traffic`: what either moves, in bytes
//! * `scheme/rho`: a small tree beside a unified one
//! * `scheme/circuit`: Circuit ORAM for a client whose memory is its own
//! * `scheme/ring`: Ring ORAM: `params`, `bucket` (its metadata), `tree` (slots that are read one
//!   by one), `sealed`, `ghost`, `top` (cached levels), `exchange` (blocks that leave and come, for
//!   a pager)
//! * `scheme/requests`: what the controllers of both keep besides
//! * `scheme/random`: random slots: `geometry`, `write`, `read`, `recover`, `entry`, `stash`,
//!   `map`, `keys`; `scheme/hive`, `scheme/datalair`: how a slot is known to be free

pub mod circuit;
pub mod contract;
pub mod datalair;
pub mod detwo;
pub(crate) mod health;
#[cfg(all(test, feature = "std"))]
mod histories;
pub mod hive;
pub(crate) mod keys;
mod lifecycle;
pub mod linear;
mod log;
#[cfg(all(test, feature = "std"))]
mod long_run;
pub mod openings;
pub mod path;
pub mod plain;
pub mod pmmac;
mod pool;
pub mod random;
mod refreshed;
pub mod registry;
mod requests;
pub mod rho;
#[cfg(all(test, feature = "std"))]
pub(crate) mod rig;
pub mod ring;
pub(crate) mod saves;
pub mod sq;
pub mod store_vault;
mod tiers;
pub mod traffic;
#[cfg(all(test, feature = "std"))]
pub(crate) mod tree_rig;
mod trips;
pub mod unified;

use crate::durable::Vault;
use crate::error::{Error, Result};
use crate::rng::Rng;
use crate::seal::{Cipher, Secret};
use crate::store::{Area, MemStore, SlotLayout, Store};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The parts with which a scheme for block devices is opened.
pub struct Parts {
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

impl Parts {
    /// What an ORAM whose areas take `len` bytes is made with in this program's memory, under a
    /// random key and without a vault: it cannot be opened again.
    pub fn in_memory(len: u64, mut rng: Box<dyn Rng>) -> Result<Self> {
        Ok(Self {
            store: Arc::new(MemStore::with_room(len)?),
            first: 0,
            key: Secret::random(&mut *rng),
            vault: Box::new(()),
            rng,
            read_only: false,
            cipher: Cipher::default(),
            expect_writes: 0,
        })
    }

    /// Refuses a store without room for areas of `len` bytes.
    fn check_room(&self, len: u64) -> Result {
        if self.store.len() < self.first + len {
            return Err(Error::Geometry("the store is smaller than its areas"));
        }
        Ok(())
    }

    /// The area that the scheme's geometry puts at this place.
    fn area(&self, (name, at, _): PlacedArea, layout: SlotLayout) -> Area {
        Area::new(self.store.clone(), self.first + at, layout, name)
    }
}

/// Name, first byte and length in bytes of an area.
pub type PlacedArea = (&'static str, u64, u64);

/// Places areas one behind the other.
fn place_areas(areas: impl Iterator<Item = (&'static str, SlotLayout)>) -> Vec<PlacedArea> {
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
