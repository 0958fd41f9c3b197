//! The targets of an audit: a scheme in one geometry, or a mutant.

use super::mutants::{
    self, CoalescesDuplicates, DetWoFault, LiteralWrap, Mutant, SkipsCleanRefreshes, SoundDetWo,
};
use super::random_mutants::{self, OwnSlot, PrefersFree, RandomMutant, SoundRandom};
use super::sq_mutants::{self, KeepsOlder, SkipsFakes, SoundSq, SqFault, SqMutant};
use std::sync::Arc;
use traceless::oram::Oram;
use traceless::scheme::Parts;
use traceless::scheme::contract::{BlockScheme, Scheme, SchemeKind, Timetable};
use traceless::scheme::linear::LinearScheme;
use traceless::store::SlotLayout;
use traceless::{BlockOram, Hides, Result};
use traceless_block::{registry, sq};

/// Bytes of a block, as in a volume.
pub const BLOCK_LEN: usize = 4096;

/// A scheme that `--scheme` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditSubject {
    /// What a volume can be made with.
    Block(&'static SchemeKind),
    /// Sq in the paper's cadence, which leaks.
    SqPaper,
    Linear,
    Mutant(MutantKind),
}

/// The mutants, and their sound twins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MutantKind {
    Sound,
    SkipsClean,
    LiteralWrap,
    Coalesces,
    SoundSq,
    KeepsOlder,
    SkipsFakes,
    SoundRandom,
    OwnSlot,
    PrefersFree,
}

/// Schemes in which nothing may be found, and what the command line calls them.
pub fn honest() -> Vec<(AuditSubject, &'static str)> {
    let blocks = registry::KINDS.iter().map(|kind| (AuditSubject::Block(kind), kind.name));
    let all = blocks.chain([(AuditSubject::Linear, "linear")]);
    all.filter(|(subject, _)| subject.hides() != Hides::Nothing).collect()
}

impl MutantKind {
    /// Whether the mutant is an `SqORAM`, without a refresh schedule.
    fn is_sq(self) -> bool {
        matches!(self, Self::SoundSq | Self::KeepsOlder | Self::SkipsFakes)
    }

    /// Whether the mutant writes random slots, without a refresh schedule.
    fn is_random(self) -> bool {
        matches!(self, Self::SoundRandom | Self::OwnSlot | Self::PrefersFree)
    }
}

impl AuditSubject {
    /// The subject with this name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sq:paper-cadence" => Self::SqPaper,
            "linear" => Self::Linear,
            "mutant:sound" => Self::Mutant(MutantKind::Sound),
            "mutant:skips-clean" => Self::Mutant(MutantKind::SkipsClean),
            "mutant:literal-wrap" => Self::Mutant(MutantKind::LiteralWrap),
            "mutant:coalesces" => Self::Mutant(MutantKind::Coalesces),
            "mutant:sound-sq" => Self::Mutant(MutantKind::SoundSq),
            "mutant:keeps-older" => Self::Mutant(MutantKind::KeepsOlder),
            "mutant:skips-fakes" => Self::Mutant(MutantKind::SkipsFakes),
            "mutant:sound-random" => Self::Mutant(MutantKind::SoundRandom),
            "mutant:own-slot" => Self::Mutant(MutantKind::OwnSlot),
            "mutant:prefers-free" => Self::Mutant(MutantKind::PrefersFree),
            other => Self::Block(registry::named(other)?),
        })
    }

    /// What the scheme claims to hide.
    pub fn hides(self) -> Hides {
        match self {
            Self::Block(kind) => sample(kind).hides(),
            Self::SqPaper | Self::Mutant(_) => Hides::WritesOnly,
            Self::Linear => Hides::ReadsAndWrites,
        }
    }

    /// Whether the scheme draws the slots that it writes at random.
    pub fn draws_places(self) -> bool {
        match self {
            Self::Block(kind) => sample(kind).draws_places(),
            Self::Mutant(kind) => kind.is_random(),
            Self::SqPaper | Self::Linear => false,
        }
    }

    /// The geometries to run, of about `blocks` blocks: all refresh ratios, and the map on the
    /// store, which needs `map_blocks`.
    pub fn targets(self, blocks: u64, map_blocks: u64) -> Result<Vec<AuditTarget>> {
        let one = |name, made| Ok(vec![AuditTarget { name, made }]);
        match self {
            Self::Block(kind) => {
                let samples = (kind.samples)(blocks, map_blocks, BLOCK_LEN)?.into_iter();
                let target = |(name, scheme)| AuditTarget { name, made: NewTarget::Block(scheme) };
                Ok(samples.map(target).collect())
            }
            Self::SqPaper => {
                let wishes = sq::Wishes { map_on_disk: true, ..sq::Wishes::default() };
                let geometry = sq::SqGeometry::new(map_blocks.max(4096), BLOCK_LEN, wishes)?;
                let geometry = sq::SqGeometry { cadence: sq::Cadence::Paper, ..geometry };
                geometry.check()?;
                one("shared map blocks", NewTarget::Block(Arc::new(geometry)))
            }
            // Few blocks, because each access moves all of them.
            Self::Linear => {
                let scheme = LinearScheme { blocks: 16, block_len: BLOCK_LEN };
                one("16 blocks", NewTarget::Linear(scheme))
            }
            Self::Mutant(kind) if kind.is_sq() => one("k = 2", NewTarget::Mutant(kind, blocks)),
            Self::Mutant(kind) if kind.is_random() => one("k = 3", NewTarget::Mutant(kind, blocks)),
            Self::Mutant(kind) => one("K = 1", NewTarget::Mutant(kind, blocks)),
        }
    }
}

/// A small scheme of this kind, to look up what holds for all of them.
fn sample(kind: &SchemeKind) -> Arc<dyn BlockScheme> {
    let samples = (kind.samples)(64, 512, BLOCK_LEN).expect("small schemes of every kind");
    samples.into_iter().next().expect("at least one").1
}

/// A scheme or mutant of a given size.
#[derive(Clone, Debug)]
pub struct AuditTarget {
    /// Names the geometry among the geometries of its subject.
    pub name: &'static str,
    made: NewTarget,
}

#[derive(Clone, Debug)]
enum NewTarget {
    Block(Arc<dyn BlockScheme>),
    Linear(LinearScheme),
    Mutant(MutantKind, u64),
}

/// An open target.
pub enum Open {
    Disk(Box<dyn BlockOram>),
    Other(Box<dyn Oram>),
}

impl Open {
    pub fn oram(&mut self) -> &mut dyn Oram {
        match self {
            Self::Disk(oram) => &mut **oram,
            Self::Other(oram) => &mut **oram,
        }
    }
}

impl AuditTarget {
    /// The scheme, unless a fault is planted in it.
    fn scheme(&self) -> Option<&dyn Scheme> {
        match &self.made {
            NewTarget::Block(scheme) => Some(&**scheme),
            NewTarget::Linear(scheme) => Some(scheme),
            NewTarget::Mutant(..) => None,
        }
    }

    pub fn blocks(&self) -> u64 {
        match &self.made {
            NewTarget::Block(scheme) => scheme.blocks(),
            NewTarget::Linear(scheme) => scheme.blocks(),
            NewTarget::Mutant(_, blocks) => *blocks,
        }
    }

    pub fn store_len(&self) -> u64 {
        match &self.made {
            NewTarget::Block(scheme) => scheme.store_len(),
            NewTarget::Linear(scheme) => scheme.store_len(),
            NewTarget::Mutant(kind, n) if kind.is_sq() => sq_mutants::store_len(*n, BLOCK_LEN),
            NewTarget::Mutant(kind, blocks) if kind.is_random() => {
                random_mutants::layout(*blocks, BLOCK_LEN).len()
            }
            NewTarget::Mutant(_, blocks) => mutants::store_len(*blocks, BLOCK_LEN),
        }
    }

    /// The layout of the slots that are drawn at random, if any; they begin at byte 0.
    pub fn drawn_slots(&self) -> Option<SlotLayout> {
        match &self.made {
            NewTarget::Block(scheme) => scheme.drawn_slots(),
            NewTarget::Mutant(kind, blocks) if kind.is_random() => {
                Some(random_mutants::layout(*blocks, BLOCK_LEN))
            }
            NewTarget::Linear(_) | NewTarget::Mutant(..) => None,
        }
    }

    /// Bytes written per byte of the user, at least.
    pub fn write_amplification(&self) -> f64 {
        match &self.made {
            NewTarget::Block(scheme) => scheme.write_amplification(),
            NewTarget::Linear(scheme) => scheme.write_amplification(),
            NewTarget::Mutant(kind, n) if kind.is_sq() => sq_mutants::write_amplification(*n),
            NewTarget::Mutant(..) => 2.0,
        }
    }

    /// When and how often each part of the store is written.
    pub fn timetable(&self) -> Timetable {
        let slots = self.store_len() / BLOCK_LEN as u64;
        let planted = Timetable {
            areas: 2,
            gaps: 0,
            warm_up: 0,
            cycle: self.blocks(),
            whole_cycle: slots,
            unsynced_max: 32,
        };
        match &self.made {
            NewTarget::Block(scheme) => scheme.timetable(),
            // It has no schedule; what is left out shows at once.
            NewTarget::Linear(scheme) => {
                Timetable { cycle: 64, ..Timetable::unscheduled(scheme, 32) }
            }
            NewTarget::Mutant(kind, n) if kind.is_sq() => {
                let (areas, warm_up) = (sq_mutants::areas(*n), sq_mutants::warm_up(*n));
                Timetable { areas, gaps: areas, warm_up, ..planted }
            }
            NewTarget::Mutant(..) => planted,
        }
    }

    /// Whether the target opens as a `BlockOram`, with dummy writes.
    pub fn is_for_disks(&self) -> bool {
        matches!(self.made, NewTarget::Block(_))
    }

    pub fn can_reopen(&self) -> bool {
        self.scheme().is_some()
    }

    pub fn create(&self, parts: Parts) -> Result<Open> {
        Ok(match &self.made {
            NewTarget::Block(scheme) => Open::Disk(scheme.create_block(parts)?),
            NewTarget::Linear(scheme) => Open::Other(scheme.create(parts)?),
            NewTarget::Mutant(MutantKind::Sound, n) => mutant::<SoundDetWo>(*n, &parts),
            NewTarget::Mutant(MutantKind::SkipsClean, n) => {
                mutant::<SkipsCleanRefreshes>(*n, &parts)
            }
            NewTarget::Mutant(MutantKind::LiteralWrap, n) => mutant::<LiteralWrap>(*n, &parts),
            NewTarget::Mutant(MutantKind::Coalesces, n) => {
                mutant::<CoalescesDuplicates>(*n, &parts)
            }
            NewTarget::Mutant(MutantKind::SoundSq, n) => sq_mutant::<SoundSq>(*n, &parts),
            NewTarget::Mutant(MutantKind::KeepsOlder, n) => sq_mutant::<KeepsOlder>(*n, &parts),
            NewTarget::Mutant(MutantKind::SkipsFakes, n) => sq_mutant::<SkipsFakes>(*n, &parts),
            NewTarget::Mutant(MutantKind::SoundRandom, n) => {
                random_mutant::<SoundRandom>(*n, parts)
            }
            NewTarget::Mutant(MutantKind::OwnSlot, n) => random_mutant::<OwnSlot>(*n, parts),
            NewTarget::Mutant(MutantKind::PrefersFree, n) => {
                random_mutant::<PrefersFree>(*n, parts)
            }
        })
    }

    /// Opens a scheme from `state`, the last state in its vault. Mutants are never opened again.
    pub fn open(&self, parts: Parts, state: &[u8]) -> Result<Open> {
        Ok(match &self.made {
            NewTarget::Block(scheme) => {
                Open::Disk(scheme.open_block(parts, state, &mut |_, _| {})?)
            }
            NewTarget::Linear(scheme) => Open::Other(scheme.open(parts, state, &mut |_, _| {})?),
            NewTarget::Mutant(..) => unreachable!("mutants are made only"),
        })
    }
}

fn mutant<F: DetWoFault + 'static>(blocks: u64, parts: &Parts) -> Open {
    Open::Other(Box::new(Mutant::<F>::create(blocks, BLOCK_LEN, parts)))
}

fn sq_mutant<F: SqFault + 'static>(blocks: u64, parts: &Parts) -> Open {
    Open::Other(Box::new(SqMutant::<F>::create(blocks, BLOCK_LEN, parts)))
}

fn random_mutant<C: random_mutants::Choice + 'static>(blocks: u64, parts: Parts) -> Open {
    Open::Other(Box::new(RandomMutant::<C>::create(blocks, BLOCK_LEN, parts)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::audit::volume_schemes;

    #[test]
    fn every_name_on_the_command_line_is_known() {
        for name in volume_schemes() {
            let subject = AuditSubject::named(name).unwrap();
            assert!(!subject.targets(64, 512).unwrap().is_empty());
        }
        assert_eq!(AuditSubject::named("detwoo"), None);
    }
}
