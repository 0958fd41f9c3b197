//! A store of nodes in an engine: which versions are current follows from the engine's log.
//!
//! **Commits.** Stripes are written under fresh names, and then one entry of the log makes them
//! current. The next position of the log can be taken once. A host that finds it taken by another
//! host has lost the store, and changes nothing more.
//!
//! **Doubt.** An entry that had no answer may be in the log now, later or never. Before anything
//! else is decided, its position is read, or taken by an entry without a meaning.
//!
//! **Garbage.** Stripes that no commit can make readable again are removed in the background. What
//! is left after a crash or a failure is found when the store is opened again.

use crate::engine::{Appended, Engine, RequestError, StripeName, StripeRange, ValueName};
use crate::entry::{Entry, Mark, OWNER_LEN, StagedVersion, replay, value_name};
use crate::retry::{Patience, persist};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, MutexGuard};
use traceless_cloud::geometry::Geometry;
use traceless_cloud::store::{NodeStore, NodeVersion, Opening, SlotRead, StoredVersion, Versions};
use traceless_cloud::{Error, Result};
use traceless_core::rng::{Rng as _, System};

/// Entries of the log after which a checkpoint replaces them.
const ENTRIES_MAX: u64 = 256;
/// Stripes of a node that are written at once.
const WRITES_MAX: usize = 8;
/// Stripes that one request removes.
const REMOVALS_MAX: usize = 256;
/// How often opening begins again because another host opens the store at the same time.
const OPENINGS_MAX: u32 = 16;
/// Threads that wait for the engine and copy its bytes.
const THREADS: usize = 2;

/// Nodes in an engine.
pub struct EngineStore<E> {
    geometry: Geometry,
    engine: Arc<E>,
    patience: Patience,
    runtime: Runtime,
    owner: [u8; OWNER_LEN],
    versions: RwLock<Versions<u64>>,
    log: Mutex<LogEnd>,
}

/// Where the log ends.
struct LogEnd {
    /// The next position.
    next: u64,
    /// The position of the last entry that a checkpoint includes.
    checkpoint: u64,
    /// Entries of this opening so far.
    entries: u64,
    /// Entries that had no answer, and may be at the next position.
    doubtful: Vec<(Bytes, Entry)>,
    /// The newest opening of a gateway's state.
    newest: Option<Opening>,
    /// Whether another host has opened the store.
    is_lost: bool,
}

impl<E: Engine> EngineStore<E> {
    /// Opens the store of a tree of this shape for a gateway, or creates an empty one. A host that
    /// has opened it before loses it.
    pub fn open(
        engine: Arc<E>,
        geometry: Geometry,
        opening: Opening,
        patience: Patience,
    ) -> Result<Self> {
        geometry.check()?;
        let mut owner = [0; OWNER_LEN];
        System.fill(&mut owner);
        let runtime = runtime()?;
        let versions = RwLock::new(Versions::new(geometry));
        let log = Mutex::new(LogEnd {
            next: 1,
            checkpoint: 0,
            entries: 0,
            doubtful: Vec::new(),
            newest: None,
            is_lost: true,
        });
        let store = Self { geometry, engine, patience, runtime, owner, versions, log };
        store.runtime.block_on(store.take_over(opening))?;
        Ok(store)
    }

    /// Makes an opening the last entry of the log, unless a newer one is in it.
    async fn take_over(&self, opening: Opening) -> Result {
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
                Err(Error::InUse(_)) => {}
                Ok(()) => {
                    self.find_garbage().await;
                    return Ok(());
                }
                Err(other) => return Err(other),
            }
        }
        Err(IN_USE)
    }

    /// Reads the log of a store that this host has never had, or has lost.
    async fn reload(&self, end: &mut MutexGuard<'_, LogEnd>) -> Result {
        let mut stored = self.request(|engine| async move { engine.load().await }).await?;
        stored.entries.sort_by_key(|(position, _)| *position);
        let entries = stored.entries.iter().map(|(position, entry)| (*position, &entry[..]));
        let entries: Vec<(u64, &[u8])> = entries.collect();
        let checkpoint = stored.checkpoint.as_ref().map(|(position, all)| (*position, &all[..]));
        let state = replay(self.geometry, checkpoint, &entries)?;
        *self.writing() = state.versions;
        end.next = state.last + 1;
        end.checkpoint = checkpoint.map_or(0, |(position, _)| position);
        (end.newest, end.is_lost) = (state.opening, false);
        Ok(())
    }

    /// Adds an entry to the log, and applies it.
    async fn append(&self, end: &mut MutexGuard<'_, LogEnd>, entry: Entry) -> Result {
        let mark = Mark { owner: self.owner, number: end.entries };
        end.entries += 1;
        let (position, bytes) = (end.next, Bytes::from(entry.encode(&mark)));
        // In doubt until there is an answer, also if nothing waits for the answer any more.
        end.doubtful.push((bytes.clone(), entry));
        let sent = bytes.clone();
        let appended = self.request(move |engine| {
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
            Entry::Commit { sequence, versions } => {
                let dropped = self.writing().commit(sequence, &versions);
                self.remove(dropped);
            }
            Entry::Nothing | Entry::Checkpoint { .. } => {}
        }
        Ok(())
    }

    /// Finds out which doubtful entries are in the log. Fails if another host has the store.
    async fn settle(&self, end: &mut MutexGuard<'_, LogEnd>) -> Result {
        if end.is_lost {
            return Err(IN_USE);
        }
        while !end.doubtful.is_empty() {
            self.append(end, Entry::Nothing).await?;
        }
        Ok(())
    }

    /// Replaces the entries of the log by a checkpoint, if they are many. A failure does no harm.
    async fn shorten(&self, end: &mut MutexGuard<'_, LogEnd>) {
        let last = end.next - 1;
        let Some(newest) = end.newest.filter(|_| last >= end.checkpoint + ENTRIES_MAX) else {
            return;
        };
        let mark = Mark { owner: self.owner, number: end.entries };
        end.entries += 1;
        let bytes = Bytes::from(Entry::checkpoint(&self.reading(), newest).encode(&mark));
        let shortened = self.request(move |engine| {
            let bytes = bytes.clone();
            async move { engine.checkpoint(last, bytes).await }
        });
        // If it fails, the next commit tries again.
        if shortened.await.is_ok() {
            end.checkpoint = last;
        }
    }

    /// Removes the bytes of versions in the background.
    fn remove(&self, dropped: Vec<StagedVersion>) {
        let names = dropped.into_iter().flat_map(|old| self.stripes(value_name(old)));
        self.remove_stripes(names.collect());
    }

    /// Removes stripes in the background.
    fn remove_stripes(&self, names: Vec<StripeName>) {
        if names.is_empty() {
            return;
        }
        let (engine, patience) = (self.engine.clone(), self.patience);
        // What remains after a failure is found when the store is opened again.
        self.runtime.spawn(async move {
            for names in names.chunks(REMOVALS_MAX) {
                let _ = persist(patience, || engine.remove(names)).await;
            }
        });
    }

    /// Carries a request out on the runtime, whichever thread waits for it.
    async fn request<T, F>(
        &self,
        request: impl Fn(Arc<E>) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RequestError>> + Send + 'static,
    {
        let (engine, patience) = (self.engine.clone(), self.patience);
        let task =
            self.runtime.spawn(async move { persist(patience, || request(engine.clone())).await });
        match task.await {
            Ok(done) => done.map_err(|failed| Error::Engine(failed.message)),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => Err(Error::Engine("it was closed".to_owned())),
        }
    }

    /// Reads ranges of stripes. A range that is missing is [`Error::Io`], unless it is missing
    /// because another host has the store.
    async fn read(&self, ranges: Vec<StripeRange>) -> Result<Vec<Bytes>> {
        let ranges = Arc::new(ranges);
        let wanted = ranges.clone();
        let found = self.request(move |engine| {
            let ranges = ranges.clone();
            async move { engine.read(&ranges).await }
        });
        let found = found.await?;
        assert_eq!(found.len(), wanted.len(), "a result for each range");
        let whole = found.into_iter().zip(wanted.iter());
        let whole = whole.map(|(bytes, range)| bytes.filter(|bytes| bytes.len() == range.len));
        let Some(whole) = whole.collect() else {
            // A host that has lost the store may read versions that are gone.
            self.append(&mut self.log.lock().await, Entry::Nothing).await?;
            let missing = io::Error::new(io::ErrorKind::NotFound, "the engine has lost a stripe");
            return Err(missing.into());
        };
        Ok(whole)
    }

    /// The range of a slot of a value.
    fn slot_range(&self, value: ValueName, slot: u32) -> StripeRange {
        let per_stripe = self.slots_per_stripe();
        let (stripe, within) = (slot as usize / per_stripe, slot as usize % per_stripe);
        let (name, len) = (StripeName { value, stripe: stripe as u32 }, self.geometry.slot_len());
        StripeRange { name, at: within * len, len }
    }

    /// The stripes of a value.
    fn stripes(&self, value: ValueName) -> impl Iterator<Item = StripeName> + use<E> {
        let slots = self.geometry.slots(self.geometry.layer_of(value.version.node));
        let count = slots.div_ceil(self.slots_per_stripe()) as u32;
        (0..count).map(move |stripe| StripeName { value, stripe })
    }

    /// Each stripe has whole slots, as many as suit the engine.
    fn slots_per_stripe(&self) -> usize {
        (self.engine.stripe_len_max() / self.geometry.slot_len()).max(1)
    }

    /// Finds the stripes that no version needs, before any is staged, and removes them in the
    /// background. This host could not open the store before all earlier ones had lost it, and what
    /// is garbage for this one is so for all later ones.
    async fn find_garbage(&self) {
        let listed = self.request(|engine| async move { engine.list().await });
        // If the engine cannot list them now, they are found another time.
        let Ok(mut garbage) = listed.await else { return };
        let known: HashSet<ValueName> = {
            let versions = self.reading();
            versions.current().chain(versions.previous()).map(value_name).collect()
        };
        garbage.retain(|name| !known.contains(&name.value));
        self.remove_stripes(garbage);
    }

    /// The bytes of a readable version; `None` if it was never written.
    fn find(versions: &Versions<u64>, version: NodeVersion) -> Result<Option<ValueName>> {
        let staging = versions.find(version)?;
        Ok(staging.map(|staging| ValueName { version, staging }))
    }

    fn reading(&self) -> RwLockReadGuard<'_, Versions<u64>> {
        self.versions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> RwLockWriteGuard<'_, Versions<u64>> {
        self.versions.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Engine> NodeStore for EngineStore<E> {
    async fn admit(&self, opening: Opening) -> Result {
        self.take_over(opening).await
    }

    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        let mut wanted = Vec::with_capacity(reads.len());
        let mut ranges = Vec::with_capacity(reads.len());
        {
            let versions = self.reading();
            for (number, read) in reads.iter_mut().enumerate() {
                match Self::find(&versions, read.version)? {
                    None => read.into.fill(0),
                    Some(value) => {
                        wanted.push(number);
                        ranges.push(self.slot_range(value, read.slot));
                    }
                }
            }
        }
        if ranges.is_empty() {
            return Ok(());
        }
        for (number, bytes) in wanted.into_iter().zip(self.read(ranges).await?) {
            reads[number].into.copy_from_slice(&bytes);
        }
        Ok(())
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        let Some(value) = Self::find(&self.reading(), version)? else {
            into.fill(0);
            return Ok(());
        };
        let stripe_len = self.slots_per_stripe() * self.geometry.slot_len();
        let lens = into.chunks(stripe_len).map(<[u8]>::len);
        let range = |(name, len)| StripeRange { name, at: 0, len };
        let stripes = self.read(self.stripes(value).zip(lens).map(range).collect()).await?;
        for (into, bytes) in into.chunks_mut(stripe_len).zip(stripes) {
            into.copy_from_slice(&bytes);
        }
        Ok(())
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        let old = {
            let mut versions = self.writing();
            versions.check_new(version)?;
            versions.unstage(version)
        };
        self.remove(old.into_iter().collect());
        let mut staging = [0; 8];
        System.fill(&mut staging);
        let new = StoredVersion { version, location: u64::from_le_bytes(staging) };
        let stripes = bytes.chunks(self.slots_per_stripe() * self.geometry.slot_len());
        let stripes = stripes.map(Bytes::copy_from_slice);
        let writes = self.stripes(value_name(new)).zip(stripes).map(|(name, bytes)| {
            self.request(move |engine| {
                let bytes = bytes.clone();
                async move { engine.write(name, bytes).await }
            })
        });
        let writes: Vec<_> = writes.collect();
        let written: Result = stream::iter(writes).buffer_unordered(WRITES_MAX).try_collect().await;
        if let Err(error) = written {
            self.remove(vec![new]);
            return Err(error);
        }
        let replaced = self.writing().stage(new)?;
        self.remove(replaced.into_iter().collect());
        Ok(())
    }

    async fn abandon(&self) -> Result {
        // An entry that is in doubt may have made the staged versions current.
        self.settle(&mut self.log.lock().await).await?;
        let dropped = self.writing().abandon();
        self.remove(dropped);
        Ok(())
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        let mut end = self.log.lock().await;
        self.settle(&mut end).await?;
        let versions = self.reading().staged(sequence, versions)?;
        self.append(&mut end, Entry::Commit { sequence, versions }).await?;
        self.shorten(&mut end).await;
        Ok(())
    }

    async fn sequence(&self) -> Result<u64> {
        self.settle(&mut self.log.lock().await).await?;
        Ok(self.reading().sequence())
    }
}

/// The error of a host that has lost the store to another one.
const IN_USE: Error = Error::InUse("the store");

/// A runtime for requests to an engine.
pub(crate) fn runtime() -> Result<Runtime> {
    let name = "storage engine";
    Ok(Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name(name)
        .enable_all()
        .build()?)
}

#[cfg(test)]
mod tests;
