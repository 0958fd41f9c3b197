//! A store with deadlines, for a second copy in a folder: a disk, or the server of a network's file
//! system, may not answer for hours, and no call of a file can be given up.
//!
//! A thread of its own carries the calls out, in their order. A call that has no answer in time is
//! an error, and so is every later one until that call has ended, whichever way. So what is in
//! doubt is settled before anything else is done. A store that never answers keeps its thread.

use super::{CopyableStore, NodeStore, NodeVersion, Opening, SlotRead};
use crate::block_on::block_on;
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::Builder;
use std::time::Duration;

/// Bytes that move in a millisecond at least, beyond the time for an answer.
const BYTES_PER_MS_MIN: usize = 5000;

type Call = Box<dyn FnOnce() + Send>;

/// A store that is not waited for without limit.
pub struct PatientStore<S> {
    store: Arc<S>,
    geometry: Geometry,
    answer_time: Duration,
    calls: mpsc::Sender<Call>,
    progress: Arc<Mutex<CallProgress>>,
    /// Bytes that were staged since the last commit: it may wait for them.
    unsynced: AtomicUsize,
}

/// Calls have numbers, in their order.
#[derive(Default)]
struct CallProgress {
    sent: u64,
    done: u64,
    /// The last call that had no answer in time.
    overdue: u64,
}

impl<S: CopyableStore + 'static> PatientStore<S> {
    /// A store with a tree of this shape, which is given so much time for an answer.
    pub fn new(store: S, geometry: Geometry, answer_time: Duration) -> Result<Self> {
        let (calls, next) = mpsc::channel::<Call>();
        Builder::new().name("second copy's calls".to_owned()).spawn(move || {
            for call in next {
                call();
            }
        })?;
        let (progress, unsynced) = Default::default();
        Ok(Self { store: Arc::new(store), geometry, answer_time, calls, progress, unsynced })
    }

    /// Carries a call out that moves so many bytes.
    fn call<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&S) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = mpsc::channel();
        let number = {
            let mut progress = lock(&self.progress);
            if progress.done < progress.overdue {
                return Err(no_answer());
            }
            let (store, shared) = (self.store.clone(), self.progress.clone());
            let call = move || {
                let result = work(&store);
                // The store is closed when its user is gone and the last call has ended.
                drop(store);
                lock(&shared).done += 1;
                let _ = reply.send(result);
            };
            self.calls.send(Box::new(call)).map_err(|_| no_answer())?;
            progress.sent += 1;
            progress.sent
        };
        let time = self.answer_time + Duration::from_millis((bytes / BYTES_PER_MS_MIN) as u64);
        answer.recv_timeout(time).unwrap_or_else(|_| {
            let mut progress = lock(&self.progress);
            progress.overdue = progress.overdue.max(number);
            Err(no_answer())
        })
    }
}

impl<S: CopyableStore + 'static> PatientStore<S> {
    /// Has the thread read bytes.
    fn read(
        &self,
        into: &mut [u8],
        read: impl FnOnce(&S, &mut [u8]) -> Result + Send + 'static,
    ) -> Result {
        let len = into.len();
        let found = self.call(len, move |store| {
            let mut bytes = vec![0; len];
            read(store, &mut bytes).map(|()| bytes)
        })?;
        into.copy_from_slice(&found);
        Ok(())
    }
}

impl<S: CopyableStore + 'static> NodeStore for PatientStore<S> {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        let len = self.geometry.slot_len();
        let slots: Vec<_> = reads.iter().map(|read| (read.version, read.slot)).collect();
        let found = self.call(slots.len() * len, move |store| {
            let mut bytes = vec![0; slots.len() * len];
            let parts = slots.into_iter().zip(bytes.chunks_exact_mut(len));
            let mut reads: Vec<SlotRead<'_>> =
                parts.map(|((version, slot), into)| SlotRead { version, slot, into }).collect();
            block_on(store.read_slots(&mut reads))?;
            drop(reads);
            Ok(bytes)
        })?;
        for (read, found) in reads.iter_mut().zip(found.chunks_exact(len)) {
            read.into.copy_from_slice(found);
        }
        Ok(())
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.read(into, move |store, bytes| block_on(store.read_node(version, bytes)))
    }

    async fn read_node_to_verify(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        self.read(into, move |store, bytes| block_on(store.read_node_to_verify(version, bytes)))
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        let bytes = bytes.to_vec();
        self.unsynced.fetch_add(bytes.len(), Ordering::Relaxed);
        self.call(bytes.len(), move |store| block_on(store.stage(version, &bytes)))
    }

    async fn finish_stages(&self) -> Result {
        self.call(0, |store| block_on(store.finish_stages()))
    }

    async fn abandon(&self) -> Result {
        self.call(0, |store| block_on(store.abandon()))
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        let (versions, unsynced) = (versions.to_vec(), self.unsynced.swap(0, Ordering::Relaxed));
        self.call(unsynced, move |store| block_on(store.commit(sequence, &versions)))
    }

    async fn remove(&self, nodes: &[Node]) -> Result {
        let nodes = nodes.to_vec();
        self.call(0, move |store| block_on(store.remove(&nodes)))
    }

    async fn sequence(&self) -> Result<u64> {
        self.call(0, |store| block_on(store.sequence()))
    }

    async fn admit(&self, opening: Opening) -> Result {
        self.call(0, move |store| block_on(store.admit(opening)))
    }
}

impl<S: CopyableStore + 'static> CopyableStore for PatientStore<S> {
    fn current(&self) -> Result<Vec<NodeVersion>> {
        self.call(0, CopyableStore::current)
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        let (versions, unsynced) = (versions.to_vec(), self.unsynced.swap(0, Ordering::Relaxed));
        self.call(unsynced, move |store| block_on(store.restore(sequence, &versions)))
    }
}

fn lock(progress: &Mutex<CallProgress>) -> MutexGuard<'_, CallProgress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error that may pass, without another opening of the store.
fn no_answer() -> Error {
    Error::Engine("the folder with the second copy does not answer".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::suite::{behaves, is_copyable, removes, reopens, shapes};
    use super::super::{Durability, FileStore, MemStore};
    use super::*;
    use crate::geometry::tests::small;
    use traceless_core::clock::{Clock as _, Monotonic};

    fn patient<S: CopyableStore + 'static>(store: S, g: Geometry) -> PatientStore<S> {
        PatientStore::new(store, g, Duration::from_mins(1)).unwrap()
    }

    #[test]
    fn it_passes_the_store_tests() {
        for g in shapes() {
            behaves(&patient(MemStore::new(g), g), &g);
            let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
            let open = |nth: usize| {
                let store = FileStore::open(folders[nth].path(), g, Durability::Process);
                patient(store.unwrap(), g)
            };
            reopens(|| open(0), &g);
            is_copyable(|| open(1), &g);
            removes(|| open(2), &g);
        }
    }

    #[test]
    fn a_call_without_an_answer_fails_and_later_ones_wait_for_its_end() {
        let g = small();
        let time = Duration::from_millis(200);
        let store = PatientStore::new(MemStore::new(g), g, time).unwrap();
        let (end, ends) = mpsc::channel::<()>();
        let clock = Monotonic::start();
        let late = store.call(0, move |_| {
            let _ = ends.recv();
            Ok(())
        });
        assert!(matches!(late, Err(Error::Engine(_))), "{late:?}");
        let waited = Duration::from_nanos(clock.now());
        assert!(waited >= time && waited < 10 * time, "{waited:?}");
        // Now nothing is waited for.
        for _ in 0..1000 {
            assert!(matches!(block_on(store.sequence()), Err(Error::Engine(_))));
            assert!(store.current().is_err());
        }
        assert!(Duration::from_nanos(clock.now()) < waited + time);
        end.send(()).unwrap();
        while block_on(store.sequence()).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(store.current().unwrap(), []);
    }

    #[test]
    fn calls_with_many_bytes_get_more_time() {
        let g = small();
        let store = PatientStore::new(MemStore::new(g), g, Duration::from_millis(1)).unwrap();
        let slow = |_: &MemStore| {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        };
        store.call(10_000 * BYTES_PER_MS_MIN, slow).unwrap();
        assert!(store.call(0, slow).is_err());
    }
}
