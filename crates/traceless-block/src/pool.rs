//! Reusable buffers for concurrent readers of one scheme.

/// Lends values of `T` and takes them back, so that a request allocates nothing.
#[derive(Default)]
pub struct Pool<T> {
    #[cfg(feature = "std")]
    free: std::sync::Mutex<alloc::vec::Vec<T>>,
    #[cfg(not(feature = "std"))]
    _none: core::marker::PhantomData<fn() -> T>,
}

impl<T: Default> Pool<T> {
    /// Runs `work` with a value that no other caller holds.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.take();
        let result = work(&mut value);
        self.give(value);
        result
    }

    #[cfg(feature = "std")]
    fn take(&self) -> T {
        self.free.lock().expect("nothing panics under this lock").pop().unwrap_or_default()
    }

    #[cfg(feature = "std")]
    fn give(&self, value: T) {
        self.free.lock().expect("nothing panics under this lock").push(value);
    }

    // Without `std` there is no mutex: each call gets a fresh buffer.
    #[cfg(not(feature = "std"))]
    fn take(&self) -> T {
        T::default()
    }

    #[cfg(not(feature = "std"))]
    fn give(&self, _: T) {}
}

/// One value that all readers of a scheme share and change.
#[derive(Default)]
pub struct SharedCell<T> {
    #[cfg(feature = "std")]
    value: std::sync::Mutex<T>,
    #[cfg(not(feature = "std"))]
    _none: core::marker::PhantomData<fn() -> T>,
}

impl<T: Default> SharedCell<T> {
    /// Runs `work`, which must be short, under the lock.
    #[cfg(feature = "std")]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.value.lock().expect("nothing panics under this lock"))
    }

    // Without `std` there is no mutex: each call gets a fresh value.
    #[cfg(not(feature = "std"))]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut T::default())
    }
}
