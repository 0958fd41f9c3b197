//! Requests that wait, in the order in which they came.

use core::ops::Index;

/// A line that is to be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The byte that was asked for. Only a request for the same one becomes part of this, as in
    /// USIMM: who asks for bytes within lines makes a request of each.
    pub addr: u64,
    /// Whoever asked knows it by this.
    pub ticket: u64,
    /// When it was queued.
    pub arrived: u64,
    /// Which rank.
    pub rank: usize,
    /// Which group of banks, counted through all ranks.
    pub group: usize,
    /// Which bank, counted through all ranks.
    pub bank: usize,
    /// Which row.
    pub row: u32,
}

/// Requests in the order in which they came. One that was served stays until the next command may
/// go out: so long it is found, and takes up room.
#[derive(Default)]
pub struct Queue {
    requests: Vec<Request>,
    /// Their bytes, together, since each newcomer is compared with all.
    addrs: Vec<u64>,
    served: Option<usize>,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter()
    }

    /// Whether a request for the byte waits.
    #[inline]
    pub fn holds(&self, addr: u64) -> bool {
        self.addrs.contains(&addr)
    }

    pub fn push(&mut self, request: Request) {
        self.requests.push(request);
        self.addrs.push(request.addr);
    }

    /// Marks a request as served.
    pub fn serve(&mut self, nth: usize) {
        self.served = Some(nth);
    }

    /// Removes what was served.
    pub fn remove_served(&mut self) {
        if let Some(nth) = self.served.take() {
            self.requests.remove(nth);
            self.addrs.remove(nth);
        }
    }
}

impl Index<usize> for Queue {
    type Output = Request;
    fn index(&self, nth: usize) -> &Request {
        &self.requests[nth]
    }
}
