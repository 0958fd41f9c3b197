//! The life of a scheme from its opening to its close: whether it may write, what is durable, and
//! where its trusted state is kept. Every scheme for block devices has one.

use crate::durable::Vault;
use crate::error::{Error, Result};
use crate::rng::Rng;
use crate::store::Store;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// From opening to close.
pub(crate) struct Lifecycle {
    read_only: bool,
    closed: bool,
    failed: AtomicBool,
    synced: AtomicU64,
    vault: Box<dyn Vault>,
    /// Source of opening ids, and of whatever else a scheme draws.
    pub rng: Box<dyn Rng>,
}

impl Lifecycle {
    pub fn new(read_only: bool, vault: Box<dyn Vault>, rng: Box<dyn Rng>) -> Self {
        let (failed, synced) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { read_only, closed: false, failed, synced, vault, rng }
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether it was opened for writing and not closed since.
    pub fn takes_writes(&self) -> bool {
        !self.read_only && !self.closed
    }

    /// Refuses a write where none may be made.
    pub fn writable(&self) -> Result {
        if !self.takes_writes() {
            return Err(Error::ReadOnly);
        }
        self.healthy()
    }

    /// Refuses whatever would go on after a failure.
    pub fn healthy(&self) -> Result {
        if self.failed.load(Ordering::Acquire) { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Something failed that may have sealed or kept a part of what it should have: nothing more is
    /// written until the scheme is opened again.
    pub fn poison(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Writes that are durable for sure. None are while it is opened for reading only.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Makes durable what `store` was given, which is `count` writes. Nothing for reading only.
    pub fn sync(&self, store: &dyn Store, count: u64) -> Result {
        if self.read_only {
            return Ok(());
        }
        self.healthy()?;
        // A failed sync may have dropped what it should have kept: it is never tried again.
        store.sync().inspect_err(|_| self.poison())?;
        // The largest: one of several syncs at a time may end after one that began later.
        self.synced.fetch_max(count, Ordering::AcqRel);
        Ok(())
    }

    /// Draws the id of an opening.
    pub fn draw_id<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut id = [0; LEN];
        self.rng.fill(&mut id);
        id
    }

    /// Keeps trusted state in place of what was kept before.
    pub fn keep(&mut self, state: &[u8]) -> Result {
        self.vault.keep(state).inspect_err(|_| self.poison())
    }

    /// Everything is durable, and the state says so.
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
