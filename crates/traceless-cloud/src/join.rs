//! Two pieces of work at once, where the host lends the enclave a second thread.
//!
//! Which pieces there are follows from the shape of a node alone, so it tells nothing.

/// Bytes of work on which a second thread is no faster than one: it takes longer to begin.
pub const THREAD_MIN: usize = 64 << 10;

/// Runs two pieces of work, side by side or one after the other. Both are done on return.
pub trait Join: Send + Sync {
    /// Runs both.
    fn join(&self, a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send));
}

/// One after the other.
pub struct OneThread;

impl Join for OneThread {
    fn join(&self, a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
        a();
        b();
    }
}

/// Side by side.
#[cfg(feature = "std")]
pub struct TwoThreads;

#[cfg(feature = "std")]
impl Join for TwoThreads {
    fn join(&self, a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
        std::thread::scope(|scope| {
            scope.spawn(b);
            a();
        });
    }
}
