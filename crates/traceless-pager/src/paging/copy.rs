//! A copy of the paged memory, for a copy of the program that `fork` makes while a thread of the
//! program is the pager.
//!
//! The program makes the copy before the fork: a scheme of its own, with a key and a store of its
//! own, that holds all pages. The child inherits it, and starts a pager on it. The kernel leaves
//! paged memory out of the child, so nothing there is read as zeros meanwhile: what the C library
//! touches in the child before the pager runs is brought by [`PagesCopy::bring_early`].
//!
//! The child closes the files, and unmaps the stores, of the program's pager. That pager's tables
//! stay in its memory until it ends.

use super::config::Config;
use super::construction::Recording;
use super::error::{Error, Result};
use super::faults::page_numbers::PageNumbers;
use super::kernel::locking::{store_regions, unmap_stores};
use super::kernel::own_files::{OwnNumbers, close_own, own_files};
use super::kernel::uffd::Uffd;
use super::pager::{Pager, PagerThread};
use super::ranges::Ranges;
use super::settings::Settings;
use crate::scheme::PageScheme;
use crate::{PAGE_LEN, Page};
use core::ops::Range;
use rustix::fd::RawFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
use std::fs::File;
use std::io::Read;
use traceless::error::Error as StoreError;

/// A copy of all pages of a program, without a pager yet.
pub struct PagesCopy {
    /// Declared before what has the files: no file is closed while its number is listed.
    own_files: OwnNumbers,
    scheme: Box<dyn PageScheme>,
    recording: Option<Recording>,
    /// Where the pages are in the program; `None` before they are copied.
    numbers: Option<PageNumbers>,
    /// All paged memory; the pager's own is the first range.
    mappings: Vec<PagedMapping>,
    own: Range<usize>,
    ranges: Vec<Range<usize>>,
    /// What the program's pager has.
    files: Vec<RawFd>,
    stores: Vec<Range<usize>>,
    /// The kernel's list of mappings.
    list: File,
    /// In the child: whether nothing else can be mapped where paged memory is to be.
    is_reserved: bool,
    /// In the child: pages that are mapped before there is a pager.
    early: Vec<usize>,
}

/// A part of paged memory that the program may use in one way.
struct PagedMapping {
    range: Range<usize>,
    protection: ProtFlags,
}

impl PagesCopy {
    /// Prepares a copy for a child of a program with these settings; `name` is part of the names of
    /// its files. The copy has no helper processes.
    ///
    /// # Errors
    /// There is no room for its store; or the child could not page its memory, as after a change of
    /// users or of the root folder.
    pub fn prepare(settings: &Settings, name: &str) -> Result<Self> {
        Uffd::features()?;
        let open = |path| File::open(path).map_err(|_| NO_PROC);
        let (list, _) = (open("/proc/self/maps")?, open("/proc/self/mem")?);
        let (files, stores): (Vec<_>, _) = (own_files().collect(), store_regions().collect());
        let alone = Settings { helpers: 0, ..settings.clone() };
        let built = alone.build_with_suffix(name);
        let is_new = |file: &RawFd| !files.contains(file);
        let new_files = OwnNumbers(own_files().filter(is_new).collect());
        let (scheme, recording) = built?;
        Ok(Self {
            scheme,
            recording,
            numbers: None,
            mappings: vec![],
            own: 0..0,
            ranges: vec![],
            own_files: new_files,
            files,
            stores,
            list,
            is_reserved: false,
            early: vec![],
        })
    }

    /// Copies all pages of `pager`: of its own memory, and of `elsewhere`. Pages of `wiped` become
    /// zeros. The caller keeps other threads from changing which memory is paged, and calls
    /// [`Self::end_in_program`] after the fork. The stack of this thread is not paged.
    ///
    /// # Errors
    /// The store's.
    pub fn fill(&mut self, pager: &Pager, elsewhere: &Ranges, wiped: &Ranges) -> Result {
        let (start, len) = pager.while_paused(|start, len| (start, len));
        self.own = start..start + len;
        let ranges: Vec<_> = core::iter::once(self.own.clone()).chain(elsewhere.iter()).collect();
        let mut list = String::new();
        self.list.read_to_string(&mut list).map_err(|_| NO_PROC)?;
        self.mappings = ranges.iter().flat_map(|range| mappings_in(&list, range)).collect();
        let is_zeros = |address| wiped.overlaps(&(address..address + PAGE_LEN));
        self.ranges = ranges;
        self.numbers = Some(pager.copy_to(&mut *self.scheme, &self.ranges, is_zeros)?);
        // What is left to write would be written by the program and by the child.
        self.recording
            .as_ref()
            .map_or(Ok(()), |recording| recording.flush())
            .map_err(StoreError::from)?;
        Ok(())
    }

    /// In the program, after a fork or one that failed: lets its other threads go on.
    pub fn end_in_program(self, pager: &Pager) {
        pager.end_fork(&self.ranges);
    }

    /// In the child, before [`Self::start`]: maps the page at an address, with its contents.
    /// Returns whether it is a page of paged memory that was missing.
    pub fn bring_early(&mut self, address: usize) -> bool {
        self.reserve();
        let page = address / PAGE_LEN * PAGE_LEN;
        let mapping = self.mappings.iter().find(|mapping| mapping.range.contains(&page));
        let (Some(mapping), Some(numbers)) = (mapping, &self.numbers) else { return false };
        if self.early.contains(&page) || !map(page..page + PAGE_LEN, READ_WRITE, true) {
            return false;
        }
        if let Some(number) = numbers.find(page)
            && self.scheme.has_remains(number as u64)
        {
            // SAFETY: a page that was just mapped, and that nothing else uses.
            let frame = unsafe { &mut *(page as *mut Page) };
            if self.scheme.swap(None, Some(number as u64), frame).is_err() {
                return false;
            }
        }
        self.early.push(page);
        protect(page..page + PAGE_LEN, mapping.protection)
    }

    /// In the child: maps paged memory where it was, and has a thread page it that was started
    /// before.
    ///
    /// # Errors
    /// The kernel's refusal of memory, of a thread or of a userfaultfd.
    pub fn start(
        mut self,
        thread: PagerThread,
        mut config: Config,
    ) -> Result<(Pager, Option<Recording>)> {
        self.reserve();
        close_own(&self.files);
        unmap_stores(&self.stores);
        self.put_early_back()?;
        let Self { scheme, recording, numbers, mappings, own, own_files, .. } = self;
        core::mem::forget(own_files);
        let numbers = numbers.ok_or(Error::Configuration("no pages were copied"))?;
        (config.start, config.is_start_reserved) = (Some(own.start), true);
        let pager = Pager::start_with(scheme, Some(numbers), thread, config)?;
        if mappings.iter().any(|mapping| mapping.protection.contains(WRITE_EXEC)) {
            pager.prepare_executable();
        }
        for PagedMapping { range, protection } in mappings {
            let is_own = own.contains(&range.start);
            let is_there = if is_own {
                protection == READ_WRITE || protect(range.clone(), protection)
            } else {
                map(range.clone(), protection, true)
            };
            if !is_there {
                return Err(Error::Configuration("a copy's memory cannot be mapped"));
            }
            if !is_own {
                pager.register(&range)?;
            }
        }
        Ok((pager, recording))
    }

    /// In the child, before anything is allocated: keeps the place of paged memory free.
    pub fn reserve(&mut self) {
        if !core::mem::replace(&mut self.is_reserved, true) {
            let all = core::iter::once(self.own.clone());
            for range in all.chain(self.mappings.iter().map(|mapping| mapping.range.clone())) {
                // Parts of the first range are there already when their turn comes.
                map(range, ProtFlags::empty(), false);
            }
        }
    }

    /// Puts the pages that were needed before there was a pager back into the scheme.
    fn put_early_back(&mut self) -> Result {
        let numbers = self.numbers.as_mut().ok_or(Error::Configuration("no pages were copied"))?;
        for page in self.early.drain(..) {
            let range = page..page + PAGE_LEN;
            let number = numbers.find_or_take(page).ok_or(Error::OutOfMemory)?;
            if !protect(range.clone(), READ_WRITE) {
                return Err(Error::os("a page cannot be read", Errno::FAULT));
            }
            // SAFETY: a page that `bring_early` mapped; no other code runs that uses it.
            let frame = unsafe { &mut *(page as *mut Page) };
            self.scheme.swap(Some(number as u64), None, frame)?;
            self.scheme.settle()?;
            map(range, ProtFlags::empty(), true);
        }
        Ok(())
    }
}

const NO_PROC: Error = Error::Configuration("a copy could not read /proc/self");

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
const WRITE_EXEC: ProtFlags = ProtFlags::WRITE.union(ProtFlags::EXEC);

/// Maps memory of zeros at a range, in the place of what is there if it `replaces`. Returns whether
/// the kernel did.
fn map(range: Range<usize>, protection: ProtFlags, replaces: bool) -> bool {
    let how = if replaces { MapFlags::FIXED } else { MapFlags::FIXED_NOREPLACE };
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | how;
    // SAFETY: paged memory of the program that this process is a copy of: nothing of it is there,
    // but for what this module mapped.
    unsafe { mmap_anonymous(range.start as *mut _, range.len(), protection, flags) }.is_ok()
}

/// Sets how a range may be used. Returns whether the kernel did.
fn protect(range: Range<usize>, protection: ProtFlags) -> bool {
    let protection = MprotectFlags::from_bits_retain(protection.bits());
    // SAFETY: as of `map`.
    unsafe { mprotect(range.start as *mut _, range.len(), protection) }.is_ok()
}

/// The parts of a range that the kernel's list of mappings (`/proc/self/maps`) names.
fn mappings_in<'a>(
    list: &'a str,
    range: &'a Range<usize>,
) -> impl Iterator<Item = PagedMapping> + 'a {
    list.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let part = number(start)?.max(range.start)..number(end)?.min(range.end);
        let letters = words.next()?;
        let all = [('r', ProtFlags::READ), ('w', ProtFlags::WRITE), ('x', ProtFlags::EXEC)];
        let given = all.into_iter().filter(|&(letter, _)| letters.contains(letter));
        let protection = given.fold(ProtFlags::empty(), |sum, (_, one)| sum | one);
        (!part.is_empty()).then_some(PagedMapping { range: part, protection })
    })
}
