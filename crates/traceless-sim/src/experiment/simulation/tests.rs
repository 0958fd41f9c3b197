//! Small experiments from their files to their verdicts.

use super::*;
use crate::experiment::toml_file;
use crate::workload::Op;
use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;
use traceless::rng::{Rng, SeededRng};
use traceless::trace::Recorder;

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
[[metric]]
name = "cycles in per cent"
of = ["cycles"]
times = 100
relative-to = "base"
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

/// A folder with an experiment, its file edited by `change`.
fn folder(change: impl Fn(&str) -> String) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/machines");
    fs::copy(machines.join("small.toml"), folder.path().join("machine.toml")).unwrap();
    let mut rng = SeededRng::new(3);
    let mut lines = String::new();
    for _ in 0..600 {
        writeln!(lines, "40 R {:#x} 0x0", rng.below(1 << 14) * 64).unwrap();
    }
    fs::write(folder.path().join("lines.usimm"), lines).unwrap();
    fs::write(folder.path().join("test.toml"), change(EXPERIMENT)).unwrap();
    folder
}

/// The quick runs of the experiment in a folder.
fn sweep(folder: &Path, records: Option<u64>) -> Result<Sweep> {
    Sweep::read(&[folder.join("test.toml")], Level::Quick, records)
}

/// Makes the missing runs of a sweep.
fn complete(folder: &Path, sweep: &Sweep, jobs: usize) -> Result<Results> {
    let results = open_results(&folder.join("out"))?;
    let interrupted = AtomicBool::new(false);
    let control = Control { interrupted: &interrupted, progress: &mut |_, _| {} };
    sweep.complete(&results, jobs, control)?;
    Ok(results)
}

/// Makes the missing runs and writes the report, as `traceless sim run` does.
fn run(folder: &Path, records: Option<u64>) -> Result {
    let sweep = sweep(folder, records)?;
    let results = complete(folder, &sweep, 1)?;
    sweep.conclude(&results, &folder.join("out"))?;
    Ok(())
}

/// Makes one run, unless it has a result.
fn run_one(folder: &Path, nth: usize) -> Result {
    let mut sweep = sweep(folder, None)?;
    sweep.select(nth)?;
    complete(folder, &sweep, 1)?;
    Ok(())
}

fn report(folder: &Path) -> serde_json::Value {
    let mut files = fs::read_dir(folder.join("out")).unwrap().map(|file| file.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|ending| ending == "json"));
    serde_json::from_slice(&fs::read(file.unwrap()).unwrap()).unwrap()
}

fn results(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder.join("out/runs")).unwrap().map(|file| file.unwrap().path()).collect()
}

/// The verdicts of a report: whether each claim was reproduced, or why the run is too short.
fn verdicts(report: &serde_json::Value) -> Vec<Result<bool, String>> {
    let verdicts = report["verdicts"].as_array().unwrap().iter();
    let verdict = |of: &serde_json::Value| match of["reproduced"].as_bool() {
        Some(reproduced) => {
            assert!(of["too_short"].is_null());
            Ok(reproduced)
        }
        None => Err(of["too_short"].as_str().unwrap().to_owned()),
    };
    verdicts.map(verdict).collect()
}

/// Why runs at level quick are too short to judge each claim, after `change` of the file and with
/// the number of records that the user sets.
fn shortfalls(change: impl Fn(&str) -> String, records: Option<u64>) -> Vec<Option<String>> {
    let folder = folder(change);
    run(folder.path(), records).unwrap();
    let picture = fs::read_to_string(
        folder
            .path()
            .join("out")
            .join(format!("{}.quick.svg", toml_file::file_name(&folder.path().join("test.toml")))),
    );
    let found: Vec<_> = verdicts(&report(folder.path())).into_iter().map(Result::err).collect();
    let is_short = found.iter().any(Option::is_some);
    assert_eq!(picture.unwrap().contains("too short to judge: "), is_short);
    found
}

#[test]
fn claims_are_judged_from_runs_as_long_as_at_level_full() {
    let too_short = |what: &str| vec![Some(what.to_owned()); 4];
    assert_eq!(shortfalls(str::to_owned, None), too_short("300 records of 500"));
    assert_eq!(shortfalls(str::to_owned, Some(499)), too_short("499 records of 500"));
    assert_eq!(shortfalls(str::to_owned, Some(500)), [const { None }; 4]);
    let enough = |text: &str| text.replace("records = 500", "records = 300");
    assert_eq!(shortfalls(enough, None), [const { None }; 4]);
    let colder = |text: &str| enough(text).replace("[full]", "[full]\nwarm-up = 101");
    assert_eq!(shortfalls(colder, None), too_short("100 records to warm up of 101"));
    let machine =
        |text: &str| enough(text).replace("[full]", "[quick.set]\noram = { plb_ways = 1 }\n[full]");
    assert_eq!(shortfalls(machine, None), too_short("another machine than at level full"));
    let fewer = |text: &str| {
        let text = enough(text).replace("lines.usimm\"]", "lines.usimm\", \"uniform\"]");
        text.replace("[quick]", "[quick]\nworkloads = [\"lines.usimm\"]")
    };
    let mut all = too_short("1 workloads of 2");
    all[1] = None;
    assert_eq!(shortfalls(fewer, None), all, "the second is about one workload");
    let alone =
        |text: &str| text.replace("text = \"faster\"", "text = \"faster\"\nat-any-size = true");
    let mut some = too_short("300 records of 500");
    some[0] = None;
    assert_eq!(shortfalls(alone, None), some);
    let seeds = |text: &str| {
        let text = enough(text).replace("seeds = [1]", "seeds = [1, 2, 3]");
        text.replace("text = \"faster\"", "text = \"faster\"\nof-deviation = true")
    };
    let mut first = vec![None; 4];
    first[0] = Some("2 seeds of 3".to_owned());
    assert_eq!(shortfalls(seeds, None), first);
}

/// The seeds of a machine without labels are all alike; the seeds of a machine with labels differ.
#[test]
fn a_claim_may_be_about_the_deviation_between_seeds() {
    let of = |variant: &str| {
        let folder = folder(|text| {
            let text = text.replace("records = 500\nseeds = [1]", "records = 300\nseeds = [1, 2]");
            text.replace(
                "text = \"faster\"\nmetric = \"speed-up\"\nvariant = \"straight\"",
                &format!(
                    "text = \"faster\"\nof-deviation = true\nmetric = \"cycles a record\"\n\
                     variant = \"{variant}\""
                ),
            )
        });
        run(folder.path(), None).unwrap();
        let report = report(folder.path());
        let variants = report["metrics"][1]["variants"].as_array().unwrap().clone();
        let metric = variants.into_iter().find(|of| of["name"] == variant).unwrap();
        let deviation = report["verdicts"][0]["measured"].as_f64().unwrap();
        assert_eq!(metric["deviation"].as_f64().map(f64::to_bits), Some(deviation.to_bits()));
        // The standard deviation of two seeds is half their distance times the square root of two.
        let spread = metric["spread"].as_f64().unwrap();
        assert!((deviation - spread / 2.0_f64.sqrt()).abs() < 1e-9 * spread.max(1.0));
        deviation
    };
    assert!(of("straight") < 1e-12);
    assert!(of("base") > 0.0);
}

/// Each half of an experiment is compared with a variant of its own.
#[test]
fn a_variant_may_be_compared_with_another_one() {
    let change = |text: &str| {
        text.replace(
            "name = \"narrow\"",
            "name = \"narrow\"\nrelative-to = { base = \"straight\" }",
        )
    };
    let folder = folder(change);
    run(folder.path(), None).unwrap();
    let report = report(folder.path());
    let mean = |metric: usize, variant: usize| {
        report["metrics"][metric]["variants"][variant]["mean"].as_f64().unwrap()
    };
    assert!((mean(0, 0) - 1.0).abs() < 1e-12, "of itself");
    assert!(mean(0, 1) < 0.5 && mean(0, 2) > 2.0, "{report}");
    assert!(mean(3, 1) > 200.0 && mean(3, 2) < 50.0, "{report}");
}

#[test]
fn claims_are_judged_by_their_rules() {
    let folder = folder(|text| text.replace("records = 500", "records = 300"));
    run(folder.path(), None).unwrap();
    let report = report(folder.path());
    assert_eq!(verdicts(&report), [true, false, true, false].map(Ok), "{report}");
    assert_eq!(report["metrics"][0]["variants"][0]["mean"], 1.0);
    assert_eq!(report["metrics"][2]["variants"][2]["mean"], 0.0, "it has no paths");
    assert_eq!(report["metrics"][3]["variants"][0]["mean"], 100.0, "of itself");
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

/// An existing result is used, even a wrong one without a digest; a changed and a torn one are made
/// again.
#[test]
fn stored_results_are_used_and_torn_ones_are_made_again() {
    let folder = folder(str::to_owned);
    for only in 0..6 {
        run_one(folder.path(), only).unwrap();
        assert_eq!(results(folder.path()).len(), only + 1);
    }
    assert!(run_one(folder.path(), 6).is_err());
    run(folder.path(), None).unwrap();
    let first = report(folder.path());
    let result = &results(folder.path())[0];
    let text = fs::read_to_string(result).unwrap();
    let wrong = text.replacen("\"cycles\": ", "\"cycles\": 1", 1);
    let digest = wrong.find("\"digest\"").unwrap();
    let end = digest + wrong[digest..].find('\n').unwrap() + 1;
    fs::write(result, format!("{}{}", &wrong[..digest], &wrong[end..])).unwrap();
    run(folder.path(), None).unwrap();
    assert_ne!(report(folder.path()), first, "it was read");
    fs::write(result, wrong).unwrap();
    run(folder.path(), None).unwrap();
    assert_eq!(report(folder.path()), first, "its digest is another");
    fs::write(result, &text[..text.len() / 2]).unwrap();
    run(folder.path(), None).unwrap();
    assert_eq!(report(folder.path()), first, "the same input gives the same result");
}

/// A run with a result is watched all the same, and gives the same result.
#[test]
fn a_watched_run_is_made_again() {
    let folder = folder(str::to_owned);
    run_one(folder.path(), 0).unwrap();
    let result = fs::read(&results(folder.path())[0]).unwrap();
    let mut sweep = sweep(folder.path(), None).unwrap();
    sweep.select(0).unwrap();
    assert_eq!(sweep.run_count(), 1);
    let (bus, requests) = (Arc::new(Recorder::default()), Arc::new(AtomicU64::new(0)));
    let count = requests.clone();
    let on_request = move |_: Op, _: u64| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let watch = Watch {
        bus: Some(bus.clone()),
        on_request: Some(Arc::new(on_request)),
        ..Watch::default()
    };
    let opened = open_results(&folder.path().join("out")).unwrap();
    sweep.make_watched(&opened, &watch).unwrap();
    assert_eq!(fs::read(&results(folder.path())[0]).unwrap(), result);
    let stored: serde_json::Value = serde_json::from_slice(&result).unwrap();
    let paths = stored["counts"]["paths"]["data"].as_u64().unwrap();
    assert!(bus.take().len() as u64 > 100 * paths);
    let cache = &stored["counts"]["last_level"];
    let expected = ["read_misses", "write_backs"].map(|of| cache[of].as_u64().unwrap());
    assert_eq!(requests.load(Ordering::Relaxed), expected[0] + expected[1]);
}

#[test]
fn changes_that_affect_a_result_change_its_key() {
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

/// The keys of the quick runs of the experiment at `path`.
fn keys(path: &Path) -> Vec<String> {
    let experiment = Experiment::read(path).unwrap();
    let runs = plan::runs(&experiment, Level::Quick).unwrap();
    runs.into_iter().map(|run| run.key).collect()
}

#[test]
fn a_file_overrides_values_of_the_file_it_is_like() {
    let folder = folder(str::to_owned);
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
    write("same.toml", "like = \"test.toml\"\ntitle = \"Another\"");
    assert_eq!(keys(&path("same.toml")), keys(&path("test.toml")));
    assert_eq!(Experiment::read(&path("same.toml")).unwrap().title, "Another");
    write("set.toml", "like = \"same.toml\"\nset = { oram = { plb_ways = 1 } }");
    let (same, set) = (keys(&path("same.toml")), keys(&path("set.toml")));
    assert_eq!(same.len(), set.len());
    assert_eq!(same[4..], set[4..], "what has no ORAM is as before");
    assert!(same[..4].iter().all(|key| !set.contains(key)));
    write("longer.toml", "like = \"test.toml\"\n[quick]\nwarm-up = 7");
    let longer = Experiment::read(&path("longer.toml")).unwrap();
    let quick = longer.extent(Level::Quick);
    assert_eq!((quick.records, quick.warm_up), (300, 7), "the rest of a table stays");
    write("itself.toml", "like = \"itself.toml\"");
    let failure = Experiment::read(&path("itself.toml")).unwrap_err();
    assert!(failure.to_string().contains("too many files"), "{failure}");
    write("none.toml", "like = 1");
    assert!(Experiment::read(&path("none.toml")).is_err());
}

#[test]
fn choices_are_added_to_each_workload() {
    let folder = folder(|text| {
        let text = text.replace("lines.usimm", "zipf:0.5|uniform");
        text.replace("[quick]", "choices = \"bytes=1M\"\n[quick]")
    });
    let experiment = Experiment::read(&folder.path().join("test.toml")).unwrap();
    let runs = plan::runs(&experiment, Level::Quick).unwrap();
    assert_eq!(runs[0].input.workload, "zipf:0.5?bytes=1M|uniform?bytes=1M");
    let none = "like = \"test.toml\"\nchoices = \"\"";
    fs::write(folder.path().join("none.toml"), none).unwrap();
    let experiment = Experiment::read(&folder.path().join("none.toml")).unwrap();
    let runs = plan::runs(&experiment, Level::Quick).unwrap();
    assert_eq!(runs[0].input.workload, "zipf:0.5|uniform");
}

/// Two lines always hit the last cache, and every third record misses it: so three times as many
/// records are run.
#[test]
fn in_misses_counts_records_that_miss_the_last_cache() {
    let folder = folder(|text| text.replace("warm-up = 100", "warm-up = 100\nin-misses = true"));
    let mut lines = String::new();
    for nth in 0..3000_u64 {
        let line = if nth % 3 == 0 { nth * 64 + (1 << 20) } else { nth % 3 * 64 };
        writeln!(lines, "40 R {line:#x} 0x0").unwrap();
    }
    fs::write(folder.path().join("lines.usimm"), lines).unwrap();
    let experiment = Experiment::read(&folder.path().join("test.toml")).unwrap();
    let runs = plan::runs(&experiment, Level::Quick).unwrap();
    let (mut programs, warm_up) = workloads::open(&experiment, &runs[0].input).unwrap();
    let workload = &mut programs[0].threads[0];
    let records = std::iter::from_fn(|| workload.next().unwrap()).count();
    assert!(runs[0].input.machine.last_level.is_some());
    assert!((292..=300).contains(&warm_up), "{warm_up}");
    assert!((1192..=1200).contains(&records), "{records}");
}

#[test]
fn errors_name_the_file_and_the_value() {
    for (from, to, named) in [
        ("warm-up", "warmup", "unknown field `warmup`"),
        ("unset = [\"oram\"]", "overheads = { log-blocks = 61, block-bits = 1 }", "2^4 to 2^60"),
        ("allocation", "alocation", "unknown field `alocation`"),
        ("allocation", "alocation", "variant `narrow`"),
        ("unset = [\"oram\"]", "unset = [\"orm\"]", "there is no `orm`"),
        ("speed-up-over = \"base\"", "speed-up-over = \"bas\"", "there is no `bas`"),
        ("unset = [\"oram\"]", "relative-to = { x = \"base\" }", "relative-to: there is no `x`"),
        ("unset = [\"oram\"]", "relative-to = { base = \"y\" }", "relative-to: there is no `y`"),
        ("of = [\"cycles\"]", "of = [\"cykles\"]", "no run counts `cykles`"),
        ("records = 300", "records = 0", "quick and full have records"),
        ("paper = 1e9\n", "", "this rule takes a number"),
        ("paper = 1e9", "paper = 1e9\nof-deviation = true", "about the mean over all"),
        ("text = \"faster\"", "text = \"faster\"\nof-deviation = true", "two seeds or more"),
        ("seeds = [1, 2]", "seeds = [1, 2]\nworkloads = [\"x\"]", "there is no `x`"),
        ("name = \"narrow\"", "name = \"base\"", "`base` is there twice"),
        ("lines.usimm", "missing.usimm", "missing.usimm"),
        ("lines.usimm\"]", "a+b\"]\nchoices = \"bytes=1M\"", "of a chain there are no choices"),
    ] {
        let folder = folder(|text| text.replace(from, to));
        let message = run(folder.path(), None).unwrap_err().to_string();
        assert!(message.contains(named), "{to}: {message}");
        assert!(message.contains("test.toml"), "{to}: {message}");
    }
}

#[test]
fn several_runs_at_a_time_give_the_same_report() {
    let folder = folder(str::to_owned);
    run(folder.path(), None).unwrap();
    let alone = report(folder.path());
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    let sweep = sweep(folder.path(), None).unwrap();
    let commands = sweep.commands(Path::new("traceless"), folder.path()).unwrap();
    assert_eq!(commands.len(), 6);
    assert!(sweep.slurm_script(&commands).contains("--array=0-5\n"));
    let results = complete(folder.path(), &sweep, 2).unwrap();
    sweep.conclude(&results, &folder.path().join("out")).unwrap();
    assert_eq!(report(folder.path()), alone);
}

#[test]
fn an_interrupted_sweep_makes_no_runs() {
    let folder = folder(str::to_owned);
    let opened = open_results(&folder.path().join("out")).unwrap();
    let interrupted = AtomicBool::new(true);
    let control = Control { interrupted: &interrupted, progress: &mut |_, _| {} };
    let sweep = sweep(folder.path(), None).unwrap();
    assert!(matches!(sweep.complete(&opened, 1, control), Err(Error::Interrupted)));
    assert!(results(folder.path()).is_empty());
}

/// Makes a shard, with results in `name`.
fn make_shard(folder: &Path, shard: &str, name: &str) {
    let (interrupted, sweep) = (AtomicBool::new(false), sweep(folder, None).unwrap());
    let control = Control { interrupted: &interrupted, progress: &mut |_, _| {} };
    sweep.complete_shard(shard.parse().unwrap(), &folder.join(name), 1, control).unwrap();
}

/// Joins the shards in `names`, with results and report in `out`.
fn merge(folder: &Path, names: &[&str]) -> Result {
    let folders: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    let (sweep, out) = (sweep(folder, None)?, folder.join("out"));
    let results = sweep.merge(&folders, &out)?;
    sweep.conclude(&results, &out)?;
    Ok(())
}

/// Every file of a folder, by its name from there.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = vec![];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

fn results_in(folder: &Path, name: &str) -> Vec<PathBuf> {
    files(&folder.join(name).join("runs")).into_iter().map(|(path, _)| path).collect()
}

const SHARDS: [&str; 3] = ["a", "b", "c"];

/// A folder with an experiment and its three shards.
fn folder_of_shards() -> TempDir {
    let folder = folder(str::to_owned);
    for (nth, name) in SHARDS.iter().enumerate() {
        make_shard(folder.path(), &format!("{nth}/3"), name);
    }
    folder
}

#[test]
fn shards_come_to_what_one_sweep_makes() {
    let folder = folder_of_shards();
    let counts = SHARDS.map(|name| results_in(folder.path(), name).len());
    assert_eq!(counts.iter().sum::<usize>(), 6, "no run is made twice: {counts:?}");
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    merge(folder.path(), &SHARDS).unwrap();
    let merged = files(&folder.path().join("out"));
    merge(folder.path(), &["c", "b", "a", "b"]).unwrap();
    assert_eq!(files(&folder.path().join("out")), merged, "in any order, and twice");
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    run(folder.path(), None).unwrap();
    assert_eq!(files(&folder.path().join("out")), merged);
    for nth in 0..9 {
        make_shard(folder.path(), &format!("{nth}/9"), "shared");
    }
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    merge(folder.path(), &["shared"]).unwrap();
    assert_eq!(files(&folder.path().join("out")), merged, "in one folder, some of them empty");
}

#[test]
fn missing_shards_and_runs_are_named_with_their_commands() {
    let folder = folder_of_shards();
    let file = folder.path().join("test.toml");
    let told = |names: &[&str]| {
        let failure = merge(folder.path(), names).unwrap_err();
        assert!(!failure.is_finding() && !failure.is_io());
        failure.to_string()
    };
    let without = told(&["a", "c"]);
    let command = |nth: usize, out: &Path| {
        let (file, out) = (file.display(), out.display());
        format!("traceless sim sweep '{file}' --level quick --out '{out}' --shard {nth}/3")
    };
    assert!(without.contains("shard 1/3 is missing"), "{without}");
    assert!(without.contains(&command(1, Path::new("shard-1"))), "{without}");
    assert_eq!(without.lines().count(), 2, "{without}");
    fs::remove_file(&results_in(folder.path(), "b")[0]).unwrap();
    let lacking = told(&SHARDS);
    assert!(lacking.contains("lacks variant `"), "{lacking}");
    assert!(lacking.contains(&command(1, &folder.path().join("b"))), "{lacking}");
    assert!(!folder.path().join("out/runs").read_dir().unwrap().any(|_| true), "nothing is stored");
    make_shard(folder.path(), "1/3", "b");
    merge(folder.path(), &SHARDS).unwrap();
}

#[test]
fn shards_of_other_sweeps_are_refused() {
    let folder = folder_of_shards();
    let told = |names: &[&str]| merge(folder.path(), names).unwrap_err().to_string();
    fs::create_dir(folder.path().join("none")).unwrap();
    assert!(told(&["a", "none"]).contains("none: no shard lies here"));
    make_shard(folder.path(), "1/2", "half");
    let half = told(&["a", "half"]);
    assert!(half.contains("1-of-2.json") && half.contains("one of 2 shards, not of 3"), "{half}");
    for (from, to, expected) in [
        ("records = 300", "records = 301", "the runs of "),
        ("seeds = [1, 2]", "seeds = [1, 3]", "other machines, workloads or seeds"),
        ("ir-alloc1", "ir-alloc2", "other machines"),
    ] {
        fs::write(folder.path().join("test.toml"), EXPERIMENT.replace(from, to)).unwrap();
        let failure = told(&SHARDS);
        assert!(failure.contains("0-of-3.json") && failure.contains(expected), "{failure}");
    }
    fs::write(folder.path().join("test.toml"), EXPERIMENT).unwrap();
    let record = folder.path().join("b/shards/1-of-3.json");
    let text = fs::read_to_string(&record).unwrap();
    for (from, to, expected) in [
        ("\"version\": ", "\"version\": 9", "of the simulator's rules made it"),
        ("\"level\": \"quick\"", "\"level\": \"full\"", "--level full, not --level quick"),
        ("\"records\": null", "\"records\": 7", "--level quick --records 7, not --level quick"),
        ("\"name\": \"", "\"name\": \"other-", "its experiments are other-"),
    ] {
        let digest = text.replace("\"digest\": \"", "\"digest\": \"0");
        fs::write(&record, digest.replace(from, to)).unwrap();
        let failure = told(&SHARDS);
        assert!(failure.contains("1-of-3.json") && failure.contains(expected), "{failure}");
    }
    for torn in [&text[..text.len() / 2], &text.replace("\"shard\": 1", "\"shard\": 3")] {
        fs::write(&record, torn).unwrap();
        assert!(merge(folder.path(), &SHARDS).unwrap_err().is_finding());
    }
}

#[test]
fn results_that_are_damaged_or_differ_are_findings() {
    let folder = folder_of_shards();
    let result = &results_in(folder.path(), "b")[0];
    let text = fs::read_to_string(result).unwrap();
    let told = |names: &[&str]| {
        let failure = merge(folder.path(), names).unwrap_err();
        assert!(failure.is_finding(), "{failure}");
        failure.to_string()
    };
    for damaged in [&text[..text.len() / 2], "", &text.replace("\"cycles\": ", "\"cycles\": 1")] {
        fs::write(result, damaged).unwrap();
        let failure = told(&SHARDS);
        assert!(failure.contains(result.to_str().unwrap()), "{failure}");
        assert!(failure.contains("--shard 1/3"), "{failure}");
    }
    make_shard(folder.path(), "1/3", "b");
    assert_eq!(fs::read_to_string(result).unwrap(), text, "it is made again");
    make_shard(folder.path(), "1/3", "again");
    let other = &results_in(folder.path(), "again")
        .into_iter()
        .find(|path| path.file_name() == result.file_name())
        .unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["counts"]["cycles"] = 1.into();
    json.as_object_mut().unwrap().remove("digest");
    fs::write(other, json.to_string()).unwrap();
    let failure = told(&["a", "b", "c", "again"]);
    for named in [result, other] {
        assert!(failure.contains(named.to_str().unwrap()), "{failure}");
    }
    assert!(failure.contains("seed ") && failure.contains("two results differ"), "{failure}");
}
