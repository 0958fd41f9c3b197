//! Deterministic write-only schemes with one fault each. An audit that misses one proves nothing.
//!
//! They are the printed write-only algorithm over real sealed bytes, one refresh per write. Without
//! a fault it passes ([`SoundDetWo`]), so what an audit finds in a mutant is the fault.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use traceless::error::{Error, Place};
use traceless::oram::Oram;
use traceless::oram::check_request;
use traceless::scheme::SchemeContext;
use traceless::seal::{Aead, Nonce, Sealer};
use traceless::store::{Area, Run, SlotLayout, Store};
use traceless::{Addr, Hides, Result, Slot};

/// A fault. The default of each method is correct.
pub trait DetWoFault: Send + Sync {
    /// The main blocks, of `n`, that write number `count` refreshes.
    fn refreshes(count: u64, n: u64) -> Range<u64> {
        count % n..count % n + 1
    }

    /// Whether the scheme skips the refresh of a main block that holds the newest copy.
    const SKIPS_CLEAN: bool = false;

    /// Whether several writes to one address in a batch become one.
    const COALESCES: bool = false;
}

/// No fault.
pub struct SoundDetWo;

impl DetWoFault for SoundDetWo {}

/// Skips a refresh that would change nothing. So the number of writes shows how many different
/// blocks are in use: the leak of skipping "clean" pages.
pub struct SkipsCleanRefreshes;

impl DetWoFault for SkipsCleanRefreshes {
    const SKIPS_CLEAN: bool = true;
}

/// The paper's Algorithm 1 as printed: both ends of the refresh range are reduced, so a range that
/// wraps is empty. Nothing leaks, but a block that is never refreshed loses its only copy.
pub struct LiteralWrap;

impl DetWoFault for LiteralWrap {
    fn refreshes(count: u64, n: u64) -> Range<u64> {
        count % n..(count + 1) % n
    }
}

/// Writes a block only once if a batch names it twice. So the length of a batch shows how many
/// different blocks are in it.
pub struct CoalescesDuplicates;

impl DetWoFault for CoalescesDuplicates {
    const COALESCES: bool = true;
}

/// The scheme with the fault `F`. It cannot be opened again.
pub struct Mutant<F> {
    blocks: u64,
    block_len: usize,
    store: Arc<dyn Store>,
    sealer: Aead,
    holding: Half,
    main: Half,
    /// The holding slot of each block's newest copy, until the block is refreshed.
    holding_slots: Vec<Option<u64>>,
    count: u64,
    version: u64,
    fault: PhantomData<F>,
}

/// One area, and the version that each of its slots was sealed with; 0 for a slot never written.
struct Half {
    area: Area,
    versions: Vec<u64>,
}

impl Half {
    fn new(context: &SchemeContext, at: u64, layout: SlotLayout, name: &'static str) -> Self {
        let versions = vec![0; layout.slots as usize];
        Self { area: Area::new(context.store.clone(), at, layout, name), versions }
    }
}

/// One header of 64 entries is exactly 4096 bytes, so that the areas have no gaps.
const STRIPE_SLOTS: u64 = 64;

/// Bytes of a tag.
const TAG_LEN: usize = 16;

fn layout(blocks: u64, block_len: usize) -> SlotLayout {
    SlotLayout { slots: blocks, body_len: block_len, entry_len: 64, stripe_slots: STRIPE_SLOTS }
}

/// Bytes that a mutant takes on its store.
pub fn store_len(blocks: u64, block_len: usize) -> u64 {
    2 * layout(blocks, block_len).len()
}

impl<F: DetWoFault> Mutant<F> {
    /// Makes a new mutant with `blocks` blocks, a multiple of 64; every block reads as zeros.
    pub fn create(blocks: u64, block_len: usize, context: &SchemeContext) -> Self {
        let layout = layout(blocks, block_len);
        Self {
            blocks,
            block_len,
            store: context.store.clone(),
            sealer: Aead::new(&context.key.derive(&[b"mutant"])),
            holding: Half::new(context, context.first, layout, "holding"),
            main: Half::new(context, context.first + layout.len(), layout, "main"),
            holding_slots: vec![None; blocks as usize],
            count: 0,
            version: 0,
            fault: PhantomData,
        }
    }

    /// Reads a block. As in the paper, no address is sealed, so the slot's contents pass for the
    /// block's: lost data shows as wrong data.
    fn fetch(&self, block: u64, into: &mut [u8]) -> Result {
        let (half, slot) = match self.holding_slots[block as usize] {
            Some(slot) => (&self.holding, slot),
            None => (&self.main, block),
        };
        let version = half.versions[slot as usize];
        if version == 0 {
            into.fill(0);
            return Ok(());
        }
        let mut run = Run::default();
        run.add(&half.area, Slot(slot), 1);
        run.read(&*self.store)?;
        let (entry, body) = run.slot(0);
        let place = Place { area: half.area.name(), slot, block: None };
        self.sealer
            .open(Nonce::of_fresh_key(version), &[], body, &entry[..TAG_LEN], into)
            .map_err(|_| Error::Tampered { place })
    }

    fn write_one(&mut self, block: u64, plain: &[u8]) -> Result {
        let slot = self.count % self.blocks;
        let mut run = Run::default();
        run.add(&self.holding.area, Slot(slot), 1);
        self.version += 1;
        seal(&self.sealer, &mut run, self.version, plain);
        self.holding.versions[slot as usize] = self.version;
        self.holding_slots[block as usize] = Some(slot);
        run.write(&*self.store)?;
        for block in F::refreshes(self.count, self.blocks) {
            self.refresh(block)?;
        }
        self.count += 1;
        Ok(())
    }

    fn refresh(&mut self, block: u64) -> Result {
        if F::SKIPS_CLEAN && self.holding_slots[block as usize].is_none() {
            return Ok(());
        }
        let mut plain = vec![0; self.block_len];
        self.fetch(block, &mut plain)?;
        let mut run = Run::default();
        run.add(&self.main.area, Slot(block), 1);
        self.version += 1;
        seal(&self.sealer, &mut run, self.version, &plain);
        self.main.versions[block as usize] = self.version;
        self.holding_slots[block as usize] = None;
        run.write(&*self.store)
    }
}

/// Seals `plain` into the one slot of `run`.
fn seal(sealer: &Aead, run: &mut Run, version: u64, plain: &[u8]) {
    let (entry, body) = run.slot_mut(0);
    entry.fill(0);
    sealer.seal(Nonce::of_fresh_key(version), &[], plain, body, &mut entry[..TAG_LEN]);
}

impl<F: DetWoFault> Oram for Mutant<F> {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, into.len())?;
        let mut blocks = addrs.iter().zip(into.chunks_exact_mut(self.block_len));
        blocks.try_for_each(|(addr, block)| self.fetch(addr.0, block))
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, from.len())?;
        for (i, (addr, block)) in addrs.iter().zip(from.chunks_exact(self.block_len)).enumerate() {
            if F::COALESCES && addrs[i + 1..].contains(addr) {
                continue;
            }
            self.write_one(addr.0, block)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result {
        self.store.sync()
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn close(&mut self) -> Result {
        self.sync()
    }
}
