//! `DetWoORAM` with refreshes that helper processes do: together with the process that serves the
//! fault, or after the program goes on, or both.
//!
//! Which page a fault brings and takes is not known before it happens, but the pages to refresh
//! are. So the refreshes of a fault may be done after it, if they are done before the next page
//! leaves: *eager*. The paper prepares them in a buffer and writes them with the next fault; here
//! they are written when they are ready, in the same order, at no cost to a fault. And refreshes do
//! not depend on each other: *parallel*. The paper starts threads for each fault; here processes
//! stay, awake while faults are frequent, since waking one takes longer than most refreshes.

use super::crew::{Board, Desk, RefreshBoard};
use super::error::{Error, Result};
use super::helper::Helper;
use crate::Page;
use crate::scheme::{Areas, PageScheme};
use crate::slots::Buffer;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use rustix::fd::RawFd;
use rustix::thread::futex;
use std::sync::Arc;
use traceless::Hides;

/// Checks for refreshes that are not done, before this process does the remaining ones itself.
const PATIENCE: u32 = 4096;

/// Which processes do the refreshes, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Help {
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
pub struct HelpedDetWo {
    help: Help,
    crew: Arc<RefreshBoard>,
    helpers: Vec<(Helper, Desk)>,
    buffer: Buffer,
    /// The goal that was reached last: refreshes below it are done.
    finished: u64,
    #[cfg(test)]
    fault: Option<PlantedFault>,
}

/// Faults that tests plant and must detect.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlantedFault {
    /// The refresh that an ended helper had begun is taken as done.
    NothingTakenOver,
}

impl HelpedDetWo {
    /// A scheme over these areas, which no other scheme uses. With helpers, the numbers of `areas`
    /// must lie in memory that processes share, [`SharedNumbers`](super::SharedNumbers), and the
    /// store must be [`SharedMemory`](super::SharedMemory), or the file that `help` names.
    pub fn new(areas: Areas, help: Help) -> Result<Self> {
        let finished = areas.due();
        let crew = Arc::new(RefreshBoard { areas, board: Board::new(finished)? });
        let mut helped = Self {
            help,
            crew,
            helpers: Vec::new(),
            buffer: Buffer::default(),
            finished,
            #[cfg(test)]
            fault: None,
        };
        for _ in 0..help.helpers {
            let (crew, desk, mut buffer) = (&*helped.crew, Desk::new()?, Buffer::default());
            // SAFETY: refreshing takes no lock, and allocates nothing.
            let started =
                unsafe { Helper::start(help.file, |parent| crew.help(parent, &desk, &mut buffer)) };
            let started = started.map_err(|e| Error::os("no helper can be started", e))?;
            helped.helpers.push((started, desk));
        }
        Ok(helped)
    }

    /// Lets helpers begin with the refreshes that are due.
    fn begin(&self) {
        let board = &self.crew.board;
        board.goal.0.store(self.crew.areas.due(), SeqCst);
        if board.asleep.0.load(SeqCst) > 0 {
            self.call();
        }
    }

    fn call(&self) {
        self.crew.board.calls.fetch_add(1, SeqCst);
        // If it fails, sleeping helpers check again within a second in any case.
        let _ = futex::wake(&self.crew.board.calls, futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Returns when all refreshes are done that were begun.
    fn finish(&mut self) -> traceless::Result {
        let crew = self.crew.clone();
        let goal = crew.board.goal.0.load(Relaxed);
        if self.help.parallel || self.helpers.is_empty() {
            while crew.refresh_one(None, &mut self.buffer) {}
        }
        let mut looks = 0u32;
        while crew.board.done.0.load(Acquire) != goal {
            core::hint::spin_loop();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(PATIENCE) {
                // The helpers may not get a processor: refreshes that they have not taken are done
                // here.
                while crew.refresh_one(None, &mut self.buffer) {}
                if !self.helpers.iter().all(|(helper, _)| helper.is_there()) {
                    self.take_over(goal)?;
                    break;
                }
                std::thread::yield_now();
            }
        }
        self.finished = goal;
        match self.crew.board.failed.load(Acquire) {
            0 => Ok(()),
            failed => Err(self.crew.failure(failed - 1)),
        }
    }

    /// After a helper has ended: repeats the refresh that it may have begun. A page that it had
    /// sealed is written again as it is, so no page is sealed twice under one version.
    fn take_over(&mut self, goal: u64) -> traceless::Result {
        let due = self.finished..goal;
        while self.crew.refresh_one(None, &mut self.buffer) {}
        let is_busy =
            |(helper, desk): &(Helper, Desk)| desk.refresh().is_some() && helper.is_there();
        while self.helpers.iter().any(is_busy) {
            std::thread::yield_now();
        }
        for (helper, desk) in self.helpers.extract_if(.., |(helper, _)| !helper.is_there()) {
            helper.wait();
            #[cfg(test)]
            if self.fault == Some(PlantedFault::NothingTakenOver) {
                continue;
            }
            self.crew.take_over(&desk, &due, &mut self.buffer)?;
        }
        #[cfg(test)]
        if self.fault.is_some() {
            self.crew.board.done.0.store(goal, SeqCst);
            return Ok(());
        }
        for nth in due {
            if !self.crew.areas.is_published(nth, &mut self.buffer) {
                return Err(self.crew.failure(nth));
            }
        }
        self.crew.board.done.0.store(goal, SeqCst);
        Ok(())
    }
}

impl PageScheme for HelpedDetWo {
    fn pages(&self) -> u64 {
        self.crew.areas.pages()
    }

    fn swap(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> traceless::Result {
        self.finish()?;
        if let Some(page) = out {
            self.crew.areas.write(page, frame, &mut self.buffer)?;
            if !self.help.eager {
                self.begin();
                self.finish()?;
            }
        }
        if let Some(page) = wanted {
            // Refreshes that this fault begins come later.
            let refreshed = self.crew.board.done.0.load(Relaxed);
            self.crew.areas.read(page, refreshed, frame, &mut self.buffer)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> traceless::Result {
        self.begin();
        Ok(())
    }

    fn holds(&self, page: u64) -> bool {
        self.crew.areas.holds(page)
    }

    fn forget(&mut self, page: u64) {
        self.crew.areas.forget(page);
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn trusted_bytes(&self) -> usize {
        let buffers = (1 + self.help.helpers) * self.buffer.bytes().len();
        self.crew.areas.trusted_bytes() + buffers
    }

    fn keep_off(&self, cpu: Option<usize>) {
        self.crew.board.off.store(cpu.map_or(0, |cpu| cpu as u64 + 1), Relaxed);
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.crew.board.cpu_ns.load(Relaxed)
    }
}

impl Drop for HelpedDetWo {
    fn drop(&mut self) {
        self.crew.board.ends.store(1, SeqCst);
        self.call();
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
    use crate::slots::Cipher;
    use traceless::rng::{Rng, SeededRng, System};
    use traceless::seal::Secret;
    use traceless::store::Store;
    use traceless::types::Extent;
    use traceless_block::detwo::Refresh;

    const HELPS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

    fn helped(store: &Arc<SharedMemory>, k: u32, (eager, parallel): (bool, bool)) -> HelpedDetWo {
        let refresh = Refresh::new(k, 1).unwrap();
        let (key, cipher) = (Secret::from_bytes([1; 32]), Cipher::default());
        let numbers = Box::new(SharedNumbers::zeros(Areas::numbers_for(32).unwrap()).unwrap());
        let areas = Areas::with_numbers(
            store.clone(),
            32,
            refresh,
            cipher,
            &key,
            Box::new(System),
            numbers,
        );
        HelpedDetWo::new(areas.unwrap(), Help { eager, parallel, helpers: 2, file: None }).unwrap()
    }

    fn store(k: u32) -> Arc<SharedMemory> {
        let refresh = Refresh::new(k, 1).unwrap();
        Arc::new(SharedMemory::unnamed(Areas::store_len(32, refresh)).unwrap())
    }

    /// Swaps one page out and another one in. Returns whether the latter is what it was when it
    /// left.
    fn comes_back(
        scheme: &mut HelpedDetWo,
        truth: &mut [Page],
        step: u64,
    ) -> traceless::Result<bool> {
        let (out, wanted) = (step * 7 % 32, (step * 5 + 1) % 32);
        let mut frame = [step as u8; PAGE_LEN];
        truth[out as usize] = frame;
        scheme.swap(Some(out), Some(wanted), &mut frame)?;
        Ok(frame == truth[wanted as usize])
    }

    #[test]
    fn pages_come_back_whoever_refreshes_them() {
        for help in HELPS {
            for k in [1, 3, 15] {
                let store = store(k);
                let mut scheme = helped(&store, k, help);
                let mut truth = vec![[0; PAGE_LEN]; 32];
                for step in 0..2000 {
                    let is_right = comes_back(&mut scheme, &mut truth, step).unwrap();
                    assert!(is_right, "{help:?}, step {step}");
                    scheme.settle().unwrap();
                    if step % 500 == 499 {
                        // Longer than the helpers stay awake.
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_helper_finds_changed_is_told() {
        for help in HELPS {
            let store = store(3);
            let mut scheme = helped(&store, 3, help);
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
            assert!(failed, "{help:?}");
        }
    }

    /// Runs many schemes, and kills a helper of each at some moment. Returns how many of them found
    /// a page changed.
    fn wrong_after_kills(help: (bool, bool), crews: u64) -> u64 {
        let mut wrong = 0;
        for crew in 0..crews {
            let store = store(15);
            let mut scheme = helped(&store, 15, help);
            let mut truth = vec![[0; PAGE_LEN]; 32];
            let mut rng = SeededRng::new(crew);
            let (kill_at, pauses) = (10 + rng.below(20), rng.below(400));
            let mut step = |step: u64| {
                let is_right = comes_back(&mut scheme, &mut truth, step)?;
                assert!(is_right, "{help:?}, {step}");
                scheme.settle()?;
                if step == kill_at {
                    let (helper, desk) = &scheme.helpers[0];
                    let mut looks = 0..20_000;
                    while desk.refresh().is_none() && looks.next().is_some() {
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
    fn what_a_killed_helper_had_begun_is_done_by_others() {
        for help in HELPS {
            assert_eq!(wrong_after_kills(help, 25), 0, "{help:?}");
        }
    }

    /// Kills a helper in the midst of a refresh, and returns whether all pages come back.
    fn is_right_after_a_kill_within(fault: Option<PlantedFault>) -> bool {
        let store = store(15);
        let mut scheme = helped(&store, 15, (true, false));
        scheme.fault = fault;
        let mut truth = vec![[0; PAGE_LEN]; 32];
        let mut step = |step: u64| {
            let is_right = comes_back(&mut scheme, &mut truth, step)?;
            if step != 30 {
                scheme.settle()?;
                return Ok(is_right);
            }
            // This refresh's page does not leave before the next refresh reaches it.
            let last = scheme.crew.areas.due() - 1;
            scheme.crew.board.stuck_in.store(last + 1, SeqCst);
            scheme.settle()?;
            let is_stuck = |desk: &Desk| desk.sealed().is_some() && desk.refresh() == Some(last);
            let stuck = loop {
                match scheme.helpers.iter().find(|(_, desk)| is_stuck(desk)) {
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
    fn a_refresh_in_which_a_helper_is_killed_is_done_by_others() {
        assert!(is_right_after_a_kill_within(None));
    }

    /// If no process repeats the refresh of a killed helper, pages come back wrong.
    #[test]
    fn work_that_nobody_takes_over_is_noticed() {
        assert!(!is_right_after_a_kill_within(Some(PlantedFault::NothingTakenOver)));
    }
}
