//! A decorator that records the requests to a device.

use crate::dashboard::Dashboard;
use crate::trace::Trace;
use std::io;
use std::sync::Arc;
use traceless_core::trace::Op;
use traceless_core::types::Extent;
use traceless_dashboard::{Monitor, Reading, RequestTimer};
use traceless_volume::device::Device;
use traceless_volume::volume::Volume;

/// The `device` of a volume, decorated so that its requests are recorded, if `trace` records
/// secrets, and shown, if there is a dashboard.
pub fn record_requests(
    volume: &Arc<Volume>,
    device: Arc<dyn Device>,
    trace: &Trace,
    dashboard: &Dashboard,
) -> Arc<dyn Device> {
    let (recorder, monitor) = (trace.request_recorder(), dashboard.monitor().cloned());
    if let Some(monitor) = &monitor {
        let volume = volume.clone();
        monitor.user().set_space(volume.len());
        monitor.start_audit(Box::new(volume.place_audit()));
        monitor.set_readings(move || readings(&volume));
    }
    if recorder.is_none() && monitor.is_none() {
        return device;
    }
    Arc::new(RecordedDevice { device, recorder, monitor })
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

struct RecordedDevice<R> {
    device: Arc<dyn Device>,
    recorder: Option<R>,
    monitor: Option<Arc<Monitor>>,
}

impl<R> RecordedDevice<R> {
    /// Measures how long a request takes, until the timer is dropped.
    fn time(&self, op: Op, at: u64, len: u32) -> Option<RequestTimer<'_>> {
        self.monitor.as_ref().map(|monitor| monitor.time_request(op, at, len))
    }
}

impl<R: Fn(Op, u64, u32)> RecordedDevice<R> {
    /// Records requests for several places, which are carried out together.
    fn observe(&self, op: Op, places: &[Extent]) -> Vec<Option<RequestTimer<'_>>> {
        let observe = |place: &Extent| {
            let len = u32::try_from(place.len).unwrap_or(u32::MAX);
            let timer = self.time(op, place.at, len);
            self.record(op, place.at, len);
            timer
        };
        places.iter().map(observe).collect()
    }

    fn record(&self, op: Op, at: u64, len: u32) {
        if let Some(record) = &self.recorder {
            record(op, at, len);
        }
    }
}

fn len_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[deny(clippy::missing_trait_methods)]
impl<R: Fn(Op, u64, u32) + Send + Sync> Device for RecordedDevice<R> {
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
        let _timer = self.time(Op::Read, at, len_of(into));
        self.record(Op::Read, at, len_of(into));
        self.device.read(at, into)
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let _timer = self.time(Op::Write, at, len_of(from));
        self.record(Op::Write, at, len_of(from));
        self.device.write(at, from)
    }
    fn read_many(&self, places: &[Extent], into: &mut [u8]) -> io::Result<()> {
        let _timers = self.observe(Op::Read, places);
        self.device.read_many(places, into)
    }
    fn write_many(&self, places: &[Extent], from: &[u8]) -> io::Result<()> {
        let _timers = self.observe(Op::Write, places);
        self.device.write_many(places, from)
    }
    fn keeps_discards(&self) -> bool {
        self.device.keeps_discards()
    }
    /// A discard writes zeros, as a client sees it.
    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        let recorded = u32::try_from(len).unwrap_or(u32::MAX);
        let _timer = self.time(Op::Write, at, recorded);
        self.record(Op::Write, at, recorded);
        self.device.discard(at, len)
    }
    /// A flush is no access to data, so only the page shows it.
    fn flush(&self) -> io::Result<()> {
        let _timer = self.time(Op::Sync, 0, 0);
        self.device.flush()
    }
}
