//! Copies of the process. If a thread of this process is the pager, forks are refused: a copy would
//! have no pager for pages that are away. A pager in another process pages copies, too; this module
//! notifies it of them.
//!
//! The fork handlers of a program use its memory. So this library registers its handlers before all
//! of them: they then run as the last ones before the copy is made and as the first ones after.

use crate::libc_functions::libc_function;
use crate::malloc::set_errno;
use crate::own_threads::current_pthread;
use crate::paged_memory::paged;
use crate::report::{fail, print};
use crate::trusted_heap::{Lists, lists};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use traceless_pager::paging::{Client, Error, Forking, Heap};

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
    forking: Forking<'static>,
    heap: Option<MutexGuard<'static, Heap>>,
    _turn: MutexGuard<'static, ()>,
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
fn announce(client: &'static Client) -> Result<(), Error> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let forking = client.fork()?;
    OWNER.store(current_pthread(), Relaxed);
    let fork = Fork { lists: None, forking, heap: None, _turn: turn };
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
    let Some(client) = paged.client() else { return };
    if !is_announced()
        && let Err(e) = announce(client)
    {
        // The C library itself forks, and this handler cannot refuse it.
        fail(&e);
    }
    // SAFETY: it is this thread's turn.
    let Some(fork) = (unsafe { &mut *CURRENT_FORK.0.get() }) else { return };
    fork.heap = Some(paged.heap());
    if let Err(e) = fork.forking.freeze() {
        fail(&e);
    }
    fork.lists = Some(lists());
}

unsafe extern "C" fn in_parent() {
    finish(Forking::in_parent);
}

unsafe extern "C" fn in_child() {
    finish(Forking::in_child);
}

fn finish(resume: fn(Forking<'static>) -> Result<(), Error>) {
    let Some(Fork { forking, heap, _turn, .. }) = take_fork() else { return };
    if let Err(e) = resume(forking) {
        fail(&e);
    }
    drop(heap);
}

/// Runs a function that forks, or refuses it.
fn fork_by(run: impl FnOnce() -> c_int) -> c_int {
    let refused = match paged().map(|paged| paged.client()) {
        None => None,
        Some(None) => {
            Some("a copy would have none of its pages; it may fork with --mode process".to_owned())
        }
        Some(Some(client)) => announce(client).err().map(|e| e.to_string()),
    };
    if let Some(why) = refused {
        static REPORTED: Once = Once::new();
        REPORTED.call_once(|| print(&format!("fork is refused: {why}")));
        set_errno(libc::EAGAIN);
        return -1;
    }
    let done = run();
    // The function may have failed before the fork.
    drop(take_fork());
    done
}

/// As of POSIX. It fails where a thread of this process is the pager.
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
