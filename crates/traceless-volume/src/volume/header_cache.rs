//! Headers of stripes in memory, where the page cache is bypassed: an entry is not read from the
//! disk with each body.
//!
//! Only for schemes that hide nothing about reads: which headers are cached depends on what was
//! read. What is written, and when, is unchanged.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use traceless_core::Result;
use traceless_core::store::{ALIGN, AlignedBuf, SlotLayout, Store};
use traceless_core::types::{Extent, total_len};

/// Pages in memory at most: 16 MiB, headers of half a million slots.
const PAGES_MAX: usize = 4096;

/// A store of slots, with some of the pages of their headers in memory.
pub struct HeaderCache {
    inner: Arc<dyn Store>,
    /// First byte and layout of each area.
    areas: Vec<(u64, SlotLayout)>,
    pages: Mutex<Pages>,
}

/// Pages by their place. A page that was used since the hand passed it stays.
#[derive(Default)]
struct Pages {
    places: HashMap<u64, usize>,
    frames: Vec<Page>,
    hand: usize,
}

struct Page {
    at: u64,
    bytes: Box<[u8]>,
    is_used: bool,
}

impl HeaderCache {
    /// Serves calls from `inner`, in which the areas lie. Nothing else writes to it.
    pub fn new(inner: Arc<dyn Store>, areas: Vec<(u64, SlotLayout)>) -> Self {
        Self { inner, areas, pages: Mutex::default() }
    }

    /// Whether the extent is a page of a header.
    fn is_page(&self, extent: Extent) -> bool {
        extent.len == ALIGN
            && self.areas.iter().any(|(first, layout)| {
                let within = extent.at.checked_sub(*first).filter(|at| *at < layout.len());
                within.is_some_and(|at| at % layout.stripe_len() < layout.header_len() as u64)
            })
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().expect("nothing panics under this lock")
    }
}

impl Pages {
    fn get(&mut self, at: u64) -> Option<&[u8]> {
        let page = &mut self.frames[*self.places.get(&at)?];
        page.is_used = true;
        Some(&page.bytes)
    }

    /// Keeps a page, in place of one that was not used for a while.
    fn put(&mut self, at: u64, bytes: &[u8]) {
        if let Some(&nth) = self.places.get(&at) {
            return self.frames[nth].bytes.copy_from_slice(bytes);
        }
        if self.frames.len() < PAGES_MAX {
            self.places.insert(at, self.frames.len());
            return self.frames.push(Page { at, bytes: bytes.into(), is_used: false });
        }
        while std::mem::take(&mut self.frames[self.hand].is_used) {
            self.hand = (self.hand + 1) % PAGES_MAX;
        }
        let page = &mut self.frames[self.hand];
        self.places.remove(&page.at);
        self.places.insert(at, self.hand);
        page.at = at;
        page.bytes.copy_from_slice(bytes);
        self.hand = (self.hand + 1) % PAGES_MAX;
    }

    fn forget(&mut self, at: u64) {
        if let Some(&nth) = self.places.get(&at) {
            // The page stays in its place until it is used for another one.
            self.places.remove(&at);
            self.frames[nth].at = u64::MAX;
        }
    }
}

/// Each extent, with its bytes in the buffer.
fn parts(extents: &[Extent]) -> impl Iterator<Item = (Extent, std::ops::Range<usize>)> {
    extents.iter().scan(0, |first, &extent| {
        let begin = *first;
        *first += extent.len;
        Some((extent, begin..*first))
    })
}

#[deny(clippy::missing_trait_methods)]
impl Store for HeaderCache {
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
        assert!(total_len(extents) == into.len(), "extents and buffer must agree");
        let mut missing = Vec::with_capacity(extents.len());
        let mut pages = self.pages();
        for (extent, part) in parts(extents) {
            match pages.get(extent.at).filter(|_| extent.len == ALIGN) {
                Some(page) => into[part].copy_from_slice(page),
                None => missing.push((extent, part)),
            }
        }
        drop(pages);
        if missing.len() == extents.len() {
            self.inner.read(extents, into)?;
        } else {
            let wanted: Vec<Extent> = missing.iter().map(|(extent, _)| *extent).collect();
            let mut bytes = AlignedBuf::zeroed(total_len(&wanted));
            self.inner.read(&wanted, &mut bytes)?;
            for ((_, from), (_, part)) in parts(&wanted).zip(&missing) {
                into[part.clone()].copy_from_slice(&bytes[from]);
            }
        }
        let mut pages = self.pages();
        for (extent, part) in missing.into_iter().filter(|(extent, _)| self.is_page(*extent)) {
            pages.put(extent.at, &into[part]);
        }
        Ok(())
    }

    fn prefetch(&self, extents: &[Extent]) {
        self.inner.prefetch(extents);
    }

    fn takes_discards(&self) -> bool {
        self.inner.takes_discards()
    }

    fn discard(&self, extents: &[Extent]) {
        let mut pages = self.pages();
        // An extent has far more pages than there are in memory.
        let kept: Vec<u64> = pages.places.keys().copied().collect();
        let is_discarded =
            |at: u64| extents.iter().any(|extent| extent.at <= at && at < extent.end());
        kept.into_iter().filter(|at| is_discarded(*at)).for_each(|at| pages.forget(at));
        drop(pages);
        self.inner.discard(extents);
    }

    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        let mut pages = self.pages();
        // A write that fails may have changed any of them. Writes of other lengths may cover pages.
        for extent in extents {
            let first = extent.at / ALIGN as u64 * ALIGN as u64;
            (first..extent.end()).step_by(ALIGN).for_each(|at| pages.forget(at));
        }
        drop(pages);
        self.inner.write(extents, from)?;
        let mut pages = self.pages();
        for (extent, part) in parts(extents).filter(|(extent, _)| self.is_page(*extent)) {
            pages.put(extent.at, &from[part]);
        }
        Ok(())
    }

    fn sync(&self) -> Result {
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::store::MemStore;

    const LAYOUT: SlotLayout =
        SlotLayout { slots: 8, body_len: ALIGN, entry_len: 16, stripe_slots: 2 };

    fn page(at: u64) -> Extent {
        Extent::new(at * ALIGN as u64, ALIGN)
    }

    /// A cache over a store of which the first page is not of the area.
    fn cache() -> (Arc<MemStore>, HeaderCache) {
        let store = Arc::new(MemStore::new(ALIGN as u64 + LAYOUT.len()));
        (store.clone(), HeaderCache::new(store, vec![(ALIGN as u64, LAYOUT)]))
    }

    #[test]
    fn headers_alone_are_kept() {
        let (store, cache) = cache();
        let mut two = vec![0; 2 * ALIGN];
        // The stripes have a header and two bodies each.
        for (at, is_kept) in [(0, false), (1, true), (2, false), (3, false), (4, true)] {
            cache.read(&[page(at), page(3)], &mut two).unwrap();
            store.write(&[page(at)], &[9; ALIGN]).unwrap();
            cache.read(&[page(3), page(at)], &mut two).unwrap();
            assert_eq!(two[ALIGN] == 0, is_kept, "page {at}");
            store.write(&[page(at)], &[0; ALIGN]).unwrap();
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let (store, cache) = cache();
        let mut back = vec![0; ALIGN];
        cache.read(&[page(1)], &mut back).unwrap();
        cache.write(&[page(2), page(1)], &[[1; ALIGN], [2; ALIGN]].concat()).unwrap();
        cache.read(&[page(1)], &mut back).unwrap();
        assert_eq!(back, [2; ALIGN]);
        // With a longer write, and with a part of a page.
        cache.write(&[Extent::new(0, 2 * ALIGN)], &[3; 2 * ALIGN]).unwrap();
        cache.write(&[Extent::new(ALIGN as u64 + 5, 1)], &[4]).unwrap();
        cache.read(&[page(1)], &mut back).unwrap();
        assert_eq!((back[4], back[5], back[6]), (3, 4, 3));
        assert!(
            store.snapshot()[..] == {
                let mut whole = vec![0; store.len() as usize];
                cache.read(&[Extent::new(0, whole.len())], &mut whole).unwrap();
                whole
            }
        );
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_in_memory() {
        let (store, cache) = cache();
        let mut back = vec![0; ALIGN];
        cache.read(&[page(1)], &mut back).unwrap();
        let beyond = Extent::new(store.len(), ALIGN);
        assert!(cache.write(&[page(1), beyond], &vec![5; 2 * ALIGN]).is_err());
        store.write(&[page(1)], &[6; ALIGN]).unwrap();
        cache.read(&[page(1)], &mut back).unwrap();
        assert_eq!(back, [6; ALIGN]);
    }

    #[test]
    fn pages_that_are_used_stay() {
        let mut pages = Pages::default();
        for at in 0..PAGES_MAX as u64 + 10 {
            pages.put(at, &[at as u8; ALIGN]);
            assert_eq!(pages.get(5).is_some(), at >= 5);
        }
        assert_eq!((pages.frames.len(), pages.places.len()), (PAGES_MAX, PAGES_MAX));
        assert!(pages.get(0).is_none());
        let last = PAGES_MAX as u64 + 9;
        assert_eq!(pages.get(last), Some(&[last as u8; ALIGN][..]));
        pages.forget(5);
        pages.put(u64::from(u32::MAX), &[1; ALIGN]);
        assert!(pages.get(5).is_none());
    }
}
