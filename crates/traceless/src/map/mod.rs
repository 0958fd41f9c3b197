//! A map of byte strings that tells nothing of what is in it or asked for.
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
//! With a [`store`](Builder::store) it can be saved and opened again; a crash takes it back to the
//! last [`sync`](Map::sync), or to a later moment between two operations.
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
//! It lies over an [`Oram`], by default the [Oblivious client](crate::oblivious), and each
//! operation is two accesses to it, whatever it does and finds. Over that client keys, values, what
//! is done and whether something was found are hidden from whoever watches the program's memory,
//! if they are handed in and taken out by [`Map::operate`]; over another, from whoever watches what
//! that one hides from.
//!
//! # How it works
//!
//! A block is a bucket of 10 or 12 entries. A keyed function of its key gives each entry two
//! buckets. An operation looks into both. A new entry goes into the first while that has fewer than
//! 8, else into the second while that has room, and otherwise into a stash of 16, which each
//! operation scans as a whole. There are buckets enough that at most 4 entries fall to each.
//!
//! Then a new entry meets two full buckets with a probability of 2^-21.8 where buckets hold 10, up
//! to 2^20 entries, and of 2^-34.4 where they hold 12. So at most 0.3 entries wait in the stash on
//! average, and at any time 16 do with a probability below 2^-70, however long keys were inserted
//! and removed before, as long as who chooses them does not know what the map drew at random. If it
//! happens, an insertion fails with [`Error::MapFull`]; what is in the map stays there.

#![expect(clippy::inline_always, reason = "what is not inlined is compiled for the base level")]

mod bucket;
mod places;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::oblivious;
use crate::oblivious::durable::{UserWords, create_attached, open_attached};
use crate::oram::Oram;
use crate::rng::Rng;
use crate::scheme::Parts;
use crate::scheme::health::Health;
use crate::scheme::store_vault::{StoreVault, VAULT_LEN};
use crate::seal::Secret;
use crate::store::Store;
use crate::types::Addr;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use bucket::{OperationState, Visit};
use places::KeyHash;
use subtle::{Choice, ConditionallySelectable};
use traceless_sys::ct::{self, Mask, secret::made_public};

/// Entries that fit the stash.
const STASH_ENTRIES: usize = 16;

/// Entries up to which a bucket takes those whose first bucket it is.
const FIRST_ENTRIES: usize = 8;

/// Entries for each bucket, at most.
const LOAD: u64 = 4;

/// Entries of a map, at most.
pub const CAPACITY_MAX: u64 = 1 << 31;

/// Bytes of a key, and of a value, at most.
pub const LEN_MAX: usize = 1 << 20;

/// What is done with a key. Which it is may be secret: then it is put together with
/// [`ConditionallySelectable`].
#[derive(Clone, Copy)]
pub struct Operation(u32);

impl Operation {
    /// Looks it up.
    pub const GET: Self = Self(0);
    /// Gives it a value.
    pub const INSERT: Self = Self(1);
    /// Takes it out.
    pub const REMOVE: Self = Self(2);
}

impl ConditionallySelectable for Operation {
    fn conditional_select(a: &Self, b: &Self, choice: Choice) -> Self {
        Self(u32::conditional_select(&a.0, &b.0, choice))
    }
}

/// What an operation found. All of it is secret.
pub struct Answer<'a> {
    /// Whether the key was there before.
    pub found: Choice,
    /// The value that it had, and zeros behind it.
    pub value: &'a [u8],
    /// Bytes of that value.
    pub len: u32,
}

/// Where the buckets are.
enum Home {
    /// In an array that knows nothing of the stash.
    Unsaved(Box<dyn Oram>),
    /// In one that saves the stash with them.
    Saved(Box<dyn UserWords>),
}

/// Accesses to the array that an operation makes.
const ACCESSES: u32 = 2;

/// A map. See the [module](self). One that is dropped is closed as well as can be.
pub struct Map {
    array: Home,
    shape: Shape,
    places: KeyHash,
    carried: OperationState,
    bucket: Vec<u64>,
    stash: Vec<u64>,
    /// Whether the stash has no room any more. Secret until it is asked for.
    full: Mask,
    /// The second bucket of an operation that could not be read: what is carried may be in no other
    /// place.
    unread: Option<u32>,
    health: Health,
}

impl Map {
    /// Begins to describe one.
    pub fn builder() -> Builder {
        Builder { capacity: 0, key_len: 32, value_len: 32, store: None, key: None, rng: None }
    }

    fn new(shape: Shape, places: KeyHash, array: Home) -> Self {
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

    /// The value of a key. Whether there is one, and how long it is, shows in what the caller does
    /// with it, as with [`insert`](Self::insert) and [`remove`](Self::remove).
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.operate(Operation::GET, key, &[]).map(Answer::reveal)
    }

    /// Gives a key a value. Tells the one that it had.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        self.operate(Operation::INSERT, key, value).map(Answer::reveal)
    }

    /// Takes a key out. Tells the value that it had.
    pub fn remove(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.operate(Operation::REMOVE, key, &[]).map(Answer::reveal)
    }

    /// Does something with a key. `value` is looked at by insertions only. All arguments may be
    /// secret, but for the lengths of `key` and `value`: where these are, too, make them equal.
    ///
    /// An operation whose read failed is done as a whole or not at all, and which of them is seen
    /// by a [`get`](Self::get) after it. It is as well to ask for the same again.
    pub fn operate(
        &mut self,
        operation: Operation,
        key: &[u8],
        value: &[u8],
    ) -> Result<Answer<'_>> {
        self.shape.check(key, value)?;
        self.finish_unread()?;
        // A sync within an operation would save the half of it.
        if let Home::Saved(array) = &self.array
            && array.accesses_left() <= ACCESSES
        {
            self.sync()?;
        }
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
        // One bit becomes public, and that only in a map that is too small for what is in it.
        if made_public((inserts & full).bits()) != 0 {
            return Err(Error::MapFull { capacity: self.shape.capacity });
        }
        Ok(self.carried.answer())
    }

    /// Makes everything durable that was done before. A map without a store of its own cannot be
    /// opened again: its stash is not in the array below it, which is all that this syncs then.
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

    /// Syncs, and ends it. If it ends otherwise, as when the program is killed, what was done since
    /// the last sync may be lost, and the next opening makes the array below anew.
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

    /// Takes the stash up that was saved.
    fn load_stash(&mut self) {
        let Home::Saved(array) = &mut self.array else { return };
        self.stash.copy_from_slice(array.attached());
        // Nothing is carried: it only counts.
        self.visit_stash();
    }

    /// Looks into the stash, and puts what is carried there if it is in no bucket.
    fn visit_stash(&mut self) {
        let Self { carried, stash, .. } = self;
        let waiting = ct::dispatch(Visit { entries: stash, carried, limit: STASH_ENTRIES });
        self.full = !Mask::below(waiting, STASH_ENTRIES as u32);
    }

    /// Ends the operation before, if a bucket of it could not be read.
    fn finish_unread(&mut self) -> Result {
        self.health.check()?;
        if let Some(second) = self.unread {
            self.visit(second, self.shape.slots)?;
            self.unread = None;
            self.visit_stash();
        }
        // Also what was read for the first bucket of one.
        match &mut self.array {
            Home::Unsaved(_) => Ok(()),
            Home::Saved(array) => array.finish_unread(&mut |_| {}).map(|_| ()),
        }
    }

    /// Entries in the stash. For statistics only: the number is secret.
    pub fn stash_entries(&self) -> usize {
        let entries = self.stash.chunks_exact(self.shape.entry_words());
        entries.filter(|entry| entry[0] != 0).count()
    }

    /// Looks into one bucket, and puts what is carried there if it may. If it cannot be read,
    /// nothing has changed, and it may be looked into again, and must be before any other.
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
        // Nobody is there to be told. What was not saved is as after a crash.
        let _ = self.end();
    }
}

impl Answer<'_> {
    /// The value, if there is one: from here on it shows.
    fn reveal(self) -> Option<Vec<u8>> {
        if made_public(self.found.unwrap_u8()) == 0 {
            return None;
        }
        Some(self.value[..made_public(self.len) as usize].to_vec())
    }
}

/// The public numbers of a map.
#[derive(Clone, Copy)]
struct Shape {
    capacity: u64,
    key_len: usize,
    value_len: usize,
    /// Entries of a bucket.
    slots: usize,
    buckets: u64,
}

impl Shape {
    fn new(capacity: u64, key_len: usize, value_len: usize) -> Result<Self> {
        if capacity > CAPACITY_MAX {
            return Err(Error::Geometry("a map has at most 2^31 entries"));
        }
        if key_len.max(value_len) > LEN_MAX {
            return Err(Error::Geometry("keys and values have at most 2^20 bytes"));
        }
        let slots = if capacity <= 1 << 20 { 10 } else { 12 };
        // Each entry has two different ones. A power of two, as of all numbers up to the next the
        // tree is the same.
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

    /// Words of its header and its key.
    fn key_words(&self) -> usize {
        1 + self.key_len.div_ceil(size_of::<u64>())
    }

    fn block_len(&self) -> usize {
        self.slots * self.entry_words() * size_of::<u64>()
    }
}

/// What a [`Map`] is to be.
pub struct Builder {
    capacity: u64,
    key_len: usize,
    value_len: usize,
    store: Option<Arc<dyn Store>>,
    key: Option<Secret>,
    rng: Option<Box<dyn Rng>>,
}

impl Builder {
    /// Entries that it has room for.
    #[must_use]
    pub fn capacity(mut self, entries: u64) -> Self {
        self.capacity = entries;
        self
    }

    /// Bytes of a key, at most; 32 unless it is said.
    #[must_use]
    pub fn key_len(mut self, len: usize) -> Self {
        self.key_len = len;
        self
    }

    /// Bytes of a value, at most; 32 unless it is said.
    #[must_use]
    pub fn value_len(mut self, len: usize) -> Self {
        self.value_len = len;
        self
    }

    /// Where it lies, of at least [`store_len`](Self::store_len) bytes. Otherwise it lies in
    /// memory, and cannot be opened again.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// The key under which it is sealed, for this map alone. Needed with a store.
    #[must_use]
    pub fn key(mut self, key: Secret) -> Self {
        self.key = Some(key);
        self
    }

    /// A source of randomness other than the operating system's, which is the default with the
    /// feature `std`. Whoever knows what it gives sees what is asked for. It must give other
    /// numbers each time that a map is made or opened: otherwise a key seals twice under one nonce.
    #[must_use]
    pub fn rng(mut self, rng: impl Rng + 'static) -> Self {
        self.rng = Some(Box::new(rng));
        self
    }

    /// Blocks that an array for [`over`](Self::over) must have.
    pub fn blocks(&self) -> Result<u64> {
        self.shape().map(|shape| shape.buckets)
    }

    /// Bytes that each of them must have.
    pub fn block_len(&self) -> Result<usize> {
        self.shape().map(|shape| shape.block_len())
    }

    /// Bytes of a store that it needs.
    pub fn store_len(&self) -> Result<u64> {
        Ok(VAULT_LEN + geometry(self.shape()?)?.store_len())
    }

    /// An empty map over the Oblivious client. What its store held before is lost.
    pub fn build(mut self) -> Result<Map> {
        let shape = self.shape()?;
        if let Some(store) = self.store.take() {
            let key = self.key.take().ok_or(NO_KEY)?;
            let len = self.store_len()?;
            let vault = StoreVault::create(store.clone(), vault_key(shape, &key), len)?;
            let parts = Parts::behind(vault, b"map", store, &key, self.random()?);
            let array = create_attached(geometry(shape)?, parts)?;
            return Ok(Map::new(shape, saved_places(shape, &key), Home::Saved(array)));
        }
        let mut rng = self.random()?;
        let places = KeyHash::new(shape, &Secret::random(&mut *rng));
        let oram = oblivious::create(shape.buckets, shape.block_len(), rng)?;
        Ok(Map::new(shape, places, Home::Unsaved(oram)))
    }

    /// Opens the one that was made in the store with the same capacity, lengths and key.
    pub fn open(mut self) -> Result<Map> {
        let shape = self.shape()?;
        let store = self.store.take().ok_or(Error::Geometry("it lies in a store"))?;
        let key = self.key.take().ok_or(NO_KEY)?;
        let (vault, state) = StoreVault::open(store.clone(), vault_key(shape, &key))?;
        let parts = Parts::behind(vault, b"map", store, &key, self.random()?);
        let array = open_attached(geometry(shape)?, parts, &state)?;
        let mut map = Map::new(shape, saved_places(shape, &key), Home::Saved(array));
        map.load_stash();
        Ok(map)
    }

    /// An empty map over `oram`, which holds nothing but zeros.
    pub fn over(self, oram: Box<dyn Oram>) -> Result<Map> {
        let shape = self.shape()?;
        if oram.blocks() < shape.buckets || oram.block_len() < shape.block_len() {
            return Err(Error::Geometry("the array is too small for the map"));
        }
        let places = KeyHash::new(shape, &Secret::random(&mut *self.random()?));
        Ok(Map::new(shape, places, Home::Unsaved(oram)))
    }

    fn shape(&self) -> Result<Shape> {
        Shape::new(self.capacity, self.key_len, self.value_len)
    }

    fn random(self) -> Result<Box<dyn Rng>> {
        #[cfg(feature = "std")]
        let system = || Some(Box::new(crate::rng::System) as Box<dyn Rng>);
        #[cfg(not(feature = "std"))]
        let system = || None;
        let none = Error::Geometry("without an operating system a generator is handed in");
        self.rng.or_else(system).ok_or(none)
    }
}

const NO_KEY: Error = Error::Geometry("what lies in a store is sealed under a key");

/// Of these lengths alone: entries in as many words may not be as long.
fn vault_key(shape: Shape, key: &Secret) -> Secret {
    let lens = [shape.key_len, shape.value_len].map(|len| (len as u64).to_le_bytes());
    key.derive(&[b"map", b"vault", &lens[0], &lens[1]])
}

/// The places of a saved map, which must be the same at each opening.
fn saved_places(shape: Shape, key: &Secret) -> KeyHash {
    KeyHash::new(shape, &key.derive(&[b"map", b"places"]))
}

/// The array of a saved map, with room for its stash, and for one operation between two syncs.
fn geometry(shape: Shape) -> Result<oblivious::ArrayGeometry> {
    let mut geometry = oblivious::ArrayGeometry::new(shape.buckets, shape.block_len())?;
    geometry.attached_words = (STASH_ENTRIES * shape.entry_words()) as u32;
    geometry.unsynced_max = geometry.unsynced_max.max(ACCESSES + 1);
    geometry.check()?;
    Ok(geometry)
}
