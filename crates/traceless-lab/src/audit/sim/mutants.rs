//! Computers with one fault each. An audit that misses one proves nothing.
//!
//! Some have a faulty scheme in the simulator's controller, some a [faulty
//! controller](super::pacing), and some are the simulator's own with a T that depends on the
//! program.

use super::super::suite::CaseKind::{self, Fault, SoundTwin};
use super::super::suite::SelfTestCase;
use super::super::tree::mutants::{
    EvictsAtOnce, ForgetsRemap, NoPattern, OwnLeaf, PairFault, PairMutant, PathMutant, PlbBeside,
    SkipsClean, SkipsDummies, SoundPair, SoundTree, TreeFault, map_blocks,
};
use super::super::tree::schemes::{levels, rng};
use super::computer::{BLOCKS, LEVELS, MEMORY, layouts_of};
use super::machines::{
    AFTER_COMPLETION, Construction, FETCH_SLOTS, MachineClaims, MachineScheme, of, scheme,
};
use super::pacing::{self, Pacing};
use super::run::{Bench, Job};
use super::trees::observed_tree;
use super::users::ProgramUser;
use super::watch::Atlas;
use super::{MachineSize, Processors};
use traceless::tree::Shape;
use traceless_sim::Result;
use traceless_sim::dram::Memory;
use traceless_sim::oram::{Config, Oram, Pace, Scheme as Kind, SimController, StepTrace};

/// A computer with a fault that the audit must find, or a sound twin that must pass.
pub type MachineCase = SelfTestCase<Processors>;

/// All planted faults, and the sound twins.
pub const PLANTED: [MachineCase; 20] = [
    path::<SoundTree>("mutant:sound-path", SoundTwin),
    path::<SkipsDummies>("mutant:skips-dummies", Fault("nothing is done without a request")),
    path::<SkipsClean>("mutant:reads-only", Fault("a path that did not change is not written")),
    path::<EvictsAtOnce>("mutant:evicts-at-once", Fault("a full stash takes a path more")).long(),
    path::<ForgetsRemap>("mutant:forgets-remap", Fault("one remap of twenty is forgotten")).long(),
    path::<OwnLeaf>("mutant:leaf-of-block", Fault("one new leaf of ten is the block's")).long(),
    pair::<SoundPair>("mutant:sound-pair", SoundTwin),
    pair::<PlbBeside>("mutant:plb-beside-trees", Fault("a PLB saves paths of the map's own tree")),
    pair::<NoPattern>("mutant:no-pattern", Fault("a tree is accessed when it is needed")),
    pacing_fault::<pacing::SoundPace>("mutant:sound-pace", SoundTwin),
    pacing_fault::<pacing::IntervalOfProgram>(
        "mutant:t-of-program",
        Fault("T is chosen for each program"),
    ),
    pacing_fault::<pacing::EarlyAtOnce>(
        "mutant:early-at-once",
        Fault("early write-backs come at once"),
    ),
    pacing_fault::<pacing::EarlyLater>(
        "mutant:early-later",
        Fault("early write-backs wait for a search"),
    ),
    pacing_fault::<pacing::EvictsBetween>(
        "mutant:evicts-between",
        Fault("evictions wait for no slot"),
    ),
    pacing_fault::<pacing::AbortEndsStep>(
        "mutant:abort-ends-slot",
        Fault("an abort gives the slot back"),
    ),
    pacing_fault::<pacing::ReadsBeforeAnswer>(
        "mutant:reads-before-answer",
        Fault("a read before the S-Stash answers"),
    ),
    t_per_program(),
    configured("fetch-slots", "T grows with a program's memory operations", &[FETCH_SLOTS], || {
        of(Kind::Baseline)
    }),
    as_printed("ir-stash:as-printed", || searches_first(Kind::IrStash)).long(),
    as_printed("ir-oram:as-printed", || searches_first(Kind::IrOram)).longest(),
];

/// Size for faults in times and in the form of steps.
const EXACT: MachineSize = MachineSize { exact: 170, statistic_steps: 100, leaves: 0 };

/// Size for faults that are rare, or show in leaves alone.
const LONG: MachineSize = MachineSize { exact: 20, statistic_steps: 2_500, leaves: 0 };
/// Size for faults that hardly show in small trees, between early write-backs.
const LONGEST: MachineSize = MachineSize { exact: 20, statistic_steps: 8_000, leaves: 0 };

impl MachineCase {
    const fn long(self) -> Self {
        Self { size: LONG, ..self }
    }

    const fn longest(self) -> Self {
        Self { size: LONGEST, ..self }
    }
}

const READINGS: [MachineClaims; 1] = [AFTER_COMPLETION];

const fn outside_scheme(
    name: &'static str,
    kind: CaseKind,
    atlas: fn() -> Result<Atlas>,
    run: fn(&Job, &Bench) -> Result<()>,
) -> MachineCase {
    let construction = Construction::Own { atlas, run };
    let scheme =
        MachineScheme { construction, readings: &READINGS, ..scheme(name, || of(Kind::Path)) };
    MachineCase { scheme, kind, size: EXACT }
}

const fn path<F: TreeFault + 'static>(name: &'static str, kind: CaseKind) -> MachineCase {
    outside_scheme(name, kind, || Ok(Atlas::of(&layouts_of(&shapes(false)?))), run_path::<F>)
}

const fn pair<F: PairFault + 'static>(name: &'static str, kind: CaseKind) -> MachineCase {
    outside_scheme(name, kind, || Ok(Atlas::of(&layouts_of(&shapes(true)?))), run_pair::<F>)
}

const fn pacing_fault<F: Pacing + 'static>(name: &'static str, kind: CaseKind) -> MachineCase {
    outside_scheme(name, kind, pacing::atlas, pacing::run::<F>)
}

/// A configuration of the simulator's own controller.
const fn configured(
    name: &'static str,
    fault: &'static str,
    readings: &'static [MachineClaims],
    config: fn() -> Config,
) -> MachineCase {
    let scheme = MachineScheme { readings, ..scheme(name, config) };
    MachineCase { scheme, kind: Fault(fault), size: EXACT }
}

const fn t_per_program() -> MachineCase {
    let otherwise: fn(Pace, ProgramUser) -> Pace = |pace, user| match user {
        ProgramUser::Computes => Pace::AfterCompletion(1004),
        _ => pace,
    };
    let construction = Construction::OtherPace(|| of(Kind::Baseline), otherwise);
    let fault = "T is another for each program";
    let fault_scheme = configured("mutant:t-per-program", fault, &READINGS, || of(Kind::Baseline));
    MachineCase { scheme: MachineScheme { construction, ..fault_scheme.scheme }, ..fault_scheme }
}

/// A block at hand costs no path, so a path is read for a block only after it has sunk.
const fn as_printed(name: &'static str, config: fn() -> Config) -> MachineCase {
    let fault = "what is at hand costs no path, and leaves tell what has sunk";
    configured(name, fault, &READINGS, config)
}

fn searches_first(kind: Kind) -> Config {
    Config { searches_first: Some(true), ..of(kind) }
}

/// The tree of a Path ORAM, and the tree of its map if `with_map`.
fn shapes(with_map: bool) -> Result<Vec<Shape>> {
    let data = Shape::uniform(LEVELS, 4)?;
    let map = Shape::uniform(levels(map_blocks(BLOCKS)), 4)?;
    Ok(if with_map { vec![data, map] } else { vec![data] })
}

fn run_path<F: TreeFault + 'static>(job: &Job, bench: &Bench) -> Result<()> {
    run_front(job, bench, |bus| {
        let tree = observed_tree(0, shapes(false)?.remove(0), &bench.atlas, bus);
        Ok(Box::new(PathMutant::<F>::new(BLOCKS, tree, rng(job.seed, 0))))
    })
}

fn run_pair<F: PairFault + 'static>(job: &Job, bench: &Bench) -> Result<()> {
    run_front(job, bench, |bus| {
        let mut shapes = shapes(true)?;
        let map = observed_tree(1, shapes.remove(1), &bench.atlas, bus.clone());
        let data = observed_tree(0, shapes.remove(0), &bench.atlas, bus);
        let rngs = [rng(job.seed, 0), rng(job.seed, 1)];
        Ok(Box::new(PairMutant::<F>::new(BLOCKS, [data, map], rngs)))
    })
}

/// Runs a scheme in the simulator's controller.
fn run_front(
    job: &Job,
    bench: &Bench,
    make: impl FnOnce(StepTrace) -> Result<Box<dyn SimController>>,
) -> Result<()> {
    let config = Config { pace: job.pace, warm_up: 0, ..Config::default() };
    let mut oram = Oram::over_dram_with(&config, Memory::new(MEMORY)?, make)?;
    oram.watch(bench.watcher.clone());
    bench.run(job, oram, None)
}

impl<F: TreeFault> SimController for PathMutant<F> {
    fn stash(&self) -> usize {
        0
    }
}

impl<F: PairFault> SimController for PairMutant<F> {
    fn stash(&self) -> usize {
        0
    }
}
