//! What is audited: a scheme in one geometry, or a mutant.

use super::mutants::{
    self, CoalescesDuplicates, DetWoFault, LiteralWrap, Mutant, SkipsCleanRefreshes, SoundDetWo,
};
use super::random_mutants::{self, OwnSlot, PrefersFree, RandomMutant, SoundRandom};
use super::sq_mutants::{self, KeepsOlder, SkipsFakes, SoundSq, SqFault, SqMutant};
use traceless::build::SchemeConfig;
use traceless::oram::Oram;
use traceless::scheme::Parts;
use traceless::scheme::detwo::{DetWoGeometry, MapEntries, Refresh};
use traceless::scheme::{random, sq};
use traceless::store::SlotLayout;
use traceless::{BlockOram, Hides, Result};

/// Bytes of a block: those of a volume.
pub const BLOCK_LEN: usize = 4096;

/// What `--scheme` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditSubject {
    Detwo,
    Sq,
    /// Sq in the paper's cadence, which leaks.
    SqPaper,
    Linear,
    Plain,
    Hive,
    DataLair,
    Mutant(MutantKind),
}

/// The mutants, and the scheme that they are made of.
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
pub const HONEST: [(AuditSubject, &str); 5] = [
    (AuditSubject::Detwo, "detwo"),
    (AuditSubject::Sq, "sq"),
    (AuditSubject::Linear, "linear"),
    (AuditSubject::Hive, "hive"),
    (AuditSubject::DataLair, "datalair"),
];

impl MutantKind {
    /// Whether it is made of levels, and not of a refresh schedule.
    fn is_sq(self) -> bool {
        matches!(self, Self::SoundSq | Self::KeepsOlder | Self::SkipsFakes)
    }

    /// Whether it is made of random slots, and not of a refresh schedule.
    fn is_random(self) -> bool {
        matches!(self, Self::SoundRandom | Self::OwnSlot | Self::PrefersFree)
    }
}

impl AuditSubject {
    /// The one that the command line calls `name`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "detwo" => Self::Detwo,
            "sq" => Self::Sq,
            "sq:paper-cadence" => Self::SqPaper,
            "linear" => Self::Linear,
            "plain" => Self::Plain,
            "hive" => Self::Hive,
            "datalair" => Self::DataLair,
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
            _ => return None,
        })
    }

    /// What its claim covers.
    pub fn hides(self) -> Hides {
        match self {
            Self::Detwo
            | Self::Sq
            | Self::SqPaper
            | Self::Hive
            | Self::DataLair
            | Self::Mutant(_) => Hides::WritesOnly,
            Self::Linear => Hides::ReadsAndWrites,
            Self::Plain => Hides::Nothing,
        }
    }

    /// Whether the places that it writes are drawn at random.
    pub fn draws_places(self) -> bool {
        match self {
            Self::Hive | Self::DataLair => true,
            Self::Mutant(kind) => kind.is_random(),
            _ => false,
        }
    }

    /// The geometries to run, of about `blocks` blocks: of every refresh ratio, and with the map on
    /// the store, which needs `map_blocks`.
    pub fn targets(self, blocks: u64, map_blocks: u64) -> Result<Vec<AuditTarget>> {
        let detwo = |name, blocks, refresh: (u32, u32), map_tiers| {
            let refresh = Refresh::new(refresh.0, refresh.1)?;
            let geometry = DetWoGeometry::new(blocks, BLOCK_LEN, refresh, map_tiers)?;
            Ok(AuditTarget { name, made: NewTarget::Scheme(SchemeConfig::DetWo(geometry)) })
        };
        let pointers = |name, blocks, map_tiers| {
            let geometry = DetWoGeometry::new(blocks, BLOCK_LEN, Refresh::ONE, map_tiers)?
                .with_map_entries(MapEntries::Pointers)?;
            Ok(AuditTarget { name, made: NewTarget::Scheme(SchemeConfig::DetWo(geometry)) })
        };
        let random = |of: fn(random::RandomGeometry) -> SchemeConfig| {
            let target = |name, blocks, map_tiers| {
                let geometry = random::RandomGeometry::new(blocks, BLOCK_LEN, map_tiers)?;
                Ok(AuditTarget { name, made: NewTarget::Scheme(of(geometry)) })
            };
            let targets =
                [target("map in memory", blocks, 0), target("map on the store", map_blocks, 1)];
            targets.into_iter().collect()
        };
        let one = |name, made| Ok(vec![AuditTarget { name, made }]);
        let block_len = BLOCK_LEN;
        match self {
            Self::Detwo => [
                detwo("K = 1", blocks, (1, 1), 0),
                detwo("K = 3", blocks, (3, 1), 0),
                detwo("K = 1/3", blocks, (1, 3), 0),
                detwo("K = 1, map on the store", map_blocks, (1, 1), 1),
                pointers("K = 1, pointers on the store", map_blocks, 1),
            ]
            .into_iter()
            .collect(),
            Self::Sq => sq_targets(blocks, map_blocks),
            Self::SqPaper => {
                let wishes = sq::Wishes { map_on_disk: true, ..sq::Wishes::default() };
                let geometry = sq::SqGeometry::new(map_blocks.max(4096), BLOCK_LEN, wishes)?;
                let geometry = sq::SqGeometry { cadence: sq::Cadence::Paper, ..geometry };
                geometry.check()?;
                one("shared map blocks", NewTarget::Scheme(SchemeConfig::Sq(geometry)))
            }
            Self::Plain => {
                one("in place", NewTarget::Scheme(SchemeConfig::Plain { blocks, block_len }))
            }
            // Each access moves all blocks.
            Self::Linear => {
                one("16 blocks", NewTarget::Scheme(SchemeConfig::Linear { blocks: 16, block_len }))
            }
            Self::Mutant(kind) if kind.is_sq() => one("k = 2", NewTarget::Mutant(kind, blocks)),
            Self::Hive => random(SchemeConfig::Hive),
            Self::DataLair => random(SchemeConfig::DataLair),
            Self::Mutant(kind) if kind.is_random() => one("k = 3", NewTarget::Mutant(kind, blocks)),
            Self::Mutant(kind) => one("K = 1", NewTarget::Mutant(kind, blocks)),
        }
    }
}

/// The shape that a volume would get, the paper's, a wide one, and one with its maps on the store.
fn sq_targets(blocks: u64, map_blocks: u64) -> Result<Vec<AuditTarget>> {
    let target = |name, geometry: Result<sq::SqGeometry>| {
        Ok(AuditTarget { name, made: NewTarget::Scheme(SchemeConfig::Sq(geometry?)) })
    };
    let on_disk = sq::Wishes { map_on_disk: true, ..sq::Wishes::default() };
    // With as many levels, more blocks need larger buckets.
    let bucket = (blocks / 1024).clamp(1, 32) as u32 * 2;
    [
        target("chosen shape", sq::SqGeometry::new(blocks, BLOCK_LEN, sq::Wishes::default())),
        target("k = 2", sq::SqGeometry::with_shape(blocks, BLOCK_LEN, bucket, 2, 4)),
        target("k = 4", sq::SqGeometry::with_shape(blocks, BLOCK_LEN, bucket, 4, 2)),
        target("maps on the store", sq::SqGeometry::new(map_blocks.max(64), BLOCK_LEN, on_disk)),
    ]
    .into_iter()
    .collect()
}

/// One thing to run.
#[derive(Clone, Copy, Debug)]
pub struct AuditTarget {
    /// What sets it apart from the others of its subject.
    pub name: &'static str,
    made: NewTarget,
}

#[derive(Clone, Copy, Debug)]
enum NewTarget {
    Scheme(SchemeConfig),
    Mutant(MutantKind, u64),
}

/// A target that is open.
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
    pub fn blocks(&self) -> u64 {
        match &self.made {
            NewTarget::Scheme(config) => config.blocks(),
            NewTarget::Mutant(_, blocks) => *blocks,
        }
    }

    pub fn store_len(&self) -> u64 {
        match &self.made {
            NewTarget::Scheme(config) => config.store_len(),
            NewTarget::Mutant(kind, n) if kind.is_sq() => sq_mutants::store_len(*n, BLOCK_LEN),
            NewTarget::Mutant(kind, blocks) if kind.is_random() => {
                random_mutants::layout(*blocks, BLOCK_LEN).len()
            }
            NewTarget::Mutant(_, blocks) => mutants::store_len(*blocks, BLOCK_LEN),
        }
    }

    /// How the slots lie whose places are drawn at random; they begin at 0.
    pub fn drawn_slots(&self) -> Option<SlotLayout> {
        match &self.made {
            NewTarget::Scheme(SchemeConfig::Hive(g) | SchemeConfig::DataLair(g)) => Some(g.slots()),
            NewTarget::Mutant(kind, blocks) if kind.is_random() => {
                Some(random_mutants::layout(*blocks, BLOCK_LEN))
            }
            _ => None,
        }
    }

    /// Bytes written per byte that the user writes, at least.
    pub fn write_amplification(&self) -> f64 {
        match &self.made {
            NewTarget::Scheme(config) => config.write_amplification(),
            NewTarget::Mutant(kind, n) if kind.is_sq() => sq_mutants::write_amplification(*n),
            NewTarget::Mutant(..) => 2.0,
        }
    }

    /// Areas that a write touches, and those of them that may end in a gap of under 4096 bytes.
    pub fn areas(&self) -> (u64, u64) {
        match &self.made {
            NewTarget::Scheme(SchemeConfig::DetWo(g)) => {
                (2 * (1 + u64::from(g.map_tiers)), 2 * u64::from(g.map_tiers))
            }
            NewTarget::Scheme(SchemeConfig::Sq(g)) => (u64::from(g.levels) + 1, 0),
            NewTarget::Scheme(_) => (1, 0),
            NewTarget::Mutant(kind, n) if kind.is_sq() => {
                let areas = sq_mutants::areas(*n);
                (areas, areas)
            }
            NewTarget::Mutant(..) => (2, 0),
        }
    }

    /// Writes after which every holding slot was used once: the period of the schedule, about.
    pub fn cycle(&self) -> u64 {
        match &self.made {
            NewTarget::Scheme(SchemeConfig::DetWo(g)) => g.refresh.writes_for(g.blocks),
            NewTarget::Scheme(SchemeConfig::Sq(g)) => g.cycle(),
            // It has no schedule; what is left out shows at once.
            NewTarget::Scheme(SchemeConfig::Linear { .. }) => 64,
            _ => self.blocks(),
        }
    }

    /// Writes before the schedule is in full swing.
    pub fn warm_up(&self) -> u64 {
        match &self.made {
            NewTarget::Scheme(SchemeConfig::Sq(g)) => g.warm_up(),
            NewTarget::Mutant(kind, n) if kind.is_sq() => sq_mutants::warm_up(*n),
            _ => 0,
        }
    }

    /// Writes, after the warm-up, by which everything was written once for sure.
    pub fn whole_cycle(&self) -> u64 {
        let slots = self.store_len() / BLOCK_LEN as u64;
        match &self.made {
            NewTarget::Scheme(SchemeConfig::DetWo(g)) => slots.max(g.refresh.writes_for(slots)),
            NewTarget::Scheme(SchemeConfig::Sq(g)) => g.whole_cycle(),
            _ => slots,
        }
    }

    /// Blocks that may be written between two syncs.
    pub fn unsynced_max(&self) -> u64 {
        match &self.made {
            NewTarget::Scheme(SchemeConfig::DetWo(g)) => g.unsynced_max,
            NewTarget::Scheme(SchemeConfig::Sq(g)) => g.unsynced_max,
            _ => 32,
        }
    }

    /// Whether it can be opened again, and whether it knows dummy writes.
    pub fn is_for_disks(&self) -> bool {
        match &self.made {
            NewTarget::Scheme(config) => !matches!(config, SchemeConfig::Linear { .. }),
            NewTarget::Mutant(..) => false,
        }
    }

    pub fn can_reopen(&self) -> bool {
        matches!(self.made, NewTarget::Scheme(_))
    }

    pub fn create(&self, parts: Parts) -> Result<Open> {
        Ok(match &self.made {
            NewTarget::Scheme(config) if self.is_for_disks() => {
                Open::Disk(config.create_for_disk(parts)?)
            }
            NewTarget::Scheme(config) => Open::Other(config.create(parts)?),
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

    /// Opens a scheme whose vault last kept `state`. Mutants are never opened again.
    pub fn open(&self, parts: Parts, state: &[u8]) -> Result<Open> {
        let NewTarget::Scheme(config) = &self.made else { unreachable!("mutants are made only") };
        Ok(if self.is_for_disks() {
            Open::Disk(config.open_for_disk(parts, state, &mut |_, _| {})?)
        } else {
            Open::Other(config.open(parts, state, &mut |_, _| {})?)
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
    use crate::args::audit::SCHEMES;

    #[test]
    fn every_name_on_the_command_line_is_known() {
        for name in SCHEMES {
            let subject = AuditSubject::named(name).unwrap();
            assert!(!subject.targets(64, 512).unwrap().is_empty());
        }
        assert_eq!(AuditSubject::named("detwoo"), None);
    }
}
