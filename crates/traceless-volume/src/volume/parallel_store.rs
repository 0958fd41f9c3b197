//! A store that has several requests to the disk under way at once.

use rayon_core::{ThreadPool, ThreadPoolBuilder};
use std::sync::LazyLock;
use traceless_core::Result;
use traceless_core::store::{ALIGN, Store};
use traceless_core::types::{Extent, total_len};

/// Requests to the disk at once. Their threads wait for it nearly all the time.
const THREADS: usize = 16;

/// A store with a slow disk and no cache: what one call reads or writes in several places is
/// requested by several threads. The places follow from the call, so that their order reveals
/// nothing more.
pub struct ParallelStore<S> {
    inner: S,
    /// Started for the first call that needs it; `None` if the system refuses.
    threads: LazyLock<Option<ThreadPool>>,
}

impl<S> ParallelStore<S> {
    /// Serves calls from `inner`, which nothing else writes to.
    pub fn new(inner: S) -> Self {
        Self { inner, threads: LazyLock::new(start) }
    }

    /// The threads, if a call for these extents needs them.
    fn threads_for(&self, extents: &[Extent]) -> Option<&ThreadPool> {
        (extents.len() > 1).then(|| self.threads.as_ref()).flatten()
    }
}

fn start() -> Option<ThreadPool> {
    let named = ThreadPoolBuilder::new().thread_name(|_| "disk".to_owned());
    named.num_threads(THREADS).build().ok()
}

/// Parts of a call, one for each thread at most.
fn parts(extents: &[Extent]) -> std::slice::Chunks<'_, Extent> {
    extents.chunks(extents.len().div_ceil(THREADS))
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for ParallelStore<S> {
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
        let Some(threads) = self.threads_for(extents) else {
            return self.inner.read(extents, into);
        };
        assert!(total_len(extents) == into.len(), "extents and buffer must agree");
        let mut outcomes: Vec<Result> = parts(extents).map(|_| Ok(())).collect();
        threads.in_place_scope(|scope| {
            let mut rest = into;
            for (part, outcome) in parts(extents).zip(&mut outcomes) {
                let (own, next) = rest.split_at_mut(total_len(part));
                rest = next;
                scope.spawn(move |_| *outcome = self.inner.read(part, own));
            }
        });
        outcomes.into_iter().collect()
    }

    fn prefetch(&self, extents: &[Extent]) {
        self.inner.prefetch(extents);
    }

    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        // Around other extents the inner store may read and write back bytes of their neighbours.
        let is_aligned = |extent: &Extent| {
            extent.at.is_multiple_of(ALIGN as u64) && extent.len.is_multiple_of(ALIGN)
        };
        let threads = self.threads_for(extents).filter(|_| extents.iter().all(is_aligned));
        let Some(threads) = threads else {
            return self.inner.write(extents, from);
        };
        assert!(total_len(extents) == from.len(), "extents and buffer must agree");
        let mut outcomes: Vec<Result> = parts(extents).map(|_| Ok(())).collect();
        threads.in_place_scope(|scope| {
            let mut rest = from;
            for (part, outcome) in parts(extents).zip(&mut outcomes) {
                let (own, next) = rest.split_at(total_len(part));
                rest = next;
                scope.spawn(move |_| *outcome = self.inner.write(part, own));
            }
        });
        outcomes.into_iter().collect()
    }

    fn sync(&self) -> Result {
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex};
    use traceless_core::store::MemStore;

    #[test]
    fn all_places_are_read_and_written_or_the_call_fails() {
        let store = ParallelStore::new(MemStore::new(64 * ALIGN as u64));
        for (step, count) in [(ALIGN, 1), (ALIGN, 2), (ALIGN, 40), (100, 5)] {
            let places: Vec<_> =
                (0..count).map(|nth| Extent::new((nth * 3 % 64 * step) as u64, step)).collect();
            let data: Vec<u8> = (0..count * step).map(|i| (i / step + i % 7 + 1) as u8).collect();
            store.write(&places, &data).unwrap();
            let mut back = vec![0; data.len()];
            store.read(&places, &mut back).unwrap();
            assert!(back == data);
        }
        let beyond = [Extent::new(0, ALIGN), Extent::new(64 * ALIGN as u64, ALIGN)];
        assert!(store.read(&beyond, &mut vec![0; 2 * ALIGN]).is_err());
        assert!(store.write(&beyond, &vec![0; 2 * ALIGN]).is_err());
        assert_eq!(store.len(), 64 * ALIGN as u64);
        store.sync().unwrap();
    }

    /// A store in which a read ends only once another one has begun.
    struct Meeting {
        begun: Mutex<usize>,
        changed: Condvar,
    }

    impl Store for Meeting {
        fn len(&self) -> u64 {
            1 << 20
        }

        fn read(&self, _: &[Extent], _: &mut [u8]) -> Result {
            let mut begun = self.begun.lock().unwrap();
            *begun += 1;
            self.changed.notify_all();
            drop(self.changed.wait_while(begun, |begun| *begun < 2).unwrap());
            Ok(())
        }

        fn write(&self, _: &[Extent], _: &[u8]) -> Result {
            Ok(())
        }

        fn sync(&self) -> Result {
            Ok(())
        }
    }

    #[test]
    fn two_places_are_requested_at_once() {
        let meeting = Meeting { begun: Mutex::new(0), changed: Condvar::new() };
        let places = [Extent::new(0, 1), Extent::new(9, 1)];
        ParallelStore::new(meeting).read(&places, &mut [0; 2]).unwrap();
    }
}
