//! IR-Alloc: smaller buckets on the middle levels of a tree, which hold few blocks, so that a path
//! has fewer slots.
//!
//! Paper: ir-oram, sections IV-B and VI-B.
//!
//! The paper's first allocation, in a tree of its size: a path has fewer slots outside of trusted
//! memory, and the tree lacks few slots.
//!
//! ```
//! use traceless::tree::ir_alloc::{BASE, IR_ALLOC1, LOSS_MAX, Trial, cached_levels, shape};
//!
//! # fn main() -> traceless::Result {
//! let cached = cached_levels(25);
//! // Accesses that only empty the stash, per requested access, are measured; here they are given.
//! let base = Trial::new(BASE.shape(25)?, cached, 0.0);
//! let smaller = Trial::new(IR_ALLOC1.shape(25)?, cached, 0.05);
//! assert_eq!((base.path_slots, smaller.path_slots), (60, 43));
//! assert!(smaller.loss < LOSS_MAX && smaller.gain(&base) > 1.3);
//!
//! // The same shape, level by level.
//! assert_eq!(shape("10-16:2,17-19:3", 25)?.path_slots(), smaller.shape.path_slots());
//! # Ok(())
//! # }
//! ```

use super::Shape;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};

/// Levels of the paper's tree.
pub const PAPER_LEVELS: usize = 25;

/// Levels of the paper's tree that lie in trusted memory.
pub const PAPER_CACHED: usize = 10;

/// Slots per bucket outside the ranges of a preset.
pub const PAPER_Z: u8 = 4;

/// The share of a tree's slots that an allocation may omit, at most.
pub const LOSS_MAX: f64 = 0.01;

/// Accesses that only empty the stash, per requested access: how many an allocation may cost, when
/// blocks are accessed at random.
pub const EVICTIONS_MAX: f64 = 0.15;

/// An allocation of the paper.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name of the preset.
    pub name: &'static str,
    /// First and last level of the paper's tree, and slots per bucket there.
    ranges: &'static [(usize, usize, u8)],
}

/// The same number of slots on every level, for comparison with the other presets.
pub const BASE: Preset = Preset { name: "base", ranges: &[] };

/// Two slots on levels 10 to 16, three on 17 to 19: also used by the combined IR-ORAM.
pub const IR_ALLOC1: Preset = Preset { name: "ir-alloc1", ranges: &[(10, 16, 2), (17, 19, 3)] };

/// Two slots on levels 10 to 18.
pub const IR_ALLOC2: Preset = Preset { name: "ir-alloc2", ranges: &[(10, 18, 2)] };

/// One slot on levels 10 to 14, two on 15 to 18.
pub const IR_ALLOC3: Preset = Preset { name: "ir-alloc3", ranges: &[(10, 14, 1), (15, 18, 2)] };

/// One slot on levels 10 to 15, two on 16 to 18: the paper's IR-Alloc where it is measured alone.
pub const IR_ALLOC4: Preset = Preset { name: "ir-alloc4", ranges: &[(10, 15, 1), (16, 18, 2)] };

/// IR-ORAM, together with IR-Stash and IR-DWB. It uses IR-Alloc1, not IR-Alloc4.
pub const IR_ORAM: Preset = Preset { name: "ir-oram", ..IR_ALLOC1 };

/// The result of the search at the paper's size, for blocks accessed at random: one slot on level
/// 10, three on 11 to 19.
pub const SEARCHED: Preset = Preset { name: "searched", ranges: &[(10, 10, 1), (11, 19, 3)] };

/// The result of the search where the cached levels are a sub-stash.
pub const SEARCHED_SUBSTASH: Preset = Preset { name: "searched-substash", ranges: &[(10, 19, 3)] };

/// For bundles of two blocks, which enter the stash together: wider in the middle, so that blocks
/// leave the stash as fast. It takes 1 % more slots than the base.
pub const BUNDLED: Preset = Preset { name: "bundled", ranges: &[(10, 17, 7), (18, 18, 6)] };

/// All presets.
pub const PRESETS: [Preset; 9] = [
    BASE,
    IR_ALLOC1,
    IR_ALLOC2,
    IR_ALLOC3,
    IR_ALLOC4,
    IR_ORAM,
    SEARCHED,
    SEARCHED_SUBSTASH,
    BUNDLED,
];

/// The tree of `levels` levels that `text` describes: the name of a preset, or levels of this very
/// tree and slots per bucket there, as in `10:1,11-19:3`.
pub fn shape(text: &str, levels: usize) -> Result<Shape> {
    match Preset::named(text) {
        Some(preset) => preset.shape(levels),
        None => written_out(text, levels).ok_or(Error::Geometry(
            "an allocation is a preset, or levels of the tree and slots, as in 10:1,11-19:3",
        ))?,
    }
}

fn written_out(text: &str, levels: usize) -> Option<Result<Shape>> {
    let mut z = vec![PAPER_Z; levels];
    for range in text.split(',') {
        let (range, slots) = range.split_once(':')?;
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        let range = Some(first..=last).filter(|range| !range.is_empty())?;
        z.get_mut(range)?.fill(slots.parse().ok()?);
    }
    Some(Shape::per_level(z))
}

impl Preset {
    /// The preset of this name.
    pub fn named(name: &str) -> Option<Self> {
        PRESETS.into_iter().find(|preset| preset.name == name)
    }

    /// A tree of `levels` levels. A level has the slots of the preset's level at the same distance
    /// from the leaves.
    pub fn shape(&self, levels: usize) -> Result<Shape> {
        let mut z = vec![PAPER_Z; levels];
        for (level, z) in z.iter_mut().enumerate() {
            let of_paper = level + PAPER_LEVELS;
            let range = self
                .ranges
                .iter()
                .find(|(first, last, _)| (first + levels..=last + levels).contains(&of_paper));
            *z = range.map_or(PAPER_Z, |range| range.2);
        }
        Shape::per_level(z)
    }
}

/// Number of levels in trusted memory for a tree of `levels` levels, so that the first level
/// outside is as far from the leaves as in the paper.
pub fn cached_levels(levels: usize) -> usize {
    (levels + PAPER_CACHED).saturating_sub(PAPER_LEVELS)
}

/// The share of its slots that a tree lacks, compared with `PAPER_Z` slots in each bucket.
pub fn loss(shape: &Shape) -> f64 {
    let buckets: u64 = (0..shape.levels()).map(|level| shape.buckets(level)).sum();
    1.0 - shape.slots() as f64 / (buckets * u64::from(PAPER_Z)) as f64
}

/// An allocation that the search has measured.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The tree's shape.
    pub shape: Shape,
    /// Slots of a path outside of trusted memory.
    pub path_slots: usize,
    /// The share of the slots that the allocation omits.
    pub loss: f64,
    /// Accesses that only empty the stash, per requested access.
    pub evictions: f64,
}

impl Trial {
    /// An allocation with its tree's first `cached` levels in trusted memory, and its measured
    /// number of accesses that only empty the stash, per requested access.
    pub fn new(shape: Shape, cached: usize, evictions: f64) -> Self {
        let path_slots = shape.path_slots() - shape.path_start(cached);
        Self { path_slots, loss: loss(&shape), shape, evictions }
    }

    /// Slots moved per requested access.
    pub fn slots_per_access(&self) -> f64 {
        self.path_slots as f64 * (1.0 + self.evictions)
    }

    /// How many times as many slots `base` moves.
    pub fn gain(&self, base: &Self) -> f64 {
        base.slots_per_access() / self.slots_per_access()
    }

    /// Whether the allocation keeps both limits.
    pub fn is_allowed(&self) -> bool {
        self.loss <= LOSS_MAX && self.evictions <= EVICTIONS_MAX
    }
}

/// Searches for the allocation that moves the fewest slots and keeps both limits. `measure` returns
/// the accesses that only empty the stash, per requested access, in a tree at steady state.
///
/// Buckets never become smaller from the cached levels down to the leaves. So an allocation is
/// determined by how far down its buckets of one slot, of up to two, and of up to three reach. The
/// search begins with three slots as far down as the loss limit allows, and moves by one level at a
/// time as long as that helps: the paper's greedy search, which ends where no step helps. The first
/// result is the base, the last is the best.
pub fn search(
    levels: usize,
    cached: usize,
    mut measure: impl FnMut(&Shape) -> Result<f64>,
) -> Result<Vec<Trial>> {
    if cached >= levels {
        return Err(Error::Geometry("no level is outside of trusted memory"));
    }
    let mut search = Search { levels, cached, measure: &mut measure, tried: Vec::new() };
    let mut best = search.visit([cached; 3])?;
    let mut reach = [cached; 3];
    while search.shape([cached, cached, reach[2] + 1]).is_ok_and(|shape| loss(&shape) <= LOSS_MAX) {
        reach[2] += 1;
    }
    if search.visit(reach)? < best {
        best = search.visit(reach)?;
    } else {
        reach = [cached; 3];
    }
    // Buckets of up to two slots first, since they gain as much as one slot and cost less.
    let steps = [(1, 1), (0, 1), (2, -1), (1, -1), (0, -1), (2, 1)];
    let mut in_vain = 0;
    while in_vain < steps.len() {
        let (which, by) = steps[in_vain];
        let mut next = reach;
        next[which] = next[which].saturating_add_signed(by);
        let slots = search.visit(next)?;
        if slots < best {
            (best, reach, in_vain) = (slots, next, 0);
        } else {
            in_vain += 1;
        }
    }
    search.end(reach)
}

struct Search<'a> {
    levels: usize,
    cached: usize,
    measure: &'a mut dyn FnMut(&Shape) -> Result<f64>,
    tried: Vec<Trial>,
}

impl Search<'_> {
    /// Levels from the cached ones down to `reach[n]` have buckets of at most n + 1 slots.
    fn shape(&self, reach: [usize; 3]) -> Result<Shape> {
        let is_ordered = self.cached <= reach[0] && reach.is_sorted() && reach[2] < self.levels;
        if !is_ordered {
            return Err(Error::Geometry("buckets become no smaller towards the leaves"));
        }
        let z = |level| match reach.iter().position(|&end| level < end) {
            Some(nth) if level >= self.cached => nth as u8 + 1,
            _ => PAPER_Z,
        };
        Shape::per_level((0..self.levels).map(z).collect())
    }

    /// Slots moved per access; infinite if the allocation is impossible or not allowed.
    fn visit(&mut self, reach: [usize; 3]) -> Result<f64> {
        let Ok(shape) = self.shape(reach) else { return Ok(f64::INFINITY) };
        let nth = match self.tried.iter().position(|tried| tried.shape == shape) {
            Some(nth) => nth,
            None if loss(&shape) > LOSS_MAX => return Ok(f64::INFINITY),
            None => {
                let evictions = (self.measure)(&shape)?;
                self.tried.push(Trial::new(shape, self.cached, evictions));
                self.tried.len() - 1
            }
        };
        let tried = &self.tried[nth];
        Ok(if tried.is_allowed() { tried.slots_per_access() } else { f64::INFINITY })
    }

    /// All trials, with the best once more at the end if it is not the last.
    fn end(mut self, reach: [usize; 3]) -> Result<Vec<Trial>> {
        let shape = self.shape(reach)?;
        let result = self.tried.iter().find(|tried| tried.shape == shape).cloned();
        self.tried.extend(result);
        Ok(self.tried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots of a path and lost space as in the paper, section VI-B, and as recomputed.
    #[test]
    fn presets_are_the_papers() {
        for (preset, slots, percent) in [
            (BASE, 60, 0.0),
            (IR_ALLOC1, 43, 0.877),
            (IR_ALLOC2, 42, 0.780),
            (IR_ALLOC3, 37, 0.803),
            (IR_ALLOC4, 36, 0.828),
            (IR_ORAM, 43, 0.877),
            (SEARCHED, 48, 0.782),
            (SEARCHED_SUBSTASH, 50, 0.780),
            (BUNDLED, 86, -0.974),
        ] {
            let shape = preset.shape(PAPER_LEVELS).unwrap();
            assert_eq!(shape.path_slots() - shape.path_start(PAPER_CACHED), slots);
            assert!((loss(&shape) * 100.0 - percent).abs() < 0.0005, "{}", preset.name);
            assert_eq!(Preset::named(preset.name).unwrap().ranges, preset.ranges);
        }
        assert!(Preset::named("ir-alloc5").is_none());
    }

    #[test]
    fn allocations_are_written_out_too() {
        let written = |text| shape(text, PAPER_LEVELS).unwrap();
        assert_eq!(written("10-16:2,17-19:3"), written("ir-alloc1"));
        assert_eq!(written("10:1,11-19:3"), written("searched"));
        assert_eq!(shape("0-3:4", 4).unwrap(), BASE.shape(4).unwrap());
        let max = format!("0-{}:1", usize::MAX);
        for wrong in ["", "x", "10", "10:", ":1", "11-10:1", "3-25:1", "10:300", &max] {
            assert!(shape(wrong, PAPER_LEVELS).is_err(), "{wrong}");
        }
    }

    #[test]
    fn presets_keep_their_distance_from_the_leaves() {
        for (levels, cached) in [(10, 0), (18, 3), (20, 5), (22, 7), (25, 10), (26, 11)] {
            assert_eq!(cached_levels(levels), cached);
            let (shape, of_paper) =
                (IR_ALLOC1.shape(levels).unwrap(), IR_ALLOC1.shape(PAPER_LEVELS).unwrap());
            for from_leaves in 1..=levels.min(15) {
                assert_eq!(shape.z(levels - from_leaves), of_paper.z(PAPER_LEVELS - from_leaves));
            }
            assert!((0..cached).all(|level| shape.z(level) == 4));
        }
    }

    /// A made-up cost with a known optimum: each slot removed from a level costs more evictions the
    /// fewer slots remain.
    fn cost(shape: &Shape) -> f64 {
        let lack = |level: usize| f64::from(PAPER_Z) - shape.z(level) as f64;
        let all: f64 = (0..shape.levels()).map(|level| lack(level).powi(3)).sum();
        (all - 30.0).max(0.0) / 300.0
    }

    #[test]
    fn the_search_ends_at_a_local_optimum_within_both_limits() {
        let tried = search(25, 10, |shape| Ok(cost(shape))).unwrap();
        let (base, best) = (&tried[0], &tried[tried.len() - 1]);
        assert_eq!((base.path_slots, base.loss), (60, 0.0));
        assert!(best.is_allowed() && best.gain(base) > 1.2, "{best:?}");
        let others = tried.iter().filter(|tried| tried.is_allowed());
        assert!(others.map(Trial::slots_per_access).all(|slots| slots >= best.slots_per_access()));
        assert!(tried.len() < 20, "each measurement takes minutes: {}", tried.len());
    }

    #[test]
    fn what_costs_too_many_evictions_or_slots_is_not_chosen() {
        let tried = search(25, 10, |shape| Ok(if shape.path_slots() < 100 { 0.16 } else { 0.0 }));
        let tried = tried.unwrap();
        assert_eq!(tried[tried.len() - 1].path_slots, 60, "the base is all that is left");
        let tried = search(25, 10, |_| Ok(0.0)).unwrap();
        let best = &tried[tried.len() - 1];
        assert!(best.loss <= LOSS_MAX && best.path_slots < 40, "{best:?}");
        assert!(search(5, 5, |_| Ok(0.0)).is_err());
    }
}
