//! Both sides of a product: what the adversary observes, and what the user does.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use traceless_core::activity::{
    Activity, ActivityWitness, AuditReading, EventAudit, EventStream, LatencyHistogram,
    SharedActivity,
};
use traceless_core::clock::{Clock, MachineClock};
use traceless_core::trace::{Event, Op, Witness};

/// A value of the product itself, for the page and for Prometheus.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// Its name as a metric, as `volume_writes`; `None` if it is no metric.
    pub metric: Option<&'static str>,
    /// What it is, in a few words.
    pub help: &'static str,
    /// The value now.
    pub value: f64,
}

type Readings = Box<dyn Fn() -> Vec<Reading> + Send + Sync>;
type MetricsText = Box<dyn Fn() -> String + Send + Sync>;

/// Counts and samples both sides of a product. As a witness it records what the adversary observes;
/// what the user does comes in through methods of its own, and never mixes with it.
pub struct Monitor {
    title: String,
    witness: ActivityWitness,
    readings: OnceLock<Readings>,
    more_metrics: OnceLock<MetricsText>,
}

impl Monitor {
    /// A monitor of a product, which `title` names on the page.
    pub fn new(title: impl Into<String>) -> Self {
        Self::over(title, Arc::new(Box::<Activity>::default()))
    }

    /// A monitor of a product that may also record its activity by itself, by [`MachineClock`].
    pub fn over(title: impl Into<String>, activity: SharedActivity) -> Self {
        Self {
            title: title.into(),
            witness: ActivityWitness::new(activity),
            readings: OnceLock::new(),
            more_metrics: OnceLock::new(),
        }
    }

    /// What the adversary observes.
    pub fn adversary(&self) -> &EventStream {
        &self.activity().adversary
    }

    /// What the user does.
    pub fn user(&self) -> &EventStream {
        &self.activity().user
    }

    /// A further witness of what the adversary observes, which may have an audit of its own.
    pub fn further_witness(&self) -> ActivityWitness {
        ActivityWitness::new(self.witness.activity().clone())
    }

    /// Audits what the adversary observes from now on. Only the first call counts.
    pub fn start_audit(&self, audit: Box<dyn EventAudit>) {
        self.witness.start_audit(audit);
    }

    /// Sets the function that reads the product's own values. Only the first call counts.
    pub fn set_readings(&self, readings: impl Fn() -> Vec<Reading> + Send + Sync + 'static) {
        let _ = self.readings.set(Box::new(readings));
    }

    /// Sets the function that writes further metrics of the product, in the format of Prometheus.
    /// Only the first call counts.
    pub fn set_more_metrics(&self, text: impl Fn() -> String + Send + Sync + 'static) {
        let _ = self.more_metrics.set(Box::new(text));
    }

    /// Records a request of the user without its end.
    pub fn record_request(&self, op: Op, at: u64, len: u32) {
        self.activity().user.record(&MachineClock, op, at, len);
    }

    /// Records a request of the user, which ends when the result is dropped. Only sampled requests
    /// are timed, as a clock costs more than all counters.
    pub fn time_request(&self, op: Op, at: u64, len: u32) -> RequestTimer<'_> {
        let is_sample = self.activity().user.record(&MachineClock, op, at, len);
        self.activity().in_flight.fetch_add(1, Relaxed);
        RequestTimer { monitor: self, op, began: is_sample.then(|| MachineClock.now()) }
    }

    /// Records how long a request of the user took.
    pub fn record_latency(&self, op: Op, ns: u64) {
        self.activity().latencies[op as usize].record(ns);
    }

    pub(crate) fn audit(&self) -> AuditReading {
        self.activity().audit.read()
    }

    fn activity(&self) -> &Activity {
        self.witness.activity()
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn latencies(&self) -> &[LatencyHistogram; 3] {
        &self.activity().latencies
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.activity().in_flight.load(Relaxed)
    }

    pub(crate) fn readings(&self) -> Vec<Reading> {
        self.readings.get().map_or_else(Vec::new, |read| read())
    }

    pub(crate) fn more_metrics(&self) -> String {
        self.more_metrics.get().map_or_else(String::new, |text| text())
    }
}

impl Witness for Monitor {
    #[inline]
    fn record(&self, event: Event) {
        self.witness.record(event);
    }
}

/// A request that is being answered, until it is dropped.
pub struct RequestTimer<'a> {
    monitor: &'a Monitor,
    op: Op,
    began: Option<u64>,
}

impl Drop for RequestTimer<'_> {
    fn drop(&mut self) {
        if let Some(began) = self.began {
            let took = MachineClock.now().saturating_sub(began);
            self.monitor.record_latency(self.op, took);
        }
        self.monitor.activity().in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::trace::Surface;

    #[test]
    fn the_two_sides_do_not_mix() {
        let monitor = Monitor::new("test");
        monitor.record(Event { time: 9, surface: Surface::Storage, op: Op::Write, at: 5, len: 2 });
        monitor.record_request(Op::Read, 6, 3);
        let timer = monitor.time_request(Op::Read, 7, 4);
        assert_eq!((monitor.in_flight(), monitor.latencies()[0].counts().len()), (1, 0));
        drop(timer);
        assert_eq!((monitor.in_flight(), monitor.latencies()[0].counts().len()), (0, 1));
        assert_eq!(monitor.adversary().totals(), [(0, 0), (1, 2), (0, 0)]);
        assert_eq!(monitor.user().totals(), [(2, 7), (0, 0), (0, 0)]);
    }
}
