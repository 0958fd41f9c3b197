//! The targets of an audit: a scheme in one geometry, or a mutant.

use super::discard_mutants::{DiscardMutant, NotesRewrites, SkipsUnchanged, SoundDiscards};
use super::mutants::{
    self, CoalescesDuplicates, DetWoFault, LiteralWrap, Mutant, SkipsCleanRefreshes, SoundDetWo,
};
use super::random_mutants::{self, OwnSlot, PrefersFree, RandomMutant, SoundRandom};
use super::repeat_mutant::RepeatMutant;
use super::sq_mutants::{self, KeepsOlder, SkipsFakes, SoundSq, SqFault, SqMutant};
use std::sync::Arc;
use traceless::oram::Oram;
use traceless::scheme::SchemeContext;
use traceless::scheme::contract::{BlockScheme, ReadTrace, Scheme, SchemeKind, Timetable};
use traceless::scheme::linear::LinearScheme;
use traceless::store::SlotLayout;
use traceless::trace::Event;
use traceless::{BlockOram, Hides, Result};
use traceless_block::detwo::{DetWoGeometry, Refresh};
use traceless_block::ring::RingGeometry;
use traceless_block::sq;

/// Bytes of a block, as in a volume.
pub const BLOCK_LEN: usize = 4096;

/// A scheme that a volume can have, or a control beside these schemes.
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
    SoundDiscards,
    SkipsUnchanged,
    NotesRewrites,
    SoundRandom,
    OwnSlot,
    PrefersFree,
    SkipsRepeats,
}

impl MutantKind {
    /// Whether the mutant is an `SqORAM`, without a refresh schedule.
    fn is_sq(self) -> bool {
        matches!(self, Self::SoundSq | Self::KeepsOlder | Self::SkipsFakes)
    }

    /// Whether the mutant is a whole scheme with a fault in its discards.
    fn is_of_discards(self) -> bool {
        matches!(self, Self::SoundDiscards | Self::SkipsUnchanged | Self::NotesRewrites)
    }

    /// `inner` with the fault around it.
    fn around(self, inner: Box<dyn BlockOram>) -> Open {
        Open::Disk(match self {
            Self::SkipsUnchanged => Box::new(DiscardMutant::<SkipsUnchanged>::new(inner)),
            Self::SkipsRepeats => Box::new(RepeatMutant::new(inner)),
            Self::NotesRewrites => Box::new(DiscardMutant::<NotesRewrites>::new(inner)),
            _ => Box::new(DiscardMutant::<SoundDiscards>::new(inner)),
        })
    }

    /// Whether the mutant writes random slots, without a refresh schedule.
    fn is_random(self) -> bool {
        matches!(self, Self::SoundRandom | Self::OwnSlot | Self::PrefersFree)
    }
}

impl AuditSubject {
    /// What the scheme claims to hide.
    pub fn hides(self) -> Hides {
        match self {
            Self::Block(kind) => sample(kind).hides(),
            Self::Linear | Self::Mutant(MutantKind::SkipsRepeats) => Hides::ReadsAndWrites,
            Self::SqPaper | Self::Mutant(_) => Hides::WritesOnly,
        }
    }

    /// The geometries to run, of about `blocks` blocks: all refresh ratios, and the map on the
    /// store, which needs `map_blocks`.
    pub fn targets(self, blocks: u64, map_blocks: u64) -> Result<Vec<AuditTarget>> {
        let one = |name, construction| Ok(vec![AuditTarget { name, construction }]);
        match self {
            Self::Block(kind) => {
                let samples = (kind.samples)(blocks, map_blocks, BLOCK_LEN)?.into_iter();
                let target = |(name, scheme)| AuditTarget {
                    name,
                    construction: TargetConstruction::Block(scheme),
                };
                Ok(samples.map(target).collect())
            }
            Self::SqPaper => {
                let wishes =
                    sq::SqPreferences { map_on_disk: true, ..sq::SqPreferences::default() };
                let geometry = sq::SqGeometry::new(map_blocks.max(4096), BLOCK_LEN, wishes)?;
                let geometry = sq::SqGeometry { cadence: sq::Cadence::Paper, ..geometry };
                geometry.check()?;
                one("shared map blocks", TargetConstruction::Block(Arc::new(geometry)))
            }
            // Few blocks, because each access moves all of them.
            Self::Linear => {
                let scheme = LinearScheme { blocks: 16, block_len: BLOCK_LEN };
                one("16 blocks", TargetConstruction::Linear(scheme))
            }
            Self::Mutant(kind) if kind.is_of_discards() => {
                let scheme = DetWoGeometry::new(blocks, BLOCK_LEN, Refresh::ONE, 0)?;
                let scheme = Arc::new(scheme.with_discards()?);
                one("K = 1", TargetConstruction::Around(kind, scheme))
            }
            Self::Mutant(kind @ MutantKind::SkipsRepeats) => {
                let scheme = RingGeometry::with_buckets(blocks, BLOCK_LEN, 6, &[2, 4])?;
                one("two levels", TargetConstruction::Around(kind, Arc::new(scheme)))
            }
            Self::Mutant(kind) if kind.is_sq() => {
                one("k = 2", TargetConstruction::Mutant(kind, blocks))
            }
            Self::Mutant(kind) if kind.is_random() => {
                one("k = 3", TargetConstruction::Mutant(kind, blocks))
            }
            Self::Mutant(kind) => one("K = 1", TargetConstruction::Mutant(kind, blocks)),
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
    construction: TargetConstruction,
}

#[derive(Clone, Debug)]
enum TargetConstruction {
    Block(Arc<dyn BlockScheme>),
    Linear(LinearScheme),
    Mutant(MutantKind, u64),
    /// A scheme with a fault around it.
    Around(MutantKind, Arc<dyn BlockScheme>),
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
        match &self.construction {
            TargetConstruction::Block(scheme) | TargetConstruction::Around(_, scheme) => {
                Some(&**scheme)
            }
            TargetConstruction::Linear(scheme) => Some(scheme),
            TargetConstruction::Mutant(..) => None,
        }
    }

    pub fn blocks(&self) -> u64 {
        match &self.construction {
            TargetConstruction::Block(scheme) | TargetConstruction::Around(_, scheme) => {
                scheme.blocks()
            }
            TargetConstruction::Linear(scheme) => scheme.blocks(),
            TargetConstruction::Mutant(_, blocks) => *blocks,
        }
    }

    pub fn store_len(&self) -> u64 {
        match &self.construction {
            TargetConstruction::Block(scheme) | TargetConstruction::Around(_, scheme) => {
                scheme.store_len()
            }
            TargetConstruction::Linear(scheme) => scheme.store_len(),
            TargetConstruction::Mutant(kind, n) if kind.is_sq() => {
                sq_mutants::store_len(*n, BLOCK_LEN)
            }
            TargetConstruction::Mutant(kind, blocks) if kind.is_random() => {
                random_mutants::layout(*blocks, BLOCK_LEN).len()
            }
            TargetConstruction::Mutant(_, blocks) => mutants::store_len(*blocks, BLOCK_LEN),
        }
    }

    /// The layout of the slots that are drawn at random, if any; they begin at byte 0.
    pub fn drawn_slots(&self) -> Option<SlotLayout> {
        match &self.construction {
            TargetConstruction::Block(scheme) | TargetConstruction::Around(_, scheme) => {
                scheme.drawn_slots()
            }
            TargetConstruction::Mutant(kind, blocks) if kind.is_random() => {
                Some(random_mutants::layout(*blocks, BLOCK_LEN))
            }
            TargetConstruction::Linear(_) | TargetConstruction::Mutant(..) => None,
        }
    }

    /// The block scheme, if it is one.
    fn block_scheme(&self) -> Option<&dyn BlockScheme> {
        match &self.construction {
            TargetConstruction::Block(scheme) | TargetConstruction::Around(_, scheme) => {
                Some(&**scheme)
            }
            TargetConstruction::Linear(_) | TargetConstruction::Mutant(..) => None,
        }
    }

    /// Splits a trace, from the creation on, if the target draws what it reads:
    /// [`BlockScheme::read_trace`].
    pub fn read_trace(&self, trace: &[Event]) -> Option<Result<ReadTrace, &'static str>> {
        self.block_scheme()?.read_trace(trace)
    }

    /// Whether the target hides reads, and draws what it reads.
    pub fn draws_reads(&self) -> bool {
        self.read_trace(&[]).is_some()
    }

    /// Bytes written per byte of the user, at least.
    pub fn write_amplification(&self) -> f64 {
        match &self.construction {
            TargetConstruction::Block(scheme) | TargetConstruction::Around(_, scheme) => {
                scheme.write_amplification()
            }
            TargetConstruction::Linear(scheme) => scheme.write_amplification(),
            TargetConstruction::Mutant(kind, n) if kind.is_sq() => {
                sq_mutants::write_amplification(*n)
            }
            TargetConstruction::Mutant(..) => 2.0,
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
        match &self.construction {
            TargetConstruction::Block(scheme) | TargetConstruction::Around(_, scheme) => {
                scheme.timetable()
            }
            // It has no schedule; what is left out shows at once.
            TargetConstruction::Linear(scheme) => {
                Timetable { cycle: 64, ..Timetable::unscheduled(scheme, 32) }
            }
            TargetConstruction::Mutant(kind, n) if kind.is_sq() => {
                let (areas, warm_up) = (sq_mutants::areas(*n), sq_mutants::warm_up(*n));
                Timetable { areas, gaps: areas, warm_up, ..planted }
            }
            TargetConstruction::Mutant(..) => planted,
        }
    }

    /// Whether the target opens as a `BlockOram`, with dummy writes.
    pub fn is_for_disks(&self) -> bool {
        matches!(self.construction, TargetConstruction::Block(_) | TargetConstruction::Around(..))
    }

    pub fn can_reopen(&self) -> bool {
        self.scheme().is_some()
    }

    pub fn create(&self, context: SchemeContext) -> Result<Open> {
        Ok(match &self.construction {
            TargetConstruction::Block(scheme) => Open::Disk(scheme.create_block(context)?),
            TargetConstruction::Around(kind, scheme) => kind.around(scheme.create_block(context)?),
            TargetConstruction::Linear(scheme) => Open::Other(scheme.create(context)?),
            TargetConstruction::Mutant(kind, n) => planted(*kind, *n, context),
        })
    }

    /// Opens a scheme from `state`, the last state in its vault. Mutants are never opened again.
    pub fn open(&self, context: SchemeContext, state: &[u8]) -> Result<Open> {
        Ok(match &self.construction {
            TargetConstruction::Block(scheme) => {
                Open::Disk(scheme.open_block(context, state, &mut |_, _| {})?)
            }
            TargetConstruction::Around(kind, scheme) => {
                kind.around(scheme.open_block(context, state, &mut |_, _| {})?)
            }
            TargetConstruction::Linear(scheme) => {
                Open::Other(scheme.open(context, state, &mut |_, _| {})?)
            }
            TargetConstruction::Mutant(..) => unreachable!("mutants are made only"),
        })
    }
}

/// Makes the mutant `kind` with `n` blocks.
fn planted(kind: MutantKind, n: u64, context: SchemeContext) -> Open {
    match kind {
        MutantKind::Sound => mutant::<SoundDetWo>(n, &context),
        MutantKind::SkipsClean => mutant::<SkipsCleanRefreshes>(n, &context),
        MutantKind::LiteralWrap => mutant::<LiteralWrap>(n, &context),
        MutantKind::Coalesces => mutant::<CoalescesDuplicates>(n, &context),
        MutantKind::SoundSq => sq_mutant::<SoundSq>(n, &context),
        MutantKind::KeepsOlder => sq_mutant::<KeepsOlder>(n, &context),
        MutantKind::SkipsFakes => sq_mutant::<SkipsFakes>(n, &context),
        MutantKind::SoundRandom => random_mutant::<SoundRandom>(n, context),
        MutantKind::OwnSlot => random_mutant::<OwnSlot>(n, context),
        MutantKind::PrefersFree => random_mutant::<PrefersFree>(n, context),
        _ => unreachable!("it is made from a whole scheme"),
    }
}

fn mutant<F: DetWoFault + 'static>(blocks: u64, context: &SchemeContext) -> Open {
    Open::Other(Box::new(Mutant::<F>::create(blocks, BLOCK_LEN, context)))
}

fn sq_mutant<F: SqFault + 'static>(blocks: u64, context: &SchemeContext) -> Open {
    Open::Other(Box::new(SqMutant::<F>::create(blocks, BLOCK_LEN, context)))
}

fn random_mutant<C: random_mutants::Choice + 'static>(blocks: u64, context: SchemeContext) -> Open {
    Open::Other(Box::new(RandomMutant::<C>::create(blocks, BLOCK_LEN, context)))
}
