//! Which blocks an eviction moves: Circuit ORAM's two scans over headers.
//!
//! Levels and lanes are public; addresses, labels and all values derived from them are secret, and
//! become masks.

use super::tree::SLOTS;
use super::{LANES, STASH_MAX};
use traceless_sys::ct::{Mask, hide, hide_all, raise};

/// A mask for each of 32 slots, hidden from the optimiser.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Lanes([u32; LANES]);

impl Lanes {
    #[inline(always)]
    pub fn made(mask: impl Fn(usize) -> u32) -> Self {
        let mut lanes = Self([0; LANES]);
        for (lane, out) in lanes.0.iter_mut().enumerate() {
            *out = mask(lane);
        }
        hide_all(&mut lanes.0);
        lanes
    }

    /// The lowest slot with a mask of ones, as a bit; zero if there is none.
    #[inline(always)]
    pub fn first(&self) -> u32 {
        let mut bits = 0;
        for (lane, mask) in self.0.iter().enumerate() {
            bits |= mask & (1 << lane);
        }
        let bits = hide(bits.into()) as u32;
        bits & bits.wrapping_neg()
    }

    /// The mask of one slot, to select its body.
    #[inline(always)]
    pub fn mask(&self, lane: usize) -> u32 {
        self.0[lane]
    }
}

/// Addresses and labels of up to 32 slots: of the stash, or of one slot on each level of a path.
/// Address 0 is an empty slot.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Headers {
    /// Addresses plus one.
    pub addrs: [u32; LANES],
    /// Labels.
    pub labels: [u32; LANES],
}

impl Headers {
    /// Only empty slots.
    pub const EMPTY: Self = Self { addrs: [0; LANES], labels: [0; LANES] };

    /// Empties the slot of the block `addr`, if it is here. Returns ones for that slot.
    #[inline(always)]
    pub fn take(&mut self, addr: u32) -> Lanes {
        let found = Lanes::made(|lane| ones_if(self.addrs[lane] == addr));
        self.clear(&found);
        found
    }

    /// Puts a block into the first empty one of the first `limit` slots. Returns ones for that
    /// slot.
    #[inline(always)]
    pub fn insert(&mut self, addr: u32, label: u32, limit: usize) -> Lanes {
        let ranks = self.empty_ranks(limit);
        let best = highest(&ranks);
        let place = Lanes::made(|lane| ones_if(ranks[lane] == best) & ones_if(best != 0));
        for lane in 0..LANES {
            let mask = place.0[lane];
            self.addrs[lane] |= addr & mask;
            self.labels[lane] = (label & mask) | (self.labels[lane] & !mask);
        }
        place
    }

    /// Whether one of the first `limit` slots is empty.
    #[inline(always)]
    pub fn has_room(&self, limit: usize) -> Mask {
        Mask::nonzero(highest(&self.empty_ranks(limit)))
    }

    /// Distinct numbers for the empty slots among the first `limit`, the first slot highest; zero
    /// for all other slots.
    #[inline(always)]
    fn empty_ranks(&self, limit: usize) -> [u32; LANES] {
        let used = self.used();
        let mut ranks = [0; LANES];
        for (lane, rank) in ranks.iter_mut().enumerate() {
            *rank = (LANES - lane) as u32 & !used.0[lane] & ones_if(lane < limit);
        }
        ranks
    }

    #[inline(always)]
    fn clear(&mut self, which: &Lanes) {
        for (addr, mask) in self.addrs.iter_mut().zip(&which.0) {
            *addr &= !mask;
        }
    }

    /// How far down the path to `leaf` each block may go: a number of levels, or 0 for an empty
    /// slot. `used` is the result of [`used`](Self::used).
    #[inline(always)]
    pub fn reach(&self, used: &Lanes, leaf: u32, levels: u32) -> [u32; LANES] {
        // The bit at `end` bounds the reach of labels that agree in all bits: the leaf is the last
        // level.
        let end = 1_u32.wrapping_shl(levels.wrapping_sub(1));
        let mut reach = [0; LANES];
        for (lane, reach) in reach.iter_mut().enumerate() {
            let part = ((self.labels[lane] ^ leaf) | end).trailing_zeros();
            *reach = part.wrapping_add(1) & used.0[lane];
        }
        reach
    }

    /// Returns ones for slots that are not empty.
    #[inline(always)]
    pub fn used(&self) -> Lanes {
        Lanes::made(|lane| ones_if(self.addrs[lane] != 0))
    }
}

/// One eviction along a path. A block taken from the stash or from a bucket is held, and dropped at
/// a lower bucket, where it may be exchanged for the next block.
pub struct EvictionPlan {
    /// The slot of the stash that gives a block, if one does.
    pub stash: Lanes,
    /// The slots of each level that exchange bodies with the held block.
    pub slots: [Lanes; SLOTS],
}

impl EvictionPlan {
    /// Plans an eviction along the path to `leaf`, and moves the headers. The caller moves the
    /// bodies.
    #[inline(always)]
    pub fn made(stash: &mut Headers, path: &mut [Headers; SLOTS], leaf: u32, levels: u32) -> Self {
        let ranks = stash_ranks(stash, leaf, levels);
        let best = highest(&ranks);
        let first_of_stash = Lanes::made(|lane| ones_if(ranks[lane] == best) & ones_if(best != 0));
        let scan = LevelScan::new(path, leaf, levels);
        let offers = scan.offers(best / STASH_MAX as u32, picked(stash, &first_of_stash), levels);
        let moves = scan.choose(&offers, levels);

        let from_stash = moves.from_stash;
        let stash_lanes = Lanes::made(|lane| first_of_stash.0[lane] & from_stash);
        stash.clear(&stash_lanes);
        let slots = scan.slots_of(&moves);
        for (headers, which) in path.iter_mut().zip(&slots) {
            for lane in 0..LANES {
                let (mask, drop) = (which.0[lane], moves.drops[lane]);
                let head = offers.heads[lane];
                headers.addrs[lane] = (head as u32 & drop & mask) | (headers.addrs[lane] & !mask);
                headers.labels[lane] =
                    ((head >> 32) as u32 & mask) | (headers.labels[lane] & !mask);
            }
        }
        Self { stash: stash_lanes, slots }
    }
}

/// The scans' input for each level of the path.
#[repr(align(64))]
struct LevelScan {
    /// The farthest reach of a block of the bucket.
    reach: [u32; LANES],
    /// Ones where the block with that reach is in the second slot.
    second: Lanes,
    /// Ones where a slot is not empty.
    used: [Lanes; SLOTS],
    /// The header of the block with that reach: its address, and its label in the upper half.
    heads: [u64; LANES],
}

/// For each level, the block from above that may go farthest.
#[repr(align(64))]
struct Offers {
    /// The bit of the block's place, or zero if no block may come as far. Bit 0 is the stash.
    sources: [u64; LANES],
    /// The block's header.
    heads: [u64; LANES],
}

/// Which of the offered blocks are moved.
#[repr(align(64))]
struct Moves {
    /// Ones where a bucket takes a block.
    takes: [u32; LANES],
    /// Ones where a bucket drops a block.
    drops: [u32; LANES],
    /// Ones if the stash gives a block.
    from_stash: u32,
}

impl LevelScan {
    #[inline(always)]
    fn new(path: &[Headers; SLOTS], leaf: u32, levels: u32) -> Self {
        let [first, second] = path;
        let (first_used, second_used) = (first.used(), second.used());
        let first_reach = first.reach(&first_used, leaf, levels);
        let second_reach = second.reach(&second_used, leaf, levels);
        let second_goes = Lanes::made(|lane| ones_if(second_reach[lane] > first_reach[lane]));
        let mut scan = Self {
            reach: [0; LANES],
            second: second_goes,
            used: [first_used, second_used],
            heads: [0; LANES],
        };
        for (lane, head) in scan.heads.iter_mut().enumerate() {
            let farther = second_goes.0[lane];
            let choose = |a: u32, b: u32| (b & farther) | (a & !farther);
            scan.reach[lane] = first_reach[lane].max(second_reach[lane]);
            let addr = choose(first.addrs[lane], second.addrs[lane]);
            let label = choose(first.labels[lane], second.labels[lane]);
            *head = u64::from(addr) | (u64::from(label) << 32);
        }
        scan
    }

    /// From the root down.
    #[inline(always)]
    fn offers(&self, stash_reach: u32, stash_head: u64, levels: u32) -> Offers {
        let mut offers = Offers { sources: [0; LANES], heads: [0; LANES] };
        let (mut goal, mut source, mut head) = (u64::from(stash_reach), 1, stash_head);
        for lane in 0..levels as usize {
            let comes =
                hide((lane as u64).wrapping_sub(goal).cast_signed().wrapping_shr(63) as u64);
            offers.sources[lane] = source & comes;
            offers.heads[lane] = head;
            let reach = u64::from(self.reach[lane]);
            raise(&mut goal, reach, (&mut source, 2 << lane), (&mut head, self.heads[lane]));
        }
        offers
    }

    /// From the leaf up: a bucket takes the block that it is offered if it gives a block itself, or
    /// if it has room and the offered block is not yet on its way to a lower one.
    #[inline(always)]
    fn choose(&self, offers: &Offers, levels: u32) -> Moves {
        let mut moves = Moves { takes: [0; LANES], drops: [0; LANES], from_stash: 0 };
        let mut wanted = 0_u64;
        for lane in (0..levels as usize).rev() {
            let take = hide((wanted.wrapping_shr(lane as u32 + 1) & 1).wrapping_neg());
            let free = hide(wanted.wrapping_sub(1).cast_signed().wrapping_shr(63) as u64);
            let source = offers.sources[lane]
                & (take | (free & spread(!(self.used[0].0[lane] & self.used[1].0[lane]))));
            wanted = source | (wanted & !take);
            moves.takes[lane] = take as u32;
            moves.drops[lane] = Mask::nonzero_bit(source).bits();
        }
        moves.from_stash = Mask::nonzero_bit(wanted).bits();
        hide_all(&mut moves.takes);
        hide_all(&mut moves.drops);
        moves
    }

    /// The slot that is affected on each level: where a bucket takes a block, the slot of the block
    /// that goes deepest; where it only drops one, an empty slot.
    #[inline(always)]
    fn slots_of(&self, moves: &Moves) -> [Lanes; SLOTS] {
        let second = |lane: usize| {
            let take = moves.takes[lane];
            (take & self.second.0[lane]) | (!take & self.used[0].0[lane])
        };
        let used = |lane: usize| moves.takes[lane] | moves.drops[lane];
        [
            Lanes::made(|lane| used(lane) & !second(lane)),
            Lanes::made(|lane| used(lane) & second(lane)),
        ]
    }
}

/// The reach of each block of the stash, extended by its place so that all ranks differ.
#[inline(always)]
fn stash_ranks(stash: &Headers, leaf: u32, levels: u32) -> [u32; LANES] {
    let used = stash.used();
    let mut ranks = stash.reach(&used, leaf, levels);
    for (lane, rank) in ranks.iter_mut().enumerate() {
        let place = (STASH_MAX - 1 - lane) as u32;
        *rank = rank.wrapping_mul(STASH_MAX as u32) | (place & used.0[lane]);
    }
    ranks
}

/// The header of the block that `which` selects; it selects one at most.
#[inline(always)]
fn picked(headers: &Headers, which: &Lanes) -> u64 {
    let (mut addr, mut label) = (0, 0);
    for lane in 0..LANES {
        addr |= headers.addrs[lane] & which.0[lane];
        label |= headers.labels[lane] & which.0[lane];
    }
    u64::from(addr) | u64::from(label) << 32
}

#[inline(always)]
fn highest(ranks: &[u32; LANES]) -> u32 {
    let mut best = 0;
    for &rank in ranks {
        best = rank.max(best);
    }
    best
}

/// All ones or zeros. Only for many lanes at once, which are hidden before use: if the compiler
/// recognised a mask, it could emit a load or store of some lanes only.
#[inline(always)]
pub fn ones_if(condition: bool) -> u32 {
    u32::from(condition).wrapping_neg()
}

/// Extends a mask of 32 bits to 64.
#[inline(always)]
fn spread(mask: u32) -> u64 {
    i64::from(mask.cast_signed()).cast_unsigned()
}
