//! Nodes in files: two of fixed places, and a small log that says what lies where.
//!
//! A commit is one record of the log. Nodes are durable before it is written, so a record that is
//! whole means what it says, and one that is torn never happened.

use super::places::{Placed, Places};
use super::{NodeStore, NodeVersion, SlotRead};
use crate::error::{Error, Result};
use crate::geometry::{GEOMETRY_LEN, Geometry, Node};
use crate::lock::Lock;
use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, preadv2};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

const LOG: &str = "places.log";
const NEW_LOG: &str = "places.new";
/// Bytes of the log's beginning: what it is, and the tree's shape.
const HEADER_LEN: usize = 8 + GEOMETRY_LEN;
const MAGIC: &[u8; 8] = b"tlnodes2";
const ENTRY_LEN: usize = 16;
const CHECK_LEN: usize = 8;
/// Bytes of a log above which it is written anew.
const LOG_LEN_MAX: u64 = 4 << 20;

/// What a commit has survived when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The end of the process at any moment.
    Process,
    /// The end of the machine's power, too.
    Power,
}

/// Nodes in a folder.
pub struct FileStore {
    geometry: Geometry,
    durability: Durability,
    folder: PathBuf,
    /// Held by one process at a time.
    _lock: Lock,
    places: RwLock<Places>,
    /// Places of inner nodes and of leaves.
    nodes: [File; 2],
    log: Mutex<Log>,
}

struct Log {
    file: File,
    len: u64,
}

impl FileStore {
    /// Opens the store in a folder, or makes an empty one there.
    pub fn open(folder: &Path, geometry: Geometry, durability: Durability) -> Result<Self> {
        geometry.check()?;
        std::fs::create_dir_all(folder)?;
        let lock = Lock::take(folder, "the store")?;
        let nodes = [file_in(folder, "inner.nodes")?, file_in(folder, "leaf.nodes")?];
        for file in &nodes {
            // Else the system reads what lies behind a slot or a node, too. It is advice, no more.
            let _ = fadvise(file, 0, None, Advice::Random);
        }
        let counts = Places::counts(&geometry);
        for ((file, count), layer) in nodes.iter().zip(counts).zip([0, geometry.layers - 1]) {
            file.set_len(u64::from(count) * geometry.node_len(layer) as u64)?;
        }
        let mut places = Places::new(geometry);
        let path = folder.join(LOG);
        if !path.exists() {
            write_log(folder, &geometry, &places)?;
        }
        let len = replay(&std::fs::read(&path)?, &geometry, &mut places)?;
        let file = file_in(folder, LOG)?;
        // What a crash left behind the last whole record.
        file.set_len(len)?;
        let log = Mutex::new(Log { file, len });
        let folder = folder.to_owned();
        let places = RwLock::new(places);
        Ok(Self { geometry, durability, folder, _lock: lock, places, nodes, log })
    }

    /// Where a version lies; nowhere, if it is the one that was never written.
    fn find(&self, places: &Places, version: NodeVersion) -> Result<Option<(&File, u64)>> {
        let place = places.find(version)?;
        Ok(place.map(|place| self.place(places, version.node, place)))
    }

    fn place(&self, places: &Places, node: Node, place: u32) -> (&File, u64) {
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
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let staged = places.staged(sequence, versions)?;
        let record = record(sequence, &staged);
        log.file.write_all_at(&record, log.len)?;
        self.sync(&log.file)?;
        log.len += record.len() as u64;
        places.commit(sequence, &staged);
        if log.len > LOG_LEN_MAX {
            log.len = write_log(&self.folder, &self.geometry, &places)?;
            log.file = file_in(&self.folder, LOG)?;
        }
        Ok(())
    }

    async fn sequence(&self) -> Result<u64> {
        Ok(self.places.read().unwrap_or_else(PoisonError::into_inner).sequence())
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
fn write_log(folder: &Path, geometry: &Geometry, places: &Places) -> Result<u64> {
    let current: Vec<Placed> = places.current().collect();
    let mut bytes = header(geometry).to_vec();
    bytes.extend(record(places.sequence(), &current));
    let new = folder.join(NEW_LOG);
    std::fs::write(&new, &bytes)?;
    File::open(&new)?.sync_all()?;
    std::fs::rename(&new, folder.join(LOG))?;
    File::open(folder)?.sync_all()?;
    Ok(bytes.len() as u64)
}

fn header(geometry: &Geometry) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    let (magic, shape) = header.split_at_mut(MAGIC.len());
    magic.copy_from_slice(MAGIC);
    shape.copy_from_slice(&geometry.encode());
    header
}

/// A commit: its number, how many nodes, each with attempt and place, and a check.
fn record(sequence: u64, placed: &[Placed]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(12 + placed.len() * ENTRY_LEN + CHECK_LEN);
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(&(placed.len() as u32).to_le_bytes());
    for Placed { version, place } in placed {
        bytes.extend_from_slice(&version.node.0.to_le_bytes());
        bytes.extend_from_slice(&version.attempt.to_le_bytes());
        bytes.extend_from_slice(&place.to_le_bytes());
    }
    let check = Sha256::digest(&bytes);
    bytes.extend_from_slice(&check[..CHECK_LEN]);
    bytes
}

/// Repeats the commits of a log, and says where the last whole one ends.
fn replay(log: &[u8], geometry: &Geometry, places: &mut Places) -> Result<u64> {
    let wrong = Error::State("the log of places");
    let rest = log.strip_prefix(&header(geometry)).ok_or(wrong)?;
    let mut at = 0;
    while let Some((sequence, placed, len)) = next_record(&rest[at..]) {
        let follows = at == 0 || sequence == places.sequence() + 1;
        if !follows || !placed.iter().all(|one| is_place(geometry, places, *one)) {
            return Err(Error::State("the log of places"));
        }
        places.commit(sequence, &placed);
        at += len;
    }
    if at == 0 {
        return Err(Error::State("the log of places"));
    }
    Ok((HEADER_LEN + at) as u64)
}

fn is_place(geometry: &Geometry, places: &Places, one: Placed) -> bool {
    let node = one.version.node;
    node.0 < geometry.nodes() && one.place < Places::counts(geometry)[places.size_of(node)]
}

fn next_record(bytes: &[u8]) -> Option<(u64, Vec<Placed>, usize)> {
    let (sequence, rest) = bytes.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let len = u32::from_le_bytes(*count) as usize * ENTRY_LEN;
    let (entries, rest) = rest.split_at_checked(len)?;
    let check = rest.get(..CHECK_LEN)?;
    let body = bytes.len() - rest.len();
    if Sha256::digest(&bytes[..body])[..CHECK_LEN] != *check {
        return None;
    }
    let entry = |entry: &[u8; ENTRY_LEN]| {
        let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("4 bytes"));
        let attempt = u64::from(word(8)) << 32 | u64::from(word(4));
        Placed { version: NodeVersion { node: Node(word(0)), attempt }, place: word(12) }
    };
    let placed = entries.as_chunks().0.iter().map(entry).collect();
    Some((u64::from_le_bytes(*sequence), placed, body + CHECK_LEN))
}
