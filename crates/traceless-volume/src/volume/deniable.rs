//! Deniable images: a public volume, and hidden ones that no number of copies of the image reveals.
//!
//! An image is random bytes from its first to its last: without a key it cannot be distinguished
//! from a file of random bytes, and with the public volume's key it cannot be found out whether
//! there are hidden volumes, or how many.

use super::create::{fill, make_scheme, open_new, reserve};
use super::hidden_device::HiddenDevice;
use super::image::{Image, UnlockedHeader, failed};
use super::{OpenOptions, Volume, check_ciphers, watched_store};
use crate::anchor_places::place_at;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::{
    AREAS_AT, Anchor, DeniableSlots, Features, Header, HiddenRecord, ImageSalt, MasterKey,
    PublicPart, SlotState, SlotsInUse, Superblock, UserKey, UserSecrets, VeiledStore,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless_block::deniable::{
    Deniable, DeniableGeometry, HIDDEN_MAX, HiddenKey, HiddenLane, LanePolicy,
};
use traceless_core::Error as OramError;
use traceless_core::oram::BlockOram;
use traceless_core::rng::System;
use traceless_core::seal::Cipher;
use traceless_core::store::{FileStore, Store, sync_folder_of};

/// Bytes of a block. They are fixed, as all sizes follow from the length of the image.
pub const DENIABLE_BLOCK_LEN: usize = 4096;

/// Options of [`create_deniable`].
pub struct DeniableCreateOptions {
    /// Bytes of the public volume; `None` fills a device.
    pub size: Option<u64>,
    /// The cipher that seals the public volume.
    pub cipher: Cipher,
    /// Overwrite an existing file or device.
    pub force: bool,
    /// Place of the anchor to make: a path, or a URL as of [`crate::anchor_places`].
    pub anchor: Option<PathBuf>,
}

/// Options for opening a deniable image.
#[derive(Clone, Default)]
pub struct DeniableOptions {
    /// How to open the image.
    pub open: OpenOptions,
    /// Open for writing although no hidden volume is open: **they are overwritten, if there are
    /// any.** Otherwise the opening is for reading only.
    pub overwrite_hidden: bool,
    /// Open a hidden volume although blocks of it were overwritten, or put back to older ones.
    pub accept_overwritten: bool,
}

/// Makes a deniable image at `path` with a public volume that `key` opens. `progress` gets the
/// bytes done and the total, and returns whether to go on. Returns the bytes of the public volume
/// and of the image.
pub fn create_deniable(
    path: &Path,
    key: &UserKey,
    options: &DeniableCreateOptions,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(u64, u64)> {
    check_ciphers(options.cipher)?;
    let existed = path.exists();
    if existed && !options.force {
        return Err(Error::Exists(path.into()));
    }
    let made = open_new(path, existed).and_then(|mut image| {
        image.lock(false)?;
        make(&image, key, options, progress)
    });
    if made.is_err() && !existed {
        let _ = std::fs::remove_file(path);
    }
    made
}

fn make(
    image: &Image,
    key: &UserKey,
    options: &DeniableCreateOptions,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(u64, u64)> {
    let geometry = new_geometry(image, options.size)?;
    let image_len = AREAS_AT + geometry.store_len();
    reserve(image, image_len, false)?;
    // A device is filled to its end.
    let end = image.len()?.max(image_len);
    fill(image, 0, end, progress)?;
    let salt = ImageSalt::read(image.file()).map_err(|e| image.failed("read", e))?;
    let master = MasterKey::random(&mut System).map_err(|e| image.failed("lock memory", e))?;
    let public = PublicPart { master, cipher: options.cipher };
    let UnlockedHeader { header, keys, .. } = unlocked(geometry, &salt, &public)?;
    let keys = Arc::new(keys);
    let anchor = match &options.anchor {
        Some(address) => {
            let place = place_at(address, image.path())?;
            Some(Arc::new(Anchor::create(place, keys.clone(), options.force)?))
        }
        None => None,
    };
    let file = FileStore::new(image.try_clone()?, image_len, image.caching());
    let store = veiled(Arc::new(file), &keys, &geometry);
    let blank = Superblock { generation: 0, chain: [0; 32], state: vec![] };
    make_scheme(store, &header, &keys, anchor.as_ref(), blank)?;
    let used = SlotsInUse::NONE.with(0, SlotState::Key);
    DeniableSlots::write(image.file(), 0, &salt, (&salt.secrets(key)?, &public), &mut System)
        .and_then(|()| used.write(image.file(), &keys, &mut System))
        .and_then(|()| image.file().sync_all())
        .map_err(|e| image.failed("write", e))?;
    let path = image.path();
    sync_folder_of(path).map_err(|e| failed("sync the folder of", path, e))?;
    Ok((geometry.public.blocks * DENIABLE_BLOCK_LEN as u64, image_len))
}

/// A device is used whole, so that its length gives the sizes when it is opened.
fn new_geometry(image: &Image, size: Option<u64>) -> Result<DeniableGeometry> {
    match (image.is_device()?, size) {
        (false, Some(size)) => {
            let blocks = size.div_ceil(DENIABLE_BLOCK_LEN as u64);
            Ok(DeniableGeometry::new(blocks, DENIABLE_BLOCK_LEN)?)
        }
        (true, None) => geometry_of(image),
        _ => Err(Error::DeniableSize),
    }
}

/// The geometry that the length of an image gives.
pub(super) fn geometry_of(image: &Image) -> Result<DeniableGeometry> {
    let areas = image.len()?.saturating_sub(AREAS_AT);
    let geometry = DeniableGeometry::fitting(areas, DENIABLE_BLOCK_LEN);
    let geometry = geometry.ok_or_else(|| Error::NotAVolume(image.path().into()))?;
    if !image.is_device()? && geometry.store_len() != areas {
        return Err(Error::NotAVolume(image.path().into()));
    }
    Ok(geometry)
}

pub(super) fn unlocked(
    geometry: DeniableGeometry,
    salt: &ImageSalt,
    public: &PublicPart,
) -> Result<UnlockedHeader> {
    let keys = public.keys(salt).map_err(|e| failed("lock memory", Path::new("memory"), e))?;
    let (scheme, features) = (Arc::new(geometry), Features::default());
    let header = Header::new(salt.uuid(), features, scheme, public.cipher);
    Ok(UnlockedHeader { header, keys, slot: 0 })
}

pub(super) fn veiled(
    store: Arc<dyn Store>,
    keys: &crate::format::Keys,
    geometry: &DeniableGeometry,
) -> Arc<dyn Store> {
    let areas = geometry.veiled().into_iter().map(|(at, layout)| (AREAS_AT + at, layout));
    Arc::new(VeiledStore::new(store, keys, areas.collect()))
}

/// What the user's keys have opened: the public volume, and hidden ones, the least secret first.
pub(super) struct Unlocked {
    pub public: PublicPart,
    pub hidden: Vec<HiddenKey>,
}

/// An open deniable image.
pub struct DeniableVolume {
    volume: Arc<Volume>,
    slots: DeniableSlots,
    pub(super) lane: HiddenLane,
    /// The hidden volumes that were opened or added, by their numbers on the lane.
    hidden: Vec<HiddenKey>,
    public: PublicPart,
    salt: ImageSalt,
}

impl DeniableVolume {
    /// Opens the image at `path` with all of `keys`: each opens the public volume alone, or a
    /// hidden one with all less secret ones that it was made beside. If none opens a hidden volume,
    /// it is opened for reading only, unless `overwrite_hidden`.
    pub fn open(
        path: &Path,
        keys: &[UserKey],
        options: &DeniableOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let mut image = Image::open(path, options.open.read_only, options.open.caching)?;
        image.lock(options.open.read_only && !options.open.exclusive)?;
        let geometry = geometry_of(&image)?;
        let (salt, slots) = (image.deniable_salt()?, image.deniable_slots()?);
        let store = watched_store(&image, AREAS_AT + geometry.store_len(), &options.open)?;
        let unlocked_parts = unlock(&image, &salt, (geometry, &store), keys, progress)?;
        let Unlocked { public, hidden } = unlocked_parts;
        let read_only = options.open.read_only || (hidden.is_empty() && !options.overwrite_hidden);
        let open = OpenOptions { read_only, ..options.open.clone() };
        let policy =
            if options.accept_overwritten { LanePolicy::Accept } else { LanePolicy::Refuse };
        let header = unlocked(geometry, &salt, &public)?;
        let store = veiled(store, &header.keys, &geometry);
        let mut lane = None;
        let volume = Volume::open_on(store, image, header, &open, |_, context, state| {
            let hidden = (&hidden[..], policy);
            let opened = Deniable::open(geometry, context, state, hidden, progress)?;
            lane = Some(opened.hidden().clone());
            Ok(Box::new(opened) as Box<dyn BlockOram>)
        })?;
        let lane = lane.expect("it was opened");
        let opened = Self { volume: Arc::new(volume), slots, lane, hidden, public, salt };
        opened.forget_removed()?;
        Ok(opened)
    }

    /// The public volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The public volume as a device.
    pub fn device(&self) -> Arc<dyn Device> {
        self.volume.clone()
    }

    /// The hidden volumes, the least secret first.
    pub fn hidden(&self) -> Vec<HiddenDevice> {
        let numbers = 0..HIDDEN_MAX;
        numbers.filter_map(|number| Some(HiddenDevice::new(self.lane.volume(number)?))).collect()
    }

    /// Bytes that a further hidden volume can have, if all are open that there are.
    pub fn hidden_room(&self) -> u64 {
        self.lane.room() * DENIABLE_BLOCK_LEN as u64
    }

    /// Adds a hidden volume of `size` bytes that `key` opens, together with all that are open now.
    /// It is durable once enough public writes were made and synced.
    pub fn add_hidden(&self, key: &UserKey, size: u64) -> Result<HiddenDevice> {
        let secrets = self.salt.secrets(key)?;
        let opens_slot = self.slots.unlock(&self.salt, &secrets)?.is_some();
        let UserSecrets { hidden: secret, .. } = secrets;
        if opens_slot || self.hidden.iter().any(|known| known.secret.bytes() == secret.bytes()) {
            return Err(Error::DeniableKeyTaken);
        }
        let blocks = size.div_ceil(DENIABLE_BLOCK_LEN as u64);
        let below = (0..).zip(&self.hidden);
        let below = below.filter(|(number, _)| self.lane.volume(*number).is_some());
        let record = self.new_record(blocks, below.map(|(_, hidden)| hidden.clone()).collect())?;
        let hidden = self.lane.add(&secret, blocks, &record.encode(DENIABLE_BLOCK_LEN))?;
        Ok(HiddenDevice::new(hidden))
    }

    /// The record of a hidden volume of `blocks` blocks, with a key that also opens the ones
    /// of `below`.
    fn new_record(&self, blocks: u64, below: Vec<HiddenKey>) -> Result<HiddenRecord> {
        let public =
            self.public.duplicate().map_err(|e| failed("lock memory", "memory".as_ref(), e));
        Ok(HiddenRecord { removed: false, blocks, public: public?, below })
    }

    /// Writes the damaged records of open hidden volumes anew, `most` at most, and returns the
    /// numbers of these volumes, which their own keys did not open.
    pub(super) fn restore_records(&self, most: usize) -> Result<Vec<usize>> {
        let is_damaged = |number: &usize| {
            self.lane.volume(*number).is_some()
                && matches!(self.lane.record(*number), Err(OramError::Tampered { .. }))
        };
        let damaged: Vec<usize> = (0..self.hidden.len()).filter(is_damaged).collect();
        let mut restored = vec![];
        for number in damaged {
            if restored.len() < most
                && let Some(below) = self.known_below(number)
            {
                let record = self.new_record(self.hidden[number].blocks, below)?;
                self.lane.write_record(number, &record.encode(DENIABLE_BLOCK_LEN))?;
                restored.push(number);
            }
        }
        Ok(restored)
    }

    /// The hidden volumes that the record of a more secret one names before the one of this number.
    /// Other open volumes may belong to a further key, and the record must not name them.
    fn known_below(&self, number: usize) -> Option<Vec<HiddenKey>> {
        let secret = self.hidden[number].secret.bytes();
        let records = (0..self.hidden.len()).filter_map(|other| self.lane.record(other).ok());
        let mut lists =
            records.filter_map(|record| Some(HiddenRecord::decode(&record).ok()?.below));
        lists.find_map(|mut below| {
            let place = below.iter().position(|known| known.secret.bytes() == secret)?;
            below.truncate(place);
            Some(below)
        })
    }

    /// Removes the most secret of the open hidden volumes: its key opens nothing any more once
    /// enough public writes were made and synced, and its blocks are overwritten in turn.
    pub fn remove_hidden(&self) -> Result {
        let last = (0..self.hidden.len()).rev().find(|number| self.lane.volume(*number).is_some());
        let last = last.ok_or(Error::NothingHidden)?;
        let mut record = HiddenRecord::decode(&self.lane.record(last)?)?;
        record.removed = true;
        Ok(self.lane.write_record(last, &record.encode(DENIABLE_BLOCK_LEN))?)
    }

    /// Makes `writes` public writes that change nothing, and syncs. Each brings one slot of the
    /// lane.
    pub fn cover(&self, writes: u32) -> Result {
        (0..writes).try_for_each(|_| self.volume.write_dummy())?;
        self.volume.flush_all()
    }

    /// What ends hidden requests that wait for public writes, as no more will come.
    pub fn waiting_end(&self) -> impl Fn() + Send + 'static {
        let lane = self.lane.clone();
        move || lane.stop_waiting()
    }

    /// Whether hidden blocks wait for their slots.
    pub fn has_waiting(&self) -> bool {
        self.lane.has_waiting()
    }

    /// A less secret volume that was removed, or overwritten as a whole, is not kept. One with a
    /// damaged record is.
    fn forget_removed(&self) -> Result {
        for number in 0..self.hidden.len() {
            let is_there = match self.lane.record(number) {
                Err(OramError::Tampered { .. }) => true,
                record => HiddenRecord::decode(&record?).is_ok_and(|record| !record.removed),
            };
            if !is_there {
                self.lane.forget(number);
            }
        }
        Ok(())
    }
}

/// Opens key slots and hidden records with `keys`.
pub(super) fn unlock(
    image: &Image,
    salt: &ImageSalt,
    (geometry, store): (DeniableGeometry, &Arc<dyn Store>),
    keys: &[UserKey],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Unlocked> {
    let slots = image.deniable_slots()?;
    let mut public = None;
    let mut hidden: Vec<HiddenKey> = vec![];
    for key in keys {
        let secrets = salt.secrets(key)?;
        if let Some((found, _)) = slots.unlock(salt, &secrets)? {
            public.get_or_insert(found);
            continue;
        }
        let place = (store, AREAS_AT);
        let records = Deniable::find_records(geometry, place, &secrets.hidden, progress)?;
        let record = records.first().map(|record| HiddenRecord::decode(record)).transpose()?;
        let record = record.filter(|record| !record.removed).ok_or(Error::WrongKey)?;
        let own = HiddenKey { secret: secrets.hidden, blocks: record.blocks };
        for key in record.below.into_iter().chain([own]) {
            if !hidden.iter().any(|known| known.secret.bytes() == key.secret.bytes()) {
                hidden.push(key);
            }
        }
        public.get_or_insert(record.public);
    }
    Ok(Unlocked { public: public.ok_or(Error::WrongKey)?, hidden })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn key(byte: u8) -> UserKey {
        UserKey::from_file(vec![byte; 32].into()).unwrap()
    }

    fn options() -> DeniableCreateOptions {
        let (size, cipher) = (Some(8 << 20), Cipher::AesGcm);
        DeniableCreateOptions { size, cipher, force: false, anchor: None }
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            create_deniable(&folder.image(), &key(0), &options(), &mut |_, _| true).unwrap();
            folder
        }

        fn image(&self) -> PathBuf {
            self.0.path().join("image")
        }

        fn open(&self, keys: &[u8], overwrite_hidden: bool) -> Result<DeniableVolume> {
            let keys: Vec<_> = keys.iter().map(|byte| key(*byte)).collect();
            let options = DeniableOptions { overwrite_hidden, ..DeniableOptions::default() };
            DeniableVolume::open(&self.image(), &keys, &options, &mut |_, _| {})
        }

        /// Adds the hidden volume of key `byte` beside all that the keys of `beside` open.
        fn add(&self, byte: u8, beside: &[u8]) {
            let volume = self.open(beside, true).unwrap();
            volume.add_hidden(&key(byte), 1 << 16).unwrap();
            volume.cover(40).unwrap();
            assert!(!volume.has_waiting());
            volume.volume().close().unwrap();
        }
    }

    fn bytes_at(device: &dyn Device, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        device.read(at, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn hidden_volumes_open_with_the_less_secret_ones() {
        let folder = Folder::new();
        folder.add(1, &[0]);
        folder.add(2, &[1]);
        let open = folder.open(&[2], false).unwrap();
        let hidden = open.hidden();
        assert_eq!(hidden.len(), 2);
        open.volume().write_at(5000, b"public").unwrap();
        hidden[0].write(4090, b"less secret").unwrap();
        hidden[1].write(60_000, &[7; 5000]).unwrap();
        open.cover(20).unwrap();
        for device in &hidden {
            device.flush().unwrap();
        }
        open.volume().close().unwrap();
        // The devices have the image open as well.
        drop((hidden, open));

        let open = folder.open(&[1], false).unwrap();
        assert_eq!(bytes_at(&open.hidden()[0], 4090, 11), b"less secret");
        assert_eq!((open.hidden().len(), bytes_at(open.volume(), 5000, 6)), (1, b"public".into()));
        drop(open);
        let open = folder.open(&[0], false).unwrap();
        assert!(open.hidden().is_empty() && open.volume().read_only());
        assert_eq!(bytes_at(open.volume(), 5000, 6), b"public");
        assert!(open.volume().write_at(0, b"x").is_err());
        drop(open);
        // A second key protects a hidden volume of an opening with the public one.
        let open = folder.open(&[0, 2], false).unwrap();
        assert!(!open.volume().read_only());
        assert_eq!(bytes_at(&open.hidden()[1], 60_000, 5000), [7; 5000]);
        drop(open);
        assert!(matches!(folder.open(&[9], true), Err(Error::WrongKey)));
    }

    #[test]
    fn a_removed_volume_opens_no_more_and_the_rest_goes_on() {
        let folder = Folder::new();
        folder.add(1, &[0]);
        folder.add(2, &[1]);
        let open = folder.open(&[1], false).unwrap();
        open.remove_hidden().unwrap();
        open.cover(10).unwrap();
        open.volume().close().unwrap();
        drop(open);
        assert!(matches!(folder.open(&[1], false), Err(Error::WrongKey)));
        let open = folder.open(&[2], false).unwrap();
        assert_eq!(open.hidden().len(), 1, "the more secret one knows it no more");
        drop(open);
        let open = folder.open(&[0], true).unwrap();
        assert!(matches!(open.remove_hidden(), Err(Error::NothingHidden)));
    }

    #[test]
    fn an_image_is_random_bytes_from_the_first_to_the_last() {
        let folder = Folder::new();
        let uniform = |what: &str| {
            let bytes = std::fs::read(folder.image()).unwrap();
            // In pieces of a stripe's header: the sum over all byte values of the squared
            // difference from the mean is about 255, and six standard deviations are 136.
            for (nth, piece) in bytes.chunks_exact(4096).enumerate() {
                let mut counts = [0f64; 256];
                for &byte in piece {
                    counts[usize::from(byte)] += 1.0;
                }
                let found: f64 = counts.iter().map(|n| (n - 16.0).powi(2) / 16.0).sum();
                assert!((110.0..410.0).contains(&found), "{what}, page {nth}: {found}");
            }
        };
        uniform("new");
        folder.add(1, &[0]);
        let open = folder.open(&[1], false).unwrap();
        for nth in 0..300 {
            open.volume().write_at(nth * 512, &[1; 512]).unwrap();
            open.hidden()[0].write(nth * 128, &[2; 128]).unwrap();
        }
        open.cover(1).unwrap();
        uniform("in use");
        open.volume().close().unwrap();
        uniform("closed");
        let stat = std::fs::metadata(folder.image()).unwrap();
        assert!(stat.blocks() * 512 >= stat.len(), "there is no hole");
    }

    #[test]
    fn what_is_no_deniable_image_is_refused() {
        let folder = Folder::new();
        let (image, open) = (folder.image(), || folder.open(&[0], false));
        let bytes = std::fs::read(&image).unwrap();
        for len in [0, 100, 1 << 16, bytes.len() - 1, bytes.len() - 4096] {
            std::fs::write(&image, &bytes[..len]).unwrap();
            assert!(open().is_err(), "{len} bytes");
        }
        std::fs::write(&image, &bytes).unwrap();
        open().unwrap();
        let again = create_deniable(&image, &key(0), &options(), &mut |_, _| true);
        assert!(matches!(again, Err(Error::Exists(_))));
        let sized = DeniableCreateOptions { size: None, force: true, ..options() };
        let none = create_deniable(&image, &key(0), &sized, &mut |_, _| true);
        assert!(matches!(none, Err(Error::DeniableSize)));
    }
}
