//! The life of a scheme from opening to close: whether it may write, what is durable, and where its
//! trusted state is kept. Every scheme for block devices has a [`Lifecycle`].
//!
//! ```
//! use traceless_core::Error;
//! use traceless_core::durable::MemVault;
//! use traceless_core::rng::System;
//! use traceless_core::scheme::lifecycle::Lifecycle;
//! use traceless_core::store::MemStore;
//!
//! # fn main() -> traceless_core::Result {
//! let (store, vault) = (MemStore::new(4096), MemVault::default());
//! let mut life = Lifecycle::new(false, Box::new(vault.clone()), Box::new(System));
//! life.writable()?;
//! // Here the scheme makes 5 writes.
//! life.sync(&store, 5)?;
//! life.keep(b"state after 5 writes")?;
//! life.end();
//!
//! assert_eq!((life.synced(), &vault.kept()[..]), (5, &b"state after 5 writes"[..]));
//! assert!(matches!(life.writable(), Err(Error::ReadOnly)));
//! # Ok(())
//! # }
//! ```

use crate::durable::Vault;
use crate::error::{Error, Result};
use crate::rng::Rng;
use crate::store::Store;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State of an open scheme, until it is closed.
pub struct Lifecycle {
    read_only: bool,
    closed: bool,
    failed: AtomicBool,
    synced: AtomicU64,
    vault: Box<dyn Vault>,
    /// Source of opening ids, and of all other randomness of the scheme.
    pub rng: Box<dyn Rng>,
}

impl Lifecycle {
    /// The life of a scheme that was just opened, with the vault of its state.
    pub fn new(read_only: bool, vault: Box<dyn Vault>, rng: Box<dyn Rng>) -> Self {
        let (failed, synced) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { read_only, closed: false, failed, synced, vault, rng }
    }

    /// Whether the scheme was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether the scheme was opened for writing and is not closed.
    pub fn takes_writes(&self) -> bool {
        !self.read_only && !self.closed
    }

    /// Returns an error if no write may be made.
    pub fn writable(&self) -> Result {
        if !self.takes_writes() {
            return Err(Error::ReadOnly);
        }
        self.check_not_poisoned()
    }

    /// Returns [`Error::Poisoned`] after a failure.
    pub fn check_not_poisoned(&self) -> Result {
        if self.failed.load(Ordering::Acquire) { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Called after a failure that may have sealed or stored only a part of the data: the scheme
    /// writes nothing more until it is opened again.
    pub fn poison(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Writes that are known to be durable; 0 if the scheme is open for reading only.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Makes all data written to `store` durable, which is `count` writes. Does nothing for reading
    /// only.
    pub fn sync(&self, store: &dyn Store, count: u64) -> Result {
        if self.read_only {
            return Ok(());
        }
        self.check_not_poisoned()?;
        // A failed sync may have dropped data for good, so it is never retried.
        store.sync().inspect_err(|_| self.poison())?;
        // The maximum: of several concurrent syncs, one may end after another that began later.
        self.synced.fetch_max(count, Ordering::AcqRel);
        Ok(())
    }

    /// Draws the id of an opening.
    pub fn draw_id<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut id = [0; LEN];
        self.rng.fill(&mut id);
        id
    }

    /// Replaces the stored trusted state.
    pub fn keep(&mut self, state: &[u8]) -> Result {
        self.vault.keep(state).inspect_err(|_| self.poison())
    }

    /// Ends writing. Everything is durable, and the state records that.
    pub fn end(&mut self) {
        self.closed = true;
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::rng::SeededRng;
    use crate::store::MemStore;

    fn life(read_only: bool) -> Lifecycle {
        Lifecycle::new(read_only, Box::new(()), Box::new(SeededRng::new(1)))
    }

    #[test]
    fn a_sync_of_fewer_writes_takes_nothing_back() {
        let (life, store) = (life(false), MemStore::new(0));
        life.sync(&store, 5).unwrap();
        life.sync(&store, 3).unwrap();
        assert_eq!(life.synced(), 5);
    }

    #[test]
    fn what_ends_writing_says_why() {
        let mut ended = life(false);
        ended.writable().unwrap();
        ended.end();
        assert!(matches!(ended.writable(), Err(Error::ReadOnly)));
        assert!(matches!(life(true).writable(), Err(Error::ReadOnly)));
        let failed = life(false);
        failed.poison();
        assert!(matches!(failed.writable(), Err(Error::Poisoned)));
        assert!(matches!(failed.sync(&MemStore::new(0), 1), Err(Error::Poisoned)));
        assert_eq!(failed.synced(), 0);
    }
}
