//! Arrays with a block length that the compiler knows.

use super::Array;
use traceless_core::error::{Error, Result};

/// An [`Array`] of blocks of `LEN` bytes.
///
/// ```
/// # fn main() -> traceless::Result {
/// let mut counters = traceless::Array::builder().blocks(100).block_len(8).build()?.fixed::<8>()?;
/// counters.access(3, |bytes| *bytes = (u64::from_le_bytes(*bytes) + 1).to_le_bytes())?;
/// assert_eq!(u64::from_le_bytes(counters.read(3)?), 1);
/// # Ok(())
/// # }
/// ```
pub struct FixedArray<const LEN: usize>(Array);

impl<const LEN: usize> FixedArray<LEN> {
    pub(super) fn new(array: Array) -> Result<Self> {
        let got = array.block_len();
        if got == LEN { Ok(Self(array)) } else { Err(Error::WrongLength { want: LEN, got }) }
    }

    /// As [`Array::blocks`].
    pub fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    /// As [`Array::read`].
    pub fn read(&mut self, addr: u64) -> Result<[u8; LEN]> {
        self.access(addr, |block| *block)
    }

    /// As [`Array::write`].
    pub fn write(&mut self, addr: u64, block: &[u8; LEN]) -> Result {
        self.access(addr, |old| *old = *block)
    }

    /// As [`Array::access`].
    pub fn access<R>(&mut self, addr: u64, visit: impl FnOnce(&mut [u8; LEN]) -> R) -> Result<R> {
        self.0.access(addr, |block| visit(block.try_into().expect("the length was checked")))
    }

    /// The array, for batches, syncs and the rest.
    pub fn array(&mut self) -> &mut Array {
        &mut self.0
    }

    /// As [`Array::close`].
    pub fn close(self) -> Result {
        self.0.close()
    }
}
