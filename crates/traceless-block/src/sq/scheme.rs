//! `SqORAM` as a kind of block scheme.

use super::{Cadence, MapPlace, Sq, SqGeometry, SqPreferences};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::{BlockOram, Hides, Oram};
use traceless_core::scheme::contract::{
    BlockScheme, Samples, Scheme, SchemeKind, SchemeOptions, SharedScheme, Timetable, u32_at,
    u64_at,
};
use traceless_core::scheme::{Facts, PlacedArea, SchemeContext};
use traceless_core::store::SlotLayout;

/// Write-only ORAM that keeps logical neighbours together.
pub static SQ: SchemeKind = SchemeKind {
    name: "sq",
    about: "SqORAM: write-only ORAM that keeps neighbours together",
    code: 3,
    options: &["refresh", "fanout", "bucket", "cadence", "amortized"],
    choose,
    decode,
    samples,
};

impl Scheme for SqGeometry {
    fn name(&self) -> &'static str {
        SQ.name
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
        match self.cadence {
            Cadence::Strict => Hides::WritesOnly,
            Cadence::Paper => Hides::Nothing,
        }
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

impl BlockScheme for SqGeometry {
    fn kind(&self) -> &'static SchemeKind {
        &SQ
    }

    fn parameters(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.bucket.to_le_bytes());
        out.extend(self.fanout.to_le_bytes());
        out.push(self.levels);
        out.push(u8::from(self.map == MapPlace::Disk));
        out.push(u8::from(self.cadence == Cadence::Paper));
        out.push(u8::from(self.amortized));
        out.extend(self.unsynced_max.to_le_bytes());
        out
    }

    fn writes_reveal(&self) -> &'static str {
        match self.cadence {
            Cadence::Strict => "nothing",
            Cadence::Paper => "nearness",
        }
    }

    fn facts(&self, writes: u64) -> Facts {
        self.facts(writes)
    }

    fn timetable(&self) -> Timetable {
        Timetable {
            areas: u64::from(self.levels) + 1,
            gaps: 0,
            warm_up: self.warm_up(),
            cycle: self.cycle(),
            whole_cycle: self.whole_cycle(),
            unsynced_max: self.unsynced_max,
        }
    }

    fn has_dead_runs(&self) -> bool {
        true
    }

    fn slots_in_turn(&self) -> Vec<(u64, SlotLayout)> {
        let rings = (0..self.levels.into()).map(|level| self.ring(level));
        self.areas().into_iter().map(|(_, at, _)| at).zip(rings.chain([self.main()])).collect()
    }

    fn resized(&self, blocks: u64) -> Result<SharedScheme> {
        Ok(Arc::new(self.resized(blocks)?))
    }

    fn create_block(&self, context: SchemeContext) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(Sq::create(*self, context)?))
    }

    fn open_block(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(Sq::open(*self, context, state, progress)?))
    }

    fn salvage(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Box<dyn BlockOram>, Vec<Place>)> {
        let (opened, lost) = Sq::salvage(*self, context, state, progress)?;
        Ok((Box::new(opened), lost))
    }

    fn peek_state(&self, state: &[u8]) -> Result<(u64, bool)> {
        Sq::peek_state(self, state)
    }
}

fn choose(blocks: u64, block_len: usize, options: &SchemeOptions) -> Result<SharedScheme> {
    let preferences = |map_on_disk| SqPreferences {
        bucket: options.bucket,
        fanout: options.fanout,
        refresh: options.refresh.map(|(p, q)| f64::from(p) / f64::from(q)),
        map_on_disk,
    };
    let shape = |on_disk| SqGeometry::new(blocks, block_len, preferences(on_disk));
    let cadence = match options.paper_cadence {
        Some(true) => Cadence::Paper,
        Some(false) | None => Cadence::Strict,
    };
    let on_disk = cadence == Cadence::Paper
        || match options.map {
            None => shape(false)?.map_memory() > options.map_memory,
            Some(place) => place == MapPlace::Disk,
        };
    let amortized = options.amortized.unwrap_or(false);
    let geometry = SqGeometry { cadence, amortized, ..shape(on_disk)? };
    geometry.check()?;
    Ok(Arc::new(geometry))
}

fn decode(blocks: u64, block_len: usize, parameters: &[u8]) -> Result<SharedScheme> {
    let flag = |at: usize| match parameters[at] {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::Geometry("a flag is neither 0 nor 1")),
    };
    let geometry = SqGeometry {
        blocks,
        block_len,
        bucket: u32_at(parameters, 0),
        fanout: u32_at(parameters, 4),
        levels: parameters[8],
        map: if flag(9)? { MapPlace::Disk } else { MapPlace::Memory },
        cadence: if flag(10)? { Cadence::Paper } else { Cadence::Strict },
        amortized: flag(11)?,
        unsynced_max: u64_at(parameters, 12),
    };
    geometry.check()?;
    Ok(Arc::new(geometry))
}

/// The shape that a volume gets, the paper's, a wide one, and one with its maps on the store.
fn samples(blocks: u64, map_blocks: u64, block_len: usize) -> Result<Samples> {
    let sample = |name, geometry: Result<SqGeometry>| {
        let scheme: SharedScheme = Arc::new(geometry?);
        Ok((name, scheme))
    };
    let on_disk = SqPreferences { map_on_disk: true, ..SqPreferences::default() };
    // With as many levels, more blocks need larger buckets.
    let bucket = (blocks / 1024).clamp(1, 32) as u32 * 2;
    [
        sample("chosen shape", SqGeometry::new(blocks, block_len, SqPreferences::default())),
        sample("k = 2", SqGeometry::with_shape(blocks, block_len, bucket, 2, 4)),
        sample("k = 4", SqGeometry::with_shape(blocks, block_len, bucket, 4, 2)),
        sample("maps on the store", SqGeometry::new(map_blocks.max(64), block_len, on_disk)),
    ]
    .into_iter()
    .collect()
}
