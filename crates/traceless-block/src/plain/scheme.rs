//! Encryption in place as a kind of block scheme.

use super::Plain;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::oram::{BlockOram, Hides, Oram};
use traceless_core::scheme::contract::{
    BlockScheme, Scheme, SchemeKind, SchemeOptions, SharedScheme, Timetable, check_size,
};
use traceless_core::scheme::{Facts, SchemeContext};
use traceless_core::store::SlotLayout;

/// Encryption in place.
pub static PLAIN: SchemeKind = SchemeKind {
    name: "plain",
    about: "Encryption in place: the insecure control",
    code: 1,
    options: &[],
    choose: |blocks, block_len, _: &SchemeOptions| decode(blocks, block_len, &[]),
    decode,
    samples: |blocks, _, block_len| Ok(vec![("in place", decode(blocks, block_len, &[])?)]),
};

/// Blocks the auditor writes between two syncs; the scheme itself has no limit.
const UNSYNCED: u64 = 32;

/// The parameters of [`Plain`]. All of them are public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainScheme {
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: usize,
}

impl Scheme for PlainScheme {
    fn name(&self) -> &'static str {
        PLAIN.name
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn store_len(&self) -> u64 {
        Plain::store_len(self.blocks, self.block_len)
    }

    fn write_amplification(&self) -> f64 {
        Plain::write_amplification(self.block_len)
    }

    fn hides(&self) -> Hides {
        Hides::Nothing
    }

    fn check(&self) -> Result {
        check_size(self.blocks, self.block_len)?;
        if u128::from(self.blocks) * (self.block_len as u128 + 512) > 1 << 62 {
            return Err(Error::Geometry("the image would be larger than 4 EiB"));
        }
        Ok(())
    }

    fn create(&self, context: SchemeContext) -> Result<Box<dyn Oram>> {
        Ok(self.create_block(context)?)
    }

    fn open(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Oram>> {
        Ok(self.open_block(context, state, progress)?)
    }
}

impl BlockScheme for PlainScheme {
    fn kind(&self) -> &'static SchemeKind {
        &PLAIN
    }

    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }

    fn facts(&self, _writes: u64) -> Facts {
        Facts::default()
    }

    fn timetable(&self) -> Timetable {
        Timetable::unscheduled(self, UNSYNCED)
    }

    fn slot_areas(&self) -> Vec<(u64, SlotLayout)> {
        vec![(0, Plain::layout(self.blocks, self.block_len))]
    }

    fn resized(&self, blocks: u64) -> Result<SharedScheme> {
        decode(blocks, self.block_len, &[])
    }

    fn create_block(&self, context: SchemeContext) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(Plain::create(self.blocks, self.block_len, context)?))
    }

    fn open_block(
        &self,
        context: SchemeContext,
        state: &[u8],
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(Plain::open(self.blocks, self.block_len, context, state)?))
    }

    fn peek_state(&self, state: &[u8]) -> Result<(u64, bool)> {
        Plain::peek_state(state)
    }
}

fn decode(blocks: u64, block_len: usize, _parameters: &[u8]) -> Result<SharedScheme> {
    let scheme = PlainScheme { blocks, block_len };
    scheme.check()?;
    Ok(Arc::new(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_cannot_work_are_refused() {
        let check = |blocks, block_len| PlainScheme { blocks, block_len }.check();
        check(1, 64).unwrap();
        // A block takes 512 bytes besides its contents.
        check(1 << 50, 2048).unwrap();
        for (blocks, block_len) in [(0, 512), (1, 100), ((1 << 50) + 1, 64), (1 << 50, 4096)] {
            assert!(matches!(check(blocks, block_len), Err(Error::Geometry(_))), "{blocks}");
            assert!(decode(blocks, block_len, &[]).is_err());
        }
    }
}
