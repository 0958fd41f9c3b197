//! The reorder buffer.

use super::Config;

/// When an instruction ends that still waits for its data.
pub const NOT_YET: u64 = u64::MAX;

/// The instructions that were fetched and are not retired, oldest first: when each ends.
pub struct Rob {
    /// A power of two of places, so that a place is found without a division.
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

    /// When the oldest ends.
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

    /// Tells when an instruction ends that waited.
    pub fn finish(&mut self, instruction: u64, end: u64) {
        let place = self.place(instruction);
        self.ends[place] = end;
    }

    /// Removes the oldest.
    #[inline]
    pub fn retire(&mut self) {
        self.retired += 1;
    }

    /// Whether, after the fetch of cycle `now`, each further cycle is as this one as long as no
    /// instruction waits for memory: as many are retired as fetched.
    #[inline]
    pub fn is_steady(&self, now: u64, config: &Config) -> bool {
        let (len, rate) = ((self.fetched - self.retired) as usize, config.rate());
        let flowing = rate * (config.depth as usize + 1);
        // Who could fetch more finds no room, and who could retire more finds no more.
        if len < flowing
            || config.fetch > rate && len < self.len
            || config.retire > rate && len > flowing
        {
            return false;
        }
        let end = |age: usize| self.ends[self.place(self.fetched - 1 - age as u64)];
        (0..flowing).all(|age| end(age) == now + config.depth - (age / rate) as u64)
            && (flowing..len).all(|age| end(age) <= now)
    }

    /// So many steady cycles pass until `now`.
    pub fn go_on(&mut self, now: u64, cycles: u64, config: &Config) {
        let (len, rate) = ((self.fetched - self.retired) as usize, config.rate());
        self.fetched += cycles * rate as u64;
        self.retired += cycles * rate as u64;
        for age in 0..len {
            let place = self.place(self.fetched - 1 - age as u64);
            self.ends[place] = (now + config.depth).saturating_sub((age / rate) as u64);
        }
    }

    fn place(&self, instruction: u64) -> usize {
        instruction as usize & (self.ends.len() - 1)
    }
}
