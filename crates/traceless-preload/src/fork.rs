//! Copies of the process. Where a thread of the program pages it they are refused: a copy would
//! find nothing where pages are away. Another process pages copies, too; here it is told of them.
//!
//! The handlers that a program registers for `fork` use its memory. So ours is registered before
//! all others: it then runs as the last one before the copy is made and as the first one after.

use crate::heap::set_errno;
use crate::own::own_name;
use crate::paged::paged;
use crate::report::{fail, say};
use crate::theirs::theirs;
use crate::trusted::{Lists, lists};
use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use traceless_pager::paging::{Client, Error, Forking, Heap};

/// Whose turn it is to fork, by what the thread calls itself; 0 is nobody.
static OWNER: AtomicUsize = AtomicUsize::new(0);
static TURN: Mutex<()> = Mutex::new(());
static UNDER_WAY: UnderWay = UnderWay(UnsafeCell::new(None));

/// A fork that has begun, for the thread whose turn it is.
struct UnderWay(UnsafeCell<Option<Fork>>);

// SAFETY: only the thread whose turn it is looks at it.
unsafe impl Sync for UnderWay {}

/// What is held until the copy is made, in the order in which it is let go.
struct Fork {
    lists: Option<MutexGuard<'static, Lists>>,
    forking: Forking<'static>,
    heap: Option<MutexGuard<'static, Heap>>,
    _turn: MutexGuard<'static, ()>,
}

type Handler = Option<unsafe extern "C" fn()>;

/// From now on every fork is seen.
pub fn see_all() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: handlers that stay as long as the process.
        unsafe { register(Some(before), Some(in_parent), Some(in_child), core::ptr::null_mut()) };
    });
}

/// What stands behind `pthread_atfork`: ours comes first.
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
    see_all();
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
    unsafe { theirs!(__register_atfork, Register)(before, in_parent, in_child, library) }
}

/// Announces a fork of this thread's.
fn announce(client: &'static Client) -> Result<(), Error> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let forking = client.fork()?;
    OWNER.store(own_name(), Relaxed);
    let fork = Fork { lists: None, forking, heap: None, _turn: turn };
    // SAFETY: it is this thread's turn.
    unsafe { *UNDER_WAY.0.get() = Some(fork) };
    Ok(())
}

fn is_announced() -> bool {
    OWNER.load(Relaxed) == own_name()
}

/// Takes back what was announced, if anything was: the copy is made, or will not be.
fn take_fork() -> Option<Fork> {
    if !is_announced() {
        return None;
    }
    // SAFETY: it is this thread's turn.
    let mut fork = unsafe { (*UNDER_WAY.0.get()).take() }?;
    OWNER.store(0, Relaxed);
    // From now on there may be objects to give back.
    fork.lists = None;
    Some(fork)
}

unsafe extern "C" fn before() {
    let Some(paged) = paged() else { return };
    let Some(client) = paged.client() else { return };
    if !is_announced()
        && let Err(e) = announce(client)
    {
        // The C library forks by itself, and cannot be told that it may not.
        fail(&e);
    }
    // SAFETY: it is this thread's turn.
    let Some(fork) = (unsafe { &mut *UNDER_WAY.0.get() }) else { return };
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

fn finish(goes_on: fn(Forking<'static>) -> Result<(), Error>) {
    let Some(Fork { forking, heap, _turn, .. }) = take_fork() else { return };
    if let Err(e) = goes_on(forking) {
        fail(&e);
    }
    drop(heap);
}

/// Runs what forks, or refuses it.
fn fork_by(run: impl FnOnce() -> c_int) -> c_int {
    let refused = match paged().map(|paged| paged.client()) {
        None => None,
        Some(None) => {
            Some("a copy would have none of its pages; it may fork with --mode process".to_owned())
        }
        Some(Some(client)) => announce(client).err().map(|e| e.to_string()),
    };
    if let Some(why) = refused {
        static SAID: Once = Once::new();
        SAID.call_once(|| say(&format!("fork is refused: {why}")));
        set_errno(libc::EAGAIN);
        return -1;
    }
    let done = run();
    // It may have failed before it came to forking.
    drop(take_fork());
    done
}

/// As of POSIX. It fails where a thread of the program pages it.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> c_int {
    type Fork = unsafe extern "C" fn() -> c_int;
    // SAFETY: that is its type; else the caller's promise.
    fork_by(|| unsafe { theirs!(fork, Fork)() })
}

/// As of POSIX, in the same way.
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
            let done = theirs!(_Fork, Fork)();
            if done == 0 {
                in_child();
            } else {
                in_parent();
            }
            done
        }
    })
}

/// As of Linux, in the same way: it forks.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(stay: c_int, keep_open: c_int) -> c_int {
    type Daemon = unsafe extern "C" fn(c_int, c_int) -> c_int;
    // SAFETY: that is its type; else the caller's promise.
    fork_by(|| unsafe { theirs!(daemon, Daemon)(stay, keep_open) })
}

/// As of Linux, in the same way: it forks.
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
    fork_by(|| unsafe { theirs!(forkpty, ForkPty)(terminal, name, settings, size) })
}
