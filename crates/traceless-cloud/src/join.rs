//! Two pieces of work at once, where the host lends the enclave threads.
//!
//! Which pieces there are follows from the shape of a node alone, so it tells nothing.

#[cfg(feature = "std")]
use rayon_core::{ThreadPool, ThreadPoolBuilder};
#[cfg(feature = "std")]
use std::sync::LazyLock;

/// Bytes of work on which a second thread is no faster than one: it takes longer to begin.
pub const THREAD_MIN: usize = 64 << 10;

/// Runs two pieces of work, side by side or one after the other. Both are done on return.
pub trait Join: Send + Sync {
    /// Runs both.
    fn join(&self, a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send));

    /// Runs work that has two pieces now and then, from where it takes least time to share them.
    fn run(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }
}

/// One after the other.
pub struct OneThread;

impl Join for OneThread {
    fn join(&self, a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
        a();
        b();
    }
}

/// Side by side, on threads that stay. The first work of a process starts them, so they are as
/// confined as whoever it was for.
#[cfg(feature = "std")]
pub struct TwoThreads;

#[cfg(feature = "std")]
impl Join for TwoThreads {
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

/// Nothing where the system starts no threads.
#[cfg(feature = "std")]
static POOL: LazyLock<Option<ThreadPool>> = LazyLock::new(|| pool("work"));

/// Two threads that wait for work.
#[cfg(feature = "std")]
pub fn pool(name: &'static str) -> Option<ThreadPool> {
    ThreadPoolBuilder::new().num_threads(2).thread_name(move |_| name.to_owned()).build().ok()
}
