//! Hidden volumes beside a public one, their client, and what their blocks may hold after a crash.

use crate::fills::{contents, mix};
use std::ops::Range;
use std::sync::Arc;
use traceless_block::deniable::{DeniableGeometry, HiddenKey, HiddenLane};
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::contract::Scheme;
use traceless_core::seal::{Salt, Secret};
use traceless_core::suite::UnsaltedRng;
use traceless_core::types::Addr;
use traceless_volume::format::AREAS_AT;

/// Public writes until the hidden volumes are there: of a close, and some for each volume.
pub const FIRST_WRITES: u64 = CLOSE_WRITES as u64 + 40;

/// Dummy writes of a close, by docs/format.md.
pub const CLOSE_WRITES: usize = 64;

/// Blocks of all hidden volumes together: so many that some are written seldom and must move.
const BLOCKS: u64 = 480;

/// The hidden volumes that two compared workloads use.
#[derive(Clone, Copy)]
pub struct HiddenUse {
    pub geometry: DeniableGeometry,
    /// Volumes of the workload with an even salt, and of the other one.
    pub used: [usize; 2],
}

impl HiddenUse {
    /// The bytes of the lane in the image.
    pub fn lane(&self) -> Range<u64> {
        let areas = self.geometry.areas();
        let (_, first, len) = areas.last().expect("the lane is the last area");
        AREAS_AT + first..AREAS_AT + first + len
    }
}

/// The keys of `count` volumes.
pub fn keys(count: usize) -> Vec<HiddenKey> {
    let secret = |number| Secret::from_bytes([100 + number as u8; 32]);
    let blocks = BLOCKS / count.max(1) as u64;
    (0..count).map(|number| HiddenKey { secret: secret(number), blocks }).collect()
}

/// Adds `count` volumes to an open lane.
pub fn add(lane: &HiddenLane, count: usize, block_len: usize) {
    for (number, key) in keys(count).iter().enumerate() {
        let mut record = vec![0; block_len];
        contents(record_fill(number), &mut record);
        lane.add(&key.secret, key.blocks, &record).expect("there is room");
    }
}

fn record_fill(volume: usize) -> u64 {
    mix(volume as u64) | 1
}

/// For each block of the hidden volumes, one volume after the other, the fills that it may hold,
/// the newest last.
#[derive(Clone)]
pub struct HiddenBlocks(Vec<Arc<[u64]>>);

impl HiddenBlocks {
    /// From now on each block holds what was written last.
    pub fn settle(&mut self) {
        for fills in &mut self.0 {
            *fills = fills.last().copied().into_iter().collect();
        }
    }

    fn add(&mut self, block: u64, fill: u64) {
        let fills = &mut self.0[block as usize];
        *fills = fills.iter().copied().chain([fill]).collect();
    }
}

/// The client of the hidden volumes of one workload.
pub struct HiddenClient {
    pub count: usize,
    pub allowed: HiddenBlocks,
    rng: SeededRng,
}

impl HiddenClient {
    pub fn new(count: usize, salt: u64) -> Self {
        let blocks = if count > 0 { BLOCKS as usize } else { 0 };
        let allowed = HiddenBlocks(vec![[0].into(); blocks]);
        Self { count, allowed, rng: SeededRng::new(mix(salt)) }
    }

    /// The volume and the address of a block.
    fn place(&self, block: u64) -> (usize, Addr) {
        let blocks = BLOCKS / self.count as u64;
        ((block / blocks) as usize, Addr(block % blocks))
    }

    /// Writes some blocks beside `n` public writes: fewer than these, so that most have slots soon.
    /// Returns their number.
    pub fn write(
        &mut self,
        lane: &HiddenLane,
        n: u64,
        block_len: usize,
    ) -> traceless_core::Result<u64> {
        if self.count == 0 {
            return Ok(0);
        }
        let (mut plain, mut written) = (vec![0; block_len], 0);
        for _ in 0..n {
            if self.rng.below(2) == 0 {
                continue;
            }
            let (block, fill) = (self.rng.below(BLOCKS), self.rng.next_u64() | 1);
            contents(fill, &mut plain);
            self.allowed.add(block, fill);
            let (volume, addr) = self.place(block);
            lane.volume(volume).expect("it is open").write(&[addr], &plain)?;
            written += 1;
        }
        Ok(written)
    }

    /// Checks every block and every record. What a block holds it must hold from then on.
    pub fn check(&mut self, lane: &HiddenLane, block_len: usize) -> Result<(), String> {
        let (mut want, mut plain) = (vec![0; block_len], vec![0; block_len]);
        for number in 0..self.count {
            let record = lane.record(number).map_err(|e| format!("record {number}: {e}"))?;
            contents(record_fill(number), &mut want);
            if record != want {
                return Err(format!("hidden volume {number} has lost its record"));
            }
        }
        for block in 0..self.allowed.0.len() {
            let (volume, addr) = self.place(block as u64);
            let what = |what: &str| format!("hidden volume {volume}, block {}: {what}", addr.0);
            let open = lane.volume(volume).ok_or_else(|| what("it is not open"))?;
            open.read(&[addr], &mut plain).map_err(|e| what(&e.to_string()))?;
            let fills = &mut self.allowed.0[block];
            let found = fills.iter().copied().find(|&fill| {
                contents(fill, &mut want);
                want == plain
            });
            let fill =
                found.ok_or_else(|| what(&format!("it holds none of {} contents", fills.len())))?;
            *fills = [fill].into();
        }
        Ok(())
    }
}

/// Random numbers with salts of zero for what draws here, and drawn ones for what forks.
pub struct SaltedForks(pub UnsaltedRng);

impl Rng for SaltedForks {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }

    fn salt(&mut self) -> Salt {
        self.0.salt()
    }

    fn fork(&mut self) -> Box<dyn Rng> {
        Box::new(SeededRng::drawn(&mut self.0.0))
    }
}
