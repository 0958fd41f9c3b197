//! The contract of a scheme: what its public parameters say, and how they make and open an ORAM.
//!
//! The example `scan` implements [`Scheme`] for `Scan`, which reads and writes its whole store at
//! each access. `Scan(10)` has 10 blocks of 64 bytes:
//!
//! ```
//! # mod scan { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/scan/scan.rs")); }
//! # use scan::Scan;
//! # use traceless_core::{Addr, Hides, Result, rng::System};
//! use traceless_core::scheme::contract::Scheme;
//!
//! # fn main() -> Result {
//! let scheme = Scan(10);
//! assert_eq!((scheme.store_len(), scheme.hides()), (640, Hides::ReadsAndWrites));
//! let mut oram = scheme.create_in_memory(Box::new(System))?;
//! oram.write(Addr(7), &[1; 64])?;
//! let mut block = [0; 64];
//! oram.read(Addr(7), &mut block)?;
//! assert_eq!(block, [1; 64]);
//! # Ok(())
//! # }
//! ```

use crate::error::{Error, Place, Result};
use crate::oram::{BlockOram, Hides, Oram};
#[cfg(feature = "std")]
use crate::rng::Rng;
use crate::scheme::{Facts, PlacedArea, SchemeContext};
use crate::store::SlotLayout;
use crate::trace::Event;
use crate::types::Addr;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::Range;

/// A scheme with its public parameters. An ORAM over a store is made by it, and opened again.
pub trait Scheme: Debug + Send + Sync {
    /// Name on the command line and in messages.
    fn name(&self) -> &'static str;

    /// Logical blocks.
    fn blocks(&self) -> u64;

    /// Bytes of a block.
    fn block_len(&self) -> usize;

    /// Bytes that all areas take on a store.
    fn store_len(&self) -> u64;

    /// Name, first byte and length in bytes of each area, in order. Public.
    fn areas(&self) -> Vec<PlacedArea> {
        vec![(self.name(), 0, self.store_len())]
    }

    /// Bytes written to the store per byte that the user writes, everything included, where many
    /// blocks are written at once.
    fn write_amplification(&self) -> f64;

    /// What the scheme's claim covers.
    fn hides(&self) -> Hides;

    /// Whether the places it accesses are drawn at random. Then traces are equal if the draws are,
    /// and otherwise look alike only in a statistical sense.
    fn draws_places(&self) -> bool {
        false
    }

    /// Refuses parameters that cannot work.
    fn check(&self) -> Result {
        Ok(())
    }

    /// Makes a new ORAM. What the store held before is lost.
    fn create(&self, context: SchemeContext) -> Result<Box<dyn Oram>>;

    /// Opens the ORAM of the vault that last kept `state`. `progress` is called with units done and
    /// units in all of what must be read first.
    fn open(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Oram>>;

    /// As [`create`](Self::create), with every block as `contents` fills it.
    fn create_filled(
        &self,
        context: SchemeContext,
        contents: &mut dyn FnMut(Addr, &mut [u8]),
    ) -> Result<Box<dyn Oram>> {
        fill(self.create(context)?, contents)
    }

    /// Makes an ORAM in this program's memory, which cannot be opened again.
    #[cfg(feature = "std")]
    fn create_in_memory(&self, rng: Box<dyn Rng>) -> Result<Box<dyn Oram>> {
        self.create(SchemeContext::in_memory(self.store_len(), rng)?)
    }

    /// As [`create_in_memory`](Self::create_in_memory), with every block as `contents` fills it.
    #[cfg(feature = "std")]
    fn create_in_memory_filled(
        &self,
        rng: Box<dyn Rng>,
        contents: &mut dyn FnMut(Addr, &mut [u8]),
    ) -> Result<Box<dyn Oram>> {
        fill(self.create_in_memory(rng)?, contents)
    }

    /// The part of `trace` that the claim calls public, which must not depend on the data. The
    /// conformance suite compares it between runs with other data.
    #[cfg(feature = "suite")]
    fn public_trace(&self, trace: &[crate::trace::Event]) -> Vec<crate::trace::Event> {
        trace.to_vec()
    }
}

/// Writes every block, one after the other.
fn fill(
    mut oram: Box<dyn Oram>,
    contents: &mut dyn FnMut(Addr, &mut [u8]),
) -> Result<Box<dyn Oram>> {
    let mut block = vec![0; oram.block_len()];
    for addr in (0..oram.blocks()).map(Addr) {
        contents(addr, &mut block);
        oram.write(addr, &block)?;
    }
    oram.sync()?;
    Ok(oram)
}

/// A scheme with an ORAM that can serve a block device.
pub trait BlockScheme: Scheme {
    /// The kind of scheme that these are parameters of.
    fn kind(&self) -> &'static SchemeKind;

    /// The parameters besides the number and length of blocks, as they lie in a volume's header:
    /// at most [`PARAMETERS_LEN`] bytes, which the kind's [`decode`](SchemeKind::decode) reads.
    fn parameters(&self) -> Vec<u8>;

    /// What writes reveal, beyond their number, to an adversary with many copies of the store.
    fn writes_reveal(&self) -> &'static str {
        match self.hides() {
            Hides::Nothing => "everything",
            Hides::WritesOnly | Hides::ReadsAndWrites => "nothing",
        }
    }

    /// What else is public about an ORAM of this scheme, after so many writes.
    fn facts(&self, writes: u64) -> Facts;

    /// When and how often the scheme writes each part of its store.
    fn timetable(&self) -> Timetable;

    /// Whether a discard only marks its blocks, so that it costs far less than writing zeros.
    fn keeps_discards(&self) -> bool {
        false
    }

    /// Writes that a discard of `blocks` makes: [`BlockOram::discard`]. Public.
    fn discard_writes(&self, blocks: Range<u64>) -> u64 {
        blocks.end.saturating_sub(blocks.start)
    }

    /// Whether runs of slots are dead for a while, so that a store that
    /// [takes discards](crate::store::Store::takes_discards) may have their space. Which ones
    /// follows from the number of writes.
    fn has_dead_runs(&self) -> bool {
        false
    }

    /// Areas in which slots are written one after the other, around the area: first byte and layout
    /// of each.
    fn slots_in_turn(&self) -> Vec<(u64, SlotLayout)> {
        Vec::new()
    }

    /// The layout of the slots that are written at random places; the first begins at byte 0.
    fn drawn_slots(&self) -> Option<SlotLayout> {
        None
    }

    /// All areas of slots, with headers in between: first byte and layout of each.
    fn slot_areas(&self) -> Vec<(u64, SlotLayout)> {
        let drawn = self.drawn_slots().into_iter().map(|layout| (0, layout));
        self.slots_in_turn().into_iter().chain(drawn).collect()
    }

    /// Splits a trace, from the creation on, of a scheme that hides reads and draws what it reads:
    /// `None` for other schemes. An error says what a trace of this scheme never has.
    fn read_trace(&self, _trace: &[Event]) -> Option<Result<ReadTrace, &'static str>> {
        None
    }

    /// The same scheme with `blocks` logical blocks; nothing else changes that need not.
    fn resized(&self, blocks: u64) -> Result<SharedScheme>;

    /// As [`create`](Scheme::create), for a block device.
    fn create_block(&self, context: SchemeContext) -> Result<Box<dyn BlockOram>>;

    /// As [`open`](Scheme::open), for a block device.
    fn open_block(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn BlockOram>>;

    /// Opens an ORAM that damage keeps from being opened, and returns the places that were lost.
    /// Blocks may then read as they were earlier.
    fn salvage(
        &self,
        _context: SchemeContext,
        _state: &[u8],
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Box<dyn BlockOram>, Vec<Place>)> {
        Err(Error::NotSalvageable(self.name()))
    }

    /// Writes that were durable when `state` was kept, and whether the ORAM was closed then.
    fn peek_state(&self, state: &[u8]) -> Result<(u64, bool)>;
}

impl PartialEq for dyn BlockScheme {
    fn eq(&self, other: &Self) -> bool {
        let sizes = |s: &Self| (s.kind().code, s.blocks(), s.block_len());
        sizes(self) == sizes(other) && self.parameters() == other.parameters()
    }
}

impl Eq for dyn BlockScheme {}

/// What the reads of a trace show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadTrace {
    /// Places from which each access draws one.
    pub places: u64,
    /// The place that each access drew; `None` if its reads do not show it.
    pub drawn: Vec<Option<u64>>,
    /// The events, with one event in place of the reads of each access.
    pub public: Vec<Event>,
}

/// A block scheme that several places share.
pub type SharedScheme = Arc<dyn BlockScheme>;

/// Schemes of one kind, each with what sets it apart.
pub type Samples = Vec<(&'static str, SharedScheme)>;

/// Bytes that a volume's header has for the parameters of a scheme.
pub const PARAMETERS_LEN: usize = 44;

/// Logical blocks of a block scheme, at most: 4 EiB of 4 KiB blocks.
pub const BLOCKS_MAX: u64 = 1 << 50;

/// Refuses a number or length of blocks that no block scheme takes.
pub fn check_size(blocks: u64, block_len: usize) -> Result {
    if blocks == 0 {
        return Err(Error::Geometry("there must be at least one block"));
    }
    if blocks > BLOCKS_MAX {
        return Err(Error::Geometry("more than 2^50 blocks"));
    }
    if !(64..=1 << 20).contains(&block_len) || !block_len.is_power_of_two() {
        return Err(Error::Geometry("a block has 64 bytes to 1 MiB, a power of two"));
    }
    Ok(())
}

/// The 4 bytes of saved parameters from `at` on.
pub fn u32_at(parameters: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(parameters[at..at + 4].try_into().expect("4 bytes"))
}

/// The 8 bytes of saved parameters from `at` on.
pub fn u64_at(parameters: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(parameters[at..at + 8].try_into().expect("8 bytes"))
}

/// A kind of block scheme: how its parameters are chosen, saved and read.
pub struct SchemeKind {
    /// Name on the command line and in messages.
    pub name: &'static str,
    /// One line for help texts.
    pub about: &'static str,
    /// Number in a volume's header. It never changes.
    pub code: u16,
    /// Names of the [`SchemeOptions`] that this kind takes besides `map`, as on the command line.
    pub options: &'static [&'static str],
    /// Chooses parameters for `blocks` blocks of `block_len` bytes.
    pub choose: fn(u64, usize, &SchemeOptions) -> Result<SharedScheme>,
    /// Reads the parameters of `blocks` blocks of `block_len` bytes from [`PARAMETERS_LEN`] bytes.
    pub decode: fn(u64, usize, &[u8]) -> Result<SharedScheme>,
    /// Small schemes of this kind, each with what sets it apart: what the conformance suite and
    /// the auditor run. They have about `blocks` blocks of `block_len` bytes, or about
    /// `map_blocks` where the map lies on the store.
    pub samples: fn(u64, u64, usize) -> Result<Samples>,
}

impl PartialEq for SchemeKind {
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

impl Eq for SchemeKind {}

impl Debug for SchemeKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

/// What a user may fix about a new scheme. The kind chooses the rest.
#[derive(Clone, Debug, Default)]
pub struct SchemeOptions {
    /// Where the position map lies. The kind chooses memory if it fits `map_memory`.
    pub map: Option<MapPlace>,
    /// Bytes of memory that the map may take where the kind chooses its place.
    pub map_memory: u64,
    /// `refresh`: old blocks written anew with each write, as a ratio of two numbers.
    pub refresh: Option<(u32, u32)>,
    /// `map-entries`: whether the map keeps pointers in place of counts.
    pub pointers: Option<bool>,
    /// `fanout`: generations that are merged into one.
    pub fanout: Option<u32>,
    /// `bucket`: slots of a bucket.
    pub bucket: Option<u32>,
    /// `cadence`: whether blocks of the map that writes share are written once, as in the paper.
    /// **Flushes then reveal which addresses are near each other.**
    pub paper_cadence: Option<bool>,
    /// `amortized`: whether a generation is merged as a whole when its sources are complete.
    pub amortized: Option<bool>,
}

/// Where a position map lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapPlace {
    /// In memory.
    Memory,
    /// On the disk: in the scheme's own store.
    Disk,
}

/// When and how often a scheme writes each part of its store: public, and what an audit needs to
/// know to run long enough. Counts are of the user's writes, one block each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timetable {
    /// Areas that a write touches.
    pub areas: u64,
    /// Number of these areas that may end in a gap of fewer than 4096 bytes.
    pub gaps: u64,
    /// Writes before the schedule is in full swing.
    pub warm_up: u64,
    /// Period of the schedule, about.
    pub cycle: u64,
    /// Writes after the warm-up by which every slot was written.
    pub whole_cycle: u64,
    /// Blocks that may be written between two syncs.
    pub unsynced_max: u64,
}

impl Timetable {
    /// The timetable of a scheme without a schedule, of `scheme`'s size.
    pub fn unscheduled(scheme: &(impl Scheme + ?Sized), unsynced_max: u64) -> Self {
        let slots = scheme.store_len() / scheme.block_len() as u64;
        let cycle = scheme.blocks();
        Self { areas: 1, gaps: 0, warm_up: 0, cycle, whole_cycle: slots, unsynced_max }
    }
}
