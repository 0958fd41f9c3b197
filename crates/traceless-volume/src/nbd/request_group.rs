//! Requests that have arrived and are executed together: writes as one request to the device, and
//! reads as another one. So several are under way at the disk, and writes fill whole trips.
//!
//! What a group takes depends on lengths, numbers and what has arrived, not on addresses: groups of
//! writes show in the image. All requests of a group are in flight at once, so that their order is
//! free: writes come first, in their order, and reads see them.

use super::protocol::{Request, cmd, cmd_flag};
use crate::device::Device;
use std::io;
use traceless_core::types::{Extent, total_len};

/// Most requests of a group, and the longest of them in bytes: a longer one fills the disk's queue
/// by itself.
const REQUESTS_MAX: usize = 64;
const LEN_MAX: u32 = 64 << 10;
/// Bytes of all reads, and of all writes, of a group at most.
const BYTES_MAX: usize = 1 << 20;

/// A group, and buffers that stay for the next one.
#[derive(Default)]
pub(super) struct RequestGroup {
    requests: Vec<Request>,
    reads: Places,
    writes: Places,
}

/// Places on the device, and their bytes back to back.
#[derive(Default)]
struct Places {
    places: Vec<Extent>,
    bytes: Vec<u8>,
}

impl Places {
    /// Adds a place. Returns its bytes, which hold anything.
    fn add(&mut self, place: Extent) -> &mut [u8] {
        let at = total_len(&self.places);
        self.places.push(place);
        if self.bytes.len() < at + place.len {
            self.bytes.resize(at + place.len, 0);
        }
        &mut self.bytes[at..at + place.len]
    }

    fn has_room(&self, place: Extent) -> bool {
        total_len(&self.places) + place.len <= BYTES_MAX
    }

    /// Writes all places together; if that fails, each alone, so that only what fails by itself
    /// does. Returns the outcome of each.
    fn write(&self, device: &dyn Device) -> Vec<io::Result<()>> {
        let bytes = &self.bytes[..total_len(&self.places)];
        if self.places.is_empty() || device.write_many(&self.places, bytes).is_ok() {
            return self.places.iter().map(|_| Ok(())).collect();
        }
        let mut rest = bytes;
        let each = self.places.iter().map(|place| {
            let (own, next) = rest.split_at(place.len);
            rest = next;
            device.write(place.at, own)
        });
        each.collect()
    }

    /// Reads all places in the same way.
    fn read(&mut self, device: &dyn Device) -> Vec<io::Result<()>> {
        let bytes = &mut self.bytes[..total_len(&self.places)];
        if self.places.is_empty() || device.read_many(&self.places, bytes).is_ok() {
            return self.places.iter().map(|_| Ok(())).collect();
        }
        let mut rest = bytes;
        let each = self.places.iter().map(|place| {
            let (own, next) = core::mem::take(&mut rest).split_at_mut(place.len);
            rest = next;
            device.read(place.at, own)
        });
        each.collect()
    }
}

impl RequestGroup {
    /// Begins a new group.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.reads.places.clear();
        self.writes.places.clear();
    }

    /// Whether a valid request can be the next of the group.
    pub fn takes(&self, request: &Request) -> bool {
        let places = match request.command {
            cmd::READ => &self.reads,
            cmd::WRITE => &self.writes,
            _ => return false,
        };
        (1..=LEN_MAX).contains(&request.len)
            && self.requests.len() < REQUESTS_MAX
            && places.has_room(place_of(request))
    }

    /// Adds a request that the group takes. Returns its bytes: of a write, to be received.
    pub fn add(&mut self, request: Request) -> &mut [u8] {
        self.requests.push(request);
        let places = match request.command {
            cmd::WRITE => &mut self.writes,
            _ => &mut self.reads,
        };
        places.add(place_of(&request))
    }

    /// Executes all requests. Returns each, in order, with its data or the reason of its failure.
    pub fn execute(
        &mut self,
        device: &dyn Device,
    ) -> impl Iterator<Item = (&Request, io::Result<&[u8]>)> {
        let mut written = self.writes.write(device);
        let is_write = |request: &&Request| request.command == cmd::WRITE;
        let mut writes = self.requests.iter().filter(is_write);
        if writes.any(|request| request.flags & cmd_flag::FUA != 0)
            && let Err(error) = device.flush()
        {
            // None of them is known to be durable.
            written = written.into_iter().map(|_| Err(copy_of(&error))).collect();
        }
        let mut read = self.reads.read(device).into_iter();
        let (mut written, mut data) = (written.into_iter(), &self.reads.bytes[..]);
        self.requests.iter().map(move |request| {
            if request.command == cmd::WRITE {
                let outcome = written.next().expect("each write has an outcome");
                return (request, outcome.map(|()| &data[..0]));
            }
            let (own, rest) = data.split_at(request.len as usize);
            data = rest;
            (request, read.next().expect("each read has an outcome").map(|()| own))
        })
    }
}

/// The same failure once more: its number, or its kind and text.
fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

fn place_of(request: &Request) -> Extent {
    Extent::new(request.offset, request.len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::memory::Memory;
    use rustix::io::Errno;

    fn request(command: u16, offset: u64, len: u32) -> Request {
        Request { flags: 0, command, cookie: [0; 8], offset, len }
    }

    #[test]
    fn what_a_group_takes_depends_on_kinds_and_lengths_alone() {
        let mut group = RequestGroup::default();
        for (request, is_taken) in [
            (request(cmd::READ, 8192, 4096), true),
            (request(cmd::READ, 8192, 4096), true),
            (request(cmd::WRITE, 12287, 1), true),
            (request(cmd::WRITE, 12287, 100), true),
            (request(cmd::FLUSH, 0, 0), false),
            (request(cmd::TRIM, 0, 4096), false),
            (request(cmd::READ, 0, 0), false),
            (request(cmd::READ, 0, LEN_MAX + 1), false),
        ] {
            assert_eq!(group.takes(&request), is_taken, "{request:?}");
            if is_taken {
                assert_eq!(group.add(request).len(), request.len as usize);
            }
        }
        assert_eq!(group.requests.len(), 4);
    }

    #[test]
    fn a_group_has_bounds() {
        let fill = |len| {
            let mut group = RequestGroup::default();
            while group.takes(&request(cmd::WRITE, 0, len)) {
                group.add(request(cmd::WRITE, 0, len));
            }
            group.requests.len()
        };
        assert_eq!((fill(1), fill(LEN_MAX)), (REQUESTS_MAX, BYTES_MAX / LEN_MAX as usize));
    }

    /// A device with a damaged place.
    struct Damaged {
        memory: Memory,
        at: u64,
    }

    impl Damaged {
        fn check(&self, at: u64, len: usize) -> io::Result<()> {
            let is_hit = at <= self.at && self.at < at + len as u64;
            if is_hit { Err(Errno::IO.into()) } else { Ok(()) }
        }
    }

    impl Device for Damaged {
        fn len(&self) -> u64 {
            self.memory.len()
        }

        fn block_len(&self) -> u32 {
            self.memory.block_len()
        }

        fn read_only(&self) -> bool {
            false
        }

        fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
            self.check(at, into.len())?;
            self.memory.read(at, into)
        }

        fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
            self.check(at, from.len())?;
            self.memory.write(at, from)
        }

        fn flush(&self) -> io::Result<()> {
            self.memory.flush()
        }
    }

    #[test]
    fn only_requests_for_what_is_damaged_fail() {
        let device = Damaged { memory: Memory::new(8192), at: 100 };
        let mut group = RequestGroup::default();
        // Twice, as buffers stay.
        for byte in [1, 2] {
            group.clear();
            for (command, at) in [
                (cmd::READ, 0),
                (cmd::WRITE, 0),
                (cmd::WRITE, 98),
                (cmd::WRITE, 200),
                (cmd::READ, 99),
                (cmd::READ, 200),
            ] {
                let bytes = group.add(request(command, at, 4));
                if command == cmd::WRITE {
                    bytes.fill(byte);
                }
            }
            let outcomes = group.execute(&device);
            let outcomes: Vec<_> =
                outcomes.map(|(_, outcome)| outcome.map(<[u8]>::to_vec).ok()).collect();
            let data = Some(vec![byte; 4]);
            let done = Some(vec![]);
            assert_eq!(outcomes, [data.clone(), done.clone(), None, done, None, data]);
        }
    }

    #[test]
    fn writes_are_not_acknowledged_without_their_flush() {
        struct Unsynced(Memory);

        impl Device for Unsynced {
            fn len(&self) -> u64 {
                self.0.len()
            }

            fn block_len(&self) -> u32 {
                self.0.block_len()
            }

            fn read_only(&self) -> bool {
                false
            }

            fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
                self.0.read(at, into)
            }

            fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
                self.0.write(at, from)
            }

            fn flush(&self) -> io::Result<()> {
                Err(Errno::ROFS.into())
            }
        }

        let device = Unsynced(Memory::new(4096));
        let mut group = RequestGroup::default();
        group.add(request(cmd::WRITE, 0, 1));
        group.add(Request { flags: cmd_flag::FUA, ..request(cmd::WRITE, 1, 1) });
        group.add(request(cmd::READ, 9, 1));
        let outcomes = group.execute(&device).map(|(_, outcome)| outcome.is_ok());
        assert_eq!(outcomes.collect::<Vec<_>>(), [false, false, true]);
    }
}
