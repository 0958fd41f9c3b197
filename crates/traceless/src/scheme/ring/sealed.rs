//! A Ring ORAM tree in a store, sealed.

use super::bucket::Bucket;
use super::params::Params;
use super::tree::{RingTree, SlotAt};
use super::{METADATA, buckets_above, cached_levels};
use crate::tree::{BucketTree, Header, SealedTree, Shape, TreeLayout};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::rng::Rng;
use traceless_core::seal::{Nonce, Salt, Sealer};
use traceless_core::store::Store;
use traceless_core::types::{Extent, Leaf};

const VERSION_LEN: usize = 8;
/// Bytes in front of the encoded bucket metadata: version and salt of the bucket's slots.
const FRONT_LEN: usize = VERSION_LEN + Salt::LEN;

/// Bits of the slot number in a slot's nonce.
const SLOT_BITS: u32 = 7;
const LEVEL_BITS: u32 = 6;

/// Metadata and slots, sealed separately.
///
/// The metadata is a [`SealedTree`] with one block a bucket, which is read and written with each
/// path, so it is fresh all the way down. It holds the version and the salt of its bucket's slots;
/// the version is the number of the path opening that renewed them. A slot is sealed under version,
/// salt, level and slot number, with a separate key. A path has one bucket per level, so the nonce
/// is unique and identifies bucket and slot: a slot in the wrong place, or of an older bucket, is
/// refused although it is read alone.
pub struct SealedRing<C> {
    params: Params,
    store: Arc<dyn Store>,
    /// First byte of the slots.
    first: u64,
    metadata: SealedTree<C>,
    sealer: C,
    /// Draws a salt for the slots of each bucket.
    salts: Box<dyn Rng>,
    body_len: usize,
    leaf: Leaf,
    /// Paths opened so far; also the version of the buckets renewed on the open path.
    opened: u64,
    extents: Vec<Extent>,
    /// The slots that were read: tag and body of each.
    read: Vec<u8>,
    /// The bytes to write: renewed buckets, then the metadata.
    out: Vec<u8>,
    /// The levels of the renewed buckets, in this order, and the salts of the buckets that are
    /// sealed.
    renewed: Vec<(usize, Salt)>,
    /// Empty headers: the tree of metadata does not need names for its blocks.
    unnamed: Vec<Header>,
}

impl<C: Sealer> SealedRing<C> {
    /// Places of the buckets' metadata, which is read and written with every path.
    pub fn metadata_layout(params: Params, shape: &Shape, sealer: &C) -> TreeLayout {
        SealedTree::layout(shape, FRONT_LEN + Bucket::len(params.z), sealer)
    }

    /// Bytes that the tree takes on a store.
    pub fn store_len(params: Params, shape: &Shape, body_len: usize, sealer: &C) -> u64 {
        let metadata = Self::metadata_layout(params, shape, sealer).len();
        let slots = shape.slots() * params.slots() as u64;
        metadata + slots * (sealer.tag_len() + body_len) as u64
    }

    /// A tree without blocks, in the part of `store` from byte `first` on; its old contents do not
    /// matter. The sealers of metadata and slots must have different keys, which never sealed
    /// anything. `salts` must give fresh values at each call.
    pub fn create(
        store: Arc<dyn Store>,
        first: u64,
        params: Params,
        shape: Shape,
        body_len: usize,
        [metadata_sealer, slot_sealer]: [C; 2],
        mut salts: Box<dyn Rng>,
    ) -> Result<Self> {
        params.check_shape(&shape, cached_levels(&shape))?;
        // A slot is read alone, so only its own tag verifies it.
        if slot_sealer.tag_is_public() {
            return Err(Error::Geometry("the tag of a ring's slot must take a key"));
        }
        if store.len() < first + Self::store_len(params, &shape, body_len, &slot_sealer) {
            return Err(Error::Geometry("the store is smaller than the tree"));
        }
        let len = FRONT_LEN + Bucket::len(params.z);
        let metadata_len = SealedTree::store_len(&shape, len, &metadata_sealer);
        let unnamed = vec![Header::EMPTY; shape.path_slots()];
        let levels = shape.levels();
        let slot_len = slot_sealer.tag_len() + body_len;
        let of_metadata = salts.fork();
        let (all, sealer) = (store.clone(), metadata_sealer);
        let metadata = SealedTree::create(all, first, METADATA, shape, len, sealer, of_metadata)?;
        Ok(Self {
            first: first + metadata_len,
            sealer: slot_sealer,
            salts,
            params,
            store,
            body_len,
            leaf: Leaf(0),
            opened: 0,
            extents: vec![],
            // An eviction needs the largest buffers.
            read: Vec::with_capacity(levels * usize::from(params.z) * slot_len),
            out: Vec::with_capacity(levels * params.slots() * slot_len + metadata.path_len()),
            renewed: Vec::with_capacity(levels),
            metadata,
            unnamed,
        })
    }

    /// Bytes of the metadata of a path.
    pub fn path_bytes(&self) -> usize {
        self.metadata.path_len()
    }

    fn slot_len(&self) -> usize {
        self.sealer.tag_len() + self.body_len
    }

    /// The number of a slot in the tree.
    fn number(&self, at: SlotAt) -> u64 {
        let shape = self.metadata.shape();
        let bucket = buckets_above(shape, at.level) + shape.bucket(self.leaf, at.level);
        bucket * self.params.slots() as u64 + u64::from(at.slot)
    }

    /// The bytes of `slots` slots, beginning with this one.
    fn extent(&self, at: SlotAt, slots: usize) -> Extent {
        let len = self.slot_len();
        Extent::new(self.first + self.number(at) * len as u64, slots * len)
    }

    /// The slot in the tree of metadata that stands for a bucket of the open path.
    fn slot(&self, level: usize) -> usize {
        self.metadata.shape().path_start(level)
    }

    /// The version of a bucket's slots; 0 if it was never renewed.
    fn version(&self, level: usize) -> u64 {
        let bytes = &self.metadata.body(self.slot(level))[..VERSION_LEN];
        u64::from_le_bytes(bytes.try_into().expect("the bytes of a version"))
    }

    /// The salt of a bucket's slots.
    fn salt(&self, level: usize) -> Salt {
        Salt::split(&self.metadata.body(self.slot(level))[VERSION_LEN..]).0
    }

    /// Opens slot number `nth` of the last read.
    fn open(&mut self, nth: usize, at: SlotAt) -> Result {
        let (version, salt, len) = (self.version(at.level), self.salt(at.level), self.slot_len());
        let (tag, body) = self.read[nth * len..][..len].split_at_mut(self.sealer.tag_len());
        if version == 0 {
            body.fill(0);
            return Ok(());
        }
        let nonce = Nonce::new(numbered(version, at), salt);
        self.sealer.open_in_place(nonce, &[], body, tag).map_err(|_| {
            let place = Place { area: "ring-slots", slot: self.number(at), block: None };
            Error::Tampered { place }
        })
    }

    /// Seals the bucket that was started last, if there is one; all its slots are filled.
    fn seal_last(&mut self) {
        let Some((level, salt)) = self.renewed.last_mut() else { return };
        *salt = self.salts.salt();
        let (level, salt) = (*level, *salt);
        let (first, slot_len, tag_len) =
            (self.place(level), self.slot_len(), self.sealer.tag_len());
        for (slot, bytes) in (0..).zip(self.out[first..].chunks_exact_mut(slot_len)) {
            let (tag, body) = bytes.split_at_mut(tag_len);
            let nonce = Nonce::new(numbered(self.opened, SlotAt { level, slot }), salt);
            self.sealer.seal_in_place(nonce, &[], body, tag);
        }
    }

    /// Offset of the bucket that was started last in the output buffer.
    fn place(&self, level: usize) -> usize {
        assert_eq!(
            self.renewed.last().map(|last| last.0),
            Some(level),
            "the bucket was begun last"
        );
        (self.renewed.len() - 1) * self.params.slots() * self.slot_len()
    }
}

impl<C: Sealer> RingTree for SealedRing<C> {
    fn params(&self) -> Params {
        self.params
    }

    fn shape(&self) -> &Shape {
        self.metadata.shape()
    }

    fn body_len(&self) -> usize {
        self.body_len
    }

    fn open_path(&mut self, leaf: Leaf) -> Result {
        self.leaf = leaf;
        // Counted before anything is sealed: a number is never reused, even if the path is
        // abandoned.
        self.opened += 1;
        assert!(self.opened < 1 << (64 - LEVEL_BITS - SLOT_BITS), "no tree lives that long");
        self.out.clear();
        self.renewed.clear();
        // Blocks of this tree need no names, since a bucket holds one.
        self.metadata.read_path(leaf, &mut self.unnamed)
    }

    fn metadata(&self, level: usize) -> &[u8] {
        &self.metadata.body(self.slot(level))[FRONT_LEN..]
    }

    fn metadata_mut(&mut self, level: usize) -> &mut [u8] {
        let slot = self.slot(level);
        &mut self.metadata.body_mut(slot)[FRONT_LEN..]
    }

    fn read_slots(&mut self, slots: &[SlotAt]) -> Result {
        self.extents.clear();
        for &at in slots {
            let extent = self.extent(at, 1);
            self.extents.push(extent);
        }
        self.read.resize(slots.len() * self.slot_len(), 0);
        self.store.prefetch(&self.extents);
        self.store.read(&self.extents, &mut self.read)?;
        slots.iter().enumerate().try_for_each(|(nth, &at)| self.open(nth, at))
    }

    fn body(&self, nth: usize) -> &[u8] {
        let len = self.slot_len();
        &self.read[nth * len..][self.sealer.tag_len()..len]
    }

    fn renew(&mut self, level: usize) {
        // Sealing now finds the bucket in the CPU cache: all buckets of a path do not fit there.
        self.seal_last();
        self.renewed.push((level, Salt(0)));
        let len = self.renewed.len() * self.params.slots() * self.slot_len();
        self.out.resize(len, 0);
    }

    fn new_body(&mut self, level: usize, slot: u8) -> &mut [u8] {
        let at = self.place(level) + usize::from(slot) * self.slot_len() + self.sealer.tag_len();
        &mut self.out[at..at + self.body_len]
    }

    fn carry(&mut self, nth: usize, level: usize, slot: u8) {
        let to = self.place(level) + usize::from(slot) * self.slot_len();
        let (tag, len) = (self.sealer.tag_len(), self.slot_len());
        self.out[to + tag..to + len].copy_from_slice(&self.read[nth * len + tag..(nth + 1) * len]);
    }

    fn write_path(&mut self) -> Result {
        self.seal_last();
        let slots = self.params.slots();
        self.extents.clear();
        for nth in 0..self.renewed.len() {
            let (level, salt) = self.renewed[nth];
            let extent = self.extent(SlotAt { level, slot: 0 }, slots);
            self.extents.push(extent);
            let slot = self.slot(level);
            let (version, rest) = self.metadata.body_mut(slot).split_at_mut(VERSION_LEN);
            version.copy_from_slice(&self.opened.to_le_bytes());
            salt.put(rest);
        }
        let (extents, bytes) = self.metadata.seal_path(&self.unnamed);
        self.extents.extend_from_slice(extents);
        self.out.extend_from_slice(bytes);
        self.store.write(&self.extents, &self.out)
    }

    fn sync(&mut self) -> Result {
        self.store.sync()
    }
}

/// The version of a slot's nonce.
fn numbered(version: u64, at: SlotAt) -> u64 {
    (version << LEVEL_BITS | at.level as u64) << SLOT_BITS | u64::from(at.slot)
}
