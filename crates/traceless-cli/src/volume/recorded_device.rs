//! A decorator that records the requests to a device.

use crate::trace::Trace;
use std::io;
use std::sync::Arc;
use traceless_core::trace::Op;
use traceless_volume::device::Device;

/// `device`, decorated so that its requests are recorded, if `trace` records secrets.
pub fn record_requests<D: Device + 'static>(device: Arc<D>, trace: &Trace) -> Arc<dyn Device> {
    match trace.request_recorder() {
        None => device,
        Some(record) => Arc::new(RecordedDevice { device, record }),
    }
}

struct RecordedDevice<D, N> {
    device: Arc<D>,
    record: N,
}

impl<D, N: Fn(Op, u64, u32)> RecordedDevice<D, N> {
    fn record(&self, op: Op, at: u64, bytes: &[u8]) {
        (self.record)(op, at, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
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
        self.record(Op::Read, at, into);
        self.device.read(at, into)
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.record(Op::Write, at, from);
        self.device.write(at, from)
    }
    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }
}
