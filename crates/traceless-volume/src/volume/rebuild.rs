//! Growing and re-encrypting: both make the volume anew, with another geometry or other keys, and
//! replace the old image by the new one.
//!
//! Every block is copied, in the order of addresses, even if it was never written. So the writes
//! depend on the number of blocks alone. The old image stays whole until the new one is. If the
//! work is interrupted, even by a crash, the same command resumes it.

use super::image::{Image, UnlockedHeader};
use super::staging::{
    OpenStaging, Progress, Staging, StagingPurpose, put_slot_bytes, slot_bytes, wipe_spare,
};
use super::{OpenOptions, Volume, anchor_of};
use crate::anchor_places::place_at;
use crate::error::{Error, Result};
use crate::format::{
    Anchor, Header, KEY_SLOTS, Kdf, KeySlot, KeySlots, MasterKey, SPARE_AT, SlotKind, Superblock,
    UserKey,
};
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless_core::oram::Hides;
use traceless_core::rng::{Rng, System};
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::seal::Cipher;
use traceless_core::store::sync_folder_of;
use traceless_core::store::{Caching, FileStore};
use traceless_core::trace::Witness;

/// Blocks copied at a time.
const CHUNK_BLOCKS: u64 = 256;

/// Blocks between two records of the progress; a multiple of [`CHUNK_BLOCKS`].
const RECORD_EVERY: u64 = 64 * CHUNK_BLOCKS;

/// Bytes of a key slot.
const SLOT_LEN: usize = 4096;

/// The change that a rebuild makes.
pub enum Rebuild {
    /// Make the volume larger.
    Grow {
        /// Bytes that it must hold at least.
        size: u64,
    },
    /// Encrypt the volume with a new master key.
    Reencrypt {
        /// Keys that open the volume afterwards, too, beside the key given.
        also: Vec<UserKey>,
        /// Whether keys that are not given may be dropped.
        drop_other_keys: bool,
        /// The new cipher; `None` keeps the old one.
        cipher: Option<Cipher>,
    },
}

/// Options of a rebuild.
#[derive(Clone, Default)]
pub struct RebuildOptions {
    /// Place of the anchor, if there is one: a path, or a URL as of [`crate::anchor_places`]. Its
    /// record is replaced, too.
    pub anchor: Option<PathBuf>,
    /// Make the new image here, and leave the old one in place.
    pub into: Option<PathBuf>,
    /// Overwrite an unfinished image of an earlier run, or anything else in the place of the new
    /// one.
    pub restart: bool,
    /// The witness that records every request to the new image while it is written.
    pub witness: Option<Arc<dyn Witness>>,
}

/// The outcome of a rebuild.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    /// The new header.
    pub header: Header,
    /// Blocks of the old volume.
    pub blocks_before: u64,
    /// Blocks copied by this run.
    pub copied: u64,
    /// Whether this run resumed an earlier one.
    pub resumed: bool,
    /// Generation of the newest superblock.
    pub generation: u64,
    /// Writes that the new volume has made.
    pub writes: u64,
    /// Key slots in use.
    pub key_slots: usize,
}

/// Rebuilds the volume at `path`, which `key` opens, as `what` says. `progress` gets the name of
/// the current work, the amount done and the total, and returns whether to go on. A volume that is
/// large enough already is not grown.
pub fn rebuild(
    path: &Path,
    key: &UserKey,
    what: &Rebuild,
    options: &RebuildOptions,
    progress: Progress,
) -> Result<Rebuilt> {
    let path = &path.canonicalize().map_err(|e| super::image::failed("open", path, e))?;
    let source = Source::open(path, key, options, progress)?;
    let old = source.volume.header().clone();
    let scheme = wanted_scheme(&old, what)?;
    let kept = source.kept_keys(what)?;
    if matches!(what, Rebuild::Grow { .. }) && *scheme == *old.scheme {
        return source.as_it_is(path);
    }
    let open = OpenOptions { witness: options.witness.clone(), ..OpenOptions::default() };
    let cipher = wanted_cipher(&old, what);
    cipher.check()?;
    let header = Header { cipher, ..old.rebuilt(scheme, [0; 16]) };
    let state = source.volume.state();
    let wanted = StagingPurpose { source: state, header, options: &open };
    let at = options.into.clone().unwrap_or_else(|| staging_path(path));
    let resumed = if options.restart { None } else { Staging::resume(&at, key, &wanted)? };
    let staging = match resumed {
        Some(staging) => staging,
        None => source.begin(&at, key, what, &wanted, progress)?,
    };
    let resumed = staging.resumed;
    let mut staging = staging.open(&open, progress)?;
    let before = staging.copied();
    copy(&source.volume, &mut staging, progress)?;
    finish(&source, &kept, &staging.volume, path, options)?;
    let copied = old.scheme.blocks() - before;
    rebuilt(&staging.volume, old.scheme.blocks(), copied, resumed)
}

/// The path of the new image, beside the old one.
fn staging_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".rebuild");
    name.into()
}

fn wanted_cipher(header: &Header, what: &Rebuild) -> Cipher {
    match what {
        Rebuild::Reencrypt { cipher: Some(cipher), .. } => *cipher,
        _ => header.cipher,
    }
}

fn wanted_scheme(header: &Header, what: &Rebuild) -> Result<Arc<dyn BlockScheme>> {
    let Rebuild::Grow { size } = what else { return Ok(header.scheme.clone()) };
    let blocks = header.scheme.blocks();
    let wanted = size.div_ceil(header.scheme.block_len() as u64);
    match wanted {
        _ if wanted < blocks => Err(Error::Shrink { blocks, wanted }),
        _ if wanted == blocks => Ok(header.scheme.clone()),
        _ => Ok(header.scheme.resized(wanted)?),
    }
}

/// The source of the copy: a volume that is open for reading, and locked.
struct Source {
    volume: Volume,
    slots: KeySlots,
    slot_bytes: Vec<u8>,
    /// The slot that the given key opens.
    slot: usize,
}

impl Source {
    fn open(
        path: &Path,
        key: &UserKey,
        options: &RebuildOptions,
        progress: Progress,
    ) -> Result<Self> {
        let mut image = Image::open(path, true, Caching::Buffered)?;
        image.lock(false)?;
        if options.into.is_none() && image.is_device()? {
            return Err(Error::NeedsInto(path.into()));
        }
        let unlocked = image.unlock(key)?;
        let unknown = unlocked.header.features.read_only;
        if unknown != 0 {
            return Err(Error::ReadOnlyFeatures(unknown));
        }
        image.check_len(&unlocked.header)?;
        if let Some(anchor) = &options.anchor {
            settle_anchor(&image, &unlocked, anchor)?;
        }
        let (slots, slot_bytes) = (image.key_slots()?, slot_bytes(&image)?);
        let open = OpenOptions {
            read_only: true,
            anchor: options.anchor.clone(),
            ..OpenOptions::default()
        };
        let slot = unlocked.slot;
        let volume = Volume::open_unlocked(image, unlocked, &open, &mut |done, all| {
            progress("reading the map", done, all);
        })?;
        Ok(Self { volume, slots, slot_bytes, slot })
    }

    /// The slots that stay in use after a re-encryption beside the slot of the given key, each with
    /// its key. Other slots cannot be kept, as their passphrases and key files are unknown.
    fn kept_keys<'a>(&self, what: &'a Rebuild) -> Result<Vec<(usize, &'a UserKey)>> {
        let Rebuild::Reencrypt { also, drop_other_keys, .. } = what else { return Ok(vec![]) };
        let mut kept = vec![];
        for key in also {
            let (_, slot) = self.slots.unlock(&self.volume.header().uuid, key)?;
            if slot != self.slot && kept.iter().all(|(taken, _)| *taken != slot) {
                kept.push((slot, key));
            }
        }
        let lost = self.slots.in_use() - 1 - kept.len();
        if lost > 0 && !drop_other_keys {
            return Err(Error::OtherKeys(lost));
        }
        Ok(kept)
    }

    /// Begins the new image. A volume that grows keeps its master key and all its slots; the salt
    /// in its header still makes its keys different from the old image's.
    fn begin(
        &self,
        at: &Path,
        key: &UserKey,
        what: &Rebuild,
        wanted: &StagingPurpose,
        progress: Progress,
    ) -> Result<Staging> {
        let no_memory = |e| super::image::failed("lock memory for the key of", at, e);
        let mut salt = [0; 16];
        System.fill(&mut salt);
        let header = Header { salt: Some(salt), ..wanted.header.clone() };
        let (master, slots) = match what {
            Rebuild::Grow { .. } => {
                let master = self.volume.keys.master().duplicate().map_err(no_memory)?;
                (master, self.slot_bytes.clone())
            }
            Rebuild::Reencrypt { .. } => {
                let master = MasterKey::random(&mut System).map_err(no_memory)?;
                let slots = self.only_slot(&master, &header, key)?;
                (master, slots)
            }
        };
        let unlocked = UnlockedHeader { keys: header.keys(master), header, slot: self.slot };
        let before = Superblock {
            generation: wanted.source.generation,
            chain: wanted.source.chain,
            state: vec![],
        };
        Staging::begin(at, unlocked, &slots, wanted, before, progress)
    }

    /// The bytes of key slots with a single slot in use, the one of the given key.
    fn only_slot(&self, master: &MasterKey, header: &Header, key: &UserKey) -> Result<Vec<u8>> {
        let slot = KeySlot::wrap(master, &header.uuid, key, self.kdf(self.slot), &mut System)?;
        let mut bytes = vec![0; KEY_SLOTS * SLOT_LEN];
        System.fill(&mut bytes);
        bytes[self.slot * SLOT_LEN..][..SLOT_LEN].copy_from_slice(&slot.encode(&mut System));
        Ok(bytes)
    }

    /// The argon2id parameters of a slot's passphrase.
    fn kdf(&self, slot: usize) -> Kdf {
        match self.slots.iter().nth(slot).flatten().map(|s| s.kind) {
            Some(SlotKind::Passphrase(kdf)) => kdf,
            _ => Kdf::default(),
        }
    }

    /// The outcome if there is nothing to do. Wipes a leftover of an earlier run's last step.
    fn as_it_is(&self, path: &Path) -> Result<Rebuilt> {
        let spare = self.volume.image.header_at(SPARE_AT);
        if spare.is_ok_and(|left| left == self.volume.header) {
            wipe_spare(&Image::open(path, false, Caching::Buffered)?)?;
        }
        rebuilt(&self.volume, self.volume.header().scheme.blocks(), 0, false)
    }
}

/// Completes or removes an anchor that an earlier rebuild left, so that only one is there.
fn settle_anchor(image: &Image, unlocked: &UnlockedHeader, address: &Path) -> Result {
    let no_memory = |e| image.failed("lock memory for the key of", e);
    let store = FileStore::new(image.try_clone()?, unlocked.header.image_len, Caching::Buffered);
    let superblock = Superblock::read(&store, &unlocked.keys)?;
    let master = unlocked.keys.master().duplicate().map_err(no_memory)?;
    let keys = Arc::new(unlocked.header.keys(master));
    let place = place_at(address, image.path())?;
    anchor_of(place, &keys, &superblock, false).map(|_| ())
}

/// Copies the blocks that were not copied yet.
fn copy(source: &Volume, staging: &mut OpenStaging, progress: Progress) -> Result {
    let (all, block_len) = (source.header().scheme.blocks(), source.block_len);
    // Where reads are hidden each request reads all of the source.
    let chunk = match source.header().scheme.hides() {
        Hides::ReadsAndWrites => RECORD_EVERY,
        Hides::WritesOnly | Hides::Nothing => CHUNK_BLOCKS,
    };
    let mut bytes = vec![0; chunk as usize * block_len];
    let mut copied = staging.copied();
    while copied < all {
        if !progress("copying", copied, all) {
            staging.note_copied(copied)?;
            staging.volume.close()?;
            return Err(Error::Paused(staging.volume.image.path().into()));
        }
        let blocks = chunk.min(all - copied);
        let bytes = &mut bytes[..blocks as usize * block_len];
        source.read_blocks(copied, bytes)?;
        staging.volume.write_blocks(copied, bytes)?;
        copied += blocks;
        if copied.is_multiple_of(RECORD_EVERY) || copied == all {
            staging.note_copied(copied)?;
        }
    }
    progress("copying", all, all);
    staging.volume.close()
}

/// Turns the new image into a volume, and replaces the old one by it. Each step may be interrupted,
/// and the next run repeats it: until the image is renamed, the old one is the volume.
fn finish(
    source: &Source,
    kept: &[(usize, &UserKey)],
    new: &Volume,
    path: &Path,
    options: &RebuildOptions,
) -> Result {
    let (image, header) = (&new.image, new.header());
    let failed = |what| move |e| image.failed(what, e);
    put_slots(source, kept, new)?;
    let file = image.file();
    file.write_all_at(&header.encode(&new.keys), 0).map_err(failed("write"))?;
    file.sync_all().map_err(failed("sync"))?;
    let prepared = match &options.anchor {
        // Also with `into` it is the old image's anchor that goes on.
        Some(address) => Some(Anchor::prepare(place_at(address, path)?, &new.keys, &new.state())?),
        None => None,
    };
    if options.into.is_none() {
        let old = source.volume.image.file().metadata().map_err(failed("read"))?;
        let now = file.metadata().map_err(failed("read"))?;
        if (old.uid(), old.gid()) != (now.uid(), now.gid()) {
            fchown(file, Some(old.uid()), Some(old.gid())).map_err(failed("keep the owner of"))?;
        }
        file.set_permissions(old.permissions()).map_err(failed("keep the permissions of"))?;
        std::fs::rename(image.path(), path).map_err(failed("rename"))?;
    }
    sync_folder_of(image.path()).map_err(failed("sync the folder of"))?;
    if let Some(prepared) = prepared {
        prepared.replace()?;
    }
    wipe_spare(image)
}

/// Writes the final key slots of the new image. After growing they are the current ones of the old
/// image, since keys may have changed while the rebuild was interrupted.
fn put_slots(source: &Source, kept: &[(usize, &UserKey)], new: &Volume) -> Result {
    let image = &new.image;
    if new.keys.master().is(source.volume.keys.master()) {
        return put_slot_bytes(image, &source.slot_bytes);
    }
    let failed = |e| image.failed("write", e);
    for slot in (0..KEY_SLOTS).filter(|slot| *slot != source.slot) {
        match kept.iter().find(|(kept, _)| *kept == slot) {
            Some((_, key)) => {
                let (master, uuid) = (new.keys.master(), &new.header().uuid);
                let wrapped = KeySlot::wrap(master, uuid, key, source.kdf(slot), &mut System)?;
                KeySlots::write(image.file(), slot, &wrapped, &mut System).map_err(failed)?;
            }
            None => KeySlots::wipe(image.file(), slot, &mut System).map_err(failed)?,
        }
    }
    Ok(())
}

fn rebuilt(volume: &Volume, blocks_before: u64, copied: u64, resumed: bool) -> Result<Rebuilt> {
    let state = volume.state();
    Ok(Rebuilt {
        header: volume.header().clone(),
        blocks_before,
        copied,
        resumed,
        generation: state.generation,
        writes: state.writes,
        key_slots: volume.image.key_slots()?.in_use(),
    })
}
