//! The live page of a simulated machine: lines on the memory bus beside requests to the memory.

use super::event_op;
use crate::dashboard::Dashboard;
use std::sync::Arc;
use traceless_core::activity::ActivityWitness;
use traceless_core::store::{DrawnPlaces, PlaceAudit};
use traceless_core::trace::{Event, Witness};
use traceless_dashboard::Monitor;
use traceless_sim::workload::{LINE_LEN, Op};
use traceless_sim::{LiveObserver, LiveRun};

/// The observer of all runs that are made.
pub fn observer(dashboard: &Dashboard) -> Option<Arc<dyn LiveObserver>> {
    let monitor = dashboard.monitor()?.clone();
    Some(Arc::new(MonitoredRuns(monitor)))
}

struct MonitoredRuns(Arc<Monitor>);

impl LiveObserver for MonitoredRuns {
    fn begin(&self, bus: u64) -> Arc<dyn LiveRun> {
        self.0.adversary().set_space(bus);
        Arc::new(MonitoredRun { witness: self.0.further_witness(), monitor: self.0.clone() })
    }
}

struct MonitoredRun {
    monitor: Arc<Monitor>,
    /// The trees of runs differ, so each run has an audit of its own.
    witness: ActivityWitness,
}

impl Witness for MonitoredRun {
    #[inline]
    fn record(&self, event: Event) {
        self.witness.record(event);
    }
}

impl LiveRun for MonitoredRun {
    fn begin_requests(&self, bytes: u64, leaves: Option<Box<dyn DrawnPlaces>>) {
        self.monitor.user().set_space(bytes);
        if let Some(leaves) = leaves {
            self.witness.start_audit(Box::new(PlaceAudit::default().with_draws(leaves)));
        }
    }

    #[inline]
    fn record_request(&self, op: Op, addr: u64) {
        self.monitor.record_request(event_op(op), addr, LINE_LEN as u32);
    }
}
