//! The log that keeps the gateway's state when its process ends. It begins with the whole state, in
//! pieces, followed by every later record.
//!
//! A file holds one *generation*, with a random id and therefore its own keys. A gateway does not
//! append to a file that it finds, but begins the next generation. So a folder that was copied or
//! restored reuses no nonce. A generation is whole and durable before it replaces its predecessor,
//! which is then removed.

#[cfg(test)]
mod tests;

use super::anchor::Anchor;
use super::record::{Record, STATE};
use super::state::State;
use crate::codec::{Reader, Writer};
use crate::durable::{make_folder, put};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::lock::Lock;
use crate::log::{Damage, EntryDraft, Head, Log, Magic, POSITION_LEN, Position, SealProof};
use crate::log::{WholeEntries, read};
use crate::params::Params;
use crate::store::Durability;
use std::path::{Path, PathBuf};
use traceless_core::rng::Rng;
use traceless_core::seal::Secret;

const MAGIC: Magic = *b"tlgate04";
/// File name of a generation that is not the newest yet.
const NEW: &str = "state.new";
/// The state is sealed in pieces of this length, as entries without records. An empty one ends it.
const CHUNK_LEN: usize = 1 << 20;
/// Bytes of records after which a new generation begins, besides four times the state's length.
const RECORDS_LEN_MAX: u64 = 64 << 20;
/// At a constant rate the round number decides when a new generation begins, unless the records are
/// this many times longer than their limit.
const OVERLONG: u64 = 8;
/// Advice for the operator when a generation is damaged.
const ADVICE: &str = "see `traceless gateway check`, then restore a copy, or give up what is lost \
                      with `traceless gateway repair`";
/// Advice for the operator when nothing in the file opens under the gateway's key.
const KEY_ADVICE: &str = "is --key-file the key that it was made with? if it is, restore a copy, \
                          or see `traceless gateway check`";

/// Where and how a gateway's state is stored.
#[derive(Clone, Copy)]
pub struct StateLocation<'a> {
    /// A folder for this gateway alone.
    pub folder: &'a Path,
    /// What a written state survives before a client gets its answer.
    pub durability: Durability,
    /// The anchor: a file elsewhere that records how far the state has come.
    pub anchor: Option<&'a Path>,
}

/// The log of a state and its later records.
pub struct Journal {
    folder: PathBuf,
    key: Secret,
    durability: Durability,
    /// Held by one process at a time.
    _lock: Lock,
    anchor: Option<Anchor>,
    /// The end of the written part of the newest generation.
    position: Position,
    /// The newest generation, once this journal has begun it.
    log: Option<Log<SealProof>>,
    /// Records that were applied and are not in the file yet.
    unwritten: EntryDraft,
    /// Counts of appended records, of written ones, and the number of the last record
    /// that an answer waits for.
    appended: u64,
    written: u64,
    deferred_ack: u64,
    records_at: u64,
    state_len: u64,
    /// A write failed, so the content of the files is unknown.
    broken: bool,
}

impl Journal {
    /// Opens the journal of a folder. Returns the newest state, with its later records applied, or
    /// an empty state if the folder has none.
    pub fn open(
        home: &StateLocation<'_>,
        key: &Secret,
        params: &Params,
        rng: &mut dyn Rng,
    ) -> Result<(Self, State)> {
        let StateLocation { folder, durability, anchor } = *home;
        make_folder(folder)?;
        let lock = Lock::take(folder, "the gateway's state")?;
        let newest = generations(folder)?.pop();
        let file = newest.map(|newest| SavedState::read(folder, newest, key)).transpose()?;
        let mut anchor = anchor.map(|path| Anchor::open(path, key, file.is_none())).transpose()?;
        if let Some(anchor) = &anchor {
            anchor.check(file.as_ref().map(|file| (&file.found, file.parent())))?;
        }
        let (mut position, mut state) = (Position::default(), State::new(*params));
        if let Some(file) = &file {
            (position, state) = (file.found.position, file.state(params)?);
        }
        if let Some(anchor) = &mut anchor {
            anchor.record(position, Durability::Power)?;
        }
        let mut journal = Self {
            folder: folder.to_owned(),
            key: key.clone(),
            durability,
            _lock: lock,
            anchor,
            position,
            log: None,
            unwritten: EntryDraft::default(),
            appended: 0,
            written: 0,
            deferred_ack: 0,
            records_at: 0,
            state_len: 0,
            broken: false,
        };
        if !state.is_any_running() {
            journal.renew(&state, rng)?;
        }
        Ok((journal, state))
    }

    /// Whether a new generation is due.
    pub fn is_long(&self) -> bool {
        self.records_len() > Self::records_len_max(self.state_len)
    }

    /// Whether the log is far longer than its limit.
    pub fn is_overlong(&self) -> bool {
        self.records_len() / OVERLONG > Self::records_len_max(self.state_len)
    }

    /// Bytes of records at most besides a state of this length.
    pub fn records_len_max(state_len: u64) -> u64 {
        RECORDS_LEN_MAX.saturating_add(4 * state_len)
    }

    /// Makes an answer wait until every appended record is written.
    pub fn defer_ack(&mut self) {
        self.deferred_ack = self.appended;
    }

    /// The last record that an answer waits for, unless it is written.
    pub fn deferred_ack(&self) -> Option<u64> {
        (self.deferred_ack > self.written).then_some(self.deferred_ack)
    }

    /// Whether a record is written.
    pub fn is_written(&self, record: u64) -> bool {
        record <= self.written
    }

    /// Whether a record is written, or can no longer be.
    pub fn is_written_or_failed(&self, record: u64) -> bool {
        self.is_written(record) || self.broken
    }

    /// Appends a record, which is written with the next [`flush`](Self::flush).
    pub fn append(&mut self, record: &Record) {
        self.unwritten.add(&record.encode());
        self.appended += 1;
    }

    /// Writes the appended records. On return they survive what [`StateLocation::durability`] says.
    pub fn flush(&mut self) -> Result {
        if self.broken {
            return Err(Error::Store("the gateway's log failed before; it must be opened again"));
        }
        if self.unwritten.is_empty() {
            return Ok(());
        }
        self.broken = true;
        let log = self.log.as_mut().expect("records happen after the first generation began");
        log.write(&mut self.unwritten)?;
        self.position = log.position();
        if let Some(anchor) = &mut self.anchor {
            anchor.record(self.position, self.durability)?;
        }
        self.broken = false;
        self.written = self.appended;
        Ok(())
    }

    /// Begins the next generation, with this state.
    pub fn renew(&mut self, state: &State, rng: &mut dyn Rng) -> Result {
        if self.broken {
            return Err(Error::Store("the gateway's log failed before; it must be opened again"));
        }
        let mut plain = Writer::default();
        shape(&state.params, &mut plain);
        state.save(&mut plain);
        let pieces = plain
            .as_bytes()
            .chunks(CHUNK_LEN)
            .chain([&[][..]])
            .map(|piece| EntryDraft::of(0, piece));
        let key = &self.key;
        let log = write_new(&self.folder, key, self.position, pieces, self.durability, rng)?;
        // Until the end of this function the files may be ahead of the fields here.
        self.broken = true;
        self.position = log.position();
        put_new(&self.folder, self.position.generation)?;
        if let Some(anchor) = &mut self.anchor {
            anchor.record(self.position, Durability::Power)?;
        }
        // The new state contains these records.
        self.unwritten.clear();
        self.written = self.appended;
        self.state_len = plain.as_bytes().len() as u64;
        self.records_at = self.position.end;
        (self.log, self.broken) = (Some(log), false);
        self.remove_before(self.position.generation)
    }

    fn records_len(&self) -> u64 {
        self.position.end - self.records_at
    }

    /// Removes all generations before `generation`.
    fn remove_before(&self, generation: u64) -> Result {
        for old in generations(&self.folder)?.into_iter().filter(|old| *old < generation) {
            std::fs::remove_file(path_of(&self.folder, old))?;
        }
        Ok(())
    }
}

/// Writes the generation after `parent`, with these entries. It is durable, but not the newest yet.
pub(super) fn write_new(
    folder: &Path,
    key: &Secret,
    parent: Position,
    entries: impl Iterator<Item = EntryDraft>,
    durability: Durability,
    rng: &mut dyn Rng,
) -> Result<Log<SealProof>> {
    let head = Head::draw(MAGIC, parent.generation + 1, parent.encode().to_vec(), rng);
    let key = generation_key(key);
    Log::create(&folder.join(NEW), &head, &key, entries, durability, rng.fork())
}

/// Makes the generation that [`write_new`] wrote the newest.
pub(super) fn put_new(folder: &Path, generation: u64) -> Result {
    put(&folder.join(NEW), &path_of(folder, generation))
}

/// A generation as stored in its file.
pub(super) struct SavedState {
    /// The whole entries, and the damage if there is any.
    pub found: WholeEntries<SealProof>,
}

impl SavedState {
    /// Reads a generation, which must not be damaged.
    pub(super) fn read(folder: &Path, generation: u64, key: &Secret) -> Result<Self> {
        let path = path_of(folder, generation);
        let saved = Self::read_whole_part(folder, generation, key)?;
        // Damage of everything may be the work of another key.
        let Self { found } = saved.map_err(|damage| damage.error(&path, KEY_ADVICE))?;
        Ok(Self { found: found.undamaged(&path, ADVICE)? })
    }

    /// Reads the whole part of a generation.
    pub(super) fn read_whole_part(
        folder: &Path,
        generation: u64,
        key: &Secret,
    ) -> Result<Result<Self, Damage>> {
        let bytes = std::fs::read(path_of(folder, generation))?;
        Ok(Self::parse(bytes, generation, key))
    }

    /// Parses the bytes of a generation's file.
    pub(super) fn parse(bytes: Vec<u8>, generation: u64, key: &Secret) -> Result<Self, Damage> {
        let len = bytes.len();
        let found: WholeEntries<SealProof> = read(bytes, MAGIC, &generation_key(key))?;
        // The file has another generation's name, or was not written by a gateway.
        if found.generation != generation || found.about.len() != POSITION_LEN {
            return Err(Damage::of_all(len));
        }
        Ok(Self { found })
    }

    /// The last position of the previous generation when this one began.
    pub(super) fn parent(&self) -> Position {
        Position::decode(&mut Reader::of_state(&self.found.about, STATE))
            .expect("its length was checked")
    }

    /// How many entries hold the whole state, before the empty one; `None` if some are missing.
    pub(super) fn state_entries(&self) -> Option<usize> {
        self.found.bodies().position(|(_, body)| body.is_empty())
    }

    /// The parameters of the state's tree.
    pub(super) fn params(&self) -> Result<Params> {
        let first = self.found.bodies().next().map(|(_, piece)| piece);
        let mut from = Reader::of_state(first.ok_or(Error::State(STATE))?, STATE);
        read_shape(&mut from)
    }

    /// The state, with all later records applied.
    pub(super) fn state(&self, params: &Params) -> Result<State> {
        let wrong = Error::State(STATE);
        let state_entries = self.state_entries().ok_or(wrong)?;
        let mut saved = Vec::new();
        for (_, piece) in self.found.bodies().take(state_entries) {
            saved.extend_from_slice(piece);
        }
        let mut own_shape = Writer::default();
        shape(params, &mut own_shape);
        let saved = saved.strip_prefix(own_shape.as_bytes());
        let saved = saved.ok_or(Error::Parameters("the state is of another tree"))?;
        let mut state = State::load(*params, &mut Reader::of_state(saved, STATE))?;
        // The empty entry has no records.
        for (records, body) in self.found.bodies().skip(state_entries) {
            let mut body = Reader::of_state(body, STATE);
            for _ in 0..records {
                state.apply(Record::decode(&mut body)?)?;
            }
        }
        Ok(state)
    }
}

fn generation_key(key: &Secret) -> Secret {
    key.derive(&[b"generation"])
}

/// The file of a generation.
pub(super) fn path_of(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("state.{generation}"))
}

/// All generations of a folder, in order.
pub(super) fn generations(folder: &Path) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("state.")?.parse().ok());
        all.extend(number.filter(|number| path_of(folder, *number) == folder.join(&name)));
    }
    all.sort_unstable();
    Ok(all)
}

/// The limit of failures that is assumed where the parameters are read from the state.
const LAMBDA: u32 = 32;

/// Takes what [`shape`] appended.
fn read_shape(from: &mut Reader<'_>) -> Result<Params> {
    let blocks = from.u64()?;
    let mut number = || usize::try_from(from.u64()?).map_err(|_| Error::State(STATE));
    let mut small = || u32::try_from(number()?).map_err(|_| Error::State(STATE));
    let (roots, arity) = (small()?, small()?);
    let geometry = Geometry {
        roots,
        arity,
        layers: number()?,
        round_slots: number()?,
        inner_slots: number()?,
        leaf_slots: number()?,
        block_len: number()?,
        partition: 0,
    };
    geometry.check()?;
    let (round_blocks, inner_blocks, leaf_blocks) = (number()?, number()?, number()?);
    // Limits that are not part of the shape play no role for what is saved.
    Ok(Params { blocks, lambda: LAMBDA, geometry, round_blocks, inner_blocks, leaf_blocks })
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
