//! `DetWoORAM` with refreshes that helper processes do: together with the process that serves the
//! fault, or after the program goes on, or both.
//!
//! Which page a fault brings and takes is not known before it happens, but the pages to refresh
//! are. So the refreshes of a fault may be done after it, if they are done before the next page
//! leaves: *eager*. The paper prepares them in a buffer and writes them with the next fault; here
//! they are written when they are ready, in the same order, at no cost to a fault. And refreshes do
//! not depend on each other: *parallel*. The paper starts threads for each fault; here processes
//! stay, awake while faults are frequent, since waking one takes longer than most refreshes.

use super::helper::{Helper, Parent};
use super::pool::{SharedPool, SharedQueue, WorkerJournal};
use crate::Page;
use crate::paging::error::{Error, Result};
use crate::scheme::{Areas, PageScheme, RefreshPool};
use crate::slots::Buffer;
use rustix::fd::RawFd;
use std::sync::Arc;
use traceless::Hides;

/// Checks for refreshes that are not done, before this process does the remaining ones itself.
const PATIENCE: u32 = 4096;

/// Which processes do the refreshes, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefreshMode {
    /// Whether refreshes are done after the program goes on; else before.
    pub eager: bool,
    /// Whether the process that serves the fault refreshes, too; else the helpers alone.
    pub parallel: bool,
    /// Helper processes. With none, the process that serves faults does all refreshes, as late as
    /// it can.
    pub helpers: usize,
    /// The descriptor of the store's file, if the store is not mapped.
    pub file: Option<RawFd>,
}

/// `DetWoORAM` with helper processes.
pub struct HelperDetWo {
    mode: RefreshMode,
    pool: Arc<SharedPool>,
    helpers: Vec<(Helper, WorkerJournal)>,
    /// Nanoseconds of processor time of helpers that have ended.
    ended_cpu_ns: u64,
    buffer: Buffer,
    /// The goal that was reached last: refreshes below it are done.
    finished_goal: u64,
    #[cfg(test)]
    fault: Option<PlantedFault>,
}

/// Faults that tests plant and must detect.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlantedFault {
    /// The refresh that an ended helper had begun counts as done.
    RefreshNotTakenOver,
}

impl HelperDetWo {
    /// A scheme over these areas, which no other scheme uses. With helpers, the numbers of `areas`
    /// must lie in memory that processes share, [`SharedNumbers`](crate::paging::SharedNumbers),
    /// and the store must be [`SharedMemory`](crate::paging::SharedMemory), or the file that `mode`
    /// names.
    pub fn new(areas: Areas, mode: RefreshMode) -> Result<Self> {
        let finished_goal = areas.due();
        let pool = Arc::new(RefreshPool::new(areas, SharedQueue::new()?));
        let mut scheme = Self {
            mode,
            pool,
            helpers: Vec::new(),
            ended_cpu_ns: 0,
            buffer: Buffer::default(),
            finished_goal,
            #[cfg(test)]
            fault: None,
        };
        for _ in 0..mode.helpers {
            let (pool, journal, mut buffer) =
                (&*scheme.pool, WorkerJournal::new()?, Buffer::default());
            let work = |parent: &Parent| pool.help(parent, &journal, &mut buffer);
            // SAFETY: refreshing takes no lock, and allocates nothing.
            let started = unsafe { Helper::start(mode.file, work) };
            let started = started.map_err(|e| Error::os("no helper can be started", e))?;
            scheme.helpers.push((started, journal));
        }
        Ok(scheme)
    }

    /// Lets helpers begin with the refreshes that are due.
    fn begin(&self) {
        self.pool.begin();
        if self.pool.queue().has_sleepers() {
            self.pool.queue().wake_helpers();
        }
    }

    /// Does the refreshes of a write, unless they are done once the program goes on.
    fn finish_write(&mut self) -> traceless::Result {
        if self.mode.eager {
            return Ok(());
        }
        self.begin();
        self.finish()
    }

    /// Returns when all refreshes are done that were begun; before a page leaves, all that are due,
    /// also where several leave in one fault.
    fn finish_all(&mut self, leaves: bool) -> traceless::Result {
        if leaves {
            self.begin();
        }
        self.finish()
    }

    /// Returns when all refreshes are done that were begun.
    fn finish(&mut self) -> traceless::Result {
        let pool = self.pool.clone();
        let goal = pool.goal();
        if self.mode.parallel || self.helpers.is_empty() {
            pool.refresh_all(&mut self.buffer);
        }
        let mut checks = 0u32;
        while !pool.is_done() {
            core::hint::spin_loop();
            checks = checks.wrapping_add(1);
            if checks.is_multiple_of(PATIENCE) {
                // The helpers may not get a processor: refreshes that they have not taken are done
                // here.
                pool.refresh_all(&mut self.buffer);
                if !self.helpers.iter().all(|(helper, _)| helper.is_running()) {
                    self.take_over(goal)?;
                    break;
                }
                std::thread::yield_now();
            }
        }
        self.finished_goal = goal;
        pool.check()
    }

    /// After a helper has ended: repeats the refresh that it may have begun. A page that it had
    /// sealed is written again as it is, so no page is sealed twice under one version.
    fn take_over(&mut self, goal: u64) -> traceless::Result {
        let due = self.finished_goal..goal;
        self.pool.refresh_all(&mut self.buffer);
        let is_busy = |(helper, journal): &(Helper, WorkerJournal)| {
            journal.refresh().is_some() && helper.is_running()
        };
        while self.helpers.iter().any(is_busy) {
            std::thread::yield_now();
        }
        for (helper, journal) in self.helpers.extract_if(.., |(helper, _)| !helper.is_running()) {
            helper.wait();
            self.ended_cpu_ns += journal.cpu_ns();
            #[cfg(test)]
            if self.fault == Some(PlantedFault::RefreshNotTakenOver) {
                continue;
            }
            self.pool.take_over(&journal, &due, &mut self.buffer)?;
        }
        #[cfg(test)]
        if self.fault.is_some() {
            self.pool.complete();
            return Ok(());
        }
        for nth in due {
            if !self.pool.areas().is_published(nth, &mut self.buffer) {
                return Err(self.pool.failure(nth));
            }
        }
        self.pool.complete();
        Ok(())
    }
}

impl PageScheme for HelperDetWo {
    fn pages(&self) -> u64 {
        self.pool.areas().pages()
    }

    fn swap(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> traceless::Result {
        self.finish_all(out.is_some())?;
        if let Some(page) = out {
            self.pool.areas().write(page, frame, &mut self.buffer)?;
            self.finish_write()?;
        }
        if let Some(page) = wanted {
            // Refreshes that this fault begins come later.
            let refreshed = self.pool.done();
            self.pool.areas().read(page, refreshed, frame, &mut self.buffer)?;
        }
        Ok(())
    }

    fn swap_with_dummies(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> traceless::Result {
        if out.is_none() {
            self.finish_all(true)?;
            self.pool.areas().write_dummy(&mut self.buffer)?;
            self.finish_write()?;
        }
        self.swap(out, wanted, frame)
    }

    fn settle(&mut self) -> traceless::Result {
        self.begin();
        Ok(())
    }

    fn holds(&self, page: u64) -> bool {
        self.pool.areas().holds(page)
    }

    fn forget(&mut self, page: u64) {
        self.pool.areas().forget(page);
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn trusted_bytes(&self) -> usize {
        let buffers = (1 + self.mode.helpers) * self.buffer.bytes().len();
        self.pool.areas().trusted_bytes() + buffers
    }

    fn keep_off(&self, cpu: Option<usize>) {
        self.pool.queue().avoid_cpu(cpu);
    }

    fn helper_cpu_ns(&self) -> u64 {
        let running = self.helpers.iter().map(|(_, journal)| journal.cpu_ns());
        self.ended_cpu_ns + running.sum::<u64>()
    }
}

impl Drop for HelperDetWo {
    fn drop(&mut self) {
        self.pool.queue().end_helpers();
        for (helper, _) in &self.helpers {
            helper.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_LEN;
    use crate::paging::{SharedMemory, SharedNumbers};
    use crate::scheme::MainArea;
    use crate::slots::Cipher;
    use core::sync::atomic::Ordering::SeqCst;
    use traceless::rng::{Rng, SeededRng, System};
    use traceless::seal::Secret;
    use traceless::store::Store;
    use traceless::types::Extent;
    use traceless_block::detwo::Refresh;

    const MODES: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

    fn scheme_with(store: &Arc<SharedMemory>, k: u32, when: (bool, bool)) -> HelperDetWo {
        scheme_with_helpers(2, store, k, when)
    }

    fn scheme_with_helpers(
        helpers: usize,
        store: &Arc<SharedMemory>,
        k: u32,
        (eager, parallel): (bool, bool),
    ) -> HelperDetWo {
        let refresh = Refresh::new(k, 1).unwrap();
        let (key, cipher) = (Secret::from_bytes([1; 32]), Cipher::default());
        let main = MainArea::whole(32, refresh);
        let numbers = Box::new(SharedNumbers::zeros(Areas::numbers_for(main).unwrap()).unwrap());
        let salts = Box::new(System);
        let areas = Areas::with_numbers(store.clone(), main, cipher, &key, salts, numbers);
        HelperDetWo::new(areas.unwrap(), RefreshMode { eager, parallel, helpers, file: None })
            .unwrap()
    }

    fn store(k: u32) -> Arc<SharedMemory> {
        let refresh = Refresh::new(k, 1).unwrap();
        Arc::new(SharedMemory::unnamed(Areas::store_len(32, refresh)).unwrap())
    }

    /// Swaps one page out and another one in. Returns whether the latter is what it was when it
    /// left.
    fn comes_back(
        scheme: &mut HelperDetWo,
        truth: &mut [Page],
        step: u64,
    ) -> traceless::Result<bool> {
        let (out, wanted) = (step * 7 % 32, (step * 5 + 1) % 32);
        let mut frame = [step as u8; PAGE_LEN];
        truth[out as usize] = frame;
        scheme.swap(Some(out), Some(wanted), &mut frame)?;
        Ok(frame == truth[wanted as usize])
    }

    /// More than the holding area has slots.
    #[test]
    fn many_pages_leave_in_one_fault() {
        for mode in MODES {
            let store = store(3);
            let mut scheme = scheme_with(&store, 3, mode);
            for page in 0..64 {
                scheme.swap(Some(page % 32), None, &mut [page as u8; PAGE_LEN]).unwrap();
            }
            scheme.settle().unwrap();
            for page in 0..32 {
                let mut frame = [0; PAGE_LEN];
                scheme.swap(None, Some(page), &mut frame).unwrap();
                assert_eq!(frame, [page as u8 + 32; PAGE_LEN], "{mode:?}, page {page}");
            }
        }
    }

    #[test]
    fn pages_come_back_in_every_refresh_mode() {
        for mode in MODES {
            for k in [1, 3, 15] {
                let store = store(k);
                let mut scheme = scheme_with(&store, k, mode);
                let mut truth = vec![[0; PAGE_LEN]; 32];
                for step in 0..2000 {
                    let is_right = comes_back(&mut scheme, &mut truth, step).unwrap();
                    assert!(is_right, "{mode:?}, step {step}");
                    scheme.settle().unwrap();
                    if step % 500 == 499 {
                        // Longer than the helpers stay awake.
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                }
            }
        }
    }

    /// The time of the process that serves faults is not counted.
    #[test]
    fn helper_cpu_time_is_the_sum_over_all_helpers() {
        let sum = |scheme: &HelperDetWo| -> u64 {
            scheme.helpers.iter().map(|(_, journal)| journal.cpu_ns()).sum()
        };
        for helpers in [0, 1, 2] {
            let mut scheme = scheme_with_helpers(helpers, &store(3), 3, (true, true));
            let mut truth = vec![[0; PAGE_LEN]; 32];
            for step in 0..500 {
                assert!(comes_back(&mut scheme, &mut truth, step).unwrap());
                scheme.settle().unwrap();
            }
            // Each helper publishes its time before it sleeps.
            while scheme.helpers.iter().any(|(_, journal)| journal.cpu_ns() == 0) {
                std::thread::yield_now();
            }
            let (before, total, after) = (sum(&scheme), scheme.helper_cpu_ns(), sum(&scheme));
            assert!((before..=after).contains(&total), "{before} {total} {after}");
            assert_eq!(total > 0, helpers > 0);
            // The time of a helper that has ended stays.
            for (helper, _) in &scheme.helpers {
                helper.kill();
                while helper.is_running() {
                    std::thread::yield_now();
                }
            }
            scheme.finish().unwrap();
            scheme.take_over(scheme.pool.goal()).unwrap();
            assert!(scheme.helpers.is_empty() && scheme.helper_cpu_ns() >= total);
        }
    }

    #[test]
    fn a_changed_page_that_a_helper_reads_is_an_error() {
        for mode in MODES {
            let store = store(3);
            let mut scheme = scheme_with(&store, 3, mode);
            let mut frame = [1; PAGE_LEN];
            for page in (0..32).chain(0..8) {
                scheme.swap(Some(page), None, &mut frame).unwrap();
                scheme.settle().unwrap();
            }
            let _ = scheme.swap(None, None, &mut frame);
            let zeros = vec![0; store.len() as usize];
            store.write(&[Extent::new(0, zeros.len())], &zeros).unwrap();
            let failed = (0..40).any(|page| {
                let swapped = scheme.swap(Some(page % 2), None, &mut frame);
                swapped.and_then(|()| scheme.settle()).is_err()
            });
            assert!(failed, "{mode:?}");
        }
    }

    /// Runs many schemes, and kills a helper of each at some moment. Returns how many of them found
    /// a page changed.
    fn wrong_after_kills(mode: (bool, bool), schemes: u64) -> u64 {
        let mut wrong = 0;
        for seed in 0..schemes {
            let store = store(15);
            let mut scheme = scheme_with(&store, 15, mode);
            let mut truth = vec![[0; PAGE_LEN]; 32];
            let mut rng = SeededRng::new(seed);
            let (kill_at, pauses) = (10 + rng.below(20), rng.below(400));
            let mut step = |step: u64| {
                let is_right = comes_back(&mut scheme, &mut truth, step)?;
                assert!(is_right, "{mode:?}, {step}");
                scheme.settle()?;
                if step == kill_at {
                    let (helper, journal) = &scheme.helpers[0];
                    let mut checks = 0..20_000;
                    while journal.refresh().is_none() && checks.next().is_some() {
                        core::hint::spin_loop();
                    }
                    (0..pauses).for_each(|_| core::hint::spin_loop());
                    helper.kill();
                }
                Ok::<_, traceless::Error>(is_right)
            };
            wrong += u64::from(!(0..100).all(|nth| step(nth).is_ok_and(|is_right| is_right)));
        }
        wrong
    }

    #[test]
    fn the_refresh_of_a_killed_helper_is_done_by_another() {
        for mode in MODES {
            assert_eq!(wrong_after_kills(mode, 25), 0, "{mode:?}");
        }
    }

    /// Kills a helper in the midst of a refresh, and returns whether all pages come back.
    fn is_right_after_a_kill_within(fault: Option<PlantedFault>) -> bool {
        let store = store(15);
        let mut scheme = scheme_with(&store, 15, (true, false));
        scheme.fault = fault;
        let mut truth = vec![[0; PAGE_LEN]; 32];
        let mut step = |step: u64| {
            let is_right = comes_back(&mut scheme, &mut truth, step)?;
            if step != 30 {
                scheme.settle()?;
                return Ok(is_right);
            }
            // This refresh's page does not leave before the next refresh reaches it.
            let last = scheme.pool.areas().due() - 1;
            scheme.pool.queue().stuck_in.store(last + 1, SeqCst);
            scheme.settle()?;
            let is_stuck = |journal: &WorkerJournal| {
                journal.sealed().is_some() && journal.refresh() == Some(last)
            };
            let stuck = loop {
                match scheme.helpers.iter().find(|(_, journal)| is_stuck(journal)) {
                    Some((helper, _)) => break helper,
                    None => std::thread::yield_now(),
                }
            };
            stuck.kill();
            Ok::<_, traceless::Error>(is_right)
        };
        (0..100).all(|nth| step(nth).is_ok_and(|is_right| is_right))
    }

    #[test]
    fn a_refresh_in_which_a_helper_is_killed_is_repeated() {
        assert!(is_right_after_a_kill_within(None));
    }

    /// If no process repeats the refresh of a killed helper, pages come back wrong.
    #[test]
    fn a_refresh_that_is_not_taken_over_is_noticed() {
        assert!(!is_right_after_a_kill_within(Some(PlantedFault::RefreshNotTakenOver)));
    }
}
