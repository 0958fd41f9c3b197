//! A log in memory. Its calls fail as a test plans it.

use super::{Appended, PieceName, StateLog, StoredLog};
use crate::error::{Error, Result};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use traceless_core::rng::{Rng as _, SeededRng};

/// The log.
pub struct MemoryLog {
    contents: Mutex<Contents>,
    /// What happens before the next checkpoint is stored.
    at_checkpoint: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// What happens before pieces are listed next.
    at_list: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// Everything that is stored.
#[derive(Clone, Default)]
pub struct Stored {
    pub entries: BTreeMap<u64, Bytes>,
    pub checkpoint: Option<(u64, Bytes)>,
    pub pieces: BTreeMap<PieceName, Bytes>,
}

/// What is stored, and what is planned.
pub struct Contents {
    pub stored: Stored,
    /// Entries cannot be read, as after a checkpoint that includes them.
    pub hides_entries: bool,
    /// How often an entry was looked for.
    pub entry_reads: u64,
    /// Each position counts as taken.
    pub refuses_entries: bool,
    /// Of 100 calls, how many fail. Half of these take effect.
    pub failures: u64,
    /// Calls until all calls fail. The last one may take effect.
    pub left: u64,
    rng: SeededRng,
}

impl MemoryLog {
    /// An empty log without failures.
    pub fn new(seed: u64) -> Self {
        Self {
            at_checkpoint: Mutex::default(),
            at_list: Mutex::default(),
            contents: Mutex::new(Contents {
                stored: Stored::default(),
                hides_entries: false,
                entry_reads: 0,
                refuses_entries: false,
                failures: 0,
                left: u64::MAX,
                rng: SeededRng::new(seed),
            }),
        }
    }

    /// Does something before a checkpoint is stored next.
    pub fn at_next_checkpoint(&self, work: impl FnOnce() + Send + 'static) {
        *self.at_checkpoint.lock().unwrap() = Some(Box::new(work));
    }

    /// Does something before pieces are listed next.
    pub fn at_next_list(&self, work: impl FnOnce() + Send + 'static) {
        *self.at_list.lock().unwrap() = Some(Box::new(work));
    }

    /// What is stored.
    pub fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap()
    }

    fn call<T>(&self, call: impl FnOnce(&mut Stored) -> T) -> Result<T> {
        let mut contents = self.contents();
        let left = contents.left;
        contents.left = left.saturating_sub(1);
        if left > 1 && contents.rng.below(100) >= contents.failures {
            return Ok(call(&mut contents.stored));
        }
        if left > 0 && contents.rng.below(2) == 0 {
            call(&mut contents.stored);
        }
        Err(Error::Engine("planned".to_owned()))
    }
}

impl StateLog for MemoryLog {
    fn load(&self) -> Result<StoredLog> {
        self.call(|stored| StoredLog {
            checkpoint: stored.checkpoint.clone(),
            entries: stored.entries.clone().into_iter().collect(),
        })
    }

    fn entry(&self, position: u64) -> Result<Option<Bytes>> {
        let is_hidden = {
            let mut contents = self.contents();
            contents.entry_reads += 1;
            contents.hides_entries
        };
        self.call(|stored| stored.entries.get(&position).filter(|_| !is_hidden).cloned())
    }

    fn included(&self) -> Result<u64> {
        self.call(|stored| stored.checkpoint.as_ref().map_or(0, |(position, _)| *position))
    }

    fn append(&self, position: u64, entry: Bytes) -> Result<Appended> {
        if self.contents().refuses_entries {
            return Ok(Appended::Taken(None));
        }
        self.call(|stored| {
            let included = stored.checkpoint.as_ref().map_or(0, |(position, _)| *position);
            let last = stored.entries.keys().next_back().copied().unwrap_or(included);
            if position != last + 1 {
                return Appended::Taken(stored.entries.get(&position).cloned());
            }
            stored.entries.insert(position, entry);
            Appended::Done
        })
    }

    fn checkpoint(&self, position: u64, bytes: Bytes) -> Result {
        let work = self.at_checkpoint.lock().unwrap().take();
        if let Some(work) = work {
            work();
        }
        self.call(|stored| {
            if stored.checkpoint.as_ref().is_some_and(|(newest, _)| *newest >= position) {
                return;
            }
            stored.checkpoint = Some((position, bytes));
            stored.entries.retain(|at, _| *at > position);
        })
    }

    fn write_pieces(&self, pieces: Vec<(PieceName, Bytes)>) -> Result {
        self.call(|stored| stored.pieces.extend(pieces))
    }

    fn read_pieces(&self, pieces: &[(PieceName, usize)]) -> Result<Vec<Option<Bytes>>> {
        self.call(|stored| {
            let piece = |(name, len): &(PieceName, usize)| {
                stored.pieces.get(name).filter(|bytes| bytes.len() == *len).cloned()
            };
            pieces.iter().map(piece).collect()
        })
    }

    fn list_pieces(&self) -> Result<Vec<PieceName>> {
        let work = self.at_list.lock().unwrap().take();
        if let Some(work) = work {
            work();
        }
        self.call(|stored| stored.pieces.keys().copied().collect())
    }

    fn remove_pieces(&self, pieces: &[PieceName]) -> Result {
        self.call(|stored| stored.pieces.retain(|name, _| !pieces.contains(name)))
    }
}
