//! Which threads of the process are the pager's own.

use crate::kept;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The threads of the pager, by what they call themselves; 0 is none.
static OWN_THREADS: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// What this thread calls itself.
pub fn own_name() -> usize {
    // SAFETY: it has no conditions.
    unsafe { libc::pthread_self() as usize }
}

/// This thread is the pager's from now on.
pub fn note_own_thread() {
    let name = own_name();
    let vacant = |slot: &&AtomicUsize| {
        slot.compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    assert!(OWN_THREADS.iter().any(|slot| vacant(&slot)), "the pager has few threads");
    kept::keep_stack();
}

/// Threads of the pager, by what they call themselves.
fn own_names() -> impl Iterator<Item = usize> {
    let names = OWN_THREADS.iter().map(|slot| slot.load(Ordering::Relaxed));
    names.take_while(|&name| name != 0)
}

/// How many threads are the pager's.
pub fn own_threads() -> usize {
    own_names().count()
}

/// Whether this thread is one of them.
pub fn is_own_thread() -> bool {
    let name = own_name();
    own_names().any(|other| other == name)
}
