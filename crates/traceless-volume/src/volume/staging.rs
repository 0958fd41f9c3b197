//! An image that is being made from another one. It is no volume before it is whole: where the
//! header belongs there is none, the coming one stands among the spare bytes with the record of how
//! far the work has come.

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
use traceless::rng::{Rng, System};
use traceless::store::{Caching, Store};

/// What is told of long work: what it is, so much of so much; and whether to go on.
pub(super) type Progress<'a> = &'a mut dyn FnMut(&'static str, u64, u64) -> bool;

/// First byte of the key slots.
const SLOTS_AT: u64 = HEADER_LEN as u64;

/// The image that is being made.
pub(super) struct Staging {
    image: Image,
    unlocked: UnlockedHeader,
    store: Arc<dyn Store>,
    record: RebuildRecord,
    /// Whether an earlier run has begun it.
    pub resumed: bool,
}

/// What an image is made for.
pub(super) struct StagingPurpose<'a> {
    /// The volume that is copied, as it is now.
    pub source: SourceState,
    /// The header that the new one should have, but for its salt.
    pub header: Header,
    /// How the image is opened, once it is there.
    pub options: &'a OpenOptions,
}

impl StagingPurpose<'_> {
    fn is_for(&self, header: &Header) -> bool {
        Header { salt: self.header.salt, ..header.clone() } == self.header
    }
}

impl Staging {
    /// What an earlier run has left at `path`. Nothing, if it had not come so far that it would
    /// save work; an error, if it does not fit.
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
        // The header comes first: a run that was killed before its record leaves none.
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

    /// Begins anew at `path`. `slots` are the bytes of the key slots, one of which opens with the
    /// key of the user. If anything fails, a file that was not there before is removed.
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

    /// Opens the volume in it, which must hold all that was copied into it.
    pub fn open(self, options: &OpenOptions, progress: Progress) -> Result<OpenStaging> {
        let path = self.image.path().to_owned();
        let mut told = |done, all| {
            progress("reading the map", done, all);
        };
        let volume = Volume::open_on(
            self.store.clone(),
            self.image,
            self.unlocked,
            options,
            |s, p, state| s.open_block(p, state, &mut told),
        )?;
        if volume.writes() < self.record.writes {
            return Err(Error::Staging { path, why: "writes that were made to it are gone" });
        }
        Ok(OpenStaging { volume, store: self.store, record: self.record })
    }
}

/// The image that is being made, open for writing.
pub(super) struct OpenStaging {
    /// The volume in it.
    pub volume: Volume,
    store: Arc<dyn Store>,
    record: RebuildRecord,
}

impl OpenStaging {
    /// Blocks that are copied for sure, from the first on.
    pub fn copied(&self) -> u64 {
        self.record.copied
    }

    /// Makes the copy durable as far as block `copied`, and remembers that.
    pub fn note_copied(&mut self, copied: u64) -> Result {
        self.record.writes = self.volume.sync()?;
        self.record.copied = copied;
        Ok(self.record.write(&*self.store, &self.volume.keys, &mut System)?)
    }
}

/// Overwrites the spare bytes of a volume that is whole with random ones, as they were.
pub(super) fn wipe_spare(image: &Image) -> Result {
    let mut spare = vec![0; SPARE_LEN];
    System.fill(&mut spare);
    let file = image.file();
    file.write_all_at(&spare, SPARE_AT)
        .and_then(|()| file.sync_data())
        .map_err(|e| image.failed("write", e))
}

/// The key slots of an image, byte for byte.
pub(super) fn slot_bytes(image: &Image) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (SPARE_AT - SLOTS_AT) as usize];
    image.file().read_exact_at(&mut bytes, SLOTS_AT).map_err(|e| image.failed("read", e))?;
    Ok(bytes)
}

/// Puts key slots into an image as they are, durably.
pub(super) fn put_slot_bytes(image: &Image, slots: &[u8]) -> Result {
    let file = image.file();
    file.write_all_at(slots, SLOTS_AT)
        .and_then(|()| file.sync_data())
        .map_err(|e| image.failed("write", e))
}

/// Whether a file was made and nothing was written to it: then it is nobody's.
fn is_blank(image: &Image) -> Result<bool> {
    if image.is_device()? {
        return Ok(false);
    }
    let len = image.len()?.min(AREAS_AT) as usize;
    let mut front = vec![0; len];
    image.file().read_exact_at(&mut front, 0).map_err(|e| image.failed("read", e))?;
    Ok(front.iter().all(|&byte| byte == 0))
}

/// Refuses to begin where a file of `len` bytes has no room.
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
