//! An array of blocks with accesses that reveal nothing to an observer: the usual entry to the
//! library.
//!
//! ```
//! use traceless::Array;
//!
//! # fn main() -> traceless::Result {
//! let mut array = Array::builder().blocks(1000).block_len(64).build()?;
//! array.write(7, &[1; 64])?;
//! assert_eq!(array.read(7)?, [1; 64]);
//! let sum = array.access(7, |block| {
//!     block[0] = 5;
//!     block.iter().map(|&byte| u32::from(byte)).sum::<u32>()
//! })?;
//! assert_eq!(sum, 68);
//! # Ok(())
//! # }
//! ```
//!
//! With a [`store`](ArrayBuilder::store) the array can be saved and opened again; a crash takes it
//! back to the last [`sync`](Array::sync) or to a later moment at which all was complete.
//!
//! ```
//! use std::sync::Arc;
//! use traceless::Array;
//! use traceless::seal::Secret;
//! use traceless::store::MemStore;
//!
//! # fn main() -> traceless::Result {
//! let builder = || Array::builder().blocks(1000).block_len(64).key(Secret::from_bytes([7; 32]));
//! let store = Arc::new(MemStore::new(builder().store_len()?));
//!
//! let mut array = builder().store(store.clone()).build()?;
//! array.write(7, &[1; 64])?;
//! array.close()?;
//!
//! let mut array = builder().store(store).open()?;
//! assert_eq!(array.read(7)?, [1; 64]);
//! # Ok(())
//! # }
//! ```

mod fixed;

pub use fixed::FixedArray;
pub use traceless_core::scheme::store_vault::{StoreVault, VAULT_LEN};

use crate::oblivious;
use crate::scheme::linear::LinearScheme;
use crate::scheme::path;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::oram::{Hides, Oram};
use traceless_core::rng::{Rng, System};
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::contract::Scheme;
use traceless_core::seal::Secret;
use traceless_core::store::Store;
use traceless_core::types::Addr;

/// Blocks, numbered from 0 on. See the [module](self).
///
/// Dropping an array closes it, but ignores failures; [`close`](Self::close) reports them.
pub struct Array {
    /// `None` only after [`Array::into_oram`] moved it out.
    oram: Option<Box<dyn Oram>>,
}

impl Array {
    /// Begins the description of a new array.
    pub fn builder() -> ArrayBuilder {
        ArrayBuilder {
            blocks: 0,
            block_len: 64,
            scheme: None,
            oblivious: false,
            store: None,
            key: None,
            rng: None,
        }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.oram().blocks()
    }

    /// Bytes in a block.
    pub fn block_len(&self) -> usize {
        self.oram().block_len()
    }

    /// Reads a block. A block that was never written holds zeros.
    pub fn read(&mut self, addr: u64) -> Result<Vec<u8>> {
        let mut block = vec![0; self.block_len()];
        self.oram_mut().read(Addr(addr), &mut block)?;
        Ok(block)
    }

    /// Writes a block.
    pub fn write(&mut self, addr: u64, block: &[u8]) -> Result {
        self.oram_mut().write(Addr(addr), block)
    }

    /// Reads a block, changes it, or both, in one access, which looks like any other. Returns the
    /// value that `visit` returns. An observer can measure how long `visit` takes.
    pub fn access<R>(&mut self, addr: u64, visit: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let (mut visit, mut output) = (Some(visit), None);
        self.oram_mut()
            .update(Addr(addr), &mut |block| output = visit.take().map(|visit| visit(block)))?;
        Ok(output.expect("a scheme calls once"))
    }

    /// Changes a block in one access, which looks like any other.
    pub fn update(&mut self, addr: u64, visit: impl FnOnce(&mut [u8])) -> Result {
        self.access(addr, visit)
    }

    /// Reads blocks in order, back to back, into `into`, which must have exactly their length.
    pub fn read_many(&mut self, addrs: &[u64], into: &mut [u8]) -> Result {
        self.oram_mut().read_many(&addrs_of(addrs), into)
    }

    /// Writes blocks in order from `from`, in which they are back to back.
    pub fn write_many(&mut self, addrs: &[u64], from: &[u8]) -> Result {
        self.oram_mut().write_many(&addrs_of(addrs), from)
    }

    /// Reads or changes blocks in order, as [`access`](Self::access) does one. An observer learns
    /// their number alone. A store is notified of many accesses at once, so that it can read ahead.
    /// `visit` gets the index in `addrs` and the block.
    pub fn access_many(
        &mut self,
        addrs: &[u64],
        mut visit: impl FnMut(usize, &mut [u8]),
    ) -> Result {
        self.oram_mut().update_many(&addrs_of(addrs), &mut visit)
    }

    /// Makes all earlier changes durable.
    pub fn sync(&mut self) -> Result {
        self.oram_mut().sync()
    }

    /// Syncs, and ends the array. If it ends otherwise, as when the program is killed, changes
    /// since the last sync may be lost, and the next opening first gives every block another path:
    /// about three accesses a block or, for the Oblivious client, one for each slot of its tree.
    pub fn close(mut self) -> Result {
        self.oram_mut().close()
    }

    /// What the scheme's claim covers.
    pub fn hides(&self) -> Hides {
        self.oram().hides()
    }

    /// The scheme itself, for callers that work with any scheme.
    pub fn into_oram(mut self) -> Box<dyn Oram> {
        self.oram.take().expect("it is given away once")
    }

    /// This array, with a block length that the compiler knows.
    pub fn fixed<const LEN: usize>(self) -> Result<FixedArray<LEN>> {
        FixedArray::new(self)
    }

    fn new(oram: Box<dyn Oram>) -> Self {
        Self { oram: Some(oram) }
    }

    fn oram(&self) -> &dyn Oram {
        &**self.oram.as_ref().expect("the ORAM is there until `into_oram`")
    }

    fn oram_mut(&mut self) -> &mut dyn Oram {
        &mut **self.oram.as_mut().expect("the ORAM is there until `into_oram`")
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if let Some(oram) = &mut self.oram {
            // A drop cannot report an error. After a failure the array is in the state that a crash
            // would leave.
            let _ = oram.close();
        }
    }
}

fn addrs_of(addrs: &[u64]) -> Vec<Addr> {
    addrs.iter().copied().map(Addr).collect()
}

/// The description of an [`Array`] to be made or opened.
pub struct ArrayBuilder {
    blocks: u64,
    block_len: usize,
    scheme: Option<Arc<dyn Scheme>>,
    oblivious: bool,
    store: Option<Arc<dyn Store>>,
    key: Option<Secret>,
    rng: Option<Box<dyn Rng>>,
}

impl ArrayBuilder {
    /// Number of blocks. Not needed with a [`scheme`](Self::scheme).
    #[must_use]
    pub fn blocks(mut self, blocks: u64) -> Self {
        self.blocks = blocks;
        self
    }

    /// Bytes in a block; the default is 64. Not needed with a [`scheme`](Self::scheme).
    #[must_use]
    pub fn block_len(mut self, block_len: usize) -> Self {
        self.block_len = block_len;
        self
    }

    /// The scheme and all its parameters. The default is Path ORAM, or the linear scheme, which
    /// touches all blocks at each access, where a path would move as many bytes.
    #[must_use]
    pub fn scheme(mut self, scheme: impl Scheme + 'static) -> Self {
        self.scheme = Some(Arc::new(scheme));
        self
    }

    /// Whether an adversary may also watch this program's own memory, as the operating system below
    /// an enclave does: then the array is the [Oblivious client](crate::oblivious). Not needed with
    /// a [`scheme`](Self::scheme).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use traceless::Array;
    /// use traceless::seal::Secret;
    /// use traceless::store::MemStore;
    ///
    /// # fn main() -> traceless::Result {
    /// let key = || Secret::from_bytes([7; 32]);
    /// let builder = || Array::builder().blocks(5000).block_len(64).oblivious(true).key(key());
    /// let store = Arc::new(MemStore::new(builder().store_len()?));
    ///
    /// let mut array = builder().store(store.clone()).build()?;
    /// array.write(7, &[1; 64])?;
    /// array.close()?;
    ///
    /// let mut array = builder().store(store).open()?;
    /// assert_eq!(array.read(7)?, [1; 64]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn oblivious(mut self, oblivious: bool) -> Self {
        self.oblivious = oblivious;
        self
    }

    /// Where the array lies, in at least [`store_len`](Self::store_len) bytes. Without a store it
    /// lies in memory, and cannot be opened again.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// The key under which the array is sealed, and nothing else. Needed with a store.
    #[must_use]
    pub fn key(mut self, key: Secret) -> Self {
        self.key = Some(key);
        self
    }

    /// A source of randomness in place of the operating system's. An adversary that knows its
    /// output learns which blocks are accessed. It must give other numbers each time that an array
    /// is made or opened: otherwise a key seals twice under one nonce.
    #[must_use]
    pub fn rng(mut self, rng: impl Rng + 'static) -> Self {
        self.rng = Some(Box::new(rng));
        self
    }

    /// The scheme that the array will have.
    pub fn chosen_scheme(&self) -> Result<Arc<dyn Scheme>> {
        if let Some(scheme) = &self.scheme {
            scheme.check()?;
            return Ok(scheme.clone());
        }
        let (blocks, block_len) = (self.blocks, self.block_len);
        if self.oblivious {
            return Ok(Arc::new(oblivious::ArrayGeometry::new(blocks, block_len)?));
        }
        let path = path::PathGeometry::new(blocks, block_len)?;
        let all = blocks.saturating_mul(block_len as u64);
        if blocks > 0 && all <= path.read_len() {
            return Ok(Arc::new(LinearScheme { blocks, block_len }));
        }
        Ok(Arc::new(path))
    }

    /// Bytes that the array needs in a store.
    pub fn store_len(&self) -> Result<u64> {
        let len = VAULT_LEN.checked_add(self.chosen_scheme()?.store_len());
        len.ok_or(Error::Geometry("no store is as long"))
    }

    /// Makes a new array of zeros. Earlier contents of the store are lost.
    pub fn build(self) -> Result<Array> {
        let scheme = self.chosen_scheme()?;
        let oram = match self.store {
            Some(_) => scheme.create(self.new_parts()?)?,
            None => scheme.create_in_memory(self.rng_or_system())?,
        };
        Ok(Array::new(oram))
    }

    /// Makes a new array that holds `blocks`, from address 0 on, and zeros after them. The blocks
    /// are collected in memory first. Path ORAM then writes all of them in one pass that reveals
    /// nothing about them, far faster than one access after the other.
    pub fn load<B: AsRef<[u8]>>(self, blocks: impl IntoIterator<Item = B>) -> Result<Array> {
        let scheme = self.chosen_scheme()?;
        let bodies = collect(blocks, &*scheme)?;
        let contents = &mut |addr: Addr, into: &mut [u8]| {
            let at = addr.0 as usize * into.len();
            match bodies.get(at..at + into.len()) {
                Some(block) => into.copy_from_slice(block),
                None => into.fill(0),
            }
        };
        let oram = match self.store {
            Some(_) => scheme.create_filled(self.new_parts()?, contents)?,
            None => scheme.create_in_memory_filled(self.rng_or_system(), contents)?,
        };
        Ok(Array::new(oram))
    }

    /// Opens the array that was made with the same key, and the same scheme or number and length of
    /// blocks.
    pub fn open(mut self) -> Result<Array> {
        let scheme = self.chosen_scheme()?;
        let store = self.store.take().ok_or(NO_STORE)?;
        let key = self.key.take().ok_or(NO_KEY)?;
        let (vault, state) = StoreVault::open(store.clone(), vault_key(&key))?;
        let oram = scheme.open(self.context(store, &key, vault), &state, &mut |_, _| {})?;
        Ok(Array::new(oram))
    }

    fn rng_or_system(self) -> Box<dyn Rng> {
        self.rng.unwrap_or_else(|| Box::new(System))
    }

    /// What a new array in a store is made of.
    fn new_parts(mut self) -> Result<SchemeContext> {
        let len = self.store_len()?;
        let store = self.store.take().ok_or(NO_STORE)?;
        let key = self.key.take().ok_or(NO_KEY)?;
        let vault = StoreVault::create(store.clone(), vault_key(&key), len)?;
        Ok(self.context(store, &key, vault))
    }

    fn context(self, store: Arc<dyn Store>, key: &Secret, vault: StoreVault) -> SchemeContext {
        SchemeContext::after_vault(vault, b"array", store, key, self.rng_or_system())
    }
}

/// The blocks back to back. Refuses a block of another length, and more blocks than there is room
/// for.
fn collect<B: AsRef<[u8]>>(
    blocks: impl IntoIterator<Item = B>,
    scheme: &dyn Scheme,
) -> Result<Vec<u8>> {
    let (mut bodies, want) = (Vec::new(), scheme.block_len());
    for (addr, block) in (0..).map(Addr).zip(blocks) {
        let block = block.as_ref();
        if addr.0 >= scheme.blocks() {
            return Err(Error::OutOfRange { addr, blocks: scheme.blocks() });
        }
        if block.len() != want {
            return Err(Error::WrongLength { want, got: block.len() });
        }
        bodies.extend_from_slice(block);
    }
    Ok(bodies)
}

const NO_STORE: Error = Error::Geometry("it lies in a store");
const NO_KEY: Error = Error::Geometry("what lies in a store is sealed under a key");

fn vault_key(key: &Secret) -> Secret {
    key.derive(&[b"array", b"vault"])
}

#[cfg(test)]
mod tests;
