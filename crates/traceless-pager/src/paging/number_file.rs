//! Atomic numbers in files that several processes map.

use super::error::{Error, Result};
use super::kernel::locking::exclude_from_core_dumps;
use super::kernel::memory::{Mapping, check_len};
use core::marker::PhantomData;
use core::ops::Deref;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::Errno;
use std::path::Path;
use traceless::activity::Activity;

/// What a file may hold.
///
/// # Safety
/// The type has a fixed layout and consists of atomic numbers alone: any bits are a value.
pub unsafe trait AtomicNumbers: Send + Sync {}

// SAFETY: `repr(C)`, and all fields are atomic numbers, or structures and arrays of them.
unsafe impl AtomicNumbers for Activity {}

/// Atomic numbers in a file, shared with every process that maps it. They begin as zeros, and core
/// dumps leave them out.
pub struct NumberFile<T>(Mapping, PhantomData<T>);

/// What the paged programs and their stores do, in a file for a live page.
pub type ActivityFile = NumberFile<Activity>;

impl<T: AtomicNumbers> NumberFile<T> {
    /// Creates a file, unless there is one with this name.
    pub fn create_new(path: &Path) -> Result<Option<Self>> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Self::map(&file, true).map(Some),
            Err(Errno::EXIST) => Ok(None),
            Err(e) => Err(Error::os("numbers cannot be shared", e)),
        }
    }

    /// Opens a file that was created for the same numbers.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|e| Error::os("shared numbers cannot be read", e))?;
        Self::map(&file, false)
    }

    /// Keeps the numbers that this process reads or writes out of swap devices while it lives.
    pub fn lock(&self) -> Result<(), Errno> {
        self.0.lock()
    }

    fn map(file: &OwnedFd, is_new: bool) -> Result<Self> {
        let len = size_of::<T>();
        let refused = |e| Error::os("numbers cannot be shared", e);
        if is_new {
            // All of its space at once: where there is none, this fails, and no later access does.
            check_len(len as u64).map_err(refused)?;
            fallocate(file, FallocateFlags::empty(), 0, len as u64).map_err(refused)?;
        }
        if rustix::fs::fstat(file).map_err(refused)?.st_size as usize != len {
            return Err(Error::Configuration("the file does not hold these numbers"));
        }
        let mapping = Mapping::shared(file.as_fd(), len)?;
        exclude_from_core_dumps(mapping.start(), len)?;
        Ok(Self(mapping, PhantomData))
    }
}

impl<T: AtomicNumbers> Deref for NumberFile<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: a mapping of that size, aligned to a page, that lives as long as this; by the
        // promise of the trait any bits are a value, and other processes may change it at any time.
        // A process that shortens the file ends this one with a signal, at the next access.
        unsafe { &*self.0.at(0).cast() }
    }
}
