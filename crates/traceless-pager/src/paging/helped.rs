//! `DetWoORAM` whose refreshes others do: at once together with whoever serves the fault, or after
//! the program goes on, or both.
//!
//! Which page a fault brings and takes is not known before it happens; what is refreshed is. So
//! the refreshes that belong to a fault need not be waited for, if they are done before the next
//! page leaves: *eager*. The paper prepares them in a buffer and writes them with the next fault;
//! here they are written when they are ready, in the same order, which costs a fault nothing at
//! all. And they do not depend on each other: *parallel*. The paper starts threads for each fault;
//! here processes stay, awake while faults are frequent, since waking one takes longer than most
//! refreshes.

use super::error::{Error, Result};
use super::helper::{Helper, Parent};
use super::memory::Mapping;
use super::threads::{self, Place};
use crate::Page;
use crate::scheme::{Areas, PageScheme, Turns};
use crate::slots::Buffer;
use core::ops::Deref;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use rustix::thread::futex;
use std::sync::Arc;
use traceless::Hides;
use traceless::clock::{Clock, Monotonic};

/// How long a helper without work stays awake.
const AWAKE_NS: u64 = 50_000;

/// How long it then sleeps, at most, before it looks whether the program is still there.
const ASLEEP_S: i64 = 1;

/// Pauses between two looks for work: the program may run on the other half of the same core.
const PAUSES: u32 = 8;

/// Looks for work between two looks at the clock.
const LOOKS: u32 = 16;

/// Looks at what helpers have not done yet, before their share is done here.
const PATIENCE: u32 = 4096;

/// Such rounds before it is asked whether they are still there.
const ROUNDS: u32 = 64;

/// Refreshes after which a helper tells its processor time.
const CPU_INTERVAL: u64 = 64;

/// Who does the refreshes, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Help {
    /// After the program goes on; else before.
    pub eager: bool,
    /// Together with whoever serves the fault; else by the helpers alone.
    pub parallel: bool,
    /// Processes besides. Without any all is done by whoever serves the fault, when it must be.
    pub helpers: usize,
}

/// `DetWoORAM`, with help.
pub struct Helped {
    help: Help,
    crew: Arc<Crew>,
    helpers: Vec<Helper>,
    buffer: Buffer,
}

struct Crew {
    areas: Areas,
    board: Board,
}

/// What the crew tells each other. All zeros is how it begins.
#[repr(C)]
struct Words {
    turns: Turns,
    /// Helpers that sleep, or are about to.
    asleep: AtomicU32,
    /// Changes when sleepers are to look again.
    calls: AtomicU32,
    ends: AtomicU32,
    cpu_ns: AtomicU64,
    /// One more than the processor that helpers leave to the program; 0 is none.
    off: AtomicU64,
}

/// The words, in memory that helpers share.
struct Board(Mapping);

impl Deref for Board {
    type Target = Words;
    fn deref(&self) -> &Words {
        // SAFETY: a mapping of that size, aligned to a page, that lives as long as this; all of it
        // is atomic, and zeros are values of it.
        unsafe { &*self.0.at(0).cast() }
    }
}

impl Helped {
    /// Over these areas, which nobody else uses. With helpers its store and its numbers must be
    /// memory that processes share: [`SharedMemory`](super::SharedMemory),
    /// [`SharedNumbers`](super::SharedNumbers).
    pub fn new(areas: Areas, help: Help) -> Result<Self> {
        let board = Board(Mapping::inherited(size_of::<Words>())?);
        board.turns.go_on(&areas);
        let crew = Arc::new(Crew { areas, board });
        let mut helped = Self { help, crew, helpers: Vec::new(), buffer: Buffer::default() };
        for _ in 0..help.helpers {
            let (crew, mut buffer) = (&*helped.crew, Buffer::default());
            // SAFETY: refreshing takes no lock, and allocates nothing.
            let started = unsafe { Helper::start(|parent| crew.help(parent, &mut buffer)) };
            helped.helpers.push(started.map_err(|e| Error::os("no helper can be started", e))?);
        }
        Ok(helped)
    }

    /// Lets helpers begin with what is due.
    fn begin(&self) {
        let board = &self.crew.board;
        board.turns.begin(&self.crew.areas);
        if board.asleep.load(SeqCst) > 0 {
            self.call();
        }
    }

    fn call(&self) {
        self.crew.board.calls.fetch_add(1, SeqCst);
        // They look again within a second in any case.
        let _ = futex::wake(&self.crew.board.calls, futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Returns when all is done that was begun.
    fn finish(&mut self) -> traceless::Result {
        let crew = &*self.crew;
        if self.help.parallel || self.helpers.is_empty() {
            while crew.refresh_one(&mut self.buffer) {}
        }
        let mut looks = 0;
        while !crew.board.turns.are_over() {
            core::hint::spin_loop();
            looks += 1;
            if looks % PATIENCE == 0 {
                // Helpers were put aside: what they have not begun is done here.
                while crew.refresh_one(&mut self.buffer) {}
                std::thread::yield_now();
            }
            if looks == PATIENCE * ROUNDS {
                looks = 0;
                if !self.helpers.iter().all(Helper::is_there) {
                    return Err(traceless::Error::Store("a helper has ended in the midst of it"));
                }
            }
        }
        crew.board.turns.check(&crew.areas)
    }
}

impl Crew {
    /// A helper's life.
    fn help(&self, parent: &Parent, buffer: &mut Buffer) {
        let (clock, board) = (Monotonic::start(), &*self.board);
        let (mut place, mut off) = (Place::anywhere(), 0);
        let (mut idle_since, mut looks) = (clock.now(), 0);
        while board.ends.load(Relaxed) == 0 {
            if off != board.off.load(Relaxed) {
                off = board.off.load(Relaxed);
                place.keep_off(off.checked_sub(1).map(|cpu| cpu as usize));
            }
            if self.refresh_one(buffer) {
                looks = 0;
                continue;
            }
            for _ in 0..PAUSES {
                core::hint::spin_loop();
            }
            looks += 1;
            if looks == 1 {
                idle_since = clock.now();
            } else if looks % LOOKS == 0 && clock.now() - idle_since > AWAKE_NS {
                self.sleep();
                looks = 0;
                if !parent.is_there() {
                    return;
                }
            }
        }
    }

    /// Sleeps until there is work, or for a second.
    fn sleep(&self) {
        let board = &*self.board;
        board.cpu_ns.fetch_max(threads::cpu_ns(), Relaxed);
        let call = board.calls.load(SeqCst);
        board.asleep.fetch_add(1, SeqCst);
        // Whoever sets the goal looks for sleepers after that: one of both sees the other.
        if board.turns.waiting() == 0 && board.ends.load(SeqCst) == 0 {
            let second = rustix::time::Timespec { tv_sec: ASLEEP_S, tv_nsec: 0 };
            // However it ends, there is a look for work.
            let _ = futex::wait(&board.calls, futex::Flags::empty(), call, Some(&second));
        }
        board.asleep.fetch_sub(1, SeqCst);
    }

    /// Does one refresh that is due, if there is one that nobody does yet.
    fn refresh_one(&self, buffer: &mut Buffer) -> bool {
        let board = &*self.board;
        let done = board.turns.refresh_one(&self.areas, buffer);
        if done.is_some_and(|nth| nth.is_multiple_of(CPU_INTERVAL)) {
            board.cpu_ns.fetch_max(threads::cpu_ns(), Relaxed);
        }
        done.is_some()
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
            self.crew.areas.write(page, frame, &mut self.buffer)?;
            if !self.help.eager {
                self.begin();
                self.finish()?;
            }
        }
        if let Some(page) = wanted {
            // Those that this fault begins come later.
            let refreshed = self.crew.board.turns.done();
            self.crew.areas.read(page, refreshed, frame, &mut self.buffer)?;
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
        self.crew.board.off.store(cpu.map_or(0, |cpu| cpu as u64 + 1), Relaxed);
    }

    fn helper_cpu_ns(&self) -> u64 {
        self.crew.board.cpu_ns.load(Relaxed)
    }
}

impl Drop for Helped {
    fn drop(&mut self) {
        self.crew.board.ends.store(1, SeqCst);
        self.call();
        for helper in &self.helpers {
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
    use traceless::scheme::detwo::Refresh;
    use traceless::seal::Secret;
    use traceless::store::Store;
    use traceless::types::Extent;

    const HELPS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

    fn helped(store: &Arc<SharedMemory>, k: u32, (eager, parallel): (bool, bool)) -> Helped {
        let refresh = Refresh::new(k, 1).unwrap();
        let (key, cipher) = (Secret::from_bytes([1; 32]), Cipher::default());
        let numbers = Box::new(SharedNumbers::zeros(33).unwrap());
        let areas = Areas::with_numbers(store.clone(), 32, refresh, cipher, &key, numbers);
        Helped::new(areas.unwrap(), Help { eager, parallel, helpers: 2 }).unwrap()
    }

    fn store(k: u32) -> Arc<SharedMemory> {
        let refresh = Refresh::new(k, 1).unwrap();
        Arc::new(SharedMemory::unnamed(Areas::store_len(32, refresh)).unwrap())
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

    #[test]
    fn a_helper_that_is_killed_is_missed() {
        for help in HELPS {
            let store = store(3);
            let mut scheme = helped(&store, 3, help);
            scheme.helpers.iter().for_each(Helper::kill);
            // What they had not begun is done without them; what they had, is an error.
            for step in 0..100 {
                let (page, put) = (u64::from(step) % 32, [step; PAGE_LEN]);
                let mut frame = put;
                let mut swapped = scheme.swap(Some(page), None, &mut frame);
                if swapped.is_ok() {
                    swapped = scheme.swap(None, Some(page), &mut frame);
                }
                match swapped.and_then(|()| scheme.settle()) {
                    Ok(()) => assert!(frame == put, "{help:?}, step {step}"),
                    Err(_) => break,
                }
            }
        }
    }
}
