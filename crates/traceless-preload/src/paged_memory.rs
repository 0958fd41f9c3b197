//! The paged memory: which part of it is allocated, and operations on its pages.

use crate::own_threads::is_own_thread;
use crate::report::{fail, print};
use crate::{protected, stand_in, syscall_filter};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{
    self, Client, Error, EvictMethod, Heap, Lock, Pager, Pages, Ranges, Recording, Result,
    Settings, without_signals,
};

/// The paged memory, and the heap that records which parts of it are allocated.
pub struct PagedMemory {
    /// Leaked: in a copy of the process another one takes its place.
    memory: AtomicPtr<Memory>,
    heap: Mutex<Heap>,
    /// Memory that is paged beside the heap's.
    elsewhere: Mutex<Ranges>,
    /// Memory that will be zeros in copies of the process, where a thread of it is the pager.
    wiped: Mutex<Ranges>,
    /// Whether any memory was ever to be zeros in copies of the process.
    has_wiped: AtomicBool,
    /// Bytes of files that were copied to paged memory so far.
    copied: AtomicUsize,
    /// Whether the program has changed the protection of any memory of the heap.
    is_protected: AtomicBool,
    start: usize,
    len: usize,
    lock: Lock,
}

/// The thread or process that pages the memory.
pub enum Memory {
    /// A thread of this process pages it.
    Own(OwnPager),
    /// Another process pages it.
    OtherProcess(Client),
}

/// A thread of this process that pages the memory.
pub struct OwnPager {
    pub pager: Pager,
    pub recording: Option<Recording>,
    /// For pagers of copies of this process.
    pub settings: Box<Settings>,
}

static PAGED: OnceLock<PagedMemory> = OnceLock::new();

/// Makes `memory` the program's paged memory. Called once.
pub fn set(memory: PagedMemory) {
    // The library is loaded once, so nothing was set before.
    drop(PAGED.set(memory));
}

/// Has a pager of this process page the memory from now on: this process is a copy.
pub fn replace_pager(own: OwnPager) {
    if let Some(paged) = PAGED.get() {
        // The copy may end before it is looked at.
        if let Some(before) = paged.own_pager() {
            own.pager.note_unpaged_of(before);
        }
        paged.memory.store(Box::into_raw(Box::new(Memory::Own(own))), Release);
    }
}

/// The recording of page moves, if `--trace` requested one.
pub fn recording() -> Option<&'static Recording> {
    match PAGED.get()?.memory() {
        Memory::Own(own) => own.recording.as_ref(),
        Memory::OtherProcess(_) => None,
    }
}

/// Notes how much of the program's memory is not paged, if a thread of this process is the pager.
/// Any thread may call it.
pub fn note_unpaged() {
    const OWN_LIBRARY: &str = "/libtraceless_preload.so";
    if let Some(pager) = PAGED.get().and_then(PagedMemory::own_pager) {
        pager.note_unpaged(|start, name| {
            protected::is_protected(start) || name.ends_with(OWN_LIBRARY) || is_librarys(start)
        });
    }
}

/// Whether an address lies in a library that only this one uses, as the program is linked
/// statically.
fn is_librarys(address: usize) -> bool {
    // SAFETY: an address to look for, and a record of ours.
    stand_in::loads_program()
        && unsafe {
            let mut object: libc::Dl_info = core::mem::zeroed();
            libc::dladdr(address as *const c_void, &raw mut object) != 0
        }
}

/// The paged memory, once there is any. `None` for the pager's own threads.
pub fn paged() -> Option<&'static PagedMemory> {
    let paged = PAGED.get()?;
    (!is_own_thread()).then_some(paged)
}

/// The paged memory that contains an address, and the address's distance from its start.
pub fn paged_at(address: usize) -> Option<(&'static PagedMemory, usize)> {
    let paged = PAGED.get()?;
    let at = address.checked_sub(paged.start)?;
    (at < paged.len).then_some((paged, at))
}

/// Whether any byte of a range is paged.
pub fn is_paged(address: usize, len: usize) -> bool {
    PAGED.get().is_some_and(|paged| {
        address < paged.start + paged.len && address.saturating_add(len) > paged.start
    })
}

impl PagedMemory {
    /// Paged memory without allocations.
    pub fn new(memory: Memory, start: usize, len: usize, lock: Lock) -> Result<Self> {
        let heap = Mutex::new(Heap::new(start, len / PAGE_LEN));
        let [elsewhere, wiped] = [const { Mutex::new(Ranges::new()) }; 2];
        let memory = AtomicPtr::new(Box::into_raw(Box::new(memory)));
        let [is_protected, has_wiped] = [const { AtomicBool::new(false) }; 2];
        let copied = AtomicUsize::new(0);
        let paged = Self {
            memory,
            heap,
            elsewhere,
            wiped,
            has_wiped,
            copied,
            is_protected,
            start,
            len,
            lock,
        };
        if !paged.is_locked() {
            match lock {
                Lock::Strict => return Err(Error::Unlocked(rustix::io::Errno::NOMEM)),
                Lock::Auto => {
                    print(
                        "resident pages may be swapped out: the limit of locked memory is too low",
                    );
                }
                Lock::Off => {}
            }
        }
        if paged.loses_pinned() {
            syscall_filter::install().map_err(Error::Configuration)?;
        }
        Ok(paged)
    }

    fn memory(&self) -> &'static Memory {
        // SAFETY: made from a box that is never freed.
        unsafe { &*self.memory.load(Acquire) }
    }

    /// Whether `len` bytes of a file are to be copied to paged memory in place of a mapping: until
    /// copies were an eighth of what can be paged.
    pub fn take_copy(&self, len: usize) -> bool {
        let more = |copied: usize| copied.checked_add(len).filter(|&all| all <= self.len / 8);
        self.copied.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Whether the `len` bytes from `at` on lie in the paged memory.
    pub fn contains(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// The records of allocations.
    pub fn heap(&self) -> MutexGuard<'_, Heap> {
        // Code that holds the records does not panic, but for bugs, which end the program.
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records of memory that is paged elsewhere. The caller blocks signals, as a handler may
    /// map memory, too.
    pub fn elsewhere(&self) -> MutexGuard<'_, Ranges> {
        // As of the heap's records.
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory that will be zeros in copies of the process. The caller blocks signals.
    pub fn wiped(&self) -> MutexGuard<'_, Ranges> {
        // As of the heap's records.
        self.wiped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of the byte at `at`.
    pub fn address(&self, at: usize) -> *mut u8 {
        (self.start + at) as *mut u8
    }

    /// Sets what the program may do with a range of the heap's memory, as of `mprotect`. Returns
    /// whether the kernel allows it.
    pub fn protect(&self, at: usize, len: usize, protection: c_int) -> bool {
        self.is_protected.store(true, Relaxed);
        // SAFETY: the program requests it, for memory that the pager uses in other ways only.
        unsafe { libc::syscall(libc::SYS_mprotect, self.address(at), len, protection) == 0 }
    }

    /// Allocates an object, as of [`Heap::allocate`].
    pub fn allocate(&self, size: usize, align: usize) -> Option<(usize, bool)> {
        self.retried(|heap| heap.allocate(size, align))
    }

    /// Allocates pages of zeros, as of [`Heap::map`].
    pub fn map(&self, len: usize) -> Option<usize> {
        self.retried(|heap| heap.map(len))
    }

    /// What `allocate` finds, if need be without pages that are kept.
    fn retried<T>(&self, allocate: impl Fn(&mut Heap) -> Option<T>) -> Option<T> {
        let found = allocate(&mut self.heap());
        if found.is_some() {
            return found;
        }
        self.release_kept();
        allocate(&mut self.heap())
    }

    /// Frees the pages of an object.
    pub fn free(&self, pages: Pages) {
        // They may have a protection, or be zeros in copies of the process.
        let is_special = self.is_protected.load(Relaxed) || self.has_wiped.load(Relaxed);
        let freed = if is_special { vec![pages] } else { self.heap().keep(pages) };
        for pages in freed {
            self.release(pages);
        }
    }

    /// Releases pages that are kept for the next objects.
    pub fn release_kept(&self) {
        let kept = self.heap().take_all_kept();
        for pages in kept {
            self.release(pages);
        }
    }

    /// Whether this thread's stack is paged.
    pub fn has_this_stack(&self) -> bool {
        let here = 0_u8;
        let at = &raw const here as usize;
        let is_in = |ranges: &Ranges| ranges.overlaps(&(at..at + 1));
        (self.start..self.start + self.len).contains(&at)
            || without_signals(|| is_in(&self.elsewhere()))
    }

    /// Zeroes pages that are no longer allocated, and makes them available.
    pub fn release(&self, pages: Pages) {
        self.wipe_in_copies(pages, false);
        if self.is_protected.load(Relaxed) {
            let (at, len) = (pages.first * PAGE_LEN, pages.count * PAGE_LEN);
            if !self.protect(at, len, libc::PROT_READ | libc::PROT_WRITE) {
                // The kernel has no room to record one range more: the pages are not used again.
                return self.discard(pages);
            }
        }
        self.discard(pages);
        self.heap().give(pages);
    }

    /// Makes pages zeros.
    pub fn discard(&self, pages: Pages) {
        let Pages { first, count } = pages;
        let discarded = match self.memory() {
            // SAFETY: the program has freed them, unmapped them, or requested that they become
            // zeros.
            Memory::Own(OwnPager { pager: own, .. }) => unsafe { own.discard(first, count) },
            // SAFETY: as above.
            Memory::OtherProcess(client) => unsafe { client.discard(first, count) },
        };
        if let Err(e) = discarded {
            fail(&e);
        }
    }

    /// Runs `work`, which changes how memory is mapped, while no page moves. `work` gets the start
    /// of paged memory, and its length including the pager's memory beside it.
    pub fn while_paused<T>(&self, work: impl FnOnce(usize, usize) -> T) -> T {
        match self.memory() {
            Memory::Own(OwnPager { pager: own, .. }) => own.while_paused(work),
            Memory::OtherProcess(client) => client.while_paused(work),
        }
    }

    /// Locks resident pages from now on; fails with the kernel's error.
    pub fn lock(&self) -> core::result::Result<(), rustix::io::Errno> {
        match self.memory() {
            Memory::Own(OwnPager { pager: own, .. }) => {
                own.lock()?;
                without_signals(|| {
                    let elsewhere = self.elsewhere();
                    elsewhere.iter().try_for_each(|range| paging::lock(range.start, range.len()))
                })?;
                protected::lock_again();
                if protected::is_locked() { Ok(()) } else { Err(rustix::io::Errno::NOMEM) }
            }
            Memory::OtherProcess(client) => client.lock(),
        }
    }

    /// Whether resident pages are locked.
    pub fn is_locked(&self) -> bool {
        match self.memory() {
            // Cached levels of a tree hold pages, too.
            Memory::Own(OwnPager { pager: own, .. }) => own.is_locked() && protected::is_locked(),
            Memory::OtherProcess(client) => client.is_locked(),
        }
    }

    /// Whether resident pages are locked, or the program does not run.
    pub fn must_lock(&self) -> bool {
        self.lock == Lock::Strict
    }

    /// Makes pages become zeros in copies of the process, or keeps their contents there.
    pub fn wipe_in_copies(&self, Pages { first, count }: Pages, wipes: bool) {
        if wipes {
            self.has_wiped.store(true, Relaxed);
        } else if !self.has_wiped.load(Relaxed) {
            return;
        }
        let done = match self.memory() {
            Memory::Own(_) => {
                let start = self.start + first * PAGE_LEN;
                return self.wipe_range_in_copies(start..start + count * PAGE_LEN, wipes);
            }
            Memory::OtherProcess(client) => client.wipe_in_copies(first, count, wipes),
        };
        if let Err(e) = done {
            fail(&e);
        }
    }

    /// The same for a range of addresses, where a thread of this process is the pager.
    pub fn wipe_range_in_copies(&self, range: Range<usize>, wipes: bool) {
        if wipes {
            self.has_wiped.store(true, Relaxed);
        } else if !self.has_wiped.load(Relaxed) {
            return;
        }
        without_signals(|| {
            let mut all = self.wiped();
            if wipes {
                all.add(range);
            } else {
                all.remove(range);
            }
        });
    }

    /// Notes that memory has moved: what is zeros in copies is so at its new place, and what lay
    /// there is gone.
    pub fn move_wiped(&self, from: &Range<usize>, to: &Range<usize>) {
        if !self.has_wiped.load(Relaxed) {
            return;
        }
        without_signals(|| {
            let mut all = self.wiped();
            let len = from.len().min(to.len());
            let kept: Vec<_> = all.gaps(from.start..from.start + len).collect();
            all.remove(from.clone());
            all.remove(to.clone());
            all.add(to.start..to.start + len);
            for gap in kept {
                let start = gap.start - from.start + to.start;
                all.remove(start..start + gap.len());
            }
        });
    }

    /// Releases a thread of the program from its processor, for some faults or for good.
    pub fn unpin_thread(&self, thread: u32, for_good: bool) {
        match self.memory() {
            Memory::Own(OwnPager { pager: own, .. }) => own.unpin_thread(thread, for_good),
            Memory::OtherProcess(client) => client.unpin_thread(thread, for_good),
        }
    }

    /// The pager, if it is a thread of this process: it pages memory anywhere.
    pub fn own_pager(&self) -> Option<&'static Pager> {
        self.own().map(|own| &own.pager)
    }

    /// The same, with its settings.
    pub fn own(&self) -> Option<&'static OwnPager> {
        match self.memory() {
            Memory::Own(own) => Some(own),
            Memory::OtherProcess(_) => None,
        }
    }

    /// Whether a pinned page may leave, so that a device's writes to it are lost.
    pub fn loses_pinned(&self) -> bool {
        match self.memory() {
            Memory::Own(OwnPager { pager: own, .. }) => own.evict_method() != EvictMethod::Move,
            Memory::OtherProcess(_) => true,
        }
    }

    /// The connection to the pager, if it is another process.
    pub fn client(&self) -> Option<&'static Client> {
        match self.memory() {
            Memory::Own(..) => None,
            Memory::OtherProcess(client) => Some(client),
        }
    }
}
