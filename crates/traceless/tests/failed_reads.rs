//! The conformance suite notices an array that misbehaves after a failed read.
#![cfg(feature = "suite")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use traceless::oram::Oram;
use traceless::rng::SeededRng;
use traceless::scheme::SchemeContext;
use traceless::scheme::contract::Scheme;
use traceless::scheme::path::PathGeometry;
use traceless::store::MemStore;
use traceless::suite::{FailingReads, continues_after_failed_read};
use traceless::{Addr, Error, Hides, Result};

/// An array that misbehaves after its first error.
struct Mutant {
    oram: Box<dyn Oram>,
    fault: fn(&mut dyn Oram) -> Result,
    is_hit: bool,
}

impl Mutant {
    fn run(&mut self, access: impl FnOnce(&mut dyn Oram) -> Result) -> Result {
        if self.is_hit {
            (self.fault)(&mut *self.oram)?;
        }
        access(&mut *self.oram).inspect_err(|_| self.is_hit = true)
    }
}

impl Oram for Mutant {
    fn blocks(&self) -> u64 {
        self.oram.blocks()
    }
    fn block_len(&self) -> usize {
        self.oram.block_len()
    }
    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        self.run(|oram| oram.read_many(addrs, into))
    }
    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        self.run(|oram| oram.write_many(addrs, from))
    }
    fn sync(&mut self) -> Result {
        self.run(|oram| oram.sync())
    }
    fn hides(&self) -> Hides {
        self.oram.hides()
    }
    fn close(&mut self) -> Result {
        self.run(|oram| oram.close())
    }
}

fn is_noticed(fault: fn(&mut dyn Oram) -> Result) -> bool {
    let scheme = PathGeometry::new(40, 16).unwrap();
    let store = Arc::new(FailingReads::new(Arc::new(MemStore::new(scheme.store_len()))));
    let context = SchemeContext::over(store.clone(), Box::new(SeededRng::new(2)));
    let oram = scheme.create(context).unwrap();
    let mut mutant = Mutant { oram, fault, is_hit: false };
    let mut model = vec![0; 40 * 16];
    let lived = catch_unwind(AssertUnwindSafe(|| {
        continues_after_failed_read(&mut mutant, &store, 5, &mut model)
    }));
    lived.is_err()
}

#[test]
fn planted_faults_are_noticed() {
    assert!(!is_noticed(|_| Ok(())));
    assert!(is_noticed(|_| Err(Error::Poisoned)), "all is refused afterwards");
    assert!(is_noticed(|oram| oram.write(Addr(3), &[7; 16])), "a block is lost");
}
