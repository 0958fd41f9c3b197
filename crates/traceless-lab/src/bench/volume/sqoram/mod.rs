//! `traceless-lab bench volume --suite sqoram`: every write-only scheme under the workloads of the
//! `SqORAM` paper, compared with the paper's numbers.

mod paper;
mod plot;
mod report;
mod seeks;

use super::device::{Disk, Hdd, Ssd};
use super::measure::{self, Plan, StepProgress};
use super::subjects::{CONTROL, SUBJECTS, VolumeSubject};
use super::workload::{RequestPattern, SUITE};
use super::{Places, caches, failed, machine};
use crate::args::{Device, Interface, VolumeBenchArgs};
use report::{LeftOut, Report, SubjectReport, rows};
use std::path::Path;
use traceless_cli::failure::Failure;
use traceless_cli::output::print_json;
use traceless_volume::fuse::capabilities;

const GIB: u64 = 1 << 30;

/// Measures the subjects, and prints the report.
pub fn run(args: &VolumeBenchArgs, places: &Places) -> Result<(), Failure> {
    let plan = Plan::of(args)?;
    let smallest = plan.volume_bytes(Interface::Raw);
    let requested = subjects(args)?;
    let subject_reports: Vec<SubjectReport> =
        requested.iter().map(|s| SubjectReport::of(*s, smallest)).collect();
    let present = requested.iter().zip(&subject_reports).filter(|(_, presence)| presence.measured);
    let present: Vec<VolumeSubject> = present.map(|(subject, _)| *subject).collect();
    let workloads: Vec<RequestPattern> =
        SUITE.into_iter().filter(|workload| args.wants(workload.name)).collect();
    let mut report = Report {
        schema: "traceless.volume.bench.sqoram.v1",
        machine: machine(places, args),
        device: device_name(args.sizes.device),
        file_bytes: plan.file_bytes,
        rounds: plan.rounds,
        caches_dropped: args.sizes.device.is_none().then(caches::drop_caches),
        subjects: subject_reports,
        rows: vec![],
        seeks: vec![],
        left_out: vec![],
    };
    match args.sizes.device {
        Some(device) => model(args, device, &present, &workloads, &plan, places, &mut report)?,
        None => this_disk(args, &present, &workloads, &plan, places, &mut report)?,
    }
    if let Some(path) = &args.plot {
        let svg = plot::plot(&report).to_svg();
        std::fs::write(path, svg).map_err(failed)?;
    }
    if args.json {
        return print_json(&report);
    }
    report.print();
    Ok(())
}

/// The control, and the subjects that the command line names.
fn subjects(args: &VolumeBenchArgs) -> Result<Vec<VolumeSubject>, Failure> {
    let named = args.sizes.subject.iter().map(|name| VolumeSubject::parse(name));
    let named: Vec<VolumeSubject> = named.collect::<Result<_, _>>()?;
    let is_wanted = |subject: &VolumeSubject| {
        let is_requested =
            if named.is_empty() { subject.is_default } else { named.contains(subject) };
        subject.name == CONTROL || is_requested
    };
    Ok(SUBJECTS.into_iter().filter(is_wanted).collect())
}

fn this_disk(
    args: &VolumeBenchArgs,
    subjects: &[VolumeSubject],
    workloads: &[RequestPattern],
    plan: &Plan,
    places: &Places,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut interfaces = vec![];
    for interface in [Interface::Raw, Interface::Ext4] {
        if !args.sizes.on.contains(&interface) {
            continue;
        }
        let missing = match interface {
            Interface::Raw => vec![],
            Interface::Ext4 => capabilities().missing_for_mount(true),
        };
        if missing.is_empty() {
            check_space(subjects, plan.volume_bytes(interface), &places.disk)?;
            interfaces.push(interface);
        } else {
            let why: Vec<String> = missing.iter().map(ToString::to_string).collect();
            report.left_out.push(LeftOut { what: "ext4".to_owned(), why: why.join("; ") });
        }
    }
    let all = interfaces.len() * measure::steps(subjects, workloads, plan);
    let mut steps = StepProgress::new(all, args.progress.progress)?;
    for interface in interfaces {
        let cells =
            measure::on_this_disk(interface, subjects, workloads, plan, &places.disk, &mut steps)?;
        let on = match interface {
            Interface::Raw => "raw",
            Interface::Ext4 => "ext4",
        };
        report.rows.extend(rows(on, &cells));
    }
    Ok(())
}

/// Fails before the measurement if the images will not fit.
fn check_space(subjects: &[VolumeSubject], bytes: u64, folder: &Path) -> Result<(), Failure> {
    let needed: u64 = subjects.iter().filter_map(|s| s.image_len(bytes).ok()).sum();
    let disk = rustix::fs::statvfs(folder).map_err(failed)?;
    let free = disk.f_bavail * disk.f_frsize;
    if needed > free {
        let (needed, free) = (needed.div_ceil(GIB), free / GIB);
        return Err(failed(format!(
            "the images need {needed} GiB, and {free} are free: take a smaller --file-size, or \
             fewer with --subject"
        )));
    }
    Ok(())
}

fn model(
    args: &VolumeBenchArgs,
    device: Device,
    subjects: &[VolumeSubject],
    workloads: &[RequestPattern],
    plan: &Plan,
    places: &Places,
    report: &mut Report,
) -> Result<(), Failure> {
    let span = args.sizes.disk_size.unwrap_or_else(|| largest_image(plan));
    let elevator = args.sizes.elevator;
    let new_disk = || disk(device, span, elevator);
    if let Some(traces) = &args.sizes.traces {
        std::fs::create_dir_all(traces).map_err(failed)?;
    }
    let mut steps =
        StepProgress::new(measure::steps(subjects, workloads, plan), args.progress.progress)?;
    let cells = measure::on_a_model(
        subjects,
        workloads,
        plan,
        &places.ram,
        args.sizes.traces.as_deref(),
        &new_disk,
        &mut steps,
    )?;
    report.rows = rows("model", &cells);
    report.seeks = seeks::seeks(&cells, plan);
    Ok(())
}

/// A new disk of `span` bytes.
pub fn disk(device: Device, span: u64, elevator: bool) -> Box<dyn Disk> {
    match device {
        Device::Hdd => Box::new(Hdd::new(span, elevator)),
        Device::Ssd => Box::new(Ssd),
    }
}

/// Bytes of the largest image of all usual subjects of this build, measured or not: so the disk is
/// the same for every choice of subjects.
pub fn largest_image(plan: &Plan) -> u64 {
    let bytes = plan.volume_bytes(Interface::Raw);
    let default_subjects = SUBJECTS.iter().filter(|subject| subject.is_default);
    default_subjects.filter_map(|subject| subject.image_len(bytes).ok()).max().unwrap_or(bytes)
}

fn device_name(device: Option<Device>) -> &'static str {
    match device {
        None => "this disk",
        Some(Device::Hdd) => "hdd model",
        Some(Device::Ssd) => "ssd model",
    }
}
