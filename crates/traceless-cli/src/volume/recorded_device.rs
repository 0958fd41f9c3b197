//! Decorators that record the requests to a device.

use crate::dashboard::Dashboard;
use crate::trace::Trace;
use std::io;
use std::sync::Arc;
use traceless_core::trace::Op;
use traceless_dashboard::{Monitor, Reading};
use traceless_volume::device::Device;
use traceless_volume::volume::Volume;

/// The volume as a device, decorated so that its requests are recorded, if `trace` records secrets,
/// and shown, if there is a dashboard.
pub fn record_requests(
    volume: Arc<Volume>,
    trace: &Trace,
    dashboard: &Dashboard,
) -> Arc<dyn Device> {
    let recorded: Arc<dyn Device> = match trace.request_recorder() {
        None => volume.clone(),
        Some(record) => Arc::new(RecordedDevice { device: volume.clone(), record }),
    };
    let Some(monitor) = dashboard.monitor() else { return recorded };
    monitor.user().set_space(volume.len());
    monitor.set_readings(move || readings(&volume));
    Arc::new(MonitoredDevice { device: recorded, monitor: monitor.clone() })
}

fn readings(volume: &Volume) -> Vec<Reading> {
    [
        (Some("volume_writes"), "Blocks written since the volume was made", volume.writes()),
        (Some("volume_generation"), "Generation of the newest superblock", volume.generation()),
        (Some("volume_block_bytes"), "Bytes of a block", volume.block_len().into()),
    ]
    .map(|(metric, help, value)| Reading { metric, help, value: value as f64 })
    .into()
}

struct RecordedDevice<D, N> {
    device: Arc<D>,
    record: N,
}

impl<D, N: Fn(Op, u64, u32)> RecordedDevice<D, N> {
    fn record(&self, op: Op, at: u64, bytes: &[u8]) {
        (self.record)(op, at, len_of(bytes));
    }
}

fn len_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// A device with a monitor of its requests.
struct MonitoredDevice {
    device: Arc<dyn Device>,
    monitor: Arc<Monitor>,
}

#[deny(clippy::missing_trait_methods)]
impl Device for MonitoredDevice {
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
        let _timer = self.monitor.time_request(Op::Read, at, len_of(into));
        self.device.read(at, into)
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let _timer = self.monitor.time_request(Op::Write, at, len_of(from));
        self.device.write(at, from)
    }
    fn flush(&self) -> io::Result<()> {
        let _timer = self.monitor.time_request(Op::Sync, 0, 0);
        self.device.flush()
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
