//! The device as the FUSE and ublk front ends call it: with error numbers, and without panics.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::Errno;

use crate::device::Device;

/// A device that refuses all service after a panic in it, as its state in memory may be half
/// changed. Without this the thread would die, and later requests would wait for ever.
pub(crate) struct GuardedDevice {
    device: Arc<dyn Device>,
    broken: AtomicBool,
}

impl GuardedDevice {
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        Self { device, broken: AtomicBool::new(false) }
    }

    pub(crate) fn len(&self) -> u64 {
        self.device.len()
    }

    pub(crate) fn block_len(&self) -> u32 {
        self.device.block_len()
    }

    pub(crate) fn read_only(&self) -> bool {
        self.device.read_only()
    }

    pub(crate) fn keeps_discards(&self) -> bool {
        self.device.keeps_discards()
    }

    pub(crate) fn flush(&self) -> Result<(), Errno> {
        self.call(|device| device.flush())
    }

    pub(crate) fn call<T>(
        &self,
        work: impl FnOnce(&dyn Device) -> io::Result<T>,
    ) -> Result<T, Errno> {
        if self.broken.load(Ordering::Acquire) {
            return Err(Errno::EIO);
        }
        if let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| work(&*self.device))) {
            outcome.map_err(|error| errno(&error))
        } else {
            self.broken.store(true, Ordering::Release);
            Err(Errno::EIO)
        }
    }
}

/// The error number that describes the failure best.
fn errno(error: &io::Error) -> Errno {
    if let Some(code) = error.raw_os_error() {
        return Errno::from_i32(code);
    }
    match error.kind() {
        io::ErrorKind::StorageFull => Errno::ENOSPC,
        io::ErrorKind::ReadOnlyFilesystem => Errno::EROFS,
        io::ErrorKind::PermissionDenied => Errno::EPERM,
        io::ErrorKind::InvalidInput => Errno::EINVAL,
        io::ErrorKind::OutOfMemory => Errno::ENOMEM,
        io::ErrorKind::TimedOut => Errno::ETIMEDOUT,
        io::ErrorKind::Unsupported => Errno::EOPNOTSUPP,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;

    impl Device for Panics {
        fn len(&self) -> u64 {
            8192
        }

        fn block_len(&self) -> u32 {
            4096
        }

        fn read_only(&self) -> bool {
            false
        }

        fn read(&self, at: u64, _into: &mut [u8]) -> io::Result<()> {
            assert_ne!(at, 0, "the panic that the test asks for");
            Ok(())
        }

        fn write(&self, _at: u64, _from: &[u8]) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&self) -> io::Result<()> {
            Err(io::Error::other("no number"))
        }
    }

    #[test]
    fn a_panic_ends_all_service() {
        let device = GuardedDevice::new(Arc::new(Panics));
        let read = |at| device.call(|device| device.read(at, &mut []));
        assert_eq!(read(4096), Ok(()));
        assert_eq!(read(0), Err(Errno::EIO));
        assert_eq!(read(4096), Err(Errno::EIO));
    }

    #[test]
    fn errors_become_numbers() {
        let device = GuardedDevice::new(Arc::new(Panics));
        assert_eq!(device.call(|device| device.write(0, &[1])), Err(Errno::ENOSPC));
        assert_eq!(device.flush(), Err(Errno::EIO));
        assert_eq!(errno(&io::Error::from_raw_os_error(30)), Errno::EROFS);
        assert_eq!(errno(&io::Error::from_raw_os_error(0)), Errno::EIO);
    }
}
