//! Runs that are crashed at every point.

use crate::check::{Checker, Tally};
use crate::disk::Fault;
use crate::effort::Effort;
use crate::steps::Step;
use crate::subjects::{Family, Subject};
use crate::world::{Failure, World};
use traceless_core::rng::{Rng, SeededRng};

pub const HEALTHY: [Fault; 2] = [Fault::None; 2];

/// Most blocks of a random subject: each crash reads all of them.
const BLOCKS_MAX: u64 = 700;

/// A run to crash: the writes before it, and its steps.
#[derive(Clone)]
pub struct Case {
    pub subject: Subject,
    /// Bytes of the store's unit.
    pub unit: usize,
    /// Number of writes made before the run.
    pub before: u64,
    pub steps: Vec<Step>,
    pub seed: u64,
    /// The planted fault of each of the two volumes.
    pub faults: [Fault; 2],
}

impl Case {
    /// Cases that begin with a new volume, and shortly before each ring, stripe or level begins.
    /// Each subject gets every other beginning, and each beginning every other subject.
    pub fn all(family: &Family) -> Vec<Self> {
        let mut list = vec![];
        for (i, (subject, writes)) in (family.table)().into_iter().enumerate() {
            for (j, &event) in subject.begins.iter().enumerate().skip(i % 2).step_by(2) {
                let before = event.saturating_sub(subject.warm_up + writes / 2);
                let (seed, unit) = (100 * i as u64 + 10 * j as u64, [512, 4096][(i + j) % 3 / 2]);
                let steps = subject.short_steps(subject.script(seed + 1, writes));
                let subject = subject.clone();
                list.push(Self { subject, unit, before, steps, seed, faults: HEALTHY });
            }
        }
        list
    }

    /// A short run of a random subject, shortly before an area begins anew or anywhere.
    pub fn random(family: &Family, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let mut subject = (family.any)(&mut rng);
        while subject.scheme.blocks() > BLOCKS_MAX {
            subject = (family.any)(&mut rng);
        }
        let writes = 4 + rng.below(5);
        let begin = subject.begins[rng.below(subject.begins.len() as u64) as usize];
        let before = match rng.below(2) {
            0 => begin.saturating_sub(rng.below(writes)),
            _ => rng.below(2 * subject.around),
        };
        let unit = [512, 4096][rng.below(2) as usize];
        let steps = subject.short_steps(subject.script(rng.next_u64(), writes));
        Self { subject, unit, before, steps, seed, faults: HEALTHY }
    }

    /// Runs the case, and crashes it at every point.
    pub fn check(&self, effort: Effort) -> Result<Tally, String> {
        let mut checker = Checker::new(self.run()?, effort, self.seed);
        checker.check()?;
        Ok(checker.tally)
    }

    /// The first violation, if there is one, and the number of images up to it.
    pub fn violation(&self, effort: Effort) -> Option<(String, u64)> {
        match self.run() {
            Err(what) => Some((what, 0)),
            Ok(worlds) => {
                let mut checker = Checker::new(worlds, effort, self.seed);
                let what = checker.check().err()?;
                Some((what, checker.tally.images()))
            }
        }
    }

    /// Two volumes after the same steps with different addresses and data.
    fn run(&self) -> Result<[World; 2], String> {
        let make = |salt, fault| -> Result<World, Failure> {
            let mut world = World::create(self.subject.clone(), self.unit, salt);
            let mut rng = SeededRng::new(self.seed + salt);
            let before = self.subject.short_steps(self.subject.script(self.seed, self.before));
            world.run(&before, 0, &mut rng)?;
            world.fault = fault;
            world.run(&self.steps, self.subject.warm_up, &mut rng)?;
            Ok(world)
        };
        Ok([make(100, self.faults[0])?, make(101, self.faults[1])?])
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { subject, unit, before, steps, seed, .. } = self;
        write!(f, "{:?}, units of {unit}, {before} writes before, ", subject.scheme)?;
        write!(f, "seed {seed}, {steps:?}")
    }
}
