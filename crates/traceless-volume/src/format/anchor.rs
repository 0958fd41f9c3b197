//! The anchor: a small file, kept away from the image, that records how far a volume had come. An
//! image that is older than its anchor was rolled back.
//!
//! The file has two records of 4096 bytes, written in turn, so that a crash leaves one of them
//! whole.

use super::{Keys, SourceState, u64_at};
use crate::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use traceless_core::store::sync_folder_of;

const MAGIC: [u8; 8] = *b"TLANCHOR";
const RECORD_LEN: usize = 4096;
const TAG_AT: usize = 88;
const USED_LEN: usize = TAG_AT + 32;

/// The contents of an anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AnchorState {
    /// Records written before this one.
    pub sequence: u64,
    /// Generation of the newest superblock.
    pub generation: u64,
    /// Chain of the newest superblock.
    pub chain: [u8; 32],
    /// Number of writes that an acknowledged flush made durable.
    pub count: u64,
}

impl AnchorState {
    /// The record in `bytes`, if it is whole and of this volume.
    pub fn decode(keys: &Keys, bytes: &[u8]) -> Option<Self> {
        if bytes.len() < USED_LEN || bytes[..8] != MAGIC || bytes[8..24] != *keys.uuid() {
            return None;
        }
        let fits = keys.anchor().mac(&bytes[..TAG_AT]).fits(&bytes[TAG_AT..USED_LEN]);
        fits.then(|| Self {
            sequence: u64_at(bytes, 24),
            generation: u64_at(bytes, 32),
            chain: bytes[40..72].try_into().expect("32 bytes"),
            count: u64_at(bytes, 72),
        })
    }

    fn encode(&self, keys: &Keys) -> Vec<u8> {
        let mut out = vec![0; RECORD_LEN];
        out[..8].copy_from_slice(&MAGIC);
        out[8..24].copy_from_slice(keys.uuid());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.generation.to_le_bytes());
        out[40..72].copy_from_slice(&self.chain);
        out[72..80].copy_from_slice(&self.count.to_le_bytes());
        let tag = keys.anchor().mac(&out[..TAG_AT]);
        out[TAG_AT..USED_LEN].copy_from_slice(tag.bytes());
        out
    }
}

/// An open anchor file; it is locked unless it was opened for reading only.
pub struct Anchor {
    file: File,
    path: PathBuf,
    keys: Arc<Keys>,
    state: Mutex<AnchorState>,
}

impl Anchor {
    /// Makes a new anchor. An existing file is overwritten only with `force`.
    pub fn create(path: &Path, keys: Arc<Keys>, force: bool) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let options = if force { options.create(true) } else { options.create_new(true) };
        let file = match options.open(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::Exists(path.into()));
            }
            other => other.map_err(|e| failed("create", path, e))?,
        };
        let anchor = Self { file, path: path.into(), keys, state: Mutex::default() };
        anchor.lock()?;
        anchor.file.set_len(0).map_err(|e| failed("empty", path, e))?;
        anchor.note(|_| {}).map_err(|e| failed("write", path, e))?;
        Ok(anchor)
    }

    /// Refuses to overwrite a file that is not an anchor.
    pub fn refuse_foreign_file(path: &Path) -> Result {
        let mut found = [0; MAGIC.len()];
        let read = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.and_then(|file| file.read_exact_at(&mut found, 0)),
        };
        if read.is_ok() && found == MAGIC { Ok(()) } else { Err(Error::Exists(path.into())) }
    }

    /// The path of the anchor that will replace the one at `path`.
    pub fn coming(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        name.into()
    }

    /// Makes the anchor that will replace the one at `path`, for a volume in this state. The new
    /// anchor must not be open.
    pub fn prepare(path: &Path, keys: Arc<Keys>, state: &SourceState) -> Result {
        let coming = Self::coming(path);
        let anchor = Self::create(&coming, keys, true)?;
        anchor
            .note(|next| {
                next.generation = state.generation;
                next.chain = state.chain;
                next.count = state.writes;
            })
            .and_then(|()| sync_folder_of(path))
            .map_err(|e| failed("write", &coming, e))
    }

    /// Moves the prepared anchor to `path`.
    pub fn replace(path: &Path) -> Result {
        std::fs::rename(Self::coming(path), path)
            .and_then(|()| sync_folder_of(path))
            .map_err(|e| failed("replace", path, e))
    }

    /// Removes a prepared anchor that was never moved to its place.
    pub fn forget_coming(path: &Path) -> Result {
        let coming = Self::coming(path);
        match std::fs::remove_file(&coming) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => {
                other.and_then(|()| sync_folder_of(path)).map_err(|e| failed("remove", &coming, e))
            }
        }
    }

    /// Opens an anchor of this volume. With `read_only` it is not locked, and must not be changed.
    pub fn open(path: &Path, keys: Arc<Keys>, read_only: bool) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .open(path)
            .map_err(|e| failed("open", path, e))?;
        let mut bytes = vec![0; 2 * RECORD_LEN];
        let mut have = 0;
        while have < bytes.len() {
            match file
                .read_at(&mut bytes[have..], have as u64)
                .map_err(|e| failed("read", path, e))?
            {
                0 => break,
                n => have += n,
            }
        }
        let newest = bytes
            .chunks_exact(RECORD_LEN)
            .filter_map(|record| AnchorState::decode(&keys, record))
            .max_by_key(|state| state.sequence);
        let Some(state) = newest else { return Err(Error::Anchor(path.into())) };
        let anchor = Self { file, path: path.into(), keys, state: Mutex::new(state) };
        if !read_only {
            anchor.lock()?;
        }
        Ok(anchor)
    }

    /// The recorded state.
    pub fn state(&self) -> AnchorState {
        *self.state.lock().expect("nothing panics under this lock")
    }

    /// Records a new superblock, durably.
    pub fn note_generation(&self, generation: u64, chain: [u8; 32]) -> io::Result<()> {
        self.note(|state| {
            state.generation = generation;
            state.chain = chain;
        })
    }

    /// Records durably that `count` writes are durable.
    pub fn note_count(&self, count: u64) -> io::Result<()> {
        if self.state().count >= count {
            return Ok(());
        }
        self.note(|state| state.count = state.count.max(count))
    }

    fn note(&self, change: impl FnOnce(&mut AnchorState)) -> io::Result<()> {
        let mut state = self.state.lock().expect("nothing panics under this lock");
        let mut next = *state;
        change(&mut next);
        next.sequence += 1;
        let at = (next.sequence % 2) * RECORD_LEN as u64;
        self.file.write_all_at(&next.encode(&self.keys), at)?;
        self.file.sync_data()?;
        *state = next;
        Ok(())
    }

    fn lock(&self) -> Result {
        self.file.try_lock().map_err(|_| Error::Busy(self.path.clone()))
    }
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { what, path: path.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_through_damage_to_one_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anchor");
        let keys = Arc::new(Keys::for_fuzzing());
        let anchor = Anchor::create(&path, keys.clone(), false).unwrap();
        anchor.note_generation(7, [1; 32]).unwrap();
        anchor.note_count(40).unwrap();
        anchor.note_count(41).unwrap();
        let state = anchor.state();
        assert!(matches!(Anchor::open(&path, keys.clone(), false), Err(Error::Busy(_))));
        drop(anchor);
        assert!(matches!(Anchor::create(&path, keys.clone(), false), Err(Error::Exists(_))));
        assert_eq!(Anchor::open(&path, keys.clone(), false).unwrap().state(), state);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0xff], (state.sequence % 2) * RECORD_LEN as u64 + 75).unwrap();
        assert_eq!(Anchor::open(&path, keys.clone(), false).unwrap().state().count, 40);
        file.set_len(0).unwrap();
        assert!(matches!(Anchor::open(&path, keys, false), Err(Error::Anchor(_))));
    }

    #[test]
    fn a_record_is_whole_and_of_this_volume() {
        let keys = Keys::for_fuzzing();
        let state = AnchorState { sequence: 3, generation: 2, chain: [9; 32], count: 7 };
        let record = state.encode(&keys);
        for len in 0..record.len() {
            let want = (len >= USED_LEN).then_some(state);
            assert_eq!(AnchorState::decode(&keys, &record[..len]), want, "{len} bytes");
        }
        // Records with a wrong magic or volume, but with a valid tag, as a holder of the key could
        // make.
        for byte in [0, 7, 8, 23] {
            let mut other = record.clone();
            other[byte] ^= 1;
            let tag = keys.anchor().mac(&other[..TAG_AT]);
            other[TAG_AT..USED_LEN].copy_from_slice(tag.bytes());
            assert_eq!(AnchorState::decode(&keys, &other), None, "byte {byte}");
        }
    }

    #[test]
    fn failures_are_named_for_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, file) = (folder.path().join("none/anchor"), folder.path().join("file"));
        let keys = Arc::new(Keys::for_fuzzing());
        let created = Anchor::create(&missing, keys, false).map(drop);
        assert!(matches!(created, Err(Error::Io { .. })), "{created:?}");
        std::fs::write(&file, "something else").unwrap();
        assert!(Anchor::refuse_foreign_file(&missing).is_ok(), "there is nothing to refuse");
        for other in [&file, &file.join("below"), &folder.path().to_owned()] {
            let refused = Anchor::refuse_foreign_file(other);
            assert!(matches!(refused, Err(Error::Exists(_))), "{refused:?}");
        }
        assert!(Anchor::forget_coming(&file).is_ok(), "none was prepared");
        std::fs::create_dir(Anchor::coming(&file)).unwrap();
        assert!(Anchor::forget_coming(&file).is_err(), "it is there and stays");
    }
}
