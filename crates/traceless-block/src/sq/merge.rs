//! Merges the generations of one level, or buckets of the log, in the order of addresses.

use super::Sq;
use super::geometry::CHUNK;
use super::index::At;
use super::level::Generation;
use crate::log::DUMMY;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;
use traceless_core::error::Result;
use traceless_core::store::Run;

/// A merge in progress. Of equal addresses only the newest copy comes out.
pub(super) struct Merge {
    sources: Vec<SortedRun>,
    /// The next address of each source that has one, and the source. The lowest address comes
    /// first, and of equal ones that of the newest source, which has the highest number.
    next: BinaryHeap<Reverse<(u64, Reverse<u32>)>>,
}

impl Merge {
    /// Merges generations `sources` of `level`, without addresses below `from`. `ready` holds the
    /// first of these sources if they were prepared.
    pub fn start(
        sq: &Sq,
        level: usize,
        ready: Vec<SortedRun>,
        sources: Range<u64>,
        from: u64,
    ) -> Result<Self> {
        let mut merge = Self { sources: ready, next: BinaryHeap::new() };
        for generation in sources.skip(merge.sources.len()) {
            merge.sources.push(SortedRun::start(sq, level, generation, from)?);
        }
        for (source, nth) in merge.sources.iter().zip(0..) {
            if let Some(address) = source.address(sq) {
                merge.next.push(Reverse((address, Reverse(nth))));
            }
        }
        Ok(merge)
    }

    /// The next address.
    pub fn peek(&self) -> Option<u64> {
        self.next.peek().map(|Reverse((address, ..))| *address)
    }

    /// Takes the next block out into `body`, and drops older copies of it; panics if there is none.
    /// Returns whether the block verified. Appends to `merged` the numbers of the log writes with
    /// contents that are no longer needed.
    pub fn take(&mut self, sq: &Sq, body: &mut [u8], merged: &mut Vec<u64>) -> Result<bool> {
        let Reverse((address, Reverse(nth))) = self.next.pop().expect("there is a next address");
        let whole = self.sources[nth as usize].read(sq, address, body)?;
        self.advance(sq, nth, merged)?;
        while let Some(&Reverse((same, Reverse(older)))) = self.next.peek() {
            if same != address {
                break;
            }
            self.next.pop();
            self.advance(sq, older, merged)?;
        }
        Ok(whole)
    }

    fn advance(&mut self, sq: &Sq, nth: u32, merged: &mut Vec<u64>) -> Result {
        let source = &mut self.sources[nth as usize];
        merged.extend(source.write(sq));
        source.advance(sq)?;
        if let Some(address) = source.address(sq) {
            self.next.push(Reverse((address, Reverse(nth))));
        }
        Ok(())
    }
}

/// A sorted run of addresses.
pub(super) enum SortedRun {
    /// A bucket of the log, by its number, and an index in its sorted list.
    Bucket(u64, usize),
    /// A generation with its addresses in memory.
    Indexed { run: GenerationRun, at: At },
    /// A generation with addresses only in its entries, and the index of the next slot.
    Fenced { run: GenerationRun, next: u64 },
}

/// A generation that is read chunk by chunk.
pub(super) struct GenerationRun {
    level: usize,
    generation: u64,
    /// Slots of the generation.
    len: u64,
    /// Number of the fetched chunk.
    chunk: Option<u64>,
    fetched: Run,
    /// Addresses in the fetched chunk, if they are not in memory otherwise.
    addresses: Vec<u64>,
}

impl SortedRun {
    /// A run from its beginning, with its first chunk already read.
    pub fn ready(sq: &Sq, level: usize, generation: u64) -> Result<Self> {
        let mut source = Self::start(sq, level, generation, 0)?;
        if let Self::Indexed { run, .. } = &mut source {
            run.fetch_bodies(sq, 0)?;
        }
        Ok(source)
    }

    fn start(sq: &Sq, level: usize, generation: u64, from: u64) -> Result<Self> {
        if level == 0 {
            let sorted = sq.recent.sorted(generation);
            let at = sorted.partition_point(|&(address, _)| address < from);
            return Ok(Self::Bucket(generation, at));
        }
        let place = &sq.levels[level - 1];
        let mut run = GenerationRun {
            level,
            generation,
            len: place.generation_len,
            chunk: None,
            fetched: Run::default(),
            addresses: Vec::new(),
        };
        match place.generation(generation).expect("sources are complete") {
            Generation::Index(index) => {
                let mut source = Self::Indexed { run, at: index.seek(from) };
                source.pass_over_lost(sq)?;
                Ok(source)
            }
            Generation::Fences { first, .. } => {
                let chunk = first.seek(from).rank.saturating_sub(1);
                run.fetch(sq, chunk)?;
                let mut source = Self::Fenced { run, next: chunk * CHUNK };
                source.pass_over_lost(sq)?;
                while source.address(sq).is_some_and(|address| address < from) {
                    source.advance(sq)?;
                }
                Ok(source)
            }
        }
    }

    /// The next address.
    fn address(&self, sq: &Sq) -> Option<u64> {
        match self {
            Self::Bucket(bucket, at) => sq.recent.sorted(*bucket).get(*at).map(|&(a, _)| a),
            Self::Indexed { run, at } => match sq.generation(run.level, run.generation) {
                Generation::Index(index) => index.get(*at),
                Generation::Fences { .. } => None,
            },
            Self::Fenced { run, next } => {
                let address = *run.addresses.get((next % CHUNK) as usize)?;
                (address != DUMMY).then_some(address)
            }
        }
    }

    /// The number of the write of the next block, if the run is a bucket of the log.
    fn write(&self, sq: &Sq) -> Option<u64> {
        match self {
            Self::Bucket(bucket, at) => {
                let (_, slot) = sq.recent.sorted(*bucket)[*at];
                Some(bucket * u64::from(sq.geometry.bucket) + u64::from(slot))
            }
            _ => None,
        }
    }

    fn advance(&mut self, sq: &Sq) -> Result {
        self.step(sq)?;
        self.pass_over_lost(sq)
    }

    /// Moves on behind lost slots; their addresses are unknown.
    fn pass_over_lost(&mut self, sq: &Sq) -> Result {
        while self.address(sq).is_some() && self.is_lost(sq) {
            self.step(sq)?;
        }
        Ok(())
    }

    fn is_lost(&self, sq: &Sq) -> bool {
        let (run, nth) = match self {
            Self::Bucket(..) => return false,
            Self::Indexed { run, at } => (run, at.rank),
            Self::Fenced { run, next } => (run, *next),
        };
        sq.levels[run.level - 1].is_lost(run.generation * run.len + nth)
    }

    fn step(&mut self, sq: &Sq) -> Result {
        match self {
            Self::Bucket(_, at) => *at += 1,
            Self::Indexed { run, at } => {
                if let Generation::Index(index) = sq.generation(run.level, run.generation) {
                    *at = index.next(*at);
                }
            }
            Self::Fenced { run, next } => {
                *next += 1;
                // Behind the last chunk there is one without slots.
                if next.is_multiple_of(CHUNK) {
                    run.fetch(sq, *next / CHUNK)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the next block, which has address `address`. Returns whether it verified.
    fn read(&mut self, sq: &Sq, address: u64, body: &mut [u8]) -> Result<bool> {
        match self {
            Self::Bucket(..) => {
                let write = self.write(sq).expect("of the log");
                sq.read_logged(write, address, body)
            }
            Self::Indexed { run, at } => {
                let rank = at.rank;
                if run.chunk != Some(rank / CHUNK) {
                    run.fetch_bodies(sq, rank / CHUNK)?;
                }
                Ok(run.open(sq, rank, address, body))
            }
            Self::Fenced { run, next } => Ok(run.open(sq, *next, address, body)),
        }
    }
}

impl GenerationRun {
    /// Fetches a chunk and opens its addresses.
    fn fetch(&mut self, sq: &Sq, chunk: u64) -> Result {
        self.fetch_bodies(sq, chunk)?;
        let level = &sq.levels[self.level - 1];
        let first = self.generation * self.len + chunk * CHUNK;
        self.addresses.clear();
        for i in 0..self.fetched.slots() {
            let (entry, _) = self.fetched.slot(i);
            let slot = first + i as u64;
            let address = match level.open_entry((&sq.keys, &sq.schedule), slot, entry) {
                Some(address) => address,
                // Not a dummy, which would end the run. Lost slots are skipped.
                None if level.is_lost(slot) => 0,
                // Without this address the slots behind it would be merged in another order, and
                // the output might differ from what was written under the same keys before a crash.
                None => return Err(level.tampered(slot, None)),
            };
            self.addresses.push(address);
        }
        Ok(())
    }

    fn fetch_bodies(&mut self, sq: &Sq, chunk: u64) -> Result {
        let level = &sq.levels[self.level - 1];
        let count = CHUNK.min(self.len - chunk * CHUNK);
        let first = self.generation * self.len + chunk * CHUNK;
        self.chunk = None;
        self.fetched.clear();
        self.fetched.add(&level.area, level.slot(first), count);
        self.fetched.read(&*sq.store)?;
        self.chunk = Some(chunk);
        Ok(())
    }

    fn open(&self, sq: &Sq, at: u64, address: u64, body: &mut [u8]) -> bool {
        let (entry, sealed) = self.fetched.slot((at % CHUNK) as usize);
        sq.open_level_slot(
            self.level,
            self.generation * self.len + at,
            address,
            entry,
            sealed,
            body,
        )
    }
}
