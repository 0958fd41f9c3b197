//! Shared test code of the schemes: a store in memory with everything needed to reopen it, and ways
//! to damage it.
//!
//! One slot of a scheme's store is damaged, and put back from a copy:
//!
//! ```
//! use traceless_core::store::SlotLayout;
//! use traceless_core::suite::rig::{Rig, damage, put_back};
//! use traceless_core::types::Slot;
//!
//! let layout = SlotLayout { slots: 100, body_len: 64, entry_len: 16, stripe_slots: 10 };
//! let mut rig = Rig::with_room(layout, layout.len());
//! let context = rig.context(rig.store.clone(), false);
//! let area = context.area(("main", 0, layout.len()), layout);
//! let sound = rig.store.snapshot();
//!
//! damage(&*rig.store, &area, Slot(3));
//! assert_ne!(rig.store.snapshot(), sound);
//! put_back(&*rig.store, &sound, &area, Slot(3));
//! assert_eq!(rig.store.snapshot(), sound);
//! ```

use crate::durable::{MemVault, Vault};
use crate::error::{Error, Result};
use crate::oram::Oram;
use crate::rng::{Rng, SeededRng};
use crate::scheme::SchemeContext;
use crate::scheme::contract::Scheme;
use crate::seal::{Cipher, Secret};
use crate::store::{Area, MemStore, Run, Store};
use crate::types::{Addr, Extent, Slot};
use std::sync::{Arc, Mutex};

/// A store, a vault and the keys of a scheme with geometry `G`.
pub struct Rig<G> {
    /// The scheme, or its parameters.
    pub geometry: G,
    /// The store, in memory.
    pub store: Arc<MemStore>,
    /// The last trusted state.
    pub vault: MemVault,
    seed: u64,
}

/// Declares the type `$name` around [`Rig`] of `$geometry`: a test module can give methods only to
/// a type of its own crate.
#[macro_export]
macro_rules! local_rig {
    ($name:ident, $geometry:ty) => {
        struct $name($crate::suite::rig::Rig<$geometry>);

        impl core::ops::Deref for $name {
            type Target = $crate::suite::rig::Rig<$geometry>;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }

        impl core::ops::DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.0
            }
        }
    };
}

impl<G> Rig<G> {
    /// A store of `store_len` zero bytes and an empty vault.
    pub fn with_room(geometry: G, store_len: u64) -> Self {
        let store = Arc::new(MemStore::new(store_len));
        Self { geometry, store, vault: MemVault::default(), seed: 0 }
    }

    /// The context in which a scheme is created or opened on `store`. Each call uses another
    /// random seed.
    pub fn context(&mut self, store: Arc<dyn Store>, read_only: bool) -> SchemeContext {
        self.seed += 1;
        SchemeContext {
            store,
            first: 0,
            key: Secret::from_bytes([4; 32]),
            vault: Box::new(self.vault.clone()),
            rng: Box::new(SeededRng::new(self.seed)),
            read_only,
            cipher: Cipher::default(),
            expect_writes: 0,
        }
    }
}

/// Writes blocks of `byte` to every address.
pub fn fill(oram: &mut dyn Oram, byte: u8) {
    for addr in 0..oram.blocks() {
        oram.write(Addr(addr), &vec![byte; oram.block_len()]).unwrap();
    }
}

/// Panics unless every block is filled with `byte`.
pub fn assert_filled(oram: &mut dyn Oram, byte: u8) {
    let mut block = vec![0; oram.block_len()];
    for addr in 0..oram.blocks() {
        oram.read(Addr(addr), &mut block).unwrap();
        assert!(block.iter().all(|&b| b == byte), "block {addr}");
    }
}

/// Makes one slot look as if it was never written.
pub fn wipe(store: &dyn Store, area: &Area, slot: Slot) {
    let mut run = Run::default();
    run.add_in_place(area, slot, 1);
    run.write(store).unwrap();
}

/// Flips a bit in the body of one slot.
pub fn damage(store: &dyn Store, area: &Area, slot: Slot) {
    let mut run = Run::default();
    run.add(area, slot, 1);
    run.read(store).unwrap();
    run.slot_mut(0).1[5] ^= 1;
    run.write(store).unwrap();
}

/// Restores one slot from `old`, a copy of the whole store.
pub fn put_back(store: &dyn Store, old: &[u8], area: &Area, slot: Slot) {
    let mut run = Run::default();
    run.add(area, slot, 1);
    run.read(&MemStore::from_bytes(old)).unwrap();
    run.write(store).unwrap();
}

/// A store with one extent that cannot be read for now.
pub struct Unreadable {
    /// The store behind it.
    pub store: Arc<MemStore>,
    /// The extent that cannot be read.
    pub hole: Extent,
}

impl Store for Unreadable {
    fn len(&self) -> u64 {
        self.store.len()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        let hit = |e: &Extent| e.at < self.hole.end() && self.hole.at < e.end();
        if extents.iter().any(hit) {
            return Err(Error::Store("cannot be read for now"));
        }
        self.store.read(extents, into)
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        self.store.write(extents, from)
    }
    fn sync(&self) -> Result {
        self.store.sync()
    }
}

/// A disk with a volatile cache: unsynced writes may be lost, kept or torn by sectors, extent by
/// extent.
pub struct Forgetful {
    disk: MemStore,
    /// Everything written since the last sync, in order.
    cached: Mutex<Vec<(u64, Vec<u8>)>>,
    /// The disk including its cache.
    seen: MemStore,
    /// Number of calls until the power fails.
    pub fuse: Mutex<u64>,
}

const SECTOR: u64 = 512;

impl Forgetful {
    /// A disk that holds `bytes`; the power fails after `fuse` calls.
    pub fn new(bytes: &[u8], fuse: u64) -> Self {
        let seen = MemStore::from_bytes(bytes);
        let disk = MemStore::from_bytes(bytes);
        Self { disk, cached: Mutex::default(), seen, fuse: Mutex::new(fuse) }
    }

    fn burn(&self) -> Result {
        let mut fuse = self.fuse.lock().unwrap();
        *fuse = fuse.checked_sub(1).ok_or(Error::Store("the power went"))?;
        Ok(())
    }

    /// The contents of the disk after a power failure.
    pub fn crash(&self, rng: &mut dyn Rng) -> Vec<u8> {
        let odds = 1 + rng.below(8);
        for (at, bytes) in self.cached.lock().unwrap().drain(..) {
            let (whole, tears) = (rng.below(8) < odds, rng.below(4) == 0);
            let end = at + bytes.len() as u64;
            for sector in at / SECTOR..=(end - 1) / SECTOR {
                if if tears { rng.below(2) == 0 } else { whole } {
                    let (from, to) = (at.max(sector * SECTOR), end.min((sector + 1) * SECTOR));
                    let part = &bytes[(from - at) as usize..(to - at) as usize];
                    self.disk.write(&[Extent::new(from, part.len())], part).unwrap();
                }
            }
        }
        self.disk.snapshot()
    }
}

impl Store for Forgetful {
    fn len(&self) -> u64 {
        self.disk.len()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        self.seen.read(extents, into)
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        let mut rest = from;
        for extent in extents {
            let (part, next) = rest.split_at(extent.len);
            self.cached.lock().unwrap().push((extent.at, part.to_vec()));
            rest = next;
        }
        self.seen.write(extents, from)?;
        // The power fails during this write: any part of it may arrive.
        self.burn()
    }
    fn sync(&self) -> Result {
        self.burn()?;
        for (at, bytes) in self.cached.lock().unwrap().drain(..) {
            self.disk.write(&[Extent::new(at, bytes.len())], &bytes)?;
        }
        Ok(())
    }
}

impl<S: Scheme> Rig<S> {
    /// Opens the scheme on `store` from the last state in the vault.
    fn reopen(&mut self, store: Arc<dyn Store>) -> Result<Box<dyn Oram>> {
        let (context, state) = (self.context(store, false), self.vault.kept());
        self.geometry.open(context, &state, &mut |_, _| {})
    }
}

/// The value of each block after `writes`.
fn after(writes: &[(u64, u64)], blocks: u64) -> Vec<u64> {
    let mut model = vec![0; blocks as usize];
    for &(addr, value) in writes {
        model[addr as usize] = value;
    }
    model
}

fn read_all(oram: &mut dyn Oram) -> Vec<u64> {
    let (blocks, mut block) = (oram.blocks(), vec![0; oram.block_len()]);
    let mut read = |addr| {
        oram.read(Addr(addr), &mut block).unwrap();
        u64::from_le_bytes(block[..8].try_into().unwrap())
    };
    (0..blocks).map(&mut read).collect()
}

/// Accesses until the power fails, which is an error, or until the scheme is closed. A sync or a
/// close promises all writes before it.
fn run(
    oram: &mut dyn Oram,
    rng: &mut SeededRng,
    writes: &mut Vec<(u64, u64)>,
    promised: &mut usize,
    next: &mut u64,
) -> Result {
    loop {
        let (addr, mut block) = (rng.below(oram.blocks()), vec![0; oram.block_len()]);
        match rng.below(200) {
            0..120 => {
                *next += 1;
                block[..8].copy_from_slice(&next.to_le_bytes());
                writes.push((addr, *next));
                oram.write(Addr(addr), &block)?;
            }
            120..180 => oram.read(Addr(addr), &mut block)?,
            180..199 => {
                oram.sync()?;
                *promised = writes.len();
            }
            _ => {
                oram.close()?;
                *promised = writes.len();
                return Ok(());
            }
        }
    }
}

/// Runs from crash to crash. Each opening must find a prefix of the writes, at least up to the last
/// sync.
pub fn lives_through_crashes(
    scheme: impl Scheme + Copy,
    seed: u64,
    fuses: impl Iterator<Item = u64>,
) {
    let blocks = scheme.blocks();
    let mut rig = Rig::with_room(scheme, scheme.store_len());
    let context = rig.context(rig.store.clone(), false);
    drop(scheme.create(context).unwrap());
    let (mut bytes, mut rng) = (rig.store.snapshot(), SeededRng::new(seed));
    let (mut writes, mut promised, mut next) = (vec![], 0, 0);
    let (mut lived, mut closed) = (0, 0);
    for fuse in fuses {
        let disk = Arc::new(Forgetful::new(&bytes, fuse));
        match rig.reopen(disk.clone()) {
            Err(Error::Store(_)) => {}
            Err(other) => panic!("a crash is not damage: {other}"),
            Ok(mut oram) => {
                match run(&mut *oram, &mut rng, &mut writes, &mut promised, &mut next) {
                    // The power fails right after the close, so everything must be durable.
                    Ok(()) => closed += 1,
                    Err(Error::Store(_)) => {
                        let again = oram.sync();
                        assert!(matches!(again, Err(Error::Poisoned)), "nothing is tried again");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        bytes = disk.crash(&mut rng);
        // The check runs on a copy, which goes on separately from the disk.
        let (copy, kept) = (Arc::new(MemStore::from_bytes(&bytes)), rig.vault.kept());
        let found = read_all(&mut *rig.reopen(copy).expect("a crash is not damage"));
        rig.vault.keep(&kept).unwrap();
        let prefix = (promised..=writes.len()).find(|&n| after(&writes[..n], blocks) == found);
        let prefix = prefix.expect("the blocks are not those of any moment since the last sync");
        writes.truncate(prefix);
        (promised, lived) = (prefix, lived + 1);
    }
    assert!(promised > 100 && lived > 50, "only {promised} writes lived");
    assert!(closed > 0, "it was never closed");
}
