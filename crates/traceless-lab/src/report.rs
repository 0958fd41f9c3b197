//! Measurements, and the machine that they were made on.

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use traceless_cli::failure::{DEVICE, Failure};
use traceless_cli::output::{print_json, print_line};
use traceless_sim::experiment::text_table::shortened;

/// One number: the median of some rounds. The spread is the distance between the extremes as a
/// share of the median, if there are two or more rounds.
#[derive(Serialize)]
pub struct Row {
    pub name: Cow<'static, str>,
    pub unit: &'static str,
    pub measured: Option<f64>,
    pub spread: Option<f64>,
    #[serde(rename = "why", skip_serializing_if = "Absence::is_impossible")]
    absence: Absence,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absolute: Option<Absolute>,
}

/// The reason why a row has no number.
#[derive(Serialize)]
#[serde(untagged)]
enum Absence {
    /// Every row of the group has a number.
    Impossible,
    /// This row has a number.
    None,
    Because(Cow<'static, str>),
}

impl Absence {
    fn is_impossible(&self) -> bool {
        matches!(self, Self::Impossible)
    }
}

/// The values of a row, which is their median, with the medians behind them if they are ratios to a
/// control of this machine.
#[derive(Clone)]
pub struct Values {
    values: Vec<f64>,
    absolute: Option<Absolute>,
}

impl From<Vec<f64>> for Values {
    fn from(values: Vec<f64>) -> Self {
        Self { values, absolute: None }
    }
}

impl From<Ratios> for Values {
    fn from(Ratios { values, absolute }: Ratios) -> Self {
        Self { values, absolute: Some(absolute) }
    }
}

impl Row {
    /// The row of some values, in a group in which a row may lack its number.
    pub fn of(name: impl Into<Cow<'static, str>>, unit: &'static str, values: Values) -> Self {
        let (measured, spread) = summary(values.values);
        Self {
            name: name.into(),
            unit,
            measured: Some(measured),
            spread,
            absence: Absence::None,
            absolute: values.absolute,
        }
    }

    /// The row of a number that could not be measured.
    pub fn absent(
        name: impl Into<Cow<'static, str>>,
        unit: &'static str,
        why: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (name, absence) = (name.into(), Absence::Because(why.into()));
        Self { name, unit, measured: None, spread: None, absence, absolute: None }
    }

    fn in_words(&self) -> String {
        let Self { name, unit, measured, spread, absence, absolute } = self;
        let value = match (measured, absence) {
            (None, Absence::Because(why)) => return format!("{name:<46}not measured: {why}"),
            (measured, _) => measured.unwrap_or_default(),
        };
        let spread = spread_in_words(*spread);
        let absolute = absolute.map_or(String::new(), |absolute| absolute.in_words());
        format!("{name:<46}{value:>9.3} {unit:<6}{spread}{absolute}")
    }
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

/// The rows of one group, the machine that they were measured on, and what they depend on besides.
#[derive(Serialize)]
struct Report<'a, M, S> {
    schema: &'static str,
    machine: &'a M,
    #[serde(flatten)]
    setting: &'a S,
    rows: &'a [Row],
}

/// Prints rows, as JSON of the form `schema` if `json`; `setting` has further keys of the report.
pub fn print_report<M: Serialize + Display, S: Serialize>(
    schema: &'static str,
    machine: &M,
    setting: &S,
    rows: &[Row],
    json: bool,
) -> Result<(), Failure> {
    if json {
        return print_json(&Report { schema, machine, setting, rows });
    }
    print_line(&machine.to_string());
    for row in rows {
        print_line(&row.in_words());
    }
    Ok(())
}

/// Prints rows that depend on nothing besides the machine.
pub fn print_rows(schema: &'static str, rows: &[Row], json: bool) -> Result<(), Failure> {
    print_report(schema, &Hardware::here(), &(), rows, json)
}

/// The row of some measurements, in a group of numbered rows.
pub fn row(name: &'static str, unit: &'static str, values: Vec<f64>) -> Row {
    Row { absence: Absence::Impossible, ..Row::of(name, unit, values.into()) }
}

/// The row of some times and their controls.
pub fn row_of_ratios(name: &'static str, scale: Scale, pairs: &[TimePair]) -> Row {
    Row { absence: Absence::Impossible, ..Row::of(name, "ratio", scale.ratios(pairs).into()) }
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
    fn times_and_rates_are_beside_the_controls_times_and_rates() {
        let pair = |ns, control_ns| TimePair { ns, control_ns };
        let pairs = [pair(3000.0, 1000.0), pair(2000.0, 500.0), pair(2000.0, 1000.0)];
        let slow = row_of_ratios("a", Scale::Time("us", 1e3), &pairs);
        assert_eq!((slow.unit, slow.measured, slow.spread), ("ratio", Some(3.0), Some(2.0 / 3.0)));
        assert_eq!(slow.absolute, Some(Absolute { unit: "us", measured: 2.0, control: 1.0 }));
        let fast = row_of_ratios("b", Scale::Rate("GB/s", 4000.0), &pairs[1..2]);
        assert_eq!((fast.measured, fast.spread), (Some(0.25), None));
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
        let json = serde_json::to_value(row("name", "s", vec![1.0])).unwrap();
        assert!(json["spread"].is_null() && json["measured"] == 1.0);
    }

    #[test]
    fn the_reason_for_an_absent_number_is_a_key_only_where_numbers_may_be_absent() {
        let json = |row: &Row| serde_json::to_string(row).unwrap();
        let start = "{\"name\":\"a\",\"unit\":\"s\",\"measured\":";
        assert_eq!(json(&row("a", "s", vec![1.0])), format!("{start}1.0,\"spread\":null}}"));
        let present = Row::of("a", "s", vec![1.0].into());
        assert_eq!(json(&present), format!("{start}1.0,\"spread\":null,\"why\":null}}"));
        let absent = Row::absent("a", "s", "no disk");
        assert_eq!(json(&absent), format!("{start}null,\"spread\":null,\"why\":\"no disk\"}}"));
        assert!(absent.in_words().ends_with("not measured: no disk"));
        let report = Report { schema: "s", machine: &1, setting: &(), rows: &[] };
        let expected = "{\"schema\":\"s\",\"machine\":1,\"rows\":[]}";
        assert_eq!(serde_json::to_string(&report).unwrap(), expected);
    }
}
