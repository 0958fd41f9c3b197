//! Waits until no gateway has the lease of a state.

use super::LeaseOptions;
use super::checkpoint::{self, Checkpoint, HEAD_MAGIC};
use super::entry::{self, LeaseEntry, TREE_LEN};
use super::read_log::ReadLog;
use crate::error::{Error, Result};
use crate::gateway::Keys;
use crate::random::SystemStream;
use crate::state_log::StateLog;
use std::time::Duration;
use traceless_core::clock::Clock;
use traceless_core::rng::Rng;
use traceless_core::seal::Secret;

/// How often the log is looked at in the period of the lease, and the longest pause between.
const LOOKS: u32 = 20;
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Names the state in errors about its format.
const CONTENT: &str = "the gateway's state in the storage engine";
/// Advice for the operator when nothing in the log opens under the gateway's key.
const KEY_ADVICE: &str = "is --key-file the key that it was made with, and is the store this \
                          gateway's? if so, restore a copy of the store";
/// Only a gateway that runs adds entries.
const RUNS: Error = Error::InUse("the gateway's state");
/// Clocks of two machines may differ by one part in so many.
const DRIFT: u64 = 50;

/// The pause between two looks at the log of a gateway that stands by.
pub(crate) fn pause_of_standby(lease: Duration) -> Duration {
    (lease / LOOKS).min(PAUSE_MAX)
}

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
    /// How long the newest lease lasts, in milliseconds.
    period_ms: u64,
}

impl LogEnd {
    /// Reads the log. The number of a new tree is drawn from `rng`.
    pub fn read(log: &dyn StateLog, master: &Secret, rng: &mut dyn Rng) -> Result<Self> {
        let found = ReadLog::read(log)?;
        if found.is_empty() {
            let mut tree = [0; TREE_LEN];
            rng.fill(&mut tree);
            let keys = Keys::new(master, &tree);
            return Ok(Self { tree, keys, opening: 0, last: 0, is_free: true, period_ms: 0 });
        }
        check_format(&found, master)?;
        let unknown = || unknown(&found);
        let tree = found.tree().ok_or_else(unknown)?;
        let keys = Keys::new(master, &tree);
        let saved = match found.checkpoint(&keys.lease).map_err(|_| unknown())? {
            None => None,
            Some(checkpoint) => {
                // The checkpoint's own tag has shown that it is not damaged.
                Error::check_format(CONTENT, &checkpoint.head, &HEAD_MAGIC, |_| false)?;
                Some(checkpoint.about(&keys.state).ok_or_else(unknown)?)
            }
        };
        let of_lease = |(position, entry): (u64, &bytes::Bytes)| {
            LeaseEntry::decode(entry, position, &tree, &keys.lease)
        };
        let newest = found.numbered().rev().find_map(of_lease);
        let newest = newest.map(|entry| (entry.opening.number, entry.period_ms));
        let newest = newest.or(saved.map(|about| (about.opening.number, about.period_ms)));
        let (opening, period_ms) = newest.ok_or_else(unknown)?;
        let last = found.numbered().next_back().and_then(of_lease);
        let is_free = last.is_some_and(|last| last.is_last);
        Ok(Self { opening, last: found.last(), is_free, period_ms, tree, keys })
    }

    /// Waits until the lease is free, or until there was no new entry for longer than a lease
    /// lasts. Returns false if that is stopped. A gateway that does not stand by fails at a new
    /// entry, or if the log cannot be read.
    pub fn wait_until_free(
        &mut self,
        log: &dyn StateLog,
        clock: &dyn Clock,
        options: &LeaseOptions<'_>,
    ) -> Result<bool> {
        let pause = pause_of_standby(options.period);
        let (mut since, mut is_looked_up, mut is_away) = (clock.now(), false, false);
        while !self.is_free {
            if (options.is_stopped)() {
                return Ok(false);
            }
            // Of the gateway that has it.
            let period = self.period_ms.saturating_mul(1_000_000).min(u64::MAX / 4);
            match self.follow(log) {
                Ok(true) if !self.is_free && !options.stands_by => return Err(RUNS),
                Ok(true) => (since, is_looked_up, is_away) = (clock.now(), false, false),
                // Nothing new was found after the lease was over.
                Ok(false) if clock.now() - since > period + period / DRIFT => break,
                // The gateway with the lease has not extended it, or a checkpoint includes the next
                // entry.
                Ok(false) if !is_looked_up && clock.now() - since > period / 2 => {
                    match self.follow_checkpoint(log, options.master) {
                        Ok(true) if !self.is_free && !options.stands_by => return Err(RUNS),
                        Ok(true) => since = clock.now(),
                        Ok(false) => is_looked_up = true,
                        Err(Error::Engine(_)) => {}
                        Err(other) => return Err(other),
                    }
                }
                Ok(false) => std::thread::sleep(pause),
                // Without an answer it is unknown whether there is a new entry.
                Err(Error::Engine(reason)) if options.stands_by => {
                    if !core::mem::replace(&mut is_away, true) {
                        tracing::warn!(reason, "the gateway's state cannot be read: waiting");
                    }
                    std::thread::sleep(pause);
                }
                Err(other) => return Err(other),
            }
        }
        Ok(true)
    }

    /// Reads the log again if its checkpoint includes entries that are not known. Returns whether
    /// it does.
    fn follow_checkpoint(&mut self, log: &dyn StateLog, master: &Secret) -> Result<bool> {
        if log.included()? <= self.last {
            return Ok(false);
        }
        *self = Self::read(log, master, &mut SystemStream::drawn())?;
        Ok(true)
    }

    /// Looks for new entries, of which there may be many: in steps that double. Returns whether
    /// there are any.
    fn follow(&mut self, log: &dyn StateLog) -> Result<bool> {
        let mut step = 1;
        let before = self.last;
        while let Some(entry) = log.entry(self.last + step)? {
            self.last += step;
            let is_own = |own: &[u8]| {
                LeaseEntry::decode(own, self.last, &self.tree, &self.keys.lease).is_some()
            };
            Error::check_format(CONTENT, &entry, entry::MAGIC, is_own)?;
            let found = LeaseEntry::decode(&entry, self.last, &self.tree, &self.keys.lease);
            self.is_free = found.is_some_and(|found| found.is_last);
            if let Some(found) = found {
                self.opening = self.opening.max(found.opening.number);
                self.period_ms = found.period_ms;
            }
            step *= 2;
        }
        Ok(self.last > before)
    }
}

/// Fails if another version of this program has written to the log.
fn check_format(found: &ReadLog, master: &Secret) -> Result {
    if let Some(saved) = &found.checkpoint {
        let is_own = |own: &[u8]| {
            let keys = Checkpoint::tree_of(own).map(|tree| Keys::new(master, &tree).lease);
            keys.is_some_and(|key| Checkpoint::decode(own, found.included, &key).is_ok())
        };
        Error::check_format(CONTENT, saved, checkpoint::MAGIC, is_own)?;
    }
    for (position, stored) in found.numbered() {
        let is_own = |own: &[u8]| {
            let tree = LeaseEntry::tree_of(own);
            let keys = tree.map(|tree| (tree, Keys::new(master, &tree).lease));
            keys.is_some_and(|(tree, key)| LeaseEntry::decode(own, position, &tree, &key).is_some())
        };
        Error::check_format(CONTENT, stored, entry::MAGIC, is_own)?;
    }
    Ok(())
}

/// The error for a log without an entry that the gateway's key authenticates.
fn unknown(found: &ReadLog) -> Error {
    Error::Damaged {
        file: CONTENT.to_owned(),
        entry: 0,
        at: 0,
        lost: found.entries.len() as u64,
        advice: KEY_ADVICE,
    }
}
