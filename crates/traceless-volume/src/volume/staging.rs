//! An unfinished image that is a copy of another one. It is no volume before it is whole: the place
//! of the header is empty, and the future header is in the spare bytes, with the record of the
//! progress.

use super::create::{fill, make_scheme, open_new, reserve};
use super::image::{Image, UnlockedHeader, failed};
use super::{OpenOptions, Volume, watched_store};
use crate::error::{Error, Result};
use crate::format::{
    AREAS_AT, Features, HEADER_LEN, Header, RebuildRecord, SPARE_AT, SPARE_LEN, SourceState,
    Superblock, UserKey,
};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use traceless_core::rng::{Rng, System};
use traceless_core::store::{Caching, Store};

/// Reports long work: its name, the amount done and the total. Returns whether to go on.
pub(super) type Progress<'a> = &'a mut dyn FnMut(&'static str, u64, u64) -> bool;

/// First byte of the key slots.
const SLOTS_AT: u64 = HEADER_LEN as u64;

/// The unfinished image.
pub(super) struct Staging {
    image: Image,
    unlocked: UnlockedHeader,
    store: Arc<dyn Store>,
    record: RebuildRecord,
    /// Whether an earlier run began the image.
    pub resumed: bool,
}

/// The purpose of an unfinished image. A resumed image must have the same purpose.
pub(super) struct StagingPurpose<'a> {
    /// The current state of the volume that is copied.
    pub source: SourceState,
    /// The header of the new image, except for its salt.
    pub header: Header,
    /// Options for opening the new image.
    pub options: &'a OpenOptions,
}

impl StagingPurpose<'_> {
    fn is_for(&self, header: &Header) -> bool {
        Header { salt: self.header.salt, ..header.clone() } == self.header
    }
}

impl Staging {
    /// Resumes the image that an earlier run left at `path`. Returns `None` if resuming would save
    /// no work, and an error if the file there has another purpose.
    pub fn resume(path: &Path, key: &UserKey, wanted: &StagingPurpose) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let refused = |why| Error::Staging { path: path.into(), why };
        let mut image = Image::open(path, false, Caching::Buffered)?;
        image.lock(false)?;
        if is_blank(&image)? {
            return Ok(None);
        }
        let unlocked = image.unlock_at(SPARE_AT, key).map_err(|e| match e {
            Error::NotAVolume(_) => refused("it exists, and is not of an earlier run"),
            Error::WrongKey => refused("it was begun with another key"),
            other => other,
        })?;
        if !wanted.is_for(&unlocked.header) {
            return Err(refused("it was begun for another volume or another size"));
        }
        let record = RebuildRecord::read(image.file(), &unlocked.keys)
            .map_err(|e| image.failed("read", e))?;
        // The header is written before the record: a run that was killed in between leaves no
        // record.
        let Some(record) = record else { return Ok(None) };
        if record.source != wanted.source {
            return Err(refused("the volume was opened for writing since it was begun"));
        }
        if !record.made {
            return Ok(None);
        }
        let store = watched_store(&image, unlocked.header.image_len, wanted.options)?;
        Ok(Some(Self { image, unlocked, store, record, resumed: true }))
    }

    /// Begins a new image at `path`. `slots` are the bytes of its key slots; the user's key opens
    /// one of them. If anything fails, a file that did not exist before is removed.
    pub fn begin(
        path: &Path,
        unlocked: UnlockedHeader,
        slots: &[u8],
        wanted: &StagingPurpose,
        before: Superblock,
        progress: Progress,
    ) -> Result<Self> {
        let existed = path.exists();
        let made = open_new(path, existed).and_then(|mut image| {
            image.lock(false)?;
            Self::make(image, unlocked, slots, wanted, before, progress)
        });
        if made.is_err() && !existed {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn make(
        image: Image,
        unlocked: UnlockedHeader,
        slots: &[u8],
        wanted: &StagingPurpose,
        before: Superblock,
        progress: Progress,
    ) -> Result<Self> {
        let header = &unlocked.header;
        let unfilled = header.features.incompatible & Features::UNFILLED != 0;
        if !unfilled {
            refuse_little_space(&image, header.image_len)?;
        }
        reserve(&image, header.image_len, unfilled)?;
        let mut front = vec![0; AREAS_AT as usize];
        System.fill(&mut front);
        front[SLOTS_AT as usize..][..slots.len()].copy_from_slice(slots);
        front[SPARE_AT as usize..][..HEADER_LEN].copy_from_slice(&header.encode(&unlocked.keys));
        let file = image.file();
        file.write_all_at(&front, 0).map_err(|e| image.failed("write", e))?;
        let store = watched_store(&image, header.image_len, wanted.options)?;
        let mut record = RebuildRecord::new(wanted.source);
        record.write(&*store, &unlocked.keys, &mut System)?;
        if !unfilled {
            fill(&image, AREAS_AT, header.image_len, &mut |done, all| {
                progress("filling", done, all)
            })?;
        }
        let keys = Arc::new(unlocked.keys);
        make_scheme(store.clone(), header, &keys, None, before)?;
        record.made = true;
        record.write(&*store, &keys, &mut System)?;
        let keys = Arc::into_inner(keys).expect("the scheme that was made is closed");
        let unlocked = UnlockedHeader { keys, ..unlocked };
        Ok(Self { image, unlocked, store, record, resumed: false })
    }

    /// Opens the volume in the image. It must contain everything that was recorded as copied.
    pub fn open(self, options: &OpenOptions, progress: Progress) -> Result<OpenStaging> {
        let path = self.image.path().to_owned();
        let mut report = |done, all| {
            progress("reading the map", done, all);
        };
        let volume = Volume::open_on(
            self.store.clone(),
            self.image,
            self.unlocked,
            options,
            |s, p, state| s.open_block(p, state, &mut report),
        )?;
        if volume.writes() < self.record.writes {
            return Err(Error::Staging { path, why: "writes that were made to it are gone" });
        }
        Ok(OpenStaging { volume, store: self.store, record: self.record })
    }
}

/// The unfinished image, open for writing.
pub(super) struct OpenStaging {
    /// The volume in the image.
    pub volume: Volume,
    store: Arc<dyn Store>,
    record: RebuildRecord,
}

impl OpenStaging {
    /// Number of blocks that were copied durably, from the first on.
    pub fn copied(&self) -> u64 {
        self.record.copied
    }

    /// Makes the copy durable up to block `copied`, and records that.
    pub fn note_copied(&mut self, copied: u64) -> Result {
        self.record.writes = self.volume.sync()?;
        self.record.copied = copied;
        Ok(self.record.write(&*self.store, &self.volume.keys, &mut System)?)
    }
}

/// Overwrites the spare bytes of a finished volume with random ones, as in a new volume.
pub(super) fn wipe_spare(image: &Image) -> Result {
    let mut spare = vec![0; SPARE_LEN];
    System.fill(&mut spare);
    let file = image.file();
    file.write_all_at(&spare, SPARE_AT)
        .and_then(|()| file.sync_data())
        .map_err(|e| image.failed("write", e))
}

/// The bytes of an image's key slots.
pub(super) fn slot_bytes(image: &Image) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (SPARE_AT - SLOTS_AT) as usize];
    image.file().read_exact_at(&mut bytes, SLOTS_AT).map_err(|e| image.failed("read", e))?;
    Ok(bytes)
}

/// Writes the bytes of all key slots to an image, durably.
pub(super) fn put_slot_bytes(image: &Image, slots: &[u8]) -> Result {
    let file = image.file();
    file.write_all_at(slots, SLOTS_AT)
        .and_then(|()| file.sync_data())
        .map_err(|e| image.failed("write", e))
}

/// Whether nothing was ever written to a file. Then it may be overwritten.
fn is_blank(image: &Image) -> Result<bool> {
    if image.is_device()? {
        return Ok(false);
    }
    let len = image.len()?.min(AREAS_AT) as usize;
    let mut front = vec![0; len];
    image.file().read_exact_at(&mut front, 0).map_err(|e| image.failed("read", e))?;
    Ok(front.iter().all(|&byte| byte == 0))
}

/// Fails if the file system has no room for a file of `len` bytes.
fn refuse_little_space(image: &Image, len: u64) -> Result {
    if image.is_device()? {
        return Ok(());
    }
    let system = |what, e: rustix::io::Errno| failed(what, image.path(), e.into());
    let free = rustix::fs::fstatvfs(image.file()).map_err(|e| system("look for space for", e))?;
    let has = rustix::fs::fstat(image.file()).map_err(|e| system("read", e))?;
    let allocated = u64::try_from(has.st_blocks).unwrap_or(0) * 512;
    let available = free.f_bavail.saturating_mul(free.f_frsize).saturating_add(allocated);
    if available < len {
        return Err(Error::TooSmall { path: image.path().into(), needed: len, available });
    }
    Ok(())
}
