//! Runs that measure the machine that they run on, one at a time.

use super::Report;
use super::metrics::{Counts, Place};
use super::results::{self, Results};
use super::sheet::Sheet;
use crate::args::ProgressHow;
use crate::failure::Failure;
use crate::output::Meter;
use crate::signals;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// One run.
pub struct TurnRun<I> {
    pub place: Place,
    /// Everything that the result depends on, except the other load of the machine.
    pub input: I,
    pub key: String,
}

impl<I: Serialize + Sync> TurnRun<I> {
    pub fn new(place: Place, input: I) -> Result<Self, Failure> {
        Ok(Self { place, key: results::key(&input)?, input })
    }

    /// Makes the runs without a result. Variants take turns, so that other load of the machine
    /// affects all of them alike.
    pub fn make_all(
        runs: &[Self],
        results: &Results,
        progress: ProgressHow,
        make: impl Fn(&Self) -> Result<Value, Failure> + Sync,
    ) -> Result<(), Failure> {
        let mut in_turns: Vec<&Self> = runs.iter().collect();
        in_turns.sort_by_key(|run| (run.place.repeat, run.place.workload, run.place.variant));
        let keys: Vec<&str> = in_turns.iter().map(|run| run.key.as_str()).collect();
        let mut meter = Meter::new("measuring", progress);
        results.complete(&keys, 1, &*signals::flag()?, &mut meter, |nth| {
            let run = in_turns[nth];
            results.keep(&run.key, &run.input, &make(run)?)
        })?;
        meter.finish();
        Ok(())
    }

    /// The report, once all runs are made.
    pub fn conclude(
        runs: &[Self],
        sheet: &Sheet<'_>,
        results: &Results,
        out: &Path,
    ) -> Result<Report, Failure> {
        let counts = runs.iter().map(|run| results.made(&run.key)).collect::<Result<_, _>>()?;
        let places: Vec<Place> = runs.iter().map(|run| run.place).collect();
        let counts = Counts::new(sheet, &places, counts);
        let lines = runs.iter().map(|run| {
            let Place { variant, workload, repeat } = run.place;
            let names: Vec<(&str, Value)> = vec![
                ("variant", sheet.variants[variant].name.into()),
                ("workload", sheet.workloads[workload].as_str().into()),
                ("round", repeat.into()),
                ("key", run.key.clone().into()),
            ];
            (names, counts.at(run.place))
        });
        super::conclude(sheet, &counts, lines, out)
    }
}
