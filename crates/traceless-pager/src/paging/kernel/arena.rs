//! Paged memory, and how a page leaves it and comes back.

use super::evict::EvictMethod;
use super::locking;
use super::memory::{Mapping, lengthen};
use super::uffd::Uffd;
use crate::paging::config::Config;
use crate::paging::error::{Error, Result};
use crate::{PAGE_LEN, Page};
use core::ops::Range;
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
    Own(Mapping),
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
        let mapping = Mapping::paged(len, config.start)?;
        let uffd = Uffd::with_features(method.features())?;
        uffd.register(mapping.start(), len, method == EvictMethod::Protect)?;
        config.lock.apply(|| mapping.lock())?;
        let start = mapping.start();
        Ok(Self { uffd, memory: Memory::Own(mapping), start, pages, evict_method: method })
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
            Memory::Own(mapping) => mapping.lock(),
            Memory::Other(_) => Err(Errno::PERM),
        }
    }

    /// Whether the pages are locked.
    pub fn is_locked(&self) -> bool {
        matches!(&self.memory, Memory::Own(mapping) if mapping.is_locked())
    }

    /// Keeps a resident page locked even while the other process does not have it mapped.
    pub fn keep_locked(&self, page: usize) -> Result {
        match &self.memory {
            Memory::Own(_) => Ok(()),
            Memory::Other(pages) => pages.keep_locked(page, Advice::LinuxPopulateRead),
        }
    }

    /// The mapping, if the pages are of this process.
    fn own_mapping(&self) -> &Mapping {
        match &self.memory {
            Memory::Own(mapping) => mapping,
            Memory::Other(_) => unreachable!("only pages of this process are touched here"),
        }
    }

    /// Start and length of the mapping, with the pages that are not the program's.
    pub fn mapping_range(&self) -> (usize, usize) {
        match &self.memory {
            Memory::Own(mapping) => (mapping.start(), mapping.size()),
            Memory::Other(_) => (self.start, self.pages * PAGE_LEN),
        }
    }

    /// The page that an address lies in; the one after the last is the shutdown page.
    pub fn page_at(&self, address: usize) -> Option<usize> {
        let page = address.checked_sub(self.start)? / PAGE_LEN;
        (page < self.pages || page == self.shutdown_page()).then_some(page)
    }

    fn staging(&self) -> usize {
        self.pages
    }

    /// The page that ends the service when it is touched.
    pub fn shutdown_page(&self) -> usize {
        self.pages + 1
    }

    /// Touches the shutdown page, and returns when the service has answered that fault.
    pub fn signal_shutdown(&self) {
        // SAFETY: a page of the mapping that nothing else touches. It is missing, and the thread
        // that serves faults makes it present.
        unsafe { self.own_mapping().at(self.shutdown_page() * PAGE_LEN).read_volatile() };
    }

    /// The pages that the stack may use in calls from here, and one of the caller's: none, unless
    /// the stack lies in these pages.
    pub fn stack_pages(&self) -> Range<usize> {
        const BELOW: usize = 3;
        let here = 0_u8;
        let address = (&raw const here).addr();
        let page = match &self.memory {
            Memory::Own(_) => self.page_at(address).filter(|&page| page < self.pages),
            Memory::Other(_) => None,
        };
        page.map_or(0..0, |page| page.saturating_sub(BELOW)..(page + 2).min(self.pages))
    }

    /// Waits until a page is present.
    pub fn touch(&self, page: usize) {
        // SAFETY: a page of the mapping; what it holds does not matter.
        unsafe { self.own_mapping().at(page * PAGE_LEN).read_volatile() };
    }

    fn address(&self, page: usize) -> usize {
        self.start + page * PAGE_LEN
    }

    /// Evicts a page. From here to [`Arena::install`] only the frame has its contents.
    pub fn evict(&self, page: usize, spare: &mut Page) -> Result<EvictOutcome> {
        match self.evict_method {
            EvictMethod::Move => self.move_page_out(page, self.staging()),
            EvictMethod::Protect => self.evict_by_copying(page, spare),
            #[cfg(test)]
            EvictMethod::Unprotected => {
                self.read(page, spare)?;
                self.discard(page, 1).map(|()| EvictOutcome::Evicted)
            }
        }
    }

    fn move_page_out(&self, page: usize, to: usize) -> Result<EvictOutcome> {
        loop {
            // SAFETY: a page of ours to a place of ours that is empty: what was there was brought
            // somewhere, or discarded.
            let moved = unsafe { self.uffd.move_page(self.address(to), self.address(page), false) };
            return match moved {
                Ok(()) => Ok(EvictOutcome::Evicted),
                Err(Errno::AGAIN) => continue,
                Err(Errno::BUSY) => Ok(EvictOutcome::Pinned),
                Err(Errno::NOENT) => Ok(EvictOutcome::Absent),
                Err(e) => Err(Error::os("a page cannot be moved", e)),
            };
        }
    }

    fn evict_by_copying(&self, page: usize, spare: &mut Page) -> Result<EvictOutcome> {
        let address = self.address(page);
        match self.uffd.protect(address) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(EvictOutcome::Absent),
            Err(e) => return Err(Error::os("a page cannot be protected", e)),
        }
        self.read(page, spare)?;
        self.discard(page, 1)?;
        self.uffd.wake(address).map_err(|e| Error::os("threads cannot be woken", e))?;
        Ok(EvictOutcome::Evicted)
    }

    /// Copies a page that is resident and that no thread writes to now.
    pub fn read(&self, page: usize, into: &mut Page) -> Result {
        match &self.memory {
            Memory::Own(mapping) => {
                // SAFETY: it is resident, so this thread does not fault, and no thread writes to
                // it.
                unsafe { core::ptr::copy_nonoverlapping(mapping.page(page), into, 1) };
                Ok(())
            }
            Memory::Other(pages) => pages.read(page, into),
        }
    }

    /// The frame of the page that left last: where it was moved to, or the spare one.
    pub fn frame<'a>(&'a self, evicted: bool, spare: &'a mut Page) -> &'a mut Page {
        if evicted && self.evict_method == EvictMethod::Move {
            // SAFETY: a page was moved there, so it is present; only the thread that serves faults
            // gets here, and it holds `spare`, of which there is one.
            unsafe { &mut *self.own_mapping().page(self.staging()) }
        } else {
            spare
        }
    }

    /// Makes the frame's contents the page `page`, and wakes the threads that wait for it.
    /// `evicted` says whether the frame is that of a page that has left.
    pub fn install(&self, page: usize, evicted: bool, spare: &Page) -> Result {
        let to = self.address(page);
        if !(evicted && self.evict_method == EvictMethod::Move) {
            return self.copy(to, spare);
        }
        self.move_page_in(self.staging(), page)
    }

    fn move_page_in(&self, from: usize, page: usize) -> Result {
        loop {
            // SAFETY: from a place of ours to a page that is missing, with the contents that it is
            // to have.
            match unsafe { self.uffd.move_page(self.address(page), self.address(from), true) } {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) => {}
                Err(e) => return Err(Error::os("a page cannot be brought", e)),
            }
        }
    }

    /// Moves the page to an empty place of the standby list. For [`EvictMethod::Move`] only.
    pub fn move_to_standby(&self, page: usize, place: usize) -> Result<EvictOutcome> {
        self.move_page_out(page, self.place(place))
    }

    /// Moves the page at a place of the standby list to the staging page, as if it had just left.
    pub fn stage(&self, place: usize) -> Result {
        self.move_page_in(self.place(place), self.staging())
    }

    /// Moves the page at a place of the standby list back, and wakes the threads that wait for it.
    pub fn restore_from_standby(&self, place: usize, page: usize) -> Result {
        self.move_page_in(self.place(place), page)
    }

    /// Discards the page at a place of the standby list.
    pub fn discard_standby(&self, place: usize) -> Result {
        self.discard(self.place(place), 1)
    }

    fn place(&self, place: usize) -> usize {
        self.pages + 2 + place
    }

    /// Gives the frame back after a page has left and none has come.
    pub fn discard_staged(&self) -> Result {
        if self.evict_method == EvictMethod::Move {
            self.own_mapping().discard(self.staging() * PAGE_LEN, PAGE_LEN)?;
        }
        Ok(())
    }

    /// Makes the page zeros if it is missing, and wakes the threads that wait for it in any case.
    pub fn wake_with_zeros(&self, page: usize) -> Result {
        self.copy(self.address(page), &[0; PAGE_LEN])
    }

    /// Wakes the threads that wait for the page; they fault again if it is still missing.
    pub fn wake(&self, page: usize) -> Result {
        self.uffd.wake(self.address(page)).map_err(|e| Error::os("threads cannot be woken", e))
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

    fn copy(&self, to: usize, from: &Page) -> Result {
        loop {
            // SAFETY: a page of ours that is missing, with the contents that it is to have.
            match unsafe { self.uffd.copy(to, from) } {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) => {}
                Err(Errno::EXIST) => {
                    return self.uffd.wake(to).map_err(|e| Error::os("threads cannot be woken", e));
                }
                Err(e) => return Err(Error::os("a page cannot be filled", e)),
            }
        }
    }

    /// Makes the pages missing from now on.
    pub fn discard(&self, first: usize, pages: usize) -> Result {
        match &self.memory {
            Memory::Own(mapping) => mapping.discard(first * PAGE_LEN, pages * PAGE_LEN),
            Memory::Other(memory) => memory.discard(first, pages),
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
