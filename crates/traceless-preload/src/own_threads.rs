//! Which threads of the process are the pager's own.

use crate::protected;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The pager's threads, by their `pthread_self`; 0 is a free entry.
static OWN_THREADS: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

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

/// Number of the pager's threads.
pub fn own_threads() -> usize {
    own_pthreads().count()
}

/// Whether this thread is one of the pager's.
pub fn is_own_thread() -> bool {
    let name = current_pthread();
    own_pthreads().any(|other| other == name)
}
