//! A file with two records of 4096 bytes, written in turn, so that a crash leaves one of them
//! whole.

use super::Outcome;
use crate::error::{Error, Result};
use crate::format::anchor::{AnchorPlace, AnchorRecord, AnchorUse, FoundRecords, MAGIC};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use traceless_core::store::sync_folder_of;

const SLOT_LEN: usize = 4096;

/// An anchor's file. It is locked while the anchor may be changed. A prepared anchor is a file of
/// its own, with `.new` at the end of its name.
pub(super) struct FilePlace {
    path: PathBuf,
    main: Option<File>,
    coming: Option<File>,
    is_claimed: bool,
}

impl FilePlace {
    /// The place of an anchor in the file at `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), main: None, coming: None, is_claimed: false }
    }

    /// Refuses a file that is no anchor.
    pub fn refuse_foreign_file(&self) -> Result {
        let found = match File::open(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.and_then(|file| records(&file)).unwrap_or_default(),
        };
        let is_anchor = found.iter().any(|record| record.starts_with(&MAGIC));
        if is_anchor { Ok(()) } else { Err(Error::Exists(self.path.clone())) }
    }

    fn coming_path(&self) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".new");
        name.into()
    }

    fn open(&self, path: &Path) -> Result<Option<File>> {
        match OpenOptions::new().read(true).write(self.is_claimed).open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("open", path, e)),
            Ok(file) if self.is_claimed => lock(&file, path).map(|()| Some(file)),
            Ok(file) => Ok(Some(file)),
        }
    }

    fn main(&self) -> Result<&File> {
        let absent = || failed("open", &self.path, io::ErrorKind::NotFound.into());
        self.main.as_ref().ok_or_else(absent)
    }
}

impl AnchorPlace for FilePlace {
    fn name(&self) -> PathBuf {
        self.path.clone()
    }

    fn claim(&mut self, anchor_use: AnchorUse) -> Result {
        match anchor_use {
            AnchorUse::Create { force } => {
                let file = create(&self.path, force)?;
                sync_folder_of(&self.path).map_err(|e| failed("write", &self.path, e))?;
                self.main = Some(file);
            }
            AnchorUse::Advance => self.is_claimed = true,
            AnchorUse::Replace => self.refuse_foreign_file()?,
        }
        Ok(())
    }

    fn read(&mut self) -> Result<FoundRecords> {
        self.coming = self.open(&self.coming_path())?;
        self.main = self.open(&self.path)?;
        let coming = self
            .coming
            .as_ref()
            .map_or(Ok(vec![]), records)
            .map_err(|e| failed("read", &self.coming_path(), e))?;
        let current = match &self.main {
            Some(file) => records(file).map_err(|e| failed("read", &self.path, e))?,
            // The error that says so, unless the prepared one is there.
            None if coming.is_empty() => return Err(self.main().expect_err("it is absent")),
            None => vec![],
        };
        Ok(FoundRecords { current, coming })
    }

    fn put(&mut self, record: &AnchorRecord) -> Result {
        write(self.main()?, record).map_err(|e| failed("write", &self.path, e))
    }

    fn put_coming(&mut self, record: &AnchorRecord) -> Result {
        let path = self.coming_path();
        let file = create(&path, true)?;
        write(&file, record)
            .and_then(|()| sync_folder_of(&path))
            .map_err(|e| failed("write", &path, e))?;
        self.coming = Some(file);
        Ok(())
    }

    fn promote(&mut self) -> Result {
        std::fs::rename(self.coming_path(), &self.path)
            .and_then(|()| sync_folder_of(&self.path))
            .map_err(|e| failed("replace", &self.path, e))?;
        self.main = self.coming.take();
        Ok(())
    }

    fn forget_coming(&mut self) -> Result {
        self.coming = None;
        let path = self.coming_path();
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => {
                let synced = other.and_then(|()| sync_folder_of(&path));
                synced.map_err(|e| failed("remove", &path, e))
            }
        }
    }

    fn may_lag(&self) -> bool {
        true
    }
}

fn create(path: &Path, force: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let options = if force { options.create(true) } else { options.create_new(true) };
    let file = match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::Exists(path.into()));
        }
        other => other.map_err(|e| failed("create", path, e))?,
    };
    lock(&file, path)?;
    file.set_len(0).map_err(|e| failed("empty", path, e))?;
    Ok(file)
}

fn lock(file: &File, path: &Path) -> Result {
    file.try_lock().map_err(|_| Error::Busy(path.into()))
}

fn records(file: &File) -> Outcome<Vec<Vec<u8>>> {
    let mut bytes = vec![0; 2 * SLOT_LEN];
    let mut have = 0;
    while have < bytes.len() {
        match file.read_at(&mut bytes[have..], have as u64)? {
            0 => break,
            n => have += n,
        }
    }
    Ok(bytes.chunks_exact(SLOT_LEN).map(<[u8]>::to_vec).collect())
}

fn write(file: &File, record: &AnchorRecord) -> Outcome {
    let mut slot = [0; SLOT_LEN];
    slot[..record.bytes.len()].copy_from_slice(&record.bytes);
    file.write_all_at(&slot, (record.sequence % 2) * SLOT_LEN as u64)?;
    file.sync_data()
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { what, path: path.into(), source }
}
