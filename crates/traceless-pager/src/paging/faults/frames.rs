//! Which pages are resident, and which of them leaves next.

use traceless::rng::{Rng, SeededRng};

/// Which page leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// The page that came first.
    #[default]
    Fifo,
    /// The page that came first and was not touched while it was on the standby list.
    Clock,
    /// A page drawn at random.
    Random,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fifo, Self::Clock, Self::Random];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Clock => "clock",
            Self::Random => "random",
        }
    }
}

const NONE: u32 = u32::MAX;
/// Pages at most: numbers of pages have four bytes.
pub const PAGES_MAX: usize = NONE as usize - 1;

/// The resident pages. Four bytes a page, and four a frame.
pub struct Frames {
    policy: Policy,
    rng: SeededRng,
    /// The page in each frame, `NONE` where one was emptied.
    page_in: Vec<u32>,
    /// The frame of each page.
    frame_of: Vec<u32>,
    empty: Vec<u32>,
    /// The frame to look at next, for the first-in, first-out order.
    hand: usize,
}

impl Frames {
    /// Frames for some of `pages` pages, of which none is resident. Random draws follow from
    /// `seed`.
    pub fn new(pages: usize, frames: usize, policy: Policy, seed: u64) -> Self {
        assert!(pages <= PAGES_MAX, "page numbers have four bytes");
        Self {
            policy,
            rng: SeededRng::new(seed),
            page_in: Vec::with_capacity(frames),
            frame_of: vec![NONE; pages],
            empty: Vec::with_capacity(frames),
            hand: 0,
        }
    }

    /// Number of resident pages.
    pub fn len(&self) -> usize {
        self.page_in.len() - self.empty.len()
    }

    /// Whether the page is resident.
    #[expect(clippy::inline_always, reason = "the caller may not need its stack")]
    #[inline(always)]
    pub fn is_resident(&self, page: usize) -> bool {
        self.frame_of[page] != NONE
    }

    /// Makes the page resident.
    pub fn add(&mut self, page: usize) {
        assert!(!self.is_resident(page), "a page is in one frame");
        let frame = self.empty.pop().unwrap_or_else(|| {
            self.page_in.push(NONE);
            (self.page_in.len() - 1) as u32
        });
        self.page_in[frame as usize] = page as u32;
        self.frame_of[page] = frame;
    }

    /// Makes the page not resident.
    pub fn remove(&mut self, page: usize) {
        let frame = core::mem::replace(&mut self.frame_of[page], NONE);
        assert!(frame != NONE, "only a resident page leaves");
        self.page_in[frame as usize] = NONE;
        self.empty.push(frame);
    }

    /// Picks the resident page that leaves next. Another call picks another page.
    pub fn victim(&mut self) -> usize {
        assert!(self.len() > 0, "some page is resident");
        loop {
            let frame = match self.policy {
                Policy::Fifo | Policy::Clock => self.hand,
                Policy::Random => self.rng.below(self.page_in.len() as u64) as usize,
            };
            self.hand = (frame + 1) % self.page_in.len();
            if self.page_in[frame] != NONE {
                return self.page_in[frame] as usize;
            }
        }
    }

    /// Bytes of memory that the records take.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.frame_of[..]) + 2 * size_of_val(&self.page_in[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Brings `pages` one after the other into four frames, and returns the pages that leave.
    fn leave(policy: Policy, pages: &[usize]) -> Vec<usize> {
        let mut frames = Frames::new(16, 4, policy, 7);
        let mut left = vec![];
        for &page in pages {
            if frames.is_resident(page) {
                continue;
            }
            if frames.len() == 4 {
                let victim = frames.victim();
                frames.remove(victim);
                left.push(victim);
            }
            frames.add(page);
        }
        left
    }

    #[test]
    fn pages_leave_first_in_first_out() {
        let pages: Vec<usize> = (0..16).chain(0..16).collect();
        let expected: Vec<usize> = (0..16).chain(0..12).collect();
        assert_eq!(leave(Policy::Fifo, &pages), expected);
        assert_eq!(leave(Policy::Fifo, &[3, 1, 2, 3, 0, 1, 9, 3, 1]), [3, 1, 2]);
    }

    #[test]
    fn random_victims_are_all_pages() {
        let pages: Vec<usize> = (0..16).cycle().take(400).collect();
        let left = leave(Policy::Random, &pages);
        assert!((0..16).all(|page| left.contains(&page)));
        assert_ne!(left, leave(Policy::Fifo, &pages)[..left.len()]);
    }

    #[test]
    fn an_emptied_frame_is_filled_again() {
        let mut frames = Frames::new(16, 4, Policy::Fifo, 0);
        (0..4).for_each(|page| frames.add(page));
        frames.remove(2);
        assert!(!frames.is_resident(2) && frames.len() == 3);
        assert_eq!([frames.victim(), frames.victim(), frames.victim()], [0, 1, 3]);
        frames.add(9);
        assert_eq!([0, 1, 9, 3].map(|_| frames.victim()), [0, 1, 9, 3]);
    }
}
