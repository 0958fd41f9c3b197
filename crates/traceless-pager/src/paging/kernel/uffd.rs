//! userfaultfd: page faults of a range of our own memory, delivered to this process. Numbers and
//! layouts are from the kernel's `linux/userfaultfd.h`; distributions' headers lag behind it.

use super::own_files::OwnFile;
use crate::paging::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mm::UserfaultfdFlags;
use rustix::time::Timespec;

/// Pages can be write-protected.
pub const FEATURE_WP: u64 = 1 << 0;
/// Forks of the process are reported, with a userfaultfd for the copy. Takes `CAP_SYS_PTRACE`.
pub const FEATURE_EVENT_FORK: u64 = 1 << 1;
/// Memory that is remapped stays registered, and the move is reported.
pub const FEATURE_EVENT_REMAP: u64 = 1 << 2;
/// Missing pages of shared memory.
pub const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
/// Messages have the number of the thread that waits.
pub const FEATURE_THREAD_ID: u64 = 1 << 8;
/// Shared memory can be protected, from 5.19 on.
pub const FEATURE_WP_SHMEM: u64 = 1 << 12;
/// `UFFDIO_MOVE`, from 6.8 on.
pub const FEATURE_MOVE: u64 = 1 << 16;

const API: u64 = 0xaa;
const REGISTER_MISSING: u64 = 1 << 0;
const REGISTER_WP: u64 = 1 << 1;
const WRITEPROTECT: u64 = 1 << 0;
const DONTWAKE: u64 = 1 << 0;
const EVENT_PAGEFAULT: u8 = 0x12;
const EVENT_FORK: u8 = 0x13;
const PAGEFAULT_WP: u64 = 1 << 1;

/// The number of an ioctl of type 0xaa that reads and writes its argument.
const fn ioctl_number(number: u64, len: usize) -> u64 {
    const READ_WRITE: u64 = 3;
    READ_WRITE << 30 | (len as u64) << 16 | 0xaa << 8 | number
}

const IOCTL_API: u64 = ioctl_number(0x3f, size_of::<ApiArgs>());
const IOCTL_REGISTER: u64 = ioctl_number(0x00, size_of::<RegisterArgs>());
const IOCTL_COPY: u64 = ioctl_number(0x03, size_of::<CopyArgs>());
const IOCTL_MOVE: u64 = ioctl_number(0x05, size_of::<CopyArgs>());
const IOCTL_WRITEPROTECT: u64 = ioctl_number(0x06, size_of::<ProtectArgs>());
/// The kernel declares this one as reading only.
const IOCTL_WAKE: u64 = 2 << 30 | (size_of::<RangeArgs>() as u64) << 16 | 0xaa << 8 | 0x02;
/// The ioctl of `/dev/userfaultfd` that makes a userfaultfd.
const IOCTL_NEW: u64 = 0xaa << 8;

#[repr(C)]
struct ApiArgs {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RangeArgs {
    start: u64,
    len: u64,
}

#[repr(C)]
struct RegisterArgs {
    range: RangeArgs,
    mode: u64,
    ioctls: u64,
}

/// The argument of COPY and of MOVE.
#[repr(C)]
struct CopyArgs {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    done: i64,
}

#[repr(C)]
struct ProtectArgs {
    range: RangeArgs,
    mode: u64,
}

/// One message from the kernel, 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u32,
    rest: u32,
}

impl Message {
    /// For a page fault: the address, and whether the page was write-protected and not missing.
    pub fn fault(&self) -> Option<(usize, bool)> {
        (self.event == EVENT_PAGEFAULT)
            .then_some((self.address as usize, self.flags & PAGEFAULT_WP != 0))
    }

    /// For a fork: the descriptor of the copy's userfaultfd, which this process owns from now on.
    fn fork_fd(&self) -> Option<i32> {
        (self.event == EVENT_FORK).then_some(self.flags as i32)
    }

    /// The thread that waits.
    pub fn thread(&self) -> u32 {
        self.thread
    }
}

/// A userfaultfd of this process.
pub struct Uffd(OwnFile);

impl Uffd {
    /// A userfaultfd with `features`, all of which the kernel must have.
    pub fn with_features(features: u64) -> Result<Self> {
        Self::from_file(open(UserfaultfdFlags::CLOEXEC)?, features)
    }

    /// The same, but [`Self::read`] does not wait: for callers that poll several files.
    pub fn nonblocking(features: u64) -> Result<Self> {
        Self::from_file(open(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK)?, features)
    }

    fn from_file(file: OwnedFd, features: u64) -> Result<Self> {
        let uffd = Self(OwnFile::at_high_number(file));
        let mut args = ApiArgs { api: API, features, ioctls: 0 };
        // SAFETY: the argument is what this ioctl takes.
        unsafe { uffd.ioctl(IOCTL_API, &raw mut args) }
            .map_err(|e| Error::os("userfaultfd refuses its features", e))?;
        Ok(uffd)
    }

    /// The features that the kernel offers.
    pub fn features() -> Result<u64> {
        let uffd = Self(open(UserfaultfdFlags::CLOEXEC)?.into());
        let mut args = ApiArgs { api: API, features: 0, ioctls: 0 };
        // SAFETY: the argument is what this ioctl takes.
        unsafe { uffd.ioctl(IOCTL_API, &raw mut args) }
            .map_err(|e| Error::os("userfaultfd does not tell its features", e))?;
        Ok(args.features)
    }

    /// The userfaultfd of a copy of the process, if the message reports a fork.
    pub fn from_fork_event(message: &Message) -> Option<Self> {
        // SAFETY: the kernel has just made it for this process, and each message is looked at once.
        message.fork_fd().map(|fd| Self(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    /// Registers the range: its missing pages, and if `protects` its protected ones, are reported
    /// here.
    pub fn register(&self, start: usize, len: usize, protects: bool) -> Result {
        let mode = REGISTER_MISSING | if protects { REGISTER_WP } else { 0 };
        let range = RangeArgs { start: start as u64, len: len as u64 };
        let mut args = RegisterArgs { range, mode, ioctls: 0 };
        // SAFETY: the argument is what this ioctl takes.
        unsafe { self.ioctl(IOCTL_REGISTER, &raw mut args) }
            .map_err(|e| Error::os("userfaultfd does not take the memory", e))
    }

    /// Waits for messages and returns how many there are.
    pub fn read(&self, messages: &mut [Message]) -> Result<usize, Errno> {
        // SAFETY: any bytes are a message; none is padding.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(
                messages.as_mut_ptr().cast::<u8>(),
                size_of_val(messages),
            )
        };
        Ok(rustix::io::read(&self.0, bytes)? / size_of::<Message>())
    }

    /// Sets whether [`Self::read`] waits. The kernel refuses to poll a userfaultfd that does.
    pub fn set_blocking(&self, blocking: bool) -> Result<(), Errno> {
        let flags = if blocking { OFlags::empty() } else { OFlags::NONBLOCK };
        rustix::fs::fcntl_setfl(&self.0, flags)
    }

    /// Whether a message comes `within` that time. After a signal this is true without one.
    pub fn wait_for_messages(&self, within: &Timespec) -> Result<bool, Errno> {
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(within)) {
            Err(Errno::INTR) => Ok(true),
            polled => polled.map(|ready| ready > 0),
        }
    }

    /// Puts a copy of `from` where a page is missing, and wakes the threads that wait for it.
    ///
    /// # Safety
    /// `to` begins a page of a registered range, and the caller decides its contents.
    pub unsafe fn copy(&self, to: usize, from: &crate::Page) -> Result<(), Errno> {
        let mut args = CopyArgs {
            to: to as u64,
            from: from.as_ptr() as u64,
            len: crate::PAGE_LEN as u64,
            mode: 0,
            done: 0,
        };
        // SAFETY: the argument is what this ioctl takes; the kernel reads a page at `from`.
        unsafe { self.ioctl(IOCTL_COPY, &raw mut args) }
    }

    /// Moves the page at `from` to `to`, where there is none; afterwards there is none at `from`.
    /// If `wakes`, wakes the threads that wait at `to`.
    ///
    /// # Safety
    /// Both begin pages of registered ranges, and the caller decides their contents.
    pub unsafe fn move_page(&self, to: usize, from: usize, wakes: bool) -> Result<(), Errno> {
        let mut args = CopyArgs {
            to: to as u64,
            from: from as u64,
            len: crate::PAGE_LEN as u64,
            mode: if wakes { 0 } else { DONTWAKE },
            done: 0,
        };
        // SAFETY: the argument is what this ioctl takes.
        let moved = unsafe { self.ioctl(IOCTL_MOVE, &raw mut args) };
        // Linux 6.18 tries a move again within the ioctl while another thread looks at the page
        // (reclaim, DAMON), and once more after that has worked: it then finds its own page at `to`
        // and reports that, without waking any thread.
        if moved == Err(Errno::EXIST) && is_missing(from)? {
            return if wakes { self.wake(to) } else { Ok(()) };
        }
        moved
    }

    /// Write-protects the page: threads that write to it wait.
    pub fn protect(&self, page: usize) -> Result<(), Errno> {
        self.protect_range(page, crate::PAGE_LEN, true)
    }

    /// Makes the page writable again, and wakes the threads that wait for that.
    pub fn unprotect(&self, page: usize) -> Result<(), Errno> {
        self.protect_range(page, crate::PAGE_LEN, false)
    }

    /// Write-protects the pages of a range that are present, or makes them writable again.
    pub fn protect_range(&self, start: usize, len: usize, protects: bool) -> Result<(), Errno> {
        let range = RangeArgs { start: start as u64, len: len as u64 };
        let mut args = ProtectArgs { range, mode: if protects { WRITEPROTECT } else { 0 } };
        // SAFETY: the argument is what this ioctl takes.
        unsafe { self.ioctl(IOCTL_WRITEPROTECT, &raw mut args) }
    }

    /// Wakes the threads that wait for the page; they try their access again.
    pub fn wake(&self, page: usize) -> Result<(), Errno> {
        self.wake_all(page, crate::PAGE_LEN)
    }

    /// Wakes the threads that wait for any page of the range; they try their access again.
    pub fn wake_all(&self, start: usize, len: usize) -> Result<(), Errno> {
        let mut args = RangeArgs { start: start as u64, len: len as u64 };
        // SAFETY: the argument is what this ioctl takes.
        unsafe { self.ioctl(IOCTL_WAKE, &raw mut args) }
    }

    /// # Safety
    /// `args` is what the ioctl takes, and its effect is sound.
    unsafe fn ioctl<T>(&self, ioctl: u64, args: *mut T) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), ioctl as _, args) } {
            -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error())
                .expect("an ioctl fails with a number")),
            _ => Ok(()),
        }
    }
}

impl From<OwnFile> for Uffd {
    fn from(file: OwnFile) -> Self {
        Self(file)
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether no memory is mapped in the page at an address of this process.
fn is_missing(page: usize) -> Result<bool, Errno> {
    let mut residency = 0_u8;
    // SAFETY: the kernel writes one byte for a range of one page, and touches no page of it.
    match unsafe { libc::mincore(page as *mut _, crate::PAGE_LEN, &raw mut residency) } {
        0 => Ok(residency & 1 == 0),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error())
            .expect("a system call fails with a number")),
    }
}

/// Opens a userfaultfd by the system call, or else by the device: whichever this user may use. It
/// also handles faults of the kernel on the program's behalf: without these, a `read` into a page
/// that is away would fail.
fn open(how: UserfaultfdFlags) -> Result<OwnedFd> {
    // SAFETY: a fresh descriptor; nothing is registered yet.
    let called = unsafe { rustix::mm::userfaultfd(how) };
    let Err(refused) = called else { return called.map_err(|e| Error::os("userfaultfd", e)) };
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(device) = rustix::fs::open("/dev/userfaultfd", flags, rustix::fs::Mode::empty()) else {
        return Err(Error::NotAllowed(refused));
    };
    // SAFETY: the ioctl takes flags and returns a fresh descriptor.
    match unsafe { libc::ioctl(device.as_raw_fd(), IOCTL_NEW as _, how.bits()) } {
        -1 => Err(Error::NotAllowed(refused)),
        // SAFETY: a descriptor that the kernel has just made for us.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_LEN;
    use crate::paging::kernel::memory::Mapping;

    /// A mapping of three pages, the first of them filled with `contents`, and its userfaultfd;
    /// none where this user may not have one that moves pages.
    fn three_pages(contents: u8) -> Option<(Mapping, Uffd)> {
        let uffd = Uffd::with_features(FEATURE_MOVE).ok()?;
        let mapping = Mapping::paged(3 * PAGE_LEN, None).unwrap();
        uffd.register(mapping.start(), mapping.size(), false).unwrap();
        // SAFETY: a page of the mapping that is missing.
        unsafe { uffd.copy(mapping.start(), &[contents; PAGE_LEN]) }.unwrap();
        Some((mapping, uffd))
    }

    #[test]
    fn a_move_that_the_kernel_did_and_reports_as_refused_is_done() {
        let Some((mapping, uffd)) = three_pages(7) else { return };
        let (from, to) = (mapping.start(), mapping.start() + PAGE_LEN);
        for wakes in [false, true, false] {
            // SAFETY: pages of the mapping, which nothing else uses. From the second time on the
            // kernel finds what it finds when it tries again after it has moved the page.
            unsafe { uffd.move_page(to, from, wakes) }.unwrap();
        }
        // SAFETY: the page is present, and nothing else uses it.
        assert_eq!(unsafe { *mapping.page(1) }, [7; PAGE_LEN]);
        assert_eq!(
            [0, 1, 2].map(|page| is_missing(from + page * PAGE_LEN)),
            [Ok(true), Ok(false), Ok(true)]
        );
    }

    #[test]
    fn a_page_is_never_moved_over_another() {
        let Some((mapping, uffd)) = three_pages(7) else { return };
        let (from, to) = (mapping.start(), mapping.start() + PAGE_LEN);
        // SAFETY: a page of the mapping that is missing.
        unsafe { uffd.copy(to, &[9; PAGE_LEN]) }.unwrap();
        // SAFETY: pages of the mapping, which nothing else uses.
        assert_eq!(unsafe { uffd.move_page(to, from, true) }, Err(Errno::EXIST));
        // SAFETY: both pages are present, and nothing else uses them.
        assert_eq!(unsafe { [(*mapping.page(0))[0], (*mapping.page(1))[0]] }, [7, 9]);
    }
}
