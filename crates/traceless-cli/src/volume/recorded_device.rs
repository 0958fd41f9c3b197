//! The requests to a device, recorded and shown.

use crate::dashboard::Dashboard;
use crate::trace::Trace;
use std::sync::Arc;
use traceless_core::trace::Op;
use traceless_dashboard::{Monitor, Reading, RequestTimer};
use traceless_volume::device::Device;
use traceless_volume::observed_device::{ObservedDevice, RequestObserver};
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
    Arc::new(ObservedDevice::new(device, Observers { recorder, monitor }))
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

struct Observers<R> {
    recorder: Option<R>,
    monitor: Option<Arc<Monitor>>,
}

impl<R: Fn(Op, u64, u32) + Send + Sync> RequestObserver for Observers<R> {
    type Timer<'a>
        = Option<RequestTimer<'a>>
    where
        Self: 'a;

    fn observe(&self, op: Op, at: u64, len: u32) -> Option<RequestTimer<'_>> {
        // A flush is no access to data, so only the page shows it.
        if let Some(record) = self.recorder.as_ref().filter(|_| op != Op::Sync) {
            record(op, at, len);
        }
        self.monitor.as_ref().map(|monitor| monitor.time_request(op, at, len))
    }
}
