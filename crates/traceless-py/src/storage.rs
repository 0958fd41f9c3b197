//! Files that arrays and maps lie in: made, opened, locked, and recorded.

use crate::failure::{Failure, FailureKind, Result};
use pyo3::prelude::*;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless::seal::Secret;
use traceless::store::{Caching, FileStore, Store, WatchedStore, sync_folder_of};
use traceless_core::clock::Monotonic;
use traceless_core::seal::SECRET_LEN;
use traceless_core::trace::FileWitness;
use zeroize::Zeroizing;

use crate::buffer::InputBuffer;

/// What the caller says about a file.
pub struct StorageArgs {
    file: PathBuf,
    key: Secret,
    trace: Option<PathBuf>,
}

impl StorageArgs {
    /// The arguments of a constructor; `None` where the data lies in memory.
    pub fn of(
        file: Option<PathBuf>,
        key: Option<&Bound<'_, PyAny>>,
        trace: Option<PathBuf>,
    ) -> Result<Option<Self>> {
        match (file, key) {
            (Some(file), Some(key)) => Ok(Some(Self { file, key: secret(key)?, trace })),
            (Some(_), None) => Err(Failure::usage("what lies in a file is sealed: give its `key`")),
            (None, Some(_)) => Err(Failure::usage("a `key` goes with a `file`")),
            (None, None) if trace.is_some() => {
                Err(Failure::usage("a `trace` records accesses to a file: give a `file`"))
            }
            (None, None) => Ok(None),
        }
    }

    /// A new file of `len` bytes.
    pub fn create(self, len: u64) -> Result<Storage> {
        let failed = |error| Failure::opening("create", &self.file, &error);
        let file = options().create_new(true).mode(0o600).open(&self.file).map_err(failed)?;
        lock(&file, &self.file)?;
        let sized = file.set_len(len).map_err(|e| Failure::opening("resize", &self.file, &e));
        let storage = sized.and_then(|()| self.storage(file, len));
        if storage.is_err() {
            // The error that comes first is the one to report.
            let _ = std::fs::remove_file(&self.file);
        }
        storage
    }

    /// The file that is there, which must have at least `len` bytes.
    pub fn open(self, len: u64) -> Result<Storage> {
        let failed = |error| Failure::opening("open", &self.file, &error);
        let file = options().open(&self.file).map_err(failed)?;
        lock(&file, &self.file)?;
        let found = file.metadata().map_err(failed)?.len();
        if found < len {
            let what = format!(
                "it has {found} bytes, {len} are needed: it was cut short, or made with other sizes"
            );
            return Err(Failure::damage(&self.file, what));
        }
        self.storage(file, found)
    }

    fn storage(&self, file: File, len: u64) -> Result<Storage> {
        let store = FileStore::new(file, len, Caching::Buffered);
        let recording = self.trace.as_deref().map(Recording::create).transpose()?;
        let store: Arc<dyn Store> = match &recording {
            Some(recording) => {
                let (witness, clock) = (recording.witness.clone(), Monotonic::start());
                Arc::new(WatchedStore::with_clock(store, witness, clock))
            }
            None => Arc::new(store),
        };
        Ok(Storage { path: self.file.clone(), store, key: self.key.clone(), recording })
    }
}

/// An open file, locked as long as its store is there.
pub struct Storage {
    path: PathBuf,
    /// The bytes of the file.
    pub store: Arc<dyn Store>,
    /// The key that seals them.
    pub key: Secret,
    /// What an observer sees.
    pub recording: Option<Recording>,
}

impl Storage {
    /// Ends the making of something in a new file: the file stays only if it was made.
    pub fn settle<T>(&self, made: traceless::Result<T>) -> Result<T> {
        match made {
            Ok(made) => {
                let failed = |e| Failure::opening("sync the folder of", &self.path, &e);
                sync_folder_of(&self.path).map_err(failed)?;
                Ok(made)
            }
            Err(error) => {
                // The error that comes first is the one to report.
                let _ = std::fs::remove_file(&self.path);
                Err(error.into())
            }
        }
    }
}

/// A trace file that is being written.
#[derive(Clone)]
pub struct Recording {
    path: PathBuf,
    /// The receiver of events.
    pub witness: Arc<FileWitness<File>>,
}

impl Recording {
    /// Begins a trace file. Earlier contents of the file are lost.
    pub fn create(path: &Path) -> Result<Self> {
        let witness = File::create(path).and_then(FileWitness::new);
        let witness = witness.map_err(|e| Failure::opening("create", path, &e))?;
        Ok(Self { path: path.to_owned(), witness: Arc::new(witness) })
    }

    /// Writes the end of the file.
    pub fn finish(&self) -> Result {
        self.witness.finish().map_err(|e| Failure::opening("write", &self.path, &e))
    }
}

/// The key with the bytes of `key`.
pub fn secret(key: &Bound<'_, PyAny>) -> Result<Secret> {
    let buffer = InputBuffer::of(key)?;
    let bytes = buffer.as_slice()?;
    let exact = <[u8; SECRET_LEN]>::try_from(bytes).map(Zeroizing::new).map_err(|_| {
        let got = bytes.len();
        let message = format!("a key has {SECRET_LEN} bytes, {got} were given: os.urandom(32)");
        Failure::Kind(FailureKind::Key, message)
    })?;
    Ok(Secret::from_bytes(*exact))
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true);
    options
}

fn lock(file: &File, path: &Path) -> Result {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => traceless_volume::Error::Busy(path.to_owned()).into(),
        TryLockError::Error(error) => Failure::opening("lock", path, &error),
    })
}
