//! The rows, in groups that are measured together.

use super::super::client::{NbdClient, NbdCommand};
use super::super::device::{Disk, Hdd};
use super::super::disk::writes_beside_raw;
use super::super::failed;
use super::super::library::{BLOCK_LEN, BLOCKS, TestBed};
use super::super::measure::{self, Cell, Plan, StepProgress, find, ratios};
use super::super::server::{VolumeServer, create_image};
use super::super::sqoram::largest_image;
use super::super::subjects::{CONTROL, VolumeSubject};
use super::super::workload::{
    AGE, FILL, LARGE, MIX, OVERWRITE, RANDOM_READ, READ_AGED, READ_FRESH, RequestPattern, SMALL,
};
use super::flushes::{FlushRun, GROUP_WRITES, Groups};
use super::{Context, RowResult, Values};
use crate::args::Interface;
use crate::bench::controls::Operations;
use crate::report::Scale;
use traceless_cli::args::ProgressHow;
use traceless_cli::failure::Failure;
use traceless_volume::fuse::capabilities;

/// The volume size of the paper.
const VOLUME_BYTES: u64 = 40 << 30;
/// A size at which writes can be counted until the scheme has settled.
const COUNTED_BYTES: u64 = 4 << 30;
/// A size with a large map, for which a map in memory is a burden.
const LARGE_VOLUME_BYTES: u64 = 1 << 40;
const SMALL_VOLUME_BYTES: u64 = 16 << 20;
/// The paper's holding area, three times as large as the main area.
const DETWO: &str = "detwo-1/3";

/// Rows that are measured together, and the function that measures them.
pub struct Group {
    pub rows: &'static [RowName],
    pub measure: fn(&Context) -> Result<Vec<RowResult>, Failure>,
}

/// A row's unit, and its name around the subject's.
pub struct RowName {
    before: &'static str,
    after: &'static str,
    pub unit: &'static str,
}

const fn row(after: &'static str, unit: &'static str) -> RowName {
    RowName { before: "", after, unit }
}

impl RowName {
    pub fn name(&self, subject: VolumeSubject) -> String {
        format!("{}{}{}", self.before, subject.file_name(), self.after)
    }
}

pub const GROUPS: [Group; 10] = [
    Group { rows: &[row("-space-factor", "ratio")], measure: space },
    Group {
        rows: &[RowName { before: "library-", after: "-writes", unit: "ratio" }],
        measure: library,
    },
    Group {
        rows: &[
            row("-write-amplification", "ratio"),
            row("-write-amplification-flush-32", "ratio"),
            row("-map-disk-write-amplification", "ratio"),
            row("-seeks-per-flush", "seeks"),
            row("-seeks-per-write", "seeks"),
        ],
        measure: counts,
    },
    Group {
        rows: &[row("-worst-flush-blocks", "ratio"), row("-worst-flush-seeks", "ratio")],
        measure: stalls,
    },
    Group {
        rows: &[
            row("-worst-flush-blocks-40g", "ratio"),
            row("-worst-flush-seeks-40g", "ratio"),
            row("-seeks-per-flush-40g", "seeks"),
        ],
        measure: stalls_of_a_large_volume,
    },
    Group { rows: &[row("-memory", "MB"), row("-map-disk-memory", "MB")], measure: memory },
    Group { rows: &[row("-map-disk-memory-1t", "MB")], measure: memory_of_a_large_volume },
    Group {
        rows: &[
            row("-mix-70-30-hdd-vs-plain", "ratio"),
            row("-seq-read-aged-hdd-vs-detwo", "ratio"),
        ],
        measure: hard_disk,
    },
    Group {
        rows: &[
            row("-seq-read-fresh-vs-plain", "ratio"),
            row("-seq-read-aged-vs-plain", "ratio"),
            row("-random-read-overwritten-vs-plain", "ratio"),
            row("-map-disk-seq-read-vs-plain", "ratio"),
            row("-map-disk-random-read-overwritten-vs-plain", "ratio"),
            row("-seq-write-vs-own-raw", "ratio"),
        ],
        measure: this_disk,
    },
    Group { rows: &[row("-mix-70-30-ext4-vs-amplification", "ratio")], measure: ext4 },
];

/// The subject with its map on the disk, or the reason why there is none.
fn with_map_on_disk(context: &Context) -> Result<VolumeSubject, String> {
    let other = context.subject.with_map_on_disk();
    let other =
        other.ok_or(format!("{} has no map that lies on the disk", context.subject.name))?;
    other.scheme(context.plan.file_bytes)?;
    Ok(other)
}

fn control() -> VolumeSubject {
    VolumeSubject::find(CONTROL).expect("the control is listed")
}

/// Bytes of the image per byte of the volume.
#[expect(clippy::unnecessary_wraps, reason = "every group is measured by such a function")]
fn space(context: &Context) -> Result<Vec<RowResult>, Failure> {
    let len = context.subject.image_len(VOLUME_BYTES);
    Ok(vec![len.map(|len| vec![len as f64 / VOLUME_BYTES as f64].into())])
}

/// The scheme alone on a store in memory.
fn library(context: &Context) -> Result<Vec<RowResult>, Failure> {
    let scheme = match context.subject.scheme(BLOCKS * BLOCK_LEN as u64) {
        Ok(scheme) => scheme,
        Err(why) => return Ok(vec![Err(why)]),
    };
    let mut bed = TestBed::in_memory(scheme.clone())?;
    // Each moved block is sealed and written, and all but the new one are read and opened before.
    let moved = scheme.write_amplification();
    let (passes, copies) = (2.0 * moved - 1.0, 2.0 * moved - 1.0);
    let unit = Operations { passes, copies, misses: moved, ..Operations::NONE };
    let (writes, _) = bed.rounds(context.plan.rounds, &unit, &Operations::NONE)?;
    Ok(vec![Ok(Scale::Rate("MB/s", BLOCK_LEN as f64 * 1e3).ratios(&writes).into())])
}

/// A run of writes in the steady state, to a volume large enough for the shape of the paper's.
fn large_run(
    context: &Context,
    subject: VolumeSubject,
    flush_every: Option<u64>,
) -> Result<FlushRun, Failure> {
    let (volume_bytes, writes) =
        if context.quick { (COUNTED_BYTES / 8, 4096) } else { (COUNTED_BYTES, 65_536) };
    let scheme = subject.scheme(volume_bytes).map_err(failed)?;
    let writes_before = scheme.facts(0).settles_after + writes / 2;
    Ok(FlushRun { volume_bytes, writes, writes_before, flush_every })
}

fn counts(context: &Context) -> Result<Vec<RowResult>, Failure> {
    let folder = &context.places.ram;
    let run = |subject, flush_every| {
        Groups::count(subject, folder, large_run(context, subject, flush_every)?)
    };
    // A volume of the paper's size has more levels, so that each write costs more in proportion.
    let larger = |subject: VolumeSubject, measured: f64| -> Result<Values, Failure> {
        let counted = large_run(context, subject, None)?.volume_bytes;
        let paper = subject.scheme(VOLUME_BYTES).map_err(failed)?.write_amplification();
        let counted = subject.scheme(counted).map_err(failed)?.write_amplification();
        Ok(vec![measured * paper / counted].into())
    };
    let groups = run(context.subject, None)?;
    let flushed = run(context.subject, Some(32))?;
    let on_disk = match with_map_on_disk(context) {
        Ok(other) => Ok(larger(other, run(other, None)?.write_amplification())?),
        Err(why) => Err(why),
    };
    Ok(vec![
        Ok(larger(context.subject, groups.write_amplification())?),
        Ok(larger(context.subject, flushed.write_amplification())?),
        on_disk,
        Ok(vec![groups.seeks()].into()),
        Ok(vec![groups.seeks() / GROUP_WRITES as f64].into()),
    ])
}

/// Writes twice as many blocks as there are, so that every level of every scheme is written.
fn stalls(context: &Context) -> Result<Vec<RowResult>, Failure> {
    let volume_bytes = context.plan.file_bytes / 4;
    let blocks = volume_bytes / BLOCK_LEN as u64;
    let run =
        FlushRun { volume_bytes, writes: 2 * blocks, writes_before: 2 * blocks, flush_every: None };
    let groups = Groups::count(context.subject, &context.places.ram, run)?;
    let (blocks, seeks) = groups.worst_over_median();
    Ok([blocks, seeks].map(|measured| Ok(vec![measured].into())).to_vec())
}

/// At the paper's size, with the largest number of sources in a merge. The run begins before the
/// last level gets its first blocks, and covers several merges into the level before it.
fn stalls_of_a_large_volume(context: &Context) -> Result<Vec<RowResult>, Failure> {
    if context.quick {
        return Ok(vec![Err("left out by --quick".to_owned()); 3]);
    }
    let scheme = match context.subject.scheme(VOLUME_BYTES) {
        Ok(scheme) => scheme,
        Err(why) => return Ok(vec![Err(why); 3]),
    };
    let writes = 1 << 19;
    let before = scheme.facts(0).settles_after.saturating_sub(writes / 4);
    let groups = Groups::count_unstored(&*scheme, before, writes)?;
    let (blocks, seeks) = groups.worst_over_median();
    Ok([blocks, seeks, groups.seeks()].map(|measured| Ok(vec![measured].into())).to_vec())
}

fn memory(context: &Context) -> Result<Vec<RowResult>, Failure> {
    let of_subject = Ok(peak_memory(context, context.subject, VOLUME_BYTES)?);
    let on_disk = match with_map_on_disk(context) {
        Ok(other) => Ok(peak_without_buffers(context, other, VOLUME_BYTES)?),
        Err(why) => Err(why),
    };
    Ok(vec![of_subject, on_disk])
}

fn memory_of_a_large_volume(context: &Context) -> Result<Vec<RowResult>, Failure> {
    if context.quick {
        return Ok(vec![Err("left out by --quick".to_owned())]);
    }
    Ok(vec![match with_map_on_disk(context) {
        Ok(other) => Ok(peak_without_buffers(context, other, LARGE_VOLUME_BYTES)?),
        Err(why) => Err(why),
    }])
}

/// MB that a server holds, with map and buffers. Untouched memory does not count as held, and a
/// volume of this size cannot be filled here. So the result is at least the sum of the map and
/// buffers by geometry and of the memory of a server with the control.
fn peak_memory(context: &Context, subject: VolumeSubject, bytes: u64) -> Result<Values, Failure> {
    let (peak, _) = memory_and_buffers(context, subject, bytes)?;
    Ok(vec![peak as f64 / 1e6].into())
}

/// MB that a server holds, without the scheme's buffers.
fn peak_without_buffers(
    context: &Context,
    subject: VolumeSubject,
    bytes: u64,
) -> Result<Values, Failure> {
    let (peak, buffers) = memory_and_buffers(context, subject, bytes)?;
    Ok(vec![peak.saturating_sub(buffers) as f64 / 1e6].into())
}

fn memory_and_buffers(
    context: &Context,
    subject: VolumeSubject,
    bytes: u64,
) -> Result<(u64, u64), Failure> {
    let facts = subject.scheme(bytes).map_err(failed)?.facts(0);
    let program = peak(context, control(), SMALL_VOLUME_BYTES)?;
    let large = peak(context, subject, bytes)?;
    let by_geometry = program + facts.map_bytes + facts.buffer_bytes;
    Ok((large.max(by_geometry), facts.buffer_bytes))
}

/// Peak memory of a server of a new volume, after writes all over it, opened twice.
fn peak(context: &Context, subject: VolumeSubject, bytes: u64) -> Result<u64, Failure> {
    let create = [subject.create, &["--unfilled"]].concat();
    let image = create_image(&context.places.ram, &subject.file_name(), bytes, &create)?;
    let step = (bytes / 16_384).next_multiple_of(LARGE as u64);
    let spread: Vec<u64> = (0..bytes).step_by(step as usize).collect();
    let dense: Vec<u64> = (0..SMALL_VOLUME_BYTES).step_by(LARGE).collect();
    let mut peak = 0;
    for _ in 0..2 {
        let server = VolumeServer::start(&image)?;
        let mut client = NbdClient::connect(&server.socket)?;
        client.run(NbdCommand::Write, &spread, SMALL, 32)?;
        client.run(NbdCommand::Write, &dense, LARGE, 4)?;
        client.run(NbdCommand::Read, &dense, LARGE, 4)?;
        client.flush()?;
        peak = peak.max(server.peak_memory()?);
        server.stop()?;
    }
    std::fs::remove_file(image).map_err(failed)?;
    Ok(peak)
}

/// Rows on the model of a hard disk.
fn hard_disk(context: &Context) -> Result<Vec<RowResult>, Failure> {
    let detwo = VolumeSubject::find(DETWO).expect("it is listed");
    let mut subjects = vec![control(), detwo, context.subject];
    // The subject may be `DETWO`.
    subjects.dedup();
    let workloads = [FILL, AGE, READ_AGED, MIX];
    let plan = Plan { rounds: 1, ..context.plan };
    let span = largest_image(&plan);
    let new_disk = || Box::new(Hdd::new(span, false)) as Box<dyn Disk>;
    let cells = measure::on_a_model(
        &subjects,
        &workloads,
        &plan,
        &context.places.ram,
        None,
        &new_disk,
        &mut quiet(&subjects, &workloads, &plan)?,
    )?;
    let of_subject = seconds_of(&cells, context.subject, &READ_AGED);
    let detwo = seconds_of(&cells, detwo, &READ_AGED);
    let against_detwo: Vec<f64> =
        detwo.iter().zip(of_subject).map(|(detwo, of_subject)| detwo / of_subject).collect();
    Ok(vec![Ok(beside_plain(&cells, context.subject, &MIX).into()), Ok(against_detwo.into())])
}

/// Rows on this machine's disk.
fn this_disk(context: &Context) -> Result<Vec<RowResult>, Failure> {
    let (plan, folder) = (&context.plan, &context.places.disk);
    let on_disk = with_map_on_disk(context);
    let mut subjects = vec![control(), context.subject];
    subjects.extend(on_disk.as_ref().ok());
    let workloads = [FILL, READ_FRESH, AGE, READ_AGED, OVERWRITE, RANDOM_READ];
    let cells = measure::on_this_disk(
        Interface::Raw,
        &subjects,
        &workloads,
        plan,
        folder,
        &mut quiet(&subjects, &workloads, plan)?,
    )?;
    let of_subject = |workload| Ok(beside_plain(&cells, context.subject, workload).into());
    let with_disk = |workload| {
        let subject = on_disk.as_ref().map_err(Clone::clone)?;
        Ok(beside_plain(&cells, *subject, workload).into())
    };
    Ok(vec![
        of_subject(&READ_FRESH),
        of_subject(&READ_AGED),
        of_subject(&RANDOM_READ),
        with_disk(&READ_FRESH),
        with_disk(&RANDOM_READ),
        Ok(writes_beside_own_raw(context)?.into()),
    ])
}

/// Sequential writes, compared with as many raw writes and reads as they cause.
fn writes_beside_own_raw(context: &Context) -> Result<Vec<f64>, Failure> {
    let bytes = context.plan.file_bytes / 2;
    let plan = Plan { file_bytes: bytes, volume_bytes: None, rounds: 1, ..context.plan };
    // Only the counts of the model matter, not its times.
    let new_disk = || Box::new(Hdd::new(bytes, false)) as Box<dyn Disk>;
    let cells = measure::on_a_model(
        &[context.subject],
        &[FILL],
        &plan,
        &context.places.ram,
        None,
        &new_disk,
        &mut quiet(&[context.subject], &[FILL], &plan)?,
    )?;
    let counts = cells[0].counts.expect("a model counts");
    let (subject, folder) = (context.subject, &context.places.disk);
    let image = create_image(folder, &subject.file_name(), bytes, subject.create)?;
    let raw = (counts.bytes_written, counts.bytes_read);
    writes_beside_raw(&image, bytes, raw, context.plan.rounds)
}

/// The ratio to an ideal on plain: 70 % of the bytes are read once, and 30 % are written as often
/// as the subject writes them.
fn ext4(context: &Context) -> Result<Vec<RowResult>, Failure> {
    let missing = capabilities().missing_for_mount(true);
    if !missing.is_empty() {
        let why: Vec<String> = missing.iter().map(ToString::to_string).collect();
        return Ok(vec![Err(why.join("; "))]);
    }
    let run = large_run(context, context.subject, None)?;
    let amplification =
        Groups::count(context.subject, &context.places.ram, run)?.write_amplification();
    let subjects = [control(), context.subject];
    let workloads = [FILL, MIX];
    let cells = measure::on_this_disk(
        Interface::Ext4,
        &subjects,
        &workloads,
        &context.plan,
        &context.places.disk,
        &mut quiet(&subjects, &workloads, &context.plan)?,
    )?;
    let ratios = beside_plain(&cells, context.subject, &MIX);
    let scaled: Vec<f64> = ratios.iter().map(|ratio| ratio * (0.7 + 0.3 * amplification)).collect();
    Ok(vec![Ok(scaled.into())])
}

fn quiet(
    subjects: &[VolumeSubject],
    workloads: &[RequestPattern],
    plan: &Plan,
) -> Result<StepProgress, Failure> {
    StepProgress::new(measure::steps(subjects, workloads, plan), ProgressHow::None)
}

fn beside_plain(cells: &[Cell], subject: VolumeSubject, workload: &RequestPattern) -> Vec<f64> {
    let cell = find(cells, subject.name, workload).expect("it was measured");
    ratios(cells, cell).expect("the control was measured")
}

fn seconds_of<'a>(
    cells: &'a [Cell],
    subject: VolumeSubject,
    workload: &RequestPattern,
) -> &'a [f64] {
    &find(cells, subject.name, workload).expect("it was measured").seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_subject_and_differ() {
        let subject = VolumeSubject::find(DETWO).unwrap();
        let names: Vec<String> =
            GROUPS.iter().flat_map(|g| g.rows.iter().map(|row| row.name(subject))).collect();
        assert!(names.contains(&"library-detwo-1-3-writes".to_owned()));
        for (i, name) in names.iter().enumerate() {
            assert!(name.contains("detwo-1-3") && !names[..i].contains(name), "{name}");
        }
    }
}
