//! Pages that are still in memory, but no longer where the program finds them: whoever touches one
//! gets it back at once, and it is as if it had come last. So pages that are in use stay.
//!
//! A program cannot see whether the processor touched a page of it, which a clock would ask. To
//! take a page away for a while, and to see whether somebody misses it, is as good (Turner and
//! Levy's segmented FIFO, SIGMETRICS'81).

use std::collections::VecDeque;

/// Who is parked where, the one that came first in front.
pub struct StandbyList {
    order: VecDeque<(usize, usize)>,
    /// Places without a page.
    free: Vec<usize>,
}

impl StandbyList {
    /// So many places, all of them free.
    pub fn new(places: usize) -> Self {
        Self { order: VecDeque::with_capacity(places), free: (0..places).collect() }
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// A place without a page.
    pub fn free_place(&self) -> Option<usize> {
        self.free.last().copied()
    }

    /// The page is in the free place from now on.
    pub fn add(&mut self, page: usize) {
        let place = self.free.pop().expect("there is a free place");
        self.order.push_back((page, place));
    }

    /// The page that came first goes; tells where it was.
    pub fn pop(&mut self) -> Option<(usize, usize)> {
        let (page, place) = self.order.pop_front()?;
        self.free.push(place);
        Some((page, place))
    }

    /// The page goes, if it is here; tells where it was.
    pub fn remove(&mut self, page: usize) -> Option<usize> {
        let nth = self.order.iter().position(|&(parked, _)| parked == page)?;
        let (_, place) = self.order.remove(nth)?;
        self.free.push(place);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_in_order_or_when_they_are_missed() {
        let mut parked = StandbyList::new(3);
        for page in [7, 8, 9] {
            parked.add(page);
        }
        assert_eq!((parked.len(), parked.free_place()), (3, None));
        let place = parked.remove(8).unwrap();
        assert_eq!((parked.remove(8), parked.free_place()), (None, Some(place)));
        parked.add(4);
        let order: Vec<usize> = (0..4).map_while(|_| parked.pop()).map(|(page, _)| page).collect();
        assert_eq!(order, [7, 9, 4]);
    }
}
