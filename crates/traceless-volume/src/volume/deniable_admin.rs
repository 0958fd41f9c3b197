//! The status of a deniable image, and changes of the public volume's keys.
//!
//! A key of a hidden volume is no key of the public one: where a public key is needed it is refused
//! as any wrong key is.

use super::deniable::{geometry_of, unlock, unlocked, veiled};
use super::image::{Image, failed};
use super::status::{KeySlotStatus, Status, status_of};
use crate::error::{Error, Result};
use crate::format::{
    AREAS_AT, DeniableSlots, ImageSalt, Keys, PublicPart, SlotState, SlotsInUse, UserKey,
};
use std::io;
use std::path::Path;
use std::sync::Arc;
use traceless_block::deniable::Deniable;
use traceless_core::rng::System;
use traceless_core::store::{Caching, FileStore, Store};

/// Reads the status of the deniable image at `path`, even while it is in use. It is about the
/// public volume alone, also with the key of a hidden one.
pub fn deniable_status(path: &Path, key: &UserKey) -> Result<Status> {
    let image = Image::open(path, true, Caching::Buffered)?;
    let in_use = image.is_locked();
    let (geometry, salt) = (geometry_of(&image)?, image.deniable_salt()?);
    let store = store_of(&image, AREAS_AT + geometry.store_len())?;
    let key = std::slice::from_ref(key);
    let public = unlock(&image, &salt, (geometry, &store), key, &mut |_, _| {})?.public;
    let unlocked = unlocked(geometry, &salt, &public)?;
    let used = SlotsInUse::read(image.file(), &unlocked.keys).map_err(|e| image.failed("read", e));
    let slot =
        |slot| KeySlotStatus { slot, kind: "sealed", memory_kib: None, time: None, lanes: None };
    // Without the record the keys open all the same.
    let key_slots = used?.map(|used| used.keys().map(slot).collect()).unwrap_or_default();
    status_of(&*veiled(store, &unlocked.keys, &geometry), &unlocked, in_use, key_slots)
}

/// Lets `new` open the public volume; `key` is any key of it. Returns the number of its slot.
pub fn add_deniable_key(path: &Path, key: &UserKey, new: &UserKey) -> Result<usize> {
    PublicKeys::open(path, key)?.add(new)
}

/// Replaces `key` of the public volume by `new`: the new slot is durable before the old one is
/// wiped. Returns the number of the new slot.
pub fn change_deniable_key(path: &Path, key: &UserKey, new: &UserKey) -> Result<usize> {
    let mut keys = PublicKeys::open(path, key)?;
    let number = keys.add(new)?;
    keys.wipe(keys.slot)?;
    Ok(number)
}

/// Wipes a slot of the public volume: slot `number`, or else the one that `key` opens. The last key
/// cannot be removed.
pub fn remove_deniable_key(path: &Path, key: &UserKey, number: Option<usize>) -> Result<usize> {
    let mut keys = PublicKeys::open(path, key)?;
    let number = number.unwrap_or(keys.slot);
    if !keys.used.is_used(number) {
        return Err(Error::KeySlotEmpty(number));
    }
    if keys.used.keys().all(|holding| holding == number) {
        return Err(Error::LastKey);
    }
    keys.wipe(number)?;
    Ok(number)
}

/// The keys of the public volume in a locked image.
struct PublicKeys {
    image: Image,
    salt: ImageSalt,
    slots: DeniableSlots,
    public: PublicPart,
    keys: Keys,
    /// The slot that the given key opens.
    slot: usize,
    used: SlotsInUse,
}

impl PublicKeys {
    fn open(path: &Path, key: &UserKey) -> Result<Self> {
        let mut image = Image::open(path, false, Caching::Buffered)?;
        image.lock(false)?;
        geometry_of(&image)?;
        let (salt, slots) = (image.deniable_salt()?, image.deniable_slots()?);
        let found = slots.unlock(&salt, &salt.secrets(key)?)?;
        let (public, slot) = found.ok_or(Error::WrongKey)?;
        let keys = public.keys(&salt).map_err(|e| failed("lock memory", "memory".as_ref(), e))?;
        let used = SlotsInUse::read(image.file(), &keys).map_err(|e| image.failed("read", e))?;
        let used = used.ok_or(Error::SlotRecordDamaged)?.with(slot, SlotState::Key);
        Ok(Self { image, salt, slots, public, keys, slot, used })
    }

    /// Makes a slot for `new`. The slot is in use before it is written, and has a key afterwards:
    /// after a crash it may be lost, and no other key is.
    fn add(&mut self, new: &UserKey) -> Result<usize> {
        let secrets = self.salt.secrets(new)?;
        let geometry = geometry_of(&self.image)?;
        let store = store_of(&self.image, AREAS_AT + geometry.store_len())?;
        let place = (&store, AREAS_AT);
        let hidden = Deniable::find_records(geometry, place, &secrets.hidden, &mut |_, _| {})?;
        if self.slots.unlock(&self.salt, &secrets)?.is_some() || !hidden.is_empty() {
            return Err(Error::DeniableKeyTaken);
        }
        let number = self.used.first_empty()?;
        self.note(number, SlotState::Changing)?;
        let written = DeniableSlots::write(
            self.image.file(),
            number,
            &self.salt,
            (&secrets, &self.public),
            &mut System,
        );
        written.map_err(|e| self.failed(e))?;
        self.note(number, SlotState::Key)?;
        Ok(number)
    }

    fn wipe(&mut self, number: usize) -> Result {
        self.note(number, SlotState::Changing)?;
        let wiped = DeniableSlots::wipe(self.image.file(), number, &mut System);
        wiped.map_err(|e| self.failed(e))?;
        self.note(number, SlotState::Empty)
    }

    fn note(&mut self, number: usize, state: SlotState) -> Result {
        self.used = self.used.with(number, state);
        let written = self.used.write(self.image.file(), &self.keys, &mut System);
        written.map_err(|e| self.failed(e))
    }

    fn failed(&self, e: io::Error) -> Error {
        self.image.failed("write", e)
    }
}

fn store_of(image: &Image, len: u64) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(FileStore::new(image.try_clone()?, len, Caching::Buffered)))
}

#[cfg(test)]
mod tests {
    use super::super::{
        DeniableCreateOptions, DeniableOptions, DeniableVolume, OpenOptions, create_deniable,
    };
    use super::*;
    use traceless_core::seal::Cipher;

    fn key(byte: u8) -> UserKey {
        UserKey::from_file(vec![byte; 32].into()).unwrap()
    }

    /// An image with the public key 0 and the hidden volume of key 9.
    fn make_image(path: &Path) {
        let (size, cipher) = (Some(8 << 20), Cipher::AesGcm);
        let options = DeniableCreateOptions { size, cipher, force: false, anchor: None };
        create_deniable(path, &key(0), &options, &mut |_, _| true).unwrap();
        let options = DeniableOptions { overwrite_hidden: true, ..DeniableOptions::default() };
        let open = DeniableVolume::open(path, &[key(0)], &options, &mut |_, _| {}).unwrap();
        open.add_hidden(&key(9), 1 << 16).unwrap();
        assert!(matches!(open.add_hidden(&key(0), 1 << 16), Err(Error::DeniableKeyTaken)));
        open.cover(40).unwrap();
        open.volume().close().unwrap();
    }

    fn hidden_volumes(path: &Path, byte: u8) -> Result<usize> {
        let open = OpenOptions { read_only: true, ..OpenOptions::default() };
        let options = DeniableOptions { open, ..DeniableOptions::default() };
        let open = DeniableVolume::open(path, &[key(byte)], &options, &mut |_, _| {})?;
        Ok(open.hidden().len())
    }

    #[test]
    fn public_keys_are_added_changed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        make_image(&image);
        let slots = |byte| {
            let status = deniable_status(&image, &key(byte)).unwrap();
            status.key_slots.iter().map(|slot| slot.slot).collect::<Vec<_>>()
        };
        let is_wrong = |byte| matches!(deniable_status(&image, &key(byte)), Err(Error::WrongKey));
        assert_eq!(slots(0), [0]);
        assert!(matches!(remove_deniable_key(&image, &key(0), None), Err(Error::LastKey)));
        assert_eq!(add_deniable_key(&image, &key(0), &key(1)).unwrap(), 1);
        assert_eq!(change_deniable_key(&image, &key(0), &key(2)).unwrap(), 2);
        assert_eq!((slots(1), slots(2), is_wrong(0)), (vec![1, 2], vec![1, 2], true));
        assert_eq!(remove_deniable_key(&image, &key(2), Some(1)).unwrap(), 1);
        assert_eq!((slots(2), is_wrong(1)), (vec![2], true));
        let empty = remove_deniable_key(&image, &key(2), Some(1));
        assert!(matches!(empty, Err(Error::KeySlotEmpty(1))));
        for taken in [2, 9] {
            let added = add_deniable_key(&image, &key(2), &key(taken));
            assert!(matches!(added, Err(Error::DeniableKeyTaken)), "{taken}");
        }
        // A hidden key is a wrong one here, and what it opens stays.
        for wrong in [9, 7] {
            let added = add_deniable_key(&image, &key(wrong), &key(3));
            assert!(matches!(added, Err(Error::WrongKey)), "{wrong}");
        }
        assert_eq!(
            (hidden_volumes(&image, 9).unwrap(), hidden_volumes(&image, 2).unwrap()),
            (1, 0)
        );
    }

    #[test]
    fn the_status_is_the_public_volumes_with_any_key() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        make_image(&image);
        let text = |byte| format!("{:?}", deniable_status(&image, &key(byte)).unwrap());
        assert_eq!(text(0), text(9));
        let status = deniable_status(&image, &key(0)).unwrap();
        assert_eq!((status.scheme, status.size_bytes), ("deniable", 8 << 20));
        assert!(status.clean && !status.in_use && status.filled);
        assert_eq!(status.image_bytes, std::fs::metadata(&image).unwrap().len());
        assert!(matches!(deniable_status(&image, &key(8)), Err(Error::WrongKey)));
    }

    #[test]
    fn a_check_is_of_what_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        make_image(&image);
        let open = OpenOptions { read_only: true, ..OpenOptions::default() };
        let options = DeniableOptions { open, ..DeniableOptions::default() };
        for byte in [0, 9] {
            let open =
                DeniableVolume::open(&image, &[key(byte)], &options, &mut |_, _| {}).unwrap();
            let volume = open.volume();
            assert_eq!(volume.damaged_superblocks().unwrap(), [""; 0]);
            volume.verify(&mut |_, _| {}, &mut |place| panic!("{place} is damaged")).unwrap();
        }
    }
}
