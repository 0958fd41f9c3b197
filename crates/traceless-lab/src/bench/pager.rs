//! `traceless-lab bench pager`: page faults, one after the other, with plain paging as the control.
//!
//! Pages are touched in turn, more pages than frames, so that each touch is a fault: one page
//! leaves and one comes. Times are from one touch to the next. Rows are medians of them, or of
//! means of several where a median would hide work, because other load on the machine makes some
//! times longer, never shorter.

use super::paged_server;
use crate::args::PagerBenchArgs;
use crate::bench::controls::{Controls, Operations};
use crate::report::{Hardware, Row, Scale, TimePair, failed, print_report, row, row_of_ratios};
use serde::Serialize;
use std::path::PathBuf;
use traceless::clock::{Clock, Monotonic};
use traceless::seal::{Aead, ChaChaHmac, Sealer, Secret, WideAegis};
use traceless_block::detwo::Refresh;
use traceless_cli::args::PageCipherArg;
use traceless_cli::failure::Failure;
use traceless_cli::output::{print_error, print_line};
use traceless_cli::run::cipher;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{
    Config, PIN_PROGRAM_THREADS, PagedRegion, Scheme, Settings, Summary,
};
use traceless_sim::experiment::text_table::shortened;

/// The time that a computing program spends between two faults, as a multiple of a plain fault. So
/// faults are at most 30 % of its time.
const IDLE: f64 = 2.5;

/// Pages of the process in the row on trusted memory.
const PAGES_OF_MEMORY_ROW: usize = 1 << 16;

/// What the rows depend on, and further numbers beside them.
#[derive(Serialize)]
struct Setting {
    faults: usize,
    resident: usize,
    details: Vec<Detail>,
}

/// Further numbers of a measurement, which show where its time goes.
#[derive(Serialize)]
struct Detail {
    name: &'static str,
    p50_us: f64,
    p99_us: f64,
    handler_cpu_share: f64,
    helper_cpu_share: f64,
    order_hash: u64,
}

/// The program that touches pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TouchProgram {
    /// A fault at each touch.
    Faulting,
    /// A fault at each touch, and computation in between.
    Computing,
    /// A fault at each touch, of enough pages that a tree of them is deep.
    Large,
}

/// A scheme, measured as a ratio to plain paging of the same program.
struct FaultSubject {
    name: &'static str,
    program: TouchProgram,
    scheme: Scheme,
    refresh: u32,
    cached: usize,
}

const fn detwo(name: &'static str, scheme: Scheme, refresh: u32) -> FaultSubject {
    FaultSubject { name, program: TouchProgram::Faulting, scheme, refresh, cached: 0 }
}

const fn eager(name: &'static str, refresh: u32) -> FaultSubject {
    FaultSubject {
        name,
        program: TouchProgram::Computing,
        scheme: Scheme::Eager,
        refresh,
        cached: 0,
    }
}

const fn tree(name: &'static str, scheme: Scheme, cached: usize) -> FaultSubject {
    FaultSubject { name, program: TouchProgram::Large, scheme, refresh: 1, cached }
}

const fn plain(name: &'static str, program: TouchProgram) -> FaultSubject {
    FaultSubject { name, program, scheme: Scheme::Plain, refresh: 1, cached: 0 }
}

const SUBJECTS: [FaultSubject; 17] = [
    detwo("pager-detwo-k3", Scheme::DetWo, 3),
    detwo("pager-detwo-k7", Scheme::DetWo, 7),
    detwo("pager-detwo-k15", Scheme::DetWo, 15),
    detwo("pager-parallel-k3", Scheme::Parallel, 3),
    detwo("pager-parallel-k7", Scheme::Parallel, 7),
    detwo("pager-parallel-k15", Scheme::Parallel, 15),
    eager("pager-eager-idle-k3", 3),
    eager("pager-eager-idle-k7", 7),
    eager("pager-eager-idle-k15", 15),
    detwo("pager-eager-parallel-k3", Scheme::EagerParallel, 3),
    detwo("pager-eager-parallel-k7", Scheme::EagerParallel, 7),
    detwo("pager-eager-parallel-k15", Scheme::EagerParallel, 15),
    tree("pager-path", Scheme::Path, 0),
    tree("pager-path-fused", Scheme::PathFused, 0),
    tree("pager-path-fused-cached", Scheme::PathFused, 8),
    tree("pager-ring", Scheme::Ring, 0),
    tree("pager-opam", Scheme::Opam, 0),
];

/// Schemes with their pages in a file, measured as a ratio to the same with pages in memory.
const IN_FILE: [FaultSubject; 2] = [
    plain("pager-file-plain", TouchProgram::Faulting),
    detwo("pager-file-detwo-k3", Scheme::DetWo, 3),
];

const CONTROLS: [FaultSubject; 3] = [
    plain("pager-plain-fault", TouchProgram::Faulting),
    plain("pager-plain-idle", TouchProgram::Computing),
    plain("pager-plain-large", TouchProgram::Large),
];

/// The operations of a plain fault: two switches between handler and program, one page sealed and
/// another opened, and both copied.
const FAULT: Operations =
    Operations { passes: 2.0, copies: 2.0, switches: 2.0, ..Operations::NONE };

/// Pages of a large program.
const LARGE_PAGES: usize = 1 << 14;

/// Faults in which a tree has at least two evictions.
const PERIOD: usize = 20;

/// Touches of each page before the measurement. The last leaf of a ring is written when each page
/// has left two and a half times.
const WARM_UP: usize = 3;

/// The number of a large program's faults is divided by this: each takes longer, and fewer suffice.
const LARGE_FAULTS: usize = 5;

/// Times between touches, sorted, and the pager's counters.
struct FaultTimes {
    times_ns: Vec<u64>,
    wall_ns: u64,
    counted: Summary,
}

impl FaultTimes {
    fn p50(&self) -> f64 {
        self.times_ns[self.times_ns.len() / 2] as f64
    }

    fn detail(&self, name: &'static str) -> Detail {
        let share = |ns: u64| ns as f64 / self.wall_ns as f64;
        Detail {
            name,
            p50_us: self.p50() / 1000.0,
            p99_us: self.times_ns[self.times_ns.len() * 99 / 100] as f64 / 1000.0,
            handler_cpu_share: share(self.counted.handler_cpu_ns),
            helper_cpu_share: share(self.counted.helper_cpu_ns),
            order_hash: self.counted.order_hash,
        }
    }
}

pub fn run(args: &PagerBenchArgs) -> Result<(), Failure> {
    let faults = if args.quick { args.faults.min(3000) } else { args.faults };
    let (rows, details) = measure_all(args, faults)?;
    let setting = Setting { faults, resident: args.resident, details };
    let machine = Hardware::here();
    print_report("traceless.pager.bench.v1", &machine, &setting, &rows, args.json)?;
    if args.json {
        return Ok(());
    }
    print_line("");
    for detail in &setting.details {
        print_line(&format!(
            "{:<28}p50 {:>6} us  p99 {:>6} us  handler {:>3.0} % of the time, helpers {:>3.0} %",
            detail.name,
            shortened(detail.p50_us),
            shortened(detail.p99_us),
            detail.handler_cpu_share * 100.0,
            detail.helper_cpu_share * 100.0,
        ));
    }
    Ok(())
}

fn measure_all(args: &PagerBenchArgs, faults: usize) -> Result<(Vec<Row>, Vec<Detail>), Failure> {
    let wanted =
        |name: &str| args.only.is_empty() || args.only.iter().any(|part| name.contains(part));
    let subjects: Vec<&FaultSubject> =
        SUBJECTS.iter().filter(|subject| wanted(subject.name)).collect();
    let mut faults_in_plain = vec![];
    let sealer = sealer(args.cipher);
    let mut controls = Controls::of_memory().and_passes(sealer, PAGE_LEN).and_switches();
    let mut ratios = vec![vec![]; subjects.len()];
    let in_file: Vec<&FaultSubject> =
        IN_FILE.iter().filter(|subject| wanted(subject.name)).collect();
    let mut file_ratios = vec![vec![]; in_file.len()];
    let mut details = vec![];
    for round in 1..=args.rounds {
        if !args.json {
            print_error(&format!("round {round} of {}", args.rounds));
        }
        details.clear();
        let (plain, reading) =
            controls.beside(|| measure(args, &CONTROLS[0], faults, 0.0, None))?;
        let compute_ns = plain.p50() * IDLE;
        faults_in_plain.push(TimePair { ns: plain.p50(), control_ns: FAULT.ns(&reading) });
        let mut controls = vec![plain];
        for control in &CONTROLS[1..] {
            let is_needed = subjects.iter().any(|subject| subject.program == control.program);
            let faults = if is_needed { faults } else { 0 };
            controls.push(measure(args, control, faults, compute_ns, None)?);
        }
        for (control, measured) in CONTROLS.iter().zip(&controls) {
            if !measured.times_ns.is_empty() {
                details.push(measured.detail(control.name));
            }
        }
        for (subject, ratios) in subjects.iter().zip(&mut ratios) {
            let control = &controls[subject.program as usize];
            let measured = measure(args, subject, faults, compute_ns, None)?;
            if measured.counted.order_hash != control.counted.order_hash {
                return Err(failed("other pages left than under plain paging"));
            }
            ratios.push(measured.p50() / control.p50());
            details.push(measured.detail(subject.name));
        }
        for (subject, ratios) in in_file.iter().zip(&mut file_ratios) {
            let (ratio, detail) = measure_in_file(args, subject, faults)?;
            ratios.push(ratio);
            details.push(detail);
        }
    }
    let scale = Scale::Time("us", 1e3);
    let mut rows = vec![row_of_ratios("pager-plain-fault", scale, &faults_in_plain)];
    for (subject, ratios) in subjects.iter().zip(ratios) {
        rows.push(row(subject.name, "ratio", ratios));
    }
    for (subject, ratios) in in_file.iter().zip(file_ratios) {
        rows.push(row(subject.name, "ratio", ratios));
    }
    if wanted("pager-memory") {
        rows.push(row("pager-memory", "bytes a page", vec![bytes_per_page()?]));
    }
    if wanted(paged_server::NAME) {
        rows.push(paged_server::measure(args.rounds.min(3), if args.quick { 3 } else { 10 })?);
    }
    Ok((rows, details))
}

/// Measures a scheme with its pages in memory, and then in a file; returns the ratio of their
/// times, and further numbers of the second.
fn measure_in_file(
    args: &PagerBenchArgs,
    subject: &FaultSubject,
    faults: usize,
) -> Result<(f64, Detail), Failure> {
    let folder = tempfile::tempdir().map_err(failed)?;
    let path = folder.path().join("pages");
    let in_memory = measure(args, subject, faults, 0.0, None)?;
    let in_file = measure(args, subject, faults, 0.0, Some(path))?;
    Ok((in_file.p50() / in_memory.p50(), in_file.detail(subject.name)))
}

/// Touches pages in turn; a computing program spins for `compute_ns` after each touch. With no
/// faults it measures nothing. Pages lie in `backing`, if that is given, else in memory.
fn measure(
    args: &PagerBenchArgs,
    subject: &FaultSubject,
    faults: usize,
    compute_ns: f64,
    backing: Option<PathBuf>,
) -> Result<FaultTimes, Failure> {
    let (pages, faults, compute_ns) = match subject.program {
        TouchProgram::Faulting => (args.pages, faults, 0),
        TouchProgram::Computing => (args.pages, faults, compute_ns as u64),
        TouchProgram::Large => (LARGE_PAGES, faults.div_ceil(LARGE_FAULTS), 0),
    };
    let settings = Settings {
        resident: args.resident,
        pages,
        scheme: subject.scheme,
        refresh: Refresh::new(subject.refresh, 1).map_err(failed)?,
        cipher: cipher(args.cipher),
        helpers: args.helpers,
        cached: subject.cached,
        backing,
        ..Settings::default()
    };
    if faults == 0 {
        return Ok(FaultTimes { times_ns: vec![], wall_ns: 0, counted: Summary::default() });
    }
    let mut region = region(&settings)?;
    // Afterwards every slot of the store was written once, and every page has left once.
    for touch in 0..WARM_UP * pages {
        touch_page(&mut region, touch % pages);
    }
    let mut times_ns = Vec::with_capacity(faults);
    let (clock, before) = (Monotonic::start(), region.stats());
    let mut last = clock.now();
    for touch in 0..faults {
        touch_page(&mut region, touch % pages);
        compute(&clock, compute_ns);
        let now = clock.now();
        times_ns.push(now - last);
        last = now;
    }
    let mut counted = region.stats();
    if counted.faults - before.faults != faults as u64 {
        return Err(failed("not every touch was a fault"));
    }
    if subject.program == TouchProgram::Large {
        times_ns = means(&times_ns);
    }
    counted.handler_cpu_ns -= before.handler_cpu_ns;
    counted.helper_cpu_ns -= before.helper_cpu_ns;
    times_ns.sort_unstable();
    Ok(FaultTimes { times_ns, wall_ns: last, counted })
}

/// Means of consecutive times: a tree's evictions occur in few faults, and a median would miss
/// them.
fn means(times_ns: &[u64]) -> Vec<u64> {
    times_ns.chunks(PERIOD).map(|some| some.iter().sum::<u64>() / some.len() as u64).collect()
}

fn region(settings: &Settings) -> Result<PagedRegion, Failure> {
    let (scheme, _) = settings.build().map_err(failed)?;
    let Settings { resident: frames, policy, .. } = *settings;
    // The setting for unmodified programs. This process starts no threads while it faults.
    let config = Config { frames, policy, pin_threads: PIN_PROGRAM_THREADS, ..Config::default() };
    PagedRegion::new(scheme, config).map_err(failed)
}

/// The sealer for pages, outside a scheme.
fn sealer(cipher: PageCipherArg) -> fn(&Secret) -> Box<dyn Sealer> {
    match cipher {
        PageCipherArg::Aegis => |key| Box::new(WideAegis::new(key)),
        PageCipherArg::Gcm => |key| Box::new(Aead::new(key)),
        PageCipherArg::ChachaHmac => |key| Box::new(ChaChaHmac::new(key)),
    }
}

fn touch_page(region: &mut PagedRegion, page: usize) {
    let byte = &mut region[page * PAGE_LEN];
    *byte = byte.wrapping_add(1);
}

/// Spins, as the computation of a program on its resident pages.
fn compute(clock: &Monotonic, ns: u64) {
    let until = clock.now() + ns;
    while ns > 0 && clock.now() < until {
        std::hint::spin_loop();
    }
}

/// Bytes of trusted memory per page, besides the frames.
fn bytes_per_page() -> Result<f64, Failure> {
    let settings = Settings { pages: PAGES_OF_MEMORY_ROW, ..Settings::default() };
    let bytes = region(&settings)?.stats().trusted_bytes;
    Ok(bytes as f64 / PAGES_OF_MEMORY_ROW as f64)
}
