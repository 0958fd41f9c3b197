//! The reorder buffer.

use super::Config;

/// The end of an instruction that still waits for its data.
pub const NOT_YET: u64 = u64::MAX;

/// The ends of the instructions that were fetched and are not retired, oldest first.
pub struct Rob {
    /// As many places as the next power of two, so that a place is found without a division.
    ends: Box<[u64]>,
    len: usize,
    fetched: u64,
    retired: u64,
}

impl Rob {
    pub fn new(len: usize) -> Self {
        Self { ends: vec![0; len.next_power_of_two()].into(), len, fetched: 0, retired: 0 }
    }

    /// Instructions fetched so far, which is also the number of the next one.
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    pub fn retired(&self) -> u64 {
        self.retired
    }

    #[inline]
    pub fn room(&self) -> usize {
        self.len - (self.fetched - self.retired) as usize
    }

    /// When the oldest instruction ends.
    #[inline]
    pub fn oldest(&self) -> Option<u64> {
        (self.retired < self.fetched).then(|| self.ends[self.place(self.retired)])
    }

    /// Adds `n` instructions that end at `end`.
    #[inline]
    pub fn push(&mut self, n: usize, end: u64) {
        assert!(n <= self.room(), "there is room");
        for _ in 0..n {
            let place = self.place(self.fetched);
            self.ends[place] = end;
            self.fetched += 1;
        }
    }

    /// Sets when an instruction ends that waited for its data.
    pub fn finish(&mut self, instruction: u64, end: u64) {
        let place = self.place(instruction);
        self.ends[place] = end;
    }

    /// Removes the oldest instruction.
    #[inline]
    pub fn retire(&mut self) {
        self.retired += 1;
    }

    /// Whether, after the fetch of cycle `now`, each further cycle is like this one as long as no
    /// instruction waits for memory: equally many instructions are retired and fetched.
    #[inline]
    pub fn is_steady(&self, now: u64, config: &Config) -> bool {
        let (len, rate) = ((self.fetched - self.retired) as usize, config.rate());
        let flowing = rate * (config.depth as usize + 1);
        // A core that could fetch more finds no room; one that could retire more finds no more
        // ended.
        if len < flowing
            || config.fetch > rate && len < self.len
            || config.retire > rate && len > flowing
        {
            return false;
        }
        // Most often it is the oldest that waits.
        if self.oldest().is_none_or(|end| end > now) {
            return false;
        }
        let mut newer = self.fetched;
        for cycle in 0..=config.depth {
            let end = now + config.depth - cycle;
            if (newer - rate as u64..newer).any(|nth| self.ends[self.place(nth)] != end) {
                return false;
            }
            newer -= rate as u64;
        }
        (self.retired..newer).all(|nth| self.ends[self.place(nth)] <= now)
    }

    /// Advances by so many steady cycles, up to `now`.
    pub fn advance(&mut self, now: u64, cycles: u64, config: &Config) {
        let rate = config.rate() as u64;
        self.fetched += cycles * rate;
        self.retired += cycles * rate;
        let mut newer = self.fetched;
        for cycle in 0..=config.depth {
            for nth in newer - rate..newer {
                let place = self.place(nth);
                self.ends[place] = now + config.depth - cycle;
            }
            newer -= rate;
        }
        for nth in self.retired..newer {
            let place = self.place(nth);
            self.ends[place] = now;
        }
    }

    fn place(&self, instruction: u64) -> usize {
        instruction as usize & (self.ends.len() - 1)
    }
}
