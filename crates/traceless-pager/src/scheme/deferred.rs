//! Refreshes that wait: they are done after the page fault that they belong to, by several threads.
//!
//! The page that a fault brings is not known before it happens, but the pages to refresh are. So
//! the refreshes may be done once the program goes on (the paper's Eager), by any number of threads
//! (its Parallel), if they are done before the next page leaves.

use super::{Areas, PageScheme};
use crate::Page;
use crate::slots::Buffer;
use alloc::sync::Arc;
use core::hint::spin_loop;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use traceless::Hides;
use traceless::error::{Error, Place, Result};

/// A value on cache lines of its own: one thread writes it often, and other ones read it often.
#[repr(align(128))]
#[derive(Default)]
struct Line<T>(T);

/// Which refreshes are due, which are taken, and how many are done. Zeros are right for areas that
/// nothing was written to.
#[repr(C)]
#[derive(Default)]
pub struct Turns {
    /// All refreshes below this one are due.
    goal: Line<AtomicU64>,
    /// The next refresh that no thread has taken.
    next: Line<AtomicU64>,
    /// How many refreshes are done.
    done: Line<AtomicU64>,
    /// One more than the refresh that failed; 0 while none has.
    failed: AtomicU64,
}

impl Turns {
    /// Lets threads begin with all refreshes that are due.
    pub fn begin(&self, areas: &Areas) {
        self.goal.0.store(areas.due(), SeqCst);
    }

    /// Starts over with areas that were used before, and have all their refreshes done.
    pub fn go_on(&self, areas: &Areas) {
        for word in [&self.goal, &self.next, &self.done] {
            word.0.store(areas.due(), Relaxed);
        }
    }

    /// How many refreshes no thread has taken.
    pub fn waiting(&self) -> u64 {
        self.goal.0.load(SeqCst).saturating_sub(self.next.0.load(SeqCst))
    }

    /// How many refreshes are done.
    pub fn done(&self) -> u64 {
        self.done.0.load(Relaxed)
    }

    /// Whether all refreshes that were begun are done.
    pub fn are_over(&self) -> bool {
        self.done.0.load(Acquire) == self.goal.0.load(Relaxed)
    }

    /// Does one refresh that is due, if there is one that no thread has taken, and returns its
    /// number. Any number of threads may call this at once.
    pub fn refresh_one(&self, areas: &Areas, buffer: &mut Buffer) -> Option<u64> {
        let mut nth = self.next.0.load(Relaxed);
        loop {
            // `Acquire`: what the page's slot follows from was written before the goal was set.
            if nth >= self.goal.0.load(Acquire) {
                return None;
            }
            match self.next.0.compare_exchange_weak(nth, nth + 1, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(newer) => nth = newer,
            }
        }
        if areas.refresh(nth, buffer).is_err() {
            self.failed.store(nth + 1, Release);
        }
        self.done.0.fetch_add(1, Release);
        Some(nth)
    }

    /// Fails if a refresh has failed: then its own page, or the newest copy of it, was changed. The
    /// same error stands for a failure of the store itself.
    pub fn check(&self, areas: &Areas) -> Result {
        let Some(refresh) = self.failed.load(Acquire).checked_sub(1) else { return Ok(()) };
        let page = refresh % areas.pages();
        Err(Error::Tampered { place: Place { area: "pages", slot: page, block: Some(page) } })
    }
}

/// Areas, and the refreshes of them that several threads do.
pub struct RefreshTurns {
    areas: Areas,
    turns: Turns,
}

impl RefreshTurns {
    /// How many refreshes no thread has taken.
    pub fn waiting(&self) -> u64 {
        self.turns.waiting()
    }

    /// Does one refresh, if one waits, and returns whether there was one. The next swap reports
    /// whether it failed.
    pub fn refresh_one(&self, buffer: &mut Buffer) -> bool {
        self.turns.refresh_one(&self.areas, buffer).is_some()
    }
}

/// `DetWoORAM` with refreshes that wait for a thread that has time. When the next page leaves, the
/// remaining ones are done first.
pub struct DeferredDetWo {
    crew: Arc<RefreshTurns>,
    buffer: Buffer,
}

impl DeferredDetWo {
    /// A scheme over these areas, which no other scheme uses.
    pub fn new(areas: Areas) -> Self {
        let turns = Turns::default();
        turns.go_on(&areas);
        Self { crew: Arc::new(RefreshTurns { areas, turns }), buffer: Buffer::default() }
    }

    /// The refreshes, for helper threads.
    pub fn crew(&self) -> Arc<RefreshTurns> {
        self.crew.clone()
    }

    /// Returns when all refreshes are done that were begun.
    fn finish(&mut self) -> Result {
        let RefreshTurns { areas, turns } = &*self.crew;
        while turns.refresh_one(areas, &mut self.buffer).is_some() {}
        while !turns.are_over() {
            spin_loop();
        }
        turns.check(areas)
    }
}

impl PageScheme for DeferredDetWo {
    fn pages(&self) -> u64 {
        self.crew.areas.pages()
    }

    fn swap(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        self.finish()?;
        let RefreshTurns { areas, turns } = &*self.crew;
        if let Some(page) = out {
            areas.write(page, frame, &mut self.buffer)?;
        }
        if let Some(page) = wanted {
            // Refreshes that this fault begins come later.
            areas.read(page, turns.done(), frame, &mut self.buffer)?;
        }
        Ok(())
    }

    fn holds(&self, page: u64) -> bool {
        self.crew.areas.holds(page)
    }

    /// Lets other threads refresh from now on.
    fn settle(&mut self) -> Result {
        self.crew.turns.begin(&self.crew.areas);
        Ok(())
    }

    fn forget(&mut self, page: u64) {
        self.crew.areas.forget(page);
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn trusted_bytes(&self) -> usize {
        self.crew.areas.trusted_bytes()
            + size_of::<RefreshTurns>()
            + size_of_val(self.buffer.bytes())
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::PAGE_LEN;
    use crate::slots::Cipher;
    use core::sync::atomic::AtomicBool;
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
    fn pages_come_back_whoever_refreshes_them() {
        for (k, threads) in [(1, 0), (3, 1), (15, 3)] {
            let (mut scheme, _) = deferred(k);
            let (crew, over) = (scheme.crew(), AtomicBool::new(false));
            let refreshed = std::thread::scope(|scope| {
                let help = || {
                    let (mut buffer, mut count) = (Buffer::default(), 0);
                    while !over.load(Relaxed) {
                        count += u64::from(crew.refresh_one(&mut buffer));
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
        let (crew, mut buffer) = (scheme.crew(), Buffer::default());
        let mut frame = [1; PAGE_LEN];
        scheme.swap(Some(0), None, &mut frame).unwrap();
        assert_eq!(crew.waiting(), 0, "nobody refreshes before the page has come");
        scheme.settle().unwrap();
        for left in [3, 2, 1] {
            assert_eq!(crew.waiting(), left);
            assert!(crew.refresh_one(&mut buffer));
        }
        assert!(!crew.refresh_one(&mut buffer));
        for page in 0..PAGES {
            scheme.swap(Some(page), None, &mut frame).unwrap();
            scheme.settle().unwrap();
        }
        // The next refreshes read damaged pages.
        store
            .write(&[Extent::new(0, store.len() as usize)], &vec![0; store.len() as usize])
            .unwrap();
        let failed = (0..PAGES).any(|page| {
            let swapped = scheme.swap(Some(page % 2), None, &mut frame);
            swapped.and_then(|()| scheme.settle()).is_err()
        });
        assert!(failed);
    }
}
