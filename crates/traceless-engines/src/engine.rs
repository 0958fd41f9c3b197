//! What a storage engine does: it keeps stripes of nodes under names that are never used twice, and
//! a log in which each position is taken once.
//!
//! [`EngineStore`](crate::EngineStore) makes a store of it. No request overwrites anything, so one
//! that arrives late, twice or after another host has taken over does no harm.

use bytes::Bytes;
use std::fmt;
use traceless_cloud::gateway::{Appended, StoredLog};
use traceless_cloud::store::NodeVersion;

/// The name of a node's bytes in an engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ValueName {
    /// The version of the node.
    pub version: NodeVersion,
    /// A random number, drawn each time that the version is staged: a late request of an earlier
    /// staging is for another name.
    pub staging: u64,
}

/// The name of a part of a node's bytes: an engine stores a stripe as one value or object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StripeName {
    /// The node's bytes.
    pub value: ValueName,
    /// The number of the stripe in them, from 0 on.
    pub stripe: u32,
}

/// A range of bytes of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeRange {
    /// The stripe.
    pub name: StripeName,
    /// Offset of the first byte in the stripe.
    pub at: usize,
    /// How many bytes.
    pub len: usize,
}

/// Why a request of an engine failed.
#[derive(Clone, Debug)]
pub struct RequestError {
    /// The reason, for the operator.
    pub message: String,
    /// Whether the same request may succeed later.
    pub is_passing: bool,
}

impl RequestError {
    /// A failure that may be over when the request is repeated.
    pub fn passing(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), is_passing: true }
    }

    /// A failure that remains however often the request is repeated.
    pub fn lasting(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), is_passing: false }
    }
}

/// A storage engine.
///
/// Every future may be dropped at any time, and its request may then take effect later or never.
/// The caller repeats a request that failed or had no answer in time; so every request may be
/// carried out more than once. Futures run on a Tokio runtime.
pub trait Engine: Send + Sync + 'static {
    /// The most bytes of a stripe that suit the engine.
    fn stripe_len_max(&self) -> usize;

    /// Fails if the engine cannot be reached, or cannot keep a store.
    fn check(&self) -> impl Future<Output = Result<(), RequestError>> + Send;

    /// Reads ranges, all of them at once as far as the engine allows. The result of a range is
    /// `None`, or shorter than it, if the stripe is missing or ends within it.
    fn read(
        &self,
        ranges: &[StripeRange],
    ) -> impl Future<Output = Result<Vec<Option<Bytes>>, RequestError>> + Send;

    /// Stores a stripe. It is durable once the engine has acknowledged it.
    fn write(
        &self,
        name: StripeName,
        bytes: Bytes,
    ) -> impl Future<Output = Result<(), RequestError>> + Send;

    /// Removes stripes, as far as they exist.
    fn remove(&self, names: &[StripeName])
    -> impl Future<Output = Result<(), RequestError>> + Send;

    /// The names of all stripes.
    fn list(&self) -> impl Future<Output = Result<Vec<StripeName>, RequestError>> + Send;

    /// Adds an entry to the log, unless its position is taken, is not the next one, or is included
    /// in a checkpoint. Positions begin with 1.
    fn append(
        &self,
        position: u64,
        entry: Bytes,
    ) -> impl Future<Output = Result<Appended, RequestError>> + Send;

    /// The entry at a position of the log; `None` if there is none yet, or a checkpoint includes
    /// it.
    fn entry(
        &self,
        position: u64,
    ) -> impl Future<Output = Result<Option<Bytes>, RequestError>> + Send;

    /// The position of the last entry that the newest checkpoint includes; 0 without a checkpoint.
    fn included(&self) -> impl Future<Output = Result<u64, RequestError>> + Send;

    /// The log, as it was at one moment.
    fn load(&self) -> impl Future<Output = Result<StoredLog, RequestError>> + Send;

    /// Stores a checkpoint that includes all entries up to `position`, which are removed. Does
    /// nothing if there is a newer one.
    fn checkpoint(
        &self,
        position: u64,
        bytes: Bytes,
    ) -> impl Future<Output = Result<(), RequestError>> + Send;
}
