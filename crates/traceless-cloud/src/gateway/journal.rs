//! Where the gateway's state outlives its process: a file with the whole state, sealed, and behind
//! it each record that happened since.
//!
//! A file is of one *generation*, with a random id and so a key of its own. A gateway never goes on
//! with the file that it finds, but begins the next one: so a folder that was copied or put back
//! spends no nonce a second time.

use super::record::{Reader, Record, Writer};
use super::state::State;
use crate::error::{Error, Result};
use crate::geometry::TAG_LEN;
use crate::lock::Lock;
use crate::params::Params;
use crate::store::Durability;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use traceless::rng::Rng;
use traceless::seal::{Aead, Nonce, Sealer, Secret};

const MAGIC: &[u8; 8] = b"tlgate03";
const ID_LEN: usize = 16;
/// What it is, the generation, its id.
const HEADER_LEN: usize = 8 + 8 + ID_LEN;
const LEN_LEN: usize = 4;
/// The state is sealed in pieces of this length; an empty one ends it.
const CHUNK_LEN: usize = 1 << 20;
/// Bytes of records after which a new generation begins, beside four times the state's length.
const RECORDS_LEN_MAX: u64 = 64 << 20;
/// So many times as long, records are too long for a gateway that lets rounds decide.
const OVERLONG: u64 = 8;

/// A log of records behind a state.
pub struct Journal {
    folder: PathBuf,
    key: Secret,
    durability: Durability,
    /// Held by one process at a time.
    _lock: Lock,
    generation: u64,
    file: File,
    frames: Frames,
    /// Records that happened and are not in the file.
    unwritten: Vec<u8>,
    /// Records appended, those of them that are written, and the last that was promised.
    appended: u64,
    written: u64,
    promised: u64,
    records_len: u64,
    state_len: u64,
    /// A record was cut short, so whatever follows could not be read.
    broken: bool,
}

impl Journal {
    /// Opens the journal of a folder: its newest state with all that happened since, if there is
    /// one.
    pub fn open(
        folder: &Path,
        key: &Secret,
        params: &Params,
        durability: Durability,
        rng: &mut dyn Rng,
    ) -> Result<(Self, State)> {
        std::fs::create_dir_all(folder)?;
        let lock = Lock::take(folder, "the gateway's state")?;
        let generation = newest(folder)?;
        let state = match generation {
            Some(generation) => read(&path_of(folder, generation), key, params)?,
            None => State::new(*params),
        };
        let generation = generation.unwrap_or_default();
        let (file, frames, state_len) = (lock.file()?, Frames::new(key, &[0; ID_LEN]), 0);
        let mut journal = Self {
            folder: folder.to_owned(),
            key: key.clone(),
            durability,
            _lock: lock,
            generation,
            file,
            frames,
            unwritten: Vec::new(),
            appended: 0,
            written: 0,
            promised: 0,
            records_len: u64::MAX,
            state_len,
            broken: false,
        };
        if state.running.is_none() {
            journal.renew(&state, rng)?;
        }
        Ok((journal, state))
    }

    /// Whether it is time for a new generation.
    pub fn is_long(&self) -> bool {
        self.records_len > Self::records_len_max(self.state_len)
    }

    /// Whether it is far longer than that.
    pub fn is_overlong(&self) -> bool {
        self.records_len / OVERLONG > Self::records_len_max(self.state_len)
    }

    /// Bytes of records at most beside a state of this length.
    pub fn records_len_max(state_len: u64) -> u64 {
        RECORDS_LEN_MAX.saturating_add(4 * state_len)
    }

    /// An answer waits until all that was appended is written.
    pub fn promise(&mut self) {
        self.promised = self.appended;
    }

    /// The last record that an answer waits for.
    pub fn promised(&self) -> Option<u64> {
        (self.promised > self.written).then_some(self.promised)
    }

    /// Whether a record is written.
    pub fn is_written(&self, record: u64) -> bool {
        record <= self.written
    }

    /// Whether a record is written, or will never be.
    pub fn is_settled(&self, record: u64) -> bool {
        self.is_written(record) || self.broken
    }

    /// Appends a record, which is written with the next [`flush`](Self::flush).
    pub fn append(&mut self, record: &Record) {
        self.frames.seal_onto(&record.encode(), &mut self.unwritten);
        self.appended += 1;
    }

    /// Writes what was appended. On return it has survived what this journal promises.
    pub fn flush(&mut self) -> Result {
        if self.broken {
            return Err(Error::Store("the gateway's log failed before; it must be opened again"));
        }
        if self.unwritten.is_empty() {
            return Ok(());
        }
        self.broken = true;
        self.file.write_all(&self.unwritten)?;
        if self.durability == Durability::Power {
            self.file.sync_data()?;
        }
        self.broken = false;
        self.records_len += self.unwritten.len() as u64;
        self.unwritten.clear();
        self.written = self.appended;
        Ok(())
    }

    /// Begins the next generation with this state.
    pub fn renew(&mut self, state: &State, rng: &mut dyn Rng) -> Result {
        let generation = self.generation + 1;
        let mut id = [0; ID_LEN];
        rng.fill(&mut id);
        let mut frames = Frames::new(&self.key, &id);
        let new = self.folder.join("state.new");
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&new)?;
        file.write_all(MAGIC)?;
        file.write_all(&generation.to_le_bytes())?;
        file.write_all(&id)?;
        let mut plain = Writer(Vec::new());
        shape(&state.params, &mut plain);
        state.save(&mut plain);
        for chunk in plain.0.chunks(CHUNK_LEN).chain([&[][..]]) {
            file.write_all(&frames.seal(chunk))?;
        }
        file.sync_all()?;
        std::fs::rename(&new, path_of(&self.folder, generation))?;
        File::open(&self.folder)?.sync_all()?;
        if self.generation > 0 {
            let old = std::fs::remove_file(path_of(&self.folder, self.generation));
            old.or_else(
                |e| if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) },
            )?;
        }
        // They are in the state.
        self.unwritten.clear();
        self.written = self.appended;
        self.state_len = plain.0.len() as u64;
        (self.generation, self.file, self.frames, self.records_len) = (generation, file, frames, 0);
        Ok(())
    }
}

/// One key's frames: a length, a body and its tag. The frame's number is the nonce.
struct Frames {
    aead: Aead,
    next: u64,
}

impl Frames {
    fn new(key: &Secret, id: &[u8; ID_LEN]) -> Self {
        Self { aead: Aead::new(&key.derive(&[b"generation", id])), next: 0 }
    }

    fn seal(&mut self, body: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        self.seal_onto(body, &mut frame);
        frame
    }

    /// Appends the next frame.
    fn seal_onto(&mut self, body: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        let start = out.len();
        out.resize(start + body.len() + TAG_LEN, 0);
        let (sealed, tag) = out[start..].split_at_mut(body.len());
        self.aead.seal(Nonce::of_fresh_key(self.next), &[], body, sealed, tag);
        self.next += 1;
    }

    /// The next frame; nothing where the file ends, even amid a frame, as after a crash.
    fn next(&mut self, from: &mut &[u8]) -> Result<Option<Vec<u8>>> {
        let Some((len, rest)) = from.split_first_chunk::<LEN_LEN>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        let Some((sealed, rest)) = rest.split_at_checked(len + TAG_LEN) else { return Ok(None) };
        let (body, tag) = sealed.split_at(len);
        let mut plain = vec![0; len];
        let opened = self.aead.open(Nonce::of_fresh_key(self.next), &[], body, tag, &mut plain);
        opened.map_err(|_| Error::State("the gateway's state"))?;
        self.next += 1;
        *from = rest;
        Ok(Some(plain))
    }
}

fn path_of(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("state.{generation}"))
}

fn newest(folder: &Path) -> Result<Option<u64>> {
    let mut newest = None;
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("state.")?.parse().ok());
        newest = newest.max(number);
    }
    Ok(newest)
}

/// The state in a file, with what happened since.
fn read(path: &Path, key: &Secret, params: &Params) -> Result<State> {
    let wrong = || Error::State("the gateway's state");
    let bytes = std::fs::read(path)?;
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(wrong)?;
    let id = rest.get(8..HEADER_LEN - 8).and_then(|id| id.try_into().ok()).ok_or_else(wrong)?;
    let mut rest = &rest[HEADER_LEN - 8..];
    let mut frames = Frames::new(key, id);
    let mut saved = Vec::new();
    loop {
        let chunk = frames.next(&mut rest)?.ok_or_else(wrong)?;
        if chunk.is_empty() {
            break;
        }
        saved.extend(chunk);
    }
    let mut own_shape = Writer(Vec::new());
    shape(params, &mut own_shape);
    let saved = saved.strip_prefix(&own_shape.0[..]);
    let saved = saved.ok_or(Error::Parameters("the state is of another tree"))?;
    let mut state = State::load(*params, &mut Reader(saved))?;
    while let Some(record) = frames.next(&mut rest)? {
        state.apply(Record::decode(&mut Reader(&record))?)?;
    }
    Ok(state)
}

fn shape(params: &Params, out: &mut Writer) {
    let g = &params.geometry;
    let sizes = [g.layers, g.round_slots, g.inner_slots, g.leaf_slots, g.block_len];
    let limits = [params.round_blocks, params.inner_blocks, params.leaf_blocks];
    out.u64(params.blocks);
    out.u64(u64::from(g.roots));
    out.u64(u64::from(g.arity));
    for size in sizes.into_iter().chain(limits) {
        out.u64(size as u64);
    }
}
