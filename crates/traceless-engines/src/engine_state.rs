//! The log of a gateway's state in an engine.

use crate::client::EngineClient;
use crate::engine::{Engine, RequestError, StripeName, StripeRange, ValueName};
use crate::retry::{Patience, STATE_PATIENCE};
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::sync::Arc;
use std::time::Duration;
use traceless_cloud::Result;
use traceless_cloud::block_on;
use traceless_cloud::gateway::{Appended, PieceName, StateLog, StoredLog};
use traceless_cloud::geometry::Node;
use traceless_cloud::store::NodeVersion;

/// Bytes that an engine may have to read for its log, or a list of names: they are read in parts.
const LOG_BYTES: usize = 64 << 20;

/// The shortest time that an attempt gets.
const ATTEMPT_MIN: Duration = Duration::from_millis(250);

/// A state in an engine. A piece of it is a stripe.
pub struct EngineState<E: Engine> {
    client: EngineClient<E>,
}

impl<E: Engine> EngineState<E> {
    /// The state in an engine, which needs no connection yet.
    ///
    /// An attempt without an answer for a quarter of the lease is given up, so that there is time
    /// for further ones in it.
    pub fn new(engine: Arc<E>, lease: Duration) -> Result<Self> {
        let attempt = (lease / 4).clamp(ATTEMPT_MIN, STATE_PATIENCE.attempt);
        let client = EngineClient::new(engine, Patience { attempt, ..STATE_PATIENCE })?;
        Ok(Self { client })
    }

    /// Carries out a request that moves so many bytes.
    fn request<T, F>(
        &self,
        bytes: usize,
        request: impl Fn(Arc<E>) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RequestError>> + Send + 'static,
    {
        block_on(self.client.request(bytes, request))
    }
}

impl<E: Engine> StateLog for EngineState<E> {
    fn load(&self) -> Result<StoredLog> {
        self.request(LOG_BYTES, |engine| async move { engine.load().await })
    }

    fn entry(&self, position: u64) -> Result<Option<Bytes>> {
        // A gateway that waits for an entry looks again soon.
        let entry = self.client.once(move |engine| async move { engine.entry(position).await });
        block_on(entry)
    }

    fn included(&self) -> Result<u64> {
        block_on(self.client.once(|engine| async move { engine.included().await }))
    }

    fn append(&self, position: u64, entry: Bytes) -> Result<Appended> {
        self.request(entry.len(), move |engine| {
            let entry = entry.clone();
            async move { engine.append(position, entry).await }
        })
    }

    fn checkpoint(&self, position: u64, bytes: Bytes) -> Result {
        // The entries that it includes are removed, too.
        self.request(bytes.len() + LOG_BYTES, move |engine| {
            let bytes = bytes.clone();
            async move { engine.checkpoint(position, bytes).await }
        })
    }

    fn write_pieces(&self, pieces: Vec<(PieceName, Bytes)>) -> Result {
        let total = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        self.request(total, move |engine| {
            let pieces = pieces.clone();
            async move {
                let write = |(name, bytes)| engine.write(stripe(name), bytes);
                try_join_all(pieces.into_iter().map(write)).await.map(drop)
            }
        })
    }

    fn read_pieces(&self, pieces: &[(PieceName, usize)]) -> Result<Vec<Option<Bytes>>> {
        let range =
            |&(name, len): &(PieceName, usize)| StripeRange { name: stripe(name), at: 0, len };
        let ranges: Arc<Vec<StripeRange>> = Arc::new(pieces.iter().map(range).collect());
        let (total, sent) = (pieces.iter().map(|(_, len)| len).sum(), ranges.clone());
        let found = self.request(total, move |engine| {
            let ranges = sent.clone();
            async move { engine.read(&ranges).await }
        })?;
        assert_eq!(found.len(), ranges.len(), "a result for each range");
        let whole = |(bytes, range): (Option<Bytes>, &StripeRange)| {
            bytes.filter(|bytes| bytes.len() == range.len)
        };
        Ok(found.into_iter().zip(ranges.iter()).map(whole).collect())
    }

    fn list_pieces(&self) -> Result<Vec<PieceName>> {
        let names = self.request(LOG_BYTES, |engine| async move { engine.list().await })?;
        Ok(names.into_iter().filter_map(piece).collect())
    }

    fn remove_pieces(&self, pieces: &[PieceName]) -> Result {
        let names: Arc<Vec<StripeName>> = Arc::new(pieces.iter().copied().map(stripe).collect());
        self.request(0, move |engine| {
            let names = names.clone();
            async move { engine.remove(&names).await }
        })
    }
}

/// The stripe of a piece: of the root, as there is no tree. A tree's stagings are random.
fn stripe(piece: PieceName) -> StripeName {
    let version = NodeVersion { node: Node(0), attempt: piece.save };
    StripeName { value: ValueName { version, staging: 0 }, stripe: piece.piece }
}

/// The piece in a stripe, if it is one.
fn piece(name: StripeName) -> Option<PieceName> {
    let piece = PieceName { save: name.value.version.attempt, piece: name.stripe };
    (stripe(piece) == name).then_some(piece)
}
