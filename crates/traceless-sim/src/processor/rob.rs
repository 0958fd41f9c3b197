//! The reorder buffer.

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

    fn place(&self, instruction: u64) -> usize {
        instruction as usize & (self.ends.len() - 1)
    }
}
