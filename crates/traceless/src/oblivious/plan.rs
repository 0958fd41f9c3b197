//! What one eviction moves where: Circuit ORAM's two scans over headers.
//!
//! Levels and lanes are public; addresses, labels and all that follows from them are secret, and
//! become masks.

use super::tree::SLOTS;
use super::{LANES, STASH_MAX};
use traceless_sys::ct::{Mask, hide_all};

/// Addresses and labels of up to 32 slots: those of the stash, or one slot of each level of a path.
/// Address 0 is that of an empty slot.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Headers {
    /// Addresses, counted from one.
    pub addrs: [u32; LANES],
    /// Labels.
    pub leaves: [u32; LANES],
}

impl Headers {
    /// Only empty slots.
    pub const EMPTY: Self = Self { addrs: [0; LANES], leaves: [0; LANES] };

    /// Ones where `addr` is.
    #[inline(always)]
    pub fn find(&self, addr: u32) -> Lanes {
        Lanes::made(|lane| ones_if(self.addrs[lane] == addr))
    }

    /// Empties the slots where `which` has ones.
    #[inline(always)]
    pub fn clear(&mut self, which: &Lanes) {
        for (addr, mask) in self.addrs.iter_mut().zip(&which.0) {
            *addr &= !(*mask as u32);
        }
    }

    /// Ones at the first of the first `limit` slots that is empty, if there is one.
    #[inline(always)]
    pub fn first_empty(&self, limit: usize) -> (Mask, Lanes) {
        let mut ranks = [0_u32; LANES];
        for (lane, rank) in ranks.iter_mut().enumerate() {
            let usable = ones_if(lane < limit) as u32;
            *rank = (LANES - lane) as u32 & ones_if(self.addrs[lane] == 0) as u32 & usable;
        }
        let best = highest(&ranks);
        (Mask::nonzero(best), Lanes::made(|lane| ones_if(ranks[lane] == best) & ones_if(best != 0)))
    }

    /// How far down the path to `leaf` each block may go: levels, or 0 for an empty slot.
    #[inline(always)]
    fn reach(&self, leaf: u32, levels: u32) -> [u32; LANES] {
        // Labels that agree in all bits part nowhere; the leaf is as far as it goes.
        let end = 1_u32 << (levels - 1);
        let mut reach = [0; LANES];
        for (lane, reach) in reach.iter_mut().enumerate() {
            let part = ((self.leaves[lane] ^ leaf) | end).trailing_zeros();
            *reach = part.wrapping_add(1) & ones_if(self.addrs[lane] != 0) as u32;
        }
        reach
    }
}

/// A mask for each of 32 slots, hidden from the optimiser.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Lanes(pub [u64; LANES]);

impl Lanes {
    #[inline(always)]
    fn made(mask: impl Fn(usize) -> u64) -> Self {
        let mut lanes = [0; LANES];
        for (lane, out) in lanes.iter_mut().enumerate() {
            *out = mask(lane);
        }
        hide_all(&mut lanes);
        Self(lanes)
    }
}

/// One eviction along a path. A block taken from the stash or from a bucket is held, and dropped
/// at a lower bucket, where it may change places with the next that is taken.
pub struct Plan {
    /// The block of the stash that is taken, if one is.
    pub stash: Lanes,
    /// The slots of each level that change places with what is held.
    pub slots: [Lanes; SLOTS],
}

/// Nobody in particular: where a block comes from is `NOWHERE`, `STASH`, or `BUCKETS` + level.
const NOWHERE: u32 = 0;
const STASH: u32 = 1;
const BUCKETS: u32 = 2;

impl Plan {
    /// Plans an eviction along the path to `leaf`, whose headers are `slots`.
    #[inline(always)]
    pub fn new(stash: &Headers, slots: &[Headers; SLOTS], leaf: u32, levels: u32) -> Self {
        let ranks = stash_ranks(stash, leaf, levels);
        let best = highest(&ranks);
        let reach = [slots[0].reach(leaf, levels), slots[1].reach(leaf, levels)];
        let mut path = Path::new(slots, &reach);
        let sources = path.sources(best / STASH_MAX as u32, levels);
        let from_stash = path.choose(&sources, levels);
        Self {
            stash: Lanes::made(|lane| ones_if(ranks[lane] == best) & spread(from_stash.bits())),
            slots: path.swaps(slots, &reach),
        }
    }
}

/// What the scans know of each level, and what they find.
#[repr(align(64))]
struct Path {
    /// The farthest that a block of the bucket may go.
    reach: [u32; LANES],
    /// Ones where the bucket has an empty slot.
    room: [u32; LANES],
    /// Ones where a block is taken.
    takes: [u32; LANES],
    /// Ones where a block is dropped.
    drops: [u32; LANES],
}

impl Path {
    #[inline(always)]
    fn new(slots: &[Headers; SLOTS], reach: &[[u32; LANES]; SLOTS]) -> Self {
        let mut path =
            Self { reach: [0; LANES], room: [0; LANES], takes: [0; LANES], drops: [0; LANES] };
        for lane in 0..LANES {
            path.reach[lane] = reach[0][lane].max(reach[1][lane]);
            let room = ones_if(slots[0].addrs[lane] == 0) | ones_if(slots[1].addrs[lane] == 0);
            path.room[lane] = room as u32;
        }
        hide_all(&mut path.reach);
        hide_all(&mut path.room);
        path
    }

    /// From the root down: for each level the place above it whose block may go the farthest, if
    /// it may come as far as here.
    #[inline(always)]
    fn sources(&self, stash_reach: u32, levels: u32) -> [u32; LANES] {
        let mut sources = [NOWHERE; LANES];
        let (mut goal, mut source) = (stash_reach, STASH);
        for level in 0..levels {
            let reach = self.reach[level as usize];
            sources[level as usize] = Mask::below(level, goal).keep(source);
            let farther = Mask::below(goal, reach);
            goal = farther.select(reach, goal);
            source = farther.select(BUCKETS + level, source);
        }
        sources
    }

    /// From the leaf up: which of those moves are made. Says whether the stash gives a block.
    #[inline(always)]
    fn choose(&mut self, sources: &[u32; LANES], levels: u32) -> Mask {
        let mut wanted = NOWHERE;
        for level in (0..levels).rev() {
            let at = level as usize;
            let take = Mask::equal(wanted, BUCKETS + level);
            let free = !Mask::nonzero(wanted) & Mask::from_bits(self.room[at]);
            let drop = (take | free) & Mask::nonzero(sources[at]);
            wanted = drop.select(sources[at], (!take).keep(wanted));
            self.takes[at] = take.bits();
            self.drops[at] = drop.bits();
        }
        Mask::equal(wanted, STASH)
    }

    /// Which slot it is on each level: the one whose block goes the farthest where a block is
    /// taken, an empty one where a block is only dropped.
    #[inline(always)]
    fn swaps(&self, slots: &[Headers; SLOTS], reach: &[[u32; LANES]; SLOTS]) -> [Lanes; SLOTS] {
        let chosen = |lane: usize| {
            let second_goes = ones_if(reach[1][lane] > reach[0][lane]) as u32;
            let second_is_empty = ones_if(slots[0].addrs[lane] != 0) as u32;
            let take = self.takes[lane];
            (take & second_goes) | (!take & second_is_empty)
        };
        let moved = |lane: usize| self.takes[lane] | self.drops[lane];
        [
            Lanes::made(|lane| spread(moved(lane) & !chosen(lane))),
            Lanes::made(|lane| spread(moved(lane) & chosen(lane))),
        ]
    }
}

/// The reach of each block of the stash, made different from all others by its place.
#[inline(always)]
fn stash_ranks(stash: &Headers, leaf: u32, levels: u32) -> [u32; LANES] {
    let mut ranks = stash.reach(leaf, levels);
    for (lane, rank) in ranks.iter_mut().enumerate() {
        let place = (STASH_MAX - 1 - lane) as u32;
        *rank = (rank.wrapping_mul(STASH_MAX as u32) | place) & ones_if(*rank != 0) as u32;
    }
    ranks
}

#[inline(always)]
fn highest(ranks: &[u32; LANES]) -> u32 {
    let mut best = 0;
    for &rank in ranks {
        best = rank.max(best);
    }
    best
}

/// Ones or zeros. Only for many lanes at once, which are hidden before they are used.
#[inline(always)]
fn ones_if(condition: bool) -> u64 {
    u64::from(condition).wrapping_neg()
}

/// 32 ones or zeros as 64.
#[inline(always)]
fn spread(mask: u32) -> u64 {
    i64::from(mask.cast_signed()).cast_unsigned()
}
