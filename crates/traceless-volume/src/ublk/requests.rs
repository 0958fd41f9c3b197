//! Translates requests of the block layer for a device.

use rustix::io::Errno;
use traceless_sys::ublk::{
    DISCARD, FLUSH, FORCE, KIND_MASK, READ, Request, SECTOR_LEN, WRITE, WRITE_ZEROES,
};

use crate::guarded::GuardedDevice;

/// A valid request, with its place on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    Read { at: u64, len: usize },
    Write { at: u64, len: usize, force: bool },
    Discard { at: u64, len: u64, force: bool },
    Flush,
}

/// Parses a request. The error is the number that the kernel gets.
pub(super) fn parse(
    request: &Request,
    device: &GuardedDevice,
    len_max: usize,
) -> Result<Work, i32> {
    let kind = request.op_flags & KIND_MASK;
    if kind == FLUSH {
        return Ok(Work::Flush);
    }
    let discards = [DISCARD, WRITE_ZEROES].contains(&kind) && device.keeps_discards();
    if kind != READ && kind != WRITE && !discards {
        return Err(Errno::OPNOTSUPP.raw_os_error());
    }
    // A discard carries no data.
    let len_max = if discards { u64::MAX } else { len_max as u64 };
    let (at, len) = place(request, device.len(), len_max).ok_or(Errno::INVAL.raw_os_error())?;
    if kind == READ {
        return Ok(Work::Read { at, len: len as usize });
    }
    if device.read_only() {
        return Err(Errno::ROFS.raw_os_error());
    }
    let force = request.op_flags & FORCE != 0;
    if discards {
        return Ok(Work::Discard { at, len, force });
    }
    Ok(Work::Write { at, len: len as usize, force })
}

/// First byte and length of a request, if it lies inside the device and is not too long.
fn place(request: &Request, device_len: u64, len_max: u64) -> Option<(u64, u64)> {
    let at = request.start_sector.checked_mul(SECTOR_LEN)?;
    let len = u64::from(request.sectors) * SECTOR_LEN;
    let inside = at.checked_add(len)? <= device_len;
    (inside && len <= len_max).then_some((at, len))
}

impl Work {
    /// Carries the request out. `data` has the length of the request; a write takes its bytes from
    /// it, and a read fills it.
    pub(super) fn execute(self, device: &GuardedDevice, data: &mut [u8]) -> Result<(), i32> {
        let done = match self {
            Self::Read { at, .. } => device.call(|device| device.read(at, data)),
            Self::Write { at, force, .. } => device.call(|device| {
                device.write(at, data)?;
                if force { device.flush() } else { Ok(()) }
            }),
            Self::Discard { at, len, force } => device.call(|device| {
                device.discard(at, len)?;
                if force { device.flush() } else { Ok(()) }
            }),
            Self::Flush => device.flush(),
        };
        done.map_err(fuser::Errno::code)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::device::Device;

    const LEN: usize = 8192;

    /// A device in memory that counts its flushes.
    struct Memory {
        bytes: Mutex<Vec<u8>>,
        flushes: Mutex<u32>,
        read_only: bool,
        keeps_discards: bool,
    }

    impl Memory {
        fn guarded(read_only: bool) -> (Arc<Self>, GuardedDevice) {
            let bytes = Mutex::new(vec![0; LEN]);
            let flushes = Mutex::new(0);
            let memory = Arc::new(Self { bytes, flushes, read_only, keeps_discards: false });
            (memory.clone(), GuardedDevice::new(memory))
        }

        fn with_discards() -> (Arc<Self>, GuardedDevice) {
            let (bytes, flushes) = (Mutex::new(vec![7; LEN]), Mutex::new(0));
            let memory = Arc::new(Self { bytes, flushes, read_only: false, keeps_discards: true });
            (memory.clone(), GuardedDevice::new(memory))
        }
    }

    impl Device for Memory {
        fn len(&self) -> u64 {
            LEN as u64
        }

        fn block_len(&self) -> u32 {
            4096
        }

        fn read_only(&self) -> bool {
            self.read_only
        }

        fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
            into.copy_from_slice(&self.bytes.lock().unwrap()[at as usize..][..into.len()]);
            Ok(())
        }

        fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
            self.bytes.lock().unwrap()[at as usize..][..from.len()].copy_from_slice(from);
            Ok(())
        }

        fn keeps_discards(&self) -> bool {
            self.keeps_discards
        }

        fn flush(&self) -> io::Result<()> {
            *self.flushes.lock().unwrap() += 1;
            Ok(())
        }
    }

    fn request(op_flags: u32, start_sector: u64, sectors: u32) -> Request {
        Request { tag: 0, op_flags, start_sector, sectors }
    }

    /// Carries out a valid request and returns its length.
    fn answer(request: &Request, device: &GuardedDevice, buffer: &mut [u8]) -> Result<usize, i32> {
        let work = parse(request, device, buffer.len())?;
        let len = match work {
            Work::Read { len, .. } | Work::Write { len, .. } => len,
            Work::Discard { .. } | Work::Flush => 0,
        };
        work.execute(device, &mut buffer[..len]).map(|()| len)
    }

    #[test]
    fn what_is_written_is_read() {
        let (_, device) = Memory::guarded(false);
        let mut buffer = [7; 4096];
        assert_eq!(answer(&request(WRITE, 15, 1), &device, &mut buffer), Ok(512));
        buffer.fill(9);
        assert_eq!(answer(&request(READ, 14, 2), &device, &mut buffer), Ok(1024));
        assert_eq!(buffer[..512], [0; 512]);
        assert_eq!(buffer[512..1024], [7; 512]);
        assert_eq!(buffer[1024..], [9; 3072], "no more than was asked for");
    }

    #[test]
    fn only_flushes_reach_the_device_as_flushes() {
        let (memory, device) = Memory::guarded(false);
        let mut buffer = [7; 4096];
        let flushes = || *memory.flushes.lock().unwrap();
        assert_eq!(answer(&request(WRITE, 0, 8), &device, &mut buffer), Ok(4096));
        assert_eq!(flushes(), 0);
        assert_eq!(answer(&request(WRITE | FORCE, 0, 8), &device, &mut buffer), Ok(4096));
        assert_eq!(flushes(), 1);
        assert_eq!(answer(&request(FLUSH, 0, 0), &device, &mut buffer), Ok(0));
        assert_eq!(flushes(), 2);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (_, device) = Memory::guarded(false);
        let invalid = Err(Errno::INVAL.raw_os_error());
        for (start, sectors) in [(16, 1), (15, 2), (0, 9), (u64::MAX, 1), (u64::MAX / 512, 1)] {
            for kind in [READ, WRITE] {
                let parsed = parse(&request(kind, start, sectors), &device, 4096);
                assert_eq!(parsed, invalid, "{start}, {sectors}");
            }
        }
    }

    #[test]
    fn discards_and_unknown_kinds_are_refused() {
        let (_, device) = Memory::guarded(false);
        for kind in [3, 4, 5, 200] {
            let parsed = parse(&request(kind, 0, 8), &device, 4096);
            assert_eq!(parsed, Err(Errno::OPNOTSUPP.raw_os_error()));
        }
    }

    #[test]
    fn discards_longer_than_a_buffer_become_zeros_where_the_device_keeps_them() {
        for kind in [DISCARD, WRITE_ZEROES] {
            let (memory, device) = Memory::with_discards();
            let flushes = || *memory.flushes.lock().unwrap();
            assert_eq!(answer(&request(kind, 1, 8), &device, &mut [7; 512]), Ok(0));
            assert_eq!(flushes(), 0);
            let zeros = |at: usize| memory.bytes.lock().unwrap()[at] == 0;
            assert_eq!([511, 512, 4607, 4608].map(zeros), [false, true, true, false]);
            assert_eq!(answer(&request(kind | FORCE, 15, 1), &device, &mut [7; 512]), Ok(0));
            assert_eq!(flushes(), 1);
            let parsed = parse(&request(kind, 15, 2), &device, 4096);
            assert_eq!(parsed, Err(Errno::INVAL.raw_os_error()), "beyond the end");
        }
    }

    #[test]
    fn a_read_only_device_is_not_written() {
        let (_, device) = Memory::guarded(true);
        let refused = parse(&request(WRITE, 0, 8), &device, 4096);
        assert_eq!(refused, Err(Errno::ROFS.raw_os_error()));
        assert!(parse(&request(READ, 0, 8), &device, 4096).is_ok());
    }
}
