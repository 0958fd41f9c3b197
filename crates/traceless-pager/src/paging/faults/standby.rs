//! The standby list: pages that are still in memory, but no longer where the program finds them. A
//! thread that touches one gets it back at once, and the page counts as the one that came last. So
//! pages that are in use stay.
//!
//! A clock would need to know whether the processor touched a page, which a program cannot observe.
//! It is as good to take a page away for a while, and to notice whether it is touched (Turner and
//! Levy's segmented FIFO, SIGMETRICS'81).

use std::collections::VecDeque;

/// Which page is in which place, the one that came first in front.
pub struct StandbyList {
    order: VecDeque<(usize, usize)>,
    /// Places without a page.
    free: Vec<usize>,
}

impl StandbyList {
    /// A list of `places` places, all of them free.
    pub fn new(places: usize) -> Self {
        Self { order: VecDeque::with_capacity(places), free: (0..places).collect() }
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether the page is on the list.
    pub fn contains(&self, page: usize) -> bool {
        self.place_of(page).is_some()
    }

    /// The place of the page, if it is on the list.
    pub fn place_of(&self, page: usize) -> Option<usize> {
        self.order.iter().find(|&&(listed, _)| listed == page).map(|&(_, place)| place)
    }

    /// A place without a page.
    pub fn free_place(&self) -> Option<usize> {
        self.free.last().copied()
    }

    /// Notes that the page is in the free place from now on.
    pub fn add(&mut self, page: usize) {
        let place = self.free.pop().expect("there is a free place");
        self.order.push_back((page, place));
    }

    /// Removes the page that came first, and returns it and its place.
    pub fn pop(&mut self) -> Option<(usize, usize)> {
        let (page, place) = self.order.pop_front()?;
        self.free.push(place);
        Some((page, place))
    }

    /// Removes the page, if it is on the list, and returns its place.
    pub fn remove(&mut self, page: usize) -> Option<usize> {
        let nth = self.order.iter().position(|&(listed, _)| listed == page)?;
        let (_, place) = self.order.remove(nth)?;
        self.free.push(place);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_leave_the_list_in_order_or_when_they_are_removed() {
        let mut standby = StandbyList::new(3);
        for page in [7, 8, 9] {
            standby.add(page);
        }
        assert_eq!((standby.len(), standby.free_place()), (3, None));
        let place = standby.remove(8).unwrap();
        assert_eq!((standby.remove(8), standby.free_place()), (None, Some(place)));
        standby.add(4);
        let order: Vec<usize> = (0..4).map_while(|_| standby.pop()).map(|(page, _)| page).collect();
        assert_eq!(order, [7, 9, 4]);
    }
}
