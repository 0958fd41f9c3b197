//! Requests that have arrived and are executed together: reads as one request to the device, and
//! writes as another one. So several are under way at the disk, and writes fill whole trips.

use super::protocol::{Request, cmd};
use traceless_core::types::{Extent, total_len};

/// Most requests of a group, and the longest of them in bytes: a longer one fills the disk's queue
/// by itself.
const REQUESTS_MAX: usize = 64;
const LEN_MAX: u32 = 64 << 10;
/// Bytes of all reads, and of all writes, of a group at most.
const BYTES_MAX: usize = 1 << 20;

/// A group, and buffers that stay for the next one. No read overlaps a write, so that they may be
/// executed in any order.
#[derive(Default)]
pub(super) struct RequestGroup {
    requests: Vec<Request>,
    pub reads: Places,
    pub writes: Places,
}

/// Places on the device, and their bytes back to back.
#[derive(Default)]
pub(super) struct Places {
    pub places: Vec<Extent>,
    pub bytes: Vec<u8>,
}

impl Places {
    /// Adds a place. Returns its bytes, which hold anything.
    pub fn add(&mut self, place: Extent) -> &mut [u8] {
        let at = total_len(&self.places);
        self.places.push(place);
        if self.bytes.len() < at + place.len {
            self.bytes.resize(at + place.len, 0);
        }
        &mut self.bytes[at..at + place.len]
    }

    /// The places, and their bytes.
    pub fn filled(&self) -> (&[Extent], &[u8]) {
        (&self.places, &self.bytes[..total_len(&self.places)])
    }

    /// The places, and their bytes to be filled.
    pub fn unfilled(&mut self) -> (&[Extent], &mut [u8]) {
        let len = total_len(&self.places);
        (&self.places, &mut self.bytes[..len])
    }

    fn has_room(&self, place: Extent) -> bool {
        total_len(&self.places) + place.len <= BYTES_MAX
    }

    fn overlaps(&self, place: Extent) -> bool {
        self.places.iter().any(|other| other.at < place.end() && place.at < other.end())
    }
}

impl RequestGroup {
    /// Begins a new group.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.reads.places.clear();
        self.writes.places.clear();
    }

    /// The requests, in order.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Whether a valid request can be the next of the group.
    pub fn takes(&self, request: &Request) -> bool {
        let place = place_of(request);
        let (own, other) = match request.command {
            cmd::READ => (&self.reads, &self.writes),
            cmd::WRITE => (&self.writes, &self.reads),
            _ => return false,
        };
        (1..=LEN_MAX).contains(&request.len)
            && self.requests.len() < REQUESTS_MAX
            && own.has_room(place)
            && !other.overlaps(place)
    }

    /// Adds a request that the group takes. Returns its bytes: of a write, to be received.
    pub fn add(&mut self, request: Request) -> &mut [u8] {
        self.requests.push(request);
        let places = if request.command == cmd::WRITE { &mut self.writes } else { &mut self.reads };
        places.add(place_of(&request))
    }
}

fn place_of(request: &Request) -> Extent {
    Extent::new(request.offset, request.len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: u16, offset: u64, len: u32) -> Request {
        Request { flags: 0, command, cookie: [0; 8], offset, len }
    }

    #[test]
    fn what_depends_on_another_request_is_of_the_next_group() {
        let mut group = RequestGroup::default();
        for (request, is_taken) in [
            (request(cmd::READ, 8192, 4096), true),
            (request(cmd::READ, 8192, 4096), true),
            (request(cmd::WRITE, 12287, 1), false),
            (request(cmd::WRITE, 12288, 4096), true),
            (request(cmd::WRITE, 12288, 100), true),
            (request(cmd::READ, 12288 + 4096, 1), true),
            (request(cmd::READ, 12288 + 4095, 1), false),
            (request(cmd::FLUSH, 0, 0), false),
            (request(cmd::READ, 0, 0), false),
            (request(cmd::READ, 0, LEN_MAX + 1), false),
        ] {
            assert_eq!(group.takes(&request), is_taken, "{request:?}");
            if is_taken {
                assert_eq!(group.add(request).len(), request.len as usize);
            }
        }
        assert_eq!(group.requests().len(), 5);
        assert_eq!(group.reads.filled().1.len(), 8193);
        assert_eq!(group.writes.filled().0.len(), 2);
        group.clear();
        assert!(group.takes(&request(cmd::WRITE, 8192, 1)));
    }

    #[test]
    fn a_group_has_bounds() {
        let fill = |len| {
            let mut group = RequestGroup::default();
            while group.takes(&request(cmd::WRITE, 0, len)) {
                group.add(request(cmd::WRITE, 0, len));
            }
            group.requests().len()
        };
        assert_eq!((fill(1), fill(LEN_MAX)), (REQUESTS_MAX, BYTES_MAX / LEN_MAX as usize));
    }
}
