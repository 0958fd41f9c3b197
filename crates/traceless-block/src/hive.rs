//! HIVE: a write-only ORAM that writes random slots and looks up in the map whether a slot is free.
//!
//! The entry of a slot names the block that the slot holds (the *reverse map*, sealed). A slot is
//! free if it was never written, if the map has that block elsewhere, or if the stash holds newer
//! contents of that block. So a write reads each of the k slots drawn, and, if the map lies on the
//! store, also the map blocks of the blocks found in these slots.
//!
//! Work: E.-O. Blass, T. Mayberry, G. Noubir, K. Onarlioglu: Toward Robust Hidden Volumes Using
//! Write-Only Oblivious RAM, CCS 2014. docs/papers.md lists what differs. The machinery, crash
//! safety and freshness come from [`random`](super::random).
//!
//! A volume in memory is written, closed, and opened again from the state in its vault:
//!
//! ```
//! use traceless_block::hive::HiveScheme;
//! use traceless_block::random::RandomGeometry;
//! use traceless_core::Addr;
//! use traceless_core::durable::MemVault;
//! use traceless_core::rng::System;
//! use traceless_core::scheme::SchemeContext;
//! use traceless_core::scheme::contract::Scheme;
//! use traceless_core::seal::Secret;
//! # use std::sync::Arc;
//! # use traceless_core::store::MemStore;
//!
//! # fn main() -> traceless_core::Result {
//! let scheme = HiveScheme::new(RandomGeometry::new(1000, 4096, 0)?);
//! let vault = MemVault::default();
//! # let store = Arc::new(MemStore::new(scheme.store_len()));
//! let context = || SchemeContext {
//!     key: Secret::from_bytes([7; 32]),
//!     vault: Box::new(vault.clone()),
//!     ..SchemeContext::over(store.clone(), Box::new(System))
//! };
//! let mut oram = scheme.create(context())?;
//! oram.write(Addr(7), &[1; 4096])?;
//! oram.close()?;
//!
//! let mut oram = scheme.open(context(), &vault.kept(), &mut |_, _| {})?;
//! let mut block = [0; 4096];
//! oram.read(Addr(7), &mut block)?;
//! assert_eq!(block, [1; 4096]);
//! # Ok(())
//! # }
//! ```

use super::random::{RandomScheme, RandomSlots, Vacancy};
use traceless_core::scheme::contract::SchemeKind;

/// The scheme. See the [module](self).
pub type Hive = RandomSlots<ReverseMap>;

/// The scheme with its parameters.
pub type HiveScheme = RandomScheme<ReverseMap>;

/// Random slots; the map is looked up to find out which are free.
pub static HIVE: SchemeKind = SchemeKind {
    name: "hive",
    about: "HIVE: random slots. For comparison: slower, and twice the size",
    code: 4,
    options: &[],
    choose: HiveScheme::choose,
    decode: HiveScheme::decode,
    samples: HiveScheme::samples,
};

/// Keeps no record of free slots: entries and the map decide.
pub struct ReverseMap;

impl Vacancy for ReverseMap {
    const KIND: &'static SchemeKind = &HIVE;
    const KEEPS_RECORD: bool = false;

    fn new(_: u64) -> Self {
        Self
    }

    fn is_free(&self, _: u64) -> Option<bool> {
        None
    }

    fn fill(&mut self, _: u64) {}

    fn release(&mut self, _: u64) {}
}
