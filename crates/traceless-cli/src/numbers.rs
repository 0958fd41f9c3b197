//! Measurements, and what they were made on.

use crate::failure::{DEVICE, Failure};
use crate::output::{say, say_json};
use serde::Serialize;

/// One number: the median of some rounds, and how far apart they lie as a share of it, if there
/// are two or more.
#[derive(Serialize)]
pub struct Row {
    pub name: &'static str,
    pub unit: &'static str,
    pub measured: f64,
    pub spread: Option<f64>,
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

/// The median of some values, and how far apart they lie as a share of it: of one value nothing.
pub fn summary(mut values: Vec<f64>) -> (f64, Option<f64>) {
    values.sort_by(f64::total_cmp);
    let median = values[values.len() / 2];
    let spread = (values[values.len() - 1] - values[0]) / median;
    (median, (values.len() > 1).then_some(spread))
}

/// Half of a spread to each side, in words; nothing of one value.
pub fn spread_in_words(spread: Option<f64>) -> String {
    spread.map_or(String::new(), |spread| format!(" ±{:.0} %", spread * 50.0))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_no_spread() {
        assert_eq!(summary(vec![3.0]), (3.0, None));
        assert_eq!(summary(vec![3.0, 3.0]), (3.0, Some(0.0)));
        assert_eq!(summary(vec![2.0, 1.0, 4.0]), (2.0, Some(1.5)));
        assert_eq!(
            (spread_in_words(None), spread_in_words(Some(0.1))),
            (String::new(), " ±5 %".to_owned())
        );
        let told = serde_json::to_value(row("name", "s", vec![1.0])).unwrap();
        assert!(told["spread"].is_null() && told["measured"] == 1.0);
    }
}
