//! Runs workloads on subjects: on this machine's disk, in turns, or on the model of another disk.

use super::caches;
use super::client::NbdCommand;
use super::counts::Counts;
use super::device::{self, Disk};
use super::server::create_image;
use super::subjects::{CONTROL, VolumeSubject};
use super::target::{BenchTarget, MountedTarget, Raw, RecordedTarget};
use super::workload::{FILL, LARGE, RequestPattern, SMALL};
use super::{failed, seconds, summary};
use crate::args::{BenchSuite, Interface, VolumeBenchArgs};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use traceless::trace::{Event, TraceWriter};
use traceless_cli::args::ProgressHow;
use traceless_cli::failure::Failure;
use traceless_cli::output::Meter;
use traceless_cli::signals;

/// The smallest file in which every workload has at least one request.
const FILE_BYTES_MIN: u64 = 16 << 20;

/// Pieces of a workload of small reads; subjects take turns after each.
const READ_PIECES: usize = 16;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the volume, if not as many as the file needs.
    pub volume_bytes: Option<u64>,
    /// Requests of a workload without a number of its own.
    pub requests: u64,
    pub rounds: usize,
}

impl Plan {
    /// The plan of a command line.
    pub fn of(args: &VolumeBenchArgs) -> Result<Self, Failure> {
        let sizes = &args.sizes;
        let (file_bytes, rounds) = match (args.suite, sizes.device) {
            _ if args.quick => (64 << 20, 1),
            (BenchSuite::Sqoram, Some(_)) => (512 << 20, 1),
            (BenchSuite::Sqoram, None) => (2 << 30, 3),
            // The disk rows are ratios of short times: many rounds are more exact than a large
            // file.
            _ => (512 << 20, 7),
        };
        let file_bytes = sizes.file_size.unwrap_or(file_bytes);
        if file_bytes < FILE_BYTES_MIN || !file_bytes.is_multiple_of(LARGE as u64) {
            return Err(Failure::usage("--file-size must be whole MiB, and at least 16M"));
        }
        if sizes.volume_size.is_some_and(|bytes| bytes < file_bytes) {
            return Err(Failure::usage("--volume-size is smaller than the file"));
        }
        Ok(Self {
            file_bytes,
            volume_bytes: sizes.volume_size,
            requests: if args.quick { sizes.requests.min(1024) } else { sizes.requests },
            rounds: sizes.repeat.map_or(rounds, |rounds| rounds as usize),
        })
    }

    /// Bytes of a volume for the file, through `interface`.
    pub fn volume_bytes(&self, interface: Interface) -> u64 {
        let needed = match interface {
            Interface::Raw => self.file_bytes,
            // Tables, a journal, and the blocks that a file system reserves for root.
            Interface::Ext4 => self.file_bytes + self.file_bytes / 8 + (64 << 20),
        };
        self.volume_bytes.unwrap_or(needed)
    }

    fn seed(workload: usize, round: usize) -> u64 {
        (workload as u64) << 32 | round as u64
    }
}

/// One subject under one workload.
pub struct Cell {
    pub subject: VolumeSubject,
    pub workload: RequestPattern,
    /// Bytes read and written by the user in each round.
    pub bytes: u64,
    /// Bytes written by the user in all rounds.
    pub written: u64,
    pub requests: u64,
    /// Seconds of each round.
    pub seconds: Vec<f64>,
    /// Seconds of each piece of each round; subjects take turns after each piece.
    pub pieces: Vec<Vec<f64>>,
    /// Requests to the store in all rounds, if they were recorded.
    pub counts: Option<Counts>,
}

impl Cell {
    fn new(subject: VolumeSubject, workload: RequestPattern, requests: usize) -> Self {
        let bytes = (requests * workload.request_len) as u64;
        Self {
            subject,
            workload,
            bytes,
            written: 0,
            requests: requests as u64,
            seconds: vec![],
            pieces: vec![],
            counts: None,
        }
    }

    fn add_round(&mut self, pieces: Vec<f64>) {
        self.seconds.push(pieces.iter().sum());
        self.pieces.push(pieces);
    }
}

/// The cell of `subject` under `workload`.
pub fn find<'a>(cells: &'a [Cell], subject: &str, workload: &RequestPattern) -> Option<&'a Cell> {
    cells.iter().find(|c| c.subject.name == subject && c.workload.name == workload.name)
}

/// The speed of `cell` relative to the control in each round: the median of its pieces, so that a
/// piece that waits for other processes changes nothing. `None` without a control.
pub fn ratios(cells: &[Cell], cell: &Cell) -> Option<Vec<f64>> {
    let control = find(cells, CONTROL, &cell.workload)?;
    let of_round = |(plain, subject_pieces): (&Vec<f64>, &Vec<f64>)| {
        summary(plain.iter().zip(subject_pieces).map(|(plain, piece)| plain / piece).collect()).0
    };
    Some(control.pieces.iter().zip(&cell.pieces).map(of_round).collect())
}

/// Shows the progress of a measurement.
pub struct StepProgress {
    meter: Meter,
    done: u64,
    all: u64,
    interrupted: Arc<AtomicBool>,
}

impl StepProgress {
    /// Progress of `all` steps. From now on a signal ends the measurement at its next step, so that
    /// nothing stays mounted.
    pub fn new(all: usize, how: ProgressHow) -> Result<Self, Failure> {
        let meter = Meter::new("measuring", how);
        Ok(Self { meter, done: 0, all: all as u64, interrupted: signals::flag()? })
    }

    fn begin(&mut self, subject: VolumeSubject, what: &str) -> Result<(), Failure> {
        self.meter.update(self.done, self.all);
        self.meter.set_message(&format!("{} {what}", subject.name));
        self.done += 1;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failure::usage("interrupted"));
        }
        Ok(())
    }
}

impl Drop for StepProgress {
    fn drop(&mut self) {
        self.meter.finish();
    }
}

/// Steps of one measurement.
pub fn steps(subjects: &[VolumeSubject], workloads: &[RequestPattern], plan: &Plan) -> usize {
    subjects.len() * (1 + workloads.len() * plan.rounds)
}

/// Measures on the disk below `folder`. The subjects take turns with each workload, so that other
/// load on the machine affects all of them, and each finds its caches empty.
pub fn on_this_disk(
    interface: Interface,
    subjects: &[VolumeSubject],
    workloads: &[RequestPattern],
    plan: &Plan,
    folder: &Path,
    steps: &mut StepProgress,
) -> Result<Vec<Cell>, Failure> {
    let mut open: Vec<(PathBuf, Box<dyn BenchTarget>)> = vec![];
    for subject in subjects {
        steps.begin(*subject, "is made")?;
        let volume_bytes = plan.volume_bytes(interface);
        let image = create_image(folder, &subject.file_name(), volume_bytes, subject.create)?;
        let mut target: Box<dyn BenchTarget> = match interface {
            Interface::Raw => Box::new(Raw::open(&image)?),
            Interface::Ext4 => Box::new(MountedTarget::open(&image)?),
        };
        fill(&mut *target, plan)?;
        open.push((image, target));
    }
    let mut cells = vec![];
    for round in 0..plan.rounds {
        for (number, workload) in workloads.iter().enumerate() {
            let seed = Plan::seed(number, round);
            let requests = workload.requests(plan.file_bytes, plan.requests, seed);
            for (subject, (image, _)) in subjects.iter().zip(&open) {
                steps.begin(*subject, workload.name)?;
                caches::drop_file_cache(image)?;
            }
            caches::drop_caches();
            let turns = turns(&mut open, round + number, workload, &requests)?;
            for (subject, pieces) in subjects.iter().zip(turns) {
                cell_of(&mut cells, *subject, *workload, &requests).add_round(pieces);
            }
        }
    }
    for (image, target) in open {
        target.close()?;
        std::fs::remove_file(image).map_err(failed)?;
    }
    sort(&mut cells, subjects, workloads);
    Ok(cells)
}

/// Runs a workload on all targets in turns, beginning with target `first`. Returns the seconds of
/// each piece. Small reads are cut into pieces, so that changes in the machine's speed affect all
/// targets alike. Writes and large reads are one piece: a target's writes could slow down the next
/// piece, and a switch would interrupt the disk's read-ahead.
fn turns(
    open: &mut [(PathBuf, Box<dyn BenchTarget>)],
    first: usize,
    workload: &RequestPattern,
    requests: &[(NbdCommand, u64)],
) -> Result<Vec<Vec<f64>>, Failure> {
    let is_whole = workload.writes() || workload.request_len > SMALL;
    let pieces = if is_whole { 1 } else { READ_PIECES };
    let mut took = vec![vec![]; open.len()];
    for (number, piece) in requests.chunks(requests.len().div_ceil(pieces)).enumerate() {
        for turn in 0..open.len() {
            let subject = (turn + first + number) % open.len();
            took[subject].push(seconds(|| run(&mut *open[subject].1, workload, piece))?);
        }
    }
    Ok(took)
}

/// Records the requests of each subject to its store, on images in `folder`, and calculates the
/// seconds of a disk made by `new_disk`. Keeps the traces in the folder `traces`, if given.
pub fn on_a_model(
    subjects: &[VolumeSubject],
    workloads: &[RequestPattern],
    plan: &Plan,
    folder: &Path,
    traces: Option<&Path>,
    new_disk: &dyn Fn() -> Box<dyn Disk>,
    steps: &mut StepProgress,
) -> Result<Vec<Cell>, Failure> {
    let mut cells = vec![];
    for subject in subjects {
        steps.begin(*subject, "is made")?;
        let volume_bytes = plan.volume_bytes(Interface::Raw);
        let create = [subject.create, &["--unfilled"]].concat();
        let image = create_image(folder, &subject.file_name(), volume_bytes, &create)?;
        let mut target = Box::new(RecordedTarget::open(&image)?);
        fill(&mut *target, plan)?;
        let mut disk = new_disk();
        let mut head = 0;
        target.take_events();
        for round in 0..plan.rounds {
            for (number, workload) in workloads.iter().enumerate() {
                steps.begin(*subject, workload.name)?;
                let seed = Plan::seed(number, round);
                let requests = workload.requests(plan.file_bytes, plan.requests, seed);
                run(&mut *target, workload, &requests)?;
                let events = target.take_events();
                if let Some(traces) = traces {
                    let name = format!("{}-{}-{round}.trace", subject.file_name(), workload.name);
                    write_trace(&traces.join(name), &events)?;
                }
                let cell = cell_of(&mut cells, *subject, *workload, &requests);
                cell.add_round(vec![device::seconds(&mut *disk, &events)]);
                *cell.counts.get_or_insert_default() += Counts::of(&events, &mut head);
            }
        }
        target.close()?;
        std::fs::remove_file(image).map_err(failed)?;
    }
    sort(&mut cells, subjects, workloads);
    Ok(cells)
}

/// Sorts cells by workload, then by subject: the order of turns differs.
fn sort(cells: &mut [Cell], subjects: &[VolumeSubject], workloads: &[RequestPattern]) {
    cells.sort_by_key(|cell| {
        let workload = workloads.iter().position(|w| *w == cell.workload);
        (workload, subjects.iter().position(|s| *s == cell.subject))
    });
}

/// Writes the whole file once, so that no workload finds blocks that were never written.
fn fill(target: &mut dyn BenchTarget, plan: &Plan) -> Result<(), Failure> {
    run(target, &FILL, &FILL.requests(plan.file_bytes, plan.requests, 0))
}

fn run(
    target: &mut dyn BenchTarget,
    workload: &RequestPattern,
    requests: &[(NbdCommand, u64)],
) -> Result<(), Failure> {
    target.run(requests, workload.request_len)?;
    if workload.writes() { target.flush() } else { Ok(()) }
}

/// The cell that a round of `requests` belongs to. Adds the bytes that they write.
fn cell_of<'a>(
    cells: &'a mut Vec<Cell>,
    subject: VolumeSubject,
    workload: RequestPattern,
    requests: &[(NbdCommand, u64)],
) -> &'a mut Cell {
    let found = cells.iter().position(|c| c.subject == subject && c.workload == workload);
    let at = found.unwrap_or_else(|| {
        cells.push(Cell::new(subject, workload, requests.len()));
        cells.len() - 1
    });
    let writes = requests.iter().filter(|(command, _)| *command == NbdCommand::Write).count();
    cells[at].written += (writes * workload.request_len) as u64;
    &mut cells[at]
}

fn write_trace(path: &Path, events: &[Event]) -> Result<(), Failure> {
    let mut writer = File::create(path).and_then(TraceWriter::new).map_err(failed)?;
    for event in events {
        writer.append(*event).map_err(failed)?;
    }
    writer.finish().map_err(failed)
}
