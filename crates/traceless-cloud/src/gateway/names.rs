//! The map from names to blocks.

use super::lost_block::LostBlock;
use crate::codec::{Reader, Writer};
use crate::error::{Error, Result};
use core::ops::{Bound, Range};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a name is for. Spaces are independent of each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Namespace {
    /// Values of the Redis protocol.
    Values,
    /// Buckets of S3, which have no blocks.
    Buckets,
    /// Objects of S3: the bucket, `/`, the key. Older versions have names that no bucket begins.
    Objects,
    /// Multipart uploads of S3, which have no blocks; each one's parts follow it.
    Uploads,
}

const SPACES: usize = 4;

impl Namespace {
    /// Every space, by its number.
    pub const ALL: [Self; SPACES] = [Self::Values, Self::Buckets, Self::Objects, Self::Uploads];

    /// The space with this number.
    fn from_number(number: u8) -> Result<Self> {
        Self::ALL.get(number as usize).copied().ok_or(Error::State("the gateway's state"))
    }

    /// What it holds, in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Values => "value",
            Self::Buckets => "bucket",
            Self::Objects => "object",
            Self::Uploads => "upload",
        }
    }
}

/// The bytes that a name stands for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Object {
    /// Bytes of each piece. A piece starts in a new block and has at least one block.
    pub(super) pieces: Vec<u64>,
    /// The blocks that hold the bytes. They are not reused while a reference to this list exists.
    pub(super) ids: Arc<[u32]>,
    /// Metadata that a front end reads without a query.
    pub(super) note: Vec<u8>,
}

impl Object {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.pieces.iter().sum()
    }

    /// Whether the object has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many blocks hold the object.
    pub fn blocks(&self) -> usize {
        self.ids.len()
    }

    /// Bytes of each piece of the object.
    pub fn pieces(&self) -> &[u64] {
        &self.pieces
    }

    /// The front end's metadata.
    pub fn note(&self) -> &[u8] {
        &self.note
    }
}

/// Names in order, and the free blocks.
#[derive(Default)]
pub struct Names {
    spaces: [BTreeMap<Vec<u8>, Object>; SPACES],
    /// Blocks from here on were never used; free blocks before it are in `free`.
    next: u32,
    free: Vec<u32>,
    /// Blocks without a name that a reader may still hold.
    retired: Vec<Arc<[u32]>>,
    /// What a transaction has changed.
    transaction: Option<Transaction>,
}

/// Changes of names that can be taken back.
#[derive(Default)]
struct Transaction {
    /// The names that were changed, in order, with their objects before.
    before: Vec<(Namespace, Vec<u8>, Option<Object>)>,
    /// Blocks that are free once the changes stay.
    freed: Vec<Arc<[u32]>>,
}

impl Names {
    /// How many names a space has.
    pub fn len(&self, namespace: Namespace) -> usize {
        self.spaces[namespace as usize].len()
    }

    /// The object of a name.
    pub fn get(&self, namespace: Namespace, name: &[u8]) -> Option<&Object> {
        self.spaces[namespace as usize].get(name)
    }

    /// Names in order, starting at a bound.
    pub fn from(
        &self,
        namespace: Namespace,
        from: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&[u8], &Object)> + use<'_> {
        let range = (from, Bound::Unbounded);
        self.spaces[namespace as usize]
            .range::<[u8], _>(range)
            .map(|(name, object)| (&name[..], object))
    }

    /// Names with blocks among these, in order, and how many of its blocks each has among them.
    pub fn with_any_of(&self, ids: &BTreeSet<u32>) -> Vec<(Namespace, Vec<u8>, usize)> {
        let mut found = Vec::new();
        for (namespace, names) in Namespace::ALL.into_iter().zip(&self.spaces) {
            for (name, object) in names {
                match object.ids.iter().filter(|id| ids.contains(id)).count() {
                    0 => {}
                    blocks => found.push((namespace, name.clone(), blocks)),
                }
            }
        }
        found
    }

    /// Blocks that have a name, are being read, or are reserved.
    pub fn used(&self) -> usize {
        let unread = self.retired.iter().filter(|ids| Arc::strong_count(ids) == 1);
        let unread: usize = unread.map(|ids| ids.len()).sum();
        self.next as usize - self.free.len() - unread
    }

    /// Takes `count` unused blocks, if the tree of `blocks` blocks has as many. They stay reserved
    /// until they are bound or released.
    pub fn reserve(&mut self, count: usize, blocks: u64) -> Option<Vec<u32>> {
        for ids in self.retired.extract_if(.., |ids| Arc::strong_count(ids) == 1) {
            self.free.extend_from_slice(&ids);
        }
        let fresh = count.saturating_sub(self.free.len());
        if u64::from(self.next) + fresh as u64 > blocks {
            return None;
        }
        let mut ids = self.free.split_off(self.free.len() - (count - fresh));
        ids.extend(self.next..self.next + fresh as u32);
        self.next += fresh as u32;
        Some(ids)
    }

    /// Returns reserved blocks.
    pub fn release(&mut self, ids: Vec<u32>) {
        self.free.extend(ids);
    }

    /// Begins a transaction.
    pub fn begin(&mut self) {
        self.transaction = Some(Transaction::default());
    }

    /// Ends a transaction: its changes stay.
    pub fn commit(&mut self) {
        let Some(Transaction { before, freed }) = self.transaction.take() else { return };
        drop(before);
        for ids in freed {
            self.retire(ids);
        }
    }

    /// Ends a transaction, if there is one: its changes are taken back, the last one first.
    pub fn roll_back(&mut self) {
        let Some(Transaction { before, freed }) = self.transaction.take() else { return };
        drop(freed);
        let (mut displaced, mut names) = (Vec::new(), Vec::new());
        for (namespace, name, object) in before.into_iter().rev() {
            let space = &mut self.spaces[namespace as usize];
            displaced.extend(match object {
                Some(object) => space.insert(name.clone(), object),
                None => space.remove(&name),
            });
            names.push((namespace, name));
        }
        let objects = names.iter().filter_map(|(namespace, name)| self.get(*namespace, name));
        let restored: BTreeSet<_> = objects.map(|object| Arc::as_ptr(&object.ids)).collect();
        let mut freed: Vec<Arc<[u32]>> = displaced.into_iter().map(|object| object.ids).collect();
        freed.retain(|ids| !restored.contains(&Arc::as_ptr(ids)));
        freed.sort_by_key(Arc::as_ptr);
        // A note that was replaced twice displaces the same blocks twice.
        freed.dedup_by(|a, b| Arc::ptr_eq(a, b));
        for ids in freed {
            self.retire(ids);
        }
    }

    /// Keeps the object of a name that a transaction is about to change.
    fn keep_before(&mut self, namespace: Namespace, name: &[u8]) {
        if let Some(transaction) = &mut self.transaction {
            let object = self.spaces[namespace as usize].get(name).cloned();
            transaction.before.push((namespace, name.to_vec(), object));
        }
    }

    /// Binds a name to an object, and frees the blocks of its old object.
    pub fn bind(&mut self, namespace: Namespace, name: Vec<u8>, object: Object) {
        self.keep_before(namespace, &name);
        if let Some(old) = self.spaces[namespace as usize].insert(name, object) {
            self.retire(old.ids);
        }
    }

    /// Replaces the note of a name.
    pub fn note(&mut self, namespace: Namespace, name: &[u8], note: Vec<u8>) {
        self.keep_before(namespace, name);
        if let Some(object) = self.spaces[namespace as usize].get_mut(name) {
            object.note = note;
        }
    }

    /// Removes a name.
    pub fn unbind(&mut self, namespace: Namespace, name: &[u8]) {
        self.keep_before(namespace, name);
        if let Some(old) = self.spaces[namespace as usize].remove(name) {
            self.retire(old.ids);
        }
    }

    /// Gives an object another name, and frees the blocks of the object that had it.
    pub fn rename(&mut self, namespace: Namespace, from: &[u8], to: Vec<u8>) {
        assert!(self.transaction.is_none(), "a transaction is of values, which keep their names");
        if let Some(object) = self.spaces[namespace as usize].remove(from) {
            self.bind(namespace, to, object);
        }
    }

    /// Makes one object of these parts of an upload, and removes the upload with all its other
    /// parts.
    pub fn join(&mut self, upload: &[u8], parts: &[Vec<u8>], name: Vec<u8>, note: Vec<u8>) {
        assert!(self.transaction.is_none(), "a transaction is of values, which have no parts");
        let (mut pieces, mut ids) = (Vec::new(), Vec::new());
        for part in parts {
            if let Some(part) = self.spaces[Namespace::Uploads as usize].remove(part) {
                pieces.extend_from_slice(&part.pieces);
                ids.extend_from_slice(&part.ids);
            }
        }
        let from = self.from(Namespace::Uploads, Bound::Included(upload));
        let rest = from.map(|(name, _)| name.to_vec()).take_while(|name| name.starts_with(upload));
        for name in rest.collect::<Vec<_>>() {
            self.unbind(Namespace::Uploads, &name);
        }
        self.bind(Namespace::Objects, name, Object { pieces, ids: ids.into(), note });
    }

    fn retire(&mut self, ids: Arc<[u32]>) {
        if let Some(transaction) = &mut self.transaction {
            transaction.freed.push(ids);
        } else if Arc::strong_count(&ids) > 1 {
            self.retired.push(ids);
        } else {
            self.free.extend_from_slice(&ids);
        }
    }

    /// Finds the free blocks after names were loaded and bound.
    pub fn find_free(&mut self) {
        let objects = || self.spaces.iter().flat_map(BTreeMap::values);
        let ids = || objects().flat_map(|object| object.ids.iter().copied());
        self.next = ids().max().map_or(0, |last| last + 1);
        let mut used = vec![false; self.next as usize];
        for id in ids() {
            used[id as usize] = true;
        }
        self.free = (0..self.next).filter(|id| !used[*id as usize]).collect();
        self.retired.clear();
    }

    /// Appends all names.
    pub fn save(&self, out: &mut Writer) {
        for namespace in &self.spaces {
            out.u64(namespace.len() as u64);
            for (name, object) in namespace {
                out.counted(name);
                write_object(object, out);
            }
        }
    }

    /// Restores saved names.
    pub fn load(&mut self, from: &mut Reader<'_>) -> Result {
        for namespace in &mut self.spaces {
            for _ in 0..from.u64()? {
                let name = from.counted()?.to_vec();
                namespace.insert(name, read_object(from)?);
            }
        }
        Ok(())
    }
}

/// Appends a space's number.
pub fn write_namespace(namespace: Namespace, out: &mut Writer) {
    out.u8(namespace as u8);
}

/// Takes a space's number.
pub fn read_namespace(from: &mut Reader<'_>) -> Result<Namespace> {
    Namespace::from_number(from.u8()?)
}

/// Appends an object.
pub fn write_object(object: &Object, out: &mut Writer) {
    out.u32(object.pieces.len() as u32);
    out.u64s(&object.pieces);
    out.u32(object.ids.len() as u32);
    out.u32s(&object.ids);
    out.counted(&object.note);
}

/// Takes an object.
pub fn read_object(from: &mut Reader<'_>) -> Result<Object> {
    let mut pieces = vec![0; from.count(8)?];
    from.u64s(&mut pieces)?;
    let mut ids = vec![0; from.count(4)?];
    from.u32s(&mut ids)?;
    Ok(Object { pieces, ids: ids.into(), note: from.counted()?.to_vec() })
}

/// A range of an object's bytes, mapped to its blocks, as far as it was read.
#[derive(Clone)]
pub struct ByteRange {
    object: Object,
    /// The current piece, its first byte and its first block.
    piece: usize,
    first_byte: u64,
    first_block: usize,
    bytes: Range<u64>,
    /// Blocks read so far.
    pub(super) blocks: usize,
    /// Dummy queries made to fill the size class.
    pub(super) padded: usize,
    /// Whether reading and padding are finished.
    pub(super) done: bool,
    /// A lost block. The rest is read, too, before that is an error.
    pub(super) lost: Option<LostBlock>,
}

impl ByteRange {
    /// About how many blocks have `len` bytes.
    pub(super) fn blocks_in(&self, len: usize) -> usize {
        let block_len = self.object.len().div_ceil(self.object.blocks().max(1) as u64).max(1);
        (len as u64).div_ceil(block_len).max(1) as usize
    }

    /// A range of bytes inside an object.
    pub fn new(object: Object, bytes: Range<u64>) -> Self {
        assert!(bytes.start <= bytes.end && bytes.end <= object.len(), "bytes are in the object");
        let (piece, first_byte, first_block) = (0, 0, 0);
        let (blocks, padded, done) = (0, 0, false);
        let lost = None;
        Self { object, piece, first_byte, first_block, bytes, blocks, padded, done, lost }
    }

    /// Whether reading and padding are finished.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The error about a lost block, if there was one: bytes that were read are zeros in its
    /// place, and the end of reading and padding is this error.
    pub fn lost_error(&self) -> Option<Error> {
        self.lost.map(Error::from)
    }

    /// The next block and the range of its bytes that was requested; `None` after the last. An
    /// empty range yields one block, too.
    pub(super) fn next(&mut self, block_len: usize) -> Option<(u32, Range<usize>)> {
        if self.bytes.is_empty() {
            let first = self.object.ids.first().filter(|_| self.blocks == 0);
            return first.map(|&id| (id, 0..0));
        }
        let block_len = block_len as u64;
        let mut len = self.object.pieces[self.piece];
        while self.bytes.start >= self.first_byte + len {
            self.first_byte += len;
            self.first_block += blocks_of(len, block_len);
            self.piece += 1;
            len = self.object.pieces[self.piece];
        }
        let at = self.bytes.start - self.first_byte;
        let id = self.object.ids[self.first_block + (at / block_len) as usize];
        let from = at % block_len;
        let end = self.bytes.end.min(self.first_byte + len);
        let count = (block_len - from).min(end - self.bytes.start);
        self.bytes.start += count;
        Some((id, from as usize..(from + count) as usize))
    }
}

/// How many blocks a piece takes.
pub(super) fn blocks_of(len: u64, block_len: u64) -> usize {
    len.div_ceil(block_len).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(ids: &[u32]) -> Object {
        Object { pieces: vec![ids.len() as u64 * 10], ids: ids.into(), note: Vec::new() }
    }

    #[test]
    fn blocks_of_open_readers_are_not_reused() {
        let mut names = Names::default();
        let ids = names.reserve(3, 6).unwrap();
        names.bind(Namespace::Values, b"a".to_vec(), object(&ids));
        let reader = names.get(Namespace::Values, b"a").unwrap().clone();
        names.unbind(Namespace::Values, b"a");
        assert_eq!(names.reserve(3, 6).unwrap(), [3, 4, 5]);
        assert!(names.reserve(1, 6).is_none());
        assert_eq!(names.used(), 6);
        drop(reader);
        assert_eq!(names.used(), 3);
        assert_eq!(names.reserve(3, 6).unwrap(), ids);
    }

    #[test]
    fn blocks_are_freed_when_their_name_is_unbound_or_they_are_released() {
        let mut names = Names::default();
        let ids = names.reserve(2, 5).unwrap();
        names.bind(Namespace::Values, b"a".to_vec(), object(&ids));
        let reserved = names.reserve(3, 5).unwrap();
        assert_eq!((names.used(), names.reserve(1, 5)), (5, None));
        names.unbind(Namespace::Values, b"a");
        assert_eq!(names.used(), 3);
        names.release(reserved);
        assert_eq!(names.used(), 0);
        assert_eq!(names.reserve(5, 5).map(|ids| ids.len()), Some(5));
    }

    #[test]
    fn an_object_counts_its_bytes_and_blocks() {
        let of = |pieces: &[u64], ids: &[u32]| {
            let object = Object { pieces: pieces.to_vec(), ids: ids.into(), note: vec![1] };
            (object.len(), object.is_empty(), object.blocks())
        };
        assert_eq!(of(&[], &[]), (0, true, 0));
        assert_eq!(of(&[0], &[7]), (0, true, 1));
        assert_eq!(of(&[0, 64, 1], &[7, 8, 9, 4]), (65, false, 4));
    }

    #[test]
    fn a_renamed_object_keeps_its_blocks_and_replaces_another() {
        let mut names = Names::default();
        let ids = names.reserve(3, 5).unwrap();
        names.bind(Namespace::Objects, b"a".to_vec(), object(&ids[..2]));
        names.bind(Namespace::Objects, b"b".to_vec(), object(&ids[2..]));
        names.rename(Namespace::Objects, b"a", b"b".to_vec());
        assert_eq!((names.len(Namespace::Objects), names.used()), (1, 2));
        assert_eq!(names.get(Namespace::Objects, b"b").unwrap().ids[..], ids[..2]);
        names.rename(Namespace::Objects, b"a", b"b".to_vec());
        assert_eq!(names.used(), 2, "there is no such name any more");
        names.rename(Namespace::Objects, b"b", b"b".to_vec());
        assert_eq!((names.len(Namespace::Objects), names.used()), (1, 2));
    }

    #[test]
    fn a_transaction_stays_as_a_whole_or_is_taken_back() {
        let values = Namespace::Values;
        let begin = || {
            let mut names = Names::default();
            let ids = names.reserve(4, 9).unwrap();
            names.bind(values, b"a".to_vec(), object(&ids[..2]));
            names.bind(values, b"b".to_vec(), object(&ids[2..]));
            names.begin();
            // New blocks for `a`, twice; a note for `b`, twice; `c` comes and goes; `b` goes.
            for _ in 0..2 {
                let ids = names.reserve(2, 9).unwrap();
                names.bind(values, b"a".to_vec(), object(&ids));
                names.note(values, b"b", vec![7]);
            }
            let ids = names.reserve(1, 9).unwrap();
            names.bind(values, b"c".to_vec(), object(&ids));
            names.unbind(values, b"c");
            names.unbind(values, b"b");
            assert_eq!(names.reserve(1, 9), None, "nothing that was freed is used again");
            names
        };
        let mut stays = begin();
        stays.commit();
        assert_eq!((stays.len(values), stays.used()), (1, 2));
        assert_eq!(stays.get(values, b"a").unwrap().ids[..], [6, 7]);
        assert_eq!(stays.reserve(7, 9).map(|ids| ids.len()), Some(7));
        assert!(stays.retired.is_empty());
        let mut back = begin();
        back.roll_back();
        assert_eq!((back.len(values), back.used()), (2, 4));
        assert_eq!(back.get(values, b"a").unwrap().ids[..], [0, 1]);
        assert_eq!(*back.get(values, b"b").unwrap(), object(&[2, 3]));
        assert_eq!(back.reserve(5, 9).map(|ids| ids.len()), Some(5));
        assert!(back.retired.is_empty());
    }

    #[test]
    fn parts_are_joined_into_one_object() {
        let mut names = Names::default();
        for (name, ids) in
            [("u", &[][..]), ("u/1", &[1, 2]), ("u/2", &[3]), ("u/3", &[0]), ("v", &[])]
        {
            names.bind(Namespace::Uploads, name.as_bytes().to_vec(), object(ids));
        }
        names.next = 4;
        let parts = [b"u/1".to_vec(), b"u/3".to_vec()];
        names.join(b"u", &parts, b"b/k".to_vec(), b"note".to_vec());
        let joined = names.get(Namespace::Objects, b"b/k").unwrap();
        assert_eq!(
            (joined.pieces(), &joined.ids[..], joined.len()),
            (&[20, 10][..], &[1, 2, 0][..], 30)
        );
        assert_eq!((names.len(Namespace::Uploads), &names.free[..]), (1, &[3][..]));
    }

    #[test]
    fn byte_ranges_map_to_the_blocks_of_all_pieces() {
        let object =
            Object { pieces: vec![7, 0, 12], ids: [4, 5, 6, 7, 8, 9].into(), note: Vec::new() };
        // The pieces take blocks of five bytes: 4 5 | 6 | 7 8 9.
        let places: Vec<(u32, usize)> = (0..7)
            .map(|at| (4 + at / 5, at as usize % 5))
            .chain((0..12).map(|at| (7 + at / 5, at as usize % 5)))
            .collect();
        for start in 0..=19 {
            for end in start..=19 {
                let mut reading = ByteRange::new(object.clone(), start..end);
                let mut found = Vec::new();
                while let Some((id, bytes)) = reading.next(5) {
                    reading.blocks += 1;
                    found.extend(bytes.map(|at| (id, at)));
                }
                assert_eq!(found, places[start as usize..end as usize]);
                assert!(reading.blocks > 0);
            }
        }
    }
}
