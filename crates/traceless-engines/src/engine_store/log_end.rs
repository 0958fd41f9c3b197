//! The end of an engine's log, where one host at a time adds entries.

use super::EngineStore;
use crate::engine::{Engine, StripeName, ValueName};
use crate::entry::{Entry, Mark, OWNER_LEN, replay, value_name};
use bytes::Bytes;
use std::collections::HashSet;
use traceless_cloud::gateway::Appended;
use traceless_cloud::store::Opening;
use traceless_cloud::{Error, Result};
use traceless_core::rng::{Rng as _, System};

/// Entries of the log after which a checkpoint replaces them.
pub(super) const ENTRIES_MAX: u64 = 256;
/// How often opening begins again because another host opens the store at the same time.
const OPENINGS_MAX: u32 = 16;
/// Bytes that an engine may have to read for its log, or a list of names: they are read in parts.
const LOG_BYTES: usize = 16 << 20;

/// Where the log ends, as this host knows it.
pub(super) struct LogEnd {
    /// Identifies this host's entries.
    owner: [u8; OWNER_LEN],
    /// The next position.
    next: u64,
    /// The position after which the next checkpoint is due.
    checkpoint_due: u64,
    /// Entries of this host so far.
    entries: u64,
    /// Entries that had no answer, and may be at the next position.
    doubtful: Vec<(Bytes, Entry)>,
    /// The newest opening of a gateway's state.
    newest: Option<Opening>,
    /// Whether another host has opened the store, or this one has not yet.
    is_lost: bool,
}

impl LogEnd {
    /// The end of a log that was not read yet.
    pub(super) fn new() -> Self {
        let mut owner = [0; OWNER_LEN];
        System.fill(&mut owner);
        let (doubtful, newest) = (Vec::new(), None);
        Self { owner, next: 1, checkpoint_due: 0, entries: 0, doubtful, newest, is_lost: true }
    }

    /// The mark of this host's next entry.
    fn mark(&mut self) -> Mark {
        self.entries += 1;
        Mark { owner: self.owner, number: self.entries }
    }
}

impl<E: Engine> EngineStore<E> {
    /// Makes an opening the last entry of the log, unless a newer one is in it.
    pub(super) async fn take_over(&self, opening: Opening) -> Result {
        let mut end = self.log.lock().await;
        for _ in 0..OPENINGS_MAX {
            let settled = self.settle(&mut end).await;
            if matches!(settled, Err(Error::InUse(_))) {
                self.reload(&mut end).await?;
            } else {
                settled?;
            }
            opening.check(end.newest)?;
            match self.append(&mut end, Entry::Open { geometry: self.geometry, opening }).await {
                // Another host was faster.
                Err(Error::InUse(_)) => continue,
                other => other?,
            }
            match self.find_garbage(&mut end).await {
                Err(Error::InUse(_)) => {}
                other => return other,
            }
        }
        Err(IN_USE)
    }

    /// Makes sure that this host still has the store.
    pub(super) async fn confirm(&self) -> Result {
        let mut end = self.log.lock().await;
        self.settle(&mut end).await?;
        self.append(&mut end, Entry::Nothing).await?;
        self.shorten(&mut end).await;
        Ok(())
    }

    /// Finds out which doubtful entries are in the log. Fails if another host has the store.
    pub(super) async fn settle(&self, end: &mut LogEnd) -> Result {
        if end.is_lost {
            return Err(IN_USE);
        }
        while !end.doubtful.is_empty() {
            self.append(end, Entry::Nothing).await?;
        }
        Ok(())
    }

    /// Adds an entry to the log, and applies it.
    pub(super) async fn append(&self, end: &mut LogEnd, entry: Entry) -> Result {
        let (position, bytes) = (end.next, Bytes::from(entry.encode(&end.mark())));
        // In doubt until there is an answer, also if nothing waits for the answer any more.
        end.doubtful.push((bytes.clone(), entry));
        let sent = bytes.clone();
        let appended = self.client.request(bytes.len(), move |engine| {
            let sent = sent.clone();
            async move { engine.append(position, sent).await }
        });
        let found = match appended.await? {
            Appended::Done => Some(bytes),
            Appended::Taken(found) => found,
        };
        let own = end.doubtful.iter().position(|(sent, _)| found.as_ref() == Some(sent));
        let Some(own) = own else {
            end.is_lost = true;
            end.doubtful.clear();
            return Err(IN_USE);
        };
        let (_, taken) = end.doubtful.swap_remove(own);
        end.doubtful.clear();
        end.next += 1;
        match taken {
            Entry::Open { opening, .. } => end.newest = Some(opening),
            Entry::Commit { sequence, versions } | Entry::Restore { sequence, versions } => {
                let dropped = self.writing().commit(sequence, &versions);
                self.remove(dropped);
            }
            Entry::Nothing | Entry::Checkpoint { .. } => {}
        }
        Ok(())
    }

    /// Replaces the entries of the log by a checkpoint, if they are many. A failure does no harm.
    pub(super) async fn shorten(&self, end: &mut LogEnd) {
        if end.next > end.checkpoint_due {
            let _ = self.checkpoint(end).await;
        }
    }

    /// Replaces the entries of the log by a checkpoint.
    pub(super) async fn checkpoint(&self, end: &mut LogEnd) -> Result {
        let last = end.next - 1;
        let Some(newest) = end.newest else { return Ok(()) };
        let checkpoint = Entry::checkpoint(&self.reading(), newest);
        let bytes = Bytes::from(checkpoint.encode(&end.mark()));
        let shortened = self.client.request(bytes.len(), move |engine| {
            let bytes = bytes.clone();
            async move { engine.checkpoint(last, bytes).await }
        });
        // After a failure some commits are made before the next attempt.
        let shortened = shortened.await;
        let pause = if shortened.is_ok() { ENTRIES_MAX } else { ENTRIES_MAX / 8 };
        end.checkpoint_due = last + pause;
        shortened
    }

    /// Reads the log of a store that this host has never had, or has lost.
    async fn reload(&self, end: &mut LogEnd) -> Result {
        let stored = self.client.request(LOG_BYTES, |engine| async move { engine.load().await });
        let mut stored = stored.await?;
        stored.entries.sort_by_key(|(position, _)| *position);
        let entries = stored.entries.iter().map(|(position, entry)| (*position, &entry[..]));
        let entries: Vec<(u64, &[u8])> = entries.collect();
        let checkpoint = stored.checkpoint.as_ref().map(|(position, all)| (*position, &all[..]));
        let state = replay(self.geometry, checkpoint, &entries)?;
        *self.writing() = state.versions;
        end.next = state.last + 1;
        end.checkpoint_due = checkpoint.map_or(0, |(position, _)| position) + ENTRIES_MAX;
        (end.newest, end.is_lost) = (state.opening, false);
        Ok(())
    }

    /// Finds the stripes that no version needs, before any is staged, and removes them in the
    /// background.
    async fn find_garbage(&self, end: &mut LogEnd) -> Result {
        let listed = self.client.request(LOG_BYTES, |engine| async move { engine.list().await });
        // If the engine cannot list them now, they are found another time.
        let Ok(mut garbage) = listed.await else { return Ok(()) };
        // A later host may have stored stripes that were listed, too. If this entry is in the log,
        // there was no later host when they were listed.
        self.append(end, Entry::Nothing).await?;
        let known: HashSet<ValueName> = {
            let versions = self.reading();
            versions.current().chain(versions.previous()).map(value_name).collect()
        };
        garbage.retain(|name: &StripeName| !known.contains(&name.value));
        self.garbage.remove(&self.client, garbage);
        Ok(())
    }
}

/// The error of a host that has lost the store to another one.
const IN_USE: Error = Error::InUse("the store");
