//! Nodes in files: two of fixed places, and a small log that says what lies where.
//!
//! A commit is one entry of the log. Nodes are durable before it is written, so an entry that is
//! whole means what it says. What is damaged is told from a write that was cut short as `log` says,
//! and nothing is opened without commits that were acknowledged.

use super::places::{NodePlaces, VersionPlace};
use super::{NodeStore, NodeVersion, SlotRead};
use crate::durable::{Durability, make_folder, put};
use crate::error::{Error, Result};
use crate::geometry::{Geometry, Node};
use crate::lock::Lock;
use crate::log::{Damage, Draft, HashProof, Head, ID_LEN, Log, Magic, WholeEntries, read};
use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use traceless::rng::{Rng, System};

const LOG: &str = "places.log";
const NEW_LOG: &str = "places.new";
const MAGIC: Magic = *b"tlnodes3";
const ENTRY_LEN: usize = 16;
/// Bytes of a log above which it is written anew.
const LOG_LEN_MAX: u64 = 4 << 20;
/// What whoever meets damage can do.
const ADVICE: &str = "put the host's folder back from a copy that is as new as the gateway's state";

/// Nodes in a folder.
pub struct FileStore {
    geometry: Geometry,
    durability: Durability,
    folder: PathBuf,
    /// Held by one process at a time.
    _lock: Lock,
    places: RwLock<NodePlaces>,
    /// Places of inner nodes and of leaves.
    nodes: [File; 2],
    log: Mutex<Log<HashProof>>,
}

impl FileStore {
    /// Opens the store in a folder, or makes an empty one there.
    pub fn open(folder: &Path, geometry: Geometry, durability: Durability) -> Result<Self> {
        geometry.check()?;
        make_folder(folder)?;
        let lock = Lock::take(folder, "the store")?;
        let nodes = [file_in(folder, "inner.nodes")?, file_in(folder, "leaf.nodes")?];
        for file in &nodes {
            // Else the system reads what lies behind a slot or a node, too. It is advice, no more.
            let _ = fadvise(file, 0, None, Advice::Random);
        }
        let mut places = NodePlaces::new(geometry);
        let path = folder.join(LOG);
        let log = if path.exists() {
            let found = replay(&path, std::fs::read(&path)?, &geometry, &mut places)?;
            if found.torn == 0 {
                Log::go_on(file_in(folder, LOG)?, found, durability, Box::new(System))
            } else {
                // Without what a crash left behind the last commit.
                write_log(folder, &geometry, &places, durability)?
            }
        } else {
            write_log(folder, &geometry, &places, durability)?
        };
        // Only now, as it is known that they are of this tree.
        let counts = NodePlaces::counts(&geometry);
        for ((file, count), layer) in nodes.iter().zip(counts).zip([0, geometry.layers - 1]) {
            file.set_len(u64::from(count) * geometry.node_len(layer) as u64)?;
        }
        let folder = folder.to_owned();
        let (places, log) = (RwLock::new(places), Mutex::new(log));
        Ok(Self { geometry, durability, folder, _lock: lock, places, nodes, log })
    }

    /// The log. One that could not be written is written anew, so that it says what is known here:
    /// what came of the last commit is not known otherwise.
    fn sound_log(&self, places: &NodePlaces) -> Result<MutexGuard<'_, Log<HashProof>>> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_broken() {
            *log = write_log(&self.folder, &self.geometry, places, self.durability)?;
        }
        Ok(log)
    }

    /// Where a version lies; nowhere, if it is the one that was never written.
    fn find(&self, places: &NodePlaces, version: NodeVersion) -> Result<Option<(&File, u64)>> {
        let place = places.find(version)?;
        Ok(place.map(|place| self.place(places, version.node, place)))
    }

    fn place(&self, places: &NodePlaces, node: Node, place: u32) -> (&File, u64) {
        let len = self.geometry.node_len(self.geometry.layer_of(node)) as u64;
        (&self.nodes[places.size_of(node)], u64::from(place) * len)
    }

    fn sync(&self, file: &File) -> Result {
        if self.durability == Durability::Power {
            file.sync_data()?;
        }
        Ok(())
    }
}

impl NodeStore for FileStore {
    async fn read_slots(&self, wanted: &mut [SlotRead<'_>]) -> Result {
        let len = self.geometry.slot_len();
        // Held while reading, so that no place is given away meanwhile.
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let mut away = Vec::new();
        for SlotRead { version, slot, into } in wanted {
            let Some((file, start)) = self.find(&places, *version)? else {
                into.fill(0);
                continue;
            };
            let at = start + u64::from(*slot) * len as u64;
            if !is_read_from_memory(file, at, into) {
                ask_for(file, at, len);
                away.push((file, at, into));
            }
        }
        // The disk brings them together, so that all take about as long as one.
        for (file, at, into) in away {
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
        for file in &self.nodes {
            self.sync(file)?;
        }
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let staged = places.staged(sequence, versions)?;
        let mut log = self.sound_log(&places)?;
        log.write(&mut Draft::of(1, &record(sequence, &staged)))?;
        places.commit(sequence, &staged);
        if log.position().end > LOG_LEN_MAX {
            match write_log(&self.folder, &self.geometry, &places, self.durability) {
                Ok(new) => *log = new,
                // Which of both is in its place is not known: the next call tries again.
                Err(_) => log.give_up(),
            }
        }
        Ok(())
    }

    async fn sequence(&self) -> Result<u64> {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        drop(self.sound_log(&places)?);
        Ok(places.sequence())
    }
}

/// Reads what the system has in memory; does not wait for anything else.
fn is_read_from_memory(file: &File, at: u64, into: &mut [u8]) -> bool {
    let len = into.len();
    preadv2(file, &mut [IoSliceMut::new(into)], at, ReadWriteFlags::NOWAIT) == Ok(len)
}

/// Has the disk begin to read.
fn ask_for(file: &File, at: u64, len: usize) {
    // If it can't, whoever reads waits longer.
    let _ = fadvise(file, at, NonZeroU64::new(len as u64), Advice::WillNeed);
}

fn file_in(folder: &Path, name: &str) -> Result<File> {
    let path = folder.join(name);
    Ok(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?)
}

/// Writes a log that says how things are, in place of the one that there is.
fn write_log(
    folder: &Path,
    geometry: &Geometry,
    places: &NodePlaces,
    durability: Durability,
) -> Result<Log<HashProof>> {
    let current: Vec<VersionPlace> = places.current().collect();
    let entries = [Draft::of(1, &record(places.sequence(), &current))].into_iter();
    let mut id = [0; ID_LEN];
    System.fill(&mut id);
    let about = geometry.encode().to_vec();
    let head = Head { magic: MAGIC, generation: places.sequence(), id, about };
    let new = folder.join(NEW_LOG);
    let log = Log::create(&new, &head, &(), entries, durability, Box::new(System))?;
    put(&new, &folder.join(LOG))?;
    Ok(log)
}

/// A commit: its number, and each node with attempt and place.
fn record(sequence: u64, placed: &[VersionPlace]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + placed.len() * ENTRY_LEN);
    bytes.extend_from_slice(&sequence.to_le_bytes());
    for VersionPlace { version, place } in placed {
        bytes.extend_from_slice(&version.node.0.to_le_bytes());
        bytes.extend_from_slice(&version.attempt.to_le_bytes());
        bytes.extend_from_slice(&place.to_le_bytes());
    }
    bytes
}

/// Repeats the commits of a log, which must not be damaged.
fn replay(
    path: &Path,
    mut bytes: Vec<u8>,
    geometry: &Geometry,
    places: &mut NodePlaces,
) -> Result<WholeEntries<HashProof>> {
    let wrong = || Error::State("the log of places");
    let damaged = |damage: Damage| damage.error(path, ADVICE);
    let found: WholeEntries<HashProof> = read(&mut bytes, MAGIC, &()).map_err(damaged)?;
    if let Some(damage) = found.damage {
        return Err(damaged(damage));
    }
    if found.about != geometry.encode() {
        return Err(Error::Parameters("the store is of another tree"));
    }
    for (before, entry) in found.entries.iter().enumerate() {
        let (number, nodes) = commit_in(&bytes[entry.body.clone()]).ok_or_else(wrong)?;
        let follows = before == 0 || number == places.sequence() + 1;
        if !follows || !nodes.iter().all(|one| is_place(geometry, places, *one)) {
            return Err(wrong());
        }
        places.commit(number, &nodes);
    }
    if found.entries.is_empty() { Err(wrong()) } else { Ok(found) }
}

fn is_place(geometry: &Geometry, places: &NodePlaces, one: VersionPlace) -> bool {
    let node = one.version.node;
    node.0 < geometry.nodes() && one.place < NodePlaces::counts(geometry)[places.size_of(node)]
}

fn commit_in(record: &[u8]) -> Option<(u64, Vec<VersionPlace>)> {
    let (sequence, entries) = record.split_first_chunk()?;
    let (entries, rest) = entries.as_chunks::<ENTRY_LEN>();
    let entry = |entry: &[u8; ENTRY_LEN]| {
        let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("4 bytes"));
        let attempt = u64::from(word(8)) << 32 | u64::from(word(4));
        VersionPlace { version: NodeVersion { node: Node(word(0)), attempt }, place: word(12) }
    };
    let placed = entries.iter().map(entry).collect();
    rest.is_empty().then_some((u64::from_le_bytes(*sequence), placed))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{path, write_round};
    use super::*;
    use crate::geometry::tests::rootless;
    use crate::log::testing::{Judged, damages, every_damage};

    const COMMITS: u64 = 6;

    /// What a log says lies where.
    fn said(bytes: Vec<u8>, g: &Geometry) -> Result<(u64, Vec<VersionPlace>)> {
        let mut places = NodePlaces::new(*g);
        replay(Path::new("log"), bytes, g, &mut places)?;
        Ok((places.sequence(), places.current().collect()))
    }

    #[test]
    fn no_damage_of_the_log_loses_a_commit() {
        let (folder, g) = (tempfile::tempdir().unwrap(), rootless());
        let store = FileStore::open(folder.path(), g, Durability::Power).unwrap();
        for sequence in 1..=COMMITS {
            write_round(&store, &g, sequence);
        }
        drop(store);
        let log = folder.path().join(LOG);
        let whole = std::fs::read(&log).unwrap();
        let want = said(whole.clone(), &g).unwrap();
        assert_eq!(want.0, COMMITS);
        every_damage(&whole, |bytes| match said(bytes, &g) {
            Ok(found) => {
                assert!(found == want, "what is opened lacks a commit");
                Judged::Opened
            }
            Err(Error::Damaged { .. }) => Judged::Refused,
            Err(other) => panic!("{other}"),
        });
        // The same of the store itself, for some of it.
        let versions = path(&g, COMMITS - 1, COMMITS);
        let mut refused = 0;
        for damaged in damages(&whole).step_by(7919) {
            std::fs::write(&log, &damaged).unwrap();
            match FileStore::open(folder.path(), g, Durability::Power) {
                Ok(store) => {
                    assert_eq!(pollster::block_on(store.sequence()).unwrap(), COMMITS);
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

    /// A commit that was cut short is forgotten, and commits go on behind the last whole one.
    #[test]
    fn a_commit_that_was_cut_short_never_happened() {
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
            assert_eq!(pollster::block_on(store.sequence()).unwrap(), 1);
            if cut % 50 == 0 {
                write_round(&store, &g, 2);
                drop(store);
                assert_eq!(pollster::block_on(open().sequence()).unwrap(), 2);
            }
        }
        std::fs::write(&log, &torn).unwrap();
        assert_eq!(pollster::block_on(open().sequence()).unwrap(), 2, "whole, with no mark");
    }

    /// A tree of another shape changes nothing, above all not the length of the nodes' files.
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

    /// A log that could not be written is written anew, so that what it says is what is known.
    #[test]
    fn a_log_that_could_not_be_written_is_made_anew() {
        let (folder, g) = (tempfile::tempdir().unwrap(), rootless());
        let store = FileStore::open(folder.path(), g, Durability::Process).unwrap();
        write_round(&store, &g, 1);
        store.log.lock().unwrap().give_up();
        let before = std::fs::read(folder.path().join(LOG)).unwrap();
        assert_eq!(pollster::block_on(store.sequence()).unwrap(), 1);
        assert!(std::fs::read(folder.path().join(LOG)).unwrap() != before);
        store.log.lock().unwrap().give_up();
        write_round(&store, &g, 2);
        drop(store);
        let store = FileStore::open(folder.path(), g, Durability::Process).unwrap();
        assert_eq!(pollster::block_on(store.sequence()).unwrap(), 2);
    }

    /// A file whose entries are whole and say this, each a commit.
    fn log_of(g: &Geometry, commits: &[(u64, &[VersionPlace])]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOG);
        let head = Head { magic: MAGIC, generation: 0, id: [1; 16], about: g.encode().to_vec() };
        let drafts = commits.iter().map(|(number, placed)| Draft::of(1, &record(*number, placed)));
        let process = Durability::Process;
        Log::<HashProof>::create(&path, &head, &(), drafts, process, Box::new(System)).unwrap();
        std::fs::read(path).unwrap()
    }

    /// Whoever holds the host can write entries that are whole: what they say is looked at, too.
    #[test]
    fn commits_that_cannot_be_are_refused() {
        let g = rootless();
        let placed = |node: u32, place: u32| {
            let version = NodeVersion { node: Node(node), attempt: 7 << 32 | 9 };
            VersionPlace { version, place }
        };
        let (counts, empty, leaf) = (NodePlaces::counts(&g), NodePlaces::new(g), g.nodes() - 1);
        let [first, last] = [0, leaf].map(|node| {
            let count = counts[empty.size_of(Node(node))];
            (placed(node, count - 1), placed(node, count))
        });
        for good in [first.0, last.0] {
            let found = said(log_of(&g, &[(3, &[]), (4, &[good])]), &g).unwrap();
            assert_eq!((found.0, found.1.len()), (4, 1));
            assert_eq!(found.1[0].version, good.version, "with all of its number");
        }
        let beyond = placed(g.nodes(), 0);
        for wrong in [first.1, last.1, beyond, placed(u32::MAX, 0)] {
            let refused = said(log_of(&g, &[(3, &[first.0, wrong])]), &g);
            assert!(matches!(refused, Err(Error::State(_))));
        }
        for number in [2, 3, 5] {
            let refused = said(log_of(&g, &[(3, &[]), (number, &[first.0])]), &g);
            assert!(matches!(refused, Err(Error::State(_))), "{number} does not follow 3");
        }
        assert!(
            matches!(said(log_of(&g, &[]), &g), Err(Error::State(_))),
            "not even where it began"
        );
    }

    /// A log that has grown is begun anew, so that it does not fill the disk.
    #[test]
    fn a_log_is_no_longer_than_its_limit() {
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
