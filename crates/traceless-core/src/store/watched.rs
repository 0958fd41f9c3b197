//! The decorator that reports a store's accesses to a witness.

use super::Store;
use crate::clock::Clock;
use crate::error::Result;
use crate::trace::{Event, Op, Surface, Witness};
use crate::types::Extent;

/// Reports every extent and every sync to `witness`. Storage events are made here and nowhere else.
pub struct WatchedStore<S, W, C = ()> {
    inner: S,
    witness: W,
    clock: C,
}

impl<S: Store, W: Witness> WatchedStore<S, W> {
    /// Watches `inner`; events carry no time.
    pub fn new(inner: S, witness: W) -> Self {
        Self { inner, witness, clock: () }
    }
}

impl<S: Store, W: Witness, C: Clock> WatchedStore<S, W, C> {
    /// Watches `inner`; events carry the time of `clock`.
    pub fn with_clock(inner: S, witness: W, clock: C) -> Self {
        Self { inner, witness, clock }
    }

    fn record(&self, op: Op, extents: &[Extent]) {
        let time = self.clock.now();
        for extent in extents {
            let len = u32::try_from(extent.len).expect("no single request reaches 4 GiB");
            self.witness.record(Event { time, surface: Surface::Storage, op, at: extent.at, len });
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store, W: Witness, C: Clock> Store for WatchedStore<S, W, C> {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
    fn unit(&self) -> usize {
        self.inner.unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.record(Op::Read, extents);
        self.inner.read(extents, into)
    }
    // No event: the extents are reported when they are read.
    fn prefetch(&self, extents: &[Extent]) {
        self.inner.prefetch(extents);
    }
    fn takes_discards(&self) -> bool {
        self.inner.takes_discards()
    }
    // A discard changes what it covers, as a write does.
    fn discard(&self, extents: &[Extent]) {
        if self.inner.takes_discards() {
            self.record(Op::Write, extents);
            self.inner.discard(extents);
        }
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        self.record(Op::Write, extents);
        self.inner.write(extents, from)
    }
    fn sync(&self) -> Result {
        self.record(Op::Sync, &[Extent::new(0, 0)]);
        self.inner.sync()
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::store::MemStore;
    use alloc::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Witness for &Count {
        fn record(&self, _: Event) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn hints_are_no_events() {
        let seen = Count::default();
        let store = WatchedStore::new(MemStore::new(100), &seen);
        let extents = [Extent::new(0, 10), Extent::new(50, 10)];
        store.prefetch(&extents);
        assert_eq!(seen.0.load(Ordering::Relaxed), 0);
        store.read(&extents, &mut [0; 20]).unwrap();
        assert_eq!(seen.0.load(Ordering::Relaxed), 2);
    }

    /// A store that counts prefetches and syncs.
    #[derive(Default)]
    struct Plain {
        prefetched: AtomicUsize,
        synced: AtomicUsize,
        discarded: AtomicUsize,
    }

    impl Store for Plain {
        fn len(&self) -> u64 {
            9
        }
        fn read(&self, _: &[Extent], _: &mut [u8]) -> Result {
            Ok(())
        }
        fn prefetch(&self, extents: &[Extent]) {
            self.prefetched.fetch_add(extents.len(), Ordering::Relaxed);
        }
        fn takes_discards(&self) -> bool {
            true
        }
        fn discard(&self, extents: &[Extent]) {
            self.discarded.fetch_add(extents.len(), Ordering::Relaxed);
        }
        fn write(&self, _: &[Extent], _: &[u8]) -> Result {
            Ok(())
        }
        fn sync(&self) -> Result {
            self.synced.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn discards_are_events_where_they_are_taken() {
        let (plain, seen) = (Arc::new(Plain::default()), Count::default());
        let watched = WatchedStore::new(plain.clone(), &seen);
        assert!(watched.takes_discards());
        watched.discard(&[Extent::new(0, 1); 2]);
        let counts = [&plain.discarded, &seen.0].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [2, 2]);
        let memory = WatchedStore::new(MemStore::new(9), &seen);
        assert!(!memory.takes_discards());
        memory.discard(&[Extent::new(0, 1)]);
        assert_eq!(seen.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn all_is_passed_on() {
        let (plain, seen) = (Arc::new(Plain::default()), Count::default());
        let watched = WatchedStore::new(plain.clone(), &seen);
        watched.prefetch(&[Extent::new(0, 1); 3]);
        plain.prefetch(&[Extent::new(0, 1)]);
        watched.sync().unwrap();
        let calls = [&plain.prefetched, &plain.synced].map(|count| count.load(Ordering::Relaxed));
        assert_eq!((calls, seen.0.load(Ordering::Relaxed)), ([4, 1], 1));
        // 512 is the default unit, for a store on a disk.
        assert_eq!((plain.unit(), watched.unit(), watched.len()), (512, 512, 9));
        assert_eq!(WatchedStore::new(MemStore::new(0), &seen).unit(), 64);
        assert!(!plain.is_empty() && !watched.is_empty());
        let empty = Arc::new(MemStore::new(0));
        assert!(empty.is_empty() && WatchedStore::new(empty, &seen).is_empty());
    }
}
