//! `DetWoORAM` whose refreshes others do: at once together with whoever serves the fault, or after
//! the program goes on, or both.
//!
//! Which page a fault brings and takes is not known before it happens; what is refreshed is. So
//! the refreshes that belong to a fault need not be waited for, if they are done before the next
//! page leaves: *eager*. The paper prepares them in a buffer and writes them with the next fault;
//! here they are written when they are ready, in the same order, which costs a fault nothing at
//! all. And they do not depend on each other: *parallel*. The paper starts threads for each fault;
//! here they stay, awake while faults are frequent, since waking one takes longer than most
//! refreshes.

use super::error::{Error, Result};
use super::threads;
use crate::Page;
use crate::scheme::{Areas, PageScheme};
use crate::slots::Buffer;
use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use traceless::Hides;
use traceless::clock::{Clock, Monotonic};

/// How long a helper without work stays awake.
const AWAKE_NS: u64 = 50_000;

/// Looks for work between two looks at the clock.
const LOOKS: u32 = 64;

const NO_CPU: usize = usize::MAX;

/// Refreshes after which a helper tells its processor time.
const CPU_INTERVAL: u64 = 64;

/// Who does the refreshes, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Help {
    /// After the program goes on; else before.
    pub eager: bool,
    /// Together with whoever serves the fault; else by the helpers alone.
    pub parallel: bool,
    /// Threads besides.
    pub helpers: usize,
}

/// `DetWoORAM` with help in its refreshes.
pub struct Helped {
    help: Help,
    crew: Arc<Crew>,
    helpers: Vec<JoinHandle<()>>,
    buffer: Buffer,
}

/// What one writes often and others read often, on a line of its own.
#[repr(align(128))]
struct Line<T>(T);

struct Crew {
    areas: Areas,
    /// All refreshes below it are to be done.
    goal: Line<AtomicU64>,
    /// The next one that nobody does yet.
    next: Line<AtomicU64>,
    /// How many are done.
    done: Line<AtomicU64>,
    /// Helpers that sleep, or are about to.
    asleep: Line<AtomicUsize>,
    ends: AtomicBool,
    failed: Mutex<Option<traceless::Error>>,
    has_failed: AtomicBool,
    cpu_ns: AtomicU64,
    /// The processor that helpers leave to the program; `NO_CPU` is none.
    off: AtomicUsize,
}

impl Helped {
    /// Over these areas, which nobody else uses. Each helper does `first` first.
    pub fn new(areas: Areas, help: Help, first: fn()) -> Result<Self> {
        if help.helpers == 0 {
            return Err(Error::Configuration("without helpers nobody helps"));
        }
        let due = areas.due();
        let crew = Arc::new(Crew {
            areas,
            goal: Line(AtomicU64::new(due)),
            next: Line(AtomicU64::new(due)),
            done: Line(AtomicU64::new(due)),
            asleep: Line(AtomicUsize::new(0)),
            ends: AtomicBool::new(false),
            failed: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            cpu_ns: AtomicU64::new(0),
            off: AtomicUsize::new(NO_CPU),
        });
        let mut helped = Self { help, crew, helpers: Vec::new(), buffer: Buffer::default() };
        for _ in 0..help.helpers {
            let crew = helped.crew.clone();
            let thread = threads::spawn("pager-helper", first, move || crew.help())
                .map_err(|e| Error::os("no thread can be started", e))?;
            helped.helpers.push(thread);
        }
        Ok(helped)
    }

    /// Lets helpers begin with what is due.
    fn begin(&self) {
        self.crew.goal.0.store(self.crew.areas.due(), SeqCst);
        if self.crew.asleep.0.load(SeqCst) > 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        self.helpers.iter().map(JoinHandle::thread).for_each(Thread::unpark);
    }

    /// Returns when all is done that was begun.
    fn finish(&mut self) -> traceless::Result {
        let crew = &*self.crew;
        let goal = crew.goal.0.load(Relaxed);
        if self.help.parallel {
            while crew.refresh_one(&mut self.buffer) {}
        }
        let mut looks = 0;
        while crew.done.0.load(Acquire) != goal {
            core::hint::spin_loop();
            looks += 1;
            if looks % 1024 == 0 {
                // A helper that was put aside, or sleeps: what it has not begun is done here.
                while crew.refresh_one(&mut self.buffer) {}
                std::thread::yield_now();
            }
        }
        if crew.has_failed.load(Acquire) {
            let failed = crew.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
            return Err(failed.unwrap_or(traceless::Error::Poisoned));
        }
        Ok(())
    }
}

impl Crew {
    /// A helper's life.
    fn help(&self) {
        let clock = Monotonic::start();
        let mut buffer = Buffer::default();
        let (mut place, mut off) = (threads::Place::anywhere(), NO_CPU);
        let (mut idle_since, mut looks) = (clock.now(), 0);
        while !self.ends.load(Relaxed) {
            if off != self.off.load(Relaxed) {
                off = self.off.load(Relaxed);
                place.keep_off((off != NO_CPU).then_some(off));
            }
            if self.refresh_one(&mut buffer) {
                looks = 0;
                continue;
            }
            core::hint::spin_loop();
            looks += 1;
            if looks == 1 {
                idle_since = clock.now();
            } else if looks % LOOKS == 0 && clock.now() - idle_since > AWAKE_NS {
                self.sleep();
                looks = 0;
            }
        }
    }

    /// Sleeps until there is work.
    fn sleep(&self) {
        self.cpu_ns.fetch_max(threads::cpu_ns(), Relaxed);
        self.asleep.0.fetch_add(1, SeqCst);
        // Whoever sets the goal looks for sleepers after that: one of both sees the other.
        if self.goal.0.load(SeqCst) == self.next.0.load(SeqCst) && !self.ends.load(SeqCst) {
            std::thread::park();
        }
        self.asleep.0.fetch_sub(1, SeqCst);
    }

    /// Does one refresh that is due, if there is one that nobody does yet.
    fn refresh_one(&self, buffer: &mut Buffer) -> bool {
        let nth = self.next.0.load(Relaxed);
        // What the page's place follows from was written before the goal was set.
        if nth >= self.goal.0.load(Acquire) {
            return false;
        }
        if self.next.0.compare_exchange(nth, nth + 1, AcqRel, Relaxed).is_err() {
            return true;
        }
        if let Err(e) = self.areas.refresh(nth, buffer) {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
            self.has_failed.store(true, Release);
        }
        self.done.0.fetch_add(1, Release);
        if nth.is_multiple_of(CPU_INTERVAL) {
            self.cpu_ns.fetch_max(threads::cpu_ns(), Relaxed);
        }
        true
    }
}

impl PageScheme for Helped {
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
            self.buffer.body().copy_from_slice(frame);
            self.crew.areas.write(page, &mut self.buffer)?;
            if !self.help.eager {
                self.begin();
                self.finish()?;
            }
        }
        if let Some(page) = wanted {
            // Those that this fault begins come later.
            let refreshed = self.crew.done.0.load(Relaxed);
            self.crew.areas.read(page, refreshed, &mut self.buffer)?;
            frame.copy_from_slice(self.buffer.body());
        }
        Ok(())
    }

    fn settle(&mut self) -> traceless::Result {
        self.begin();
        Ok(())
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
        self.crew.off.store(cpu.unwrap_or(NO_CPU), Relaxed);
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.crew.cpu_ns.load(Relaxed)
    }
}

impl Drop for Helped {
    fn drop(&mut self) {
        self.crew.ends.store(true, SeqCst);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            // A helper does not panic but for bugs, and they were printed.
            let _ = helper.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_LEN;
    use crate::slots::Cipher;
    use traceless::scheme::detwo::Refresh;
    use traceless::seal::Secret;
    use traceless::store::{MemStore, Store};
    use traceless::types::Extent;

    const HELPS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

    fn helped(store: &Arc<MemStore>, k: u32, (eager, parallel): (bool, bool)) -> Helped {
        let refresh = Refresh::new(k, 1).unwrap();
        let key = Secret::from_bytes([1; 32]);
        let areas = Areas::new(store.clone(), 32, refresh, Cipher::default(), &key).unwrap();
        Helped::new(areas, Help { eager, parallel, helpers: 2 }, || {}).unwrap()
    }

    fn store(k: u32) -> Arc<MemStore> {
        let refresh = Refresh::new(k, 1).unwrap();
        Arc::new(MemStore::new(Areas::store_len(32, refresh)))
    }

    #[test]
    fn pages_come_back_whoever_refreshes_them() {
        for help in HELPS {
            for k in [1, 3, 15] {
                let store = store(k);
                let mut scheme = helped(&store, k, help);
                let mut truth = vec![[0; PAGE_LEN]; 32];
                for step in 0..2000u64 {
                    let (out, wanted) = (step * 7 % 32, (step * 5 + 1) % 32);
                    let mut frame = [step as u8; PAGE_LEN];
                    truth[out as usize] = frame;
                    scheme.swap(Some(out), Some(wanted), &mut frame).unwrap();
                    assert!(frame == truth[wanted as usize], "{help:?}, step {step}");
                    scheme.settle().unwrap();
                    if step % 500 == 499 {
                        // Longer than they stay awake.
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
}
