//! What a Python object holds: a value that threads share, and that can be closed.

use crate::failure::{Failure, Result};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that one thread at a time uses, without the lock of the interpreter.
pub struct Handle<T: Send> {
    value: Mutex<Option<T>>,
    /// The thread that uses the value, by [`this_thread`]; 0 is none. A thread reads its own number
    /// here only if it has stored it.
    user: AtomicUsize,
    /// The name of the value in messages.
    name: &'static str,
}

impl<T: Send> Handle<T> {
    /// A handle of a value, which messages call `name`.
    pub fn new(name: &'static str, value: T) -> Self {
        Self { value: Mutex::new(Some(value)), user: AtomicUsize::new(0), name }
    }

    /// Works with the value. Other threads of Python run meanwhile.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> Result<R> + Send,
    ) -> Result<R> {
        py.detach(|| {
            self.refuse_reentry()?;
            let mut value = held(&self.value);
            let value = value.as_mut().ok_or_else(|| self.closed_error())?;
            let _use = UseMark::new(&self.user);
            work(value)
        })
    }

    /// Takes the value out and ends it; `None` if this was done before.
    pub fn take<R: Send>(
        &self,
        py: Python<'_>,
        end: impl FnOnce(T) -> Result<R> + Send,
    ) -> Result<Option<R>> {
        py.detach(|| {
            self.refuse_reentry()?;
            let value = held(&self.value).take();
            value.map(end).transpose()
        })
    }

    /// Whether the value was taken out.
    pub fn is_closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.refuse_reentry().is_ok() && held(&self.value).is_none())
    }

    /// The error of a call after the end.
    fn closed_error(&self) -> Failure {
        Failure::usage(format!("the {} is closed", self.name))
    }

    /// A function of the caller that runs within an access would wait for its own end.
    fn refuse_reentry(&self) -> Result {
        if self.user.load(Relaxed) == this_thread() {
            let name = self.name;
            return Err(Failure::usage(format!("a function of `update` may not use its {name}")));
        }
        Ok(())
    }
}

/// A number that no other running thread has: the address of a byte of its own.
fn this_thread() -> usize {
    thread_local!(static BYTE: u8 = const { 0 });
    BYTE.with(|byte| core::ptr::from_ref(byte).addr())
}

/// The mark of the thread that uses a value, as long as it does.
struct UseMark<'a>(&'a AtomicUsize);

impl<'a> UseMark<'a> {
    fn new(user: &'a AtomicUsize) -> Self {
        user.store(this_thread(), Relaxed);
        Self(user)
    }
}

impl Drop for UseMark<'_> {
    fn drop(&mut self) {
        self.0.store(0, Relaxed);
    }
}

impl<T: Send> Drop for Handle<T> {
    fn drop(&mut self) {
        drop_detached(held(&self.value).take());
    }
}

/// Drops a value without the lock of the interpreter, since its end may take long.
pub fn drop_detached<T: Send>(value: T) {
    let mut value = Some(value);
    // At the end of the interpreter there is no lock, and the value is dropped below.
    let _ = Python::try_attach(|py| py.detach(|| drop(value.take())));
}

/// A panic leaves the value as its own state says: schemes refuse to go on after one.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
