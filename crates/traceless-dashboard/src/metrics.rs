//! Metrics in the text format of Prometheus. They hold counts and times, and no addresses.

use crate::audit::{AuditState, LiveVerdict};
use crate::monitor::Monitor;
use crate::report::name_of;
use std::fmt::Write;
use traceless_core::trace::Op;

/// Upper bounds of the latency classes, in nanoseconds.
const BOUNDS: [u64; 16] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    2_000_000_000,
    10_000_000_000,
];

/// All metrics.
pub fn text(monitor: &Monitor) -> String {
    let mut out = String::new();
    let (adversary, user) = (monitor.adversary().totals(), monitor.user().totals());
    for (name, help, totals, of) in [
        ("adversary_events", "Events that an adversary observes", adversary, 0),
        ("adversary_bytes", "Bytes of the events that an adversary observes", adversary, 1),
        ("user_requests", "Requests of the user", user, 0),
        ("user_bytes", "Bytes of the requests of the user", user, 1),
    ] {
        begin(&mut out, &format!("{name}_total"), help, "counter");
        for op in Op::ALL {
            let (events, bytes) = totals[op as usize];
            let value = [events, bytes][of];
            line(&mut out, &format!("{name}_total{{op=\"{}\"}}", name_of(op)), value);
        }
    }
    latencies(&mut out, monitor);
    begin(&mut out, "user_requests_in_flight", "Requests that are being answered", "gauge");
    line(&mut out, "user_requests_in_flight", monitor.in_flight());
    let audit = AuditState::of(&monitor.audit());
    for (name, help, value) in [
        ("audit_writes_in_turn_total", "Writes whose slots were due", audit.in_turn),
        ("audit_writes_out_of_turn_total", "Writes whose slots were not due", audit.out_of_turn),
        ("audit_draws_total", "Draws of leaves or slots", audit.draws),
    ] {
        begin(&mut out, name, help, "counter");
        line(&mut out, name, value);
    }
    let help = "Standard deviations by which draws are less even than by chance";
    begin(&mut out, "audit_draws_deviation", help, "gauge");
    line(&mut out, "audit_draws_deviation", audit.deviation.unwrap_or(0.0));
    begin(&mut out, "audit_leak", "1 if the audit has found a leak", "gauge");
    line(&mut out, "audit_leak", u8::from(audit.verdict == LiveVerdict::Leak));
    for reading in monitor.readings() {
        let Some(name) = reading.metric else { continue };
        begin(&mut out, name, reading.help, "gauge");
        line(&mut out, name, reading.value);
    }
    out.push_str(&monitor.more_metrics());
    out
}

fn latencies(out: &mut String, monitor: &Monitor) {
    begin(out, "user_request_seconds", "How long requests took", "histogram");
    for (op, histogram) in Op::ALL.iter().zip(monitor.latencies()) {
        let (op, counts) = (name_of(*op), histogram.counts());
        // A bucket of the histogram counts below a bound only as a whole.
        let below = |bound: u64| counts.iter().filter(move |(largest, _)| *largest <= bound);
        // Counts in memory of other processes may be any numbers.
        let sum = |bound| below(bound).fold(0, |sum: u64, (_, count)| sum.wrapping_add(*count));
        for bound in BOUNDS {
            let le = bound as f64 / 1e9;
            let name = format!("user_request_seconds_bucket{{op=\"{op}\",le=\"{le}\"}}");
            line(out, &name, sum(bound));
        }
        let all = sum(u64::MAX);
        line(out, &format!("user_request_seconds_bucket{{op=\"{op}\",le=\"+Inf\"}}"), all);
        let seconds = histogram.sum() as f64 / 1e9;
        line(out, &format!("user_request_seconds_sum{{op=\"{op}\"}}"), seconds);
        line(out, &format!("user_request_seconds_count{{op=\"{op}\"}}"), all);
    }
}

fn begin(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP traceless_{name} {help}\n# TYPE traceless_{name} {kind}");
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "traceless_{name} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Reading;
    use traceless_core::trace::{Event, Surface, Witness};

    #[test]
    fn counts_and_times_are_there() {
        let monitor = Monitor::new("test");
        monitor.record(Event { time: 0, surface: Surface::Wire, op: Op::Write, at: 1, len: 7 });
        drop(monitor.time_request(Op::Read, 123_456, 5));
        monitor.latencies()[0].record(40_000);
        monitor.latencies()[0].record(20_000_000_000);
        monitor
            .set_readings(|| vec![Reading { metric: Some("stash"), help: "Blocks", value: 1.5 }]);
        monitor.set_more_metrics(|| "traceless_other 1\n".to_owned());
        let text = text(&monitor);
        for wanted in [
            "traceless_adversary_events_total{op=\"write\"} 1",
            "traceless_adversary_bytes_total{op=\"write\"} 7",
            "traceless_adversary_events_total{op=\"read\"} 0",
            "traceless_user_requests_total{op=\"read\"} 1",
            "traceless_user_bytes_total{op=\"read\"} 5",
            "traceless_user_request_seconds_bucket{op=\"read\",le=\"0.00005\"} 2",
            "traceless_user_request_seconds_bucket{op=\"read\",le=\"10\"} 2",
            "traceless_user_request_seconds_bucket{op=\"read\",le=\"+Inf\"} 3",
            "traceless_user_request_seconds_count{op=\"read\"} 3",
            "traceless_user_requests_in_flight 0",
            "traceless_audit_writes_in_turn_total 0",
            "traceless_audit_leak 0",
            "traceless_stash 1.5",
            "# TYPE traceless_user_request_seconds histogram",
            "traceless_other 1",
        ] {
            assert!(text.lines().any(|line| line == wanted), "{wanted} is missing in {text}");
        }
        assert!(!text.contains("123456"), "an address");
        let mut types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let all = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), all, "no metric is declared twice");
    }
}
