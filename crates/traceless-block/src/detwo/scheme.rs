//! `DetWoORAM` as a kind of block scheme.

use super::{DetWo, DetWoGeometry, MapEntries, Refresh};
use crate::tiers;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::{BlockOram, Hides, Oram};
use traceless_core::scheme::contract::{
    BlockScheme, Samples, Scheme, SchemeKind, SchemeOptions, SharedScheme, Timetable, u32_at,
    u64_at,
};
use traceless_core::scheme::{Facts, PlacedArea, SchemeContext};
use traceless_core::store::SlotLayout;

/// Deterministic write-only ORAM.
pub static DETWO: SchemeKind = SchemeKind {
    name: "detwo",
    about: "Deterministic write-only ORAM",
    code: 2,
    options: &["refresh", "map-entries"],
    choose,
    decode,
    samples,
};

/// Numbers of the map's entries in a volume's header.
const COUNTS: u32 = 0;
const POINTERS: u32 = 1;

impl Scheme for DetWoGeometry {
    fn name(&self) -> &'static str {
        DETWO.name
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn store_len(&self) -> u64 {
        self.store_len()
    }

    fn areas(&self) -> Vec<PlacedArea> {
        self.areas()
    }

    fn write_amplification(&self) -> f64 {
        self.write_amplification()
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn check(&self) -> Result {
        self.check()
    }

    fn create(&self, context: SchemeContext) -> Result<Box<dyn Oram>> {
        Ok(self.create_block(context)?)
    }

    fn open(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Oram>> {
        Ok(self.open_block(context, state, progress)?)
    }
}

impl BlockScheme for DetWoGeometry {
    fn kind(&self) -> &'static SchemeKind {
        &DETWO
    }

    fn parameters(&self) -> Vec<u8> {
        let entries = match self.map_entries {
            MapEntries::Counts => COUNTS,
            MapEntries::Pointers => POINTERS,
        };
        let mut out = Vec::new();
        out.extend(self.refresh.p().to_le_bytes());
        out.extend(self.refresh.q().to_le_bytes());
        out.extend(u32::from(self.map_tiers).to_le_bytes());
        out.extend(self.unsynced_max.to_le_bytes());
        out.extend(entries.to_le_bytes());
        if self.discards {
            out.extend(u32::from(self.discards).to_le_bytes());
        }
        out
    }

    fn facts(&self, _writes: u64) -> Facts {
        Facts {
            refresh: Some(self.refresh.to_string()),
            map: Some(if self.map_tiers == 0 { "memory" } else { "disk" }),
            map_entries: Some(self.map_entries.name()),
            map_bytes: self.map_memory() + self.discard_memory(),
            ..Facts::default()
        }
    }

    fn timetable(&self) -> Timetable {
        let tiers = u64::from(self.map_tiers);
        let slots = self.store_len() / self.block_len as u64;
        Timetable {
            areas: 2 * (1 + tiers),
            gaps: 2 * tiers,
            warm_up: 0,
            cycle: self.refresh.writes_for(self.stored_blocks()),
            whole_cycle: slots.max(self.refresh.writes_for(slots)),
            unsynced_max: self.unsynced_max,
        }
    }

    fn slots_in_turn(&self) -> Vec<(u64, SlotLayout)> {
        let layouts = self.tiers().into_iter().flat_map(|tier| [tier.hold, tier.main]);
        self.areas().into_iter().map(|(_, at, _)| at).zip(layouts).collect()
    }

    fn keeps_discards(&self) -> bool {
        self.discards
    }

    fn discard_writes(&self, blocks: Range<u64>) -> u64 {
        if blocks.is_empty() {
            return 0;
        }
        if !self.discards {
            return blocks.end - blocks.start;
        }
        let covers = self.discard_covers();
        blocks.end.div_ceil(covers) - blocks.start / covers
    }

    fn resized(&self, blocks: u64) -> Result<SharedScheme> {
        Ok(Arc::new(self.resized(blocks)?))
    }

    fn create_block(&self, context: SchemeContext) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(DetWo::create(*self, context)?))
    }

    fn open_block(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(DetWo::open(*self, context, state, progress)?))
    }

    fn salvage(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Box<dyn BlockOram>, Vec<Place>)> {
        let (opened, lost) = DetWo::salvage(*self, context, state, progress)?;
        Ok((Box::new(opened), lost))
    }

    fn peek_state(&self, state: &[u8]) -> Result<(u64, bool)> {
        DetWo::peek_state(state)
    }
}

fn choose(blocks: u64, block_len: usize, options: &SchemeOptions) -> Result<SharedScheme> {
    let refresh = match options.refresh {
        Some((p, q)) => Refresh::new(p, q)?,
        None => Refresh::ONE,
    };
    let fitting = DetWoGeometry::map_tiers_for(blocks, options.map_memory);
    let entries = match options.pointers {
        Some(true) => MapEntries::Pointers,
        Some(false) | None => MapEntries::Counts,
    };
    let tiers = tiers::placed(options.map, fitting);
    let geometry = DetWoGeometry::new(blocks, block_len, refresh, tiers)?;
    let geometry = geometry.with_map_entries(entries)?;
    // Pointers have no discard map, nor have many short blocks at a high refresh ratio.
    // With the map on the store a damaged block of it would take the discard map with it.
    let with_discards = (tiers == 0).then(|| geometry.with_discards().ok()).flatten();
    Ok(Arc::new(with_discards.unwrap_or(geometry)))
}

fn decode(blocks: u64, block_len: usize, parameters: &[u8]) -> Result<SharedScheme> {
    let geometry = DetWoGeometry {
        blocks,
        block_len,
        refresh: Refresh::new(u32_at(parameters, 0), u32_at(parameters, 4))?,
        map_tiers: tiers::decode(u32_at(parameters, 8))?,
        unsynced_max: u64_at(parameters, 12),
        map_entries: match u32_at(parameters, 20) {
            COUNTS => MapEntries::Counts,
            POINTERS => MapEntries::Pointers,
            _ => return Err(Error::Geometry("entries of the map of another kind")),
        },
        discards: match u32_at(parameters, 24) {
            0 => false,
            1 => true,
            _ => return Err(Error::Geometry("a discard map of another kind")),
        },
    };
    geometry.check()?;
    Ok(Arc::new(geometry))
}

/// Every refresh ratio, the map on the store in both kinds, and a discard map.
fn samples(blocks: u64, map_blocks: u64, block_len: usize) -> Result<Samples> {
    let geometry = |blocks, (p, q): (u32, u32), tiers| {
        DetWoGeometry::new(blocks, block_len, Refresh::new(p, q)?, tiers)
    };
    let sample = |name, blocks, ratio, tiers, entries| {
        let scheme: SharedScheme =
            Arc::new(geometry(blocks, ratio, tiers)?.with_map_entries(entries)?);
        Ok((name, scheme))
    };
    let discards = |name, blocks, ratio, tiers| {
        let scheme: SharedScheme = Arc::new(geometry(blocks, ratio, tiers)?.with_discards()?);
        Ok((name, scheme))
    };
    [
        sample("K = 1", blocks, (1, 1), 0, MapEntries::Counts),
        sample("K = 3", blocks, (3, 1), 0, MapEntries::Counts),
        sample("K = 1/3", blocks, (1, 3), 0, MapEntries::Counts),
        sample("K = 1, map on the store", map_blocks, (1, 1), 1, MapEntries::Counts),
        sample("K = 1, pointers on the store", map_blocks, (1, 1), 1, MapEntries::Pointers),
        discards("K = 1, discards", blocks, (1, 1), 0),
        discards("K = 1, discards, map on the store", map_blocks, (1, 1), 1),
    ]
    .into_iter()
    .collect()
}
