//! Nodes in files: two files of fixed places, and a small log that maps versions to places.
//!
//! A commit is one entry of the log. Nodes are durable before the entry is written, so a whole
//! entry is valid. Damage is distinguished from an interrupted write as in `log`, and a store that
//! lacks an acknowledged commit is not opened.

use super::places::{NodePlaces, VersionPlace};
use super::{CopyableStore, NodeStore, NodeVersion, SlotRead};
use crate::codec::{Reader, Writer};
use crate::durable::{Durability, make_folder, put};
use crate::error::{Error, Result};
use crate::geometry::{GEOMETRY_LEN, Geometry, Node};
use crate::lock::Lock;
use crate::log::{
    Damage, EntryDraft, HashProof, Head, Log, Magic, WholeEntries, check_format, read,
};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use traceless_core::rng::System;

/// Files of inner nodes and of leaves.
const NODES: [&str; 2] = ["inner.nodes", "leaf.nodes"];
const LOG: &str = "places.log";
const NEW_LOG: &str = "places.new";
const MAGIC: Magic = *b"tlnodes3";
const ENTRY_LEN: usize = 16;
/// Begins a record of versions that were copied from another store, before the number.
const COPIED: u64 = u64::MAX;
/// Names the log in errors about what its entries say.
const LOG_CONTENT: &str = "the log of places";
/// Length of a log, in bytes, above which a new one is written.
const LOG_LEN_MAX: u64 = 4 << 20;
/// Advice for the operator when the log is damaged.
const ADVICE: &str = "put the host's folder back from a copy that is as new as the gateway's state";

/// Nodes in a folder.
pub struct FileStore {
    geometry: Geometry,
    durability: Durability,
    folder: PathBuf,
    /// Held by one process at a time.
    _lock: Lock,
    places: RwLock<NodePlaces>,
    /// Files with the places of inner nodes and of leaves.
    nodes: [File; 2],
    log: Mutex<Log<HashProof>>,
}

impl FileStore {
    /// Opens the store in a folder, or creates an empty one.
    pub fn open(folder: &Path, geometry: Geometry, durability: Durability) -> Result<Self> {
        geometry.check()?;
        make_folder(folder)?;
        let lock = Lock::take(folder, "the store")?;
        // A file that is missing, as one of a disk that is not mounted, must not become zeros.
        let is_new = !folder.join(LOG).exists();
        let is_missing = |name: &&str| !folder.join(name).exists();
        if !is_new && NODES.iter().any(is_missing) {
            return Err(Error::Store("a file of nodes is missing: put it back"));
        }
        let nodes = [file_in(folder, NODES[0])?, file_in(folder, NODES[1])?];
        for file in &nodes {
            // Prevents the system from reading ahead of a slot or node. An error does no harm.
            let _ = fadvise(file, 0, None, Advice::Random);
        }
        let mut places = NodePlaces::new(geometry);
        let path = folder.join(LOG);
        let log = if path.exists() {
            let found = replay(&path, std::fs::read(&path)?, &geometry, &mut places)?;
            if found.torn == 0 {
                Log::resume(file_in(folder, LOG)?, found, durability, Box::new(System))
            } else {
                // The new log drops the remains of an interrupted write after the last commit.
                write_log(folder, &geometry, &places, durability)?
            }
        } else {
            write_log(folder, &geometry, &places, durability)?
        };
        // Only now it is known that the files belong to this tree.
        let counts = NodePlaces::counts(&geometry);
        for ((file, count), layer) in nodes.iter().zip(counts).zip([0, geometry.layers - 1]) {
            file.set_len(u64::from(count) * geometry.node_len(layer) as u64)?;
        }
        let folder = folder.to_owned();
        let (places, log) = (RwLock::new(places), Mutex::new(log));
        Ok(Self { geometry, durability, folder, _lock: lock, places, nodes, log })
    }

    /// The log. If a write to it failed, a new log is written from the state in memory, because it
    /// is unknown whether the last commit is in the old one.
    fn working_log(&self, places: &NodePlaces) -> Result<MutexGuard<'_, Log<HashProof>>> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_broken() {
            *log = write_log(&self.folder, &self.geometry, places, self.durability)?;
        }
        Ok(log)
    }

    /// The place of a version; `None` for the version that was never written.
    fn find(&self, places: &NodePlaces, version: NodeVersion) -> Result<Option<(&File, u64)>> {
        let place = places.find(version)?;
        Ok(place.map(|place| self.place(places, version.node, place)))
    }

    fn place(&self, places: &NodePlaces, node: Node, place: u32) -> (&File, u64) {
        let len = self.geometry.node_len(self.geometry.layer_of(node)) as u64;
        (&self.nodes[places.size_of(node)], u64::from(place) * len)
    }

    /// Gives the room of free places back to the file system.
    fn free_places(&self) {
        // No place is allocated meanwhile.
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let sizes = self.nodes.iter().zip([0, self.geometry.layers - 1]);
        for (size, (file, layer)) in sizes.enumerate() {
            let len = self.geometry.node_len(layer) as u64;
            // All of them: rounds would leave the file as long as it was if one were not.
            for free in places.free(size) {
                let (at, len) = (u64::from(free.start) * len, free.len() as u64 * len);
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // A file system without holes keeps the room for other nodes.
                let _ = fallocate(file, hole, at, len);
            }
        }
    }

    fn sync_nodes(&self) -> Result {
        if self.durability == Durability::Power {
            for file in &self.nodes {
                file.sync_data()?;
            }
        }
        Ok(())
    }

    /// Writes the record of staged versions to the log, and makes them current.
    fn apply(
        &self,
        places: &mut NodePlaces,
        sequence: u64,
        staged: &[VersionPlace],
        record: &[u8],
    ) -> Result {
        let mut log = self.working_log(places)?;
        log.write(&mut EntryDraft::of(1, record))?;
        places.commit(sequence, staged);
        if log.position().end > LOG_LEN_MAX {
            match write_log(&self.folder, &self.geometry, places, self.durability) {
                Ok(new) => *log = new,
                // It is unknown which of both logs is in place: the next call tries again.
                Err(_) => log.give_up(),
            }
        }
        Ok(())
    }
}

impl NodeStore for FileStore {
    async fn read_slots(&self, reads: &mut [SlotRead<'_>]) -> Result {
        let len = self.geometry.slot_len();
        // Held while reading, so that no place is reused meanwhile.
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let mut misses = Vec::new();
        for SlotRead { version, slot, into } in reads {
            let Some((file, start)) = self.find(&places, *version)? else {
                into.fill(0);
                continue;
            };
            let at = start + u64::from(*slot) * len as u64;
            if !is_read_from_memory(file, at, into) {
                prefetch(file, at, len);
                misses.push((file, at, into));
            }
        }
        // The disk reads all of them concurrently, so together they take about as long as one.
        for (file, at, into) in misses {
            file.read_exact_at(into, at)?;
        }
        Ok(())
    }

    async fn read_node(&self, version: NodeVersion, into: &mut [u8]) -> Result {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((file, start)) = self.find(&places, version)? {
            file.read_exact_at(into, start)?;
        } else {
            into.fill(0);
        }
        Ok(())
    }

    async fn stage(&self, version: NodeVersion, bytes: &[u8]) -> Result {
        let (file, start) = {
            let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
            let place = places.stage(version)?;
            self.place(&places, version.node, place)
        };
        Ok(file.write_all_at(bytes, start)?)
    }

    async fn abandon(&self) -> Result {
        self.places.write().unwrap_or_else(PoisonError::into_inner).abandon();
        Ok(())
    }

    async fn commit(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.sync_nodes()?;
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let staged = places.staged(sequence, versions)?;
        self.apply(&mut places, sequence, &staged, &record(sequence, &staged))
    }

    async fn remove(&self, nodes: &[Node]) -> Result {
        {
            let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
            if !places.remove(nodes).is_empty() {
                // Their places may be used again from now on, but in another log.
                self.log.lock().unwrap_or_else(PoisonError::into_inner).give_up();
            }
        }
        // First, as the disk may be full. Nothing reads what the old log still names.
        self.free_places();
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        self.working_log(&places).map(drop)
    }

    async fn sequence(&self) -> Result<u64> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        drop(self.working_log(&places)?);
        Ok(places.sequence())
    }
}

impl CopyableStore for FileStore {
    fn current(&self) -> Result<Vec<NodeVersion>> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        Ok(places.current().map(|placed| placed.version).collect())
    }

    async fn restore(&self, sequence: u64, versions: &[NodeVersion]) -> Result {
        self.sync_nodes()?;
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let staged = places.copied(sequence, versions)?;
        self.apply(&mut places, sequence, &staged, &copied_record(sequence, &staged))
    }
}

/// Reads from the system's cache. Returns false, without waiting, if that is not possible.
fn is_read_from_memory(file: &File, at: u64, into: &mut [u8]) -> bool {
    let len = into.len();
    preadv2(file, &mut [IoSliceMut::new(into)], at, ReadWriteFlags::NOWAIT) == Ok(len)
}

/// Starts a read of the disk.
fn prefetch(file: &File, at: u64, len: usize) {
    // If this fails, the read itself waits longer.
    let _ = fadvise(file, at, NonZeroU64::new(len as u64), Advice::WillNeed);
}

fn file_in(folder: &Path, name: &str) -> Result<File> {
    let path = folder.join(name);
    Ok(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?)
}

/// Replaces the log by a new one with the current state. Its last entry is the last commit, because
/// the versions that this commit replaced are still readable.
fn write_log(
    folder: &Path,
    geometry: &Geometry,
    places: &NodePlaces,
    durability: Durability,
) -> Result<Log<HashProof>> {
    let before: Vec<VersionPlace> = places.before_newest().collect();
    let newest = places.sequence();
    let records = if newest == 0 && !before.is_empty() {
        // A copy of a store, before its first commit.
        vec![record(0, &before), copied_record(0, places.newest())]
    } else {
        let before = newest.checked_sub(1).map(|sequence| record(sequence, &before));
        before.into_iter().chain([record(newest, places.newest())]).collect()
    };
    let records = records.into_iter();
    let entries = records.map(|record| EntryDraft::of(1, &record));
    let head = Head::draw(MAGIC, places.sequence(), geometry.encode().to_vec(), &mut System);
    let new = folder.join(NEW_LOG);
    let log = Log::create(&new, &head, &(), entries, durability, Box::new(System))?;
    put(&new, &folder.join(LOG))?;
    Ok(log)
}

/// A commit: its number, and each node with attempt and place.
fn record(sequence: u64, placed: &[VersionPlace]) -> Vec<u8> {
    let mut out = Writer::with_capacity(8 + placed.len() * ENTRY_LEN);
    out.u64(sequence);
    for VersionPlace { version, location } in placed {
        version.encode(&mut out);
        out.u32(*location);
    }
    out.into_bytes()
}

/// The same of versions that were copied from another store.
fn copied_record(sequence: u64, placed: &[VersionPlace]) -> Vec<u8> {
    [&COPIED.to_le_bytes()[..], &record(sequence, placed)].concat()
}

/// Applies the commits of a log, which must not be damaged.
fn replay(
    path: &Path,
    bytes: Vec<u8>,
    geometry: &Geometry,
    places: &mut NodePlaces,
) -> Result<WholeEntries<HashProof>> {
    let wrong = || Error::State(LOG_CONTENT);
    check_format::<HashProof>(LOG_CONTENT, &bytes, MAGIC, &())?;
    let found: Result<WholeEntries<HashProof>, Damage> = read(bytes, MAGIC, &());
    let found = found.map_err(|damage| damage.error(path, ADVICE))?.undamaged(path, ADVICE)?;
    let about = found.about.first_chunk::<GEOMETRY_LEN>().map(Geometry::decode);
    geometry.check_store(&about.ok_or_else(wrong)?.map_err(|_| wrong())?)?;
    for (before, (_, body)) in found.bodies().enumerate() {
        let (is_copied, body) = match body.strip_prefix(&COPIED.to_le_bytes()) {
            Some(copied) => (true, copied),
            None => (false, body),
        };
        let (number, nodes) = commit_in(body)?;
        let next = places.sequence() + 1;
        let follows = before == 0 || number == next || is_copied && number >= places.sequence();
        if !follows || !nodes.iter().all(|one| is_place(geometry, places, *one)) {
            return Err(wrong());
        }
        places.commit(number, &nodes);
    }
    if found.entries.is_empty() { Err(wrong()) } else { Ok(found) }
}

fn is_place(geometry: &Geometry, places: &NodePlaces, one: VersionPlace) -> bool {
    let node = one.version.node;
    node.0 < geometry.nodes() && one.location < NodePlaces::counts(geometry)[places.size_of(node)]
}

fn commit_in(record: &[u8]) -> Result<(u64, Vec<VersionPlace>)> {
    let mut from = Reader::of_state(record, LOG_CONTENT);
    let sequence = from.u64()?;
    let mut placed = Vec::with_capacity(from.remaining().len() / ENTRY_LEN);
    while !from.remaining().is_empty() {
        let version = NodeVersion::decode(&mut from)?;
        placed.push(VersionPlace { version, location: from.u32()? });
    }
    Ok((sequence, placed))
}

#[cfg(test)]
mod tests {
    use super::super::suite::{check_round, path, write_round};
    use super::*;
    use crate::geometry::tests::rootless;
    use crate::log::testing::{Judged, damages, every_damage};

    const COMMITS: u64 = 6;

    /// The sequence and places that a log leads to.
    fn state_of(bytes: Vec<u8>, g: &Geometry) -> Result<(u64, Vec<VersionPlace>)> {
        let mut places = NodePlaces::new(*g);
        replay(Path::new("log"), bytes, g, &mut places)?;
        Ok((places.sequence(), places.current().collect()))
    }

    #[test]
    fn damage_of_the_log_loses_no_commit() {
        let (folder, g) = (tempfile::tempdir().unwrap(), rootless());
        let store = FileStore::open(folder.path(), g, Durability::Power).unwrap();
        for sequence in 1..=COMMITS {
            write_round(&store, &g, sequence);
        }
        drop(store);
        let log = folder.path().join(LOG);
        let whole = std::fs::read(&log).unwrap();
        let want = state_of(whole.clone(), &g).unwrap();
        assert_eq!(want.0, COMMITS);
        every_damage(&whole, |bytes| match state_of(bytes, &g) {
            Ok(found) => {
                assert!(found == want, "what is opened lacks a commit");
                Judged::Opened
            }
            Err(Error::Damaged { .. }) => Judged::Refused,
            Err(other) => panic!("{other}"),
        });
        // Opens the store itself with some of the damage.
        let versions = path(&g, COMMITS - 1, COMMITS);
        let mut refused = 0;
        for damaged in damages(&whole).step_by(7919) {
            std::fs::write(&log, &damaged).unwrap();
            match FileStore::open(folder.path(), g, Durability::Power) {
                Ok(store) => {
                    assert_eq!(crate::block_on::block_on(store.sequence()).unwrap(), COMMITS);
                    let places = store.places.read().unwrap();
                    assert!(versions.iter().all(|new| places.find(*new).unwrap().is_some()));
                }
                Err(Error::Damaged { .. }) => {
                    assert!(std::fs::read(&log).unwrap() == damaged, "the file is as it was");
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(refused > 3, "{refused}");
    }

    /// A log that is replaced keeps all nodes, also nodes that were copied before a first commit.
    #[test]
    fn a_replaced_log_keeps_copied_nodes() {
        let (folder, g) = (tempfile::tempdir().unwrap(), rootless());
        let open = || FileStore::open(folder.path(), g, Durability::Process).unwrap();
        let nodes = |store: &FileStore| {
            let mut current = store.current().unwrap();
            current.sort_unstable();
            (crate::block_on::block_on(store.sequence()).unwrap(), current)
        };
        for (round, number) in [(1, 0), (2, 0), (3, 4), (4, 4)] {
            let store = open();
            for version in path(&g, round, 70 + round) {
                let bytes = vec![7; g.node_len(g.layer_of(version.node))];
                crate::block_on::block_on(store.stage(version, &bytes)).unwrap();
                crate::block_on::block_on(store.restore(number, &[version])).unwrap();
            }
            let before = nodes(&store);
            drop(store);
            let log = folder.path().join(LOG);
            let torn = [std::fs::read(&log).unwrap(), vec![0xaa; 40]].concat();
            std::fs::write(&log, torn).unwrap();
            assert_eq!(nodes(&open()), before);
            assert_eq!(nodes(&open()), before);
        }
    }

    /// An interrupted commit is ignored, and commits continue after the last whole one.
    #[test]
    fn an_interrupted_commit_is_ignored() {
        let (folder, g) = (tempfile::tempdir().unwrap(), rootless());
        let open = || FileStore::open(folder.path(), g, Durability::Power).unwrap();
        let log = folder.path().join(LOG);
        let store = open();
        write_round(&store, &g, 1);
        let before = std::fs::read(&log).unwrap();
        write_round(&store, &g, 2);
        drop(store);
        let after = std::fs::read(&log).unwrap();
        // Without the mark, which is written once the entry is durable.
        let torn = [&before[..], &after[before.len()..]].concat();
        for cut in before.len()..after.len() {
            std::fs::write(&log, &torn[..cut]).unwrap();
            let store = open();
            assert_eq!(crate::block_on::block_on(store.sequence()).unwrap(), 1);
            if cut % 50 == 0 {
                write_round(&store, &g, 2);
                drop(store);
                assert_eq!(crate::block_on::block_on(open().sequence()).unwrap(), 2);
            }
        }
        std::fs::write(&log, &torn).unwrap();
        assert_eq!(crate::block_on::block_on(open().sequence()).unwrap(), 2, "whole, with no mark");
    }

    /// A tree of another shape changes nothing, in particular not the length of the nodes' files.
    #[test]
    fn another_tree_is_refused_before_anything_is_changed() {
        let (folder, g) = (tempfile::tempdir().unwrap(), rootless());
        let store = FileStore::open(folder.path(), g, Durability::Process).unwrap();
        write_round(&store, &g, 1);
        drop(store);
        let leaves = folder.path().join("leaf.nodes");
        let len = std::fs::metadata(&leaves).unwrap().len();
        let other = Geometry { leaf_slots: g.leaf_slots - 1, ..g };
        let refused = FileStore::open(folder.path(), other, Durability::Process);
        assert!(matches!(refused, Err(Error::Parameters(_))));
        assert_eq!(std::fs::metadata(&leaves).unwrap().len(), len);
    }

    /// A log with a failed write is replaced by one with the state in memory.
    #[test]
    fn a_log_with_a_failed_write_is_replaced() {
        let (folder, g) = (tempfile::tempdir().unwrap(), rootless());
        let store = FileStore::open(folder.path(), g, Durability::Process).unwrap();
        write_round(&store, &g, 1);
        store.log.lock().unwrap().give_up();
        let before = std::fs::read(folder.path().join(LOG)).unwrap();
        assert_eq!(crate::block_on::block_on(store.sequence()).unwrap(), 1);
        assert!(std::fs::read(folder.path().join(LOG)).unwrap() != before);
        store.log.lock().unwrap().give_up();
        write_round(&store, &g, 2);
        drop(store);
        let store = FileStore::open(folder.path(), g, Durability::Process).unwrap();
        assert_eq!(crate::block_on::block_on(store.sequence()).unwrap(), 2);
    }

    /// A query may still read what the last commit replaced, also after a new log and a restart.
    #[test]
    fn a_new_log_keeps_the_versions_that_the_last_commit_replaced() {
        let (folder, g) = (tempfile::tempdir().unwrap(), rootless());
        let open = || FileStore::open(folder.path(), g, Durability::Process).unwrap();
        for sequence in 1..=40 {
            let store = open();
            write_round(&store, &g, sequence);
            for _ in 0..sequence % 3 {
                store.log.lock().unwrap().give_up();
                assert_eq!(crate::block_on::block_on(store.sequence()).unwrap(), sequence);
            }
            drop(store);
            let store = open();
            assert_eq!(crate::block_on::block_on(store.sequence()).unwrap(), sequence);
            for round in sequence.saturating_sub(1).max(1)..=sequence {
                check_round(&store, &g, round);
            }
        }
    }

    /// A log file of whole entries with these commits.
    fn log_of(g: &Geometry, commits: &[(u64, &[VersionPlace])]) -> Vec<u8> {
        log_of_records(g, commits.iter().map(|(number, placed)| record(*number, placed)))
    }

    fn log_of_records(g: &Geometry, records: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOG);
        let head = Head { magic: MAGIC, generation: 0, id: [1; 16], about: g.encode().to_vec() };
        let drafts = records.into_iter().map(|record| EntryDraft::of(1, &record));
        let process = Durability::Process;
        Log::<HashProof>::create(&path, &head, &(), drafts, process, Box::new(System)).unwrap();
        std::fs::read(path).unwrap()
    }

    /// An attacker at the host can write whole entries, so their contents are checked, too.
    #[test]
    fn impossible_commits_are_refused() {
        let g = rootless();
        let placed = |node: u32, place: u32| {
            let version = NodeVersion { node: Node(node), attempt: 7 << 32 | 9 };
            VersionPlace { version, location: place }
        };
        let (counts, empty, leaf) = (NodePlaces::counts(&g), NodePlaces::new(g), g.nodes() - 1);
        let [first, last] = [0, leaf].map(|node| {
            let count = counts[empty.size_of(Node(node))];
            (placed(node, count - 1), placed(node, count))
        });
        for good in [first.0, last.0] {
            let found = state_of(log_of(&g, &[(3, &[]), (4, &[good])]), &g).unwrap();
            assert_eq!((found.0, found.1.len()), (4, 1));
            assert_eq!(found.1[0].version, good.version, "with all of its number");
        }
        let beyond = placed(g.nodes(), 0);
        for wrong in [first.1, last.1, beyond, placed(u32::MAX, 0)] {
            let refused = state_of(log_of(&g, &[(3, &[first.0, wrong])]), &g);
            assert!(matches!(refused, Err(Error::State(_))));
        }
        for number in [2, 3, 5] {
            let refused = state_of(log_of(&g, &[(3, &[]), (number, &[first.0])]), &g);
            assert!(matches!(refused, Err(Error::State(_))), "{number} does not follow 3");
        }
        // Copied nodes may skip numbers, and lead to no earlier one.
        for (number, is_right) in [(2, false), (3, true), (9, true)] {
            let records = [record(3, &[]), copied_record(number, &[first.0])];
            let found = state_of(log_of_records(&g, records), &g);
            assert_eq!(found.is_ok(), is_right, "{number}");
        }
        assert!(
            matches!(state_of(log_of(&g, &[]), &g), Err(Error::State(_))),
            "not even where it began"
        );
    }

    /// A log that has grown is replaced, so that it does not fill the disk.
    #[test]
    fn a_log_stays_within_its_length_limit() {
        let (folder, g) = (tempfile::tempdir().unwrap(), rootless());
        let store = FileStore::open(folder.path(), g, Durability::Process).unwrap();
        let len = || std::fs::metadata(folder.path().join(LOG)).unwrap().len();
        let mut last = len();
        for sequence in 1.. {
            write_round(&store, &g, sequence);
            assert!(len() <= LOG_LEN_MAX);
            if len() < last {
                assert!(last > LOG_LEN_MAX - 1000, "not before: {last}");
                break;
            }
            last = len();
        }
    }
}
