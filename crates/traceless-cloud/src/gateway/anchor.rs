//! The anchor: a small file, stored elsewhere, that records how far a gateway's state has come.
//!
//! The anchor is written after an entry of the state's log and before the answer that depends on
//! the entry. So a state that lacks an answered write is refused. A new generation of the state
//! names the position of its predecessor, so a state that branched off is refused, too.

use crate::error::{Error, Result};
use crate::log::{Mark, Position, Proof, SealProof, WholeEntries};
use crate::store::Durability;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use traceless_core::seal::Secret;
use traceless_core::store::sync_folder_of;

const ID: [u8; 16] = *b"a gateway's mark";
const OLDER: &str = "the gateway's state is older than it remembers: a folder was put back, or \
                     writes were lost; restore the newest state, or accept this one with \
                     `traceless gateway check --new-anchor`";
const ELSEWHERE: &str = "the gateway's state went another way than it remembers, or went on \
                         without it; go on with the state that it was used with, or accept \
                         this one with `traceless gateway check --new-anchor`";
const FOREIGN: &str = "it is no anchor of this gateway, or both of its records are damaged; name \
                       the right file, or make it anew with `traceless gateway check --new-anchor`";
const MISSING: &str = "there is no such file, though the gateway has a state; name the right file, \
                       or make one with `traceless gateway check --new-anchor`";

/// An open anchor.
pub struct Anchor {
    file: File,
    path: PathBuf,
    proof: SealProof,
    newest: Mark,
}

/// A locked file that may become an anchor. Nothing in it is changed yet.
pub struct Claim {
    file: File,
    path: PathBuf,
}

impl Claim {
    /// Locks a file that is an anchor or empty, or creates it.
    pub fn of(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        lock(&file)?;
        if file.metadata()?.len() > 0 && !is_anchor(&file) {
            return Err(unfit(path, "it is another file, which is not overwritten"));
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Makes the file the anchor of a state that has come to `position`.
    pub fn write(self, key: &Secret, position: Position) -> Result<Anchor> {
        let (Self { file, path }, proof) = (self, proof(key));
        let newest = Mark { sequence: 0, position };
        file.write_all_at(&newest.pages(&proof), 0)?;
        file.sync_all()?;
        sync_folder_of(&path)?;
        Ok(Anchor { file, path, proof, newest })
    }
}

impl Anchor {
    /// Opens the anchor of a state, or makes one if there is no state yet.
    pub fn open(path: &Path, key: &Secret, is_new: bool) -> Result<Self> {
        let proof = proof(key);
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound && is_new => {
                return Self::create(path, key, Position::default());
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(unfit(path, MISSING)),
            Err(e) => return Err(e.into()),
        };
        lock(&file)?;
        let mut pages = vec![0; crate::log::MARKS_LEN];
        let read = file.read_exact_at(&mut pages, 0);
        let newest = read.ok().and_then(|()| Mark::newest(&pages, &proof));
        let newest = newest.ok_or_else(|| unfit(path, FOREIGN))?;
        Ok(Self { file, path: path.to_owned(), proof, newest })
    }

    /// Writes a new anchor for a state that has come to `position`. It may replace another anchor
    /// of this gateway.
    pub fn create(path: &Path, key: &Secret, position: Position) -> Result<Self> {
        Claim::of(path)?.write(key, position)
    }

    /// Fails unless a state has come at least as far as the anchor records, without branching off.
    /// `found` is `None` if there is no state.
    pub fn check(&self, found: Option<(&WholeEntries<SealProof>, Position)>) -> Result {
        let recorded = self.newest.position;
        let Some((found, parent)) = found else {
            return if recorded.generation == 0 { Ok(()) } else { Err(unfit(&self.path, OLDER)) };
        };
        let position = found.position;
        let reason = if position.generation < recorded.generation {
            OLDER
        } else if position.generation > recorded.generation {
            if parent == recorded {
                return Ok(());
            }
            ELSEWHERE
        } else if position.id != recorded.id {
            ELSEWHERE
        } else if position.entries < recorded.entries {
            OLDER
        } else {
            let entry = recorded.entries.checked_sub(1).map(|entry| &found.entries[entry as usize]);
            if entry.is_some_and(|entry| entry.chain == recorded.chain) {
                return Ok(());
            }
            ELSEWHERE
        };
        Err(unfit(&self.path, reason))
    }

    /// Records how far the state has come.
    pub fn record(&mut self, position: Position, durability: Durability) -> Result {
        if position == self.newest.position {
            return Ok(());
        }
        let mark = Mark { sequence: self.newest.sequence + 1, position };
        mark.write(&self.file, 0, &self.proof)?;
        if durability == Durability::Power {
            self.file.sync_data()?;
        }
        self.newest = mark;
        Ok(())
    }
}

fn proof(key: &Secret) -> SealProof {
    SealProof::new(&key.derive(&[b"anchor"]), &ID)
}

/// Whether a file begins like an anchor, of any gateway.
fn is_anchor(file: &File) -> bool {
    let mut magic = [0; Mark::MAGIC.len()];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == *Mark::MAGIC
}

fn lock(file: &File) -> Result {
    file.try_lock().map_err(|_| Error::InUse("the anchor"))
}

fn unfit(path: &Path, reason: &'static str) -> Error {
    Error::Anchor { file: path.display().to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anchor");
        (folder, path)
    }

    fn key() -> Secret {
        Secret::from_bytes([7; 32])
    }

    #[test]
    fn a_missing_anchor_is_created_only_without_a_state() {
        let (_folder, path) = folder();
        let missing = Anchor::open(&path, &key(), false).map(drop);
        assert!(matches!(missing, Err(Error::Anchor { reason: MISSING, .. })), "{missing:?}");
        assert!(!path.exists());
        Anchor::open(&path, &key(), true).unwrap().check(None).unwrap();
        Anchor::open(&path, &key(), false).unwrap().check(None).unwrap();
    }

    /// An existing file that cannot be opened is not reported as missing.
    #[test]
    fn an_unreadable_anchor_is_not_reported_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Anchor::open(folder.path(), &key(), false).map(drop);
        assert!(matches!(refused, Err(Error::Io(_))), "{refused:?}");
    }

    #[test]
    fn an_anchor_is_locked_by_one_process_at_a_time() {
        let (_folder, path) = folder();
        let anchor = Anchor::create(&path, &key(), Position::default()).unwrap();
        for _ in 0..2 {
            assert!(matches!(Anchor::open(&path, &key(), false), Err(Error::InUse(_))));
            assert!(matches!(Claim::of(&path), Err(Error::InUse(_))));
        }
        drop(anchor);
        assert!(Anchor::open(&path, &key(), false).is_ok());
    }
}
