//! Waits until no gateway has the lease of a state.

use super::LeaseOptions;
use super::entry::{LeaseEntry, TREE_LEN};
use super::read_log::ReadLog;
use crate::error::{Error, Result};
use crate::gateway::Keys;
use crate::state_log::StateLog;
use std::time::Duration;
use traceless_core::clock::Clock;
use traceless_core::rng::Rng;
use traceless_core::seal::Secret;

/// How often the log is looked at in the period of the lease, and the longest pause between.
const LOOKS: u32 = 20;
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Advice for the operator when nothing in the log opens under the gateway's key.
const KEY_ADVICE: &str = "is --key-file the key that it was made with, and is the store this \
                          gateway's? if so, restore a copy of the store";
/// Clocks of two machines may differ by one part in so many.
const DRIFT: u64 = 50;

/// The end of the log of a state, as a gateway without the lease knows it.
pub struct LogEnd {
    /// The number of the state's tree.
    pub tree: [u8; TREE_LEN],
    /// The keys of that tree.
    pub keys: Keys,
    /// The number of the newest opening; 0 if there was none.
    pub opening: u64,
    /// The position of the last entry.
    pub last: u64,
    /// Whether no gateway has the lease.
    pub is_free: bool,
}

impl LogEnd {
    /// Reads the log. The number of a new tree is drawn from `rng`.
    pub fn read(log: &dyn StateLog, master: &Secret, rng: &mut dyn Rng) -> Result<Self> {
        let found = ReadLog::read(log)?;
        let is_empty = found.checkpoint.is_none() && found.entries.is_empty();
        let tree = found.tree().filter(|_| !is_empty);
        let tree = tree.map_or_else(
            || {
                if !is_empty {
                    return Err(unknown(&found));
                }
                let mut drawn = [0; TREE_LEN];
                rng.fill(&mut drawn);
                Ok(drawn)
            },
            Ok,
        )?;
        let keys = Keys::new(master, &tree);
        let of_lease = |(position, entry): (u64, &bytes::Bytes)| {
            LeaseEntry::decode(entry, position, &tree, &keys.lease)
        };
        let newest = found.numbered().rev().find_map(of_lease).map(|entry| entry.opening.number);
        let saved = found.checkpoint.as_ref();
        let saved = saved.map(|saved| saved.about(&keys.state));
        let saved = match saved {
            Some(None) => return Err(unknown(&found)),
            Some(Some(about)) => Some(about.opening.number),
            None => None,
        };
        if newest.is_none() && saved.is_none() && !is_empty {
            return Err(unknown(&found));
        }
        let last = found.numbered().next_back().and_then(of_lease);
        Ok(Self {
            opening: newest.max(saved).unwrap_or(0),
            last: found.last(),
            is_free: is_empty || last.is_some_and(|last| last.is_last),
            tree,
            keys,
        })
    }

    /// Waits until the lease is free, or until there was no new entry for longer than a lease
    /// lasts. Returns false if that is stopped.
    pub fn wait_until_free(
        &mut self,
        log: &dyn StateLog,
        clock: &dyn Clock,
        options: &LeaseOptions<'_>,
    ) -> Result<bool> {
        let period = u64::try_from(options.period.as_nanos()).unwrap_or(u64::MAX / 2);
        let patience = period.saturating_add(period / DRIFT);
        let pause = (options.period / LOOKS).min(PAUSE_MAX);
        let mut since = clock.now();
        while !self.is_free {
            if (options.is_stopped)() {
                return Ok(false);
            }
            match self.follow(log) {
                Ok(true) => since = clock.now(),
                // Nothing new was found after the lease was over.
                Ok(false) if clock.now() - since > patience => break,
                // Without an answer it is unknown whether there is a new entry.
                Ok(false) | Err(Error::Engine(_)) => std::thread::sleep(pause),
                Err(other) => return Err(other),
            }
        }
        Ok(true)
    }

    /// Looks for new entries, of which there may be many: in steps that double. Returns whether
    /// there are any.
    fn follow(&mut self, log: &dyn StateLog) -> Result<bool> {
        let mut step = 1;
        let before = self.last;
        while let Some(entry) = log.entry(self.last + step)? {
            self.last += step;
            let found = LeaseEntry::decode(&entry, self.last, &self.tree, &self.keys.lease);
            self.is_free = found.is_some_and(|found| found.is_last);
            self.opening = self.opening.max(found.map_or(0, |found| found.opening.number));
            step *= 2;
        }
        Ok(self.last > before)
    }
}

/// The error for a log without an entry that the gateway's key authenticates.
fn unknown(found: &ReadLog) -> Error {
    Error::Damaged {
        file: "the gateway's state in the storage engine".to_owned(),
        entry: 0,
        at: 0,
        lost: found.entries.len() as u64,
        advice: KEY_ADVICE,
    }
}
