//! A volume: an open image that is served as a device.
//!
//! What a flush acknowledged is there after a crash:
//!
//! ```
//! use traceless_volume::device::Device;
//! use traceless_volume::format::UserKey;
//! use traceless_volume::volume::{OpenOptions, Volume};
//! # use std::sync::Arc;
//! # use traceless_block::detwo::{DetWoGeometry, Refresh};
//! # use traceless_core::seal::Cipher;
//! # use traceless_volume::format::Kdf;
//! # use traceless_volume::volume::{CreateOptions, create};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("image");
//! # let scheme = Arc::new(DetWoGeometry::new(64, 4096, Refresh::ONE, 0)?);
//! # let (cipher, kdf) = (Cipher::default(), Kdf::default());
//! # let options =
//! #     CreateOptions { scheme, cipher, kdf, force: false, unfilled: true, anchor: None };
//! let key = UserKey::from_file(vec![7; 32].into())?;
//! # create(&path, &key, &options, &mut |_, _| true)?;
//! let open = || Volume::open(&path, &key, &OpenOptions::default(), &mut |_, _| {});
//! let volume = open()?;
//! volume.write(5000, b"hello")?;
//! volume.flush()?;
//! drop(volume); // Not closed: like a crash.
//!
//! let volume = open()?;
//! let mut read = [0; 5];
//! volume.read(5000, &mut read)?;
//! assert_eq!(&read, b"hello");
//! volume.verify(&mut |_, _| {}, &mut |place| panic!("{place:?} is damaged"))?;
//! volume.close()?;
//! # Ok(())
//! # }
//! ```

mod admin;
mod constant_rate;
mod cover;
mod create;
mod deniable;
mod deniable_admin;
mod deniable_repair;
mod header_cache;
mod hidden_device;
mod image;
mod parallel_store;
mod rebuild;
mod repair;
mod staging;
mod status;
mod write_queue;

pub use admin::{Backup, add_key, backup_header, change_key, remove_key, restore_header};
pub use constant_rate::{ACCESSES_PER_SECOND_MAX, ConstantRateDevice};
pub use cover::Cover;
pub use create::{CreateOptions, CreateReport, create};
pub use deniable::{
    DENIABLE_BLOCK_LEN, DeniableCreateOptions, DeniableOptions, DeniableVolume, create_deniable,
};
pub use deniable_admin::{
    add_deniable_key, change_deniable_key, deniable_status, remove_deniable_key,
};
pub use deniable_repair::DeniableRepairReport;
pub use hidden_device::HiddenDevice;
pub use image::{UnlockedHeader, public_parts};
pub use rebuild::{Rebuild, RebuildOptions, Rebuilt, rebuild};
pub use repair::{RepairReport, new_anchor, repair};
pub use status::{Status, status, uuid_text};

use crate::anchor_places::place_at;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::{
    AREAS_AT, Anchor, Header, Keys, Newest, SourceState, Superblock, SuperblockVault, UserKey,
    anchor::AnchorPlace,
};
use header_cache::HeaderCache;
use image::Image;
use parallel_store::ParallelStore;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use traceless_core::clock::Monotonic;
use traceless_core::error::Place;
use traceless_core::oram::{BlockOram, Hides};
use traceless_core::rng::System;
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::seal::Cipher;
use traceless_core::store::{Caching, DrawnSlots, FileStore, PlaceAudit, Store, WatchedStore};
use traceless_core::trace::Witness;
use traceless_core::types::{Addr, Extent, total_len};
use write_queue::WriteQueue;

/// Options for opening a volume.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct OpenOptions {
    /// Write nothing at all, not even to recover.
    pub read_only: bool,
    /// Keep out readers, too, if the file may be opened for writing.
    pub exclusive: bool,
    /// Place of the anchor, if there is one: a path, or a URL as of [`crate::anchor_places`].
    pub anchor: Option<PathBuf>,
    /// Whether I/O goes through the page cache.
    pub caching: Caching,
    /// The witness that records every request to the image.
    pub witness: Option<Arc<dyn Witness>>,
    /// Whether the witness gets the time of each request, which costs a look at the clock.
    pub event_times: bool,
    /// Whether dead runs are discarded, which gives their space back: a file gets holes. Only
    /// schemes [with dead runs](BlockScheme::has_dead_runs) can be opened like this.
    pub discard: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            exclusive: false,
            anchor: None,
            caching: Caching::Buffered,
            witness: None,
            event_times: true,
            discard: false,
        }
    }
}

/// A locked image and its key. Nothing was written to the image yet, so other possible failures
/// should be found before [`LockedImage::open`].
pub struct LockedImage {
    image: Image,
    unlocked: UnlockedHeader,
    options: OpenOptions,
}

impl LockedImage {
    /// Locks the image at `path`, and finds the slot that `key` opens.
    pub fn new(path: &Path, key: &UserKey, options: OpenOptions) -> Result<Self> {
        let mut image = Image::open(path, options.read_only, options.caching)?;
        image.lock(options.read_only && !options.exclusive)?;
        let unlocked = image.unlock(key)?;
        check_discard(&*unlocked.header.scheme, &options)?;
        Ok(Self { image, unlocked, options })
    }

    /// Bytes of the image.
    pub fn image_len(&self) -> u64 {
        self.unlocked.header.image_len
    }

    /// Opens the volume. `progress` gets how much of the map's source was read, and the total.
    pub fn open(self, progress: &mut dyn FnMut(u64, u64)) -> Result<Volume> {
        let Self { image, unlocked, options } = self;
        Volume::open_unlocked(image, unlocked, &options, progress)
    }
}

/// An open volume. Dropping it without [`Volume::close`] is like a crash: everything that a flush
/// acknowledged is kept.
pub struct Volume {
    oram: RwLock<Box<dyn BlockOram>>,
    writes: WriteQueue,
    header: Header,
    keys: Arc<Keys>,
    newest: Newest,
    anchor: Option<Arc<Anchor>>,
    /// The anchor's place, once another opening has taken it over.
    taken: OnceLock<PathBuf>,
    read_only: bool,
    discards: bool,
    len: u64,
    block_len: usize,
    /// The image's bytes, as the scheme gets them.
    store: Arc<dyn Store>,
    // Holds the lock as long as the volume is open.
    image: Image,
}

/// The ORAM of a volume, as its scheme opens it.
type OpenedScheme = traceless_core::Result<Box<dyn BlockOram>>;

impl Volume {
    /// Opens the image at `path`, after a close or a crash. `progress` gets how much of the map's
    /// source was read, and the total.
    pub fn open(
        path: &Path,
        key: &UserKey,
        options: &OpenOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        LockedImage::new(path, key, options.clone())?.open(progress)
    }

    fn open_unlocked(
        image: Image,
        unlocked: UnlockedHeader,
        options: &OpenOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let store = store_of(&image, &unlocked.header, options)?;
        Self::open_on(store, image, unlocked, options, |scheme, context, state| {
            scheme.open_block(context, state, progress)
        })
    }

    /// Opens the volume in `image` through `store`. `open` opens its scheme.
    fn open_on(
        store: Arc<dyn Store>,
        image: Image,
        unlocked: UnlockedHeader,
        options: &OpenOptions,
        open: impl FnOnce(&dyn BlockScheme, SchemeContext, &[u8]) -> OpenedScheme,
    ) -> Result<Self> {
        let UnlockedHeader { header, keys, .. } = unlocked;
        check_ciphers(header.cipher)?;
        check_discard(&*header.scheme, options)?;
        image.check_len(&header)?;
        if header.features.read_only != 0 && !options.read_only {
            return Err(Error::ReadOnlyFeatures(header.features.read_only));
        }
        let keys = Arc::new(keys);
        let superblock = Superblock::read(&*store, &keys)?;
        let anchor = match &options.anchor {
            Some(address) => {
                let place = place_at(address, image.path())?;
                Some(Arc::new(anchor_of(place, &keys, &superblock, options.read_only)?))
            }
            None => None,
        };
        let state = superblock.state.clone();
        let newest = Arc::new(Mutex::new(superblock));
        let context = scheme_context(
            store.clone(),
            (&keys, header.cipher),
            &newest,
            anchor.as_ref(),
            options.read_only,
        );
        let oram = open(&*header.scheme, context, &state)?;
        Ok(Self {
            len: oram.blocks() * oram.block_len() as u64,
            block_len: oram.block_len(),
            oram: RwLock::new(oram),
            writes: WriteQueue::default(),
            header,
            keys,
            newest,
            anchor,
            taken: OnceLock::new(),
            read_only: options.read_only,
            discards: store.takes_discards(),
            store,
            image,
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// An audit of the writes to the image, which begins at the end of a request. It knows what the
    /// header says, and no secret.
    pub fn place_audit(&self) -> PlaceAudit {
        let scheme = &self.header.scheme;
        let in_turn = scheme.slots_in_turn().into_iter();
        let audit = PlaceAudit::default()
            .with_turns(in_turn.map(|(at, layout)| (AREAS_AT + at, layout)), self.store.unit());
        let audit = if self.discards { audit.with_discards() } else { audit };
        match scheme.drawn_slots() {
            Some(layout) => audit.with_draws(Box::new(DrawnSlots { first: AREAS_AT, layout })),
            None => audit,
        }
    }

    /// Generation of the newest superblock.
    pub fn generation(&self) -> u64 {
        self.newest.lock().expect("nothing panics under this lock").generation
    }

    /// The current state; no two states of a volume are equal.
    fn state(&self) -> SourceState {
        let newest = self.newest.lock().expect("nothing panics under this lock");
        let (generation, chain) = (newest.generation, newest.chain);
        SourceState { generation, chain, writes: self.writes() }
    }

    /// Reads whole blocks from block `first` on.
    fn read_blocks(&self, first: u64, into: &mut [u8]) -> Result {
        let addrs = self.blocks(first * self.block_len as u64, into.len());
        Ok(self.oram.read().expect(POISONED).read_shared(&addrs, into)?)
    }

    /// Writes whole blocks from block `first` on.
    fn write_blocks(&self, first: u64, from: &[u8]) -> Result {
        self.write_together(&self.blocks(first * self.block_len as u64, from.len()), from)
    }

    /// Writes whole blocks, together with the blocks of threads that write at the same time.
    fn write_together(&self, addrs: &[Addr], from: &[u8]) -> Result {
        self.writes.write(addrs, from, |addrs, from| {
            Ok(self.oram.write().expect(POISONED).write_many(addrs, from)?)
        })
    }

    /// Makes every write that has returned durable. Returns the number of writes.
    fn sync(&self) -> Result<u64> {
        let covered = {
            let mut oram = self.oram.write().expect(POISONED);
            oram.write_out()?;
            oram.writes()
        };
        // Reads can proceed meanwhile.
        self.oram.read().expect(POISONED).sync_shared()?;
        Ok(covered)
    }

    /// As [`Device::read`], with the error as it is.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> Result {
        self.check_extent(at, into.len() as u64)?;
        let [head, whole, _] = split(at, into.len(), self.block_len);
        let (first, rest) = into.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(whole);
        let oram = self.oram.read().expect(POISONED);
        let read = |at: u64, into: &mut [u8]| oram.read_shared(&self.blocks(at, into.len()), into);
        if !middle.is_empty() {
            read(at + head as u64, middle)?;
        }
        let ends = [(at, first), (at + (head + whole) as u64, last)];
        for (at, part) in ends.into_iter().filter(|(_, part)| !part.is_empty()) {
            let mut block = vec![0; self.block_len];
            let within = (at % self.block_len as u64) as usize;
            read(at - within as u64, &mut block)?;
            part.copy_from_slice(&block[within..within + part.len()]);
        }
        Ok(())
    }

    /// Reads several places: neighbours of whole blocks together, parts of blocks alone.
    fn read_places(&self, places: &[Extent], into: &mut [u8]) -> Result {
        let mut rest = into;
        for run in places.chunk_by(|a, b| self.is_whole(*a) && self.is_whole(*b)) {
            let (part, next) = rest.split_at_mut(total_len(run));
            if let [only] = run {
                self.read_at(only.at, part)?;
            } else {
                let addrs = self.blocks_of(run);
                self.oram.read().expect(POISONED).read_shared(&addrs, part)?;
            }
            rest = next;
        }
        Ok(())
    }

    /// Writes to several places, in order: neighbours of whole blocks as one request.
    fn write_places(&self, places: &[Extent], from: &[u8]) -> Result {
        let mut rest = from;
        for run in places.chunk_by(|a, b| self.is_whole(*a) && self.is_whole(*b)) {
            let (part, next) = rest.split_at(total_len(run));
            if let [only] = run {
                self.write_at(only.at, part)?;
            } else {
                self.check_writable()?;
                self.write_together(&self.blocks_of(run), part)?;
            }
            rest = next;
        }
        Ok(())
    }

    fn is_whole(&self, place: Extent) -> bool {
        place.at.is_multiple_of(self.block_len as u64) && place.len.is_multiple_of(self.block_len)
    }

    fn blocks_of(&self, places: &[Extent]) -> Vec<Addr> {
        places.iter().flat_map(|place| self.blocks(place.at, place.len)).collect()
    }

    /// As [`Device::write`], with the error as it is.
    pub fn write_at(&self, at: u64, from: &[u8]) -> Result {
        self.check_extent(at, from.len() as u64)?;
        self.check_writable()?;
        let [head, whole, _] = split(at, from.len(), self.block_len);
        if whole == from.len() {
            return self.write_together(&self.blocks(at, whole), from);
        }
        let (first, rest) = from.split_at(head);
        let (middle, last) = rest.split_at(whole);
        let mut oram = self.oram.write().expect(POISONED);
        let mut write = |at: u64, from: &[u8]| {
            let within = (at % self.block_len as u64) as usize;
            if within == 0 && from.len().is_multiple_of(self.block_len) {
                return oram.write_many(&self.blocks(at, from.len()), from);
            }
            // For part of a block the rest is read, and the whole counts as one write.
            let addr = Addr(at / self.block_len as u64);
            oram.update(addr, &mut |block| {
                block[within..within + from.len()].copy_from_slice(from);
            })
        };
        let context = [(at, first), (at + head as u64, middle), (at + (head + whole) as u64, last)];
        for (at, part) in context.into_iter().filter(|(_, part)| !part.is_empty()) {
            write(at, part)?;
        }
        Ok(())
    }

    /// As [`Device::discard`], with the error as it is. The ends of the range that are parts of
    /// blocks count as a write each, and the whole blocks in between as one
    /// [`BlockOram::discard`].
    pub fn discard_at(&self, at: u64, len: u64) -> Result {
        self.check_extent(at, len)?;
        self.check_writable()?;
        let block_len = self.block_len as u64;
        let (first, end) = (at.next_multiple_of(block_len), (at + len) / block_len * block_len);
        let zeros = |at: u64, end: u64| self.write_at(at, &vec![0; (end - at) as usize]);
        if first > end {
            return zeros(at, at + len);
        }
        zeros(at, first)?;
        let blocks = first / block_len..end / block_len;
        self.oram.write().expect(POISONED).discard(blocks)?;
        zeros(end, at + len)
    }

    /// As [`Device::flush`], with the error as it is.
    pub fn flush_all(&self) -> Result {
        if self.read_only {
            return Ok(());
        }
        self.check_own()?;
        let covered = self.sync()?;
        match &self.anchor {
            Some(anchor) => anchor.note_count(covered).inspect_err(|e| {
                if let Error::AnchorTaken(place) = e {
                    let _ = self.taken.set(place.clone());
                }
            }),
            None => Ok(()),
        }
    }

    /// Fails once another opening has taken over the anchor: the image may be that one's.
    fn check_own(&self) -> Result {
        self.taken.get().map_or(Ok(()), |place| Err(Error::AnchorTaken(place.clone())))
    }

    /// Fails if nothing may be written.
    fn check_writable(&self) -> Result {
        self.check_own()?;
        if self.read_only { Err(traceless_core::Error::ReadOnly.into()) } else { Ok(()) }
    }

    /// Writes made since creation.
    pub fn writes(&self) -> u64 {
        self.oram.read().expect(POISONED).writes()
    }

    /// A write that changes nothing, and that an adversary cannot distinguish from any other.
    pub fn write_dummy(&self) -> Result {
        Ok(self.oram.write().expect(POISONED).write_dummy()?)
    }

    /// Verifies everything that is live. Writes nothing.
    pub fn verify(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        damaged: &mut dyn FnMut(Place),
    ) -> Result {
        Ok(self.oram.read().expect(POISONED).verify(progress, damaged)?)
    }

    /// Makes everything durable, and records a clean end. Later writes fail.
    pub fn close(&self) -> Result {
        self.check_own()?;
        let mut oram = self.oram.write().expect(POISONED);
        oram.close()?;
        if let (Some(anchor), false) = (&self.anchor, self.read_only) {
            anchor.note_count(oram.writes())?;
        }
        Ok(())
    }

    fn blocks(&self, at: u64, len: usize) -> Vec<Addr> {
        let first = at / self.block_len as u64;
        (first..first + (len / self.block_len) as u64).map(Addr).collect()
    }

    fn check_range(&self, at: u64, len: u64, past_end: Errno) -> io::Result<()> {
        self.check_extent(at, len).map_err(|_| past_end.into())
    }

    fn check_extent(&self, at: u64, len: u64) -> Result {
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => {
                let block_len = self.block_len as u64;
                let (addr, blocks) = (Addr(self.len.max(at) / block_len), self.len / block_len);
                Err(traceless_core::Error::OutOfRange { addr, blocks }.into())
            }
        }
    }
}

/// A panic while writing is a bug; the state in memory may then be half changed.
const POISONED: &str = "no writer panics";

/// Splits a request into the end of a block, whole blocks, and the beginning of a block, in bytes.
fn split(at: u64, len: usize, block_len: usize) -> [usize; 3] {
    let within = (at % block_len as u64) as usize;
    let head = if within == 0 { 0 } else { (block_len - within).min(len) };
    let whole = (len - head) / block_len * block_len;
    [head, whole, len - head - whole]
}

impl Device for Volume {
    fn len(&self) -> u64 {
        self.len
    }

    fn block_len(&self) -> u32 {
        u32::try_from(self.block_len).expect("at most 1 MiB")
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.check_range(at, into.len() as u64, Errno::INVAL)?;
        self.read_at(at, into).map_err(Error::into_io)
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.check_range(at, from.len() as u64, Errno::NOSPC)?;
        self.write_at(at, from).map_err(Error::into_io)
    }

    fn read_many(&self, places: &[Extent], into: &mut [u8]) -> io::Result<()> {
        for place in places {
            self.check_range(place.at, place.len as u64, Errno::INVAL)?;
        }
        self.read_places(places, into).map_err(Error::into_io)
    }

    fn write_many(&self, places: &[Extent], from: &[u8]) -> io::Result<()> {
        for place in places {
            self.check_range(place.at, place.len as u64, Errno::NOSPC)?;
        }
        self.write_places(places, from).map_err(Error::into_io)
    }

    fn keeps_discards(&self) -> bool {
        self.header.scheme.keeps_discards()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.check_range(at, len, Errno::NOSPC)?;
        self.discard_at(at, len).map_err(Error::into_io)
    }

    fn flush(&self) -> io::Result<()> {
        self.flush_all().map_err(Error::into_io)
    }
}

/// The anchor at `place`, if the image is not older than it.
///
/// A rebuild puts the new image's record beside the old one, then renames the image, then replaces
/// the record. If a prepared record of this very image is still beside, the rebuild was interrupted
/// in between, and the record replaces the other one now. A prepared record of another image is
/// left from an abandoned rebuild. The first opening for writing removes it: otherwise it would fit
/// that rebuild's image for ever.
fn anchor_of(
    place: Box<dyn AnchorPlace>,
    keys: &Arc<Keys>,
    superblock: &Superblock,
    read_only: bool,
) -> Result<Anchor> {
    let anchor = Anchor::open(place, keys.clone(), read_only)?;
    anchor.compare(superblock.generation, &superblock.chain)?;
    if !read_only {
        anchor.settle(superblock.generation, superblock.chain)?;
    }
    Ok(anchor)
}

/// Refuses to discard dead runs of a scheme that has none.
fn check_discard(scheme: &dyn BlockScheme, options: &OpenOptions) -> Result {
    let is_fine = !options.discard || scheme.has_dead_runs();
    if is_fine { Ok(()) } else { Err(Error::NoDeadRuns(scheme.name())) }
}

/// The context for making or opening a scheme. Its state goes to the superblocks and to the anchor.
fn scheme_context(
    store: Arc<dyn Store>,
    (keys, cipher): (&Arc<Keys>, Cipher),
    newest: &Newest,
    anchor: Option<&Arc<Anchor>>,
    read_only: bool,
) -> SchemeContext {
    let vault = SuperblockVault::new(
        store.clone(),
        keys.clone(),
        Box::new(System),
        newest.clone(),
        anchor.cloned(),
    );
    SchemeContext {
        store,
        first: AREAS_AT,
        key: keys.scheme(),
        cipher,
        vault: Box::new(vault),
        rng: Box::new(System),
        read_only,
        expect_writes: anchor.map_or(0, |a| a.state().count),
    }
}

/// The image's bytes as the scheme gets them.
fn store_of(image: &Image, header: &Header, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    let store = watched_store(image, header.image_len, options)?;
    let scheme = &header.scheme;
    if image.caching() == Caching::Buffered || scheme.hides() == Hides::ReadsAndWrites {
        return Ok(store);
    }
    let areas = scheme.slot_areas().into_iter().map(|(at, layout)| (AREAS_AT + at, layout));
    Ok(Arc::new(HeaderCache::new(store, areas.collect())))
}

fn watched_store(image: &Image, len: u64, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    let file = FileStore::new(image.try_clone()?, len, image.caching());
    let file = if options.discard && !options.read_only {
        file.with_discards().map_err(|e| match e {
            traceless_core::Error::Io(e) if e.kind() == io::ErrorKind::Unsupported => {
                Error::NoDiscards(image.path().into())
            }
            other => other.into(),
        })?
    } else {
        file
    };
    let store: Arc<dyn Store> = match image.caching() {
        Caching::Buffered => Arc::new(file),
        // Without the page cache nothing reads ahead, and each request waits for the disk.
        Caching::Direct => Arc::new(ParallelStore::new(file)),
    };
    Ok(match &options.witness {
        Some(witness) if !options.event_times => {
            Arc::new(WatchedStore::new(store, witness.clone()))
        }
        Some(witness) => {
            Arc::new(WatchedStore::with_clock(store, witness.clone(), Monotonic::start()))
        }
        None => store,
    })
}

/// Refuses a machine that computes a cipher of the volume wrongly: that of its contents, or the one
/// of superblocks, key slots and hidden volumes.
fn check_ciphers(of_contents: Cipher) -> Result {
    of_contents.check()?;
    Ok(Cipher::AesGcm.check()?)
}

#[cfg(test)]
mod tests;
