//! Where the gateway's state outlives its process: a log that begins with the whole state, in
//! pieces, and goes on with each record that happened since.
//!
//! A file is of one *generation*, with a random id and so with keys of its own. A gateway never
//! goes on with the file that it finds, but begins the next one: so a folder that was copied or put
//! back spends no nonce a second time. A generation is whole and durable before it takes the place
//! of the one before, which is then removed.

#[cfg(test)]
mod tests;

use super::anchor::Anchor;
use super::codec::{RecordReader, Writer};
use super::record::Record;
use super::state::State;
use crate::durable::{make_folder, put};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::log::{Damage, Draft, Head, ID_LEN, Log, POSITION_LEN, WholeEntries};
use crate::log::{Magic, Position, SealProof};
use crate::params::Params;
use crate::store::Durability;
use std::path::{Path, PathBuf};
use traceless::rng::Rng;
use traceless::seal::Secret;

const MAGIC: Magic = *b"tlgate04";
/// A generation that is not the newest yet.
const NEW: &str = "state.new";
/// The state is sealed in pieces of this length, as entries without records; an empty one ends it.
const CHUNK_LEN: usize = 1 << 20;
/// Bytes of records after which a new generation begins, beside four times the state's length.
const RECORDS_LEN_MAX: u64 = 64 << 20;
/// So many times as long, records are too long for a gateway that lets rounds decide.
const OVERLONG: u64 = 8;
/// What whoever meets damage can do.
const ADVICE: &str = "see `traceless gateway check`, then restore a copy, or give up what is lost \
                      with `traceless gateway repair`";
/// The same of a file that says nothing under the gateway's key.
const KEY_ADVICE: &str = "is --key-file the key that it was made with? if it is, restore a copy, \
                          or see `traceless gateway check`";

/// Where a gateway's state lies.
#[derive(Clone, Copy)]
pub struct Home<'a> {
    /// A folder of its own.
    pub folder: &'a Path,
    /// What an answer has survived.
    pub durability: Durability,
    /// A file elsewhere that remembers how far the state had come.
    pub anchor: Option<&'a Path>,
}

/// A log of records behind a state.
pub struct Journal {
    folder: PathBuf,
    key: Secret,
    durability: Durability,
    /// Held by one process at a time.
    _lock: Lock,
    anchor: Option<Anchor>,
    /// Where the newest generation ends, as far as it is written.
    position: Position,
    /// The newest generation, if this journal has begun it.
    log: Option<Log<SealProof>>,
    /// Records that happened and are not in the file.
    unwritten: Draft,
    /// Records appended, those of them that are written, and the last that was promised.
    appended: u64,
    written: u64,
    promised: u64,
    records_at: u64,
    state_len: u64,
    /// What is in the files is not known any more.
    broken: bool,
}

impl Journal {
    /// Opens the journal of a folder: its newest state with all that happened since, if there is
    /// one.
    pub fn open(
        home: &Home<'_>,
        key: &Secret,
        params: &Params,
        rng: &mut dyn Rng,
    ) -> Result<(Self, State)> {
        let Home { folder, durability, anchor } = *home;
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
            anchor.note(position, Durability::Power)?;
        }
        let mut journal = Self {
            folder: folder.to_owned(),
            key: key.clone(),
            durability,
            _lock: lock,
            anchor,
            position,
            log: None,
            unwritten: Draft::default(),
            appended: 0,
            written: 0,
            promised: 0,
            records_at: 0,
            state_len: 0,
            broken: false,
        };
        if state.running.is_none() {
            journal.renew(&state, rng)?;
        }
        Ok((journal, state))
    }

    /// Whether it is time for a new generation.
    pub fn is_long(&self) -> bool {
        self.records_len() > Self::records_len_max(self.state_len)
    }

    /// Whether it is far longer than that.
    pub fn is_overlong(&self) -> bool {
        self.records_len() / OVERLONG > Self::records_len_max(self.state_len)
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
        self.unwritten.add(&record.encode());
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
        let log = self.log.as_mut().expect("records happen after the first generation began");
        log.write(&mut self.unwritten)?;
        self.position = log.position();
        if let Some(anchor) = &mut self.anchor {
            anchor.note(self.position, self.durability)?;
        }
        self.broken = false;
        self.written = self.appended;
        Ok(())
    }

    /// Begins the next generation with this state.
    pub fn renew(&mut self, state: &State, rng: &mut dyn Rng) -> Result {
        if self.broken {
            return Err(Error::Store("the gateway's log failed before; it must be opened again"));
        }
        let mut plain = Writer(Vec::new());
        shape(&state.params, &mut plain);
        state.save(&mut plain);
        let pieces = plain.0.chunks(CHUNK_LEN).chain([&[][..]]).map(|piece| Draft::of(0, piece));
        let key = &self.key;
        let log = write_new(&self.folder, key, self.position, pieces, self.durability, rng)?;
        // From here on the files may be ahead of what is known here.
        self.broken = true;
        self.position = log.position();
        put_new(&self.folder, self.position.generation)?;
        if let Some(anchor) = &mut self.anchor {
            anchor.note(self.position, Durability::Power)?;
        }
        // They are in the state.
        self.unwritten.clear();
        self.written = self.appended;
        self.state_len = plain.0.len() as u64;
        self.records_at = self.position.end;
        (self.log, self.broken) = (Some(log), false);
        self.remove_before(self.position.generation)
    }

    fn records_len(&self) -> u64 {
        self.position.end - self.records_at
    }

    /// Removes all generations before this one.
    fn remove_before(&self, generation: u64) -> Result {
        for old in generations(&self.folder)?.into_iter().filter(|old| *old < generation) {
            std::fs::remove_file(path_of(&self.folder, old))?;
        }
        Ok(())
    }
}

/// Writes the generation behind `parent`, with these entries, which is durable but not the newest.
pub(super) fn write_new(
    folder: &Path,
    key: &Secret,
    parent: Position,
    entries: impl Iterator<Item = Draft>,
    durability: Durability,
    rng: &mut dyn Rng,
) -> Result<Log<SealProof>> {
    let (generation, mut id) = (parent.generation + 1, [0; ID_LEN]);
    rng.fill(&mut id);
    let head = Head { magic: MAGIC, generation, id, about: parent.encode().to_vec() };
    let key = generation_key(key);
    Log::create(&folder.join(NEW), &head, &key, entries, durability, rng.fork())
}

/// Makes the generation that was written last the newest.
pub(super) fn put_new(folder: &Path, generation: u64) -> Result {
    put(&folder.join(NEW), &path_of(folder, generation))
}

/// A generation as it lies in its file.
pub(super) struct SavedState {
    bytes: Vec<u8>,
    /// What is in it.
    pub found: WholeEntries<SealProof>,
}

impl SavedState {
    /// Reads a generation, which must not be damaged.
    pub(super) fn read(folder: &Path, generation: u64, key: &Secret) -> Result<Self> {
        let path = path_of(folder, generation);
        let advice = |damage: &Damage| if damage.at == 0 { KEY_ADVICE } else { ADVICE };
        let damaged = |damage: Damage| damage.error(&path, advice(&damage));
        let saved = Self::look(folder, generation, key)?.map_err(damaged)?;
        saved.found.damage.map_or(Ok(saved), |damage| Err(damaged(damage)))
    }

    /// Reads what there is of a generation.
    pub(super) fn look(
        folder: &Path,
        generation: u64,
        key: &Secret,
    ) -> Result<Result<Self, Damage>> {
        let bytes = std::fs::read(path_of(folder, generation))?;
        Ok(Self::parse(bytes, generation, key))
    }

    /// The generation in the bytes of its file.
    pub(super) fn parse(mut bytes: Vec<u8>, generation: u64, key: &Secret) -> Result<Self, Damage> {
        let found: WholeEntries<SealProof> =
            crate::log::read(&mut bytes, MAGIC, &generation_key(key))?;
        // A file under another's name, or none that a gateway wrote.
        if found.generation != generation || found.about.len() != POSITION_LEN {
            return Err(Damage::of_all(bytes.len()));
        }
        Ok(Self { bytes, found })
    }

    /// Where the generation before had come when this one began.
    pub(super) fn parent(&self) -> Position {
        Position::decode(self.found.about.first_chunk().expect("its length was checked"))
    }

    /// Each entry's records, and what is in it.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.found.entries.iter().map(|entry| (entry.records, &self.bytes[entry.body.clone()]))
    }

    /// Entries that are the whole state, before the empty one; nothing if some of them are missing.
    pub(super) fn state_entries(&self) -> Option<usize> {
        self.entries().position(|(_, body)| body.is_empty())
    }

    /// The state with what happened since.
    pub(super) fn state(&self, params: &Params) -> Result<State> {
        let wrong = Error::State("the gateway's state");
        let state_entries = self.state_entries().ok_or(wrong)?;
        let mut saved = Vec::new();
        for (_, piece) in self.entries().take(state_entries) {
            saved.extend_from_slice(piece);
        }
        let mut own_shape = Writer(Vec::new());
        shape(params, &mut own_shape);
        let saved = saved.strip_prefix(&own_shape.0[..]);
        let saved = saved.ok_or(Error::Parameters("the state is of another tree"))?;
        let mut state = State::load(*params, &mut RecordReader(saved))?;
        // The empty entry has no records.
        for (records, body) in self.entries().skip(state_entries) {
            let mut body = RecordReader(body);
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
