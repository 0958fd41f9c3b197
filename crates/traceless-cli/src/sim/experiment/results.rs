//! Results: one file a run, named by what the run follows from, and whole or not there.

use super::file::Experiment;
use super::plan::{Input, Run};
use super::workloads;
use crate::failure::{DEVICE, Failure};
use crate::output::Meter;
use crate::parallel::in_parallel;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use traceless_sim::Watch;

const SCHEMA: &str = "traceless.sim.result.v1";

#[derive(Serialize)]
struct Written<'a> {
    schema: &'static str,
    input: &'a Input,
    counts: &'a Value,
}

#[derive(Deserialize)]
struct Found {
    schema: String,
    counts: Value,
}

/// A folder of results.
pub struct Results {
    folder: PathBuf,
}

impl Results {
    /// In `out`, which is made if it is not there.
    pub fn open(out: &Path) -> Result<Self, Failure> {
        let folder = out.join("runs");
        fs::create_dir_all(&folder).map_err(|e| failed(&folder, &e))?;
        Ok(Self { folder })
    }

    /// What the run counted, if it was made.
    pub fn find(&self, run: &Run) -> Option<Value> {
        let found: Found = serde_json::from_slice(&fs::read(self.path(run)).ok()?).ok()?;
        (found.schema == SCHEMA).then_some(found.counts)
    }

    fn keep(&self, run: &Run, counts: &Value) -> Result<(), Failure> {
        let path = self.path(run);
        let written = Written { schema: SCHEMA, input: &run.input, counts };
        let text = serde_json::to_string_pretty(&written).map_err(Failure::usage)?;
        write_whole(&path, text.as_bytes()).map_err(|e| failed(&path, &e))
    }

    fn path(&self, run: &Run) -> PathBuf {
        self.folder.join(format!("{}.json", run.key))
    }

    /// Makes the runs that were not made before, `jobs` at a time, and tells what each counted, in
    /// their order. After an interruption what is finished is kept.
    pub fn complete(
        &self,
        runs: &[(&Experiment, &Run)],
        jobs: usize,
        interrupted: &AtomicBool,
        meter: &mut Meter,
    ) -> Result<(), Failure> {
        let missing: Vec<_> = runs.iter().filter(|(_, run)| self.find(run).is_none()).collect();
        let progress = Mutex::new((runs.len() - missing.len(), meter));
        let failure = Mutex::new(None);
        let stops = || {
            interrupted.load(Ordering::Relaxed) || failure.lock().expect("held briefly").is_some()
        };
        in_parallel(&missing, jobs, |(experiment, run)| {
            if stops() {
                return;
            }
            if let Err(e) = self.make(experiment, run) {
                *failure.lock().expect("held briefly") = Some(e);
                return;
            }
            let (done, meter) = &mut *progress.lock().expect("held briefly");
            *done += 1;
            meter.update(*done as u64, runs.len() as u64);
        });
        if let Some(failure) = failure.into_inner().expect("no thread holds it") {
            return Err(failure);
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::usage("interrupted; what is finished is kept"));
        }
        Ok(())
    }

    /// Two runs of one key may be made at the same time: both write the same.
    fn make(&self, experiment: &Experiment, run: &Run) -> Result<(), Failure> {
        if self.find(run).is_some() {
            return Ok(());
        }
        self.make_watched(experiment, run, &Watch::default())
    }

    /// The same, whether it was made or not, and `watch` sees it.
    pub fn make_watched(
        &self,
        experiment: &Experiment,
        run: &Run,
        watch: &Watch,
    ) -> Result<(), Failure> {
        let counts = simulate(experiment, &run.input, watch)?;
        self.keep(run, &counts)
    }
}

fn simulate(experiment: &Experiment, input: &Input, watch: &Watch) -> Result<Value, Failure> {
    if let Some(overheads) = &input.overheads {
        return Ok(overheads.counts());
    }
    let (mut programs, warm_up) = workloads::open(experiment, input)?;
    let outcome = input.machine.run_watched(warm_up, &mut programs, watch).map_err(|e| {
        let failure = Failure::from(e);
        Failure::new(failure.code, format!("{}: {}", input.workload, failure.message))
    })?;
    serde_json::to_value(&outcome).map_err(Failure::usage)
}

/// Writes a file that has its name only when it is whole, and durable.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static NTH: AtomicUsize = AtomicUsize::new(0);
    let nth = NTH.fetch_add(1, Ordering::Relaxed);
    let mut coming = path.as_os_str().to_owned();
    coming.push(format!(".{}.{nth}.part", std::process::id()));
    let written = (|| {
        let mut file = fs::File::create_new(&coming)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&coming, path)
    })();
    if written.is_err() {
        // It may not even have been made.
        let _ = fs::remove_file(&coming);
    }
    written
}

pub fn failed(path: &Path, e: &dyn std::fmt::Display) -> Failure {
    Failure::new(DEVICE, format!("{}: {e}", path.display()))
}
