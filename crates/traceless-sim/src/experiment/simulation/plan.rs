//! The runs that an experiment takes: each variant with each workload and seed.

use super::file::{Experiment, Variant};
use super::input::{Input, RESULTS_VERSION};
use super::workloads::{WorkloadSummary, look_up};
use crate::experiment::metrics::RunIndex;
use crate::experiment::toml_file::merge;
use crate::experiment::{Level, Result, results};
use crate::machine::Machine;
use crate::oram::{self, Scheme, Start};
use toml::{Table, Value};

/// One run.
pub struct PlannedRun {
    /// Which variant, workload and seed of the experiment.
    pub index: RunIndex,
    /// Everything that the result depends on.
    pub input: Input,
    /// A digest of the whole input.
    pub key: String,
    /// How long it takes in comparison with other runs, as far as that is known before.
    pub weight: u64,
}

/// All runs at a level.
pub fn runs(experiment: &Experiment, level: Level) -> Result<Vec<PlannedRun>> {
    let base = experiment.base()?;
    let extent = experiment.extent(level);
    let workloads = experiment.workloads(level);
    let mut summaries = vec![];
    for name in workloads {
        summaries.push(look_up(experiment, &experiment.with_options(name))?);
    }
    let mut runs = vec![];
    for (nth, variant) in experiment.variants.iter().enumerate() {
        for (workload, (name, summary)) in workloads.iter().zip(&summaries).enumerate() {
            for (repeat, &seed) in extent.seeds.iter().enumerate() {
                let machine = machine(experiment, &base, &extent.set, variant, seed)?;
                let input = Input {
                    version: RESULTS_VERSION,
                    machine,
                    workload: experiment.with_options(name),
                    content: summary.digest.clone(),
                    seed,
                    warm_up: extent.warm_up,
                    records: extent.records,
                    in_misses: extent.in_misses,
                    overheads: variant.overheads.clone(),
                };
                let key = results::key(&input)?;
                let weight = weight(&input, summary);
                runs.push(PlannedRun {
                    index: RunIndex { variant: nth, workload, repeat },
                    input,
                    key,
                    weight,
                });
            }
        }
    }
    Ok(runs)
}

/// Roughly the slots and lines that a run touches: all of a tree that begins full, and for each
/// record a path of every tree. How many records hit a cache, and how many paths a scheme takes for
/// the map, is not known before the run.
fn weight(input: &Input, summary: &WorkloadSummary) -> u64 {
    if input.overheads.is_some() {
        return 1;
    }
    let records = (input.warm_up + input.records).saturating_mul(summary.cores as u64);
    let oram = input.machine.oram.as_ref().filter(|oram| oram.scheme != Scheme::Dram);
    let Some((oram, shape)) = oram.and_then(|oram| Some((oram, oram.shape().ok()?))) else {
        return records;
    };
    let trees = if oram.scheme == Scheme::Recursive { oram.trees as u64 } else { 1 };
    let begins_full = oram.start == Start::Full && !oram.forgets;
    let fill = if begins_full { shape.slots() } else { 0 };
    let paths = records.saturating_add(oram.warm_up).saturating_mul(trees);
    paths.saturating_mul(shape.path_slots() as u64).saturating_add(fill)
}

fn machine(
    experiment: &Experiment,
    base: &Table,
    set: &Table,
    variant: &Variant,
    seed: u64,
) -> Result<Machine> {
    let mut table = base.clone();
    merge(&mut table, set);
    for part in &variant.unset {
        if table.remove(part).is_none() {
            let what = format!("variant `{}`: unset: there is no `{part}`", variant.name);
            return Err(experiment.invalid(&what));
        }
    }
    merge(&mut table, &variant.set);
    if let Some(Value::Table(oram)) = table.get_mut("oram") {
        let seed = i64::try_from(seed).map_err(|e| experiment.invalid(&e))?;
        oram.insert("seed".to_owned(), Value::Integer(seed));
    }
    let invalid = |e: toml::de::Error| {
        experiment.invalid(&format!("variant `{}`: {}", variant.name, e.to_string().trim_end()))
    };
    let machine: Machine = table.try_into().map_err(invalid)?;
    let impossible = |e| experiment.invalid(&format!("variant `{}`: {e}", variant.name));
    machine.check().map_err(impossible)?;
    // Defaults of the scheme are filled in, as the result depends on them, too.
    Ok(Machine { oram: machine.oram.as_ref().map(oram::Config::resolved), ..machine })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::results::hex;
    use crate::machine::Outcome;
    use crate::oram::{Config, Pace, Small};
    use crate::{llc, workload};
    use sha2::{Digest, Sha256};

    /// The expected outcome of a small run of each scheme: its cycles and path accesses, and the
    /// beginning of a digest of all counts.
    const PINNED: [(&str, u64, u64, &str); 15] = [
        ("dram", 4633, 0, "55e2e14cfeed4f56"),
        ("path", 234_909, 405, "f1ad932d5087059b"),
        ("recursive", 617_013, 1184, "ef21032a396ec477"),
        ("unified", 315_993, 545, "a39e12c6f283f0fb"),
        ("compressed", 265_213, 456, "973039f938b5eb60"),
        ("baseline", 457_897, 784, "3186338728ba80c5"),
        ("rho", 1_664_101, 3378, "cd809996eb7ebe05"),
        ("ir-alloc", 443_749, 762, "e252e57ca21e4a93"),
        ("ir-stash", 332_777, 579, "5bd7528b1e8988cd"),
        ("ir-dwb", 455_061, 783, "6f824210c5422450"),
        ("ir-oram", 335_233, 581, "22a60b93abeff8be"),
        ("bundled", 241_937, 415, "51718c4330f22758"),
        ("llc-d", 529_529, 910, "7f8c72f1cb1e8508"),
        ("llc-d+ir-stash+ir-alloc", 343_381, 597, "864d4afec27eb8c5"),
        ("ring", 343_601, 425, "f0b9ffa98169554d"),
    ];

    fn outcome(scheme: Scheme) -> (u64, u64, String) {
        let oram = Config {
            scheme,
            blocks: Some(1 << 13),
            levels: 12,
            cached_levels: 6,
            plb_bytes: 1024,
            pace: Pace::AfterCompletion(300),
            small: Small { levels: 7, cached_levels: 2, sets: 16, ways: 4, ..Small::default() },
            warm_up: 500,
            ..Config::default()
        };
        let last_level = llc::Config {
            bytes: 8 << 10,
            ways: 4,
            latency: 10,
            reads_before_writes: true,
            brought_before: 0,
        };
        let machine =
            Machine { oram: Some(oram), last_level: Some(last_level), ..Machine::ir_oram() };
        let name = "uniform?bytes=512K&before=500+zipf:0.9?bytes=64K@3";
        let mut workloads = [workload::named(name, 900, 1).unwrap()];
        let outcome = machine.run_after(300, &mut workloads).unwrap();
        let paths = outcome.paths.map_or(0, |paths| paths.paths());
        // These counts are newer than the pinned digests: without them, old results stay valid.
        let outcome = Outcome { latencies: None, map: None, ..outcome };
        let text = serde_json::to_string(&outcome).unwrap();
        let text = text.replace(",\"latencies\":null", "").replace(",\"map\":null", "");
        let digest = hex(&Sha256::digest(text));
        (outcome.run.cycles, paths, digest[..16].to_owned())
    }

    /// A change of a result, or of what is counted, needs a new version: otherwise old results
    /// would be taken for new ones.
    #[test]
    fn results_are_of_their_version() {
        let results = Scheme::NAMED.map(|(name, scheme)| (name, outcome(scheme)));
        let lines: Vec<String> = results
            .iter()
            .map(|(name, (cycles, paths, digest))| {
                format!("({name:?}, {cycles}, {paths}, {digest:?}),")
            })
            .collect();
        for ((name, (cycles, paths, digest)), pinned) in results.iter().zip(PINNED) {
            assert_eq!(
                (*name, *cycles, *paths, digest.as_str()),
                pinned,
                "results are others now: raise RESULTS_VERSION from {RESULTS_VERSION}, and pin\n{}",
                lines.join("\n")
            );
        }
    }
}
