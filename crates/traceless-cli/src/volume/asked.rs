//! A decorator that records the requests to a device.

use crate::trace::Trace;
use std::io;
use std::sync::Arc;
use traceless_core::trace::Op;
use traceless_volume::device::Device;

/// `device`, decorated so that its requests are recorded, if `trace` records secrets.
pub fn noted<D: Device + 'static>(device: Arc<D>, trace: &Trace) -> Arc<dyn Device> {
    match trace.asks() {
        None => device,
        Some(note) => Arc::new(RecordedDevice { device, note }),
    }
}

struct RecordedDevice<D, N> {
    device: Arc<D>,
    note: N,
}

impl<D, N: Fn(Op, u64, u32)> RecordedDevice<D, N> {
    fn note(&self, op: Op, at: u64, bytes: &[u8]) {
        (self.note)(op, at, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    }
}

#[deny(clippy::missing_trait_methods)]
impl<D: Device, N: Fn(Op, u64, u32) + Send + Sync> Device for RecordedDevice<D, N> {
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
        self.note(Op::Read, at, into);
        self.device.read(at, into)
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.note(Op::Write, at, from);
        self.device.write(at, from)
    }
    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }
}
