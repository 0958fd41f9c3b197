// The scheme. Documentation includes this file, so it has no inner comment.

use std::sync::Arc;
use traceless_core::oram::{Oram, check_request};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::contract::Scheme;
use traceless_core::store::Store;
use traceless_core::{Addr, Extent, Hides, Result};

/// Bytes of a block.
pub const BLOCK_LEN: usize = 64;

/// The parameters: how many blocks there are.
#[derive(Clone, Copy, Debug)]
pub struct Scan(pub u64);

struct ScanOram {
    scheme: Scan,
    store: Arc<dyn Store>,
    first: u64,
}

impl ScanOram {
    fn scan(&self, change: impl FnOnce(&mut [u8])) -> Result {
        let all = Extent::new(self.first, self.scheme.store_len() as usize);
        let mut bytes = vec![0; all.len];
        self.store.read(&[all], &mut bytes)?;
        change(&mut bytes);
        self.store.write(&[all], &bytes)
    }
}

impl Oram for ScanOram {
    fn blocks(&self) -> u64 {
        self.scheme.0
    }

    fn block_len(&self) -> usize {
        BLOCK_LEN
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.blocks(), BLOCK_LEN, addrs, into.len())?;
        self.scan(|bytes| {
            for (addr, block) in addrs.iter().zip(into.chunks_mut(BLOCK_LEN)) {
                block.copy_from_slice(&bytes[addr.0 as usize * BLOCK_LEN..][..BLOCK_LEN]);
            }
        })
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks(), BLOCK_LEN, addrs, from.len())?;
        self.scan(|bytes| {
            for (addr, block) in addrs.iter().zip(from.chunks(BLOCK_LEN)) {
                bytes[addr.0 as usize * BLOCK_LEN..][..BLOCK_LEN].copy_from_slice(block);
            }
        })
    }

    fn sync(&mut self) -> Result {
        self.store.sync()
    }

    fn hides(&self) -> Hides {
        self.scheme.hides()
    }

    fn close(&mut self) -> Result {
        self.sync()
    }
}

impl Scheme for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn blocks(&self) -> u64 {
        self.0
    }

    fn block_len(&self) -> usize {
        BLOCK_LEN
    }

    fn store_len(&self) -> u64 {
        self.0 * BLOCK_LEN as u64
    }

    fn write_amplification(&self) -> f64 {
        self.0 as f64
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn create(&self, context: SchemeContext) -> Result<Box<dyn Oram>> {
        context.check(self.store_len())?;
        let SchemeContext { store, first, .. } = context;
        Ok(Box::new(ScanOram { scheme: *self, store, first }))
    }

    fn open(
        &self,
        context: SchemeContext,
        _state: &[u8],
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Oram>> {
        self.create(context)
    }
}
