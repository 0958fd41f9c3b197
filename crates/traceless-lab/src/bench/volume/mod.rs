//! `traceless-lab bench volume`: the numbers of bench/floors.toml, each with a control of the same
//! run.

mod caches;
mod client;
mod counts;
mod deniable;
mod device;
mod disk;
mod experiment;
mod in_flight;
mod library;
mod measure;
mod mount;
mod mounted;
mod nbd;
mod pointers;
mod server;
mod sqoram;
mod subjects;
mod swap;
mod target;
mod workload;
mod write_only;

use crate::args::{BenchSuite, VolumeBenchArgs};
use crate::bench::leftovers;
use crate::report::Hardware;
use crate::report::print_report;
pub use crate::report::{Row, failed, row, summary};
use serde::Serialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use traceless::clock::{Clock, Monotonic};
use traceless_cli::failure::Failure;
use traceless_cli::output::print_error;

#[derive(Serialize)]
pub struct Machine {
    #[serde(flatten)]
    pub hardware: Hardware,
    ram_folder: String,
    disk_folder: String,
}

impl Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hardware.fmt(f)
    }
}

/// The size of a measurement.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Bytes that a volume holds.
    pub volume_bytes: u64,
    /// Rounds; rows are medians of them.
    pub rounds: usize,
}

/// Names of rows that are measured together, and the function that measures them.
type Group = (&'static [&'static str], fn(&Places, Effort) -> Result<Vec<Row>, Failure>);

const GROUPS: [Group; 13] = [
    (&["library-detwo-writes", "library-detwo-reads"], library::measure),
    (
        &["nbd-seq-write-ram-vs-plain", "nbd-seq-read-vs-plain", "nbd-random-read-vs-plain"],
        nbd::measure,
    ),
    (&["nbd-seq-write-disk-vs-raw"], disk::measure_writes),
    (&["create-vs-raw-write"], disk::measure_creation),
    (&in_flight::NAMES, in_flight::measure),
    (&mounted::NAMES, mounted::measure),
    (&nbd::RING_ROWS, nbd::measure_ring),
    (&swap::NAMES, swap::measure),
    (&deniable::NAMES, deniable::measure),
    (&["nbd-dashboard"], nbd::measure_dashboard),
    (&["memory-over-budget"], nbd::measure_memory),
    (&pointers::NAMES[0], pointers::measure_memory_map),
    (&pointers::NAMES[1], pointers::measure_disk_map),
];

/// Folders for images. Both are removed afterwards.
pub struct Places {
    pub ram: PathBuf,
    pub disk: PathBuf,
}

pub fn run(args: &VolumeBenchArgs) -> Result<(), Failure> {
    let of_file = match &args.experiment {
        Some(path) => Some(experiment::read(path, args)?),
        None => None,
    };
    let args = of_file.as_ref().unwrap_or(args);
    let ram = if Path::new("/dev/shm").is_dir() { Path::new("/dev/shm") } else { &args.dir };
    let folders = [Folder::new(ram, "ram")?, Folder::new(&args.dir, "disk")?];
    let places = Places { ram: folders[0].0.clone(), disk: folders[1].0.clone() };
    match args.suite {
        BenchSuite::Volume => floors(args, &places),
        BenchSuite::WriteOnly => write_only::run(args, &places),
        BenchSuite::Sqoram => sqoram::run(args, &places),
    }
}

/// The rows of the group volume.
fn floors(args: &VolumeBenchArgs, places: &Places) -> Result<(), Failure> {
    let effort = if args.quick {
        Effort { volume_bytes: 64 << 20, rounds: 3 }
    } else {
        Effort { volume_bytes: 1 << 30, rounds: 5 }
    };
    let mut rows = vec![];
    for (names, measure) in GROUPS {
        if !names.iter().any(|name| args.wants(name)) {
            continue;
        }
        if !args.json {
            print_error(&format!("measuring {}", names.join(", ")));
        }
        rows.extend(measure(places, effort)?);
    }
    print_report("traceless.volume.bench.v1", &machine(places, args), &(), &rows, args.json)
}

/// Seconds that `work` takes.
pub fn seconds(work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let clock = Monotonic::start();
    work()?;
    Ok(clock.now().max(1) as f64 / 1e9)
}

/// A new folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(parent: &Path, what: &str) -> Result<Self, Failure> {
        let path = std::path::absolute(leftovers::path(parent, what)).map_err(failed)?;
        std::fs::create_dir(&path).map_err(failed)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn machine(places: &Places, args: &VolumeBenchArgs) -> Machine {
    Machine {
        hardware: Hardware::here(),
        ram_folder: places.ram.parent().unwrap_or(&places.ram).display().to_string(),
        disk_folder: args.dir.display().to_string(),
    }
}
