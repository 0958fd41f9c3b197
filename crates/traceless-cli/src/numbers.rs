//! Measurements, and what they were made on.

use crate::failure::{DEVICE, Failure};
use crate::output::{say, say_json};
use serde::Serialize;

/// One number: the median of some rounds, and how far apart they lie as a share of it.
#[derive(Serialize)]
pub struct Row {
    pub name: &'static str,
    pub unit: &'static str,
    pub measured: f64,
    pub spread: f64,
}

/// The rows of one group, and what they were measured on.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    machine: Hardware,
    rows: Vec<Row>,
}

/// Prints rows, as JSON of the form `schema` if `json`.
pub fn say_rows(schema: &'static str, rows: Vec<Row>, json: bool) -> Result<(), Failure> {
    if json {
        return say_json(&Report { schema, machine: Hardware::here(), rows });
    }
    for Row { name, unit, measured, .. } in rows {
        say(&format!("{name:<24}{measured:9.3} {unit}"));
    }
    Ok(())
}

/// The row of some measurements.
pub fn row(name: &'static str, unit: &'static str, values: Vec<f64>) -> Row {
    let (measured, spread) = summary(values);
    Row { name, unit, measured, spread }
}

/// The median of some values, and how far apart they lie as a share of it.
pub fn summary(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let median = values[values.len() / 2];
    (median, (values[values.len() - 1] - values[0]) / median)
}

/// Three digits that count.
pub fn shortened(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        1.0..10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A failure while measuring.
pub fn failed(e: impl std::fmt::Display) -> Failure {
    Failure::new(DEVICE, format!("the measurement failed: {e}"))
}

/// What a measurement ran on.
#[derive(Serialize)]
pub struct Hardware {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
}

impl Hardware {
    pub fn here() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = info
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(':').map(|(_, n)| n.trim()))
            .unwrap_or("unknown");
        let kernel = rustix::system::uname();
        Self {
            cpu: cpu.to_owned(),
            cores: crate::parallel::cores(),
            kernel: kernel.release().to_string_lossy().into_owned(),
        }
    }
}

impl std::fmt::Display for Hardware {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} cores, {}", self.cpu, self.cores, self.kernel)
    }
}

/// Bytes of memory that a process held at its peak: `self`, or a number.
pub fn peak_memory(process: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).map_err(failed)?;
    let kib = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map(|kib: u64| kib << 10).ok_or_else(|| failed("no VmHWM in /proc"))
}
