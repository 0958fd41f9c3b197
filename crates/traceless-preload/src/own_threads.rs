//! Which threads of the process are the pager's own.

use crate::libc_functions::libc_function;
use crate::protected;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The pager's threads, by their `pthread_self`; 0 is a free entry.
static OWN_THREADS: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// Whether a copy of the process starts its pager: then no thread does anything else.
static IS_STARTING: AtomicBool = AtomicBool::new(false);

/// The thread of the program that copies pages for a fork, by its `pthread_self`; 0 is none.
static COPYING_THREAD: AtomicUsize = AtomicUsize::new(0);

/// This thread's `pthread_self`.
pub fn current_pthread() -> usize {
    // SAFETY: it has no conditions.
    unsafe { libc::pthread_self() as usize }
}

/// Marks this thread as one of the pager's from now on.
pub fn register_own_thread() {
    let name = current_pthread();
    let vacant = |slot: &&AtomicUsize| {
        slot.compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    assert!(OWN_THREADS.iter().any(|slot| vacant(&slot)), "the pager has few threads");
    protected::protect_stack();
}

/// The pager's threads, by their `pthread_self`.
fn own_pthreads() -> impl Iterator<Item = usize> {
    let names = OWN_THREADS.iter().map(|slot| slot.load(Ordering::Relaxed));
    names.take_while(|&name| name != 0)
}

/// The time in which a copy of the process, which has only this thread, starts its pager. All
/// threads count as the pager's, so that nothing they allocate is paged.
pub struct PagerStart(());

impl PagerStart {
    /// Begins it: the pager's threads so far were the other process's.
    pub fn begin() -> Self {
        for slot in &OWN_THREADS {
            slot.store(0, Ordering::Relaxed);
        }
        IS_STARTING.store(true, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for PagerStart {
    fn drop(&mut self) {
        IS_STARTING.store(false, Ordering::SeqCst);
    }
}

/// Whether a copy of the process starts its pager.
pub fn is_starting() -> bool {
    IS_STARTING.load(Ordering::Relaxed)
}

/// Runs `work`, which keeps pages from coming, as one of the pager's threads: what it allocates is
/// neither paged nor waited for. One thread at a time.
pub fn as_own_thread<T>(work: impl FnOnce() -> T) -> T {
    COPYING_THREAD.store(current_pthread(), Ordering::Relaxed);
    let done = work();
    COPYING_THREAD.store(0, Ordering::Relaxed);
    done
}

/// As of the C library: has a destructor run when this thread ends. The pager's threads do not end,
/// and the C library would allocate: of a program with a `malloc` of its own, which may be locked
/// in a copy of the process until this library's handlers have returned.
///
/// # Safety
/// As of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_thread_atexit_impl(
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    object: *mut c_void,
    library: *mut c_void,
) -> c_int {
    type Register = unsafe extern "C" fn(
        Option<unsafe extern "C" fn(*mut c_void)>,
        *mut c_void,
        *mut c_void,
    ) -> c_int;
    if is_own_thread() {
        return 0;
    }
    // SAFETY: that is its type; else the caller's promise.
    unsafe { libc_function!(__cxa_thread_atexit_impl, Register)(destroy, object, library) }
}

/// Whether at most one thread of the process is not the pager's. One that has ended counts while it
/// is the first.
pub fn has_one_other_thread() -> bool {
    let all = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
    all <= own_pthreads().count() + 1
}

/// Whether this thread is one of the pager's.
pub fn is_own_thread() -> bool {
    let name = current_pthread();
    own_pthreads().any(|other| other == name)
        || COPYING_THREAD.load(Ordering::Relaxed) == name
        || is_starting()
}
