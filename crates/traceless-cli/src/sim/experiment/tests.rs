//! Small experiments from their files to their verdicts.

use super::*;
use crate::args::{ProgressArgs, ProgressHow};
use std::fmt::Write as _;
use std::fs;
use tempfile::TempDir;
use traceless::rng::{Rng, Seeded};

const EXPERIMENT: &str = r#"
title = "A test"
paper = "none"
place = "nowhere"
machine = "machine.toml"
workloads = ["lines.usimm"]
[quick]
records = 300
warm-up = 100
seeds = [1, 2]
[full]
records = 500
seeds = [1]
[[variant]]
name = "base"
[[variant]]
name = "narrow"
set = { oram = { allocation = "ir-alloc1", pace = "asked" } }
[[variant]]
name = "straight"
unset = ["oram"]
[[metric]]
name = "speed-up"
of = ["cycles"]
speed-up-over = "base"
[[metric]]
name = "cycles a record"
of = ["cycles"]
per = ["records"]
[[metric]]
name = "paths"
of = ["paths.data", "paths.map"]
[[claim]]
text = "faster"
metric = "speed-up"
variant = "straight"
rule = { at-least = 5.0 }
[[claim]]
text = "as fast as nothing is"
metric = "speed-up"
variant = "straight"
workload = "lines.usimm"
paper = 1e9
rule = { within = 1.0 }
[[claim]]
text = "in this order"
metric = "speed-up"
rule = { order = ["straight", "narrow", "base"] }
[[claim]]
text = "in the other"
metric = "speed-up"
rule = { order = ["base", "straight"] }
"#;

/// A folder with an experiment, as `change` makes it.
fn folder(change: impl Fn(&str) -> String) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/machines");
    fs::copy(machines.join("small.toml"), folder.path().join("machine.toml")).unwrap();
    let mut rng = Seeded::new(3);
    let mut lines = String::new();
    for _ in 0..600 {
        writeln!(lines, "40 R {:#x} 0x0", rng.below(1 << 14) * 64).unwrap();
    }
    fs::write(folder.path().join("lines.usimm"), lines).unwrap();
    fs::write(folder.path().join("test.toml"), change(EXPERIMENT)).unwrap();
    folder
}

fn args(folder: &Path, only: Option<usize>) -> SimRunArgs {
    SimRunArgs {
        experiment: folder.join("test.toml"),
        level: Level::Quick,
        records: None,
        out: folder.join("out"),
        only,
        progress: ProgressArgs { progress: ProgressHow::None },
        json: false,
    }
}

fn report(folder: &Path) -> serde_json::Value {
    let mut files = fs::read_dir(folder.join("out")).unwrap().map(|file| file.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|ending| ending == "json"));
    serde_json::from_slice(&fs::read(file.unwrap()).unwrap()).unwrap()
}

fn results(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder.join("out/runs")).unwrap().map(|file| file.unwrap().path()).collect()
}

#[test]
fn claims_get_their_verdicts() {
    let folder = folder(str::to_owned);
    run(&args(folder.path(), None)).unwrap();
    let report = report(folder.path());
    let reproduced: Vec<bool> = report["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|verdict| verdict["reproduced"].as_bool().unwrap())
        .collect();
    assert_eq!(reproduced, [true, false, true, false], "{report}");
    assert_eq!(report["metrics"][0]["variants"][0]["mean"], 1.0);
    assert_eq!(report["metrics"][2]["variants"][2]["mean"], 0.0, "it has no paths");
    assert_eq!(results(folder.path()).len(), 6);
    let csv = fs::read_to_string(
        fs::read_dir(folder.path().join("out"))
            .unwrap()
            .map(|file| file.unwrap().path())
            .find(|path| path.extension().is_some_and(|ending| ending == "csv"))
            .unwrap(),
    )
    .unwrap();
    assert_eq!(csv.lines().count(), 1 + 6);
}

/// A result that is there is used, whatever it says; one that is torn is made again.
#[test]
fn what_was_made_is_not_made_again() {
    let folder = folder(str::to_owned);
    for only in 0..6 {
        run(&args(folder.path(), Some(only))).unwrap();
        assert_eq!(results(folder.path()).len(), only + 1);
    }
    assert!(run(&args(folder.path(), Some(6))).is_err());
    run(&args(folder.path(), None)).unwrap();
    let first = report(folder.path());
    let result = &results(folder.path())[0];
    let text = fs::read_to_string(result).unwrap();
    let mut told: serde_json::Value = serde_json::from_str(&text).unwrap();
    told["counts"]["cycles"] = 12_345_678.into();
    fs::write(result, told.to_string()).unwrap();
    run(&args(folder.path(), None)).unwrap();
    assert_ne!(report(folder.path()), first, "it was read");
    fs::write(result, &text[..text.len() / 2]).unwrap();
    run(&args(folder.path(), None)).unwrap();
    assert_eq!(report(folder.path()), first, "the same input gives the same result");
}

#[test]
fn what_changes_a_result_changes_its_key() {
    let keys = |change: &dyn Fn(&str) -> String| {
        let folder = folder(change);
        let experiment = Experiment::read(&folder.path().join("test.toml")).unwrap();
        let runs = plan::runs(&experiment, Level::Quick).unwrap();
        runs.into_iter().map(|run| run.key).collect::<Vec<_>>()
    };
    let plain = keys(&str::to_owned);
    assert_eq!(plain, keys(&|text| text.replace("A test", "Another title")));
    for (from, to) in [("records = 300", "records = 301"), ("warm-up = 100", "warm-up = 99")] {
        let other = keys(&|text| text.replace(from, to));
        assert!(plain.iter().all(|key| !other.contains(key)), "{to}");
    }
    let other = keys(&|text| text.replace("ir-alloc1", "ir-alloc2"));
    let same = plain.iter().filter(|key| other.contains(key)).count();
    assert_eq!(same, 4, "two variants are as before");
}

#[test]
fn what_is_wrong_is_named_with_its_file() {
    for (from, to, named) in [
        ("warm-up", "warmup", "unknown field `warmup`"),
        ("allocation", "alocation", "unknown field `alocation`"),
        ("allocation", "alocation", "variant `narrow`"),
        ("unset = [\"oram\"]", "unset = [\"orm\"]", "there is no `orm`"),
        ("speed-up-over = \"base\"", "speed-up-over = \"bas\"", "there is no `bas`"),
        ("of = [\"cycles\"]", "of = [\"cykles\"]", "no run counts `cykles`"),
        ("records = 300", "records = 0", "quick and full have records"),
        ("paper = 1e9\n", "", "this rule takes a number"),
        ("seeds = [1, 2]", "seeds = [1, 2]\nworkloads = [\"x\"]", "there is no `x`"),
        ("name = \"narrow\"", "name = \"base\"", "`base` is there twice"),
        ("lines.usimm", "missing.usimm", "missing.usimm"),
    ] {
        let folder = folder(|text| text.replace(from, to));
        let failure = run(&args(folder.path(), None)).unwrap_err();
        assert!(failure.message.contains(named), "{to}: {}", failure.message);
        assert!(failure.message.contains("test.toml"), "{to}: {}", failure.message);
    }
}

#[test]
fn a_sweep_makes_what_runs_make() {
    let folder = folder(str::to_owned);
    run(&args(folder.path(), None)).unwrap();
    let alone = report(folder.path());
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    let sweep_args = |slurm| SimSweepArgs {
        experiments: vec![folder.path().join("test.toml")],
        level: Level::Quick,
        records: None,
        out: folder.path().join("out"),
        jobs: 2,
        print_commands: false,
        slurm,
        progress: ProgressArgs { progress: ProgressHow::None },
        json: false,
    };
    let script = folder.path().join("script");
    sweep(&sweep_args(Some(script.clone()))).unwrap();
    assert!(!folder.path().join("out").exists(), "nothing was simulated");
    assert!(fs::read_to_string(script).unwrap().contains("--array=0-5\n"));
    sweep(&sweep_args(None)).unwrap();
    assert_eq!(report(folder.path()), alone);
}
