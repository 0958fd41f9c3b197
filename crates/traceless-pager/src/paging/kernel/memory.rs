//! Mappings from the kernel, and shared memory.

use super::locking;
use crate::paging::error::{Error, Result};
use crate::{PAGE_LEN, Page};
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::ftruncate;
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous,
    mprotect, mremap_fixed, munmap,
};
use rustix::process::{Resource, getrlimit};

/// Gives programs that this process starts from now on the same addresses in each run. Some
/// programs order things by address: then the same pages fault in the same order.
pub fn fix_addresses() -> Result {
    // SAFETY: it changes how this process starts programs, and nothing in it.
    let before = unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
    if before < 0 {
        let errno = rustix::io::Errno::from_io_error(&std::io::Error::last_os_error());
        let errno = errno.unwrap_or(rustix::io::Errno::PERM);
        return Err(Error::os("addresses of programs cannot be fixed", errno));
    }
    Ok(())
}

/// A mapping, unmapped when it is dropped. Callers answer for how they read and write it.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    locked: AtomicBool,
}

// SAFETY: the mapping belongs to this value alone; reading and writing it is unsafe anyway.
unsafe impl Send for Mapping {}
// SAFETY: the same reason.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes of private memory, reserved but not present yet, in small pages. A child of fork
    /// does not inherit them: it would find zeros where pages are away. Core dumps leave them out.
    /// They begin at the address `wanted`, if one is given.
    pub fn paged(len: usize, wanted: Option<usize>) -> Result<Self> {
        Self::paged_with(len, wanted, MapFlags::empty())
    }

    /// The same, in the place of what this process reserved at the address `at`.
    pub fn paged_over_reserved(len: usize, at: usize) -> Result<Self> {
        Self::paged_with(len, Some(at), MapFlags::FIXED)
    }

    fn paged_with(len: usize, wanted: Option<usize>, how: MapFlags) -> Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | how;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let address = wanted.map_or(core::ptr::null_mut(), core::ptr::without_provenance_mut);
        // SAFETY: a fresh mapping: where something lies at that address, the kernel takes another,
        // unless it is to replace what nothing uses.
        let start = unsafe { mmap_anonymous(address, len, protection, flags) };
        let mapping = Self::from_kernel(start, len)?;
        if wanted.is_some_and(|wanted| wanted != mapping.start()) {
            return Err(Error::Configuration("the pages cannot begin at that address"));
        }
        mapping.disable_huge_pages()?;
        Self::exclude_from_forks(mapping.start(), len)?;
        locking::exclude_from_core_dumps(mapping.start(), len)?;
        Ok(mapping)
    }

    /// Keeps the mapping out of huge pages.
    pub fn disable_huge_pages(&self) -> Result {
        disable_huge_pages(self.start(), self.len)
    }

    /// Lets the processor execute what the mapping holds.
    pub fn make_executable(&self) -> Result<(), Errno> {
        let all = MprotectFlags::READ | MprotectFlags::WRITE | MprotectFlags::EXEC;
        // SAFETY: nothing in it changes.
        unsafe { mprotect(self.start.as_ptr().cast(), self.len, all) }
    }

    /// Leaves the range out of children that this process forks.
    pub fn exclude_from_forks(start: usize, len: usize) -> Result {
        // SAFETY: nothing changes in this process.
        unsafe { madvise(start as *mut _, len, Advice::LinuxDontFork) }
            .map_err(|e| Error::os("memory refuses advice", e))
    }

    /// Keeps the mapping until the process ends, and returns its start.
    pub fn leak(self) -> usize {
        let start = self.start();
        core::mem::forget(self);
        start
    }

    /// Moves this mapping to the place of another one of its length.
    ///
    /// # Safety
    /// The other mapping is ours, and the code that uses it expects the contents of this one.
    pub unsafe fn move_to(self, start: usize) -> Result {
        let len = self.len;
        let from = self.leak() as *mut _;
        // SAFETY: the caller's promise.
        unsafe { mremap_fixed(from, len, len, MremapFlags::MAYMOVE, start as *mut _) }
            .map(drop)
            .map_err(|e| Error::os("memory cannot be exchanged", e))
    }

    /// Maps the first `len` bytes of a file, shared with all processes that map it.
    pub fn shared(file: BorrowedFd<'_>, len: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let start =
            unsafe { mmap(core::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) };
        Self::from_kernel(start, len)
    }

    /// `len` bytes of zeros, shared with processes that are forked later.
    pub fn shared_with_forks(len: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let start =
            unsafe { mmap_anonymous(core::ptr::null_mut(), len, protection, MapFlags::SHARED) };
        Self::from_kernel(start, len)
    }

    fn from_kernel(start: rustix::io::Result<*mut core::ffi::c_void>, len: usize) -> Result<Self> {
        let start = start.map_err(|e| Error::os("there is not enough memory", e))?;
        let start = NonNull::new(start.cast()).expect("nothing is mapped at zero");
        Ok(Self { start, len, locked: AtomicBool::new(false) })
    }

    /// Locks the mapping: each page stays in memory from when it becomes present.
    pub fn lock(&self) -> Result<(), Errno> {
        locking::lock(self.start(), self.len)?;
        self.locked.store(true, Relaxed);
        Ok(())
    }

    /// Whether the mapping was locked.
    pub fn is_locked(&self) -> bool {
        self.locked.load(Relaxed)
    }

    /// First address.
    pub fn start(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// Length in bytes.
    pub fn size(&self) -> usize {
        self.len
    }

    /// A pointer to its byte number `at`.
    pub fn at(&self, at: usize) -> *mut u8 {
        assert!(at <= self.len, "it lies in the mapping");
        // SAFETY: within the mapping, as was just checked.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// A pointer to its page number `page`.
    pub fn page(&self, page: usize) -> *mut Page {
        assert!((page + 1) * PAGE_LEN <= self.len, "it lies in the mapping");
        self.at(page * PAGE_LEN).cast()
    }

    /// Advises the kernel about a part of the mapping.
    pub fn advise(&self, at: usize, len: usize, advice: Advice) -> Result {
        assert!(at + len <= self.len, "it lies in the mapping");
        // SAFETY: within the mapping. Contents are discarded on demand only.
        unsafe { madvise(self.at(at).cast(), len, advice) }
            .map_err(|e| Error::os("memory refuses advice", e))
    }
}

/// Makes the pages of a range of this process missing, locked or not.
///
/// # Safety
/// The contents of the range are not needed any more, or are elsewhere.
pub unsafe fn discard(start: usize, len: usize) -> Result {
    // SAFETY: the caller's promise.
    let advise = |advice| unsafe { madvise(start as *mut _, len, advice) };
    let discarded = match advise(Advice::LinuxDontneedLocked) {
        // Before Linux 5.18 nothing is locked.
        Err(Errno::INVAL) => advise(Advice::LinuxDontNeed),
        done => done,
    };
    discarded.map_err(|e| Error::os("memory refuses advice", e))
}

/// Keeps a range of this process out of huge pages.
pub fn disable_huge_pages(start: usize, len: usize) -> Result {
    // SAFETY: contents stay as they are.
    unsafe { madvise(start as *mut _, len, Advice::LinuxNoHugepage) }
        .map_err(|e| Error::os("memory refuses advice", e))
}

/// Makes a file `len` bytes long. Above the limit (`ulimit -f`) the kernel would end the process,
/// so this checks first.
pub(crate) fn lengthen(file: &OwnedFd, len: u64) -> Result<(), Errno> {
    check_len(len)?;
    ftruncate(file, len)
}

/// Refuses a length above the limit for files.
pub(crate) fn check_len(len: u64) -> Result<(), Errno> {
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < len) {
        return Err(Errno::FBIG);
    }
    Ok(())
}

/// Numbers in memory that this process shares with processes that it forks later.
pub struct SharedNumbers {
    mapping: Mapping,
    count: usize,
}

impl SharedNumbers {
    /// `count` zeros.
    pub fn zeros(count: usize) -> Result<Self> {
        let len = count.checked_mul(size_of::<AtomicU64>());
        let len = len.ok_or(Error::Configuration("too many pages"))?;
        Ok(Self { mapping: Mapping::shared_with_forks(len.max(1))?, count })
    }
}

impl Deref for SharedNumbers {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: so many numbers, aligned to a page, that live as long as this; atomics may be
        // shared with other processes that have the mapping.
        unsafe { core::slice::from_raw_parts(self.mapping.at(0).cast(), self.count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; the code that used it is gone.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
