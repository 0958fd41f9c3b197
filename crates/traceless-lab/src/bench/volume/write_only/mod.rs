//! `traceless-lab bench volume --suite write-only`: the floors of the group write-only.
//!
//! The floors are for one scheme, `sq`, but the suite measures any subject, and names its rows
//! after it.

mod flushes;
mod groups;

use super::measure::Plan;
use super::subjects::{CONTROL, VolumeSubject};
use super::{Places, machine};
use crate::args::VolumeBenchArgs;
use crate::report::{Row, Values, print_report};
use groups::GROUPS;
use serde::Serialize;
use traceless_cli::failure::Failure;
use traceless_cli::output::print_error;

/// The subject of the floors.
const USUAL: &str = "sq";

/// The measured scheme.
#[derive(Serialize)]
struct WriteOnlySetting {
    subject: &'static str,
    create: String,
}

/// The setting of a measurement.
struct Context<'a> {
    subject: VolumeSubject,
    places: &'a Places,
    plan: Plan,
    quick: bool,
}

/// The values of a row, which is their median, or the reason why there are none.
type RowResult = Result<Values, String>;

/// Measures the subject, and prints the report.
pub fn run(args: &VolumeBenchArgs, places: &Places) -> Result<(), Failure> {
    let subject = match &args.sizes.subject[..] {
        [] => VolumeSubject::parse(USUAL)?,
        [name] => VolumeSubject::parse(name)?,
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
        let measured = if let Some(why) = &absent {
            vec![Err(why.clone()); names.len()]
        } else {
            if !args.json {
                print_error(&format!("measuring {}", names.join(", ")));
            }
            (group.measure)(&context)?
        };
        assert_eq!(measured.len(), names.len(), "a group measures each of its rows");
        let units = group.rows.iter().map(|row| row.unit);
        let row = |((name, unit), result): ((String, &'static str), RowResult)| match result {
            Ok(values) => Row::of(name, unit, values),
            Err(why) => Row::absent(name, unit, why),
        };
        rows.extend(names.into_iter().zip(units).zip(measured).map(row));
    }
    let setting = WriteOnlySetting { subject: subject.name, create: subject.create.join(" ") };
    let machine = machine(places, args);
    print_report("traceless.write-only.bench.v1", &machine, &setting, &rows, args.json)
}
