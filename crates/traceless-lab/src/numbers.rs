//! Measurements, and the machine that they were made on.

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use traceless_cli::failure::{DEVICE, Failure};
use traceless_cli::output::{say, say_json};
use traceless_sim::experiment::text_table::shortened;

/// One number: the median of some rounds. The spread is the distance between the extremes as a
/// share of the median, if there are two or more rounds.
#[derive(Serialize)]
pub struct Row {
    pub name: &'static str,
    pub unit: &'static str,
    pub measured: f64,
    pub spread: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absolute: Option<Absolute>,
}

/// The two medians behind a ratio to a control, on this machine.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Absolute {
    pub unit: &'static str,
    pub measured: f64,
    pub control: f64,
}

/// The time of one unit of work in one round, and the time of its control, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct TimePair {
    pub ns: f64,
    pub control_ns: f64,
}

/// The unit in which times are given, and the direction of the ratio.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// Times, in a unit of this many nanoseconds; the ratio is the time over the control's time.
    Time(&'static str, f64),
    /// Rates: work that takes 1 ns has this rate in the unit; the ratio is the rate over the
    /// control's rate.
    Rate(&'static str, f64),
}

/// Ratios to a control, one for each round, and the medians behind them.
pub struct Ratios {
    pub values: Vec<f64>,
    pub absolute: Absolute,
}

impl Scale {
    /// The ratios of some rounds, and the medians in this unit.
    pub fn ratios(self, pairs: &[TimePair]) -> Ratios {
        let median =
            |value: &dyn Fn(&TimePair) -> f64| summary(pairs.iter().map(value).collect()).0;
        let absolute = |unit, convert: &dyn Fn(f64) -> f64| Absolute {
            unit,
            measured: median(&|pair| convert(pair.ns)),
            control: median(&|pair| convert(pair.control_ns)),
        };
        let (ratio, absolute): (fn(&TimePair) -> f64, _) = match self {
            Self::Time(unit, ns) => {
                (|pair| pair.ns / pair.control_ns, absolute(unit, &|time| time / ns))
            }
            Self::Rate(unit, per_ns) => {
                (|pair| pair.control_ns / pair.ns, absolute(unit, &|time| per_ns / time))
            }
        };
        Ratios { values: pairs.iter().map(ratio).collect(), absolute }
    }
}

impl Absolute {
    /// Both medians, in words for one line of text.
    pub fn in_words(&self) -> String {
        let Self { unit, measured, control } = self;
        format!(" ({} {unit}; its control: {})", shortened(*measured), shortened(*control))
    }
}

/// The rows of one group, and the machine that they were measured on.
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
    for Row { name, unit, measured, absolute, .. } in rows {
        let absolute = absolute.map_or(String::new(), |absolute| absolute.in_words());
        say(&format!("{name:<28}{measured:9.3} {unit}{absolute}"));
    }
    Ok(())
}

/// The row of some measurements.
pub fn row(name: &'static str, unit: &'static str, values: Vec<f64>) -> Row {
    let (measured, spread) = summary(values);
    Row { name, unit, measured, spread, absolute: None }
}

/// The row of some times and their controls.
pub fn row_of_ratios(name: &'static str, scale: Scale, pairs: &[TimePair]) -> Row {
    let Ratios { values, absolute } = scale.ratios(pairs);
    Row { absolute: Some(absolute), ..row(name, "ratio", values) }
}

/// The median of some values, and their spread as a share of it; one value has no spread.
pub fn summary(mut values: Vec<f64>) -> (f64, Option<f64>) {
    values.sort_by(f64::total_cmp);
    let median = values[values.len() / 2];
    let spread = (values[values.len() - 1] - values[0]) / median;
    (median, (values.len() > 1).then_some(spread))
}

/// Half of a spread to each side, in words; empty for a single value.
pub fn spread_in_words(spread: Option<f64>) -> String {
    spread.map_or(String::new(), |spread| format!(" ±{:.0} %", spread * 50.0))
}

/// A failure while measuring.
pub fn failed(e: impl std::fmt::Display) -> Failure {
    Failure::new(DEVICE, format!("the measurement failed: {e}"))
}

/// The machine that a measurement ran on.
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
            cores: traceless_sim::parallel::cores(),
            kernel: kernel.release().to_string_lossy().into_owned(),
        }
    }
}

impl std::fmt::Display for Hardware {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} cores, {}", self.cpu, self.cores, self.kernel)
    }
}

/// Processor time of this process, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Peak resident memory of a process in bytes: `self`, or a process number.
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
    fn times_and_rates_are_beside_those_of_the_control() {
        let pair = |ns, control_ns| TimePair { ns, control_ns };
        let pairs = [pair(3000.0, 1000.0), pair(2000.0, 500.0), pair(2000.0, 1000.0)];
        let slow = row_of_ratios("a", Scale::Time("us", 1e3), &pairs);
        assert_eq!((slow.unit, slow.measured, slow.spread), ("ratio", 3.0, Some(2.0 / 3.0)));
        assert_eq!(slow.absolute, Some(Absolute { unit: "us", measured: 2.0, control: 1.0 }));
        let fast = row_of_ratios("b", Scale::Rate("GB/s", 4000.0), &pairs[1..2]);
        assert_eq!((fast.measured, fast.spread), (0.25, None));
        assert_eq!(fast.absolute, Some(Absolute { unit: "GB/s", measured: 2.0, control: 8.0 }));
    }

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
