//! Refreshes that wait: they are done after the page fault that they belong to, by several threads.
//!
//! The page that a fault brings is not known before it happens, but the pages to refresh are. So
//! the refreshes may be done once the program goes on (the paper's Eager), by any number of threads
//! (its Parallel), if they are done before the next page leaves.

use super::refresh::{NoJournal, RefreshPool, RefreshQueue};
use super::{Areas, PageScheme};
use crate::Page;
use crate::slots::Buffer;
use alloc::sync::Arc;
use core::hint::spin_loop;
use traceless::Hides;
use traceless::error::Result;

/// `DetWoORAM` with refreshes that wait for a thread that has time. When the next page leaves, the
/// remaining ones are done first.
pub struct DeferredDetWo {
    pool: Arc<RefreshPool>,
    buffer: Buffer,
}

impl DeferredDetWo {
    /// A scheme over these areas, which no other scheme uses.
    pub fn new(areas: Areas) -> Self {
        let pool = RefreshPool::new(areas, RefreshQueue::default());
        Self { pool: Arc::new(pool), buffer: Buffer::default() }
    }

    /// The refreshes, for helper threads.
    pub fn refresh_pool(&self) -> Arc<RefreshPool> {
        self.pool.clone()
    }

    /// Returns when all refreshes are done that were begun; before a page leaves, all that are due,
    /// also where several leave in one fault.
    fn finish(&mut self, leaves: bool) -> Result {
        if leaves {
            self.pool.begin();
        }
        while self.pool.refresh_one(&NoJournal, &mut self.buffer) {}
        while !self.pool.is_done() {
            spin_loop();
        }
        self.pool.check()
    }
}

impl PageScheme for DeferredDetWo {
    fn pages(&self) -> u64 {
        self.pool.areas().pages()
    }

    fn swap(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        self.finish(out.is_some())?;
        let areas = self.pool.areas();
        if let Some(page) = out {
            areas.write(page, frame, &mut self.buffer)?;
        }
        if let Some(page) = wanted {
            // Refreshes that this fault begins come later.
            areas.read(page, self.pool.done(), frame, &mut self.buffer)?;
        }
        Ok(())
    }

    fn swap_with_dummies(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> Result {
        if out.is_none() {
            self.finish(true)?;
            self.pool.areas().write_dummy(&mut self.buffer)?;
        }
        self.swap(out, wanted, frame)
    }

    fn holds(&self, page: u64) -> bool {
        self.pool.areas().holds(page)
    }

    /// Lets other threads refresh from now on.
    fn settle(&mut self) -> Result {
        self.pool.begin();
        Ok(())
    }

    fn forget(&mut self, page: u64) {
        self.pool.areas().forget(page);
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn trusted_bytes(&self) -> usize {
        self.pool.areas().trusted_bytes()
            + size_of::<RefreshPool>()
            + size_of_val(self.buffer.bytes())
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::PAGE_LEN;
    use crate::slots::Cipher;
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use traceless::error::Error;
    use traceless::rng::System;
    use traceless::seal::Secret;
    use traceless::store::{MemStore, Store};
    use traceless::types::Extent;
    use traceless_block::detwo::Refresh;

    const PAGES: u64 = 32;

    fn deferred(k: u32) -> (DeferredDetWo, Arc<MemStore>) {
        let refresh = Refresh::new(k, 1).unwrap();
        let store = Arc::new(MemStore::new(Areas::store_len(PAGES, refresh)));
        let key = Secret::from_bytes([1; 32]);
        let (shared, salts) = (store.clone(), Box::new(System));
        let areas = Areas::new(shared, PAGES, refresh, Cipher::default(), &key, salts);
        (DeferredDetWo::new(areas.unwrap()), store)
    }

    #[test]
    fn pages_come_back_with_any_number_of_threads() {
        for (k, threads) in [(1, 0), (3, 1), (15, 3)] {
            let (mut scheme, _) = deferred(k);
            let (pool, over) = (scheme.refresh_pool(), AtomicBool::new(false));
            let refreshed = std::thread::scope(|scope| {
                let help = || {
                    let (mut buffer, mut count) = (Buffer::default(), 0);
                    while !over.load(Relaxed) {
                        count += u64::from(pool.refresh_one(&NoJournal, &mut buffer));
                        spin_loop();
                    }
                    count
                };
                let helpers: std::vec::Vec<_> = (0..threads).map(|_| scope.spawn(help)).collect();
                let mut truth = std::vec![[0; PAGE_LEN]; PAGES as usize];
                for step in 0..3000u64 {
                    let (out, wanted) = (step * 7 % PAGES, (step * 5 + 1) % PAGES);
                    let mut frame = [step as u8; PAGE_LEN];
                    truth[out as usize] = frame;
                    scheme.swap(Some(out), Some(wanted), &mut frame).unwrap();
                    assert!(frame == truth[wanted as usize], "K = {k}, step {step}");
                    scheme.settle().unwrap();
                    if step % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
                over.store(true, Relaxed);
                helpers.into_iter().map(|helper| helper.join().unwrap()).sum::<u64>()
            });
            assert_eq!(refreshed > 0, threads > 0);
        }
    }

    #[test]
    fn refreshes_wait_until_they_are_done() {
        let (mut scheme, store) = deferred(3);
        let (pool, mut buffer) = (scheme.refresh_pool(), Buffer::default());
        let mut frame = [1; PAGE_LEN];
        scheme.swap(Some(0), None, &mut frame).unwrap();
        assert_eq!(pool.waiting(), 0, "no refresh is due before the page has come");
        scheme.settle().unwrap();
        for left in [3, 2, 1] {
            assert_eq!(pool.waiting(), left);
            assert!(pool.refresh_one(&NoJournal, &mut buffer));
        }
        assert!(!pool.refresh_one(&NoJournal, &mut buffer));
        for page in 0..PAGES {
            scheme.swap(Some(page), None, &mut frame).unwrap();
            scheme.settle().unwrap();
        }
        // The next refreshes read damaged pages.
        store
            .write(&[Extent::new(0, store.len() as usize)], &vec![0; store.len() as usize])
            .unwrap();
        let failure = first_failure(&mut scheme);
        assert!(matches!(failure, Error::Tampered { .. }), "{failure}");
    }

    /// Lets pages leave until a refresh of an earlier one is found to have failed.
    fn first_failure(scheme: &mut DeferredDetWo) -> Error {
        let mut leave = |page| {
            scheme.swap(Some(page % 2), None, &mut [1; PAGE_LEN])?;
            scheme.settle()
        };
        (0..PAGES).find_map(|page| leave(page).err()).expect("a refresh fails")
    }

    /// A store that fails to read once `fails` is set.
    struct FailingStore {
        inner: MemStore,
        fails: AtomicBool,
    }

    impl Store for FailingStore {
        fn len(&self) -> u64 {
            self.inner.len()
        }

        fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
            if self.fails.load(Relaxed) {
                return Err(Error::Io(std::io::Error::from_raw_os_error(libc::ENXIO)));
            }
            self.inner.read(extents, into)
        }

        fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
            self.inner.write(extents, from)
        }

        fn sync(&self) -> Result {
            self.inner.sync()
        }
    }

    #[test]
    fn a_failed_read_of_a_refresh_keeps_its_error_number() {
        let refresh = Refresh::new(3, 1).unwrap();
        let inner = MemStore::new(Areas::store_len(PAGES, refresh));
        let store = Arc::new(FailingStore { inner, fails: AtomicBool::new(false) });
        let key = Secret::from_bytes([1; 32]);
        let (shared, salts) = (store.clone(), Box::new(System));
        let areas = Areas::new(shared, PAGES, refresh, Cipher::default(), &key, salts).unwrap();
        let mut scheme = DeferredDetWo::new(areas);
        for page in 0..PAGES {
            scheme.swap(Some(page), None, &mut [1; PAGE_LEN]).unwrap();
            scheme.settle().unwrap();
        }
        store.fails.store(true, Relaxed);
        match first_failure(&mut scheme) {
            Error::Io(error) => assert_eq!(error.raw_os_error(), Some(libc::ENXIO)),
            other => panic!("{other}"),
        }
    }
}
