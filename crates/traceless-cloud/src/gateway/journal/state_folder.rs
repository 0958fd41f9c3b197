//! A gateway's state in a folder: a file for each generation.
//!
//! A generation is whole and durable before it replaces its predecessor, which is then removed.

use super::saved_state::SavedState;
use super::state_store::{OpenState, OpenedState, StateStore};
use crate::durable::{Durability, make_folder, put};
use crate::error::Result;
use crate::lock::Lock;
use crate::log::{
    Damage, EntryDraft, Head, Log, Magic, POSITION_LEN, Position, SealProof, WholeEntries,
    check_format, read,
};
use std::path::{Path, PathBuf};
use traceless_core::rng::Rng;
use traceless_core::seal::Secret;

/// The first bytes of each generation's file.
const MAGIC: Magic = *b"tlgate04";
/// Names the state in errors about its format.
const CONTENT: &str = "the gateway's state";
/// File name of a generation that is not the newest yet.
const NEW: &str = "state.new";
/// Advice for the operator when a generation is damaged.
pub(super) const ADVICE: &str = "see `traceless gateway check`, then restore a copy, or give up \
                                 what is lost with `traceless gateway repair`";
/// Advice for the operator when nothing in the file opens under the gateway's key.
pub(super) const KEY_ADVICE: &str = "is --key-file the key that it was made with? if it is, \
                                     restore a copy, or see `traceless gateway check`";

/// Where and how a gateway's state is stored in files.
#[derive(Clone, Copy)]
pub struct StateLocation<'a> {
    /// A folder for this gateway alone.
    pub folder: &'a Path,
    /// What a written state survives before a client gets its answer.
    pub durability: Durability,
    /// The anchor: a file elsewhere that records how far the state has come.
    pub anchor: Option<&'a Path>,
}

impl OpenState for StateLocation<'_> {
    fn open(&self, key: &Secret) -> Result<OpenedState> {
        let Self { folder, durability, anchor } = *self;
        make_folder(folder)?;
        let lock = Lock::take(folder, "the gateway's state")?;
        let newest = generations(folder)?.pop();
        let saved = newest.map(|newest| SavedState::read(folder, newest, key)).transpose()?;
        let (folder, key) = (folder.to_owned(), key.clone());
        let store = StateFolder { folder, key, durability, _lock: lock, log: None, next: None };
        let anchor = anchor.map(Path::to_owned);
        Ok(OpenedState { store: Box::new(store), saved, durability, anchor })
    }
}

/// The folder of an open state.
struct StateFolder {
    folder: PathBuf,
    key: Secret,
    durability: Durability,
    /// Held by one process at a time.
    _lock: Lock,
    /// The newest generation, once this process has begun it.
    log: Option<Log<SealProof>>,
    /// A generation that is not the newest yet.
    next: Option<Log<SealProof>>,
}

impl StateStore for StateFolder {
    fn prepare(
        &mut self,
        parent: Position,
        entries: &mut dyn Iterator<Item = EntryDraft>,
        rng: &mut dyn Rng,
    ) -> Result<Position> {
        let next = write_new(&self.folder, &self.key, parent, entries, self.durability, rng)?;
        Ok(self.next.insert(next).position())
    }

    fn switch(&mut self) -> Result {
        let next = self.next.take().expect("the next generation is prepared");
        put_new(&self.folder, next.position().generation)?;
        self.log = Some(next);
        Ok(())
    }

    fn remove_old(&mut self) -> Result {
        let newest = self.log.as_ref().map_or(0, |log| log.position().generation);
        for old in generations(&self.folder)?.into_iter().filter(|old| *old < newest) {
            std::fs::remove_file(path_of(&self.folder, old))?;
        }
        Ok(())
    }

    fn write(&mut self, entry: &mut EntryDraft) -> Result<Position> {
        let log = self.log.as_mut().expect("records happen after the first generation began");
        log.write(entry)?;
        Ok(log.position())
    }
}

impl SavedState {
    /// Reads a generation, which must not be damaged.
    pub(in crate::gateway) fn read(folder: &Path, generation: u64, key: &Secret) -> Result<Self> {
        let path = path_of(folder, generation);
        let saved = Self::read_whole_part(folder, generation, key)?;
        // Damage of everything may be the work of another key.
        let Self { found } = saved.map_err(|damage| damage.error(&path, KEY_ADVICE))?;
        Ok(Self { found: found.undamaged(&path, ADVICE)? })
    }

    /// Reads the whole part of a generation.
    pub(in crate::gateway) fn read_whole_part(
        folder: &Path,
        generation: u64,
        key: &Secret,
    ) -> Result<Result<Self, Damage>> {
        let bytes = std::fs::read(path_of(folder, generation))?;
        check_format::<SealProof>(CONTENT, &bytes, MAGIC, &generation_key(key))?;
        Ok(Self::parse(bytes, generation, key))
    }

    /// Parses the bytes of a generation's file.
    pub(in crate::gateway) fn parse(
        bytes: Vec<u8>,
        generation: u64,
        key: &Secret,
    ) -> Result<Self, Damage> {
        let len = bytes.len();
        let found: WholeEntries<SealProof> = read(bytes, MAGIC, &generation_key(key))?;
        // The file has another generation's name, or was not written by a gateway.
        if found.generation != generation || found.about.len() != POSITION_LEN {
            return Err(Damage::of_all(len));
        }
        Ok(Self { found })
    }
}

/// Writes the generation after `parent`, with these entries. It is durable, but not the newest yet.
pub(in crate::gateway) fn write_new(
    folder: &Path,
    key: &Secret,
    parent: Position,
    entries: impl Iterator<Item = EntryDraft>,
    durability: Durability,
    rng: &mut dyn Rng,
) -> Result<Log<SealProof>> {
    let head = Head::draw(MAGIC, parent.generation + 1, parent.encode().to_vec(), rng);
    let key = generation_key(key);
    Log::create(&folder.join(NEW), &head, &key, entries, durability, rng.fork())
}

/// Makes the generation that [`write_new`] wrote the newest.
pub(in crate::gateway) fn put_new(folder: &Path, generation: u64) -> Result {
    put(&folder.join(NEW), &path_of(folder, generation))
}

/// The file of a generation.
pub(in crate::gateway) fn path_of(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("state.{generation}"))
}

/// All generations of a folder, in order.
pub(in crate::gateway) fn generations(folder: &Path) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("state.")?.parse().ok());
        all.extend(number.filter(|number| path_of(folder, *number) == folder.join(&name)));
    }
    all.sort_unstable();
    Ok(all)
}

fn generation_key(key: &Secret) -> Secret {
    key.derive(&[b"generation"])
}
