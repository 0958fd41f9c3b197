//! Paged memory, and how a page leaves it and comes back.

use super::evict::EvictMethod;
use super::locking;
use super::memory::{self, Mapping, lengthen};
use super::own_pages::OwnPages;
use super::uffd::{FEATURE_WP, Uffd};
use crate::paging::config::Config;
use crate::paging::error::{Error, Result};
use crate::{PAGE_LEN, Page};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::io::{Errno, pread, pwrite};
use rustix::mm::Advice;
use std::sync::OnceLock;

/// The outcome of an eviction.
pub enum EvictOutcome {
    /// It was evicted; its contents are in the frame.
    Evicted,
    /// It is pinned and stays.
    Pinned,
    /// It was not present: the program discarded it without the pager.
    Absent,
}

/// The pages of a program. Pages of this process have two more behind them: the staging page, where
/// a page waits between two places, and the shutdown page, which is touched only to end the
/// service.
pub struct Arena {
    uffd: Uffd,
    memory: Memory,
    start: usize,
    pages: usize,
    evict_method: EvictMethod,
}

/// Access of this process to the pages.
enum Memory {
    /// The pages are mapped in this process, where the program uses them.
    Own(OwnPages),
    /// Another process has the pages mapped.
    Other(SharedPages),
}

/// The pages as an anonymous file, which another process maps.
pub struct SharedPages {
    file: OwnedFd,
    len: usize,
    /// The file mapped here, which keeps pages locked that the other process does not have mapped.
    locked_mapping: OnceLock<Mapping>,
}

impl Arena {
    /// Maps `pages` pages, none of them present, and `places` places of the standby list; at
    /// `config.start` if that is given.
    pub fn new(pages: usize, places: usize, config: &Config, method: EvictMethod) -> Result<Self> {
        let len = pages.checked_add(places + 2).and_then(|pages| pages.checked_mul(PAGE_LEN));
        let len = len.ok_or(Error::Configuration("too many pages"))?;
        let mapping = match config.start {
            Some(start) if config.is_start_reserved => Mapping::paged_over_reserved(len, start),
            start => Mapping::paged(len, start),
        }?;
        let features = method.features()?;
        let uffd = Uffd::with_features(features)?;
        let start = mapping.start();
        let staging = start + pages * PAGE_LEN;
        let own = OwnPages::new(mapping, staging, features & FEATURE_WP != 0)?;
        uffd.register(start, len, own.protects)?;
        config.lock.apply(|| own.mapping.lock())?;
        Ok(Self { uffd, memory: Memory::Own(own), start, pages, evict_method: method })
    }

    /// Pages that another process has mapped at `start`, and registered with `uffd`.
    pub fn of_other_process(uffd: Uffd, memory: SharedPages, start: usize, pages: usize) -> Self {
        Self {
            uffd,
            memory: Memory::Other(memory),
            start,
            pages,
            evict_method: EvictMethod::Protect,
        }
    }

    /// By which system calls pages are evicted.
    pub fn evict_method(&self) -> EvictMethod {
        self.evict_method
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The userfaultfd that reports faults.
    pub fn uffd(&self) -> &Uffd {
        &self.uffd
    }

    /// First address of the pages in the program.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Locks the pages, if they are of this process.
    pub fn lock(&self) -> Result<(), Errno> {
        match &self.memory {
            Memory::Own(own) => own.lock(),
            Memory::Other(_) => Err(Errno::PERM),
        }
    }

    /// Whether the pages are locked.
    pub fn is_locked(&self) -> bool {
        matches!(&self.memory, Memory::Own(own) if own.mapping.is_locked())
    }

    /// Keeps a resident page locked even while the other process does not have it mapped.
    pub fn keep_locked(&self, page: usize) -> Result {
        match &self.memory {
            Memory::Own(_) => Ok(()),
            Memory::Other(pages) => pages.keep_locked(page, Advice::LinuxPopulateRead),
        }
    }

    /// The pages, if they are of this process.
    fn own(&self) -> &OwnPages {
        match &self.memory {
            Memory::Own(own) => own,
            Memory::Other(_) => unreachable!("only pages of this process are touched here"),
        }
    }

    /// Start and length of the mapping, with the pages that are not the program's.
    pub fn mapping_range(&self) -> (usize, usize) {
        match &self.memory {
            Memory::Own(own) => (own.mapping.start(), own.mapping.size()),
            Memory::Other(_) => (self.start, self.pages * PAGE_LEN),
        }
    }

    /// The page that ends the service when it is touched.
    pub fn shutdown_address(&self) -> usize {
        self.start + (self.pages + 1) * PAGE_LEN
    }

    /// Touches the shutdown page, and returns when the service has answered that fault.
    pub fn signal_shutdown(&self) {
        let at = self.shutdown_address() - self.start;
        // SAFETY: a page of the mapping that nothing else touches. It is missing, and the thread
        // that serves faults makes it present.
        unsafe { self.own().mapping.at(at).read_volatile() };
    }

    /// Whether the pages are of this process, so that stacks of its threads may lie in them.
    pub fn is_own(&self) -> bool {
        matches!(self.memory, Memory::Own(_))
    }

    /// Lets pages that the program may write and execute be moved, too.
    pub fn prepare_executable(&self) {
        if let (Memory::Own(own), EvictMethod::Move) = (&self.memory, self.evict_method) {
            own.map_executable_staging(&self.uffd);
        }
    }

    /// Registers memory elsewhere in this process, which holds no page yet: from now on its faults
    /// are reported, too. Where pages are locked it is locked, as the kernel moves no page between
    /// memory that is locked and memory that is not.
    ///
    /// # Errors
    /// [`Error::Unlocked`] if the limit of locked memory is too low, or the kernel's refusal of the
    /// advice or of the registration.
    pub fn register(&self, start: usize, len: usize) -> Result {
        if self.is_locked() {
            locking::lock(start, len).map_err(Error::Unlocked)?;
        }
        Mapping::exclude_from_forks(start, len)?;
        locking::exclude_from_core_dumps(start, len)?;
        // A kernel without huge pages refuses this one, and needs none.
        let _ = memory::disable_huge_pages(start, len);
        self.uffd.register(start, len, self.own().protects)?;
        Ok(())
    }

    /// Evicts the page at an address. From here to [`Arena::install`] only the frame has its
    /// contents.
    pub fn evict(&self, address: usize, spare: &mut Page) -> Result<EvictOutcome> {
        match self.evict_method {
            EvictMethod::Move => {
                if !self.is_registered(address)? {
                    return Ok(EvictOutcome::Absent);
                }
                for staging in self.own().staging_pages() {
                    if let Some(outcome) = self.move_page_out(address, staging)? {
                        self.own().staged.store(staging, Relaxed);
                        return Ok(outcome);
                    }
                }
                self.evict_by_copying(address, spare)
            }
            EvictMethod::Protect => self.evict_by_copying(address, spare),
            #[cfg(test)]
            EvictMethod::Unprotected => {
                self.read(address, spare)?;
                self.discard(address, PAGE_LEN).map(|()| EvictOutcome::Evicted)
            }
        }
    }

    /// Whether the memory at an address is still what was registered: the program may have unmapped
    /// it by a system call of its own, and have other memory there, of which no page may be taken.
    fn is_registered(&self, address: usize) -> Result<bool> {
        let own = self.own();
        let (start, len) = (own.mapping.start(), own.mapping.size());
        if !own.protects || (start..start + len).contains(&address) {
            return Ok(true);
        }
        loop {
            return match self.uffd.unprotect(address) {
                Ok(()) => Ok(true),
                Err(Errno::AGAIN) => continue,
                Err(Errno::NOENT) => Ok(false),
                Err(e) => Err(Error::os("paged memory cannot be found", e)),
            };
        }
    }

    /// Moves a page to a place of ours. `None` if the kernel does not move it there: it moves pages
    /// between writable memory of the same protection only.
    fn move_page_out(&self, from: usize, to: usize) -> Result<Option<EvictOutcome>> {
        loop {
            // SAFETY: a page of ours to a place of ours that is empty: what was there was brought
            // somewhere, or discarded.
            let moved = unsafe { self.uffd.move_page(to, from, false) };
            return match moved {
                Ok(()) => Ok(Some(EvictOutcome::Evicted)),
                Err(Errno::AGAIN) => continue,
                Err(Errno::BUSY) => Ok(Some(EvictOutcome::Pinned)),
                Err(Errno::NOENT) => Ok(Some(EvictOutcome::Absent)),
                Err(Errno::INVAL) => Ok(None),
                Err(e) => Err(Error::os("a page cannot be moved", e)),
            };
        }
    }

    fn evict_by_copying(&self, address: usize, spare: &mut Page) -> Result<EvictOutcome> {
        if let Memory::Own(own) = &self.memory {
            own.staged.store(0, Relaxed);
            if !own.protects {
                return Ok(EvictOutcome::Pinned);
            }
            if !self.is_present(address)? {
                return Ok(EvictOutcome::Absent);
            }
        }
        match self.uffd.protect(address) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(EvictOutcome::Absent),
            Err(e) => return Err(Error::os("a page cannot be protected", e)),
        }
        let read = self.read(address, spare);
        if self.is_own() && read.is_err() {
            // Its contents cannot be had, so it stays.
            self.uffd.unprotect(address).map_err(|e| Error::os("a page stays protected", e))?;
            return Ok(EvictOutcome::Pinned);
        }
        read?;
        self.discard(address, PAGE_LEN)?;
        self.wake(address)?;
        Ok(EvictOutcome::Evicted)
    }

    /// Whether memory of ours is still mapped at an address. Then a page is present there from now
    /// on: zeros, if the program has discarded it without the pager. This thread must not fault.
    fn is_present(&self, address: usize) -> Result<bool> {
        loop {
            // SAFETY: it has an effect only where a page of ours is missing, and that is zeros.
            return match unsafe { self.uffd.copy(address, &[0; PAGE_LEN]) } {
                Ok(()) | Err(Errno::EXIST) => Ok(true),
                Err(Errno::AGAIN) => continue,
                Err(Errno::NOENT) => Ok(false),
                Err(e) => Err(Error::os("a page cannot be filled", e)),
            };
        }
    }

    /// Copies a page that is resident and that no thread writes to now.
    pub fn read(&self, address: usize, into: &mut Page) -> Result {
        match &self.memory {
            Memory::Own(own) => own.read(address, into),
            Memory::Other(pages) => pages.read((address - self.start) / PAGE_LEN, into),
        }
    }

    /// The same for a page of this process, if there is memory: the program may have unmapped it by
    /// a system call of its own. A page that it has discarded so is zeros.
    pub fn read_if_there(&self, address: usize, into: &mut Page) -> Result<bool> {
        if self.is_own() && !self.is_present(address)? {
            return Ok(false);
        }
        self.read(address, into).map(|()| true)
    }

    /// Copies the page at a place of the standby list.
    pub fn read_standby(&self, place: usize, into: &mut Page) -> Result {
        self.read(self.place(place), into)
    }

    /// Lets threads that write to a range of this process wait.
    pub fn protect_range(&self, range: &Range<usize>) {
        self.set_protection(range, true);
    }

    /// Lets threads go on that write to a range of this process, or wait for a page of it: they try
    /// their access again.
    pub fn unprotect_range(&self, range: &Range<usize>) {
        self.set_protection(range, false);
        // What the program has unmapped by itself has no thread that waits.
        let _ = self.uffd.wake_all(range.start, range.len());
    }

    fn set_protection(&self, range: &Range<usize>, protects: bool) {
        if !self.own().protects {
            return;
        }
        while self.uffd.protect_range(range.start, range.len(), protects) == Err(Errno::AGAIN) {}
    }

    /// Lets a thread go on that writes to a page which is protected.
    pub fn unprotect(&self, address: usize) -> Result {
        match self.uffd.unprotect(address) {
            // The page has left since then, or its memory; or its access is tried again.
            Ok(()) | Err(Errno::NOENT | Errno::AGAIN) => self.wake(address),
            Err(e) => Err(Error::os("a page stays protected", e)),
        }
    }

    /// The frame of the page that left last: where it was moved to, or the spare one.
    pub fn frame<'a>(&'a self, evicted: bool, spare: &'a mut Page) -> &'a mut Page {
        match self.staged(evicted) {
            // SAFETY: a page was moved there, so it is present; only the thread that serves faults
            // gets here, and it holds `spare`, of which there is one.
            Some(staging) => unsafe { &mut *(staging as *mut Page) },
            None => spare,
        }
    }

    /// The address to which the page that left last was moved, if it was moved.
    fn staged(&self, evicted: bool) -> Option<usize> {
        match &self.memory {
            Memory::Own(own) if evicted => {
                Some(own.staged.load(Relaxed)).filter(|&staging| staging != 0)
            }
            _ => None,
        }
    }

    /// Makes the frame's contents the page at an address, and wakes the threads that wait for it.
    /// `evicted` says whether the frame is that of a page that has left. Returns whether there is
    /// still memory of ours.
    pub fn install(&self, address: usize, evicted: bool, spare: &Page) -> Result<bool> {
        match self.staged(evicted) {
            Some(staging) => self.bring(staging, address),
            None => self.copy(address, spare),
        }
    }

    /// Brings the page at a place of ours to an address, and wakes the threads that wait there.
    /// Then there is none at that place. Returns whether there is still memory of ours.
    fn bring(&self, from: usize, address: usize) -> Result<bool> {
        loop {
            // SAFETY: from a place of ours to a page that is missing, with the contents that it is
            // to have.
            match unsafe { self.uffd.move_page(address, from, true) } {
                Ok(()) => return Ok(true),
                Err(Errno::AGAIN) => {}
                // Memory of another protection, or none of ours any more.
                Err(Errno::INVAL | Errno::NOENT) if self.is_own() => {
                    // SAFETY: a page of ours is present there, and only this thread uses it.
                    let is_there = self.copy(address, unsafe { &*(from as *const Page) })?;
                    self.discard(from, PAGE_LEN)?;
                    return Ok(is_there);
                }
                Err(e) => return Err(Error::os("a page cannot be brought", e)),
            }
        }
    }

    /// Moves the page at an address to an empty place of the standby list, unless it cannot be
    /// moved. For [`EvictMethod::Move`] only.
    pub fn move_to_standby(&self, address: usize, place: usize) -> Result<EvictOutcome> {
        let outcome = self.move_page_out(address, self.place(place))?;
        Ok(outcome.unwrap_or(EvictOutcome::Pinned))
    }

    /// Moves the page at a place of the standby list to the staging page, as if it had just left.
    pub fn stage(&self, place: usize) -> Result {
        let own = self.own();
        self.bring(self.place(place), own.staging)?;
        own.staged.store(own.staging, Relaxed);
        Ok(())
    }

    /// Moves the page at a place of the standby list back, and wakes the threads that wait for it.
    /// Returns whether there is still memory of ours.
    pub fn restore_from_standby(&self, place: usize, address: usize) -> Result<bool> {
        self.bring(self.place(place), address)
    }

    /// Discards the page at a place of the standby list.
    pub fn discard_standby(&self, place: usize) -> Result {
        self.discard(self.place(place), PAGE_LEN)
    }

    fn place(&self, place: usize) -> usize {
        self.start + (self.pages + 2 + place) * PAGE_LEN
    }

    /// Gives the frame back after a page has left and none has come.
    pub fn discard_staged(&self) -> Result {
        self.staged(true).map_or(Ok(()), |staging| self.discard(staging, PAGE_LEN))
    }

    /// Makes the page at an address zeros if it is missing, and wakes the threads that wait for it
    /// in any case.
    pub fn wake_with_zeros(&self, address: usize) -> Result {
        self.copy(address, &[0; PAGE_LEN]).map(drop)
    }

    /// Wakes the threads that wait for the page; they fault again if it is still missing.
    pub fn wake(&self, address: usize) -> Result {
        self.uffd.wake(address).map_err(|e| Error::os("threads cannot be woken", e))
    }

    /// Wakes the threads that wait for any page; they fault again if it is still missing.
    pub fn wake_all(&self) -> Result {
        let woken = self.uffd.wake_all(self.start, self.pages * PAGE_LEN);
        woken.map_err(|e| Error::os("threads cannot be woken", e))
    }

    /// Whether the program still has the memory.
    pub fn is_in_use(&self) -> bool {
        // No page is protected between two faults, so the call changes nothing: only its error
        // counts.
        self.uffd.unprotect(self.start) != Err(Errno::SRCH)
    }

    /// Makes a missing page a copy of `from`, and wakes the threads that wait for it. Returns
    /// whether there is still memory of ours.
    fn copy(&self, to: usize, from: &Page) -> Result<bool> {
        loop {
            // SAFETY: a page of ours that is missing, with the contents that it is to have.
            match unsafe { self.uffd.copy(to, from) } {
                Ok(()) => return Ok(true),
                Err(Errno::AGAIN) => {}
                Err(Errno::EXIST) => return self.wake(to).map(|()| true),
                // The program has unmapped it meanwhile.
                Err(Errno::NOENT) if self.is_own() => return self.wake(to).map(|()| false),
                Err(e) => return Err(Error::os("a page cannot be filled", e)),
            }
        }
    }

    /// Makes the pages of a range missing from now on.
    pub fn discard(&self, start: usize, len: usize) -> Result {
        match &self.memory {
            // SAFETY: pages that have left, or that the program needs no more.
            Memory::Own(_) => unsafe { memory::discard(start, len) },
            Memory::Other(memory) => {
                memory.discard((start - self.start) / PAGE_LEN, len / PAGE_LEN)
            }
        }
    }
}

impl SharedPages {
    /// An anonymous file of `pages` pages of zeros, none of them present.
    pub fn new(pages: usize) -> Result<Self> {
        let failed = |e| Error::os("memory without a name", e);
        let len = pages.checked_mul(PAGE_LEN).ok_or(Error::Configuration("too many pages"))?;
        let file = memfd_create("traceless-frames", MemfdFlags::CLOEXEC).map_err(failed)?;
        lengthen(&file, len as u64).map_err(failed)?;
        Ok(Self { file, len, locked_mapping: OnceLock::new() })
    }

    /// The file that the other process maps.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Maps a page here, too, where all memory is locked: until it is discarded it stays in memory,
    /// even if no other process has it mapped.
    fn keep_locked(&self, page: usize, how: Advice) -> Result {
        if !locking::is_all_locked() {
            return Ok(());
        }
        let mapped = if let Some(mapped) = self.locked_mapping.get() {
            mapped
        } else {
            let mapping = Mapping::shared(self.file(), self.len)?;
            mapping.disable_huge_pages()?;
            Mapping::exclude_from_forks(mapping.start(), self.len)?;
            self.locked_mapping.get_or_init(|| mapping)
        };
        // A failure is not reported here: if the program has cut its file, reads of the file fail.
        let _ = mapped.advise(page * PAGE_LEN, PAGE_LEN, how);
        Ok(())
    }

    fn read(&self, page: usize, into: &mut Page) -> Result {
        match pread(&self.file, &mut into[..], (page * PAGE_LEN) as u64) {
            Ok(PAGE_LEN) => Ok(()),
            Ok(_) => Err(Error::Configuration("the program has cut its memory short")),
            Err(e) => Err(Error::os("a page cannot be copied", e)),
        }
    }

    /// Makes the page present, with the contents `from`.
    pub fn write(&self, page: usize, from: &Page) -> Result {
        self.keep_locked(page, Advice::LinuxPopulateWrite)?;
        match pwrite(&self.file, &from[..], (page * PAGE_LEN) as u64) {
            Ok(PAGE_LEN) => Ok(()),
            Ok(_) => Err(Error::Configuration("there is no memory for a page")),
            Err(e) => Err(Error::os("a page cannot be written", e)),
        }
    }

    fn discard(&self, first: usize, pages: usize) -> Result {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, how, (first * PAGE_LEN) as u64, (pages * PAGE_LEN) as u64)
            .map_err(|e| Error::os("pages cannot be discarded", e))
    }
}
