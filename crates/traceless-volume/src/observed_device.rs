//! A device with an observer of its requests: a recorder, or a live page.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//! use traceless_core::trace::Op;
//! use traceless_volume::device::Device;
//! use traceless_volume::observed_device::{ObservedDevice, RequestObserver};
//! # struct Zeros;
//! # impl Device for Zeros {
//! #     fn len(&self) -> u64 { 8192 }
//! #     fn block_len(&self) -> u32 { 4096 }
//! #     fn read_only(&self) -> bool { true }
//! #     fn read(&self, _: u64, into: &mut [u8]) -> std::io::Result<()> { Ok(into.fill(0)) }
//! #     fn write(&self, _: u64, _: &[u8]) -> std::io::Result<()> { Ok(()) }
//! #     fn flush(&self) -> std::io::Result<()> { Ok(()) }
//! # }
//!
//! /// Adds up the bytes that are read.
//! #[derive(Default)]
//! struct ReadBytes(AtomicU64);
//!
//! impl RequestObserver for ReadBytes {
//!     type Timer<'a> = ();
//!
//!     fn observe(&self, op: Op, _: u64, len: u32) {
//!         if op == Op::Read {
//!             self.0.fetch_add(len.into(), Relaxed);
//!         }
//!     }
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! let device = ObservedDevice::new(Arc::new(Zeros), ReadBytes::default());
//! device.read(0, &mut [1; 100])?;
//! assert_eq!(device.observer().0.load(Relaxed), 100);
//! # Ok(())
//! # }
//! ```

use crate::device::Device;
use std::io;
use std::sync::Arc;
use traceless_core::trace::Op;
use traceless_core::types::Extent;

/// Observes the requests to a device.
pub trait RequestObserver: Send + Sync {
    /// Lives as long as a request, and may measure how long that is.
    type Timer<'a>
    where
        Self: 'a;

    /// A request for `len` bytes at `at` begins; lengths above the type's largest are that. A
    /// discard is a write, as it writes zeros, and a flush is a sync of no bytes.
    fn observe(&self, op: Op, at: u64, len: u32) -> Self::Timer<'_>;
}

/// A device with an observer.
pub struct ObservedDevice<O> {
    device: Arc<dyn Device>,
    observer: O,
}

impl<O: RequestObserver> ObservedDevice<O> {
    /// Lets `observer` observe the requests to `device`.
    pub fn new(device: Arc<dyn Device>, observer: O) -> Self {
        Self { device, observer }
    }

    /// The observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    fn observe(&self, op: Op, at: u64, len: u64) -> O::Timer<'_> {
        self.observer.observe(op, at, u32::try_from(len).unwrap_or(u32::MAX))
    }

    /// Observes requests for several places, which are carried out together.
    fn observe_many(&self, op: Op, places: &[Extent]) -> Vec<O::Timer<'_>> {
        places.iter().map(|place| self.observe(op, place.at, place.len as u64)).collect()
    }
}

#[deny(clippy::missing_trait_methods)]
impl<O: RequestObserver> Device for ObservedDevice<O> {
    fn len(&self) -> u64 {
        self.device.len()
    }
    fn is_empty(&self) -> bool {
        self.device.is_empty()
    }
    fn block_len(&self) -> u32 {
        self.device.block_len()
    }
    fn read_only(&self) -> bool {
        self.device.read_only()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let _timer = self.observe(Op::Read, at, into.len() as u64);
        self.device.read(at, into)
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let _timer = self.observe(Op::Write, at, from.len() as u64);
        self.device.write(at, from)
    }
    fn read_many(&self, places: &[Extent], into: &mut [u8]) -> io::Result<()> {
        let _timers = self.observe_many(Op::Read, places);
        self.device.read_many(places, into)
    }
    fn write_many(&self, places: &[Extent], from: &[u8]) -> io::Result<()> {
        let _timers = self.observe_many(Op::Write, places);
        self.device.write_many(places, from)
    }
    fn keeps_discards(&self) -> bool {
        self.device.keeps_discards()
    }
    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        let _timer = self.observe(Op::Write, at, len);
        self.device.discard(at, len)
    }
    fn flush(&self) -> io::Result<()> {
        let _timer = self.observe(Op::Sync, 0, 0);
        self.device.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Blank;

    impl Device for Blank {
        fn len(&self) -> u64 {
            1 << 40
        }
        fn block_len(&self) -> u32 {
            4096
        }
        fn read_only(&self) -> bool {
            false
        }
        fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }
        fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn discard(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Default)]
    struct Log(Mutex<Vec<(Op, u64, u32)>>);

    impl RequestObserver for Log {
        type Timer<'a> = ();

        fn observe(&self, op: Op, at: u64, len: u32) {
            self.0.lock().unwrap().push((op, at, len));
        }
    }

    #[test]
    fn every_request_is_observed_once() -> io::Result<()> {
        let device = ObservedDevice::new(Arc::new(Blank), Log::default());
        let places = [Extent { at: 5, len: 1 }, Extent { at: 9, len: 2 }];
        device.read(1, &mut [0; 3])?;
        device.write(2, &[0; 4])?;
        device.read_many(&places, &mut [0; 3])?;
        device.write_many(&places, &[0; 3])?;
        device.discard(4096, 1 << 36)?;
        device.flush()?;
        let observed = std::mem::take(&mut *device.observer().0.lock().unwrap());
        let expected = [
            (Op::Read, 1, 3),
            (Op::Write, 2, 4),
            (Op::Read, 5, 1),
            (Op::Read, 9, 2),
            (Op::Write, 5, 1),
            (Op::Write, 9, 2),
            (Op::Write, 4096, u32::MAX),
            (Op::Sync, 0, 0),
        ];
        assert_eq!(observed, expected);
        Ok(())
    }
}
