//! A file store that has several requests to the disk under way at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use traceless_core::Result;
use traceless_core::store::{FileStore, Store};
use traceless_core::types::{Extent, total_len};
use traceless_sys::disk_queue::DiskQueue;

/// A file on a disk that no cache is in front of: what one call reads or writes in several places
/// is requested at once. The places follow from the call, so that their order reveals nothing more.
pub struct ParallelStore {
    inner: FileStore,
    /// A queue for each thread that was in a call at the same time.
    queues: Mutex<Vec<DiskQueue>>,
    /// Whether the kernel gave no queue. Places are then requested one after the other.
    has_no_queue: AtomicBool,
}

impl ParallelStore {
    /// Serves calls from `inner`.
    pub fn new(inner: FileStore) -> Self {
        Self { inner, queues: Mutex::default(), has_no_queue: AtomicBool::new(false) }
    }

    /// A queue, if there are several places, the kernel takes each of them as it is, and has one.
    fn queue_for(&self, extents: &[Extent], memory: &[u8]) -> Option<DiskQueue> {
        assert!(total_len(extents) == memory.len(), "extents and buffer must agree");
        let mut rest = memory;
        let mut is_taken = |extent: &Extent| {
            let (part, next) = rest.split_at(extent.len);
            rest = next;
            self.inner.takes(*extent, part.as_ptr())
        };
        let is_queued = extents.len() > 1 && extents.iter().all(&mut is_taken);
        if is_queued { self.take_queue() } else { None }
    }

    fn take_queue(&self) -> Option<DiskQueue> {
        if let Some(queue) = self.queues.lock().expect("nothing panics under this lock").pop() {
            return Some(queue);
        }
        if self.has_no_queue.load(Ordering::Relaxed) {
            return None;
        }
        let made = DiskQueue::new().ok();
        self.has_no_queue.store(made.is_none(), Ordering::Relaxed);
        made
    }

    fn put_back(&self, queue: DiskQueue) {
        self.queues.lock().expect("nothing panics under this lock").push(queue);
    }
}

/// Offset and length of each extent.
fn places(extents: &[Extent]) -> Vec<(u64, usize)> {
    extents.iter().map(|extent| (extent.at, extent.len)).collect()
}

#[deny(clippy::missing_trait_methods)]
impl Store for ParallelStore {
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
        let Some(mut queue) = self.queue_for(extents, into) else {
            return self.inner.read(extents, into);
        };
        let read = queue.read(self.inner.file(), &places(extents), into);
        self.put_back(queue);
        Ok(read?)
    }

    fn prefetch(&self, extents: &[Extent]) {
        self.inner.prefetch(extents);
    }

    fn takes_discards(&self) -> bool {
        self.inner.takes_discards()
    }

    fn discard(&self, extents: &[Extent]) {
        self.inner.discard(extents);
    }

    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        let Some(mut queue) = self.queue_for(extents, from) else {
            return self.inner.write(extents, from);
        };
        let written = queue.write(self.inner.file(), &places(extents), from);
        self.put_back(queue);
        Ok(written?)
    }

    fn sync(&self) -> Result {
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::store::{ALIGN, AlignedBuf, Caching};

    /// A store in a file that is opened as `caching` says, where its file system allows it.
    fn store(folder: &tempfile::TempDir, caching: Caching) -> Option<ParallelStore> {
        use rustix::fs::{Mode, OFlags, open};
        let path = folder.path().join("file");
        std::fs::write(&path, vec![0; 64 * ALIGN]).unwrap();
        let flags = match caching {
            Caching::Direct => OFlags::RDWR | OFlags::DIRECT,
            Caching::Buffered => OFlags::RDWR,
        };
        let file = open(&path, flags, Mode::empty()).ok()?;
        Some(ParallelStore::new(FileStore::new(file.into(), 64 * ALIGN as u64, caching)))
    }

    #[test]
    fn all_places_are_read_and_written_or_the_call_fails() {
        let folder = tempfile::tempdir().unwrap();
        for caching in [Caching::Direct, Caching::Buffered] {
            let Some(store) = store(&folder, caching) else { continue };
            for (step, count) in [(ALIGN, 1), (ALIGN, 2), (ALIGN, 40), (100, 5)] {
                let places: Vec<_> =
                    (0..count).map(|nth| Extent::new((nth * 3 % 64 * step) as u64, step)).collect();
                let mut data = AlignedBuf::zeroed(count * step);
                data.iter_mut().enumerate().for_each(|(i, b)| *b = (i / step + i % 7 + 1) as u8);
                store.write(&places, &data).unwrap();
                let mut back = AlignedBuf::zeroed(data.len());
                store.read(&places, &mut back).unwrap();
                assert!(back[..] == data[..]);
            }
            let beyond = [Extent::new(0, ALIGN), Extent::new(64 * ALIGN as u64, ALIGN)];
            assert!(store.read(&beyond, &mut AlignedBuf::zeroed(2 * ALIGN)).is_err());
            assert_eq!(store.len(), 64 * ALIGN as u64);
            store.sync().unwrap();
        }
    }

    #[test]
    fn several_aligned_places_go_through_a_queue() {
        let folder = tempfile::tempdir().unwrap();
        let Some(store) = store(&folder, Caching::Direct) else { return };
        if DiskQueue::new().is_err() {
            return;
        }
        let queues = || store.queues.lock().unwrap().len();
        let mut into = AlignedBuf::zeroed(2 * ALIGN);
        let whole = Extent::new(0, ALIGN);
        store.read(&[whole], &mut into[..ALIGN]).unwrap();
        store.read(&[whole, Extent::new(100, 10)], &mut into[..ALIGN + 10]).unwrap();
        assert_eq!(queues(), 0);
        for _ in 0..2 {
            store.read(&[whole, whole], &mut into).unwrap();
            assert_eq!(queues(), 1);
        }
    }
}
