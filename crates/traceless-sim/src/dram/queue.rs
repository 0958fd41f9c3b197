//! The queue of requests to a channel, in the order of their arrival.

use core::ops::Index;

/// A line that is to be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The requested byte. Only a request for the same byte is merged with this one, as in USIMM: a
    /// caller that requests different bytes of a line makes a request of each.
    pub addr: u64,
    /// The caller's name for the request.
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

/// Requests in the order of their arrival. A served request stays until the next command may go
/// out: until then it is still found, and takes up room.
#[derive(Default)]
pub struct Queue {
    requests: Vec<Request>,
    /// The `addr` of each request, stored together because each new request is compared with all.
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

    /// Whether a request for the byte waits, or was served last.
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

    /// Removes the request that was served last.
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
