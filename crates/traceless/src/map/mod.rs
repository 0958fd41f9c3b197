//! A map of byte strings. Its accesses reveal nothing about keys and values.
//!
//! ```
//! use traceless::Map;
//!
//! # fn main() -> traceless::Result {
//! let mut map = Map::builder().capacity(1000).key_len(16).value_len(32).build()?;
//! assert_eq!(map.insert(b"ann", b"+49 30 1234")?, None);
//! assert_eq!(map.insert(b"ann", b"+49 30 5678")?.as_deref(), Some(&b"+49 30 1234"[..]));
//! assert_eq!(map.get(b"ann")?.as_deref(), Some(&b"+49 30 5678"[..]));
//! assert_eq!(map.remove(b"bob")?, None);
//! # Ok(())
//! # }
//! ```
//!
//! With a [`store`](MapBuilder::store) the map can be saved and opened again; a crash takes it back
//! to its last [`sync`](Map::sync), or to a later state between two operations.
//!
//! ```
//! use std::sync::Arc;
//! use traceless::Map;
//! use traceless::seal::Secret;
//! use traceless::store::MemStore;
//!
//! # fn main() -> traceless::Result {
//! let builder = || Map::builder().capacity(1000).key(Secret::from_bytes([7; 32]));
//! let store = Arc::new(MemStore::new(builder().store_len()?));
//!
//! let mut map = builder().store(store.clone()).build()?;
//! map.insert(b"ann", b"+49 30 1234")?;
//! map.close()?;
//!
//! let mut map = builder().store(store).open()?;
//! assert_eq!(map.get(b"ann")?.as_deref(), Some(&b"+49 30 1234"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! The map lies over an [`Oram`], by default the [Oblivious client](crate::oblivious), and each
//! operation makes two accesses to it, independent of its kind and result. Over the Oblivious
//! client keys, values, the kind of operation and its result are hidden from an adversary that
//! watches the program's memory, if they are passed through [`Map::operate`]. Over another array
//! they are hidden from the adversary that this array hides accesses from.
//!
//! # How it works
//!
//! A block is a bucket of 10 or 12 entries. A keyed hash of its key gives each entry two buckets.
//! An operation looks into both. A new entry goes into the first while that has fewer than 8, else
//! into the second while that has room, and otherwise into a stash of 16, which each operation
//! scans as a whole. The number of buckets is so large that at most 4 entries fall to each on
//! average.
//!
//! Then a new entry meets two full buckets with a probability of 2^-21.8 where buckets hold 10, up
//! to 2^20 entries, and of 2^-34.4 where they hold 12. So at most 0.3 entries wait in the stash on
//! average, and at any time 16 do with a probability below 2^-70, however long keys were inserted
//! and removed before, as long as the keys do not depend on the map's random draws. If it happens,
//! an insertion fails with [`Error::MapFull`]; the entries of the map stay in it.

#![expect(clippy::inline_always, reason = "what is not inlined is compiled for the base level")]

mod bucket;
mod places;
#[cfg(test)]
mod tests;

use crate::oblivious;
use crate::oblivious::durable::{UserWords, create_attached, open_attached};
use crate::scheme::health::Health;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use bucket::{OperationState, Visit};
use places::KeyHash;
use subtle::{Choice, ConditionallySelectable};
use traceless_core::error::{Error, Result};
use traceless_core::oram::Oram;
use traceless_core::rng::Rng;
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::store_vault::{StoreVault, VAULT_LEN};
use traceless_core::seal::Secret;
use traceless_core::store::Store;
use traceless_core::types::Addr;
use traceless_sys::ct::{self, Mask, secret::made_public};

/// Entries that fit the stash.
const STASH_ENTRIES: usize = 16;

/// A bucket with fewer entries takes new entries that have it as their first bucket.
const FIRST_ENTRIES: usize = 8;

/// Average number of entries for each bucket, at most.
const LOAD: u64 = 4;

/// Entries of a map, at most.
pub const CAPACITY_MAX: u64 = 1 << 31;

/// Bytes of a key, and of a value, at most.
pub const LEN_MAX: usize = 1 << 20;

/// The kind of an operation. It may be secret: then it is selected with
/// [`ConditionallySelectable`].
#[derive(Clone, Copy)]
pub struct Operation(u32);

impl Operation {
    /// Looks a key up.
    pub const GET: Self = Self(0);
    /// Sets the value of a key.
    pub const INSERT: Self = Self(1);
    /// Removes a key.
    pub const REMOVE: Self = Self(2);
}

impl ConditionallySelectable for Operation {
    fn conditional_select(a: &Self, b: &Self, choice: Choice) -> Self {
        Self(u32::conditional_select(&a.0, &b.0, choice))
    }
}

/// What an operation found. All of it is secret.
pub struct Answer<'a> {
    /// Whether the key was in the map before.
    pub found: Choice,
    /// The value that the key had, padded with zeros.
    pub value: &'a [u8],
    /// Length of that value in bytes.
    pub len: u32,
}

/// The array of the buckets.
enum Home {
    /// An array without the stash; only the buckets are saved, if at all.
    Unsaved(Box<dyn Oram>),
    /// An array that also saves the stash.
    Saved(Box<dyn UserWords>),
}

/// Number of accesses to the array that an operation makes.
const ACCESSES: u32 = 2;

/// A map. See the [module](self). Dropping a map closes it, but ignores failures.
pub struct Map {
    array: Home,
    shape: MapShape,
    places: KeyHash,
    carried: OperationState,
    bucket: Vec<u64>,
    stash: Vec<u64>,
    /// Whether the stash is full. Secret until an insertion makes it public.
    full: Mask,
    /// The second bucket of an operation, if it could not be read: the carried entry may be in no
    /// other place.
    unread: Option<u32>,
    health: Health,
}

impl Map {
    /// Begins the description of a new map.
    pub fn builder() -> MapBuilder {
        MapBuilder { capacity: 0, key_len: 32, value_len: 32, store: None, key: None, rng: None }
    }

    fn new(shape: MapShape, places: KeyHash, array: Home) -> Self {
        let words = shape.entry_words();
        Self {
            array,
            places,
            carried: OperationState::new(shape),
            bucket: vec![0; shape.slots * words],
            stash: vec![0; STASH_ENTRIES * words],
            full: Mask::NO,
            unread: None,
            health: Health::default(),
            shape,
        }
    }

    /// The value of a key. What the caller does with the result may reveal whether there is a value
    /// and how long it is; the same holds for [`insert`](Self::insert) and
    /// [`remove`](Self::remove).
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.operate(Operation::GET, key, &[]).map(Answer::reveal)
    }

    /// Sets the value of a key. Returns its old value.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        self.operate(Operation::INSERT, key, value).map(Answer::reveal)
    }

    /// Removes a key. Returns its old value.
    pub fn remove(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.operate(Operation::REMOVE, key, &[]).map(Answer::reveal)
    }

    /// Makes an operation on a key. Only insertions use `value`. All arguments may be secret, but
    /// for the lengths of `key` and `value`: to hide the lengths, pad keys and values to equal
    /// ones.
    ///
    /// An operation with a failed read is done as a whole or not at all; a later [`get`](Self::get)
    /// shows which. The caller may also repeat the operation.
    pub fn operate(
        &mut self,
        operation: Operation,
        key: &[u8],
        value: &[u8],
    ) -> Result<Answer<'_>> {
        self.shape.check(key, value)?;
        self.finish_unread()?;
        self.sync_if_due()?;
        let inserts = Mask::equal(operation.0, Operation::INSERT.0);
        let removes = Mask::equal(operation.0, Operation::REMOVE.0);
        let full = self.full;
        self.carried.begin(key, inserts & !full, removes);
        let [first, second] = self.places.of(self.carried.key());
        self.carried.set_value(value);
        self.visit(first, FIRST_ENTRIES)?;
        self.unread = Some(second);
        self.visit(second, self.shape.slots)?;
        self.unread = None;
        self.visit_stash();
        // One bit becomes public, and only in a map that is too small for its entries.
        if made_public((inserts & full).bits()) != 0 {
            return Err(Error::MapFull { capacity: self.shape.capacity });
        }
        Ok(self.carried.answer())
    }

    /// Makes all earlier changes durable. A map without a store of its own cannot be opened again:
    /// this syncs only the array, and the stash is not in it.
    pub fn sync(&mut self) -> Result {
        self.finish_unread()?;
        match &mut self.array {
            Home::Unsaved(array) => array.sync(),
            Home::Saved(array) => {
                array.attached().copy_from_slice(&self.stash);
                array.sync()
            }
        }
    }

    /// Syncs, and ends the map. If it ends otherwise, as when the program is killed, changes since
    /// the last sync may be lost, and the next opening rebuilds the array below.
    pub fn close(mut self) -> Result {
        self.end()
    }

    fn end(&mut self) -> Result {
        self.sync()?;
        match &mut self.array {
            Home::Unsaved(array) => array.close(),
            Home::Saved(array) => array.close(),
        }
    }

    /// Loads the saved stash.
    fn load_stash(&mut self) {
        let Home::Saved(array) = &mut self.array else { return };
        self.stash.copy_from_slice(array.attached());
        // No entry is carried: this visit only counts the entries.
        self.visit_stash();
    }

    /// Scans the stash, and puts the carried entry there if it is in no bucket.
    fn visit_stash(&mut self) {
        let Self { carried, stash, .. } = self;
        let waiting = ct::dispatch(Visit { entries: stash, carried, limit: STASH_ENTRIES });
        self.full = !Mask::below(waiting, STASH_ENTRIES as u32);
    }

    /// Finishes an operation that stopped because a bucket could not be read.
    fn finish_unread(&mut self) -> Result {
        self.health.check()?;
        if let Some(second) = self.unread {
            self.visit(second, self.shape.slots)?;
            self.unread = None;
            self.visit_stash();
        }
        // Also finishes an access of the array that stopped in the first bucket.
        match &mut self.array {
            Home::Unsaved(_) => Ok(()),
            Home::Saved(array) => array.finish_unread(&mut |_| {}).map(|_| ()),
        }
    }

    /// Syncs if there is no room for an operation before the next sync, since a sync within an
    /// operation would save half of the operation.
    fn sync_if_due(&mut self) -> Result {
        match &self.array {
            Home::Saved(array) if array.accesses_left() <= ACCESSES => self.sync(),
            _ => Ok(()),
        }
    }

    /// Number of entries. It takes one access for each bucket, in order, which reveals nothing but
    /// that entries are counted.
    pub fn count(&mut self) -> Result<u64> {
        self.finish_unread()?;
        let mut entries = self.stash_entries();
        for bucket in 0..self.shape.buckets {
            self.sync_if_due()?;
            let Self { array, bucket: words, .. } = self;
            let mut is_read = false;
            let mut copy = |block: &mut [u8]| {
                is_read = true;
                let len = size_of_val(&words[..]);
                ct::bytes_of_mut(words).copy_from_slice(&block[..len]);
            };
            let copied = match array {
                Home::Unsaved(array) => array.update(Addr(bucket), &mut copy),
                Home::Saved(array) => array.update(Addr(bucket), &mut copy),
            };
            let copied = if is_read { self.health.end(copied) } else { copied };
            copied?;
            entries += self.entries_in(&self.bucket);
        }
        Ok(entries as u64)
    }

    /// Number of entries in the stash. For statistics only: the number is secret.
    pub fn stash_entries(&self) -> usize {
        self.entries_in(&self.stash)
    }

    fn entries_in(&self, words: &[u64]) -> usize {
        let entries = words.chunks_exact(self.shape.entry_words());
        entries.map(|entry| usize::from(entry[0] != 0)).sum()
    }

    /// Scans one bucket, and puts the carried entry there if it may. If the bucket cannot be read,
    /// nothing has changed, and the visit must be repeated before any other.
    fn visit(&mut self, bucket: u32, limit: usize) -> Result {
        let Self { array, carried, bucket: words, .. } = self;
        let mut is_read = false;
        let mut visit = |block: &mut [u8]| {
            is_read = true;
            let block = &mut block[..size_of_val(&words[..])];
            ct::bytes_of_mut(words).copy_from_slice(block);
            ct::dispatch(Visit { entries: words, carried, limit });
            block.copy_from_slice(ct::bytes_of(words));
        };
        let addr = Addr(bucket.into());
        let visited = match array {
            Home::Unsaved(array) => array.update(addr, &mut visit),
            Home::Saved(array) => match array.finish_unread(&mut visit) {
                Ok(false) => array.update(addr, &mut visit),
                finished => finished.map(|_| ()),
            },
        };
        if is_read { self.health.end(visited) } else { visited }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // A drop cannot report an error. After a failure the map is in the state that a crash would
        // leave.
        let _ = self.end();
    }
}

impl Answer<'_> {
    /// Makes the result public, and returns the value if there is one.
    fn reveal(self) -> Option<Vec<u8>> {
        if made_public(self.found.unwrap_u8()) == 0 {
            return None;
        }
        Some(self.value[..made_public(self.len) as usize].to_vec())
    }
}

/// The public parameters of a map.
#[derive(Clone, Copy)]
struct MapShape {
    capacity: u64,
    key_len: usize,
    value_len: usize,
    /// Entries of a bucket.
    slots: usize,
    buckets: u64,
}

impl MapShape {
    fn new(capacity: u64, key_len: usize, value_len: usize) -> Result<Self> {
        if capacity > CAPACITY_MAX {
            return Err(Error::Geometry("a map has at most 2^31 entries"));
        }
        if key_len.max(value_len) > LEN_MAX {
            return Err(Error::Geometry("keys and values have at most 2^20 bytes"));
        }
        let slots = if capacity <= 1 << 20 { 10 } else { 12 };
        // Each entry has two different buckets. Rounding up to a power of two costs nothing: the
        // tree is the same for all numbers up to it.
        let buckets = capacity.div_ceil(LOAD).max(2).next_power_of_two();
        Ok(Self { capacity, key_len, value_len, slots, buckets })
    }

    fn check(&self, key: &[u8], value: &[u8]) -> Result {
        for (want, got) in [(self.key_len, key.len()), (self.value_len, value.len())] {
            if got > want {
                return Err(Error::WrongLength { want, got });
            }
        }
        Ok(())
    }

    /// Words of an entry: its header, its key, its value.
    fn entry_words(&self) -> usize {
        self.key_words() + self.value_len.div_ceil(size_of::<u64>())
    }

    /// Words of an entry's header and key.
    fn key_words(&self) -> usize {
        1 + self.key_len.div_ceil(size_of::<u64>())
    }

    fn block_len(&self) -> usize {
        self.slots * self.entry_words() * size_of::<u64>()
    }
}

/// The description of a [`Map`] to be made or opened.
pub struct MapBuilder {
    capacity: u64,
    key_len: usize,
    value_len: usize,
    store: Option<Arc<dyn Store>>,
    key: Option<Secret>,
    rng: Option<Box<dyn Rng>>,
}

impl MapBuilder {
    /// Number of entries that the map has room for.
    #[must_use]
    pub fn capacity(mut self, entries: u64) -> Self {
        self.capacity = entries;
        self
    }

    /// Bytes of a key, at most; the default is 32.
    #[must_use]
    pub fn key_len(mut self, len: usize) -> Self {
        self.key_len = len;
        self
    }

    /// Bytes of a value, at most; the default is 32.
    #[must_use]
    pub fn value_len(mut self, len: usize) -> Self {
        self.value_len = len;
        self
    }

    /// Where the map lies, in at least [`store_len`](Self::store_len) bytes. Without a store it
    /// lies in memory, and cannot be opened again.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// The key under which the map is sealed, and nothing else. Needed with a store.
    #[must_use]
    pub fn key(mut self, key: Secret) -> Self {
        self.key = Some(key);
        self
    }

    /// A source of randomness in place of the operating system's, which is the default with the
    /// feature `std`. An adversary that knows its output learns which keys are accessed. It must
    /// give other numbers each time that a map is made or opened: otherwise a key seals twice under
    /// one nonce.
    #[must_use]
    pub fn rng(mut self, rng: impl Rng + 'static) -> Self {
        self.rng = Some(Box::new(rng));
        self
    }

    /// Number of blocks that an array for [`over`](Self::over) must have.
    pub fn blocks(&self) -> Result<u64> {
        self.shape().map(|shape| shape.buckets)
    }

    /// Bytes of a block that an array for [`over`](Self::over) must have.
    pub fn block_len(&self) -> Result<usize> {
        self.shape().map(|shape| shape.block_len())
    }

    /// Bytes that the map needs in a store.
    pub fn store_len(&self) -> Result<u64> {
        Ok(VAULT_LEN + geometry(self.shape()?)?.store_len())
    }

    /// Makes an empty map over the Oblivious client. Earlier contents of the store are lost.
    pub fn build(mut self) -> Result<Map> {
        let shape = self.shape()?;
        if let Some(store) = self.store.take() {
            let key = self.key.take().ok_or(NO_KEY)?;
            let len = self.store_len()?;
            let vault = StoreVault::create(store.clone(), vault_key(shape, &key), len)?;
            let context = SchemeContext::after_vault(vault, b"map", store, &key, self.random()?);
            let array = create_attached(geometry(shape)?, context)?;
            return Ok(Map::new(shape, saved_places(shape, &key), Home::Saved(array)));
        }
        let mut rng = self.random()?;
        let places = KeyHash::new(shape, &Secret::random(&mut *rng));
        let oram = oblivious::create(shape.buckets, shape.block_len(), rng)?;
        Ok(Map::new(shape, places, Home::Unsaved(oram)))
    }

    /// Opens the map that was made in the store with the same capacity, lengths and key.
    pub fn open(mut self) -> Result<Map> {
        let shape = self.shape()?;
        let store = self.store.take().ok_or(Error::Geometry("it lies in a store"))?;
        let key = self.key.take().ok_or(NO_KEY)?;
        let (vault, state) = StoreVault::open(store.clone(), vault_key(shape, &key))?;
        let context = SchemeContext::after_vault(vault, b"map", store, &key, self.random()?);
        let array = open_attached(geometry(shape)?, context, &state)?;
        let mut map = Map::new(shape, saved_places(shape, &key), Home::Saved(array));
        map.load_stash();
        Ok(map)
    }

    /// Makes an empty map over `oram`, in which all blocks must be zero.
    pub fn over(self, oram: Box<dyn Oram>) -> Result<Map> {
        let shape = self.shape()?;
        if oram.blocks() < shape.buckets || oram.block_len() < shape.block_len() {
            return Err(Error::Geometry("the array is too small for the map"));
        }
        let places = KeyHash::new(shape, &Secret::random(&mut *self.random()?));
        Ok(Map::new(shape, places, Home::Unsaved(oram)))
    }

    fn shape(&self) -> Result<MapShape> {
        MapShape::new(self.capacity, self.key_len, self.value_len)
    }

    fn random(self) -> Result<Box<dyn Rng>> {
        #[cfg(feature = "std")]
        let system = || Some(Box::new(traceless_core::rng::System) as Box<dyn Rng>);
        #[cfg(not(feature = "std"))]
        let system = || None;
        let none = Error::Geometry("without an operating system a generator is handed in");
        self.rng.or_else(system).ok_or(none)
    }
}

const NO_KEY: Error = Error::Geometry("what lies in a store is sealed under a key");

/// The key depends on the exact lengths: entries with as many words may differ in length.
fn vault_key(shape: MapShape, key: &Secret) -> Secret {
    let lens = [shape.key_len, shape.value_len].map(|len| (len as u64).to_le_bytes());
    key.derive(&[b"map", b"vault", &lens[0], &lens[1]])
}

/// The hash of a saved map, which must be the same at each opening.
fn saved_places(shape: MapShape, key: &Secret) -> KeyHash {
    KeyHash::new(shape, &key.derive(&[b"map", b"places"]))
}

/// The geometry of a saved map's array, with room for the stash, and for one operation between two
/// syncs.
fn geometry(shape: MapShape) -> Result<oblivious::ArrayGeometry> {
    let mut geometry = oblivious::ArrayGeometry::new(shape.buckets, shape.block_len())?;
    geometry.attached_words = (STASH_ENTRIES * shape.entry_words()) as u32;
    geometry.unsynced_max = geometry.unsynced_max.max(ACCESSES + 1);
    geometry.check()?;
    Ok(geometry)
}
