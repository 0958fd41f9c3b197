//! The ORAM: every call goes to `DetWo`, and each written block is followed by a dummy write.

use crate::detwo::DetWo;
use traceless_core::error::{Place, Result};
use traceless_core::oram::{BlockOram, Hides, Oram, check_request};
use traceless_core::types::Addr;

/// The scheme. See the [module](super).
pub struct Twice(pub(super) DetWo);

impl Oram for Twice {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn block_len(&self) -> usize {
        self.0.block_len()
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.0.read_many(addrs, into)
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks(), self.block_len(), addrs, from.len())?;
        for (addr, block) in addrs.iter().zip(from.chunks(self.block_len())) {
            self.0.write(*addr, block)?;
            self.0.write_dummy()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result {
        self.0.sync()
    }

    fn hides(&self) -> Hides {
        self.0.hides()
    }

    fn close(&mut self) -> Result {
        self.0.close()
    }
}

impl BlockOram for Twice {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.0.read_shared(addrs, into)
    }

    fn write_out(&mut self) -> Result {
        self.0.write_out()
    }

    fn sync_shared(&self) -> Result {
        self.0.sync_shared()
    }

    fn writes(&self) -> u64 {
        self.0.writes() / 2
    }

    fn write_dummy(&mut self) -> Result {
        self.0.write_dummy()?;
        self.0.write_dummy()
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        self.0.verify(progress, damaged)
    }
}
