//! Which place of a growing main area each page has.
//!
//! A page gets a place when it leaves first, and keeps it until it is forgotten. So pages that are
//! away have the lowest places, wherever the pages lie.

use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};
use traceless::error::{Error, Result};

/// Set in the number of a place that no page has. The other bits are one more than the next place
/// without a page, or 0.
const FREE: u64 = 1 << 63;

/// The write that a place's page left by last, counted from 1, from the number of the place. `None`
/// if it has no page, or one of zeros.
pub fn last_write(number: u64) -> Option<u64> {
    if number & FREE == 0 { number.checked_sub(1) } else { None }
}

/// The places of pages. One thread at a time takes and frees them.
pub struct Places {
    /// One more than the place of each page; 0 is none.
    of_page: Vec<AtomicU32>,
    /// Places that were taken at least once: all below this one.
    used: AtomicU64,
    /// One more than a place that was freed; 0 is none. The place has the next one in its number.
    free: AtomicU64,
}

impl Places {
    /// Bytes of memory for so many pages.
    pub fn bytes_for(pages: u64) -> usize {
        pages as usize * size_of::<AtomicU32>()
    }

    /// No page has a place.
    ///
    /// # Errors
    /// More pages than four bytes have numbers for.
    pub fn new(pages: u64) -> Result<Self> {
        if pages >= u64::from(u32::MAX) {
            return Err(Error::Geometry("too many pages for an area that grows"));
        }
        let of_page = (0..pages).map(|_| AtomicU32::new(0)).collect();
        Ok(Self { of_page, used: AtomicU64::new(0), free: AtomicU64::new(0) })
    }

    /// Places that were taken at least once.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The place of a page.
    pub fn find(&self, page: u64) -> Option<u64> {
        self.of_page[page as usize].load(Relaxed).checked_sub(1).map(u64::from)
    }

    /// The place of a page, which gets one if it has none. `numbers` are the ones of all places.
    pub fn find_or_take(&self, page: u64, numbers: &[AtomicU64]) -> u64 {
        if let Some(place) = self.find(page) {
            return place;
        }
        let place = if let Some(place) = self.free.load(Relaxed).checked_sub(1) {
            self.free.store(numbers[place as usize].load(Relaxed) & !FREE, Relaxed);
            place
        } else {
            self.used.fetch_add(1, Relaxed)
        };
        self.of_page[page as usize].store(place as u32 + 1, Relaxed);
        place
    }

    /// Frees the place of a page, if it has one.
    pub fn give(&self, page: u64, numbers: &[AtomicU64]) {
        let Some(place) = self.find(page) else { return };
        self.of_page[page as usize].store(0, Relaxed);
        numbers[place as usize].store(FREE | self.free.load(Relaxed), Release);
        self.free.store(place + 1, Relaxed);
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.of_page[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_places_are_taken_again() {
        let numbers: Vec<_> = (0..9).map(|_| AtomicU64::new(0)).collect();
        let places = Places::new(100).unwrap();
        let take = |page| places.find_or_take(page, &numbers);
        assert_eq!([70, 3, 99, 3].map(take), [0, 1, 2, 1]);
        for page in [3, 70, 3, 50] {
            places.give(page, &numbers);
        }
        assert_eq!((places.find(3), places.find(99), places.used()), (None, Some(2), 3));
        let written = |place: usize| last_write(numbers[place].load(Relaxed));
        assert_eq!((written(0), written(1)), (None, None));
        assert_eq!([1, 2, 4].map(take), [0, 1, 3]);
        assert_eq!([0, 7].map(last_write), [None, Some(6)]);
        assert!(Places::new(u64::from(u32::MAX)).is_err());
    }
}
