//! The live page of a simulated machine: lines on the memory bus beside requests to the memory.

use super::event_op;
use crate::dashboard::Dashboard;
use std::sync::Arc;
use traceless_core::trace::{Event, Witness};
use traceless_dashboard::Monitor;
use traceless_sim::LiveObserver;
use traceless_sim::workload::{LINE_LEN, Op};

/// The observer of all runs that are made.
pub fn observer(dashboard: &Dashboard) -> Option<Arc<dyn LiveObserver>> {
    let monitor = dashboard.monitor()?.clone();
    Some(Arc::new(MonitoredMachine(monitor)))
}

struct MonitoredMachine(Arc<Monitor>);

impl Witness for MonitoredMachine {
    #[inline]
    fn record(&self, event: Event) {
        self.0.record(event);
    }
}

impl LiveObserver for MonitoredMachine {
    fn begin(&self, bus: u64, requests: u64) {
        self.0.adversary().set_space(bus);
        self.0.user().set_space(requests);
    }

    #[inline]
    fn record_request(&self, op: Op, addr: u64) {
        self.0.record_request(event_op(op), addr, LINE_LEN as u32);
    }
}
