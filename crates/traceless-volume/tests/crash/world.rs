//! A volume in memory, its client, and the client's writes.

use crate::disk::{Bent, Disk, Event, Fault, Phase, Piece};
use crate::fills::{contents, mix};
use crate::hidden::{self, HiddenBlocks, HiddenClient};
use crate::nonces::Nonces;
use crate::steps::Step;
use crate::subjects::{Discards, Subject};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use traceless_block::deniable::HiddenLane;
use traceless_core::Error;
use traceless_core::durable::Vault;
use traceless_core::oram::BlockOram;
use traceless_core::rng::{Rng, SeededRng};
use traceless_core::scheme::SchemeContext;
use traceless_core::seal::{Cipher, record};
use traceless_core::store::Store;
use traceless_core::suite::UnsaltedRng;
use traceless_core::types::Addr;
use traceless_volume::format::{
    AREAS_AT, Keys, Newest, SUPERBLOCK_LEN, SUPERBLOCKS_AT, Superblock, SuperblockVault,
};

/// One write of the client.
#[derive(Clone, Copy)]
pub struct Write {
    /// The block, or the first of several; `None` for a dummy.
    pub block: Option<u64>,
    /// Blocks that get these contents: more than one by a discard only.
    pub blocks: u64,
    /// The seed of the contents.
    pub fill: u64,
}

impl Write {
    /// A write that changes nothing.
    pub const DUMMY: Self = Self { block: None, blocks: 0, fill: 0 };
}

/// A failure of a step.
#[derive(Debug)]
pub enum Failure {
    /// The planted power failure.
    Power,
    /// A violation, described in words.
    Wrong(String),
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Power => "the power went, which nobody planned".into(),
            Failure::Wrong(what) => what,
        }
    }
}

/// An open volume.
pub struct Open {
    pub oram: Box<dyn BlockOram>,
    pub lane: Option<HiddenLane>,
    newest: Newest,
}

impl Open {
    /// Bytes of the state in the newest superblock.
    pub fn state_len(&self) -> usize {
        self.newest.lock().expect("nothing panics under this lock").state.len()
    }

    /// Runs the scheme's own verification, which must find no damage.
    pub fn verify(&self) -> Result<(), String> {
        let mut damaged = vec![];
        let verified = self.oram.verify(&mut |_, _| {}, &mut |place| damaged.push(place));
        verified.map_err(|e| format!("verifying: {e}"))?;
        match damaged[..] {
            [] => Ok(()),
            [first, ..] => Err(format!("{} places are damaged, {first} first", damaged.len())),
        }
    }
}

/// Options for opening the volume.
#[derive(Clone, Copy, Default)]
pub struct How {
    pub read_only: bool,
    /// The number of writes that an anchor would have recorded.
    pub expect_writes: u64,
}

/// A disk, the keys, and the history of the client's writes.
pub struct World {
    pub subject: Subject,
    pub fault: Fault,
    pub disk: Arc<Disk>,
    pub history: Vec<Write>,
    /// The client of the hidden volumes, if the subject can have any.
    pub hidden: Option<HiddenClient>,
    pub nonces: Nonces,
    keys: Arc<Keys>,
    /// Makes data and addresses of two workloads differ.
    salt: u64,
    /// Seed of the next opening's randomness.
    pub draws: u64,
    /// The image at the start of `log`.
    pub base: Vec<u8>,
    pub log: Vec<Event>,
}

/// A vault that drops the state.
struct Forgetful;

impl Vault for Forgetful {
    fn keep(&mut self, _: &[u8]) -> traceless_core::Result {
        Ok(())
    }
}

impl World {
    /// Makes a volume on a disk filled with random bytes.
    pub fn create(subject: Subject, unit: usize, salt: u64) -> Self {
        let mut bytes = vec![0; (AREAS_AT + subject.scheme.store_len()) as usize];
        SeededRng::new(salt).fill(&mut bytes);
        record::start();
        let used = subject.hidden.map(|hidden| hidden.used[(salt % 2) as usize]);
        let mut world = Self {
            hidden: used.map(|count| HiddenClient::new(count, salt)),
            fault: Fault::None,
            disk: Arc::new(Disk::new(bytes, unit, subject.gives_back)),
            subject,
            history: vec![],
            nonces: Nonces::default(),
            keys: Arc::new(Keys::for_fuzzing()),
            salt,
            draws: 0,
            base: vec![],
            log: vec![],
        };
        let blank = Superblock { generation: 0, chain: [0; 32], state: vec![] };
        let (context, _) = world.context(blank, How::default());
        let (create, scheme) = (world.subject.create, world.subject.scheme.clone());
        create(&*scheme, context).expect("created").close().expect("closed");
        world.add_hidden().expect("added");
        world.nonces.note(&world.disk.take_log(), 0).expect("no nonce twice at creation");
        world.disk.settle();
        world
    }

    /// Makes the hidden volumes, and as many public writes if there are none.
    fn add_hidden(&mut self) -> Result<(), Failure> {
        let Some(count) = self.hidden.as_ref().map(|client| client.count) else { return Ok(()) };
        let mut open = self.open_with(0, How::default())?;
        hidden::add(open.lane.as_ref().expect("it can have some"), count, self.block_len());
        for _ in open.oram.writes()..hidden::FIRST_WRITES {
            open.oram.write_dummy().map_err(|e| self.failure("write", &e))?;
        }
        open.oram.sync().map_err(|e| self.failure("sync", &e))?;
        self.history = vec![Write::DUMMY; hidden::FIRST_WRITES as usize];
        Ok(())
    }

    fn block_len(&self) -> usize {
        self.subject.scheme.block_len()
    }

    fn context(&mut self, superblock: Superblock, how: How) -> (SchemeContext, Newest) {
        self.draws += 1;
        let draws = if self.fault == Fault::SameDraws { 0 } else { self.draws };
        let of_workload = if self.subject.draws_places { 0 } else { mix(self.salt) };
        let seed = |purpose: u64| Box::new(SeededRng::new(mix(draws) ^ of_workload ^ purpose));
        let store: Arc<dyn Store> = match self.fault {
            Fault::None => self.disk.clone(),
            fault => {
                let lane = self.subject.hidden.map_or(0..0, |hidden| hidden.lane());
                let areas = self.subject.scheme.areas().into_iter();
                let areas = areas.map(|(_, at, len)| AREAS_AT + at..AREAS_AT + at + len).collect();
                Arc::new(Bent { disk: self.disk.clone(), fault, lane, areas })
            }
        };
        let newest = Arc::new(Mutex::new(superblock));
        let (keys, first) = (self.keys.clone(), newest.clone());
        let vault: Box<dyn Vault> = match self.fault {
            Fault::OpeningLost => Box::new(Forgetful),
            _ => Box::new(SuperblockVault::new(store.clone(), keys, seed(1), first, None)),
        };
        // The insecure control derives its keys from the number of an opening, so copies of an
        // image share them: it needs salted nonces.
        let rng: Box<dyn Rng> = match self.subject.scheme.name() {
            "plain" => seed(2),
            // The lane has one key at all times, so its nonces differ by their salts alone.
            "deniable" => Box::new(hidden::SaltedForks(UnsaltedRng(*seed(2)))),
            _ => Box::new(UnsaltedRng(*seed(2))),
        };
        let context = SchemeContext {
            store,
            first: AREAS_AT,
            key: self.keys.scheme(),
            vault,
            rng,
            cipher: Cipher::default(),
            read_only: how.read_only,
            expect_writes: how.expect_writes,
        };
        (context, newest)
    }

    /// Opens the volume as `Volume::open` does.
    pub fn open(&mut self, how: How) -> Result<Open, Failure> {
        self.open_with(self.hidden.as_ref().map_or(0, |client| client.count), how)
    }

    fn open_with(&mut self, hidden: usize, how: How) -> Result<Open, Failure> {
        self.disk.enter(Phase::Opening);
        let superblock = Superblock::read(&*self.disk, &self.keys).map_err(|e| e.to_string())?;
        let state = superblock.state.clone();
        let (context, newest) = self.context(superblock, how);
        let opened = (self.subject.open)(&self.subject, hidden, context, &state);
        let (oram, lane) = opened.map_err(|e| self.failure("open", &e))?;
        Ok(Open { oram, lane, newest })
    }

    fn failure(&self, what: &str, error: &Error) -> Failure {
        if self.disk.is_dead() { Failure::Power } else { format!("{what}: {error}").into() }
    }

    /// Opens the volume after a kill or a close: every write must still be there.
    pub fn open_whole(&mut self) -> Result<Open, Failure> {
        let open = self.open(How::default())?;
        let (found, made) = (open.oram.writes(), self.history.len() as u64);
        if found != made {
            return Err(format!("{found} writes found, {made} were made, and no crash").into());
        }
        // Once a client could read the writes, they must survive.
        self.disk.note(Event::Promised(found));
        self.check_hidden(&open)?;
        self.note_hidden();
        Ok(open)
    }

    /// Executes one step of a client.
    pub fn step(&mut self, open: &mut Open, step: Step, rng: &mut dyn Rng) -> Result<(), Failure> {
        match step {
            Step::Write(n) => self.write(open, n, rng)?,
            Step::Discard(n) => self.discard(open, n, rng)?,
            Step::Flush => {
                self.disk.enter(Phase::Flushing);
                open.oram.sync().map_err(|e| self.failure("flush", &e))?;
                self.disk.note(Event::Promised(open.oram.writes()));
                self.settle_hidden(open);
            }
            Step::Kill => {
                // A killed process loses data that it holds in memory. This equals a crash before
                // that data was written, which is tested anyway, so the data is written out here.
                self.disk.enter(Phase::Writing);
                open.oram.write_out().map_err(|e| self.failure("write out", &e))?;
                *open = self.open_whole()?;
            }
            Step::Close => {
                self.disk.enter(Phase::Flushing);
                let dummies = self.history.len() + self.subject.close_writes();
                self.history.resize(dummies, Write::DUMMY);
                self.disk.note(Event::Submitted(dummies as u64));
                open.oram.close().map_err(|e| self.failure("close", &e))?;
                self.disk.note(Event::Promised(open.oram.writes()));
                self.settle_hidden(open);
                *open = self.open_whole()?;
            }
        }
        Ok(())
    }

    fn write(&mut self, open: &mut Open, n: u64, rng: &mut dyn Rng) -> Result<(), Failure> {
        let (blocks, len) = (self.subject.scheme.blocks(), self.subject.scheme.block_len());
        // One workload prefers a few blocks; the other one has dummies among its single writes.
        let hot =
            if self.salt.is_multiple_of(2) && rng.below(2) == 0 { 3.min(blocks) } else { blocks };
        let dummy = !self.salt.is_multiple_of(2) && n == 1 && rng.below(3) == 0;
        let mut data = vec![0; n as usize * len];
        let mut addrs = vec![];
        for block in data.chunks_exact_mut(len) {
            let fill = rng.next_u64() | 1;
            contents(fill, block);
            let addr = rng.below(hot);
            addrs.push(Addr(addr));
            self.push(Write { block: (!dummy).then_some(addr), blocks: 1, fill });
        }
        self.disk.enter(Phase::Writing);
        self.write_hidden(open, n)?;
        self.disk.note(Event::Submitted(self.history.len() as u64));
        let written =
            if dummy { open.oram.write_dummy() } else { open.oram.write_many(&addrs, &data) };
        written.map_err(|e| self.failure("write", &e))?;
        if self.fault == Fault::HiddenFlushEarly {
            self.settle_hidden_blocks();
        }
        Ok(())
    }

    /// Writes to hidden volumes beside `n` public writes.
    fn write_hidden(&mut self, open: &mut Open, n: u64) -> Result<(), Failure> {
        let (Some(client), Some(lane)) = (&mut self.hidden, &open.lane) else { return Ok(()) };
        let len = self.subject.scheme.block_len();
        let written = client.write(lane, n, len).map_err(|e| format!("hidden write: {e}"))?;
        self.note_hidden();
        if written > 0 && self.fault == Fault::HiddenWrites {
            self.history.insert(self.history.len() - n as usize, Write::DUMMY);
            open.oram.write_dummy().map_err(|e| self.failure("write", &e))?;
        }
        Ok(())
    }

    /// After a sync: what hidden volumes say is flushed must survive.
    fn settle_hidden(&mut self, open: &Open) {
        let is_flushed =
            |lane: &HiddenLane| lane.volume(0).is_none_or(|hidden| hidden.is_flushed());
        if open.lane.as_ref().is_some_and(is_flushed) {
            self.settle_hidden_blocks();
        } else {
            self.note_hidden();
        }
    }

    fn settle_hidden_blocks(&mut self) {
        if let Some(client) = &mut self.hidden {
            client.allowed.settle();
        }
        self.note_hidden();
    }

    fn note_hidden(&self) {
        if let Some(client) = &self.hidden {
            self.disk.note(Event::Hidden(client.allowed.clone()));
        }
    }

    /// What blocks of hidden volumes may hold now; `None` if it can have none.
    pub fn hidden_blocks(&self) -> Option<HiddenBlocks> {
        Some(self.hidden.as_ref()?.allowed.clone())
    }

    /// Expects that blocks of hidden volumes hold what `allowed` says.
    pub fn expect_hidden(&mut self, allowed: Option<&HiddenBlocks>) {
        if let (Some(client), Some(allowed)) = (&mut self.hidden, allowed) {
            client.allowed = allowed.clone();
        }
    }

    /// Checks all blocks of hidden volumes. What they hold now they must hold from then on.
    pub fn check_hidden(&mut self, open: &Open) -> Result<(), String> {
        let len = self.block_len();
        let (Some(client), Some(lane)) = (&mut self.hidden, &open.lane) else { return Ok(()) };
        client.check(lane, len)
    }

    fn discard(&mut self, open: &mut Open, n: u64, rng: &mut dyn Rng) -> Result<(), Failure> {
        let Discards { parts, covers, .. } = self.subject.discards.expect("it has a discard map");
        let (blocks, first) = (self.subject.scheme.blocks(), rng.below(parts - n + 1));
        let covered = |part: u64| part * covers..((part + 1) * covers).min(blocks);
        let any =
            |range: Range<u64>, rng: &mut dyn Rng| range.start + rng.below(range.end - range.start);
        // Often everything, as file systems do at first.
        let all = rng.below(4) == 0;
        let last = covered(first + n - 1);
        let start = if all { covered(first).start } else { any(covered(first), rng) };
        let end = if all { last.end } else { 1 + any(start.max(last.start)..last.end, rng) };
        for part in first..first + n {
            let end = end.min(covered(part).end);
            let start = start.max(covered(part).start);
            self.push(Write { block: Some(start), blocks: end - start, fill: 0 });
        }
        self.disk.enter(Phase::Writing);
        self.disk.note(Event::Submitted(self.history.len() as u64));
        open.oram.discard(start..end).map_err(|e| self.failure("discard", &e))
    }

    /// Adds a write to the history, behind a write to the discard map if one has its turn.
    fn push(&mut self, write: Write) {
        if let Some(Discards { period, .. }) = self.subject.discards
            && self.history.len() as u64 % period == period - 1
        {
            self.history.push(Write::DUMMY);
        }
        self.history.push(write);
    }

    /// Opens the volume and executes all of `steps`, with a new record. With a `warm_up` the record
    /// begins after so many further writes.
    pub fn run(&mut self, steps: &[Step], warm_up: u64, rng: &mut dyn Rng) -> Result<(), Failure> {
        self.begin_record();
        let mut open = self.open_whole()?;
        self.record()?;
        if warm_up > 0 {
            self.step(&mut open, Step::Write(warm_up), rng)?;
            self.step(&mut open, Step::Flush, rng)?;
            self.record()?;
            self.begin_record();
        }
        for &step in steps {
            self.step(&mut open, step, rng)?;
            self.record()?;
        }
        // Everything is written out, so that the next run can continue from here.
        open.oram.write_out().map_err(|e| self.failure("write out", &e))?;
        self.record()
    }

    fn begin_record(&mut self) {
        self.disk.settle();
        (self.base, self.log) = (self.disk.snapshot(), vec![]);
        self.nonces.begin();
        let made = self.history.len() as u64;
        self.log.extend([Event::Submitted(made), Event::Promised(made)]);
        self.log.extend(self.hidden_blocks().map(Event::Hidden));
    }

    /// Moves the disk's log into the record, and checks it for nonces used twice.
    pub fn record(&mut self) -> Result<(), Failure> {
        let log = self.disk.take_log();
        self.nonces.note(&log, self.log.len())?;
        self.log.extend(log);
        Ok(())
    }

    /// Checks that every block holds the data of its last write in `history`, or zeros.
    pub fn check(&self, open: &Open, history: &[Write]) -> Result<(), String> {
        let mut last = vec![(0, 0); self.subject.scheme.blocks() as usize];
        for (i, write) in history.iter().enumerate() {
            if let Some(block) = write.block {
                last[block as usize..][..write.blocks as usize].fill((i + 1, write.fill));
            }
        }
        let len = self.subject.scheme.block_len();
        let mut all = vec![0; last.len() * len];
        let addrs: Vec<_> = (0..last.len() as u64).map(Addr).collect();
        open.oram.read_shared(&addrs, &mut all).map_err(|e| format!("reading: {e}"))?;
        let mut want = vec![0; len];
        for (block, (got, &(write, fill))) in all.chunks_exact(len).zip(&last).enumerate() {
            contents(fill, &mut want);
            if got != want {
                let holds = self.write_that_made(got);
                return Err(format!(
                    "of {} writes, block {block} should hold number {} (0 is none), holds {holds}",
                    history.len(),
                    write,
                ));
            }
        }
        Ok(())
    }

    /// Counts the reads of a check, if they are accesses.
    pub fn note_reads(&mut self) {
        if self.subject.hides_reads {
            let made = self.history.len() + self.subject.scheme.blocks() as usize;
            self.history.resize(made, Write::DUMMY);
        }
    }

    /// Describes in which part of the image a piece lies.
    pub fn describe(&self, piece: &Piece) -> String {
        let (at, len) = (piece.at, piece.bytes.len());
        if at < AREAS_AT {
            let which = if (at - SUPERBLOCKS_AT) < SUPERBLOCK_LEN as u64 { "A" } else { "B" };
            return format!("superblock {which}");
        }
        let areas = self.subject.scheme.areas();
        let found = areas.iter().rev().find(|(_, first, _)| AREAS_AT + first <= at);
        let (name, first, _) = found.expect("areas begin there");
        format!("{len} bytes from byte {} of the {name} area", at - AREAS_AT - first)
    }

    fn write_that_made(&self, got: &[u8]) -> String {
        let mut block = vec![0; got.len()];
        let found = self.history.iter().position(|write| {
            contents(write.fill, &mut block);
            block == got
        });
        match found {
            Some(i) => format!("number {}, to block {:?}", i + 1, self.history[i].block),
            None if got.iter().all(|&b| b == 0) => "zeros".into(),
            None => "what nobody wrote".into(),
        }
    }
}
