//! Runs two pieces of work at once, on threads that the host lends the enclave.
//!
//! The division into pieces follows from a node's shape alone, so it reveals nothing.
//!
//! Two halves of a sum:
//!
//! ```
//! use traceless_cloud::fork_join::{ForkJoin, OneThread, TwoThreads};
//!
//! let numbers: Vec<u64> = (1..=1000).collect();
//! let (first, second) = numbers.split_at(500);
//! let threads: [&dyn ForkJoin; 2] = [&OneThread, &TwoThreads];
//! for threads in threads {
//!     let (mut a, mut b) = (0, 0);
//!     threads.join(&mut || a = first.iter().sum(), &mut || b = second.iter().sum());
//!     assert_eq!(a + b, 500_500_u64);
//! }
//! ```

#[cfg(feature = "std")]
use rayon_core::{ThreadPool, ThreadPoolBuilder};
#[cfg(feature = "std")]
use std::sync::LazyLock;

/// Bytes of work below which a second thread does not help: starting it takes longer.
pub const THREAD_MIN: usize = 64 << 10;

/// Runs two pieces of work in parallel or one after the other. Both are done on return.
pub trait ForkJoin: Send + Sync {
    /// Runs both pieces.
    fn join(&self, a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send));

    /// Runs work that calls [`ForkJoin::join`] repeatedly, on a thread from which that is cheap.
    fn run(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }
}

/// Runs the pieces one after the other.
pub struct OneThread;

impl ForkJoin for OneThread {
    fn join(&self, a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
        a();
        b();
    }
}

/// Runs the pieces in parallel, on threads that stay. The first work of a process starts them, so
/// they have the same confinement as the caller of that work.
#[cfg(feature = "std")]
pub struct TwoThreads;

#[cfg(feature = "std")]
impl ForkJoin for TwoThreads {
    fn join(&self, a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
        match &*POOL {
            Some(pool) => _ = pool.join(a, b),
            None => OneThread.join(a, b),
        }
    }

    fn run(&self, work: &mut (dyn FnMut() + Send)) {
        match &*POOL {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

/// `None` if the system refuses to start threads.
#[cfg(feature = "std")]
static POOL: LazyLock<Option<ThreadPool>> = LazyLock::new(|| pool("work"));

/// A pool of two threads.
#[cfg(feature = "std")]
pub fn pool(name: &'static str) -> Option<ThreadPool> {
    ThreadPoolBuilder::new().num_threads(2).thread_name(move |_| name.to_owned()).build().ok()
}
