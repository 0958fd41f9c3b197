//! Changes of keys and headers on an image that is not in use.

use super::image::{Image, failed};
use crate::error::{Error, Result};
use crate::format::{
    HEADER_LEN, Header, KEY_SLOTS, Kdf, KeySlot, KeySlots, Keys, Superblock, UserKey,
};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use traceless_core::rng::System;
use traceless_core::store::sync_folder_of;
use traceless_core::store::{Caching, FileStore};

/// Bytes of a header backup: a copy of the header and the key slots.
const BACKUP_LEN: usize = HEADER_LEN * (1 + KEY_SLOTS);

/// Writes `new` to an empty slot; `key` is any key of the volume. Returns the number of the slot.
pub fn add_key(path: &Path, key: &UserKey, new: &UserKey, kdf: Kdf) -> Result<usize> {
    let image = locked(path)?;
    let unlocked = image.unlock(key)?;
    let slot = image.key_slots()?.first_empty()?;
    write_slot(&image, slot, &unlocked.keys, new, kdf)?;
    Ok(slot)
}

/// Replaces `key` by `new`: the new slot is durable before the old one is wiped. Returns the number
/// of the new slot.
pub fn change_key(path: &Path, key: &UserKey, new: &UserKey, kdf: Kdf) -> Result<usize> {
    let image = locked(path)?;
    let unlocked = image.unlock(key)?;
    let slot = image.key_slots()?.first_empty()?;
    write_slot(&image, slot, &unlocked.keys, new, kdf)?;
    wipe_slot(&image, unlocked.slot)?;
    Ok(slot)
}

/// Wipes a slot: slot `number`, or else the one that `key` opens. The last key cannot be removed.
pub fn remove_key(path: &Path, key: &UserKey, number: Option<usize>) -> Result<usize> {
    let image = locked(path)?;
    let unlocked = image.unlock(key)?;
    let slots = image.key_slots()?;
    let slot = number.unwrap_or(unlocked.slot);
    if slots.iter().nth(slot).flatten().is_none() {
        return Err(Error::KeySlotEmpty(slot));
    }
    if slots.in_use() == 1 {
        return Err(Error::LastKey);
    }
    wipe_slot(&image, slot)?;
    Ok(slot)
}

/// A header backup with a valid length and header.
pub struct Backup(Vec<u8>);

impl Backup {
    /// Reads a backup file.
    pub fn read(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(BACKUP_LEN as u64 + 1).read_to_end(&mut bytes))
            .map_err(|e| failed("read", path, e))?;
        if bytes.len() != BACKUP_LEN {
            return Err(Error::Backup);
        }
        Header::decode(&bytes).map_err(|_| Error::Backup)?;
        Ok(Self(bytes))
    }
}

/// Writes header and key slots to the new file `to`. A backup never contains superblocks or
/// counters: restoring older ones would look like a rollback attack.
pub fn backup_header(path: &Path, key: &UserKey, to: &Path) -> Result {
    let image = Image::open(path, true, Caching::Buffered)?;
    image.unlock(key)?;
    let mut bytes = vec![0; BACKUP_LEN];
    image.file().read_exact_at(&mut bytes, 0).map_err(|e| image.failed("read", e))?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let mut file = match made {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::BackupExists(to.into()));
        }
        other => other.map_err(|e| failed("create", to, e))?,
    };
    let written = file.write_all(&bytes).and_then(|()| file.sync_all());
    let written = written.and_then(|()| sync_folder_of(to));
    if let Err(e) = written {
        let _ = std::fs::remove_file(to);
        return Err(failed("write", to, e));
    }
    Ok(())
}

/// Restores header and key slots from a backup, if `key` opens the backup and the image's
/// superblocks belong to it. Keys that were removed since the backup open the volume again.
pub fn restore_header(path: &Path, key: &UserKey, backup: &Backup) -> Result {
    let image = locked(path)?;
    let header = Header::decode(&backup.0)?;
    let slots = backup.0[HEADER_LEN..].chunks_exact(HEADER_LEN).map(KeySlot::decode).collect();
    let (master, _) = KeySlots::from_list(slots).unlock(&header.uuid, key)?;
    let keys = header.keys(master);
    Header::verify(&backup.0, &keys).map_err(|_| Error::Backup)?;
    image.check_len(&header)?;
    let store = FileStore::new(image.try_clone()?, header.image_len, Caching::Buffered);
    Superblock::read(&store, &keys).map_err(|_| Error::Backup)?;
    let file = image.file();
    file.write_all_at(&backup.0, 0)
        .and_then(|()| file.sync_all())
        .map_err(|e| image.failed("write", e))
}

fn locked(path: &Path) -> Result<Image> {
    let mut image = Image::open(path, false, Caching::Buffered)?;
    image.lock(false)?;
    Ok(image)
}

fn write_slot(image: &Image, slot: usize, keys: &Keys, new: &UserKey, kdf: Kdf) -> Result {
    let made = KeySlot::wrap(keys.master(), keys.uuid(), new, kdf, &mut System)?;
    KeySlots::write(image.file(), slot, &made, &mut System).map_err(|e| image.failed("write", e))
}

fn wipe_slot(image: &Image, slot: usize) -> Result {
    KeySlots::wipe(image.file(), slot, &mut System).map_err(|e| image.failed("write", e))
}
