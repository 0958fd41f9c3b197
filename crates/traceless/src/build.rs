//! A scheme from its configuration: the only factory. The command line, the superblock and the
//! experiments share [`SchemeConfig`].

use crate::error::{Error, Place, Result};
use crate::oblivious;
use crate::oram::{BlockOram, Oram};
pub use crate::scheme::Facts;
use crate::scheme::Parts;
use crate::scheme::datalair::DataLair;
use crate::scheme::detwo::{DetWo, DetWoGeometry};
use crate::scheme::hive::Hive;
use crate::scheme::linear::Linear;
use crate::scheme::path::{self, DurablePath};
use crate::scheme::plain::Plain;
use crate::scheme::random;
use crate::scheme::sq::{self, Sq};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

/// Which scheme, and its public parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchemeConfig {
    /// Encryption in place: the insecure control.
    Plain {
        /// Logical blocks.
        blocks: u64,
        /// Bytes of a block.
        block_len: usize,
    },
    /// Touches everything at each access.
    Linear {
        /// Logical blocks.
        blocks: u64,
        /// Bytes of a block.
        block_len: usize,
    },
    /// Deterministic write-only ORAM.
    DetWo(DetWoGeometry),
    /// Write-only ORAM that keeps neighbours together.
    Sq(sq::SqGeometry),
    /// Random slots, with the map asked which are free.
    Hive(random::RandomGeometry),
    /// Random slots, with a record of those that are free.
    DataLair(random::RandomGeometry),
    /// Path ORAM: a random path of a tree at each access.
    Path(path::PathGeometry),
    /// Circuit ORAM for a client whose own memory may be watched.
    Oblivious(oblivious::ArrayGeometry),
}

impl SchemeConfig {
    /// Name on the command line and in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Plain { .. } => "plain",
            Self::Linear { .. } => "linear",
            Self::DetWo(_) => "detwo",
            Self::Sq(_) => "sq",
            Self::Hive(_) => "hive",
            Self::DataLair(_) => "datalair",
            Self::Path(_) => "path",
            Self::Oblivious(_) => "oblivious",
        }
    }

    /// Logical blocks.
    pub fn blocks(&self) -> u64 {
        match *self {
            Self::Plain { blocks, .. } | Self::Linear { blocks, .. } => blocks,
            Self::DetWo(geometry) => geometry.blocks,
            Self::Sq(geometry) => geometry.blocks,
            Self::Hive(geometry) | Self::DataLair(geometry) => geometry.blocks,
            Self::Path(geometry) => geometry.blocks,
            Self::Oblivious(geometry) => geometry.blocks,
        }
    }

    /// Bytes of a block.
    pub fn block_len(&self) -> usize {
        match *self {
            Self::Plain { block_len, .. } | Self::Linear { block_len, .. } => block_len,
            Self::DetWo(geometry) => geometry.block_len,
            Self::Sq(geometry) => geometry.block_len,
            Self::Hive(geometry) | Self::DataLair(geometry) => geometry.block_len,
            Self::Path(geometry) => geometry.block_len,
            Self::Oblivious(geometry) => geometry.block_len,
        }
    }

    /// Bytes that its areas take on a store.
    pub fn store_len(&self) -> u64 {
        match *self {
            Self::Plain { blocks, block_len } => Plain::store_len(blocks, block_len),
            Self::Linear { blocks, block_len } => Linear::store_len(blocks, block_len),
            Self::DetWo(geometry) => geometry.store_len(),
            Self::Sq(geometry) => geometry.store_len(),
            Self::Hive(geometry) | Self::DataLair(geometry) => geometry.store_len(),
            Self::Path(geometry) => geometry.store_len(),
            Self::Oblivious(geometry) => geometry.store_len(),
        }
    }

    /// Name, first byte and length of each of its areas, in order. Public.
    pub fn areas(&self) -> Vec<(&'static str, u64, u64)> {
        match self {
            Self::DetWo(geometry) => geometry.areas(),
            Self::Sq(geometry) => geometry.areas(),
            Self::Hive(geometry) | Self::DataLair(geometry) => geometry.areas(),
            Self::Path(geometry) => geometry.areas(),
            Self::Oblivious(geometry) => geometry.areas(),
            _ => vec![(self.name(), 0, self.store_len())],
        }
    }

    /// Bytes written to the store per byte that the user writes, everything included, where many
    /// blocks are written at once.
    pub fn write_amplification(&self) -> f64 {
        match self {
            Self::Plain { block_len, .. } => Plain::write_amplification(*block_len),
            Self::Linear { blocks, .. } => *blocks as f64,
            Self::DetWo(geometry) => geometry.write_amplification(),
            Self::Sq(geometry) => geometry.write_amplification(),
            Self::Hive(geometry) | Self::DataLair(geometry) => geometry.write_amplification(),
            Self::Path(geometry) => geometry.write_amplification(),
            Self::Oblivious(geometry) => geometry.write_amplification(),
        }
    }

    /// What its writes tell an adversary with many copies of the store, beyond their number.
    pub fn writes_reveal(&self) -> &'static str {
        match self {
            Self::Plain { .. } => "everything",
            Self::Sq(geometry) if geometry.cadence == sq::Cadence::Paper => "nearness",
            _ => "nothing",
        }
    }

    /// Whether writes tell nothing but their number.
    pub fn hides_writes(&self) -> bool {
        !matches!(self, Self::Plain { .. })
    }

    /// What else is public about it, after so many writes.
    pub fn facts(&self, writes: u64) -> Facts {
        match self {
            Self::Plain { .. } | Self::Linear { .. } | Self::Oblivious(_) => Facts::default(),
            Self::DetWo(geometry) => Facts {
                refresh: Some(geometry.refresh.to_string()),
                map: Some(if geometry.map_tiers == 0 { "memory" } else { "disk" }),
                map_entries: Some(geometry.map_entries.name()),
                map_bytes: geometry.map_memory(),
                ..Facts::default()
            },
            Self::Sq(geometry) => geometry.facts(writes),
            Self::Path(geometry) => Facts {
                map: Some(if geometry.map_trees == 0 { "memory" } else { "disk" }),
                map_bytes: geometry.map_memory(),
                ..Facts::default()
            },
            Self::Hive(geometry) | Self::DataLair(geometry) => Facts {
                map: Some(if geometry.map_tiers == 0 { "memory" } else { "disk" }),
                map_bytes: geometry.map_memory(),
                ..Facts::default()
            },
        }
    }

    /// The same with `blocks` logical blocks; nothing else changes that need not.
    pub fn resized(&self, blocks: u64) -> Result<Self> {
        match *self {
            Self::Plain { block_len, .. } => Ok(Self::Plain { blocks, block_len }),
            Self::Linear { block_len, .. } => Ok(Self::Linear { blocks, block_len }),
            Self::DetWo(geometry) => geometry.resized(blocks).map(Self::DetWo),
            Self::Sq(geometry) => geometry.resized(blocks).map(Self::Sq),
            Self::Hive(geometry) => geometry.resized(blocks).map(Self::Hive),
            Self::DataLair(geometry) => geometry.resized(blocks).map(Self::DataLair),
            Self::Path(geometry) => geometry.resized(blocks).map(Self::Path),
            Self::Oblivious(geometry) => geometry.resized(blocks).map(Self::Oblivious),
        }
    }

    /// Whether the places it writes are drawn at random. Then traces are equal if the draws are,
    /// and otherwise look alike only in a statistical sense.
    pub fn draws_places(&self) -> bool {
        match self {
            Self::Hive(_) | Self::DataLair(_) => true,
            Self::Path(geometry) => geometry.draws_places(),
            Self::Oblivious(geometry) => geometry.draws_places(),
            _ => false,
        }
    }

    /// Makes a new one.
    pub fn create(&self, parts: Parts) -> Result<Box<dyn Oram>> {
        match *self {
            Self::Linear { blocks, block_len } => {
                Ok(Box::new(Linear::create(blocks, block_len, parts)?))
            }
            Self::Path(geometry) => Ok(Box::new(DurablePath::create(geometry, parts)?)),
            Self::Oblivious(geometry) => oblivious::create_durable(geometry, parts),
            _ => Ok(self.create_for_disk(parts)?),
        }
    }

    /// Opens the one whose vault last kept `state`.
    pub fn open(
        &self,
        parts: Parts,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Oram>> {
        match *self {
            Self::Linear { blocks, block_len } => {
                Ok(Box::new(Linear::open(blocks, block_len, parts, state)?))
            }
            Self::Path(geometry) => Ok(Box::new(DurablePath::open(geometry, parts, state)?)),
            Self::Oblivious(geometry) => oblivious::open_durable(geometry, parts, state),
            _ => Ok(self.open_for_disk(parts, state, progress)?),
        }
    }

    /// Makes a new one that a block device can serve.
    pub fn create_for_disk(&self, parts: Parts) -> Result<Box<dyn BlockOram>> {
        match *self {
            Self::Plain { blocks, block_len } => {
                Ok(Box::new(Plain::create(blocks, block_len, parts)?))
            }
            Self::Linear { .. } | Self::Path(_) | Self::Oblivious(_) => Err(NOT_FOR_DISKS),
            Self::DetWo(geometry) => Ok(Box::new(DetWo::create(geometry, parts)?)),
            Self::Sq(geometry) => Ok(Box::new(<Sq>::create(geometry, parts)?)),
            Self::Hive(geometry) => Ok(Box::new(Hive::create(geometry, parts)?)),
            Self::DataLair(geometry) => Ok(Box::new(DataLair::create(geometry, parts)?)),
        }
    }

    /// Opens one that a block device can serve.
    pub fn open_for_disk(
        &self,
        parts: Parts,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn BlockOram>> {
        match *self {
            Self::Plain { blocks, block_len } => {
                Ok(Box::new(Plain::open(blocks, block_len, parts, state)?))
            }
            Self::Linear { .. } | Self::Path(_) | Self::Oblivious(_) => Err(NOT_FOR_DISKS),
            Self::DetWo(geometry) => Ok(Box::new(DetWo::open(geometry, parts, state, progress)?)),
            Self::Sq(geometry) => Ok(Box::new(<Sq>::open(geometry, parts, state, progress)?)),
            Self::Hive(geometry) => Ok(Box::new(Hive::open(geometry, parts, state, progress)?)),
            Self::DataLair(geometry) => {
                Ok(Box::new(DataLair::open(geometry, parts, state, progress)?))
            }
        }
    }

    /// Opens one that damage keeps from being opened, and tells the places that were lost. Blocks
    /// may then read as they were earlier.
    pub fn salvage_for_disk(
        &self,
        parts: Parts,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Box<dyn BlockOram>, Vec<Place>)> {
        match *self {
            Self::DetWo(geometry) => {
                let (opened, lost) = DetWo::salvage(geometry, parts, state, progress)?;
                Ok((Box::new(opened), lost))
            }
            Self::Sq(geometry) => {
                let (opened, lost) = <Sq>::salvage(geometry, parts, state, progress)?;
                Ok((Box::new(opened), lost))
            }
            _ => Err(Error::NotSalvageable(self.name())),
        }
    }

    /// Writes that a state's keeper had seen, and whether it was closed.
    pub fn peek_state(&self, state: &[u8]) -> Result<(u64, bool)> {
        match self {
            Self::Plain { .. } => Plain::peek_state(state),
            Self::Linear { .. } | Self::Path(_) | Self::Oblivious(_) => Err(NOT_FOR_DISKS),
            Self::DetWo(_) => DetWo::peek_state(state),
            Self::Sq(geometry) => <Sq>::peek_state(geometry, state),
            Self::Hive(_) => Hive::peek_state(state),
            Self::DataLair(_) => DataLair::peek_state(state),
        }
    }
}

const NOT_FOR_DISKS: Error =
    Error::Geometry("a scheme that hides reads makes writes of them: not for a block device");
