//! Copies of the process. If a thread of this process is the pager, a copy starts a pager of its
//! own, on a copy of all pages that is made before. A pager in another process pages copies, too;
//! this module notifies it of them.
//!
//! The fork handlers of a program use its memory. So this library registers its handlers before all
//! of them: they then run as the last ones before the copy is made and as the first ones after.

use crate::libc_functions::libc_function;
use crate::malloc::{self, set_errno};
use crate::own_pager::{start_copy, start_thread_of_copy};
use crate::own_threads::{PagerStart, as_own_thread, current_pthread};
use crate::paged_memory::{PagedMemory, paged, replace_pager};
use crate::report::{fail, print};
use crate::segv_action::SegvAction;
use crate::thread_table::OrdinaryTable;
use crate::trusted_heap::{Lists, program_lists, renew_own_lists};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use traceless_pager::paging::{
    Error, Forking, Heap, PagesCopy, Ranges, Settings, SignalsBlocked, without_signals,
};

const NOT_PAGED: Error = Error::Configuration("the program is not paged");

/// The thread that may fork now, by its `pthread_self`; 0 is none.
static OWNER: AtomicUsize = AtomicUsize::new(0);
static TURN: Mutex<()> = Mutex::new(());
static CURRENT_FORK: CurrentFork = CurrentFork(UnsafeCell::new(None));

/// A fork that has begun. Only the thread that has announced it may access it.
struct CurrentFork(UnsafeCell<Option<Fork>>);

// SAFETY: only the thread that holds the turn looks at it.
unsafe impl Sync for CurrentFork {}

/// The announcement and locks, held until the copy is made, in the order of their release.
struct Fork {
    lists: Option<MutexGuard<'static, Lists>>,
    pages: ForkedPages,
    heap: Option<MutexGuard<'static, Heap>>,
    ranges: Option<[MutexGuard<'static, Ranges>; 2]>,
    turn: (MutexGuard<'static, ()>, CallsTurn),
    /// From when the pages are copied. A handler would need the locks above.
    signals: Option<(Option<SegvAction>, SignalsBlocked)>,
    table: Option<OrdinaryTable>,
}

/// Keeps other threads from serving system calls, which takes the locks above.
#[cfg(target_arch = "x86_64")]
type CallsTurn = Option<crate::system_calls::libc_context::OwnTurn>;
#[cfg(not(target_arch = "x86_64"))]
type CallsTurn = ();

fn take_calls_turn() -> CallsTurn {
    #[cfg(target_arch = "x86_64")]
    crate::system_calls::libc_context::take_turn()
}

/// The pages of the copy.
enum ForkedPages {
    /// The pager is another process, which has them.
    OtherProcess(Forking<'static>),
    /// A thread of this process is the pager, and one of the copy will be.
    Own(Box<OwnCopy>),
}

/// What the copy starts its own pager with.
struct OwnCopy {
    pages: PagesCopy,
    settings: &'static Settings,
}

type Handler = Option<unsafe extern "C" fn()>;

/// Registers the handlers, so that every later fork is noticed.
pub fn register_handlers() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: handlers that stay as long as the process.
        unsafe { register(Some(before), Some(in_parent), Some(in_child), core::ptr::null_mut()) };
    });
}

/// The function behind `pthread_atfork`; registers this library's handlers first.
///
/// # Safety
/// As of `pthread_atfork`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    before: Handler,
    in_parent: Handler,
    in_child: Handler,
    library: *mut c_void,
) -> c_int {
    register_handlers();
    // SAFETY: the caller's promise.
    unsafe { register(before, in_parent, in_child, library) }
}

unsafe fn register(
    before: Handler,
    in_parent: Handler,
    in_child: Handler,
    library: *mut c_void,
) -> c_int {
    type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;
    // SAFETY: that is its type; else the caller's promise.
    unsafe { libc_function!(__register_atfork, Register)(before, in_parent, in_child, library) }
}

/// Announces to the pager that this thread is about to fork.
fn announce(memory: &'static PagedMemory) -> Result<(), Error> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if memory.has_this_stack() {
        return Err(Error::Refused("the stack is in paged memory".into()));
    }
    // In this order: a system call that is served may be a fork.
    let calls = take_calls_turn();
    let turn = (TURN.lock().unwrap_or_else(PoisonError::into_inner), calls);
    let pages = if let Some(client) = memory.client() {
        ForkedPages::OtherProcess(client.fork()?)
    } else {
        let settings = &memory.own().ok_or(NOT_PAGED)?.settings;
        if !malloc::is_librarys() {
            return Err(Error::Refused(
                "the program has a malloc of its own: take --mode process".into(),
            ));
        }
        OrdinaryTable::prepare();
        SegvAction::prepare().map_err(|e| Error::Refused(e.to_string()))?;
        let nth = COUNT.fetch_add(1, Relaxed) + 1;
        let name = format!("{}-{nth}", std::process::id());
        let copy = without_signals(|| PagesCopy::prepare(settings, &name))?;
        ForkedPages::Own(Box::new(OwnCopy { pages: copy, settings }))
    };
    OWNER.store(current_pthread(), Relaxed);
    let (lists, heap, ranges, signals, table) = (None, None, None, None, None);
    let fork = Fork { lists, pages, heap, ranges, turn, signals, table };
    // SAFETY: it is this thread's turn.
    unsafe { *CURRENT_FORK.0.get() = Some(fork) };
    Ok(())
}

fn is_announced() -> bool {
    OWNER.load(Relaxed) == current_pthread()
}

/// Ends an announced fork, if there is one: the copy was made, or will not be.
fn take_fork() -> Option<Fork> {
    if !is_announced() {
        return None;
    }
    // SAFETY: it is this thread's turn.
    let mut fork = unsafe { (*CURRENT_FORK.0.get()).take() }?;
    OWNER.store(0, Relaxed);
    // Dropping the rest may free objects, which needs the lists.
    fork.lists = None;
    Some(fork)
}

unsafe extern "C" fn before() {
    let Some(paged) = paged() else { return };
    if !is_announced()
        && let Err(e) = announce(paged)
    {
        // The C library itself forks, and this handler cannot refuse it.
        fail(&e);
    }
    // SAFETY: it is this thread's turn.
    let Some(fork) = (unsafe { &mut *CURRENT_FORK.0.get() }) else { return };
    // They need not be copied.
    paged.release_kept();
    let signals = SignalsBlocked::all_but(libc::SIGSEGV);
    fork.heap = Some(paged.heap());
    let mut action = None;
    let frozen = match &mut fork.pages {
        ForkedPages::OtherProcess(forking) => forking.freeze(),
        ForkedPages::Own(own) => {
            let [elsewhere, wiped] = [paged.elsewhere(), paged.wiped()];
            let fill = |pager| own.pages.fill(pager, &elsewhere, &wiped);
            let copied = as_own_thread(|| paged.own_pager().ok_or(NOT_PAGED).and_then(fill));
            fork.ranges = Some([elsewhere, wiped]);
            fork.table = OrdinaryTable::take_place();
            action = Some(SegvAction::set(bring_in_child));
            copied
        }
    };
    if let Err(e) = frozen {
        fail(&e);
    }
    fork.signals = Some((action, signals));
    fork.lists = Some(program_lists());
}

unsafe extern "C" fn in_parent() {
    end_in_parent();
}

/// Ends an announced fork in the program, also one that failed.
fn end_in_parent() {
    let Some(Fork { pages, heap, ranges, turn, signals, table, .. }) = take_fork() else { return };
    match pages {
        ForkedPages::OtherProcess(forking) => {
            forking.in_parent().unwrap_or_else(|e| fail(&e));
        }
        ForkedPages::Own(own) => {
            if let Some(pager) = paged().and_then(PagedMemory::own_pager) {
                own.pages.end_in_program(pager);
            }
        }
    }
    drop((table, heap, ranges, turn, signals));
}

unsafe extern "C" fn in_child() {
    #[cfg(target_arch = "x86_64")]
    crate::loader_command::note_process();
    if !is_announced() {
        return;
    }
    let start = reserve_in_child().map(|settings| (PagerStart::begin(), settings));
    if start.is_some() {
        bring_locale();
    }
    let thread = start.as_ref().map(|(_, settings)| start_thread_of_copy(settings));
    let Some(Fork { pages, heap, ranges, turn, signals, table, .. }) = take_fork() else { return };
    let started = match (pages, thread) {
        (ForkedPages::OtherProcess(forking), _) => forking.in_child(),
        (ForkedPages::Own(own), Some(thread)) => {
            let OwnCopy { pages, settings } = *own;
            thread.and_then(|thread| start_copy(pages, thread, settings)).map(replace_pager)
        }
        (ForkedPages::Own(_), None) => Err(NOT_PAGED),
    };
    if let Err(e) = started {
        fail(&e);
    }
    drop((table, start, heap, ranges, turn, signals));
}

/// Has the C library touch what it touches as a thread begins, which is tables of the global
/// locale: there it blocks SIGSEGV, too.
fn bring_locale() {
    const GLOBAL: libc::locale_t = core::ptr::without_provenance_mut(usize::MAX);
    /// Classes of characters, to upper case, a gap, and to lower case (`langinfo.h`).
    const TABLES: core::ops::Range<libc::nl_item> = 0..4;
    // SAFETY: the thread's own locale is in force again afterwards.
    unsafe {
        let own = libc::uselocale(GLOBAL);
        for table in TABLES {
            libc::nl_langinfo(table);
        }
        libc::uselocale(own);
    }
}

/// In the copy: keeps the place of its pages free, before anything is allocated. Returns the
/// settings for its own pager, if it is to have one.
fn reserve_in_child() -> Option<&'static Settings> {
    // SAFETY: this is the only thread, or the only one that does not wait.
    match unsafe { &mut *CURRENT_FORK.0.get() } {
        Some(Fork { lists, pages: ForkedPages::Own(own), heap, .. }) => {
            own.pages.reserve();
            if lists.take().is_some() {
                renew_own_lists();
            }
            // The C library may resize tables of threads, which are paged.
            *heap = None;
            Some(own.settings)
        }
        _ => None,
    }
}

/// In the copy: brings a page that is missing before its pager runs. Returns whether it was one.
fn bring_in_child(address: usize) -> bool {
    reserve_in_child();
    // SAFETY: the copy has only this thread, or the other one waits.
    match unsafe { &mut *CURRENT_FORK.0.get() } {
        Some(Fork { pages: ForkedPages::Own(own), .. }) => own.pages.bring_early(address),
        _ => false,
    }
}

/// Runs a function that forks, or refuses it.
fn fork_by(run: impl FnOnce() -> c_int) -> c_int {
    if let Some(paged) = paged()
        && let Err(why) = announce(paged)
    {
        static REPORTED: Once = Once::new();
        REPORTED.call_once(|| print(&format!("fork is refused: {why}")));
        set_errno(libc::EAGAIN);
        return -1;
    }
    let done = run();
    // The function may have failed before the fork.
    end_in_parent();
    done
}

/// As of POSIX. It fails where there is no room for a copy of the pages.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> c_int {
    type Fork = unsafe extern "C" fn() -> c_int;
    // SAFETY: that is its type; else the caller's promise.
    fork_by(|| unsafe { libc_function!(fork, Fork)() })
}

/// As of POSIX, with the failure of [`fork`].
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> c_int {
    type Fork = unsafe extern "C" fn() -> c_int;
    fork_by(|| {
        // SAFETY: the C library runs no handlers for this one, so ours are run here; and its type
        // is that. Else the caller's promise.
        unsafe {
            before();
            let done = libc_function!(_Fork, Fork)();
            if done == 0 {
                in_child();
            } else {
                in_parent();
            }
            done
        }
    })
}

/// As of Linux, with the failure of [`fork`].
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(stay: c_int, keep_open: c_int) -> c_int {
    type Daemon = unsafe extern "C" fn(c_int, c_int) -> c_int;
    // SAFETY: that is its type; else the caller's promise.
    fork_by(|| unsafe { libc_function!(daemon, Daemon)(stay, keep_open) })
}

/// As of Linux, with the failure of [`fork`].
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkpty(
    terminal: *mut c_int,
    name: *mut c_char,
    settings: *const c_void,
    size: *const c_void,
) -> c_int {
    type ForkPty =
        unsafe extern "C" fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;
    // SAFETY: that is its type; else the caller's promise.
    fork_by(|| unsafe { libc_function!(forkpty, ForkPty)(terminal, name, settings, size) })
}
