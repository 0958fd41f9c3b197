//! Metrics in the text format of Prometheus. No names, no sizes of single values.

use crate::error::Error;
use crate::gateway::{Gateway, Namespace};
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use traceless_core::clock::{Clock, Monotonic};

/// Upper bounds of the latency classes, in seconds.
const SECONDS: [f64; 14] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0,
    10.0,
];

/// The protocol of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Redis.
    Resp,
    /// S3.
    S3,
}

impl Protocol {
    fn label(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::S3 => "s3",
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Removes values.
    Remove,
    /// Reads the gateway's own state, which sends no query.
    State,
}

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Remove => "remove",
            Self::State => "look",
        }
    }
}

/// Whether a gateway can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Health {
    /// The gateway is being opened.
    Starting,
    /// The gateway answers requests.
    Ready,
    /// The last operation failed, for a reason other than the client's request.
    Failing,
    /// The gateway finishes running requests and accepts no new ones.
    Stopping,
}

/// Gets the kind of a request, and how many nanoseconds its answer took.
type LatencyObserver = Box<dyn Fn(Kind, u64) + Send + Sync>;

/// Counters of a gateway and its front ends.
pub struct Metrics {
    registry: Registry,
    clock: Monotonic,
    health: AtomicU8,
    requests: IntCounterVec,
    seconds: HistogramVec,
    bytes: IntCounterVec,
    connections: IntGaugeVec,
    errors: IntCounterVec,
    requests_waiting: IntGauge,
    gateway: GatewayMetrics,
    latency_observer: OnceLock<LatencyObserver>,
}

/// Counters that copy the gateway's own.
struct GatewayMetrics {
    queries: IntCounter,
    hits: IntCounter,
    rounds: IntCounter,
    renewed: IntCounter,
    scrubbed: IntCounter,
    copied: IntCounter,
    trees: IntGaugeVec,
    damaged: IntCounter,
    lost: IntGauge,
    waits: IntCounter,
    ticks: IntCounterVec,
    ticks_late: IntCounter,
    tick_delay: Gauge,
    stash: IntGauge,
    stash_max: IntGauge,
    blocks_used: IntGauge,
    names: IntGaugeVec,
    blocks: IntGauge,
    block_bytes: IntGauge,
}

/// A caller that waits for the gateway, counted until this is dropped.
pub struct WaitingRequest<'a>(&'a IntGauge);

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A request that is being answered.
pub struct Request<'a> {
    metrics: &'a Metrics,
    protocol: Protocol,
    kind: Kind,
    seconds: Histogram,
    began: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        let metrics = Self {
            clock: Monotonic::start(),
            health: AtomicU8::new(Health::Starting as u8),
            requests: counters(
                &registry,
                "requests_total",
                "Requests answered",
                &["protocol", "kind", "result"],
            ),
            seconds: seconds(&registry),
            bytes: counters(
                &registry,
                "bytes_total",
                "Bytes of values that came in and went out",
                &["protocol", "direction"],
            ),
            connections: gauges(&registry, "connections", "Clients connected", "protocol"),
            errors: counters(
                &registry,
                "errors_total",
                "What failed for a reason that is not the client's",
                &["kind"],
            ),
            requests_waiting: gauge(
                &registry,
                "asking",
                "Requests that wait for the gateway, or for a slot",
            ),
            gateway: GatewayMetrics::new(&registry),
            latency_observer: OnceLock::new(),
            registry,
        };
        let registry = &metrics.registry;
        // The names follow an operator's question: what protects the enclave?
        let tee = gauges(registry, "tee_info", "What protects the enclave", "tee_protection");
        tee.with_label_values(&["none"]).set(1);
        let build = gauges(registry, "build_info", "The program", "version");
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        metrics
    }
}

impl Metrics {
    /// Whether the gateway can be used.
    pub fn health(&self) -> Health {
        let all = [Health::Starting, Health::Ready, Health::Failing, Health::Stopping];
        all[self.health.load(Ordering::Relaxed) as usize]
    }

    /// Sets the health.
    pub fn set_health(&self, health: Health) {
        self.health.store(health as u8, Ordering::Relaxed);
    }

    /// Counts a client that connects.
    pub fn connected(&self, protocol: Protocol) {
        self.connections.with_label_values(&[protocol.label()]).inc();
    }

    /// Counts a client that disconnects.
    pub fn disconnected(&self, protocol: Protocol) {
        self.connections.with_label_values(&[protocol.label()]).dec();
    }

    /// Counts a request from now on.
    pub fn request(&self, protocol: Protocol, kind: Kind) -> Request<'_> {
        let seconds = self.seconds.with_label_values(&[protocol.label(), kind.label()]);
        Request { metrics: self, protocol, kind, seconds, began: self.clock.now() }
    }

    /// Counts a caller that waits for the gateway, until the result is dropped.
    pub(super) fn waiting_request(&self) -> WaitingRequest<'_> {
        self.requests_waiting.inc();
        WaitingRequest(&self.requests_waiting)
    }

    /// Counts bytes of a value that a client sent.
    pub fn took(&self, protocol: Protocol, bytes: usize) {
        self.bytes.with_label_values(&[protocol.label(), "in"]).inc_by(bytes as u64);
    }

    /// Counts bytes of a value that a client received.
    pub fn gave(&self, protocol: Protocol, bytes: usize) {
        self.bytes.with_label_values(&[protocol.label(), "out"]).inc_by(bytes as u64);
    }

    /// Copies the gateway's own counters.
    pub(super) fn observe(&self, gateway: &Gateway) {
        self.gateway.observe(gateway);
    }

    /// An operation of the gateway succeeded.
    pub(super) fn succeeded(&self) {
        self.change_health(Health::Failing, Health::Ready);
    }

    /// An operation of the gateway failed.
    pub(super) fn failed(&self, error: &Error) {
        self.errors.with_label_values(&[error.kind()]).inc();
        if matches!(error.kind(), "request" | "full" | "lost") {
            return;
        }
        tracing::error!(kind = error.kind(), "the gateway failed");
        self.change_health(Health::Ready, Health::Failing);
    }

    fn change_health(&self, from: Health, to: Health) {
        let order = Ordering::Relaxed;
        let _ = self.health.compare_exchange(from as u8, to as u8, order, order);
    }

    /// Calls `observer` with the kind of each answered request, and how many nanoseconds the answer
    /// took. Only the first call counts.
    pub fn set_latency_observer(&self, observer: impl Fn(Kind, u64) + Send + Sync + 'static) {
        let _ = self.latency_observer.set(Box::new(observer));
    }

    /// Values for an operator, each with what it is.
    pub fn readings(&self) -> [(&'static str, u64); 8] {
        let gateway = &self.gateway;
        let level = |gauge: &IntGauge| u64::try_from(gauge.get()).unwrap_or(0);
        [
            ("Requests that wait for the gateway, or for a slot", level(&self.requests_waiting)),
            ("Blocks that wait at the gateway", level(&gateway.stash)),
            ("Most blocks that waited at once", level(&gateway.stash_max)),
            ("Blocks that hold something", level(&gateway.blocks_used)),
            ("Queries sent to the host", gateway.queries.get()),
            ("Blocks that were at hand, so that nothing was sent", gateway.hits.get()),
            ("Rounds committed", gateway.rounds.get()),
            ("Times that a query waited for a round", gateway.waits.get()),
        ]
    }

    /// All metrics, as text.
    pub fn text(&self) -> String {
        // Encoding fails only for a family without values, and every family here has values.
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

impl Request<'_> {
    /// Counts the request as answered, successfully or not.
    pub fn answered(self, well: bool) {
        let result = if well { "ok" } else { "error" };
        let labels = [self.protocol.label(), self.kind.label(), result];
        self.metrics.requests.with_label_values(&labels).inc();
        let ns = self.metrics.clock.now() - self.began;
        self.seconds.observe(ns as f64 / 1e9);
        if let Some(observer) = self.metrics.latency_observer.get() {
            observer(self.kind, ns);
        }
    }
}

impl GatewayMetrics {
    fn new(registry: &Registry) -> Self {
        let counter = |name, help| {
            let counter = IntCounter::with_opts(opts(name, help)).expect("a sound name");
            registry.register(Box::new(counter.clone())).expect("registered once");
            counter
        };
        let gauge = |name, help| gauge(registry, name, help);
        let tick_delay = Gauge::with_opts(opts(
            "slot_delay_seconds_max",
            "By how much the latest tick was late",
        ));
        let tick_delay = tick_delay.expect("a sound name");
        registry.register(Box::new(tick_delay.clone())).expect("registered once");
        Self {
            queries: counter("queries_total", "Queries sent to the host"),
            hits: counter("hits_total", "Blocks that were at hand, so that nothing was sent"),
            rounds: counter("rounds_total", "Rounds committed"),
            renewed: counter("renewed_nodes_total", "Nodes made anew by themselves"),
            scrubbed: counter("scrubbed_nodes_total", "Nodes verified by the scrub"),
            copied: counter("copied_nodes_total", "Nodes copied to the host that gets their tree"),
            trees: gauges(registry, "trees", "Trees at each host", "host"),
            damaged: counter("damaged_slots_total", "Times that a damaged slot was found"),
            lost: gauge("lost_blocks", "Blocks lost with damaged slots, and not written since"),
            waits: counter("waits_total", "Times that a query waited for a round"),
            ticks: counters(registry, "slots_total", "Ticks of the constant rate", &["use"]),
            ticks_late: counter("slots_late_total", "Ticks that were late by a period or more"),
            tick_delay,
            stash: gauge("waiting_blocks", "Blocks that wait at the gateway"),
            stash_max: gauge("waiting_blocks_max", "Most blocks that waited at once"),
            blocks_used: gauge("blocks_used", "Blocks that hold something"),
            names: gauges(registry, "names", "Names", "space"),
            blocks: gauge("blocks", "Blocks of the tree"),
            block_bytes: gauge("block_bytes", "Bytes of a block"),
        }
    }

    fn observe(&self, gateway: &Gateway) {
        let counts = gateway.counts();
        // The gateway's lock is held, so no other thread changes these counters.
        let raise =
            |counter: &IntCounter, to: u64| counter.inc_by(to.saturating_sub(counter.get()));
        raise(&self.queries, counts.queries);
        raise(&self.hits, counts.hits);
        raise(&self.rounds, counts.rounds);
        raise(&self.renewed, counts.renewed);
        raise(&self.scrubbed, counts.scrubbed);
        raise(&self.copied, counts.copied);
        for (host, trees) in gateway.tree_counts().into_iter().enumerate() {
            self.trees.with_label_values(&[&host.to_string()]).set(level(trees));
        }
        raise(&self.damaged, counts.damaged);
        self.lost.set(level(gateway.lost_blocks()));
        raise(&self.waits, counts.waits);
        for (label, ticks) in [("block", counts.ticks_used), ("nothing", counts.ticks_unused)] {
            raise(&self.ticks.with_label_values(&[label]), ticks);
        }
        raise(&self.ticks_late, counts.ticks_late);
        self.tick_delay.set(counts.tick_delay_max_ns as f64 / 1e9);
        self.stash.set(level(gateway.stash_len()));
        self.stash_max.set(level(counts.stash_max));
        self.blocks_used.set(level(gateway.blocks_used()));
        for (namespace, label) in [(Namespace::Values, "values"), (Namespace::Objects, "objects")] {
            self.names.with_label_values(&[label]).set(level(gateway.names(namespace)));
        }
        self.blocks.set(level(gateway.params().blocks as usize));
        self.block_bytes.set(level(gateway.params().geometry.block_len));
    }
}

/// Converts a count to the integer type of gauges.
fn level(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("traceless_{name}"), help)
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let counters = IntCounterVec::new(opts(name, help), labels).expect("sound names");
    registry.register(Box::new(counters.clone())).expect("registered once");
    counters
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    let gauge = IntGauge::with_opts(opts(name, help)).expect("a sound name");
    registry.register(Box::new(gauge.clone())).expect("registered once");
    gauge
}

fn gauges(registry: &Registry, name: &str, help: &str, label: &str) -> IntGaugeVec {
    let gauges = IntGaugeVec::new(opts(name, help), &[label]).expect("sound names");
    registry.register(Box::new(gauges.clone())).expect("registered once");
    gauges
}

fn seconds(registry: &Registry) -> HistogramVec {
    let common_opts = opts("request_seconds", "How long answers took");
    let opts = HistogramOpts { common_opts, buckets: SECONDS.to_vec() };
    let seconds = HistogramVec::new(opts, &["protocol", "kind"]).expect("sound names");
    registry.register(Box::new(seconds.clone())).expect("registered once");
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::testing::in_memory;
    use crate::shared::{SharedGateway, Wall};
    use std::sync::Arc;

    #[test]
    fn operations_are_counted_and_no_names_are_exported() {
        let metrics = Arc::new(Metrics::default());
        assert_eq!(metrics.health(), Health::Starting);
        let front = SharedGateway::new(in_memory(50, 1), metrics.clone(), Arc::new(Wall));
        metrics.set_health(Health::Ready);
        let latencies = Arc::new(std::sync::Mutex::new(vec![]));
        let observed = latencies.clone();
        metrics.set_latency_observer(move |kind, ns| observed.lock().unwrap().push((kind, ns)));
        let request = metrics.request(Protocol::Resp, Kind::Write);
        front.run(|gateway| gateway.store(b"a secret name", &[7; 300], b"")).unwrap();
        metrics.took(Protocol::Resp, 300);
        request.answered(true);
        assert!(matches!(latencies.lock().unwrap()[..], [(Kind::Write, 1..)]));
        assert!(front.run(|gateway| gateway.store(b"b", &[0; 9999], b"")).is_err());
        assert_eq!(metrics.health(), Health::Ready, "a full tree is the client's matter");
        let text = metrics.text();
        let queries = front.inspect(|gateway| gateway.counts().queries);
        for line in [
            &format!("traceless_queries_total {queries}")[..],
            "traceless_blocks_used 5",
            "traceless_names{space=\"values\"} 1",
            "traceless_bytes_total{direction=\"in\",protocol=\"resp\"} 300",
            "traceless_requests_total{kind=\"write\",protocol=\"resp\",result=\"ok\"} 1",
            "traceless_request_seconds_count{kind=\"write\",protocol=\"resp\"} 1",
            "traceless_errors_total{kind=\"full\"} 1",
            "traceless_tee_info{tee_protection=\"none\"} 1",
            "# TYPE traceless_request_seconds histogram",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is missing in {text}");
        }
        assert!(!text.contains("secret name"));
        let readings = metrics.readings();
        assert!(readings.contains(&("Queries sent to the host", queries)), "{readings:?}");
        assert!(readings.contains(&("Blocks that hold something", 5)), "{readings:?}");
    }

    #[test]
    fn health_follows_the_last_operation() {
        let metrics = Metrics::default();
        let store = Error::Store("planned");
        metrics.failed(&store);
        assert_eq!(metrics.health(), Health::Starting);
        metrics.set_health(Health::Ready);
        metrics.failed(&store);
        assert_eq!(metrics.health(), Health::Failing);
        metrics.succeeded();
        assert_eq!(metrics.health(), Health::Ready);
        metrics.set_health(Health::Stopping);
        metrics.failed(&store);
        metrics.succeeded();
        assert_eq!(metrics.health(), Health::Stopping);
    }
}
