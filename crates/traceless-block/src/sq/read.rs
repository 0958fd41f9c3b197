//! Reading: locate each block, fetch neighbours together, open the slots.

use super::geometry::CHUNK;
use super::level::Generation;
use super::reader_cache::{CHUNKS_PER_GENERATION, Chunk, ChunkId, ChunkPlace, ReaderCache};
use super::{MapPlace, Sq, SqLocation};
use crate::batches::{batches, verify_all};
use crate::pool::Pool;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::store::Run;
use traceless_core::types::{Addr, Extent};

/// Maximum distance between two wanted slots that are read in one request. The slots between them
/// are read and discarded, which is cheaper than another request.
const READ_THROUGH: u64 = 8;

/// Minimum number of blocks in a request for fetching ahead. For smaller requests the kernel's
/// read-ahead is as good.
const AHEAD_MIN: usize = 8;

/// The readers' buffers and their shared cache.
#[derive(Default)]
pub(super) struct Readers {
    scratch: Pool<SqReadScratch>,
    cache: ReaderCache,
}

/// Buffers of one reader.
#[derive(Default)]
struct SqReadScratch {
    run: Run,
    times: Vec<Option<u64>>,
    sought: Vec<BlockSearch>,
    found: Vec<SqLocation>,
    /// Indices of the blocks to fetch, in the order of their places on the store; and the slot in
    /// the run for each of them.
    order: Vec<u32>,
    fetched: Vec<u32>,
    chunks: Chunks,
    /// The places of the blocks expected next.
    ahead: Vec<Extent>,
}

/// The chunks that a batch needs.
pub(super) type Chunks = BTreeMap<ChunkId, Chunk>;

/// The result of a search with the data in memory.
enum BlockSearch {
    /// The block's location.
    Found(SqLocation),
    /// The chunk, in the block's generation, that must hold the block.
    In(ChunkId),
}

impl Sq {
    pub(super) fn read_blocks(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        let len = self.geometry.block_len;
        self.readers.scratch.with(|scratch| {
            batches(addrs, into, len)
                .try_for_each(|(addrs, into)| self.read_batch(addrs, into, scratch))
        })
    }

    fn read_batch(&self, addrs: &[Addr], into: &mut [u8], scratch: &mut SqReadScratch) -> Result {
        scratch.times.clear();
        match self.geometry.map {
            MapPlace::Memory => {
                let now = self.now();
                let times = addrs.iter().map(|a| self.times.get(a.0 as usize, now));
                scratch.times.extend(times);
            }
            MapPlace::Disk => self.times_on_disk(addrs, &mut scratch.times)?,
        }
        self.locate_all(addrs, scratch)?;
        self.fetch_found(addrs, into, scratch)
    }

    /// Locates every block of a batch, with one request for all chunks needed.
    fn locate_all(&self, addrs: &[Addr], scratch: &mut SqReadScratch) -> Result {
        let SqReadScratch { times, sought, found, chunks, .. } = scratch;
        sought.clear();
        found.clear();
        chunks.clear();
        for (addr, &time) in addrs.iter().zip(&*times) {
            sought.push(self.seek(addr.0, time)?);
        }
        let needed = sought.iter().filter_map(|sought| match sought {
            BlockSearch::In(chunk) => Some(*chunk),
            BlockSearch::Found(_) => None,
        });
        self.fetch_chunks(needed, chunks)?;
        for (addr, sought) in addrs.iter().zip(&*sought) {
            found.push(self.find(addr.0, sought, chunks)?);
        }
        Ok(())
    }

    /// Reads the blocks at `scratch.found`, in the order of their places on the store.
    fn fetch_found(&self, addrs: &[Addr], into: &mut [u8], scratch: &mut SqReadScratch) -> Result {
        let SqReadScratch { run, found, order, fetched, ahead, .. } = scratch;
        let len = self.geometry.block_len;
        order.clear();
        for (i, (location, into)) in found.iter().zip(into.chunks_exact_mut(len)).enumerate() {
            match *location {
                SqLocation::Nowhere => into.fill(0),
                SqLocation::Log(write) => match self.contents(write) {
                    Some(contents) => into.copy_from_slice(contents),
                    None => order.push(i as u32),
                },
                _ => order.push(i as u32),
            }
        }
        order.sort_unstable_by_key(|&i| found[i as usize]);
        run.clear();
        fetched.clear();
        ahead.clear();
        let requests_ahead = self.requests_ahead(addrs);
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
            if let Some(requests) = requests_ahead {
                self.add_ahead(from, last + 1, requests, ahead);
            }
            rest = &rest[members..];
        }
        run.read(&*self.store)?;
        self.store.prefetch(ahead);
        for (&nth, &i) in fetched.iter().zip(&*order) {
            let (entry, sealed) = run.slot(nth as usize);
            let into = &mut into[i as usize * len..][..len];
            self.open_located(addrs[i as usize].0, found[i as usize], entry, sealed, into)?;
        }
        Ok(())
    }

    /// The number of further requests like this one to fetch ahead, if this request continues a
    /// sequence.
    fn requests_ahead(&self, addrs: &[Addr]) -> Option<u64> {
        match addrs {
            [first, .., last] if addrs.len() >= AHEAD_MIN && first.0 < last.0 => {
                self.readers.cache.requests_ahead(&(first.0..last.0 + 1))
            }
            _ => None,
        }
    }

    /// Reads the newest copy of one block of the ORAM, carried by flush `time`.
    pub(super) fn read_one(&self, address: u64, time: Option<u64>, into: &mut [u8]) -> Result {
        let location = self.locate(address, time, &mut Chunks::new())?;
        if location == SqLocation::Nowhere {
            into.fill(0);
            return Ok(());
        }
        if let SqLocation::Log(write) = location
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
        // A write that is held back is not on the store, even if there was no room to cache it.
        self.recent.contents(write).or_else(|| self.held(write))
    }

    /// The location of the newest copy of `address`, carried by flush `time`.
    pub(super) fn locate(
        &self,
        address: u64,
        time: Option<u64>,
        chunks: &mut Chunks,
    ) -> Result<SqLocation> {
        let sought = self.seek(address, time)?;
        if let BlockSearch::In(chunk) = sought {
            self.fetch_chunks([chunk].into_iter(), chunks)?;
        }
        self.find(address, &sought, chunks)
    }

    /// The part of [`Sq::locate`] that needs no reading.
    fn seek(&self, address: u64, time: Option<u64>) -> Result<BlockSearch> {
        let refreshed = self.schedule.refreshed(self.flushes);
        if let Some(time) = time
            && self.schedule.refresh_of(time, address) >= refreshed
        {
            let found = self.schedule.locate(time, self.flushes);
            let (level, generation) = found.expect("not refreshed, so in a level");
            return self.seek_in(level, generation, address);
        }
        let n = self.geometry.addresses();
        Ok(BlockSearch::Found(match refreshed - 1 - (refreshed - 1 - address) % n {
            r if r < n => SqLocation::Nowhere,
            r => SqLocation::Main(r),
        }))
    }

    fn seek_in(&self, level: usize, generation: u64, address: u64) -> Result<BlockSearch> {
        if level == 0 {
            let found = self.recent.find(generation, address).map(SqLocation::Log);
            return found.map(BlockSearch::Found).ok_or_else(|| {
                let slot = self.log_slot(generation * self.bucket()).0;
                let block = self.is_users(address).then_some(address);
                Error::Tampered { place: Place { area: self.log.name(), slot, block } }
            });
        }
        let place = &self.levels[level - 1];
        let begin = generation * place.generation_len;
        match self.generation(level, generation) {
            Generation::Index(index) => match index.find(address) {
                Some(at) => Ok(BlockSearch::Found(SqLocation::Level(level, begin + at))),
                None => Err(place.tampered(begin, self.is_users(address).then_some(address))),
            },
            Generation::Fences { first, .. } => {
                let chunk = first.seek(address + 1).rank.saturating_sub(1);
                Ok(BlockSearch::In((level, begin + chunk * CHUNK)))
            }
        }
    }

    /// The location of `address`, by a search in `chunks`.
    fn find(&self, address: u64, sought: &BlockSearch, chunks: &Chunks) -> Result<SqLocation> {
        let id @ (level, first) = match sought {
            BlockSearch::Found(location) => return Ok(*location),
            BlockSearch::In(chunk) => *chunk,
        };
        let chunk = &chunks[&id];
        // In a chunk with damaged entries the binary search may miss intact ones.
        let at = match chunk.binary_search(&Some(address)) {
            Ok(at) => Some(at),
            Err(_) => chunk.iter().position(|&found| found == Some(address)),
        };
        at.map(|at| SqLocation::Level(level, first + at as u64)).ok_or_else(|| {
            let block = self.is_users(address).then_some(address);
            self.levels[level - 1].tampered(first, block)
        })
    }

    /// Adds the missing ones of the chunks `needed` to `chunks`.
    fn fetch_chunks(&self, needed: impl Iterator<Item = ChunkId>, chunks: &mut Chunks) -> Result {
        let mut missing = Vec::new();
        for id in needed {
            if chunks.contains_key(&id) || missing.contains(&id) {
                continue;
            }
            match self.readers.cache.chunk(self.chunk_place(id), id) {
                Some(chunk) => _ = chunks.insert(id, chunk),
                None => missing.push(id),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort_unstable();
        let (mut extents, mut lens) = (Vec::new(), Vec::new());
        for &(level, first) in &missing {
            let place = &self.levels[level - 1];
            let count = CHUNK.min(place.generation_len - first % place.generation_len);
            place.area.add_entries(place.slot(first), count, &mut extents);
            lens.push(count as usize * place.area.layout().entry_len);
        }
        let mut entries = vec![0; lens.iter().sum()];
        self.store.prefetch(&extents);
        self.store.read(&extents, &mut entries)?;
        let mut rest = &entries[..];
        for (id, len) in missing.into_iter().zip(lens) {
            let (entries, next) = rest.split_at(len);
            rest = next;
            let (level, first) = id;
            let context = (&self.keys, &self.schedule);
            let chunk: Chunk =
                self.levels[level - 1].open_entries(context, first, entries).collect();
            self.readers.cache.remember_chunk(self.chunk_place(id), id, &chunk);
            chunks.insert(id, chunk);
        }
        Ok(())
    }

    fn chunk_place(&self, (level, first): ChunkId) -> ChunkPlace {
        let len = self.levels[level - 1].generation_len;
        ChunkPlace {
            level,
            generation: first / len % self.geometry.generations(),
            nth: first % len / CHUNK % CHUNKS_PER_GENERATION,
        }
    }

    /// The flushes that carried `addrs`, read from the leaves.
    fn times_on_disk(&self, addrs: &[Addr], times: &mut Vec<Option<u64>>) -> Result {
        let mut shown: Option<(u64, Arc<[u8]>)> = None;
        for addr in addrs {
            let (leaf, nth) = self.leaf_of(addr.0);
            if let Some(contents) = self.leaves.get(leaf) {
                times.push(super::leaves::time_at(contents, nth));
                continue;
            }
            let contents = match shown.take() {
                Some((number, contents)) if number == leaf => contents,
                _ => self.leaf_on_disk(leaf)?,
            };
            times.push(super::leaves::time_at(&contents, nth));
            shown = Some((leaf, contents));
        }
        Ok(())
    }

    fn leaf_on_disk(&self, leaf: u64) -> Result<Arc<[u8]>> {
        let time = self.times.get(leaf as usize, self.now());
        if let Some(contents) = self.readers.cache.leaf(leaf, time) {
            return Ok(contents);
        }
        let mut contents = vec![0; self.geometry.block_len];
        self.read_leaf(leaf, time, &mut contents)?;
        let contents = Arc::from(contents);
        // During the current flush a leaf may be written again with the same time, so it is not
        // cached.
        if time.is_none_or(|time| time < self.flushes) {
            self.readers.cache.remember_leaf(leaf, time, &contents);
        }
        Ok(contents)
    }

    /// Whether an address belongs to a user block, and not to the map.
    fn is_users(&self, address: u64) -> bool {
        address < self.geometry.blocks
    }

    fn add_location(&self, first: SqLocation, count: u64, run: &mut Run) {
        match first {
            SqLocation::Nowhere => unreachable!("what is nowhere is not fetched"),
            SqLocation::Log(write) => run.add(&self.log, self.log_slot(write), count),
            SqLocation::Level(level, slot) => {
                let level = &self.levels[level - 1];
                run.add(&level.area, level.slot(slot), count);
            }
            SqLocation::Main(r) => run.add(&self.main, self.main_slot(r), count),
        }
    }

    /// Adds the extents that `requests` further requests would read behind a run of `count` slots.
    fn add_ahead(&self, first: SqLocation, count: u64, requests: u64, ahead: &mut Vec<Extent>) {
        match first {
            // The log is in the order of writes, so its next slots hold unrelated blocks.
            SqLocation::Nowhere | SqLocation::Log(_) => {}
            SqLocation::Level(level, slot) => {
                let level = &self.levels[level - 1];
                let next = slot + count;
                // A run may end at the end of a generation and go on in the next.
                let end = next.next_multiple_of(level.generation_len);
                level.area.add_stretch(level.slot(next), (count * requests).min(end - next), ahead);
            }
            SqLocation::Main(r) => {
                let next = r + count;
                let end = next.next_multiple_of(self.geometry.addresses());
                let end = end.min(self.schedule.refreshed(self.flushes));
                let slots = (count * requests).min(end - next);
                self.main.add_stretch(self.main_slot(next), slots, ahead);
            }
        }
    }

    fn open_located(
        &self,
        address: u64,
        location: SqLocation,
        entry: &[u8],
        sealed: &[u8],
        into: &mut [u8],
    ) -> Result {
        let (whole, area, slot) = match location {
            SqLocation::Nowhere => unreachable!("what is nowhere was not fetched"),
            SqLocation::Log(write) => {
                let (_, keys) = self.keys.at_write(write);
                let whole = keys.log.open_body(write, address, entry, sealed, into);
                (whole, &self.log, self.log_slot(write))
            }
            SqLocation::Level(level, slot) => {
                let whole = self.open_level_slot(level, slot, address, entry, sealed, into);
                let level = &self.levels[level - 1];
                (whole, &level.area, level.slot(slot))
            }
            SqLocation::Main(r) => {
                (self.open_main(r, entry, sealed, into), &self.main, self.main_slot(r))
            }
        };
        if whole {
            return Ok(());
        }
        let block = self.is_users(address).then_some(address);
        Err(Error::Tampered { place: Place { area: area.name(), slot: slot.0, block } })
    }

    /// Opens the body of a slot of a level from 1 on. Returns whether it verified.
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

    /// Opens the body of refresh `r`. Returns whether it verified.
    pub(super) fn open_main(&self, r: u64, entry: &[u8], sealed: &[u8], into: &mut [u8]) -> bool {
        let (_, keys) = self.keys.at_main(&self.schedule, r);
        keys.main.open(r, entry, sealed, into)
    }

    /// Reads the contents of a write in the log. Returns whether they verified.
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

    /// Reads every block, the blocks of the map first.
    pub(super) fn verify_blocks(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        damaged: &mut dyn FnMut(Place),
    ) -> Result {
        let (n, all) = (self.geometry.blocks, self.geometry.addresses());
        // The cache would hide damage on the store.
        self.readers.cache.forget();
        let mut block = vec![0; self.geometry.block_len];
        for leaf in 0..self.geometry.leaves() {
            let time = self.times.get(leaf as usize, self.now());
            match self.read_one(n + leaf, time, &mut block) {
                Err(Error::Tampered { place }) => damaged(place),
                other => other?,
            }
        }
        let read = |addrs: &[Addr], into: &mut [u8]| self.read_blocks(addrs, into);
        verify_all(n, self.geometry.block_len, read, damaged, |now| progress(now + all - n, all))
    }
}

/// Number of slots from `first` to `next`, which comes after it, if both are in one level.
fn distance(first: SqLocation, next: SqLocation) -> Option<u64> {
    match (first, next) {
        (SqLocation::Log(a), SqLocation::Log(b)) | (SqLocation::Main(a), SqLocation::Main(b)) => {
            Some(b - a)
        }
        (SqLocation::Level(i, a), SqLocation::Level(j, b)) if i == j => Some(b - a),
        _ => None,
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::super::SqGeometry;
    use super::*;
    use traceless_core::suite::rig::Rig;

    /// Generations of 150 slots in level 1, and of 750 in level 2; of each level 12 at once.
    fn new() -> Sq {
        let geometry = SqGeometry::with_shape(5000, 64, 30, 5, 3).unwrap();
        let geometry = SqGeometry { map: MapPlace::Disk, ..geometry };
        let mut rig = Rig::with_room(geometry, geometry.store_len());
        let context = rig.context(rig.store.clone(), false);
        Sq::create(geometry, context).unwrap()
    }

    #[test]
    fn the_last_chunk_of_a_generation_ends_with_it() {
        let sq = new();
        let mut chunks = Chunks::new();
        let ids = [(1, 0), (1, 64), (1, 128), (1, 150 + 128), (2, 750 + 704)];
        sq.fetch_chunks(ids.into_iter(), &mut chunks).unwrap();
        assert_eq!(ids.map(|id| chunks[&id].len()), [64, 64, 22, 22, 46]);
    }

    /// Or else they would take each other's place.
    #[test]
    fn chunks_that_are_read_together_have_places_of_their_own() {
        let sq = new();
        let place = |level, generation, nth| ChunkPlace { level, generation, nth };
        for (id, expected) in [
            ((1, 0), place(1, 0, 0)),
            ((1, 64), place(1, 0, 1)),
            ((1, 128), place(1, 0, 2)),
            ((1, 11 * 150 + 64), place(1, 11, 1)),
            ((1, 12 * 150), place(1, 0, 0)),
            ((2, 64), place(2, 0, 1)),
            ((2, 3 * 64), place(2, 0, 3)),
            ((2, 4 * 64), place(2, 0, 0)),
            ((2, 13 * 750 + 11 * 64), place(2, 1, 3)),
        ] {
            assert!(sq.chunk_place(id) == expected, "{id:?}");
        }
    }
}
