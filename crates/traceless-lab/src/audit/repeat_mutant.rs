//! A scheme that hides reads, with a fault: a block that was read just before is not read again.

use std::ops::Range;
use std::sync::Mutex;
use traceless::error::Place;
use traceless::oram::Oram;
use traceless::{Addr, BlockOram, Hides, Result};

/// A sound scheme, and the block that was read last, with its contents.
pub struct RepeatMutant {
    inner: Box<dyn BlockOram>,
    last: Mutex<Option<(Addr, Vec<u8>)>>,
}

impl RepeatMutant {
    pub fn new(inner: Box<dyn BlockOram>) -> Self {
        Self { inner, last: Mutex::new(None) }
    }

    fn forget(&self) {
        *self.last.lock().expect("nothing panics under this lock") = None;
    }
}

impl Oram for RepeatMutant {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn block_len(&self) -> usize {
        self.inner.block_len()
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.read_shared(addrs, into)
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        self.forget();
        self.inner.write_many(addrs, from)
    }

    fn sync(&mut self) -> Result {
        self.inner.sync()
    }

    fn hides(&self) -> Hides {
        self.inner.hides()
    }

    fn close(&mut self) -> Result {
        self.inner.close()
    }
}

impl BlockOram for RepeatMutant {
    fn read_shared(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        let mut last = self.last.lock().expect("nothing panics under this lock");
        for (addr, into) in addrs.iter().zip(into.chunks_mut(self.inner.block_len())) {
            match &*last {
                Some((known, block)) if known == addr => into.copy_from_slice(block),
                _ => {
                    self.inner.read_shared(&[*addr], into)?;
                    *last = Some((*addr, into.to_vec()));
                }
            }
        }
        Ok(())
    }

    fn discard(&mut self, blocks: Range<u64>) -> Result {
        self.forget();
        self.inner.discard(blocks)
    }

    fn write_out(&mut self) -> Result {
        self.inner.write_out()
    }

    fn sync_shared(&self) -> Result {
        self.inner.sync_shared()
    }

    fn writes(&self) -> u64 {
        self.inner.writes()
    }

    fn write_dummy(&mut self) -> Result {
        self.inner.write_dummy()
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64), damaged: &mut dyn FnMut(Place)) -> Result {
        self.inner.verify(progress, damaged)
    }
}
