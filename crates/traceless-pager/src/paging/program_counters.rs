//! The counters of all programs that are paged together.

use super::counters::{CounterFile, Summary};
use core::sync::atomic::Ordering::Relaxed;
use serde::Serialize;
use std::path::Path;

/// The counters of one program.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramCounters {
    /// Its process number, and which of the programs with that number it is: `400.0`.
    pub process: String,
    /// What was counted.
    #[serde(flatten)]
    pub summary: Summary,
}

impl ProgramCounters {
    /// The counters in the files of `folder`, also of programs that have ended. Programs that one
    /// started come after it.
    pub fn read_all(folder: &Path) -> Vec<Self> {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut all: Vec<(u64, Self)> = files
            .filter_map(|file| {
                let counters = CounterFile::open(&file.path()).ok()?;
                let process = file.file_name().to_string_lossy().into_owned();
                let start = counters.begun_ns.load(Relaxed);
                Some((start, Self { process, summary: counters.summary() }))
            })
            .collect();
        // Sorted by start time, as process numbers wrap around.
        all.sort_by_key(|(start, _)| *start);
        all.into_iter().map(|(_, counters)| counters).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_sorted_by_their_start() {
        let folder = tempfile::tempdir().unwrap();
        for process in [30_000, 7, 400, 7] {
            CounterFile::create_for(folder.path(), process).unwrap();
        }
        let all = ProgramCounters::read_all(folder.path());
        let names: Vec<String> = all.into_iter().map(|one| one.process).collect();
        assert_eq!(names, ["30000.0", "7.0", "400.0", "7.1"]);
    }
}
