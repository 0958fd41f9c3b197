//! The JSON that the page reads. What the adversary observes and what the user does are two
//! documents.

use crate::audit::AuditState;
use crate::monitor::{Monitor, Reading};
use serde::Serialize;
use traceless_core::activity::{LatencyHistogram, Sample, StreamReading};
use traceless_core::clock::{Clock, MachineClock};
use traceless_core::trace::Op;

/// Names of operations, in the order of [`Op::ALL`].
pub const OPS: [&str; 3] = ["read", "write", "sync"];

#[derive(Serialize)]
struct StreamDocument<'a> {
    schema: &'static str,
    title: &'a str,
    /// Nanoseconds by the machine's clock, as in the samples.
    now: u64,
    /// Bytes of the space that events touch.
    space: u64,
    /// Events of each operation.
    events: [u64; 3],
    /// Bytes of each operation.
    bytes: [u64; 3],
    /// Reads and writes that began in each part of the space.
    places: [Vec<u64>; 2],
    /// One of so many events is sampled.
    stride: u64,
    /// The number that the next reading begins with.
    next: u64,
    /// Time, operation, first byte and length of each sample.
    samples: Vec<(u64, u8, u64, u32)>,
}

#[derive(Serialize)]
struct AdversaryDocument<'a> {
    #[serde(flatten)]
    stream: StreamDocument<'a>,
    audit: AuditState,
}

#[derive(Serialize)]
struct UserDocument<'a> {
    #[serde(flatten)]
    stream: StreamDocument<'a>,
    in_flight: u64,
    /// For each operation: latencies in nanoseconds, and how many requests took no longer, but
    /// longer than the latency before.
    latencies: [Vec<(u64, u64)>; 3],
    /// Values of the product, each behind its meaning.
    readings: Vec<(&'static str, f64)>,
}

/// What the adversary observes, with the samples from the number `first` on.
pub fn adversary(monitor: &Monitor, first: u64) -> String {
    let reading = monitor.adversary().read(&MachineClock, first);
    json(&AdversaryDocument {
        stream: document("traceless.dashboard.adversary.v1", monitor, reading),
        audit: AuditState::of(&monitor.audit()),
    })
}

/// What the user does, with the samples from the number `first` on.
pub fn user(monitor: &Monitor, first: u64) -> String {
    let reading = monitor.user().read(&MachineClock, first);
    let [reads, writes, syncs] = monitor.latencies();
    let readings = monitor.readings().into_iter();
    json(&UserDocument {
        stream: document("traceless.dashboard.user.v1", monitor, reading),
        in_flight: monitor.in_flight(),
        latencies: [reads, writes, syncs].map(LatencyHistogram::counts),
        readings: readings.map(|Reading { help, value, .. }| (help, value)).collect(),
    })
}

fn document<'a>(
    schema: &'static str,
    monitor: &'a Monitor,
    reading: StreamReading,
) -> StreamDocument<'a> {
    let StreamReading { space, counts, places, stride, samples, next } = reading;
    let row = |sample: Sample| (sample.time, sample.op as u8, sample.at, sample.len);
    StreamDocument {
        schema,
        title: monitor.title(),
        now: MachineClock.now(),
        space,
        events: counts.map(|count| count.0),
        bytes: counts.map(|count| count.1),
        places,
        stride,
        next,
        samples: samples.into_iter().map(row).collect(),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("names are text, and numbers are finite or null")
}

/// The name of an operation.
pub fn name_of(op: Op) -> &'static str {
    OPS[op as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::trace::{Event, Surface, Witness};

    fn monitor() -> Monitor {
        let monitor = Monitor::new("a \"disk\"");
        monitor.adversary().set_space(1 << 20);
        monitor.user().set_space(1 << 19);
        for at in [4096, 8192] {
            let (surface, op) = (Surface::Storage, Op::Write);
            monitor.record(Event { time: 0, surface, op, at, len: 512 });
        }
        drop(monitor.time_request(Op::Read, 77_777, 99));
        let reading = Reading { metric: None, help: "Writes", value: 2.5 };
        monitor.set_readings(move || vec![reading.clone()]);
        monitor
    }

    #[test]
    fn both_documents_have_their_own_side_only() {
        let monitor = monitor();
        let parse = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
        let adversary_text = adversary(&monitor, 0);
        for secret in ["77777", "99", "latencies", "in_flight", "2.5"] {
            let numbers_apart = adversary_text.split(['[', ']', ',', ':', '{', '}', '"']);
            assert!(!numbers_apart.into_iter().any(|word| word == secret), "{secret}");
        }
        let [adversary, user] = [parse(adversary_text), parse(user(&monitor, 0))];
        assert_eq!(
            (&adversary["title"], &adversary["events"][1]),
            (&"a \"disk\"".into(), &2.into())
        );
        assert_eq!(
            (adversary["samples"][1][1].clone(), adversary["samples"][1][2].clone()),
            (1.into(), 8192.into())
        );
        assert_eq!((&user["events"][0], &user["bytes"][0]), (&1.into(), &99.into()));
        assert_eq!(
            (&user["samples"][0][2], &user["readings"][0][1]),
            (&77_777.into(), &2.5.into())
        );
        assert_eq!(user["latencies"][0].as_array().unwrap().len(), 1);
        let next = adversary["next"].as_u64().unwrap();
        let later = parse(super::adversary(&monitor, next));
        assert_eq!(later["samples"].as_array().unwrap().len(), 0);
    }
}
