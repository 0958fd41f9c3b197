//! Commands of this program and of `traceless`, and their results, which are kept: a command is
//! not run again while its input is the same.

use super::supervisor;
use crate::program;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;
use traceless::clock::{Clock, Monotonic};
use traceless_cli::failure::{BUSY, DEVICE, Failure};
use traceless_cli::output::eprint_line;
use traceless_cli::signals;
use traceless_sim::experiment::Error;
use traceless_sim::experiment::results::{Results, key};

/// A command, and all that its result follows from besides the machine and the version.
pub struct PageJob {
    pub id: String,
    pub program: JobProgram,
    pub words: Vec<String>,
    /// Words that say where results go, on which they do not depend.
    pub places: Vec<String>,
    pub input: Value,
    /// The exit codes of a command that has a result.
    pub codes: &'static [i32],
    /// Minutes that it takes at level full.
    pub minutes: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobProgram {
    Traceless,
    Lab,
}

/// The result of a command.
pub struct Outcome {
    pub report: Value,
    pub seconds: f64,
    /// Whether it was there before.
    pub is_kept: bool,
}

/// The reason why a command has no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoResult {
    /// Its turn has not come.
    NotMade,
    /// It failed, as these words say.
    Failed(String),
}

/// The folder of the results, held by one report at a time.
pub struct Workshop {
    folder: PathBuf,
    results: Results,
    interrupted: Arc<AtomicBool>,
    cpu: String,
    /// Locked.
    _lock: File,
}

const SCHEMA: &str = "traceless.lab.outcome.v1";
/// How often a command is looked at while it runs.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of its last words that are kept if a command fails.
const LAST_WORDS: usize = 600;

impl fmt::Display for NoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMade => f.write_str("Not made yet"),
            Self::Failed(words) => write!(f, "Could not be run here: {words}"),
        }
    }
}

impl JobProgram {
    pub fn name(self) -> &'static str {
        match self {
            Self::Traceless => "traceless",
            Self::Lab => "traceless-lab",
        }
    }

    fn command(self) -> Result<Command, String> {
        match self {
            Self::Traceless => Ok(program::traceless()),
            Self::Lab => Ok(Command::new(std::env::current_exe().map_err(|e| e.to_string())?)),
        }
    }
}

impl PageJob {
    /// The command as a user types it.
    pub fn line(&self) -> String {
        let words = self.words.iter().chain(&self.places).map(String::as_str);
        [self.program.name()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Whether `folder` has the result.
    pub fn is_made(&self, folder: &Path, cpu: &str) -> Result<bool, Error> {
        Ok(Results::existing(folder, SCHEMA).find(&self.key(cpu)?).is_some())
    }

    /// The name of the result.
    fn key(&self, cpu: &str) -> Result<String, Error> {
        key(&self.whole_input(cpu))
    }

    fn whole_input(&self, cpu: &str) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cpu": cpu,
            "program": self.program.name(),
            "words": self.words,
            "input": self.input,
        })
    }
}

impl Workshop {
    /// Opens the folder, for one report at a time.
    pub fn open(folder: &Path, cpu: String) -> Result<Self, Failure> {
        let results = Results::open(folder, SCHEMA)?;
        let path = folder.join("lock");
        let lock = File::create(&path)
            .map_err(|e| Failure::new(DEVICE, format!("{}: {e}", path.display())))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Failure::new(BUSY, format!("{}: another report is at work there", folder.display()))
        })?;
        remove_parts(folder);
        let folder = folder.to_owned();
        Ok(Self { folder, results, interrupted: signals::flag()?, cpu, _lock: lock })
    }

    /// The result of a job, which is run if there is none. `place` is its number among all jobs.
    /// The outer failure ends the report, the inner one is a job's own.
    pub fn outcome(
        &self,
        job: &PageJob,
        place: &str,
    ) -> Result<Result<Outcome, NoResult>, Failure> {
        let key = job.key(&self.cpu)?;
        if let Some(stored) = self.results.find(&key) {
            eprint_line(&format!("{place} {}: is there", job.id));
            return Ok(Ok(Outcome::of(&stored, true)));
        }
        let clock = Monotonic::start();
        let made = self.make(job);
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::Interrupted.into());
        }
        let seconds = clock.now() as f64 / 1e9;
        let report = match made {
            Ok(report) => report,
            Err(words) => {
                eprint_line(&format!("{place} {}: {words}", job.id));
                return Ok(Err(NoResult::Failed(words)));
            }
        };
        let stored = json!({ "report": report, "seconds": seconds });
        self.results.store(&key, &job.whole_input(&self.cpu), &stored)?;
        eprint_line(&format!("{place} {}: {seconds:.1} s", job.id));
        Ok(Ok(Outcome::of(&stored, false)))
    }

    /// Runs a job. A failure is in words for the page.
    fn make(&self, job: &PageJob) -> Result<Value, String> {
        let failed = |e: std::io::Error| e.to_string();
        let [out, err] = ["out", "err"].map(|name| self.folder.join(name));
        let mut command = supervisor::supervised(&job.program.command()?).map_err(failed)?;
        command.args(&job.words).args(&job.places).stdin(Stdio::null());
        command.stdout(File::create(&out).map_err(failed)?);
        command.stderr(File::create(&err).map_err(failed)?);
        let status = self.wait(&mut command).map_err(failed)?;
        if !status.code().is_some_and(|code| job.codes.contains(&code)) {
            let words = fs::read_to_string(&err).unwrap_or_default();
            let words = words.trim();
            let from = words.len().saturating_sub(LAST_WORDS);
            let from = (from..words.len()).find(|&at| words.is_char_boundary(at)).unwrap_or(from);
            return Err(format!("{status}: {}", &words[from..]));
        }
        let text = fs::read_to_string(&out).map_err(failed)?;
        serde_json::from_str(&text).map_err(|e| format!("no report: {e}"))
    }

    /// Waits for a command, and ends it if this process is to end.
    fn wait(&self, command: &mut Command) -> std::io::Result<ExitStatus> {
        let mut child = command.spawn()?;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                supervisor::end(&child);
                return child.wait();
            }
            sleep(LOOK);
        }
    }
}

/// Removes files that a killed report, or a command of one, has left half written.
fn remove_parts(outcomes: &Path) {
    let out = outcomes.parent().unwrap_or(outcomes);
    for folder in ["", "outcomes/runs", "results", "results/runs"].map(|name| out.join(name)) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|ending| ending == "part") {
                // What cannot be removed is harmless.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Outcome {
    fn of(stored: &Value, is_kept: bool) -> Self {
        let seconds = stored["seconds"].as_f64().unwrap_or_default();
        Self { report: stored["report"].clone(), seconds, is_kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(words: &[&str], input: Value) -> PageJob {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        let (id, program, places) = ("a".to_owned(), JobProgram::Lab, vec!["--out".to_owned()]);
        PageJob { id, program, words, places, input, codes: &[0], minutes: 1.0 }
    }

    #[test]
    fn a_result_is_of_its_input_and_not_of_its_place() {
        let one = job(&["audit"], json!({ "a": 1 }));
        let key = |job: &PageJob| job.key("cpu").unwrap();
        assert_eq!(
            key(&one),
            key(&PageJob { places: vec![], ..job(&["audit"], json!({ "a": 1 })) })
        );
        assert_ne!(key(&one), key(&job(&["audit"], json!({ "a": 2 }))));
        assert_ne!(key(&one), key(&job(&["bench"], json!({ "a": 1 }))));
        assert_ne!(key(&one), one.key("another").unwrap());
        assert_eq!(one.line(), "traceless-lab audit --out");
    }

    #[test]
    fn a_folder_has_one_report_at_a_time_and_no_half_files_of_earlier_ones() {
        let out = tempfile::tempdir().unwrap();
        let folder = out.path().join("outcomes");
        let first = Workshop::open(&folder, String::new()).unwrap();
        let second = Workshop::open(&folder, String::new()).err().unwrap();
        assert_eq!(second.code, BUSY);
        drop(first);
        let part = folder.with_file_name("half.part");
        fs::write(&part, "{").unwrap();
        assert!(Workshop::open(&folder, String::new()).is_ok());
        assert!(!part.exists());
    }

    #[test]
    fn what_is_there_is_not_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let workshop = Workshop::open(folder.path(), String::new()).unwrap();
        let job = job(&["audit"], Value::Null);
        let stored = json!({ "report": { "verdict": "pass" }, "seconds": 2.5 });
        workshop.results.store(&job.key("").unwrap(), &Value::Null, &stored).unwrap();
        let Outcome { report, seconds, is_kept } = workshop.outcome(&job, "1/1").unwrap().unwrap();
        assert_eq!((report["verdict"].as_str(), seconds, is_kept), (Some("pass"), 2.5, true));
        let is_made = |cpu: &str| job.is_made(folder.path(), cpu).unwrap();
        assert_eq!((is_made(""), is_made("another")), (true, false));
    }
}
