//! A hidden volume as a device that front ends serve.

use crate::device::Device;
use crate::error::Error;
use rustix::io::Errno;
use std::io;
use std::sync::Mutex;
use traceless_block::deniable::HiddenVolume;
use traceless_core::types::Addr;

/// Blocks that go through one request to the lane.
const BLOCKS_PER_REQUEST: u64 = 64;

/// The device of an open hidden volume. A flush waits until the public volume's writes have filled
/// enough slots, so it takes as long as they are away.
pub struct HiddenDevice {
    volume: HiddenVolume,
    /// Held while part of a block is changed.
    parts: Mutex<()>,
}

impl HiddenDevice {
    /// The device of `volume`.
    pub fn new(volume: HiddenVolume) -> Self {
        Self { volume, parts: Mutex::new(()) }
    }

    fn block_bytes(&self) -> u64 {
        self.volume.block_len() as u64
    }

    fn check(&self, at: u64, len: usize, past_end: Errno) -> io::Result<()> {
        match at.checked_add(len as u64) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(past_end.into()),
        }
    }

    /// Calls `act` with the blocks of each part of a request, the bytes before it in its first
    /// block, and where it lies in the request.
    fn parts(
        &self,
        at: u64,
        len: usize,
        mut act: impl FnMut(&[Addr], usize, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (bytes, end) = (self.block_bytes(), at + len as u64);
        let mut from = at;
        while from < end {
            let first = from / bytes;
            let to = end.min((first + BLOCKS_PER_REQUEST) * bytes);
            let addrs: Vec<_> = (first..to.div_ceil(bytes)).map(Addr).collect();
            let within = (from - first * bytes) as usize;
            act(&addrs, within, (from - at) as usize..(to - at) as usize)?;
            from = to;
        }
        Ok(())
    }
}

fn failed(e: traceless_core::Error) -> io::Error {
    Error::from(e).into_io()
}

impl Device for HiddenDevice {
    fn len(&self) -> u64 {
        self.volume.blocks() * self.block_bytes()
    }

    fn block_len(&self) -> u32 {
        u32::try_from(self.volume.block_len()).expect("at most 1 MiB")
    }

    fn read_only(&self) -> bool {
        self.volume.is_read_only()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.check(at, into.len(), Errno::INVAL)?;
        self.parts(at, into.len(), |addrs, within, range| {
            let mut blocks = vec![0; addrs.len() * self.volume.block_len()];
            self.volume.read(addrs, &mut blocks).map_err(failed)?;
            let len = range.len();
            into[range].copy_from_slice(&blocks[within..within + len]);
            Ok(())
        })
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.check(at, from.len(), Errno::NOSPC)?;
        let _held = self.parts.lock().expect("nothing panics under this lock");
        self.parts(at, from.len(), |addrs, within, range| {
            let mut blocks = vec![0; addrs.len() * self.volume.block_len()];
            if range.len() < blocks.len() {
                self.volume.read(addrs, &mut blocks).map_err(failed)?;
            }
            blocks[within..within + range.len()].copy_from_slice(&from[range]);
            self.volume.write(addrs, &blocks).map_err(failed)
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.volume.flush().map_err(failed)
    }
}
