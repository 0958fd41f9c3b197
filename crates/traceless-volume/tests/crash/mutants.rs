//! Schemes with a fault in them, to be put in a subject's place.

use traceless::Result;
use traceless::build::SchemeConfig;
use traceless::error::Place;
use traceless::oram::{BlockOram, Hides, Oram};
use traceless::scheme::Parts;
use traceless::scheme::sq::{self, Sq, Ties};
use traceless::types::Addr;

/// Opens a scheme whose syncs return without doing it.
pub fn open_unsynced(
    config: &SchemeConfig,
    parts: Parts,
    state: &[u8],
) -> Result<Box<dyn BlockOram>> {
    Ok(Box::new(Unsynced(config.open_for_disk(parts, state, &mut |_, _| {})?)))
}

/// Of two copies of one block, the one from the older generation.
struct OldestWins;

impl Ties for OldestWins {
    fn rank(source: u32) -> u32 {
        source
    }
}

/// Makes a `Sq` that keeps the older of two copies.
pub fn create_keeping_older(config: &SchemeConfig, parts: Parts) -> Result<Box<dyn BlockOram>> {
    Ok(Box::new(Sq::<OldestWins>::create(geometry_of(config), parts)?))
}

/// Opens a `Sq` that keeps the older of two copies.
pub fn open_keeping_older(
    config: &SchemeConfig,
    parts: Parts,
    state: &[u8],
) -> Result<Box<dyn BlockOram>> {
    Ok(Box::new(Sq::<OldestWins>::open(geometry_of(config), parts, state, &mut |_, _| {})?))
}

fn geometry_of(config: &SchemeConfig) -> sq::SqGeometry {
    match config {
        SchemeConfig::Sq(geometry) => *geometry,
        other => panic!("{} merges nothing", other.name()),
    }
}

struct Unsynced(Box<dyn BlockOram>);

#[deny(clippy::missing_trait_methods)]
impl Oram for Unsynced {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }
    fn block_len(&self) -> usize {
        self.0.block_len()
    }
    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.0.read_many(addrs, into)
    }
    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        self.0.write_many(addrs, from)
    }
    fn sync(&mut self) -> Result {
        Ok(())
    }
    fn hides(&self) -> Hides {
        self.0.hides()
    }
    fn close(&mut self) -> Result {
        self.0.close()
    }
    fn read(&mut self, addr: Addr, into: &mut [u8]) -> Result {
        self.0.read(addr, into)
    }
    fn write(&mut self, addr: Addr, from: &[u8]) -> Result {
        self.0.write(addr, from)
    }
    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        self.0.update(addr, change)
    }
    fn update_many(&mut self, addrs: &[Addr], change: &mut dyn FnMut(usize, &mut [u8])) -> Result {
        self.0.update_many(addrs, change)
    }
}

#[deny(clippy::missing_trait_methods)]
impl BlockOram for Unsynced {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.0.read_shared(addrs, into)
    }
    fn write_out(&mut self) -> Result {
        self.0.write_out()
    }
    fn sync_shared(&self) -> Result {
        Ok(())
    }
    fn writes(&self) -> u64 {
        self.0.writes()
    }
    fn write_dummy(&mut self) -> Result {
        self.0.write_dummy()
    }
    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        self.0.verify(progress, damaged)
    }
}
