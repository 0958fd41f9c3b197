//! A store of nodes in an engine: which versions are current follows from the engine's log.
//!
//! **Commits.** Stripes are written under fresh names, and then one entry of the log makes them
//! current. The next position of the log can be taken once. A host that finds it taken by another
//! host has lost the store, and changes nothing more.
//!
//! **Doubt.** An entry that had no answer may be in the log now, later or never. Before anything
//! else is decided, its position is read, or taken by an entry without a meaning.
//!
//! **Damage.** A stripe that the engine has lost reads as zeros, which the enclave finds to be
//! damaged. The host first makes sure that it still has the store: to a host that has lost it, old
//! stripes are missing because a newer host has removed them.

mod log_end;
#[cfg(test)]
mod tests;

use crate::client::{EngineClient, WorkUnderWay};
use crate::engine::{Engine, RequestError, StripeName, StripeRange, ValueName};
use crate::entry::{Entry, StagedVersion, value_name};
use crate::garbage::Garbage;
use crate::retry::Patience;
use bytes::Bytes;
use futures_util::TryFutureExt as _;
use futures_util::future::try_join_all;
use log_end::LogEnd;
use std::collections::HashMap;
use std::sync::{
    Arc, Mutex as SyncMutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use tokio::sync::{Mutex, Semaphore};
use traceless_cloud::Result;
use traceless_cloud::geometry::{Geometry, Node};
use traceless_cloud::store::{
    CopyableStore, NodeStore, NodeVersion, Opening, SlotRead, StoredVersion, Versions,
};
use traceless_core::rng::{Rng as _, System};

/// Stripes that are written at once.
const WRITES_MAX: usize = 8;
/// Nodes that are read at once.
const READS_MAX: usize = 2;
/// Nodes in memory that wait to be written, or to be used. Only very large trees have longer paths.
const NODES_MAX: usize = 8;

/// A node that is being read: its stripes, as far as they are there.
type NodeRead = WorkUnderWay<Vec<Option<Bytes>>>;
type ReadOutcome = Result<Vec<Option<Bytes>>, RequestError>;

/// Nodes in an engine.
pub struct EngineStore<E: Engine> {
    geometry: Geometry,
    client: EngineClient<E>,
    versions: RwLock<Versions<u64>>,
    log: Mutex<LogEnd>,
    /// Versions with stripes that are being written, or were given up.
    unfinished: SyncMutex<Vec<StagedVersion>>,
    /// Nodes that the running round is about to read.
    announced: SyncMutex<HashMap<NodeVersion, NodeRead>>,
    /// Staged versions that are being written.
    writes: Mutex<Vec<(StagedVersion, WorkUnderWay<()>)>>,
    /// Permits to write a stripe.
    writers: Arc<Semaphore>,
    /// Permits to read an announced node.
    readers: Arc<Semaphore>,
    garbage: Garbage,
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
        let store = Self {
            geometry,
            client: EngineClient::new(engine, patience)?,
            versions: RwLock::new(Versions::new(geometry)),
            log: Mutex::new(LogEnd::new()),
            unfinished: SyncMutex::default(),
            announced: SyncMutex::default(),
            writes: Mutex::default(),
            writers: Arc::new(Semaphore::new(WRITES_MAX)),
            readers: Arc::new(Semaphore::new(READS_MAX)),
            garbage: Garbage::default(),
        };
        store.client.block_on(store.take_over(opening))?;
        Ok(store)
    }

    /// Reads ranges of stripes. A range that the engine has lost becomes zeros.
    async fn read(&self, ranges: Vec<StripeRange>) -> Result<Vec<Bytes>> {
        let ranges = Arc::new(ranges);
        let mut found = self.read_once(&ranges).await?;
        if found.iter().any(Option::is_none) {
            self.confirm().await?;
            // The answer may have come from a server that has lost its place to another one.
            found = self.read_once(&ranges).await?;
        }
        let whole = |(bytes, range): (Option<Bytes>, &StripeRange)| {
            bytes.unwrap_or_else(|| Bytes::from(vec![0; range.len]))
        };
        Ok(found.into_iter().zip(ranges.iter()).map(whole).collect())
    }

    /// Reads ranges; `None` for one that is not there in full.
    async fn read_once(&self, ranges: &Arc<Vec<StripeRange>>) -> Result<Vec<Option<Bytes>>> {
        self.client.begin(self.reading_of(ranges.clone())).finish().await
    }

    /// The reading of ranges.
    fn reading_of(
        &self,
        ranges: Arc<Vec<StripeRange>>,
    ) -> impl Future<Output = ReadOutcome> + Send + use<E> {
        let (sent, bytes) = (ranges.clone(), ranges.iter().map(|range| range.len).sum());
        let found = self.client.repeated(bytes, move |engine| {
            let ranges = sent.clone();
            async move { engine.read(&ranges).await }
        });
        async move {
            let found = found.await?;
            assert_eq!(found.len(), ranges.len(), "a result for each range");
            let whole = found.into_iter().zip(ranges.iter());
            let whole = whole.map(|(bytes, range)| bytes.filter(|bytes| bytes.len() == range.len));
            Ok(whole.collect())
        }
    }

    /// The stripes of a node, as ranges.
    fn whole_node(&self, value: ValueName) -> Arc<Vec<StripeRange>> {
        let slots = self.geometry.slots(self.geometry.layer_of(value.version.node));
        let slot_len = self.geometry.slot_len();
        let per_stripe = self.slots_per_stripe();
        let len = |stripe: &StripeName| {
            per_stripe.min(slots - stripe.stripe as usize * per_stripe) * slot_len
        };
        let range = |name| StripeRange { name, at: 0, len: len(&name) };
        Arc::new(self.stripes(value).map(range).collect())
    }

    /// Waits until staged versions are written. What was not is left to the next call of `abandon`.
    async fn finish_writes(&self, writes: &mut Vec<(StagedVersion, WorkUnderWay<()>)>) -> Result {
        for (new, written) in writes.drain(..) {
            written.finish().await?;
            self.unfinished().retain(|other| *other != new);
            let replaced = self.writing().stage(new)?;
            self.remove(replaced);
        }
        Ok(())
    }

    /// Ends what a round has under way. Its writes are waited for, as a stripe that is written
    /// after its removal would stay.
    async fn give_up_round(&self) {
        self.announced().clear();
        for (_, written) in self.writes.lock().await.drain(..) {
            let _ = written.finish().await;
        }
    }

    /// Removes the bytes of versions in the background.
    fn remove(&self, dropped: impl IntoIterator<Item = StagedVersion>) {
        let names = dropped.into_iter().flat_map(|old| self.stripes(value_name(old)));
        self.garbage.remove(&self.client, names.collect());
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
        (self.client.engine().stripe_len_max() / self.geometry.slot_len()).max(1)
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

    fn announced(&self) -> MutexGuard<'_, HashMap<NodeVersion, NodeRead>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unfinished(&self) -> MutexGuard<'_, Vec<StagedVersion>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Engine> NodeStore for EngineStore<E> {
    async fn admit(&self, opening: Opening) -> Result {
        self.give_up_round().await;
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
        let slot_len = self.geometry.slot_len();
        let stripe_len = self.slots_per_stripe() * slot_len;
        let announced = self.announced().remove(&version);
        let found = match announced {
            Some(reading) => reading.finish().await?,
            None => self.read_once(&self.whole_node(value)).await?,
        };
        // A stripe that was cut off has the slots before the cut, so slots are read, of which the
        // engine reads many at once.
        let mut missing = Vec::new();
        for (number, bytes) in found.into_iter().enumerate() {
            let start = number * stripe_len;
            let end = into.len().min(start + stripe_len);
            match bytes {
                Some(bytes) => into[start..end].copy_from_slice(&bytes),
                None => missing.extend(start / slot_len..end / slot_len),
            }
        }
        if !missing.is_empty() {
            let ranges = missing.iter().map(|&slot| self.slot_range(value, slot as u32));
            let slots = self.read(ranges.collect()).await?;
            for (slot, bytes) in missing.into_iter().zip(slots) {
                into[slot * slot_len..][..slot_len].copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        // An entry in doubt may make the version current that this one replaces.
        self.settle(&mut *self.log.lock().await).await?;
        let mut writes = self.writes.lock().await;
        if writes.iter().any(|(other, _)| other.version.node == version.node) {
            self.finish_writes(&mut writes).await?;
        }
        let replaced = {
            let mut versions = self.writing();
            versions.check_new(version)?;
            versions.unstage(version)
        };
        self.remove(replaced);
        let mut staging = [0; 8];
        System.fill(&mut staging);
        let new = StoredVersion { version, location: u64::from_le_bytes(staging) };
        self.unfinished().push(new);
        let stripes = bytes.chunks(self.slots_per_stripe() * self.geometry.slot_len());
        let requests = self.stripes(value_name(new)).zip(stripes).map(|(name, bytes)| {
            let (bytes, permits) = (Bytes::copy_from_slice(bytes), self.writers.clone());
            // Requests that are under way at the same time share the way.
            let write = self.client.repeated(WRITES_MAX * bytes.len(), move |engine| {
                let bytes = bytes.clone();
                async move { engine.write(name, bytes).await }
            });
            async move {
                let _permit = permits.acquire().await.expect("it is never closed");
                write.await
            }
        });
        let written = try_join_all(requests.collect::<Vec<_>>()).map_ok(drop);
        writes.push((new, self.client.begin(written)));
        if writes.len() >= NODES_MAX {
            self.finish_writes(&mut writes).await?;
        }
        Ok(())
    }

    fn announce(&self, versions: &[NodeVersion]) {
        let found = versions.iter().filter_map(|&version| {
            let value = Self::find(&self.reading(), version).ok()??;
            let (readers, reading) =
                (self.readers.clone(), self.reading_of(self.whole_node(value)));
            let reading = async move {
                let _permit = readers.acquire().await.expect("it is never closed");
                reading.await
            };
            Some((version, self.client.begin(reading)))
        });
        let found = found.take(NODES_MAX).collect();
        *self.announced() = found;
    }

    async fn finish_stages(&self) -> Result {
        self.finish_writes(&mut *self.writes.lock().await).await
    }

    async fn abandon(&self) -> Result {
        // An entry in doubt may have made the staged versions current.
        self.settle(&mut *self.log.lock().await).await?;
        self.give_up_round().await;
        let dropped = self.writing().abandon();
        let unfinished = std::mem::take(&mut *self.unfinished());
        self.remove(dropped.into_iter().chain(unfinished));
        Ok(())
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.finish_stages().await?;
        let mut end = self.log.lock().await;
        self.settle(&mut end).await?;
        let versions = self.reading().staged(sequence, versions)?;
        self.append(&mut end, Entry::Commit { sequence, versions }).await?;
        self.shorten(&mut end).await;
        Ok(())
    }

    async fn remove(&self, nodes: &[Node]) -> Result {
        let mut end = self.log.lock().await;
        self.settle(&mut end).await?;
        // No other host has the store.
        self.append(&mut end, Entry::Nothing).await?;
        let removed = self.writing().remove(nodes);
        if !removed.is_empty() {
            self.checkpoint(&mut end).await?;
            EngineStore::remove(self, removed);
        }
        Ok(())
    }

    async fn sequence(&self) -> Result<u64> {
        self.confirm().await?;
        Ok(self.reading().sequence())
    }
}

impl<E: Engine> CopyableStore for EngineStore<E> {
    fn current(&self) -> Result<Vec<NodeVersion>> {
        Ok(self.reading().current().map(|stored| stored.version).collect())
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.finish_stages().await?;
        let mut end = self.log.lock().await;
        self.settle(&mut end).await?;
        let versions = self.reading().copied(sequence, versions)?;
        self.append(&mut end, Entry::Restore { sequence, versions }).await?;
        self.shorten(&mut end).await;
        Ok(())
    }
}
