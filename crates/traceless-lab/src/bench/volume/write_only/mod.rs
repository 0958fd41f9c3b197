//! `traceless-lab bench volume --suite write-only`: the floors of the group write-only.
//!
//! The floors are for one scheme, `sq`, but the suite measures any subject, and names its rows
//! after it.

mod flushes;
mod groups;

use super::measure::Plan;
use super::subjects::{CONTROL, VolumeSubject};
use super::{Machine, Places, machine, spread_in_words, summary};
use crate::args::VolumeBenchArgs;
use crate::numbers::{Absolute, Ratios};
use groups::GROUPS;
use serde::Serialize;
use traceless_cli::failure::Failure;
use traceless_cli::output::{complain, say, say_json};

/// The subject of the floors.
const USUAL: &str = "sq";

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    machine: Machine,
    subject: &'static str,
    create: String,
    rows: Vec<WriteOnlyRow>,
}

/// One number, or the reason why there is none.
#[derive(Serialize)]
struct WriteOnlyRow {
    name: String,
    unit: &'static str,
    measured: Option<f64>,
    spread: Option<f64>,
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    absolute: Option<Absolute>,
}

/// The setting of a measurement.
struct Context<'a> {
    subject: VolumeSubject,
    places: &'a Places,
    plan: Plan,
    quick: bool,
}

/// The values of a row, which is their median, or the reason why there are none.
type Found = Result<Values, String>;

/// Values, with the medians behind them if they are ratios to a control of this machine.
#[derive(Clone)]
struct Values {
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

/// Measures the subject, and prints the report.
pub fn run(args: &VolumeBenchArgs, places: &Places) -> Result<(), Failure> {
    let subject = match &args.sizes.subject[..] {
        [] => VolumeSubject::named_by_user(USUAL)?,
        [name] => VolumeSubject::named_by_user(name)?,
        _ => return Err(Failure::usage("the suite write-only takes one --subject")),
    };
    if subject.name == CONTROL {
        return Err(Failure::usage("the control has nothing to be beside"));
    }
    let context = Context { subject, places, plan: Plan::of(args)?, quick: args.quick };
    let absent = subject.scheme(context.plan.file_bytes).err();
    let mut rows = vec![];
    for group in &GROUPS {
        let names: Vec<String> = group.rows.iter().map(|row| row.name(subject)).collect();
        if !names.iter().any(|name| args.wants(name)) {
            continue;
        }
        let found = if let Some(why) = &absent {
            vec![Err(why.clone()); names.len()]
        } else {
            if !args.json {
                complain(&format!("measuring {}", names.join(", ")));
            }
            (group.measure)(&context)?
        };
        assert_eq!(found.len(), names.len(), "a group measures each of its rows");
        let units = group.rows.iter().map(|row| row.unit);
        rows.extend(
            names.into_iter().zip(units).zip(found).map(|((n, u), f)| WriteOnlyRow::new(n, u, f)),
        );
    }
    let report = Report {
        schema: "traceless.write-only.bench.v1",
        machine: machine(places, args),
        subject: subject.name,
        create: subject.create.join(" "),
        rows,
    };
    if args.json {
        return say_json(&report);
    }
    say(&report.machine.hardware.to_string());
    for row in &report.rows {
        say(&row.in_words());
    }
    Ok(())
}

impl WriteOnlyRow {
    fn new(name: String, unit: &'static str, found: Found) -> Self {
        match found {
            Ok(Values { values, absolute }) => {
                let (median, spread) = summary(values);
                Self { name, unit, measured: Some(median), spread, why: None, absolute }
            }
            Err(why) => {
                let why = Some(why);
                Self { name, unit, measured: None, spread: None, why, absolute: None }
            }
        }
    }

    fn in_words(&self) -> String {
        let Self { name, unit, why, .. } = self;
        match self.measured {
            Some(measured) => {
                let spread = spread_in_words(self.spread);
                let absolute = self.absolute.map_or(String::new(), |a| a.in_words());
                format!("{name:<46}{measured:>9.3} {unit:<6}{spread}{absolute}")
            }
            None => format!("{name:<46}not measured: {}", why.as_deref().unwrap_or_default()),
        }
    }
}
