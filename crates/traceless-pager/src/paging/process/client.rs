//! The program's side: memory that another process pages.

use super::link::{DISCONNECTED, Link, MessageKind};
use crate::PAGE_LEN;
use crate::paging::error::{Error, Result};
use crate::paging::kernel::locking::{self, Lock};
use crate::paging::kernel::memory::Mapping;
use crate::paging::kernel::own_files::OwnFile;
use crate::paging::kernel::threads::{SignalsBlocked, without_signals};
use crate::paging::kernel::uffd::{
    FEATURE_EVENT_FORK, FEATURE_EVENT_REMAP, FEATURE_MISSING_SHMEM, FEATURE_THREAD_ID,
    FEATURE_WP_SHMEM, Uffd,
};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Features that the kernel must have.
const FEATURES: u64 =
    FEATURE_MISSING_SHMEM | FEATURE_WP_SHMEM | FEATURE_THREAD_ID | FEATURE_EVENT_REMAP;

/// Memory that another process pages. It stays until the program ends.
pub struct Client {
    start: usize,
    len: usize,
    may_fork: bool,
    /// Whether resident pages are locked in memory.
    locked: AtomicBool,
    connection: Mutex<Connection>,
}

/// The program's files for this memory.
struct Connection {
    link: Link,
    memory: OwnFile,
    uffd: Uffd,
    _lifeline: OwnFile,
}

/// The files that a copy of this program will have.
struct ChildSetup {
    link: Link,
    memory: OwnFile,
    lifeline: OwnFile,
}

impl Client {
    /// Gets `pages` pages of zeros from the pager of that name, locked as `lock` says.
    pub fn connect(name: &str, pages: usize, lock: Lock) -> Result<Self> {
        let link = Link::to(name)?;
        let mut received = link.receive()?.ok_or(DISCONNECTED)?.expect(MessageKind::Memory)?;
        let memory = OwnFile::at_high_number(received.file(0)?);
        let lifeline = OwnFile::at_high_number(received.file(1)?);
        end_with_pager(&lifeline)?;
        let len = pages.checked_mul(PAGE_LEN).ok_or(Error::Configuration("too many pages"))?;
        let available = Uffd::features()?;
        if available & FEATURES != FEATURES {
            return Err(Error::Configuration("the mode process takes Linux 5.19 or newer"));
        }
        let (uffd, may_fork) = match Uffd::nonblocking(FEATURES | FEATURE_EVENT_FORK) {
            Ok(uffd) => (uffd, true),
            Err(_) => (Uffd::nonblocking(FEATURES)?, false),
        };
        let start = map(&memory, len, &uffd, false)?.leak();
        let locked = lock.apply(|| locking::lock(start, len))?;
        let numbers = [start as u64, u64::from(locked)];
        link.send(MessageKind::Registered, numbers, "", &[uffd.as_fd()])?;
        link.receive()?.ok_or(DISCONNECTED)?.expect(MessageKind::Served)?;
        let connection = Mutex::new(Connection { link, memory, uffd, _lifeline: lifeline });
        let locked = AtomicBool::new(locked);
        Ok(Self { start, len, may_fork, locked, connection })
    }

    /// First byte of the memory. The caller answers for how it uses the memory.
    pub fn start_of_memory(&self) -> *mut u8 {
        self.start as *mut u8
    }

    /// Bytes of memory.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no memory.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes some pages zeros for their next access. Nothing is written to the store for that.
    ///
    /// # Safety
    /// No code relies on the contents of the pages, and no other thread uses them meanwhile.
    pub unsafe fn discard(&self, first: usize, pages: usize) -> Result {
        // A signal handler that discards pages, too, would wait for a lock that its own thread
        // holds.
        without_signals(|| {
            self.connection().link.request(
                MessageKind::Discard,
                [first as u64, pages as u64],
                MessageKind::Done,
            )
        })?;
        Ok(())
    }

    /// Sets whether some pages will be zeros in copies of the program, or keep their contents.
    pub fn wipe_in_copies(&self, first: usize, pages: usize, wipes: bool) -> Result {
        let kind = if wipes { MessageKind::Wipe } else { MessageKind::Keep };
        let numbers = [first as u64, pages as u64];
        without_signals(|| self.connection().link.request(kind, numbers, MessageKind::Done))?;
        Ok(())
    }

    /// The same as [`Pager::unpin_thread`](crate::paging::Pager::unpin_thread).
    pub fn unpin_thread(&self, thread: u32, for_good: bool) {
        let numbers = [u64::from(thread), u64::from(for_good)];
        // An error does no harm: no thread of a program that has closed its link is pinned.
        let _ = without_signals(|| {
            self.connection().link.request(MessageKind::Unpin, numbers, MessageKind::Done)
        });
    }

    /// Locks all pages in memory that are resident or become so. Fails where that is not allowed.
    pub fn lock(&self) -> Result<(), Errno> {
        without_signals(|| {
            let _paused = self.connection();
            locking::lock(self.start, self.len)?;
            self.locked.store(true, Relaxed);
            Ok(())
        })
    }

    /// Whether the pages are locked.
    pub fn is_locked(&self) -> bool {
        self.locked.load(Relaxed)
    }

    /// Runs `work`, which changes how memory is mapped, while this program does not fork. `work`
    /// gets the start of the memory, and its length.
    pub fn while_paused<T>(&self, work: impl FnOnce(usize, usize) -> T) -> T {
        without_signals(|| {
            let _paused = self.connection();
            work(self.start, self.len)
        })
    }

    /// Prepares a fork: gets the files that the copy will need. The stack of this thread is not
    /// paged. Refused where the kernel does not report forks, and where the pager has no room for
    /// the copy.
    pub fn fork(&self) -> Result<Forking<'_>> {
        if !self.may_fork {
            return Err(Error::Refused("it takes CAP_SYS_PTRACE".into()));
        }
        let child = without_signals(|| {
            let mut received =
                self.connection().link.request(MessageKind::Fork, [0; 2], MessageKind::Copy)?;
            let memory = OwnFile::at_high_number(received.file(0)?);
            let link = OwnFile::at_high_number(received.file(1)?).into();
            let lifeline = OwnFile::at_high_number(received.file(2)?);
            Ok::<_, Error>(ChildSetup { link, memory, lifeline })
        })?;
        Ok(Forking { client: self, child, frozen: None })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // Only bugs panic while the lock is held, and they end the program.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps a file in the place of the one that is mapped.
    fn exchange(&self, file: &OwnFile, uffd: &Uffd, copied: bool) -> Result {
        let mapping = map(file, self.len, uffd, copied)?;
        if self.is_locked() {
            mapping.lock().map_err(Error::Unlocked)?;
        }
        // SAFETY: both are mappings of ours of that length. Threads that touch the memory meanwhile
        // wait, since no page of the new file is present yet, and the pager brings none.
        unsafe { mapping.move_to(self.start) }
    }
}

/// A fork under way: [`Forking::freeze`] comes right before it, and one of the other functions
/// right after.
pub struct Forking<'a> {
    client: &'a Client,
    child: ChildSetup,
    frozen: Option<(MutexGuard<'a, Connection>, SignalsBlocked)>,
}

impl Forking<'_> {
    /// Puts the copy's memory in place. From now on no thread may touch it, this one included.
    pub fn freeze(&mut self) -> Result {
        let signals = SignalsBlocked::all();
        let connection = self.client.connection();
        connection.link.request(MessageKind::Freeze, [0; 2], MessageKind::Done)?;
        self.client.exchange(&self.child.memory, &connection.uffd, true)?;
        connection.link.request(MessageKind::Fill, [0; 2], MessageKind::Done)?;
        self.frozen = Some((connection, signals));
        Ok(())
    }

    /// In the program itself, whether the fork succeeded or not: maps its own memory again.
    pub fn in_parent(self) -> Result {
        let Some((connection, _signals)) = self.frozen else { return Ok(()) };
        self.client.exchange(&connection.memory, &connection.uffd, false)?;
        connection.link.request(MessageKind::Thaw, [0; 2], MessageKind::Done)?;
        Ok(())
    }

    /// In the copy: lets the pager serve it on its own from now on.
    pub fn in_child(self) -> Result {
        let Some((mut connection, _signals)) = self.frozen else { return Ok(()) };
        let ChildSetup { link, memory, lifeline } = self.child;
        end_with_pager(&lifeline)?;
        let mut served = link.request(MessageKind::CopyStarted, [0; 2], MessageKind::Served)?;
        let uffd = OwnFile::at_high_number(served.file(0)?).into();
        Mapping::exclude_from_forks(self.client.start, self.client.len)?;
        if self.client.is_locked() {
            // A child of fork does not inherit locks.
            locking::lock(self.client.start, self.client.len).map_err(Error::Unlocked)?;
        }
        *connection = Connection { link, memory, uffd, _lifeline: lifeline };
        Ok(())
    }
}

/// Maps the file somewhere, and registers it with `uffd`.
fn map(file: &OwnFile, len: usize, uffd: &Uffd, copied: bool) -> Result<Mapping> {
    let mapping = Mapping::shared(file.as_fd(), len)?;
    mapping.disable_huge_pages()?;
    locking::exclude_from_core_dumps(mapping.start(), len)?;
    if !copied {
        Mapping::exclude_from_forks(mapping.start(), len)?;
    }
    uffd.register(mapping.start(), len, true)?;
    Ok(mapping)
}

/// Has the kernel kill this process when the other end of this pipe is closed: without the pager,
/// pages that are away could not come back, and the program would wait without an error.
fn end_with_pager(lifeline: &OwnFile) -> Result {
    const F_SETSIG: libc::c_int = 10;
    let fd = lifeline.as_raw_fd();
    // SAFETY: system calls on a file of ours that take a number.
    let done = unsafe {
        libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) != -1
            && libc::fcntl(fd, F_SETSIG, libc::SIGKILL) != -1
            && libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) != -1
    };
    if done { Ok(()) } else { Err(Error::Configuration("the pager's end would not be noticed")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paging::process::serve;
    use crate::paging::refresh::helper::FORK_TURN;
    use crate::paging::settings::{Scheme, Settings};

    const PAGES: usize = 64;

    /// Starts a pager in a thread of this process, and connects to it. The memory is leaked: the
    /// pager would end a program that closes its files.
    fn client(scheme: Scheme, resident: usize) -> &'static Client {
        let (owner, pager_link) = Link::pair().unwrap();
        let settings = Settings { resident, pages: PAGES, scheme, ..Settings::default() };
        std::thread::spawn(move || serve(settings, pager_link.into()).unwrap());
        let ready = owner.receive().unwrap().unwrap().expect(MessageKind::Ready).unwrap();
        // If the link were dropped, the pager would end.
        core::mem::forget(owner);
        Box::leak(Box::new(Client::connect(&ready.text, PAGES, Lock::Auto).unwrap()))
    }

    fn word(client: &Client, page: usize) -> *mut u64 {
        // SAFETY: in the memory, which stays.
        unsafe { client.start_of_memory().add(page * PAGE_LEN + 8 * page).cast() }
    }

    fn fill(client: &Client, pages: usize, seed: u64) {
        for page in 0..pages {
            // SAFETY: aligned words of the memory, which no other code uses.
            unsafe { word(client, page).write_volatile(seed + page as u64) };
        }
    }

    fn holds(client: &Client, pages: usize, seed: u64) -> bool {
        // SAFETY: aligned words of the memory, which no other code uses.
        (0..pages).all(|page| unsafe { word(client, page).read_volatile() } == seed + page as u64)
    }

    #[test]
    fn pages_keep_contents_until_they_are_discarded() {
        for scheme in Scheme::ALL {
            let client = client(scheme, 8);
            assert_eq!(client.len(), PAGES * PAGE_LEN);
            for seed in 0..20 {
                fill(client, PAGES, seed);
                assert!(holds(client, PAGES, seed), "{}", scheme.name());
            }
            // SAFETY: this is the only thread that uses it.
            unsafe { client.discard(8, 50).unwrap() };
            for page in 0..PAGES {
                let expected = if (8..58).contains(&page) { 0 } else { 19 + page as u64 };
                // SAFETY: this is the only thread that uses it.
                assert_eq!(unsafe { word(client, page).read_volatile() }, expected);
            }
        }
    }

    /// A planted fault: the copy maps the program's file, not its own.
    #[derive(Clone, Copy)]
    struct SharedPages;

    impl Forking<'_> {
        /// [`Forking::freeze`] with the planted fault [`SharedPages`].
        fn freeze_badly(&mut self) -> Result {
            let signals = SignalsBlocked::all();
            let connection = self.client.connection();
            connection.link.request(MessageKind::Freeze, [0; 2], MessageKind::Done)?;
            connection.link.request(MessageKind::Fill, [0; 2], MessageKind::Done)?;
            // SAFETY: memory of ours; nothing changes in this process.
            unsafe {
                libc::madvise(self.client.start as *mut _, self.client.len, libc::MADV_DOFORK);
            }
            self.frozen = Some((connection, signals));
            Ok(())
        }
    }

    /// Whether a copy and the program find the contents from before the fork, and only their own
    /// writes.
    fn copies_are_right(client: &Client, pages: usize, fault: Option<SharedPages>) -> bool {
        fill(client, pages, 100);
        let mut forking = client.fork().unwrap();
        let turn = FORK_TURN.lock().unwrap_or_else(PoisonError::into_inner);
        match fault {
            None => forking.freeze().unwrap(),
            Some(SharedPages) => forking.freeze_badly().unwrap(),
        }
        // SAFETY: the code that runs in the copy allocates nothing, and takes no lock of other
        // threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut is_right = forking.in_child().is_ok() && holds(client, pages, 100);
            fill(client, pages, 200);
            is_right &= holds(client, pages, 200);
            // SAFETY: it ends the copy at once.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        forking.in_parent().unwrap();
        drop(turn);
        let mut status = 0;
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        let kept_contents = holds(client, pages, 100);
        fill(client, pages, 300);
        status == 0 && kept_contents && holds(client, pages, 300)
    }

    #[test]
    fn a_forked_copy_has_the_contents_and_shares_no_page() {
        for scheme in Scheme::ALL {
            let client = client(scheme, 8);
            for _ in 0..3 {
                assert!(copies_are_right(client, PAGES, None), "{}", scheme.name());
            }
        }
    }

    /// If a copy shares the program's pages, `copies_are_right` returns false.
    #[test]
    fn pages_shared_with_a_copy_are_noticed() {
        // So few pages that none of them leaves: the pager could not bring it back.
        let client = client(Scheme::Plain, 40);
        assert!(!copies_are_right(client, 30, Some(SharedPages)));
    }
}
