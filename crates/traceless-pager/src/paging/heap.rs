//! An allocator for paged memory that keeps its records elsewhere. So the search for room causes no
//! page fault, and the records never leave trusted memory.
//!
//! Small objects share spans of pages, each span for one size; a larger object gets pages of its
//! own. Free pages are zeros, but for the ones that were freed last: they are kept as they are, so
//! that the next object of their size needs no page fault.

use crate::PAGE_LEN;
use std::collections::{BTreeMap, BTreeSet};

/// The largest small object. Larger ones get pages of their own.
const SMALL_MAX: usize = 4096;

/// Objects of up to this size lie in spans of one page, larger ones in spans of four.
const ONE_PAGE_MAX: usize = 1024;
const PAGES_OF_LARGER: usize = 4;

/// Sizes of small objects: four to each doubling, all multiples of 16.
const SIZES: [usize; 28] = [
    16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
    1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096,
];

/// The most pages that are kept, and of one object among them.
const KEPT_MAX: usize = 256;
const KEPT_OF_OBJECT_MAX: usize = 64;
/// One page of so many is kept at most.
const KEPT_SHARE: usize = 16;

const NO_SPAN: u32 = u32::MAX;

/// A stretch of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    /// The first one.
    pub first: usize,
    /// How many.
    pub count: usize,
}

/// The records of the allocator. Addresses are counted from the first byte of the paged memory.
pub struct Heap {
    /// Number of the memory's first page in the address space: objects are aligned there.
    start: usize,
    /// Free stretches, by their first page; and by length.
    free: BTreeMap<usize, usize>,
    free_by_len: BTreeSet<(usize, usize)>,
    /// Stretches that were freed and are not zeros, the one that was freed first in front.
    kept: Vec<Pages>,
    /// The most pages that are kept.
    kept_max: usize,
    /// Stretches that were allocated by the page: large objects, and mappings.
    page_runs: BTreeMap<usize, Run>,
    /// The span that each page belongs to.
    span_of: Vec<u32>,
    spans: Vec<Span>,
    free_spans: Vec<u32>,
    /// Spans of each size that have room.
    with_room: [BTreeSet<u32>; SIZES.len()],
}

#[derive(Clone, Copy)]
struct Run {
    pages: usize,
    /// Whether it is a mapping: then parts of it may be given back.
    mapped: bool,
}

struct Span {
    first: usize,
    size: usize,
    class: usize,
    objects: usize,
    used: usize,
    occupied: [u64; 4],
}

impl Heap {
    /// Manages `pages` pages of zeros from the address `start` on, where a page begins.
    pub fn new(start: usize, pages: usize) -> Self {
        assert!(start.is_multiple_of(PAGE_LEN), "a page begins there");
        let mut heap = Self {
            start: start / PAGE_LEN,
            free: BTreeMap::new(),
            free_by_len: BTreeSet::new(),
            kept: Vec::new(),
            kept_max: KEPT_MAX.min(pages / KEPT_SHARE),
            page_runs: BTreeMap::new(),
            span_of: vec![NO_SPAN; pages],
            spans: Vec::new(),
            free_spans: Vec::new(),
            with_room: core::array::from_fn(|_| BTreeSet::new()),
        };
        heap.give(Pages { first: 0, count: pages });
        heap
    }

    /// Allocates `size` bytes at a multiple of `align`, which is a power of two. Also returns
    /// whether they are known to be zeros.
    pub fn allocate(&mut self, size: usize, align: usize) -> Option<(usize, bool)> {
        let wanted =
            if align <= 16 { size.max(1) } else { size.max(align).checked_next_power_of_two()? };
        if wanted <= SMALL_MAX {
            return Some((self.allocate_small(wanted)?, false));
        }
        let (count, align) = (size.div_ceil(PAGE_LEN).max(1), align.div_ceil(PAGE_LEN));
        if align <= 1
            && let Some(Pages { first, count: pages }) = self.take_kept(count)
        {
            self.page_runs.insert(first, Run { pages, mapped: false });
            return Some((first * PAGE_LEN, false));
        }
        let pages = self.take_run(count, align, false)?;
        Some((pages.first * PAGE_LEN, true))
    }

    /// Allocates pages of zeros for a mapping of `len` bytes.
    pub fn map(&mut self, len: usize) -> Option<usize> {
        let pages = self.take_run(len.div_ceil(PAGE_LEN).max(1), 1, true)?;
        Some(pages.first * PAGE_LEN)
    }

    /// Bytes that the object at `at` has room for; `None` if there is no object.
    pub fn size_of(&self, at: usize) -> Option<usize> {
        if let Some(run) =
            self.page_runs.get(&(at / PAGE_LEN)).filter(|_| at.is_multiple_of(PAGE_LEN))
        {
            return Some(run.pages * PAGE_LEN);
        }
        self.small_at(at).map(|(span, _)| self.spans[span].size)
    }

    /// Frees the object at `at`. Returns the pages that became free: the caller must make them
    /// zeros and then call [`Heap::give`], or [`Heap::keep`] as they are. `None` if there is no
    /// object at `at`.
    pub fn free(&mut self, at: usize) -> Option<Option<Pages>> {
        let page = at / PAGE_LEN;
        if at.is_multiple_of(PAGE_LEN)
            && let Some(run) = self.page_runs.remove(&page)
        {
            return Some(Some(Pages { first: page, count: run.pages }));
        }
        let (span, object) = self.small_at(at)?;
        Some(self.free_small(span, object))
    }

    /// Grows or shrinks the pages of a large object where they are, if there is room behind it.
    pub fn resize(&mut self, at: usize, size: usize) -> bool {
        let (page, wanted) = (at / PAGE_LEN, size.div_ceil(PAGE_LEN));
        let Some(run) = self.page_runs.get(&page).copied().filter(|_| size > SMALL_MAX) else {
            return false;
        };
        let more = wanted.saturating_sub(run.pages);
        if more == 0 {
            // To shrink by more than half the caller takes a new object, and frees this one.
            return wanted * 2 >= run.pages;
        }
        let behind = page + run.pages;
        match self.free.get(&behind).copied() {
            Some(free) if free >= more => {
                self.take_free(behind, free);
                self.give(Pages { first: behind + more, count: free - more });
                self.page_runs.insert(page, Run { pages: wanted, ..run });
                true
            }
            _ => false,
        }
    }

    /// Whether all of these pages are of mappings.
    pub fn is_mapped(&self, range: Pages) -> bool {
        let Some(end) = range.first.checked_add(range.count) else { return false };
        let mut from = range.first;
        while from < end {
            let run = self.page_runs.range(..=from).next_back();
            match run.filter(|(first, run)| run.mapped && **first + run.pages > from) {
                Some((first, run)) => from = first + run.pages,
                None => return false,
            }
        }
        true
    }

    /// Frees parts of mappings. Returns the pages that became free, as [`Heap::free`] does.
    pub fn unmap(&mut self, range: Pages) -> Vec<Pages> {
        let end = range.first + range.count;
        let touched: Vec<(usize, Run)> = self
            .page_runs
            .range(..end)
            .rev()
            .take_while(|(first, run)| *first + run.pages > range.first)
            .map(|(first, run)| (*first, *run))
            .filter(|(_, run)| run.mapped)
            .collect();
        let mut freed = Vec::new();
        for (first, run) in touched {
            self.page_runs.remove(&first);
            let (from, to) = (first.max(range.first), (first + run.pages).min(end));
            if first < from {
                self.page_runs.insert(first, Run { pages: from - first, ..run });
            }
            if to < first + run.pages {
                self.page_runs.insert(to, Run { pages: first + run.pages - to, ..run });
            }
            freed.push(Pages { first: from, count: to - from });
        }
        freed
    }

    /// Keeps pages that an object had for the next one of its size. Returns pages that are not kept
    /// (any more): the caller must make them zeros and then call [`Heap::give`].
    pub fn keep(&mut self, pages: Pages) -> Vec<Pages> {
        if pages.count > KEPT_OF_OBJECT_MAX.min(self.kept_max) {
            return vec![pages];
        }
        self.kept.push(pages);
        let mut all: usize = self.kept.iter().map(|pages| pages.count).sum();
        let surplus = self.kept.iter().take_while(|first| {
            let is_surplus = all > self.kept_max;
            all -= first.count;
            is_surplus
        });
        let surplus = surplus.count();
        self.kept.drain(..surplus).collect()
    }

    /// Keeps no pages any more, and returns the ones that were kept, as [`Heap::keep`] does.
    pub fn take_all_kept(&mut self) -> Vec<Pages> {
        core::mem::take(&mut self.kept)
    }

    fn take_kept(&mut self, count: usize) -> Option<Pages> {
        let nth = self.kept.iter().rposition(|pages| pages.count == count)?;
        Some(self.kept.remove(nth))
    }

    /// Makes pages available for allocation. They must be zeros.
    pub fn give(&mut self, pages: Pages) {
        let Pages { mut first, mut count } = pages;
        if count == 0 {
            return;
        }
        if let Some((&before, &len)) = self.free.range(..first).next_back()
            && before + len == first
        {
            self.take_free(before, len);
            (first, count) = (before, len + count);
        }
        if let Some(&behind) = self.free.get(&(first + count)) {
            self.take_free(first + count, behind);
            count += behind;
        }
        self.free.insert(first, count);
        self.free_by_len.insert((count, first));
    }

    fn take_free(&mut self, first: usize, len: usize) {
        self.free.remove(&first);
        self.free_by_len.remove(&(len, first));
    }

    /// Takes `count` pages from a multiple of `align` on, of the smallest stretch that has them.
    fn take_pages(&mut self, count: usize, align: usize) -> Option<Pages> {
        let aligned = |first: usize| (self.start + first).next_multiple_of(align) - self.start;
        let fits = |&&(len, first): &&(usize, usize)| {
            aligned(first).checked_add(count).is_some_and(|end| end <= first + len)
        };
        let &(len, start) = self.free_by_len.range((count, 0)..).find(fits)?;
        let first = aligned(start);
        self.take_free(start, len);
        self.give(Pages { first: start, count: first - start });
        self.give(Pages { first: first + count, count: start + len - first - count });
        Some(Pages { first, count })
    }

    fn take_run(&mut self, count: usize, align: usize, mapped: bool) -> Option<Pages> {
        let pages = self.take_pages(count, align.max(1))?;
        self.page_runs.insert(pages.first, Run { pages: count, mapped });
        Some(pages)
    }

    fn allocate_small(&mut self, wanted: usize) -> Option<usize> {
        let class = SIZES.partition_point(|&size| size < wanted);
        let span = match self.with_room[class].first() {
            Some(&span) => span,
            None => self.new_span(class)?,
        };
        let s = &mut self.spans[span as usize];
        let word = s.occupied.iter().position(|&word| word != u64::MAX).expect("it has room");
        let bit = s.occupied[word].trailing_ones();
        s.occupied[word] |= 1 << bit;
        s.used += 1;
        if s.used == s.objects {
            self.with_room[class].remove(&span);
        }
        Some(s.first * PAGE_LEN + (word * 64 + bit as usize) * s.size)
    }

    fn new_span(&mut self, class: usize) -> Option<u32> {
        let size = SIZES[class];
        let count = if size <= ONE_PAGE_MAX { 1 } else { PAGES_OF_LARGER };
        let pages = self.take_kept(count).or_else(|| self.take_pages(count, 1))?;
        let objects = count * PAGE_LEN / size;
        let mut occupied = [u64::MAX; 4];
        for object in 0..objects {
            occupied[object / 64] &= !(1 << (object % 64));
        }
        let new = Span { first: pages.first, size, class, objects, used: 0, occupied };
        let span = if let Some(span) = self.free_spans.pop() {
            self.spans[span as usize] = new;
            span
        } else {
            self.spans.push(new);
            (self.spans.len() - 1) as u32
        };
        self.span_of[pages.first..pages.first + count].fill(span);
        self.with_room[class].insert(span);
        Some(span)
    }

    /// The span and the number of the object that begins at `at`, if it is allocated.
    fn small_at(&self, at: usize) -> Option<(usize, usize)> {
        let span = *self.span_of.get(at / PAGE_LEN)?;
        let s = self.spans.get(span as usize)?;
        let offset = at - s.first * PAGE_LEN;
        let object = offset / s.size;
        let occupied = offset.is_multiple_of(s.size)
            && object < s.objects
            && s.occupied[object / 64] >> (object % 64) & 1 == 1;
        occupied.then_some((span as usize, object))
    }

    fn free_small(&mut self, span: usize, object: usize) -> Option<Pages> {
        let s = &mut self.spans[span];
        s.occupied[object / 64] &= !(1 << (object % 64));
        s.used -= 1;
        let (class, first) = (s.class, s.first);
        let with_room = &mut self.with_room[class];
        with_room.insert(span as u32);
        // The last span with room is kept: the next object of that size would need a new one.
        if s.used > 0 || with_room.len() == 1 {
            return None;
        }
        with_room.remove(&(span as u32));
        let count = if s.size <= ONE_PAGE_MAX { 1 } else { PAGES_OF_LARGER };
        self.span_of[first..first + count].fill(NO_SPAN);
        self.free_spans.push(span as u32);
        Some(Pages { first, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::rng::{Rng, SeededRng};

    /// Objects never overlap, are aligned, and all memory becomes free again.
    #[test]
    fn objects_do_not_overlap() {
        // The kernel aligns the memory to a page, and to nothing larger.
        let start = 7 * PAGE_LEN;
        let mut heap = Heap::new(start, 512);
        let mut rng = SeededRng::new(1);
        let mut objects: BTreeMap<usize, usize> = BTreeMap::new();
        for step in 0..20_000 {
            if rng.below(100) < 52 {
                let size = 1 + rng.below([40, 600, 5000, 40_000][step % 4]) as usize;
                let align = 16 << rng.below(if step % 5 == 0 { 10 } else { 1 });
                let Some((at, _)) = heap.allocate(size, align) else { continue };
                assert_eq!((start + at) % align, 0);
                let room = heap.size_of(at).unwrap();
                assert!(room >= size && at + room <= 512 * PAGE_LEN);
                let before = objects.range(..=at).next_back();
                assert!(before.is_none_or(|(start, len)| start + len <= at));
                assert!(objects.range(at..).next().is_none_or(|(start, _)| at + room <= *start));
                objects.insert(at, room);
            } else if let Some((&at, _)) = objects.range(rng.below(1 << 21) as usize..).next() {
                objects.remove(&at);
                let freed = heap.free(at).unwrap();
                let keeps = step % 3 != 0;
                let freed = freed.map_or(vec![], |f| if keeps { heap.keep(f) } else { vec![f] });
                for pages in freed {
                    heap.give(pages);
                }
                assert!(heap.free(at).is_none(), "it was freed already");
            }
        }
        heap.take_all_kept().into_iter().for_each(|pages| heap.give(pages));
        for at in objects.into_keys() {
            heap.free(at).unwrap().into_iter().for_each(|pages| heap.give(pages));
        }
        let free: usize = heap.free.values().sum();
        // What is not free is the last span of each size.
        assert!(free >= 512 - SIZES.len() * PAGES_OF_LARGER, "{free}");
        assert_eq!(heap.free_by_len.len(), heap.free.len());
    }

    #[test]
    fn kept_pages_are_for_objects_of_their_size_and_few() {
        let mut heap = Heap::new(0, KEPT_MAX * KEPT_SHARE);
        let new = |heap: &mut Heap, pages: usize| heap.allocate(pages * PAGE_LEN, 16).unwrap();
        let free =
            |heap: &mut Heap, at| heap.free(at).unwrap().map_or(vec![], |pages| heap.keep(pages));
        let (at, is_zeros) = new(&mut heap, 3);
        assert!(is_zeros && free(&mut heap, at).is_empty());
        let mapped = heap.map(3 * PAGE_LEN).unwrap();
        assert_ne!(mapped, at, "a mapping is zeros");
        assert_ne!(new(&mut heap, 4).0, at);
        assert_eq!(new(&mut heap, 3), (at, false));
        let large = new(&mut heap, KEPT_OF_OBJECT_MAX + 1).0;
        assert_eq!(free(&mut heap, large).len(), 1);
        // The pages that were freed first are the first that are no longer kept.
        let small: Vec<usize> = (0..KEPT_MAX / 2).map(|_| new(&mut heap, 2).0).collect();
        for &at in &small {
            assert!(free(&mut heap, at).is_empty());
        }
        let large = new(&mut heap, KEPT_OF_OBJECT_MAX).0;
        let freed = free(&mut heap, large);
        let expected: Vec<_> = small[..KEPT_OF_OBJECT_MAX / 2].iter().collect();
        assert_eq!(freed.len(), expected.len());
        for (pages, &&at) in freed.iter().zip(&expected) {
            assert_eq!((pages.first, pages.count), (at / PAGE_LEN, 2));
        }
        let kept: usize = heap.take_all_kept().iter().map(|pages| pages.count).sum();
        assert_eq!(kept, KEPT_MAX);
        assert!(heap.take_all_kept().is_empty());
        assert_eq!(Heap::new(0, 8).keep(Pages { first: 0, count: 1 }).len(), 1, "few pages");
    }

    #[test]
    fn mappings_are_freed_in_parts() {
        let mut heap = Heap::new(0, 64);
        let at = heap.map(10 * PAGE_LEN - 5).unwrap() / PAGE_LEN;
        let (object, _) = heap.allocate(2 * SMALL_MAX, 16).unwrap();
        let middle = Pages { first: at + 3, count: 4 };
        assert!(heap.is_mapped(Pages { first: at, count: 10 }));
        assert_eq!(heap.unmap(middle), [middle]);
        assert_eq!(heap.unmap(middle), []);
        for (first, count, is_mapped) in
            [(at, 3, true), (at, 4, false), (at + 6, 2, false), (at + 7, 3, true)]
        {
            assert_eq!(heap.is_mapped(Pages { first, count }), is_mapped);
        }
        assert!(!heap.is_mapped(Pages { first: object / PAGE_LEN, count: 1 }));
        assert!(!heap.is_mapped(Pages { first: at, count: usize::MAX }));
        heap.give(middle);
        let all = Pages { first: 0, count: 64 };
        let mut freed = heap.unmap(all);
        freed.sort_by_key(|pages| pages.first);
        let ends = [Pages { first: at, count: 3 }, Pages { first: at + 7, count: 3 }];
        assert_eq!(freed, ends);
        assert!(heap.size_of(object).is_some(), "objects are not mappings");
    }

    #[test]
    fn large_objects_grow_where_they_are_while_there_is_room() {
        let mut heap = Heap::new(0, 64);
        let (a, zeros) = heap.allocate(5000, 16).unwrap();
        assert!(zeros);
        assert!(heap.resize(a, 9 * PAGE_LEN));
        assert_eq!(heap.size_of(a), Some(9 * PAGE_LEN));
        let (b, _) = heap.allocate(5000, 16).unwrap();
        assert!(!heap.resize(a, 50 * PAGE_LEN), "{b} lies behind it");
        assert!(!heap.resize(a, 64 * PAGE_LEN));
        assert!(heap.resize(a, 8 * PAGE_LEN));
        assert!(!heap.resize(a, 2 * PAGE_LEN));
        assert!(heap.allocate(64 * PAGE_LEN, 16).is_none());
        assert!(heap.allocate(usize::MAX, 16).is_none());
        assert!(heap.allocate(16, 1 << 63).is_none());
    }
}
