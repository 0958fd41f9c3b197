//! Damage in a gateway's state, and how to continue without the damaged part.
//!
//! A check changes nothing. A repair writes another generation with all whole records, and keeps
//! the damaged file beside it.

use super::Keys;
use super::LostName;
use super::anchor::{Anchor, Claim};
use super::journal::{SavedState, generations, path_of, put_new, write_new};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::log::{Damage, EntryDraft, Position};
use crate::store::Durability;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use traceless_core::rng::Rng;

/// Which parts of a gateway's state are whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateReport {
    /// The newest generation.
    pub generation: u64,
    /// Whole entries of that generation.
    pub entries: u64,
    /// Records in the whole entries.
    pub records: u64,
    /// Bytes after the whole entries from an interrupted write that was never acknowledged.
    pub torn: u64,
    /// The damaged part.
    pub lost: Option<LostPart>,
    /// Blocks that were lost with damaged slots of the host's store.
    pub lost_blocks: usize,
    /// Names of values and objects with lost blocks.
    pub lost_names: Vec<LostName>,
    /// Why the anchor does not fit the state.
    pub anchor: Option<String>,
}

/// The part of a state that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostPart {
    /// The first entry that is not whole; 0 for what precedes all entries.
    pub entry: u64,
    /// Where that entry begins.
    pub at: u64,
    /// Entries from there on that are known to have been written.
    pub entries: u64,
    /// Records in the lost entries with readable headers.
    pub records: u64,
    /// Length of the lost part.
    pub bytes: u64,
    /// The generation that a repair would continue: an older one if the newest generation's initial
    /// state is damaged, `None` if there is none.
    pub repairable: Option<u64>,
}

/// Inspects the newest generation, and changes nothing.
pub fn check(folder: &Path, keys: &Keys, anchor: Option<&Path>) -> Result<StateReport> {
    let _lock = Lock::take(folder, "the gateway's state")?;
    let all = generations(folder)?;
    let newest = *all.last().ok_or(Error::Parameters("this gateway has no state yet"))?;
    let read = |generation| SavedState::read_whole_part(folder, generation, &keys.state);
    let (saved, damage) = match read(newest)? {
        Ok(saved) => {
            let damage = saved.found.damage;
            (Some(saved), damage)
        }
        Err(damage) => (None, Some(damage)),
    };
    let lost = match damage {
        None => None,
        Some(damage) => Some(LostPart::of(damage, repairable(folder, keys)?)),
    };
    let records =
        |saved: &SavedState| saved.found.bodies().map(|(records, _)| u64::from(records)).sum();
    let mismatch = match (anchor, &saved) {
        (Some(path), Some(saved)) => anchor_mismatch(path, keys, saved)?,
        _ => None,
    };
    let state = match &saved {
        Some(saved) if saved.state_entries().is_some() => Some(saved.state(&saved.params()?)?),
        _ => None,
    };
    Ok(StateReport {
        lost_blocks: state.as_ref().map_or(0, |state| state.lost.len()),
        lost_names: state.map_or_else(Vec::new, |state| state.lost_names()),
        generation: newest,
        entries: saved.as_ref().map_or(0, |saved| saved.found.position.entries),
        records: saved.as_ref().map_or(0, records),
        torn: saved.filter(|_| lost.is_none()).map_or(0, |saved| saved.found.torn),
        lost,
        anchor: mismatch,
    })
}

/// Begins a generation with all whole records of the newest, without what [`check`] reports as
/// lost: names with lost blocks are removed. Returns where the old file is kept. The anchor,
/// if there is one, is written anew.
pub fn repair(
    folder: &Path,
    keys: &Keys,
    anchor: Option<&Path>,
    rng: &mut dyn Rng,
) -> Result<PathBuf> {
    let _lock = Lock::take(folder, "the gateway's state")?;
    let all = generations(folder)?;
    let newest = *all.last().ok_or(Error::Parameters("this gateway has no state yet"))?;
    let whole = repairable(folder, keys)?.ok_or(Error::State("all of the gateway's state"))?;
    let Ok(saved) = SavedState::read_whole_part(folder, whole, &keys.state)? else {
        return Err(Error::State("the gateway's state"));
    };
    // Before anything is written, so that a file that cannot be the anchor stops the repair.
    let anchor = anchor.map(Claim::of).transpose()?;
    let mut removals = EntryDraft::default();
    for name in saved.state(&saved.params()?)?.lost_names() {
        removals.add(&name.removal().encode());
    }
    let removals = Some(removals).filter(|removals| !removals.is_empty());
    let drafts = saved.found.bodies().map(|(records, body)| EntryDraft::of(records, body));
    let drafts = drafts.chain(removals);
    let parent = Position { generation: newest, ..Position::default() };
    let log = write_new(folder, &keys.state, parent, drafts, Durability::Power, rng)?;
    let preserved = preserve(folder, newest)?;
    put_new(folder, log.position().generation)?;
    for old in all {
        std::fs::remove_file(path_of(folder, old))?;
    }
    if let Some(anchor) = anchor {
        anchor.write(&keys.state, log.position())?;
    }
    Ok(preserved)
}

/// Adds another name for a damaged generation, because old generations are removed. An interrupted
/// repair may have added it already. If an older file has the name, that file stays and another
/// name is used.
fn preserve(folder: &Path, generation: u64) -> Result<PathBuf> {
    let damaged = path_of(folder, generation);
    let mut preserved = folder.join(format!("damaged.{generation}"));
    for nth in 1.. {
        match std::fs::hard_link(&damaged, &preserved) {
            Ok(()) => break,
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e.into()),
            Err(_) if is_same_file(&damaged, &preserved)? => break,
            Err(_) => preserved = folder.join(format!("damaged.{generation}.{nth}")),
        }
    }
    Ok(preserved)
}

fn is_same_file(one: &Path, other: &Path) -> Result<bool> {
    let [one, other] = [std::fs::metadata(one)?, std::fs::metadata(other)?];
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Replaces the anchor of an undamaged state, without checking the old one.
pub fn new_anchor(folder: &Path, keys: &Keys, path: &Path) -> Result {
    let _lock = Lock::take(folder, "the gateway's state")?;
    let newest = generations(folder)?.pop();
    let newest = newest.ok_or(Error::Parameters("this gateway has no state yet"))?;
    let saved = SavedState::read(folder, newest, &keys.state)?;
    Anchor::create(path, &keys.state, saved.found.position).map(drop)
}

impl LostPart {
    fn of(damage: Damage, repairable: Option<u64>) -> Self {
        let Damage { entry, at, lost_entries, lost_records, lost_bytes } = damage;
        let (entries, records, bytes) = (lost_entries, lost_records, lost_bytes);
        Self { entry, at, entries, records, bytes, repairable }
    }
}

/// The newest generation with a whole initial state.
fn repairable(folder: &Path, keys: &Keys) -> Result<Option<u64>> {
    for generation in generations(folder)?.into_iter().rev() {
        let saved = SavedState::read_whole_part(folder, generation, &keys.state)?;
        if saved.is_ok_and(|saved| saved.state_entries().is_some()) {
            return Ok(Some(generation));
        }
    }
    Ok(None)
}

/// Why an anchor does not fit a state.
fn anchor_mismatch(path: &Path, keys: &Keys, saved: &SavedState) -> Result<Option<String>> {
    let checked = Anchor::open(path, &keys.state, false)
        .and_then(|anchor| anchor.check(Some((&saved.found, saved.parent()))));
    match checked {
        Ok(()) => Ok(None),
        Err(unfit @ Error::Anchor { .. }) => Ok(Some(unfit.to_string())),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory cannot have a second name, so it provokes an error of the system.
    #[test]
    fn failing_to_preserve_a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(path_of(folder.path(), 7)).unwrap();
        let refused = preserve(folder.path(), 7).unwrap_err();
        assert!(
            matches!(&refused, Error::Io(e) if e.kind() == io::ErrorKind::PermissionDenied),
            "{refused}"
        );
    }
}
