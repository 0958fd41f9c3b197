//! A user of a deniable image, and what its disk shows.

use super::DeniableSize;
use super::faults::{FaultyDisk, LaneFault};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use traceless::durable::MemVault;
use traceless::oram::Oram;
use traceless::rng::{Rng, SeededRng};
use traceless::scheme::SchemeContext;
use traceless::scheme::contract::BlockScheme;
use traceless::seal::{Cipher, Secret};
use traceless::store::{MemStore, WatchedStore};
use traceless::trace::{Event, Op, Recorder};
use traceless::{Addr, BlockOram, Result};
use traceless_audit::Copies;
use traceless_block::deniable::{Deniable, DeniableGeometry, HiddenKey, LanePolicy};

/// Bytes of a block: few, so that many copies are made soon.
const BLOCK_LEN: usize = 512;

/// Blocks of the public volume.
const BLOCKS: u64 = 1700;

/// Blocks of all hidden volumes together.
const HIDDEN_BLOCKS: u64 = 300;

/// Copies in each session; every other session ends with a close, the rest are killed.
const SESSION: u64 = 20;

/// Public writes until hidden volumes are there.
const FIRST_WRITES: u64 = 40;

/// A user with some hidden volumes.
#[derive(Clone, Copy)]
pub struct DeniableUser {
    pub hidden: usize,
    pub fault: LaneFault,
    /// The seed of what is public, and of everything else.
    pub seeds: (u64, u64),
}

/// What an adversary observes of a user.
pub struct Observed {
    pub copies: Copies,
    /// Blocks that changed up to each copy.
    pub changed: Vec<u64>,
    /// Writes and syncs.
    pub events: Vec<Event>,
    /// Hidden blocks that were read at the end, and of these the ones with wrong contents.
    pub read: u64,
    pub lost: u64,
}

/// A user at work.
struct Life {
    user: DeniableUser,
    geometry: DeniableGeometry,
    memory: Arc<MemStore>,
    disk: Arc<FaultyDisk>,
    events: Arc<Recorder>,
    vault: MemVault,
    public: SeededRng,
    secret: SeededRng,
    /// What hidden blocks hold, by volume and address.
    held: HashMap<(usize, u64), u8>,
}

impl DeniableUser {
    /// What the disk shows, from the time on when the hidden volumes are there.
    pub fn observed(self, size: DeniableSize) -> Result<Observed> {
        let mut life = Life::new(self)?;
        let mut open = life.begin()?;
        life.events.take();
        let mut copies = Copies::new(life.image());
        let (mut changed, mut events) = (vec![], vec![]);
        for nth in 1..=size.copies {
            life.work(&mut open, size.writes)?;
            let before = copies.changes();
            copies.add(life.image());
            changed.push((copies.changes() - before) as u64);
            events.extend(life.events.take().into_iter().filter(|event| event.op != Op::Read));
            if nth % SESSION == 0 {
                open = life.reopen(open, (nth / SESSION).is_multiple_of(2))?;
            }
        }
        let (read, lost) = life.check(&open);
        Ok(Observed { copies, changed, events, read, lost })
    }

    fn keys(self) -> Vec<HiddenKey> {
        let secret = |number| Secret::from_bytes([100 + number as u8; 32]);
        let blocks = HIDDEN_BLOCKS / self.hidden.max(1) as u64;
        (0..self.hidden).map(|number| HiddenKey { secret: secret(number), blocks }).collect()
    }
}

impl Life {
    /// A new disk of random bytes with a public volume.
    fn new(user: DeniableUser) -> Result<Self> {
        let geometry = DeniableGeometry::new(BLOCKS, BLOCK_LEN)?;
        let (public, mut secret) = (SeededRng::new(user.seeds.0), SeededRng::new(user.seeds.1));
        let mut bytes = vec![0; geometry.store_len() as usize];
        secret.fill(&mut bytes);
        let (memory, events) = (Arc::new(MemStore::from_bytes(&bytes)), Arc::default());
        let watched = WatchedStore::new(Arc::clone(&memory), Arc::clone(&events));
        let lane = *geometry.slots_in_turn().last().expect("the lane is the last area");
        let disk = Arc::new(FaultyDisk::new(watched, user.fault, lane));
        let (vault, held) = (MemVault::default(), HashMap::new());
        let mut life = Self { user, geometry, memory, disk, events, vault, public, secret, held };
        Deniable::create(geometry, life.context())?.close()?;
        Ok(life)
    }

    fn context(&mut self) -> SchemeContext {
        SchemeContext {
            store: self.disk.clone(),
            first: 0,
            key: Secret::from_bytes([9; 32]),
            vault: Box::new(self.vault.clone()),
            rng: Box::new(SeededRng::new(self.secret.next_u64())),
            read_only: false,
            cipher: Cipher::default(),
            expect_writes: 0,
        }
    }

    fn open(&mut self, keys: &[HiddenKey]) -> Result<Deniable> {
        // A fault of the lane must not end the audit.
        let hidden = (keys, LanePolicy::Accept);
        let state = self.vault.kept();
        Deniable::open(self.geometry, self.context(), &state, hidden, &mut |_, _| {})
    }

    /// Opens the disk for the first time, and adds the hidden volumes.
    fn begin(&mut self) -> Result<Deniable> {
        let mut open = self.open(&[])?;
        for key in self.user.keys() {
            open.hidden().add(&key.secret, key.blocks, &[1; BLOCK_LEN])?;
        }
        self.write_public(&mut open, FIRST_WRITES)?;
        open.sync()?;
        Ok(open)
    }

    /// The whole disk, and the state that the public key opens.
    fn image(&self) -> Vec<u8> {
        let mut image = self.memory.snapshot();
        let mut state = self.vault.kept();
        state.resize(state.len().max(4096), 0);
        image.extend(&state[..4096]);
        image
    }

    /// Public writes in requests of random lengths, with hidden requests between them.
    fn work(&mut self, open: &mut Deniable, writes: u64) -> Result {
        let mut left = writes;
        while left > 0 {
            self.use_hidden(open)?;
            let n = (1 + self.public.below(4)).min(left);
            self.write_public(open, n)?;
            left -= n;
            if self.public.below(12) == 0 {
                open.sync()?;
            }
        }
        Ok(())
    }

    fn write_public(&mut self, open: &mut Deniable, n: u64) -> Result {
        for _ in 0..n {
            // One by one, as the disk must know for each slot whether it is empty.
            let is_empty = !open.hidden().has_waiting();
            self.disk.is_empty.store(is_empty, Ordering::Relaxed);
            let addr = Addr(self.public.below(BLOCKS));
            open.write_many(&[addr], &[self.public.below(256) as u8; BLOCK_LEN])?;
        }
        Ok(())
    }

    /// None to three hidden writes, each with a read.
    fn use_hidden(&mut self, open: &mut Deniable) -> Result {
        if self.user.hidden == 0 {
            return Ok(());
        }
        for _ in 0..self.secret.below(4) {
            let number = self.secret.below(self.user.hidden as u64) as usize;
            let addr = self.secret.below(HIDDEN_BLOCKS / self.user.hidden as u64);
            let volume = open.hidden().volume(number).expect("it is open");
            let byte = self.secret.below(256) as u8;
            volume.write(&[Addr(addr)], &[byte; BLOCK_LEN])?;
            volume.read(&[Addr(addr)], &mut [0; BLOCK_LEN])?;
            self.held.insert((number, addr), byte);
            if self.user.fault == LaneFault::WritesAtOnce {
                open.write_dummy()?;
            }
        }
        Ok(())
    }

    fn reopen(&mut self, mut open: Deniable, closes: bool) -> Result<Deniable> {
        if closes {
            open.close()?;
        }
        if open.hidden().has_waiting() {
            // Nothing had promised what waits. So blocks hold this, or what they held before.
            self.held.clear();
        }
        drop(open);
        let keys = self.user.keys();
        self.open(&keys)
    }

    /// The number of hidden blocks that were read, and of these the ones with wrong contents.
    fn check(&self, open: &Deniable) -> (u64, u64) {
        let (mut lost, mut plain) = (0, [0; BLOCK_LEN]);
        for (&(number, addr), &byte) in &self.held {
            let volume = open.hidden().volume(number).expect("it is open");
            let read = volume.read(&[Addr(addr)], &mut plain);
            lost += u64::from(read.is_err() || plain != [byte; BLOCK_LEN]);
        }
        (self.held.len() as u64, lost)
    }
}
