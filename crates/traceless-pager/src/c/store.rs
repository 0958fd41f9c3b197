//! The caller's functions as a store.

use super::{Refusal, StoreTable};
use crate::slots::Salts;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ffi::{c_int, c_void};
use traceless::error::{Error, Result};
use traceless::rng::{Rng, Salt};
use traceless::seal::Secret;
use traceless::store::Store;
use traceless::types::Extent;

/// A store that the caller's functions read and write.
pub struct Callbacks {
    context: *mut c_void,
    read: unsafe extern "C" fn(*mut c_void, u64, *mut u8, usize) -> c_int,
    write: unsafe extern "C" fn(*mut c_void, u64, *const u8, usize) -> c_int,
    random: unsafe extern "C" fn(*mut c_void, *mut u8, usize) -> c_int,
    len: u64,
}

// SAFETY: the caller promises with the table that its functions may be called on any thread that
// calls functions of this library; the context is passed to them and to nothing else.
unsafe impl Send for Callbacks {}
// SAFETY: the same promise covers calls from several threads at the same time.
unsafe impl Sync for Callbacks {}

const FAILED: Error = Error::Store("a function of the caller's table failed");

impl Callbacks {
    /// A store of `len` bytes.
    ///
    /// # Safety
    ///
    /// The functions of the table do what the header says, as long as this lives.
    pub unsafe fn new(table: &StoreTable, len: u64) -> Result<Self, Refusal> {
        let (Some(read), Some(write), Some(random)) = (table.read, table.write, table.random)
        else {
            return Err(Refusal::Invalid);
        };
        Ok(Self { context: table.context, read, write, random, len })
    }
}

/// Salts from the caller's source of randomness. If it fails the salts are zeros: then versions
/// alone make nonces unique, except against copies of this memory, which repeat versions.
pub struct CallerSalts(pub Arc<Callbacks>);

impl Salts for CallerSalts {
    fn draw(&self) -> Salt {
        let (table, mut bytes) = (&*self.0, [0; Salt::LEN]);
        // SAFETY: the caller promised this with the table; the bytes are there.
        let outcome = unsafe { (table.random)(table.context, bytes.as_mut_ptr(), bytes.len()) };
        Salt::from_bytes(if outcome == 0 { bytes } else { [0; Salt::LEN] })
    }
}

/// The generator of a tree, which draws only salts from it.
impl Rng for CallerSalts {
    fn fill(&mut self, out: &mut [u8]) {
        for part in out.chunks_mut(Salt::LEN) {
            part.copy_from_slice(&self.draw().to_bytes()[..part.len()]);
        }
    }

    fn fork(&mut self) -> Box<dyn Rng> {
        Box::new(Self(self.0.clone()))
    }
}

/// A secret from the caller's source of randomness.
///
/// # Safety
///
/// The functions of the table do what the header says.
pub unsafe fn secret_from(table: &StoreTable) -> Result<Secret, Refusal> {
    let random = table.random.ok_or(Refusal::Invalid)?;
    let mut bytes = [0; traceless::seal::SECRET_LEN];
    // SAFETY: as the caller promises; the bytes are there.
    let outcome = unsafe { random(table.context, bytes.as_mut_ptr(), bytes.len()) };
    let secret = Secret::from_bytes(bytes);
    zeroize::Zeroize::zeroize(&mut bytes);
    if outcome == 0 { Ok(secret) } else { Err(Refusal::Random) }
}

impl Store for Callbacks {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        let mut rest = into;
        for extent in extents {
            let (part, behind) = rest.split_at_mut(extent.len);
            // SAFETY: the caller of `new` promised this; the bytes are there.
            let code =
                unsafe { (self.read)(self.context, extent.at, part.as_mut_ptr(), part.len()) };
            if code != 0 {
                return Err(FAILED);
            }
            rest = behind;
        }
        Ok(())
    }

    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        let mut rest = from;
        for extent in extents {
            let (part, behind) = rest.split_at(extent.len);
            // SAFETY: the caller of `new` promised this; the bytes are there.
            let code = unsafe { (self.write)(self.context, extent.at, part.as_ptr(), part.len()) };
            if code != 0 {
                return Err(FAILED);
            }
            rest = behind;
        }
        Ok(())
    }

    fn sync(&self) -> Result {
        Ok(())
    }
}
