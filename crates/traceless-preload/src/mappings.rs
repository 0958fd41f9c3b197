//! mmap and its kin: anonymous private memory is paged, all other mappings are the kernel's.
//!
//! Memory that may be read and written, at no address of the program's choice, comes from the heap.
//! All other anonymous private memory is the kernel's mapping, and the pager answers its faults,
//! too. So it does for a private mapping of a file that the program may write to: it gets a copy of
//! the file.

use crate::malloc::{out_of_memory, set_errno};
use crate::paged_memory::{PagedMemory, is_paged, paged, paged_at};
use crate::report::{fail, print};
use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::ptr::copy_nonoverlapping;
use libc::{off_t, size_t};
use std::sync::Once;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{Error, Pages, Ranges, has_go_runtime, without_signals};

const FAILED: *mut c_void = libc::MAP_FAILED;

/// Flags with which memory from the heap is what the program requests.
const HARMLESS: c_int = libc::MAP_NORESERVE | libc::MAP_POPULATE;

/// Flags with which anonymous memory cannot be paged: huge pages, and memory that grows by itself.
const UNPAGED: c_int = libc::MAP_HUGETLB | libc::MAP_GROWSDOWN;

pub fn refuse(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// The range of addresses of the pages that a range touches.
pub fn range_of(address: *const c_void, len: usize) -> Range<usize> {
    let start = address as usize / PAGE_LEN * PAGE_LEN;
    let end = (address as usize).saturating_add(len).min(usize::MAX - PAGE_LEN);
    start..end.next_multiple_of(PAGE_LEN)
}

/// What paged memory may be used for: where the processor lets it be written it can be read, too,
/// and the pager moves pages between memory of the same protection.
pub fn readable(protection: c_int) -> c_int {
    let writes = protection & libc::PROT_WRITE != 0;
    if writes { protection | libc::PROT_READ } else { protection }
}

/// The pages that a range touches.
pub fn pages_of(at: usize, len: usize) -> Pages {
    let end = at.saturating_add(len).div_ceil(PAGE_LEN);
    Pages { first: at / PAGE_LEN, count: end - at / PAGE_LEN }
}

/// The arguments of `mmap`.
#[derive(Clone, Copy)]
struct Request {
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
}

impl Request {
    /// Whether the memory is to be at its address, in the place of what is there.
    fn replaces(&self) -> bool {
        self.flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == libc::MAP_FIXED
    }

    /// Whether it is private memory without a file, of ordinary pages.
    fn is_anonymous(&self) -> bool {
        const KIND: c_int = libc::MAP_ANONYMOUS | libc::MAP_TYPE | UNPAGED;
        self.flags & KIND == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
    }

    /// Whether it is memory as the heap has it.
    fn is_plain(&self) -> bool {
        self.flags & !(HARMLESS | libc::MAP_FIXED) == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
            && self.protection == libc::PROT_READ | libc::PROT_WRITE
    }

    /// Whether a copy of its file does as well: it is the program's own, and all of it exists.
    fn may_be_copy(&self) -> bool {
        const KIND: c_int = libc::MAP_ANONYMOUS | libc::MAP_TYPE | UNPAGED;
        let is_own = self.flags & KIND == libc::MAP_PRIVATE;
        let writes = self.protection & libc::PROT_WRITE != 0;
        is_own && writes && self.file_has_all()
    }

    /// Whether it maps a regular file, and no page behind the file's end.
    fn file_has_all(&self) -> bool {
        // SAFETY: a record of ours, which the call fills.
        let status = unsafe {
            let mut status: libc::stat = core::mem::zeroed();
            (libc::fstat(self.file, &raw mut status) == 0).then_some(status)
        };
        let pages = |bytes: usize| bytes.div_ceil(PAGE_LEN);
        let (Ok(offset), true) = (usize::try_from(self.offset), self.offset % 4096 == 0) else {
            return false;
        };
        status.is_some_and(|status| {
            let size = usize::try_from(status.st_size).unwrap_or(0);
            status.st_mode & libc::S_IFMT == libc::S_IFREG
                && offset.checked_add(self.len).is_some_and(|end| pages(end) <= pages(size))
        })
    }

    /// The same memory without its file.
    fn without_file(self) -> Self {
        Self { flags: self.flags | libc::MAP_ANONYMOUS, file: -1, offset: 0, ..self }
    }

    /// Reads the file into memory that was mapped for it. Returns whether all was read.
    fn read_file(&self, into: *mut c_void) -> bool {
        let whole = self.len.next_multiple_of(PAGE_LEN);
        let mut done = 0;
        while done < whole {
            let (room, at) = (whole - done, self.offset + done.cast_signed() as off_t);
            // SAFETY: fresh memory of that length, which the program does not know yet.
            match unsafe { libc::pread(self.file, into.byte_add(done), room, at) } {
                // The last page is zeros behind the file's end.
                0 => return done >= self.len || self.file_ends_at(at),
                read if read > 0 => done += read as usize,
                _ => return false,
            }
        }
        true
    }

    fn file_ends_at(&self, at: off_t) -> bool {
        // SAFETY: a record of ours, which the call fills.
        unsafe {
            let mut status: libc::stat = core::mem::zeroed();
            libc::fstat(self.file, &raw mut status) == 0 && status.st_size == at
        }
    }

    /// The kernel's mapping.
    fn map(&self) -> *mut c_void {
        let Self { address, len, protection, flags, file, offset } = *self;
        // SAFETY: the promise of the caller of `mmap`.
        unsafe {
            libc::syscall(libc::SYS_mmap, address, len, protection, flags, file, offset)
                as *mut c_void
        }
    }

    /// The same memory, as far as it can be paged: no page is there at first.
    fn pageable(self) -> Self {
        if self.protection & libc::PROT_WRITE != 0 && self.protection & libc::PROT_EXEC != 0 {
            prepare_executable();
        }
        let flags = self.flags & !(libc::MAP_POPULATE | libc::MAP_LOCKED);
        Self { protection: readable(self.protection), flags, ..self }
    }
}

/// Notes that the program will have memory that it may write and execute.
pub fn prepare_executable() {
    if let Some(pager) = paged().and_then(PagedMemory::own_pager) {
        pager.prepare_executable();
    }
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let request = Request { address, len, protection, flags, file, offset };
    if request.replaces() && is_paged(address as usize, len) {
        return map_over(&request);
    }
    let Some(paged) = paged().filter(|_| len > 0) else { return request.map() };
    if request.is_plain() && !request.replaces() && address.is_null() {
        let mapped = paged.map(len);
        return mapped.map_or_else(
            || {
                out_of_memory();
                FAILED
            },
            |at| paged.address(at).cast(),
        );
    }
    if paged.own_pager().is_none() {
        return request.map();
    }
    let map = |request| without_signals(|| map_elsewhere(paged, request));
    if request.may_be_copy() && paged.take_copy(len) {
        let mapped = map(request.without_file());
        if mapped == FAILED || request.read_file(mapped) {
            return mapped;
        }
        // The file cannot be read, so it is mapped.
        return map(Request { address: mapped, flags: flags | libc::MAP_FIXED, ..request });
    }
    if request.replaces() || request.is_anonymous() { map(request) } else { request.map() }
}

/// Maps memory that is not the heap's, and pages it if it is anonymous. It may take the place of
/// memory that is paged in the same way.
fn map_elsewhere(memory: &PagedMemory, request: Request) -> *mut c_void {
    let Some(pager) = memory.own_pager() else { return request.map() };
    // What the program locks at once is locked by the pager, or it is the program's own.
    let locks = request.flags & libc::MAP_LOCKED != 0 && !pager.is_locked();
    let is_pageable = request.is_anonymous() && !locks && !is_gos();
    let request = if is_pageable { request.pageable() } else { request };
    let mut elsewhere = memory.elsewhere();
    let mut mapped = FAILED;
    let wanted = range_of(request.address, request.len);
    let mut map = || {
        mapped = request.map();
        mapped != FAILED
    };
    let is_mapped = if request.replaces() && elsewhere.overlaps(&wanted) {
        pager.replace(&wanted, map).unwrap_or_else(|e| fail(&e))
    } else {
        map()
    };
    if !is_mapped {
        return FAILED;
    }
    let range = range_of(mapped, request.len);
    if elsewhere.overlaps(&range) {
        // What was there was replaced, or unmapped by a system call of the program's own.
        elsewhere.remove(range.clone());
        if !request.replaces() {
            pager.replace(&range, || true).unwrap_or_else(|e| fail(&e));
        }
    }
    if is_pageable && page(memory, &range) {
        memory.wipe_range_in_copies(range.clone(), false);
        elsewhere.add(range);
    }
    mapped
}

/// Whether memory may be Go's: its runtime would discard pages without this library. Says so once.
fn is_gos() -> bool {
    static REPORTED: Once = Once::new();
    let is_gos = has_go_runtime();
    if is_gos {
        REPORTED.call_once(|| {
            print("what Go's runtime reserves is not paged: it discards pages past the C library");
        });
    }
    is_gos
}

/// Has memory paged that no page is present in. Returns whether the kernel allows that.
pub fn page(memory: &PagedMemory, range: &Range<usize>) -> bool {
    static REPORTED: Once = Once::new();
    match memory.own_pager().map(|pager| pager.register(range)) {
        Some(Ok(())) => true,
        Some(Err(e @ Error::Unlocked(_))) if memory.must_lock() => fail(&e),
        Some(Err(Error::Unlocked(_))) => {
            REPORTED.call_once(|| {
                print("a mapping is not paged: the limit of locked memory (ulimit -l) is too low");
            });
            false
        }
        _ => false,
    }
}

/// Maps memory in the place of the heap's. Fresh memory is implemented by zeroing; the pager would
/// page any other mapping out as if it were one of its pages.
fn map_over(request: &Request) -> *mut c_void {
    static REPORTED: Once = Once::new();
    let &Request { address, len, .. } = request;
    let is_possible = request.is_plain() || request.is_anonymous() && may_protect();
    if let Some((paged, at)) = paged_at(address as usize).filter(|_| is_possible) {
        let pages = pages_of(at, len);
        let is_mapped = paged.heap().is_mapped(pages);
        if is_mapped && at.is_multiple_of(PAGE_LEN) {
            paged.wipe_in_copies(pages, false);
            paged.discard(pages);
            let protection = request.pageable().protection;
            let is_set = may_protect() && paged.protect(at, pages.count * PAGE_LEN, protection);
            return if is_set || request.is_plain() { address } else { FAILED };
        }
    }
    REPORTED
        .call_once(|| print("nothing else can take the place of paged memory: mmap is refused"));
    set_errno(libc::ENOMEM);
    FAILED
}

/// Whether paged memory can be protected: where a copy of the process would lose that, it cannot.
pub fn may_protect() -> bool {
    paged().is_some_and(|paged| paged.own_pager().is_some())
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise; offsets are as long here.
    unsafe { mmap(address, len, protection, flags, file, offset) }
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    if let Some((paged, at)) = paged_at(address as usize) {
        if !at.is_multiple_of(PAGE_LEN) || len == 0 {
            return refuse(libc::EINVAL);
        }
        unmap(paged, at, len);
        return 0;
    }
    // SAFETY: the caller's promise.
    let unmap = || unsafe { libc::syscall(libc::SYS_munmap, address, len) as c_int };
    let range = range_of(address, len);
    let succeeds = |result| result == 0;
    let forget = |memory: &PagedMemory, elsewhere: &mut Ranges| {
        memory.wipe_range_in_copies(range.clone(), false);
        elsewhere.remove(range.clone());
    };
    change_elsewhere(&range, unmap, succeeds, forget).unwrap_or_else(unmap)
}

/// Runs `change`, a system call that makes what a range holds disappear, and `then` if it did that
/// by `has_changed` of its result; `None` if nothing there is paged beside the heap.
pub fn change_elsewhere(
    range: &Range<usize>,
    change: impl FnOnce() -> c_int,
    has_changed: impl FnOnce(c_int) -> bool,
    then: impl FnOnce(&PagedMemory, &mut Ranges),
) -> Option<c_int> {
    let memory = paged()?;
    let pager = memory.own_pager()?;
    without_signals(|| {
        let mut elsewhere = memory.elsewhere();
        if !elsewhere.overlaps(range) {
            return None;
        }
        let mut result = 0;
        let is_done = pager.replace(range, || {
            result = change();
            has_changed(result)
        });
        if is_done.unwrap_or_else(|e| fail(&e)) {
            then(memory, &mut elsewhere);
        }
        Some(result)
    })
}

fn unmap(paged: &PagedMemory, at: usize, len: usize) {
    let gone = paged.heap().unmap(pages_of(at, len));
    for pages in gone {
        paged.release(pages);
    }
}

/// As of Linux. The last argument is there only with `MREMAP_FIXED`, which the heap's memory
/// refuses.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    address: *mut c_void,
    len: size_t,
    new_len: size_t,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    let placed = flags & libc::MREMAP_FIXED != 0;
    let ranges = [(address, len), (new_address, if placed { new_len } else { 0 })];
    if placed && ranges.iter().any(|&(start, len)| is_paged(start as usize, len)) {
        static REPORTED: Once = Once::new();
        REPORTED.call_once(|| print("paged memory has its place: mremap to another is refused"));
        set_errno(libc::EINVAL);
        return FAILED;
    }
    let Some((paged, at)) = paged_at(address as usize) else {
        // SAFETY: the caller's promise.
        let moves = || unsafe {
            libc::syscall(libc::SYS_mremap, address, len, new_len, flags, new_address)
                as *mut c_void
        };
        let [from, to] = ranges.map(|(start, len)| range_of(start, len));
        let keeps = flags & libc::MREMAP_DONTUNMAP != 0;
        return move_elsewhere(&from, &to, new_len, keeps, moves).unwrap_or_else(moves);
    };
    if flags & !libc::MREMAP_MAYMOVE != 0
        || !at.is_multiple_of(PAGE_LEN)
        || new_len == 0
        || len == 0
    {
        set_errno(libc::EINVAL);
        return FAILED;
    }
    let (there, wanted) = (pages_of(at, len).count, pages_of(at, new_len).count);
    if wanted <= there {
        unmap(paged, at + wanted * PAGE_LEN, (there - wanted) * PAGE_LEN);
        return address;
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        set_errno(libc::ENOMEM);
        return FAILED;
    }
    let mapped = paged.map(new_len);
    let Some(new) = mapped else {
        out_of_memory();
        return FAILED;
    };
    // SAFETY: the old mapping and a new, longer one.
    unsafe { copy_nonoverlapping(address.cast::<u8>(), paged.address(new), len) };
    unmap(paged, at, len);
    paged.address(new).cast()
}

/// Runs `moves`, a system call that moves or resizes memory, which may be paged beside the heap, as
/// may what lies at its new place; `None` if neither is. `keeps` is whether the old memory stays.
fn move_elsewhere(
    from: &Range<usize>,
    to: &Range<usize>,
    new_len: usize,
    keeps: bool,
    moves: impl Fn() -> *mut c_void,
) -> Option<*mut c_void> {
    let memory = paged()?;
    let pager = memory.own_pager()?;
    without_signals(|| {
        let mut elsewhere = memory.elsewhere();
        let is_paged = elsewhere.overlaps(from);
        if !is_paged && !elsewhere.overlaps(to) {
            return None;
        }
        let mut place = FAILED;
        let change = || {
            place = moves();
            (place != FAILED).then(|| range_of(place, new_len))
        };
        let Some(new) = pager.relocate(from, change).unwrap_or_else(|e| fail(&e)) else {
            return Some(FAILED);
        };
        memory.move_wiped(from, &new);
        if !keeps {
            elsewhere.remove(from.clone());
        }
        elsewhere.remove(new.clone());
        if is_paged {
            if !page(memory, &new) {
                // Pages in the store would be zeros.
                fail(&Error::Refused("memory that was moved is not paged any more".into()));
            }
            elsewhere.add(new);
        }
        Some(place)
    })
}
