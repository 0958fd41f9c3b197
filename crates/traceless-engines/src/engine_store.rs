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

use crate::client::EngineClient;
use crate::engine::{Engine, StripeName, StripeRange, ValueName};
use crate::entry::{Entry, StagedVersion, value_name};
use crate::garbage::Garbage;
use crate::retry::Patience;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use log_end::LogEnd;
use std::sync::{
    Arc, Mutex as SyncMutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use tokio::sync::Mutex;
use traceless_cloud::Result;
use traceless_cloud::geometry::Geometry;
use traceless_cloud::store::{NodeStore, NodeVersion, Opening, SlotRead, StoredVersion, Versions};
use traceless_core::rng::{Rng as _, System};

/// Stripes of a node that are written at once.
const WRITES_MAX: usize = 8;

/// Nodes in an engine.
pub struct EngineStore<E: Engine> {
    geometry: Geometry,
    client: EngineClient<E>,
    versions: RwLock<Versions<u64>>,
    log: Mutex<LogEnd>,
    /// Versions with stripes that are being written, or were given up.
    unfinished: SyncMutex<Vec<StagedVersion>>,
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
        let (sent, bytes) = (ranges.clone(), ranges.iter().map(|range| range.len).sum());
        let found = self.client.request(bytes, move |engine| {
            let ranges = sent.clone();
            async move { engine.read(&ranges).await }
        });
        let found = found.await?;
        assert_eq!(found.len(), ranges.len(), "a result for each range");
        let whole = found.into_iter().zip(ranges.iter());
        let whole = whole.map(|(bytes, range)| bytes.filter(|bytes| bytes.len() == range.len));
        Ok(whole.collect())
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

    fn unfinished(&self) -> MutexGuard<'_, Vec<StagedVersion>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
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
        let slot_len = self.geometry.slot_len();
        let stripe_len = self.slots_per_stripe() * slot_len;
        // A stripe that was cut off has the slots before the cut, so slots are read, of which the
        // engine reads many at once.
        let lens = into.chunks(stripe_len).map(<[u8]>::len);
        let range = |(name, len)| StripeRange { name, at: 0, len };
        let whole: Vec<StripeRange> = self.stripes(value).zip(lens).map(range).collect();
        let found = self.read_once(&Arc::new(whole)).await?;
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
        let writes = self.stripes(value_name(new)).zip(stripes).map(|(name, bytes)| {
            let bytes = Bytes::copy_from_slice(bytes);
            // Requests that are under way at the same time share the way.
            self.client.request(WRITES_MAX * bytes.len(), move |engine| {
                let bytes = bytes.clone();
                async move { engine.write(name, bytes).await }
            })
        });
        let mut written = stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(WRITES_MAX);
        while let Some(()) = written.try_next().await? {}
        drop(written);
        self.unfinished().retain(|other| *other != new);
        let replaced = self.writing().stage(new)?;
        self.remove(replaced);
        Ok(())
    }

    async fn abandon(&self) -> Result {
        // An entry in doubt may have made the staged versions current.
        self.settle(&mut *self.log.lock().await).await?;
        let dropped = self.writing().abandon();
        let unfinished = std::mem::take(&mut *self.unfinished());
        self.remove(dropped.into_iter().chain(unfinished));
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
        self.confirm().await?;
        Ok(self.reading().sequence())
    }
}
