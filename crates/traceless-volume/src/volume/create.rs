//! Making a volume.
//!
//! The image is first filled with a keystream. Then areas, superblocks and key slots are written,
//! and the header last, so that an interrupted creation leaves no volume.

use super::image::{Image, failed};
use super::{check_ciphers, scheme_context};
use crate::anchor_places::place_at;
use crate::error::{Error, Result};
use crate::format::{
    AREAS_AT, Anchor, Features, Header, Kdf, KeySlot, KeySlots, Keys, MasterKey, Superblock,
    UserKey,
};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread;
use traceless_core::rng::{Rng, System};
use traceless_core::scheme::contract::BlockScheme;
use traceless_core::seal::{Cipher, Keystream, Secret};
use traceless_core::store::sync_folder_of;
use traceless_core::store::{FileStore, Store};

/// Bytes of each write that fills the image.
const FILL_CHUNK: usize = 1 << 20;

/// Options of [`create`].
pub struct CreateOptions {
    /// The scheme and its sizes.
    pub scheme: Arc<dyn BlockScheme>,
    /// The cipher that seals the scheme's areas.
    pub cipher: Cipher,
    /// The cost of guessing passphrases.
    pub kdf: Kdf,
    /// Overwrite an existing file or device.
    pub force: bool,
    /// Leave holes instead of ciphertext: quick, but reveals which blocks were never written. For
    /// tests.
    pub unfilled: bool,
    /// Place of the anchor to make: a path, or a URL as of [`crate::anchor_places`].
    pub anchor: Option<PathBuf>,
}

/// The outcome of [`create`].
#[derive(Clone, Debug)]
pub struct CreateReport {
    /// The header.
    pub header: Header,
    /// Generation of the newest superblock.
    pub generation: u64,
}

/// Makes a volume at `path` that `key` opens. `progress` gets the bytes done and the total, and
/// returns whether to go on. If anything fails, a file that did not exist before is removed.
pub fn create(
    path: &Path,
    key: &UserKey,
    options: &CreateOptions,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<CreateReport> {
    let existed = path.exists();
    if existed && !options.force {
        return Err(Error::Exists(path.into()));
    }
    check_ciphers(options.cipher)?;
    let mut rng = System;
    let mut uuid = [0; 16];
    rng.fill(&mut uuid);
    let unfilled = if options.unfilled { Features::UNFILLED } else { 0 };
    let features = Features { incompatible: unfilled, ..Features::default() };
    let header = Header::new(uuid, features, options.scheme.clone(), options.cipher);
    // These steps are slow and may fail, so they come before the image is touched.
    let master = MasterKey::random(&mut rng).map_err(|e| failed("lock memory", path, e))?;
    let slot = KeySlot::wrap(&master, &uuid, key, options.kdf, &mut rng)?;
    let keys = Arc::new(Keys::new(master, uuid));
    let made = open_new(path, existed).and_then(|mut image| {
        image.lock(false)?;
        make(&image, &header, &slot, &keys, options, progress)
    });
    if made.is_err() && !existed {
        let _ = std::fs::remove_file(path);
    }
    made.map(|generation| CreateReport { header, generation })
}

pub(super) fn open_new(path: &Path, existed: bool) -> Result<Image> {
    if existed {
        return Image::open(path, false, traceless_core::store::Caching::Buffered);
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| failed("create", path, e))?;
    Ok(Image::from_file(file, path))
}

fn make(
    image: &Image,
    header: &Header,
    slot: &KeySlot,
    keys: &Arc<Keys>,
    options: &CreateOptions,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<u64> {
    reserve(image, header.image_len, options.unfilled)?;
    let filled = if options.unfilled { AREAS_AT } else { header.image_len };
    fill(image, 0, filled, progress)?;
    let anchor = match &options.anchor {
        Some(address) => {
            let place = place_at(address, image.path())?;
            Some(Arc::new(Anchor::create(place, keys.clone(), options.force)?))
        }
        None => None,
    };
    let store = Arc::new(FileStore::new(image.try_clone()?, header.image_len, image.caching()));
    let blank = Superblock { generation: 0, chain: [0; 32], state: vec![] };
    let generation = make_scheme(store, header, keys, anchor.as_ref(), blank)?;
    let file = image.file();
    let write = |what, result: io::Result<()>| result.map_err(|e| image.failed(what, e));
    write("write", KeySlots::write(file, 0, slot, &mut System))?;
    write("write", file.write_all_at(&header.encode(keys), 0))?;
    write("sync", file.sync_all())?;
    let path = image.path();
    sync_folder_of(path).map_err(|e| failed("sync the folder of", path, e))?;
    Ok(generation)
}

/// Makes the scheme's areas, and closes the scheme. The superblocks continue from `before`; returns
/// the newest generation.
pub(super) fn make_scheme(
    store: Arc<dyn Store>,
    header: &Header,
    keys: &Arc<Keys>,
    anchor: Option<&Arc<Anchor>>,
    before: Superblock,
) -> Result<u64> {
    let newest = Arc::new(Mutex::new(before));
    let parts = scheme_context(store, (keys, header.cipher), &newest, anchor, false);
    header.scheme.create_block(parts)?.close()?;
    let generation = newest.lock().expect("nothing panics under this lock").generation;
    Ok(generation)
}

/// Makes sure that there is enough space, as far as the system knows in advance.
pub(super) fn reserve(image: &Image, len: u64, unfilled: bool) -> Result {
    if image.is_device()? {
        let available = image.len()?;
        if available < len {
            let path = image.path().into();
            return Err(Error::TooSmall { path, needed: len, available });
        }
        return Ok(());
    }
    let file = image.file();
    // Truncation drops the old contents, so that unwritten parts are holes.
    file.set_len(0).and_then(|()| file.set_len(len)).map_err(|e| image.failed("resize", e))?;
    if unfilled {
        return Ok(());
    }
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len) {
        // Without support for reservation, a lack of space shows up while the image is filled.
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        Err(e) => Err(image.failed("reserve space", e.into())),
    }
}

/// Fills the bytes from `at` to `end` with a keystream, which is indistinguishable from ciphertext.
/// One thread computes it, and the calling thread writes it.
pub(super) fn fill(
    image: &Image,
    mut at: u64,
    end: u64,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result {
    let (full, ready) = sync_channel::<Vec<u8>>(1);
    let (spare, empty) = sync_channel::<Vec<u8>>(2);
    thread::scope(|scope| {
        // This thread ends when the other end of either channel is dropped.
        scope.spawn(move || {
            let mut stream = Keystream::new(&Secret::random(&mut System));
            while let Ok(mut chunk) = empty.recv() {
                stream.apply(&mut chunk);
                if full.send(chunk).is_err() {
                    return;
                }
            }
        });
        for _ in 0..2 {
            let _ = spare.send(vec![0; FILL_CHUNK]);
        }
        while at < end {
            if !progress(at, end) {
                return Err(Error::Interrupted);
            }
            let chunk = ready.recv().expect("the maker runs until it is stopped");
            let part = &chunk[..(end - at).min(FILL_CHUNK as u64) as usize];
            image.file().write_all_at(part, at).map_err(|e| image.failed("fill", e))?;
            at += part.len() as u64;
            let _ = spare.send(chunk);
        }
        drop((spare, ready));
        progress(end, end);
        Ok(())
    })
}
