//! Which page of the program each page number of the scheme stands for.
//!
//! The pager's own pages have their numbers in order. Once there are pages anywhere else, a page
//! gets a number when it is touched first, and keeps it until it is discarded. So memory that is
//! reserved, and never used, takes nothing of the store. The table for this is allocated at once: a
//! thread of the program may hold the pager's state, and must not wait for memory.
#![expect(clippy::inline_always, reason = "a search may not need its stack, which may be away")]

use super::frames::PAGES_MAX;
use crate::PAGE_LEN;
use core::ops::Range;

/// The numbers of pages, and the pages' addresses.
#[derive(Clone)]
pub struct PageNumbers {
    /// Address of the pager's own memory: its pages have the numbers in their order, while no other
    /// page has taken them.
    start: usize,
    pages: usize,
    /// For pages anywhere in the address space; else there are only the pager's own.
    anywhere: Option<AddressTable>,
}

/// The pages that have a number, anywhere in the address space.
#[derive(Clone)]
pub struct AddressTable {
    /// The address of the page with each number; 0 where the number is free.
    of_number: Vec<usize>,
    /// Numbers, plus one, of pages that do not have the number of their place: found by a hash of
    /// the address, or behind it. 0 is none.
    by_address: Vec<u32>,
    /// Each bit is 1 while a number is free.
    free: Vec<u64>,
    /// No number in words from this one on is free.
    free_words: usize,
}

impl PageNumbers {
    /// Numbers of the `pages` pages from the address `start` on, and of no more.
    pub fn fixed(start: usize, pages: usize) -> Self {
        Self { start, pages, anywhere: None }
    }

    /// Allows for pages anywhere in the address space from now on. Pages that are `used` keep their
    /// numbers, and all other numbers are free. Returns a table that is not needed.
    pub fn extend(
        &mut self,
        mut table: AddressTable,
        used: impl Fn(usize) -> bool,
    ) -> Option<AddressTable> {
        if self.anywhere.is_some() {
            return Some(table);
        }
        for number in 0..self.pages {
            if used(number) {
                table.of_number[number] = self.own_address(number);
                table.free[number / 64] &= !(1 << (number % 64));
            }
        }
        self.anywhere = Some(table);
        None
    }

    /// Whether there may be pages that are not the pager's own.
    pub fn is_anywhere(&self) -> bool {
        self.anywhere.is_some()
    }

    /// The address of the page with this number.
    pub fn address(&self, number: usize) -> usize {
        match &self.anywhere {
            None => self.own_address(number),
            Some(all) => all.of_number[number],
        }
    }

    /// The number of the page at an address, if it has one.
    #[inline(always)]
    pub fn find(&self, address: usize) -> Option<usize> {
        let own = self.own_number(address);
        let Some(all) = &self.anywhere else { return own };
        own.filter(|&number| all.of_number[number] == address).or_else(|| all.find(address))
    }

    /// The number of the page at an address, which gets one if it has none. `None` if no number is
    /// left.
    pub fn find_or_take(&mut self, address: usize) -> Option<usize> {
        if let Some(number) = self.find(address) {
            return Some(number);
        }
        let own = self.own_number(address);
        let all = self.anywhere.as_mut()?;
        let number =
            own.filter(|&number| all.of_number[number] == 0).or_else(|| all.last_free())?;
        all.free[number / 64] &= !(1 << (number % 64));
        self.set_address(number, address);
        Some(number)
    }

    /// Frees a number.
    pub fn give(&mut self, number: usize) {
        self.clear_address(number);
        if let Some(all) = &mut self.anywhere {
            all.free[number / 64] |= 1 << (number % 64);
            all.free_words = all.free_words.max(number / 64 + 1);
        }
    }

    /// Lets a number stand for the page at another address, which has none.
    pub fn rename(&mut self, number: usize, address: usize) {
        self.clear_address(number);
        self.set_address(number, address);
    }

    /// How many arguments of [`Self::within`] there are for a range.
    pub fn count_within(&self, range: &Range<usize>) -> usize {
        (range.len() / PAGE_LEN).min(self.pages)
    }

    /// A page's number in a range of addresses, for each `nth` below [`Self::count_within`]; `None`
    /// where there is none.
    pub fn within(&self, range: &Range<usize>, nth: usize) -> Option<usize> {
        match &self.anywhere {
            Some(all) if range.len() / PAGE_LEN > self.pages => {
                range.contains(&all.of_number[nth]).then_some(nth)
            }
            _ => self.find(range.start + nth * PAGE_LEN),
        }
    }

    fn own_address(&self, number: usize) -> usize {
        self.start + number * PAGE_LEN
    }

    #[inline(always)]
    fn own_number(&self, address: usize) -> Option<usize> {
        let number = address.checked_sub(self.start)? / PAGE_LEN;
        (number < self.pages).then_some(number)
    }

    fn set_address(&mut self, number: usize, address: usize) {
        let is_own = self.own_address(number) == address;
        let Some(all) = &mut self.anywhere else { return };
        all.of_number[number] = address;
        if !is_own {
            all.insert(number, address);
        }
    }

    fn clear_address(&mut self, number: usize) {
        let own = self.own_address(number);
        let Some(all) = &mut self.anywhere else { return };
        let address = core::mem::replace(&mut all.of_number[number], 0);
        if address != own {
            all.remove(number, address);
        }
    }
}

impl AddressTable {
    /// A table for `pages` numbers.
    pub fn new(pages: usize) -> Self {
        assert!(pages <= PAGES_MAX, "page numbers have four bytes");
        let mut free = vec![u64::MAX; pages.div_ceil(64)];
        if let Some(last) = free.last_mut().filter(|_| !pages.is_multiple_of(64)) {
            *last = (1 << (pages % 64)) - 1;
        }
        Self {
            of_number: vec![0; pages],
            by_address: vec![0; (2 * pages).next_power_of_two()],
            free_words: free.len(),
            free,
        }
    }

    /// Bytes of memory that the table takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.of_number[..])
            + size_of_val(&self.by_address[..])
            + size_of_val(&self.free[..])
    }

    /// The entry at which the search for an address begins.
    #[inline(always)]
    fn first_entry(&self, address: usize) -> usize {
        // A multiplication by the golden ratio spreads neighbouring pages.
        let hash = (address / PAGE_LEN).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash >> (usize::BITS - self.by_address.len().ilog2())
    }

    #[inline(always)]
    fn find(&self, address: usize) -> Option<usize> {
        let mut entry = self.first_entry(address);
        loop {
            let number = self.by_address[entry].checked_sub(1)? as usize;
            if self.of_number[number] == address {
                return Some(number);
            }
            entry = self.next(entry);
        }
    }

    #[inline(always)]
    fn next(&self, entry: usize) -> usize {
        (entry + 1) & (self.by_address.len() - 1)
    }

    fn insert(&mut self, number: usize, address: usize) {
        let mut entry = self.first_entry(address);
        while self.by_address[entry] != 0 {
            entry = self.next(entry);
        }
        self.by_address[entry] = number as u32 + 1;
    }

    /// Removes the entry of a number, and moves up entries behind it that a search would no longer
    /// reach.
    fn remove(&mut self, number: usize, address: usize) {
        let mut hole = self.first_entry(address);
        while self.by_address[hole] != number as u32 + 1 {
            assert!(self.by_address[hole] != 0, "the number has an entry");
            hole = self.next(hole);
        }
        let mut entry = self.next(hole);
        while let Some(other) = self.by_address[entry].checked_sub(1) {
            let first = self.first_entry(self.of_number[other as usize]);
            let mask = self.by_address.len() - 1;
            if entry.wrapping_sub(first) & mask >= entry.wrapping_sub(hole) & mask {
                self.by_address[hole] = self.by_address[entry];
                hole = entry;
            }
            entry = self.next(entry);
        }
        self.by_address[hole] = 0;
    }

    /// The highest free number: low ones are the first that the pager's own memory needs.
    fn last_free(&mut self) -> Option<usize> {
        while self.free_words > 0 {
            let word = self.free[self.free_words - 1];
            if word != 0 {
                return Some(self.free_words * 64 - 1 - word.leading_zeros() as usize);
            }
            self.free_words -= 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use traceless::rng::{Rng, SeededRng};

    const START: usize = 1 << 30;

    fn at(page: usize) -> usize {
        START + page * PAGE_LEN
    }

    /// Numbers for pages anywhere, after the first `used` pages of the pager's own were used.
    fn anywhere(pages: usize, used: usize) -> PageNumbers {
        let mut numbers = PageNumbers::fixed(START, pages);
        assert!(numbers.extend(AddressTable::new(pages), |number| number < used).is_none());
        assert!(numbers.extend(AddressTable::new(pages), |_| true).is_some(), "it has a table");
        numbers
    }

    #[test]
    fn pages_in_use_keep_their_numbers() {
        let mut numbers = anywhere(100, 70);
        assert_eq!((numbers.find(at(69)), numbers.find(at(70))), (Some(69), None));
        let taken = (500..600).map_while(|page| numbers.find_or_take(at(page))).count();
        assert_eq!(taken, 30);
        numbers.give(3);
        assert_eq!(numbers.find_or_take(at(777)), Some(3));
        assert_eq!(numbers.find_or_take(at(3)), None);
    }

    #[test]
    fn numbers_agree_with_a_map() {
        for pages in [1, 64, 100] {
            let mut numbers = anywhere(pages, 0);
            let mut truth = BTreeMap::new();
            let mut rng = SeededRng::new(pages as u64);
            for _ in 0..50_000 {
                // Half of the addresses are of the pager's own memory.
                let address = at(rng.below(2 * pages as u64) as usize);
                match rng.below(4) {
                    0 | 1 => match numbers.find_or_take(address) {
                        Some(number) => {
                            assert_eq!(*truth.entry(address).or_insert(number), number);
                        }
                        None => assert_eq!(truth.len(), pages),
                    },
                    2 => {
                        if let Some(number) = truth.remove(&address) {
                            numbers.give(number);
                        }
                    }
                    _ => {
                        let other = at(rng.below(4 * pages as u64) as usize);
                        if let Some(number) = truth.get(&address).copied()
                            && !truth.contains_key(&other)
                        {
                            truth.remove(&address);
                            truth.insert(other, number);
                            numbers.rename(number, other);
                        }
                    }
                }
                assert_eq!(numbers.find(address), truth.get(&address).copied());
            }
            for (&address, &number) in &truth {
                assert_eq!(
                    (numbers.find(address), numbers.address(number)),
                    (Some(number), address)
                );
            }
            for range in [at(0)..at(pages / 2), at(pages / 2)..at(4 * pages)] {
                let found = (0..numbers.count_within(&range))
                    .filter_map(|nth| numbers.within(&range, nth))
                    .count();
                assert_eq!(found, truth.range(range).count());
            }
        }
    }

    /// While other pages leave room, the pager's own memory has its numbers in order.
    #[test]
    fn own_pages_have_the_numbers_of_their_places() {
        let mut numbers = anywhere(128, 0);
        let other: Vec<_> = (0..8).map(|page| numbers.find_or_take(at(500 + page))).collect();
        assert_eq!(other, (120..128).rev().map(Some).collect::<Vec<_>>());
        for page in (0..120).rev() {
            assert_eq!(numbers.find_or_take(at(page)), Some(page));
        }
        assert_eq!(numbers.find_or_take(at(125)), None, "its number is taken, and so is any other");
        numbers.give(7);
        assert_eq!(numbers.find_or_take(at(125)), Some(7));
        assert_eq!(PageNumbers::fixed(START, 4).find_or_take(at(3)), Some(3));
        assert_eq!(PageNumbers::fixed(START, 4).find_or_take(at(4)), None);
    }
}
