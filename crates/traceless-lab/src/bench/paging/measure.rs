//! Runs paged programs and collects their counters.

use super::subject::PagingSubject;
use super::threads::{self, Threads};
use super::workloads::{self, ProgramInput};
use crate::bench::leftovers;
use crate::report::failed;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use traceless::clock::{Clock, Monotonic};
use traceless_cli::failure::Failure;
use traceless_cli::run::{CounterFolder, PagedCommand};
use traceless_pager::paging::{CounterFile, Summary};
use traceless_sim::experiment::results::hex;

/// The interval between looks at the count of faults.
const LOOK: Duration = Duration::from_millis(5);

/// The start of paged memory. It is fixed because otherwise a scheme's own memory would move it,
/// and programs that order objects by address, as Python does in its tables, would behave
/// differently.
const START: usize = 1 << 37;

/// The counters of a run.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct RunCounts {
    #[serde(flatten)]
    pub counted: Summary,
    /// Nanoseconds from the program's start to its end.
    pub wall_ns: u64,
    /// For the paper's Eager: the time between faults that refreshes could use.
    pub usable_ns: u64,
    /// The digest of the output and exit status; none if the bench ended the program.
    pub output: Option<String>,
    /// For the paper's Parallel.
    pub threads: Option<Threads>,
}

impl RunCounts {
    /// Refuses a run with other output than without paging.
    pub fn check_output(&self, native: &Self) -> Result<(), Failure> {
        if self.output.is_some() && self.output != native.output {
            return Err(failed("the output is not that of the program without paging"));
        }
        Ok(())
    }

    /// Refuses a run in which other pages came or left.
    pub fn check_order(&self, first: &Self) -> Result<(), Failure> {
        let order = |run: &Self| (run.counted.faults, run.counted.order_hash);
        if order(self) != order(first) {
            return Err(failed(format!(
                "other pages came and left than in the run beside: {:x?} and {:x?}",
                order(self),
                order(first)
            )));
        }
        Ok(())
    }

    /// The paper's simulated Eager (its section 5): for each page that leaves, the smaller of the
    /// time since the page before it and the time of refreshes is subtracted.
    pub fn with_eager_simulated(mut self) -> Self {
        self.subtract(self.usable_ns);
        self
    }

    /// The scheme's time for a page, on average.
    fn swap_ns(&self) -> u64 {
        self.counted.swap_ns / self.counted.evictions.max(1)
    }

    /// The paper's simulated Parallel: T' = T - t + t / c, where t is the time in the scheme, and c
    /// how many times faster an access is on this machine if each refresh has a thread.
    pub fn with_parallel_simulated(self, subject: &PagingSubject) -> Result<Self, Failure> {
        Ok(self.divided(threads::measure(subject)?))
    }

    fn divided(mut self, threads: Threads) -> Self {
        let in_scheme = self.counted.swap_ns;
        let divided = (in_scheme as f64 / threads.speed_up) as u64;
        for ns in [&mut self.counted.span_ns, &mut self.wall_ns] {
            *ns = ns.saturating_sub(in_scheme) + divided;
        }
        self.threads = Some(threads);
        self
    }

    fn subtract(&mut self, ns: u64) {
        self.counted.span_ns = self.counted.span_ns.saturating_sub(ns);
        self.wall_ns = self.wall_ns.saturating_sub(ns);
    }
}

/// Runs a paged program. The time of refreshes is the scheme's time for a page beyond the time of
/// `plain`, which has no refreshes.
pub fn measure(
    subject: &PagingSubject,
    workload: &str,
    size: u64,
    counted: u64,
    plain: Option<&RunCounts>,
) -> Result<RunCounts, Failure> {
    let scratch = Scratch::new()?;
    let workload = workloads::open(workload, size, scratch.path())?;
    let folder = CounterFolder::new().map_err(failed)?;
    let mut settings = subject.settings().map_err(failed)?;
    settings.counters = Some(folder.path().into());
    settings.fault_limit = counted;
    settings.starter = Some(std::process::id());
    settings.start = Some(START);
    let prepared = PagedCommand::find(workload.program.as_os_str()).map_err(failed)?;
    let mut command = prepared.command(&settings);
    let counters = |process: u32| {
        CounterFile::open(&folder.path().join(format!("{process}.0"))).map_err(failed)
    };
    let mut was_stopped = false;
    let program_run = scratch.run(&mut command, &workload, |child| {
        if !(subject.stops && counted > 0) {
            return child.wait().map_err(failed);
        }
        loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Ok(status);
            }
            // The counters are missing until the program begins to count.
            if counters(child.id()).is_ok_and(|c| c.faults.load(Relaxed) >= counted) {
                was_stopped = true;
                child.kill().map_err(failed)?;
                return child.wait().map_err(failed);
            }
            std::thread::sleep(LOOK);
        }
    })?;
    let counters = counters(program_run.process)?;
    let mut counts = RunCounts {
        counted: counters.summary(),
        wall_ns: program_run.wall_ns,
        usable_ns: 0,
        output: (!was_stopped).then_some(program_run.output),
        threads: None,
    };
    if let Some(plain) = plain {
        let refreshing = counts.swap_ns().saturating_sub(plain.swap_ns());
        counts.usable_ns = counters.usable_ns(refreshing);
    }
    Ok(counts)
}

/// A folder for a program's files; deleted when it is dropped.
pub struct Scratch(PathBuf);

/// The result of running a program.
pub struct ProgramRun {
    pub process: u32,
    pub wall_ns: u64,
    /// The digest of the output and exit status.
    pub output: String,
}

impl Scratch {
    pub fn new() -> Result<Self, Failure> {
        #[expect(clippy::disallowed_methods, reason = "scratch files, as their name says")]
        let path = leftovers::path(&std::env::temp_dir(), "paging");
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).map_err(failed)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Starts the program, calls `wait` to wait for it, and returns the result.
    pub fn run(
        &self,
        command: &mut Command,
        workload: &ProgramInput,
        wait: impl FnOnce(&mut Child) -> Result<ExitStatus, Failure>,
    ) -> Result<ProgramRun, Failure> {
        let printed = self.0.join("output");
        let input = match &workload.input {
            Some(path) => File::open(path).map_err(failed)?.into(),
            None => Stdio::null(),
        };
        command
            .args(&workload.arguments)
            // Fixed, because otherwise Python's sets and dictionaries differ from run to run.
            .env("PYTHONHASHSEED", "0")
            .stdin(input)
            .stdout(File::create(&printed).map_err(failed)?);
        let clock = Monotonic::start();
        let mut child =
            command.spawn().map_err(|e| failed(format!("{}: {e}", workload.program.display())))?;
        let process = child.id();
        let status = wait(&mut child)?;
        let wall_ns = clock.now();
        let mut digest = Sha256::new();
        digest.update(std::fs::read(&printed).map_err(failed)?);
        digest.update(format!("{status}"));
        Ok(ProgramRun { process, wall_ns, output: hex(&digest.finalize()) })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // An error is harmless: the rest of the folder is of no use.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> RunCounts {
        let counted =
            Summary { faults: 5, order_hash: 6, span_ns: 1000, swap_ns: 600, ..Summary::default() };
        RunCounts {
            counted,
            wall_ns: 2000,
            usable_ns: 150,
            output: Some("x".into()),
            threads: None,
        }
    }

    #[test]
    fn other_pages_and_other_output_are_refused() {
        let (one, mut other) = (counts(), counts());
        assert!(one.check_order(&other).is_ok() && one.check_output(&other).is_ok());
        other.counted.order_hash = 7;
        assert!(one.check_order(&other).is_err());
        other = counts();
        other.counted.faults = 4;
        assert!(one.check_order(&other).is_err());
        other.output = Some("y".into());
        assert!(one.check_output(&other).is_err());
        let ended = RunCounts { output: None, ..counts() };
        assert!(ended.check_output(&other).is_ok(), "it printed nothing whole");
    }

    #[test]
    fn simulated_eager_and_parallel_follow_the_papers_formulas() {
        let eager = counts().with_eager_simulated();
        assert_eq!((eager.counted.span_ns, eager.wall_ns), (850, 1850));
        let parallel = |speed_up| {
            let threads = Threads { speed_up, creation_share: 0.1 };
            counts().divided(threads).counted.span_ns
        };
        assert_eq!(parallel(2.0), 1000 - 600 + 300);
        assert_eq!(parallel(0.5), 1000 - 600 + 1200);
    }
}
