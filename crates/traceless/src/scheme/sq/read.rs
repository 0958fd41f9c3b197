//! Reading: locate each block, fetch neighbours together, open what came.

use super::Ties;
use super::leaves::LeafView;
use super::level::{CHUNK, Generation};
use super::{Location, MapPlace, Sq};
use crate::error::{Error, Place, Result};
use crate::scheme::trips::{trips, verify_all};
use crate::seal::Sealer;
use crate::store::Run;
use crate::types::Addr;
use alloc::vec;
use alloc::vec::Vec;

/// Slots from one that is wanted to the next, at most, so that what lies between is read as well
/// and thrown away: cheaper than another request.
const READ_THROUGH: u64 = 8;

/// Chunks of addresses that a reader remembers, with the maps on the disk.
const CHUNKS_REMEMBERED: usize = 128;

/// Buffers of one reader.
#[derive(Default)]
pub(super) struct ReadScratch {
    run: Run,
    times: Vec<Option<u64>>,
    found: Vec<Location>,
    /// Numbers of the blocks to be fetched, as they lie on the store; and the slot of the run that
    /// each is in.
    order: Vec<u32>,
    fetched: Vec<u32>,
    chunks: ChunkCache,
    leaf: LeafView,
}

/// Addresses of chunks that were read lately, found by level and the number of their first slot.
#[derive(Default)]
pub(super) struct ChunkCache {
    slots: Vec<Option<CachedChunk>>,
}

struct CachedChunk {
    level: usize,
    first: u64,
    addresses: Vec<Option<u64>>,
}

impl ChunkCache {
    fn entry(&mut self, level: usize, first: u64) -> &mut Option<CachedChunk> {
        if self.slots.is_empty() {
            self.slots.resize_with(CHUNKS_REMEMBERED, || None);
        }
        // Generations of a level differ in the high part of the slot's number, chunks in the low.
        let mixed = (first / CHUNK).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ level as u64;
        &mut self.slots[(mixed >> 32) as usize % CHUNKS_REMEMBERED]
    }
}

impl<T: Ties> Sq<T> {
    pub(super) fn read_blocks(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        let len = self.geometry.block_len;
        self.readers.with(|scratch| {
            trips(addrs, into, len)
                .try_for_each(|(addrs, into)| self.read_trip(addrs, into, scratch))
        })
    }

    fn read_trip(&self, addrs: &[Addr], into: &mut [u8], scratch: &mut ReadScratch) -> Result {
        scratch.times.clear();
        match self.geometry.map {
            MapPlace::Memory => {
                let now = self.now();
                let times = addrs.iter().map(|a| self.times.get(a.0 as usize, now));
                scratch.times.extend(times);
            }
            MapPlace::Disk => {
                for addr in addrs {
                    let time = self.time_on_disk(addr.0, scratch)?;
                    scratch.times.push(time);
                }
            }
        }
        scratch.found.clear();
        for (addr, &time) in addrs.iter().zip(&scratch.times) {
            scratch.found.push(self.locate(addr.0, time, &mut scratch.chunks)?);
        }
        self.fetch_found(addrs, into, scratch)
    }

    /// Reads the blocks at `scratch.found`, in the order in which they lie on the store.
    fn fetch_found(&self, addrs: &[Addr], into: &mut [u8], scratch: &mut ReadScratch) -> Result {
        let ReadScratch { run, found, order, fetched, .. } = scratch;
        let len = self.geometry.block_len;
        order.clear();
        for (i, (location, into)) in found.iter().zip(into.chunks_exact_mut(len)).enumerate() {
            match *location {
                Location::Nowhere => into.fill(0),
                Location::Log(write) => match self.contents(write) {
                    Some(contents) => into.copy_from_slice(contents),
                    None => order.push(i as u32),
                },
                _ => order.push(i as u32),
            }
        }
        order.sort_unstable_by_key(|&i| found[i as usize]);
        run.clear();
        fetched.clear();
        let mut rest = &order[..];
        while let [first, more @ ..] = rest {
            let from = found[*first as usize];
            let (base, mut members, mut last) = (run.slots() as u32, 1, 0);
            fetched.push(base);
            while let Some(distance) = more.get(members - 1).and_then(|&i| {
                distance(from, found[i as usize]).filter(|d| d - last <= READ_THROUGH)
            }) {
                fetched.push(base + distance as u32);
                (members, last) = (members + 1, distance);
            }
            self.add_location(from, last + 1, run);
            rest = &rest[members..];
        }
        run.read(&*self.store)?;
        for (&nth, &i) in fetched.iter().zip(&*order) {
            let (entry, sealed) = run.slot(nth as usize);
            let into = &mut into[i as usize * len..][..len];
            self.open_located(addrs[i as usize].0, found[i as usize], entry, sealed, into)?;
        }
        Ok(())
    }

    /// Reads the newest copy of one block of the ORAM, which flush `time` carried.
    pub(super) fn read_one(
        &self,
        address: u64,
        time: Option<u64>,
        chunks: &mut ChunkCache,
        into: &mut [u8],
    ) -> Result {
        let location = self.locate(address, time, chunks)?;
        if location == Location::Nowhere {
            into.fill(0);
            return Ok(());
        }
        if let Location::Log(write) = location
            && let Some(contents) = self.contents(write)
        {
            into.copy_from_slice(contents);
            return Ok(());
        }
        let mut run = Run::default();
        self.add_location(location, 1, &mut run);
        run.read(&*self.store)?;
        let (entry, sealed) = run.slot(0);
        self.open_located(address, location, entry, sealed, into)
    }

    /// The contents of a write in the log, if they are in memory.
    fn contents(&self, write: u64) -> Option<&[u8]> {
        // What is held back is nowhere else, even if there was no room to keep it.
        self.recent.contents(write).or_else(|| self.held(write))
    }

    /// Where the newest copy of `address` lies, if flush `time` carried it.
    pub(super) fn locate(
        &self,
        address: u64,
        time: Option<u64>,
        chunks: &mut ChunkCache,
    ) -> Result<Location> {
        let refreshed = self.schedule.refreshed(self.flushes);
        if let Some(time) = time
            && self.schedule.refresh_of(time, address) >= refreshed
        {
            let found = self.schedule.locate(time, self.flushes);
            let (level, generation) = found.expect("not refreshed, so in a level");
            return self.locate_in(level, generation, address, chunks);
        }
        let n = self.geometry.addresses();
        Ok(match refreshed - 1 - (refreshed - 1 - address) % n {
            r if r < n => Location::Nowhere,
            r => Location::Main(r),
        })
    }

    fn locate_in(
        &self,
        level: usize,
        generation: u64,
        address: u64,
        chunks: &mut ChunkCache,
    ) -> Result<Location> {
        if level == 0 {
            let found = self.recent.find(generation, address);
            return found.map(Location::Log).ok_or_else(|| {
                let slot = self.log_slot(generation * self.bucket()).0;
                let block = self.is_users(address).then_some(address);
                Error::Tampered { place: Place { area: self.log.name(), slot, block } }
            });
        }
        let place = &self.levels[level - 1];
        let begin = generation * place.generation_len;
        let found = match self.generation(level, generation) {
            Generation::Index(index) => index.find(address),
            Generation::Fences { first, .. } => {
                let chunk = first.seek(address + 1).rank.saturating_sub(1);
                let within = self.find_in_chunk(level, begin + chunk * CHUNK, address, chunks)?;
                within.map(|at| chunk * CHUNK + at)
            }
        };
        match found {
            Some(at) => Ok(Location::Level(level, begin + at)),
            None => Err(place.tampered(begin, self.is_users(address).then_some(address))),
        }
    }

    /// The place of `address` in the chunk that begins with slot number `first`.
    fn find_in_chunk(
        &self,
        level: usize,
        first: u64,
        address: u64,
        chunks: &mut ChunkCache,
    ) -> Result<Option<u64>> {
        let place = &self.levels[level - 1];
        let cached = chunks.entry(level, first);
        if !cached.as_ref().is_some_and(|c| c.level == level && c.first == first) {
            let count = CHUNK.min(place.generation_len - first % place.generation_len);
            let mut addresses = vec![];
            place.read_addresses((&self.keys, &self.schedule), first, count, &mut addresses)?;
            *cached = Some(CachedChunk { level, first, addresses });
        }
        let chunk = cached.as_ref().expect("just read");
        if chunk.addresses.contains(&None) {
            // Not remembered: it may be mended.
            let addresses = cached.take().expect("just read").addresses;
            let at = addresses.iter().position(|&a| a == Some(address));
            return Ok(at.map(|at| at as u64));
        }
        Ok(chunk.addresses.binary_search(&Some(address)).ok().map(|at| at as u64))
    }

    fn time_on_disk(&self, address: u64, scratch: &mut ReadScratch) -> Result<Option<u64>> {
        let (leaf, nth) = self.leaf_of(address);
        if let Some(contents) = self.leaves.get(leaf) {
            return Ok(super::leaves::time_at(contents, nth));
        }
        let time = self.times.get(leaf as usize, self.now());
        if !scratch.leaf.shows(leaf, time) {
            let contents = scratch.leaf.begin(self.geometry.block_len);
            self.read_leaf(leaf, time, &mut scratch.chunks, contents)?;
            // In the flush that is under way a leaf may be written again at the same time.
            let lasting = time.is_none_or(|time| time < self.flushes);
            scratch.leaf.end(leaf, time, lasting);
        }
        Ok(super::leaves::time_at(scratch.leaf.contents(), nth))
    }

    /// Whether an address is one of the user's, and not of the map.
    fn is_users(&self, address: u64) -> bool {
        address < self.geometry.blocks
    }

    fn add_location(&self, first: Location, count: u64, run: &mut Run) {
        match first {
            Location::Nowhere => unreachable!("what is nowhere is not fetched"),
            Location::Log(write) => run.add(&self.log, self.log_slot(write), count),
            Location::Level(level, slot) => {
                let level = &self.levels[level - 1];
                run.add(&level.area, level.slot(slot), count);
            }
            Location::Main(r) => run.add(&self.main, self.main_slot(r), count),
        }
    }

    fn open_located(
        &self,
        address: u64,
        location: Location,
        entry: &[u8],
        sealed: &[u8],
        into: &mut [u8],
    ) -> Result {
        let (whole, area, slot) = match location {
            Location::Nowhere => unreachable!("what is nowhere was not fetched"),
            Location::Log(write) => {
                let (_, keys) = self.keys.at_write(write);
                let whole = keys.log.open_body(write, address, entry, sealed, into);
                (whole, &self.log, self.log_slot(write))
            }
            Location::Level(level, slot) => {
                let whole = self.open_level_slot(level, slot, address, entry, sealed, into);
                let level = &self.levels[level - 1];
                (whole, &level.area, level.slot(slot))
            }
            Location::Main(r) => {
                (self.open_main(r, entry, sealed, into), &self.main, self.main_slot(r))
            }
        };
        if whole {
            return Ok(());
        }
        let block = self.is_users(address).then_some(address);
        Err(Error::Tampered { place: Place { area: area.name(), slot: slot.0, block } })
    }

    /// Opens the body of a slot of a level from 1 on. Whether it is whole.
    pub(super) fn open_level_slot(
        &self,
        level: usize,
        slot: u64,
        address: u64,
        entry: &[u8],
        sealed: &[u8],
        into: &mut [u8],
    ) -> bool {
        let (_, keys) = self.keys.at_slot(&self.schedule, level, slot);
        let version = super::keys::level_version(level, slot);
        keys.levels.open_body(version, address, entry, sealed, into)
    }

    /// Opens the body of refresh `r`. Whether it is whole.
    pub(super) fn open_main(&self, r: u64, tag: &[u8], sealed: &[u8], into: &mut [u8]) -> bool {
        let (_, keys) = self.keys.at_main(&self.schedule, r);
        keys.main.open(r, &[], sealed, tag, into).is_ok()
    }

    /// Reads the contents of a write in the log. Whether they are whole.
    pub(super) fn read_logged(&self, write: u64, address: u64, into: &mut [u8]) -> Result<bool> {
        if let Some(contents) = self.contents(write) {
            into.copy_from_slice(contents);
            return Ok(true);
        }
        let mut run = Run::default();
        run.add(&self.log, self.log_slot(write), 1);
        run.read(&*self.store)?;
        let (entry, sealed) = run.slot(0);
        let (_, keys) = self.keys.at_write(write);
        Ok(keys.log.open_body(write, address, entry, sealed, into))
    }

    /// Reads every block, those of the map first.
    pub(super) fn verify_blocks(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        damaged: &mut dyn FnMut(Place),
    ) -> Result {
        let (n, all) = (self.geometry.blocks, self.geometry.addresses());
        let mut chunks = ChunkCache::default();
        let mut block = vec![0; self.geometry.block_len];
        for leaf in 0..self.geometry.leaves() {
            let time = self.times.get(leaf as usize, self.now());
            match self.read_one(n + leaf, time, &mut chunks, &mut block) {
                Err(Error::Tampered { place }) => damaged(place),
                other => other?,
            }
        }
        let read = |addrs: &[Addr], into: &mut [u8]| self.read_blocks(addrs, into);
        verify_all(n, self.geometry.block_len, read, damaged, |now| progress(now + all - n, all))
    }
}

/// Slots from `first` to `next`, which comes after it, if both are of one level.
fn distance(first: Location, next: Location) -> Option<u64> {
    match (first, next) {
        (Location::Log(a), Location::Log(b)) | (Location::Main(a), Location::Main(b)) => {
            Some(b - a)
        }
        (Location::Level(i, a), Location::Level(j, b)) if i == j => Some(b - a),
        _ => None,
    }
}
