//! Runs that measure this computer, one at a time. Variants take turns, so that other load of the
//! computer affects all of them alike.

use super::metrics::{RunCounts, RunIndex};
use super::results::{self, Control, Results};
use super::spec::Spec;
use super::{Error, Report, Result};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// One run.
pub struct InterleavedRun<I> {
    /// The variant, workload and repeat of the experiment.
    pub index: RunIndex,
    /// Everything that the result depends on, except the other load of the computer.
    pub input: I,
    /// A digest of the input.
    pub key: String,
}

impl<I: Serialize + Sync> InterleavedRun<I> {
    /// The run of an input.
    pub fn new(index: RunIndex, input: I) -> Result<Self> {
        Ok(Self { index, key: results::key(&input)?, input })
    }

    /// Makes the runs without a result, the variants in turns.
    pub fn make_all<E: From<Error> + Send>(
        runs: &[Self],
        results: &Results,
        control: Control<'_>,
        make: impl Fn(&Self) -> Result<Value, E> + Sync,
    ) -> Result<(), E> {
        let mut order: Vec<&Self> = runs.iter().collect();
        order.sort_by_key(|run| (run.index.repeat, run.index.workload, run.index.variant));
        let keys: Vec<&str> = order.iter().map(|run| run.key.as_str()).collect();
        results.complete(&keys, 1, control, |nth| {
            let run = order[nth];
            Ok(results.store(&run.key, &run.input, &make(run)?)?)
        })
    }

    /// The report, once all runs are made.
    pub fn conclude(
        runs: &[Self],
        spec: &Spec<'_>,
        results: &Results,
        out: &Path,
    ) -> Result<Report> {
        let counts = runs.iter().map(|run| results.get(&run.key)).collect::<Result<_>>()?;
        let indices: Vec<RunIndex> = runs.iter().map(|run| run.index).collect();
        let counts = RunCounts::new(spec, &indices, counts);
        let lines = runs.iter().map(|run| {
            let RunIndex { variant, workload, repeat } = run.index;
            let names: Vec<(&str, Value)> = vec![
                ("variant", spec.variants[variant].name.into()),
                ("workload", spec.workloads[workload].as_str().into()),
                ("round", repeat.into()),
                ("key", run.key.clone().into()),
            ];
            (names, counts.at(run.index))
        });
        super::conclude(spec, &counts, lines, out)
    }
}
