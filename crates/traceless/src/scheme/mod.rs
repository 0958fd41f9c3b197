//! The schemes. Each is an [`Oram`](crate::oram::Oram) over a store.

pub mod datalair;
pub mod detwo;
pub mod hive;
pub mod linear;
mod log;
pub mod openings;
pub mod plain;
mod pool;
pub mod random;

use crate::durable::Vault;
use crate::rng::Rng;
use crate::seal::Secret;
use crate::store::Store;
use alloc::boxed::Box;
use alloc::sync::Arc;

/// What a scheme for block devices is opened with.
pub struct Parts {
    /// The untrusted side; what the scheme's `store_len` says, from `first` on.
    pub store: Arc<dyn Store>,
    /// First byte of the areas.
    pub first: u64,
    /// The key of this scheme's areas; nothing else is sealed under it.
    pub key: Secret,
    /// Where the trusted state is kept.
    pub vault: Box<dyn Vault>,
    /// Source of opening ids.
    pub rng: Box<dyn Rng>,
    /// Whether to open for reading only; then nothing is written, not even by recovery.
    pub read_only: bool,
    /// Writes that must be found when it is opened: what somebody who cannot be rolled back knows.
    pub expect_writes: u64,
}
