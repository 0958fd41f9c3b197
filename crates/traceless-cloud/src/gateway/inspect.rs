//! What is wrong with a gateway's state, and how to go on without what cannot be read.
//!
//! Nothing is changed by looking. A repair writes another generation with all that is whole, and
//! keeps the damaged file beside it.

use super::Keys;
use super::anchor::{Anchor, Claim};
use super::journal::{SavedState, generations, path_of, put_new, write_new};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::log::{Damage, Draft, Position};
use crate::store::Durability;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use traceless::rng::Rng;

/// What there is of a gateway's state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateReport {
    /// The newest generation.
    pub generation: u64,
    /// Its entries that are whole, and the records in them.
    pub entries: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes behind them of a write that was cut short, of which nobody was told.
    pub torn: u64,
    /// What is damaged.
    pub lost: Option<Lost>,
    /// What the anchor says against it.
    pub anchor: Option<String>,
}

/// What cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The first entry that is not whole; 0 for what lies before all of them.
    pub entry: u64,
    /// Where it begins.
    pub at: u64,
    /// Entries from there on that are known to have been written.
    pub entries: u64,
    /// Records in those whose headers can be read.
    pub records: u64,
    /// Bytes.
    pub bytes: u64,
    /// The generation that a repair would go on with: an older one where the state that the newest
    /// begins with is damaged, nothing where there is none.
    pub repairable: Option<u64>,
}

/// Looks at the newest generation, and changes nothing.
pub fn check(folder: &Path, keys: &Keys, anchor: Option<&Path>) -> Result<StateReport> {
    let _lock = Lock::take(folder, "the gateway's state")?;
    let all = generations(folder)?;
    let newest = *all.last().ok_or(Error::Parameters("this gateway has no state yet"))?;
    let look = |generation| SavedState::look(folder, generation, &keys.state);
    let (saved, damage) = match look(newest)? {
        Ok(saved) => {
            let damage = saved.found.damage;
            (Some(saved), damage)
        }
        Err(damage) => (None, Some(damage)),
    };
    let lost = match damage {
        None => None,
        Some(damage) => Some(Lost::of(damage, repairable(folder, keys)?)),
    };
    let records = |saved: &SavedState| saved.entries().map(|(records, _)| u64::from(records)).sum();
    let said = match (anchor, &saved) {
        (Some(path), Some(saved)) => said(path, keys, saved)?,
        _ => None,
    };
    Ok(StateReport {
        generation: newest,
        entries: saved.as_ref().map_or(0, |saved| saved.found.position.entries),
        records: saved.as_ref().map_or(0, records),
        torn: saved.filter(|_| lost.is_none()).map_or(0, |saved| saved.found.torn),
        lost,
        anchor: said,
    })
}

/// Begins a generation with all that is whole of the newest, without what [`check`] said to be
/// lost. Returns where the damaged file is kept. The anchor, if there is one, is made anew.
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
    let Ok(saved) = SavedState::look(folder, whole, &keys.state)? else {
        return Err(Error::State("the gateway's state"));
    };
    // Before anything is written: a file that cannot be the anchor changes nothing.
    let anchor = anchor.map(Claim::of).transpose()?;
    let drafts = saved.entries().map(|(records, body)| Draft::of(records, body));
    let parent = Position { generation: newest, ..Position::default() };
    let log = write_new(folder, &keys.state, parent, drafts, Durability::Power, rng)?;
    let kept = keep(folder, newest)?;
    put_new(folder, log.position().generation)?;
    for old in all {
        std::fs::remove_file(path_of(folder, old))?;
    }
    if let Some(anchor) = anchor {
        anchor.write(&keys.state, log.position())?;
    }
    Ok(kept)
}

/// Gives a damaged generation another name, as those that are not the newest are removed. It may
/// have one already, if a repair was cut short; or an older file has it, which stays.
fn keep(folder: &Path, generation: u64) -> Result<PathBuf> {
    let damaged = path_of(folder, generation);
    let mut kept = folder.join(format!("damaged.{generation}"));
    for nth in 1.. {
        match std::fs::hard_link(&damaged, &kept) {
            Ok(()) => break,
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e.into()),
            Err(_) if is_same_file(&damaged, &kept)? => break,
            Err(_) => kept = folder.join(format!("damaged.{generation}.{nth}")),
        }
    }
    Ok(kept)
}

fn is_same_file(one: &Path, other: &Path) -> Result<bool> {
    let [one, other] = [std::fs::metadata(one)?, std::fs::metadata(other)?];
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Makes the anchor of a sound state anew, whatever it remembered.
pub fn new_anchor(folder: &Path, keys: &Keys, path: &Path) -> Result {
    let _lock = Lock::take(folder, "the gateway's state")?;
    let newest = generations(folder)?.pop();
    let newest = newest.ok_or(Error::Parameters("this gateway has no state yet"))?;
    let saved = SavedState::read(folder, newest, &keys.state)?;
    Anchor::create(path, &keys.state, saved.found.position).map(drop)
}

impl Lost {
    fn of(damage: Damage, repairable: Option<u64>) -> Self {
        let Damage { entry, at, lost_entries, lost_records, lost_bytes } = damage;
        let (entries, records, bytes) = (lost_entries, lost_records, lost_bytes);
        Self { entry, at, entries, records, bytes, repairable }
    }
}

/// The newest generation that has all of the state that it began with.
fn repairable(folder: &Path, keys: &Keys) -> Result<Option<u64>> {
    for generation in generations(folder)?.into_iter().rev() {
        let saved = SavedState::look(folder, generation, &keys.state)?;
        if saved.is_ok_and(|saved| saved.state_entries().is_some()) {
            return Ok(Some(generation));
        }
    }
    Ok(None)
}

/// What an anchor says against a state.
fn said(path: &Path, keys: &Keys, saved: &SavedState) -> Result<Option<String>> {
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

    /// A folder has one name only, so it stands for what the system refuses.
    #[test]
    fn why_a_damaged_file_cannot_be_kept_is_said() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(path_of(folder.path(), 7)).unwrap();
        let refused = keep(folder.path(), 7).unwrap_err();
        assert!(
            matches!(&refused, Error::Io(e) if e.kind() == io::ErrorKind::PermissionDenied),
            "{refused}"
        );
    }
}
