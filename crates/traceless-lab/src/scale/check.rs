//! The model beside measurements of real hosts.

use super::calibration::Calibrator;
use super::measured_system::{MeasuredLoad, MeasuredSystem};
use super::model::{Machines, ModelCosts, Prediction, Scenario, predict};
use super::params_of;
use super::tree_shape::TreeShape;
use crate::delay_proxy::{self, ProxyTraffic};
use crate::report::{Hardware, Row, failed, row as row_of};
use serde::Serialize;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use traceless::clock::{Clock, Monotonic};
use traceless_cli::failure::Failure;
use traceless_cli::output::{print_error, print_json, print_line};
use traceless_cloud::params::Params;
use traceless_sim::parallel::cores;
use traceless_sys::listen;

/// The tree that is measured, and how many values it has.
const BLOCKS: u64 = 100_000;
const BLOCK_LEN: usize = 1024;
pub const NAMES: u64 = 90_000;
const HOSTS: [usize; 3] = [1, 2, 4];
const ROUND_TRIPS_US: [u64; 3] = [200, 1000, 10_000];
const CLIENTS: usize = 64;
/// About how long a measurement takes, by the prediction, and how many there are of each case.
const SECONDS: f64 = 3.0;
const ROUNDS: usize = 3;
const REQUESTS_SIMULATED: usize = 100_000;
const ECHOES: usize = 200;

#[derive(Serialize)]
struct CheckReport {
    schema: &'static str,
    machine: Hardware,
    largest_error: f64,
    cases: Vec<CheckedCase>,
}

#[derive(Serialize)]
struct CheckedCase {
    hosts: usize,
    round_trip_ms: f64,
    predicted: Prediction,
    requests_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Queries of a message, in the mean.
    queries_per_message: f64,
    /// Seconds of processors that a query took, in microseconds: at the gateway and its clients, at
    /// the proxies, at the hosts; and the share of all processors in use.
    gateway_us: f64,
    proxy_us: f64,
    host_us: f64,
    busy: f64,
    /// Predicted requests a second, of the measured ones, less 1.
    error: f64,
}

pub fn run(json: bool) -> Result<(), Failure> {
    let cases = measure()?;
    let largest_error = largest(&cases);
    let machine = Hardware::here();
    let report = CheckReport { schema: "traceless.scale.check.v1", machine, largest_error, cases };
    if json {
        return print_json(&report);
    }
    for case in &report.cases {
        print_line(&format!(
            "{} hosts, {} ms: {:.0} requests a second predicted, {:.0} measured, {:+.1} %; p50 \
             {:.2} and {:.2} ms, p99 {:.2} and {:.2} ms; {:.1} queries a batch predicted, {:.1} a \
             message; a query takes {:.0} us at gateway and clients, {:.0} us at proxies, {:.0} us \
             at hosts; processors are busy {:.0} %, {:.0} % predicted",
            case.hosts,
            case.round_trip_ms,
            case.predicted.requests_per_second,
            case.requests_per_second,
            100.0 * case.error,
            case.predicted.p50_ms,
            case.p50_ms,
            case.predicted.p99_ms,
            case.p99_ms,
            case.predicted.batch,
            case.queries_per_message,
            case.gateway_us,
            case.proxy_us,
            case.host_us,
            100.0 * case.busy,
            100.0 * case.predicted.host_busy
        ));
    }
    print_line(&format!("largest error: {:.1} %", 100.0 * largest_error));
    Ok(())
}

/// The row of the largest error.
pub fn row() -> Result<Row, Failure> {
    Ok(row_of("cloud-model-error", "ratio", vec![largest(&measure()?)]))
}

/// The parameters of the tree that is measured.
pub fn params() -> Result<Params, Failure> {
    params_of(BLOCKS, BLOCK_LEN)
}

fn largest(cases: &[CheckedCase]) -> f64 {
    cases.iter().map(|case| case.error.abs()).fold(0.0, f64::max)
}

/// Each case in each round, with the parts measured just before, as a machine's speed varies. Of a
/// case the round with the median error counts.
fn measure() -> Result<Vec<CheckedCase>, Failure> {
    print_error("starting hosts");
    let calibrator = Calibrator::start(params()?, NAMES)?;
    let start = |hosts| MeasuredSystem::start(params()?, hosts, NAMES);
    let systems = HOSTS.into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let mut cases: Vec<Vec<CheckedCase>> = Vec::new();
    cases.resize_with(HOSTS.len() * ROUND_TRIPS_US.len(), Vec::new);
    for round in 0..ROUNDS {
        print_error(&format!("measuring all cases, {} of {ROUNDS} times", round + 1));
        let mut of_case = cases.iter_mut();
        for (system, hosts) in systems.iter().zip(HOSTS) {
            for round_trip in ROUND_TRIPS_US.map(Duration::from_micros) {
                let costs = calibrator.costs()?;
                let case = measure_case(&costs, (system, hosts), round_trip, round as u64)?;
                of_case.next().expect("there is one for each").push(case);
            }
        }
    }
    let median = |mut rounds: Vec<CheckedCase>| {
        rounds.sort_by(|a, b| a.error.total_cmp(&b.error));
        rounds.swap_remove(ROUNDS / 2)
    };
    Ok(cases.into_iter().map(median).collect())
}

fn measure_case(
    costs: &ModelCosts,
    (system, hosts): (&MeasuredSystem, usize),
    round_trip: Duration,
    seed: u64,
) -> Result<CheckedCase, Failure> {
    let shape = TreeShape::of_params(&params()?, hosts);
    let near = echo_times(Duration::ZERO)?[ECHOES / 2];
    let scenario = Scenario {
        shape,
        machines: Machines::One(cores() as f64),
        hosts,
        // What the proxy really adds, as it wakes up late.
        round_trips: echo_times(round_trip / 2)?.iter().map(|time| time - near).collect(),
        bandwidth: f64::INFINITY,
        clients: CLIENTS,
        hits: shape.hits(NAMES),
        requests: REQUESTS_SIMULATED,
    };
    let predicted = predict(costs, &scenario);
    system.set_delay(round_trip / 2);
    let each = (predicted.requests_per_second * SECONDS) as usize / CLIENTS;
    let load = system.measure(CLIENTS, each.max(1), seed)?;
    system.set_delay(Duration::ZERO);
    Ok(CheckedCase::of(hosts, round_trip, predicted, &load))
}

impl CheckedCase {
    fn of(hosts: usize, round_trip: Duration, predicted: Prediction, load: &MeasuredLoad) -> Self {
        let requests_per_second = load.requests_per_second();
        let us = |seconds: f64| seconds * 1e6 / load.queries as f64;
        let all = load.gateway_cpu + load.proxy_cpu + load.host_cpu;
        Self {
            gateway_us: us(load.gateway_cpu),
            proxy_us: us(load.proxy_cpu),
            host_us: us(load.host_cpu),
            busy: all / load.seconds / cores() as f64,
            hosts,
            round_trip_ms: round_trip.as_secs_f64() * 1e3,
            predicted,
            requests_per_second,
            p50_ms: load.percentile_ms(0.5),
            p99_ms: load.percentile_ms(0.99),
            queries_per_message: load.queries as f64 / load.messages as f64,
            error: predicted.requests_per_second / requests_per_second - 1.0,
        }
    }
}

/// Seconds in which a byte comes back through a proxy with this delay, sorted.
fn echo_times(delay: Duration) -> Result<Vec<f64>, Failure> {
    let clients = listen::Clients::Anyone { remedy: "" };
    let listener = listen::bind("127.0.0.1:0", clients).map_err(failed)?;
    let target = listener.local_addr().map_err(failed)?;
    let traffic = Arc::new(ProxyTraffic::default());
    traffic.set_delay(delay);
    let proxy = delay_proxy::start(target, traffic)?;
    let echo = thread::spawn(move || answer(&listener));
    let mut stream = TcpStream::connect(proxy).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (clock, mut byte) = (Monotonic::start(), [0]);
    let mut times = Vec::new();
    for _ in 0..ECHOES {
        let began = clock.now();
        stream.write_all(&byte).map_err(failed)?;
        stream.read_exact(&mut byte).map_err(failed)?;
        times.push(clock.now() - began);
    }
    drop(stream);
    echo.join().map_err(|_| failed("the echo is gone"))?;
    times.sort_unstable();
    Ok(times.into_iter().map(|ns| ns as f64 / 1e9).collect())
}

fn answer(listener: &TcpListener) {
    let Ok((mut client, _)) = listener.accept() else { return };
    // Without it only latency is worse.
    let _ = client.set_nodelay(true);
    let mut byte = [0];
    while client.read_exact(&mut byte).is_ok() {
        if client.write_all(&byte).is_err() {
            return;
        }
    }
}
