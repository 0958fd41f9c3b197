//! The lane: a ring of slots that the public writes fill in turn, one each.
//!
//! Write number p goes to slot p modulo the slots, and overwrites it. Ahead of the writer lies a
//! stretch without anything live, up to the *tail*. A write takes, in this order: if the stretch is
//! at its least length, the live block at the tail, which moves; else a block that waits; else a
//! beacon, or random bytes if no hidden volume is open.

use super::entry::{BEACON, LaneHead, LaneKeys, LaneSum, RECORD};
use super::geometry::{DeniableGeometry, HIDDEN_MAX};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use std::collections::HashMap;
use traceless_core::error::{Error, Place, Result};
use traceless_core::rng::Rng;
use traceless_core::scheme::openings::Opening;
use traceless_core::seal::{Keystream, Secret};
use traceless_core::store::{Area, Cursor, Run, Store};
use traceless_core::types::Slot;

/// Blocks of hidden volumes that may wait for their slots, at most.
pub(super) const WAITING_MAX: usize = 1024;

/// The owner of a slot that holds nothing live.
const FREE: u64 = u64::MAX;

/// A block of an open hidden volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct LaneBlock {
    /// Number of the volume in this session.
    pub volume: usize,
    /// Its block.
    pub address: u64,
}

/// An open hidden volume.
pub(super) struct LaneVolume {
    pub keys: LaneKeys,
    pub blocks: u64,
    /// For each block one more than its newest write, or 0; the record is behind the blocks.
    map: Vec<u64>,
    sum: LaneSum,
    /// The sum when the last sync began that succeeded.
    synced_sum: LaneSum,
}

impl LaneVolume {
    pub fn new(secret: &Secret, blocks: u64, slots: u64) -> Result<Self> {
        let len = usize::try_from(blocks + 1).map_err(|_| Error::Geometry("map"))?;
        let (sum, synced_sum) = (LaneSum::default(), LaneSum::default());
        let keys = LaneKeys::new(secret, slots);
        Ok(Self { keys, blocks, map: vec![0; len], sum, synced_sum })
    }

    /// The place in the map of an address that the volume has.
    fn nth(&self, address: u64) -> Option<usize> {
        match address {
            RECORD => Some(self.map.len() - 1),
            address => (address < self.blocks).then_some(address as usize),
        }
    }

    /// The newest write of a block, if there is one.
    pub fn newest(&self, address: u64) -> Option<u64> {
        self.map[self.nth(address)?].checked_sub(1)
    }

    /// Records that the newest contents of a block are what write `p` had. Returns the write that
    /// had them before.
    pub fn note(&mut self, address: u64, p: u64) -> Option<u64> {
        let nth = self.nth(address)?;
        let before = self.map[nth].checked_sub(1);
        if let Some(before) = before {
            self.sum.remove(self.keys.term(address, before));
        }
        self.sum.add(self.keys.term(address, p));
        self.map[nth] = p + 1;
        before
    }

    /// The sum over the map.
    pub fn sum(&self) -> LaneSum {
        self.sum
    }
}

/// A block that waits for its slot.
struct WaitingBlock {
    plain: Vec<u8>,
    ticket: u64,
}

/// What a write of the lane puts into its slot.
enum Content {
    Random,
    Beacon(usize),
    Waiting(LaneBlock, Vec<u8>),
    /// The copy of write `from`, which was read as number `nth` of the input.
    Moved {
        block: LaneBlock,
        from: u64,
        nth: usize,
    },
}

/// The lane of an open store, and the hidden volumes that are open.
pub(super) struct Lane {
    area: Area,
    cursor: Cursor,
    margin: u64,
    volumes: Vec<Option<LaneVolume>>,
    /// The block that each slot holds the newest contents of; empty without hidden volumes.
    owners: Vec<u64>,
    /// The number of the next write.
    next: u64,
    /// The slots of the writes from `next` to here hold nothing live.
    tail: u64,
    synced: u64,
    opening: u16,
    waiting: HashMap<LaneBlock, WaitingBlock>,
    queue: VecDeque<LaneBlock>,
    tickets: u64,
    /// The tickets below are durable.
    durable: u64,
    beacons: usize,
    /// Whether only beacons are written.
    quiet: bool,
    ended: bool,
    attended: bool,
    rng: Box<dyn Rng>,
    input: Run,
    output: Run,
}

/// The state of the lane at the beginning of a sync.
pub(super) struct LaneSync {
    next: u64,
    placed: u64,
    sums: Vec<LaneSum>,
}

impl Lane {
    /// The lane when `next` writes were made.
    pub fn new(
        geometry: &DeniableGeometry,
        area: Area,
        next: u64,
        rng: Box<dyn Rng>,
    ) -> Result<Self> {
        Ok(Self {
            cursor: Cursor::load(&area, Slot(next % area.slots()))?,
            margin: geometry.margin(),
            volumes: vec![],
            owners: vec![],
            next,
            tail: next,
            synced: next,
            opening: 0,
            waiting: HashMap::new(),
            queue: VecDeque::new(),
            tickets: 0,
            durable: 0,
            beacons: 0,
            quiet: false,
            ended: false,
            attended: true,
            rng,
            input: Run::default(),
            output: Run::default(),
            area,
        })
    }

    pub fn area(&self) -> &Area {
        &self.area
    }

    pub fn volume(&self, volume: usize) -> Option<&LaneVolume> {
        self.volumes.get(volume)?.as_ref()
    }

    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether hidden requests may wait: more public writes can come.
    pub fn is_attended(&self) -> bool {
        !self.ended && self.attended
    }

    /// No more public writes come.
    pub fn leave(&mut self) {
        self.attended = false;
    }

    /// Ends all writing, after a close or a failure.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Writes only beacons from now on.
    pub fn be_quiet(&mut self) {
        self.quiet = true;
    }

    /// The lane writes from now on belong to this opening.
    pub fn begin(&mut self, opening: &Opening) {
        self.opening = opening.number as u16;
    }

    /// Volumes that were opened or added in this session.
    pub fn volumes(&self) -> usize {
        self.volumes.len()
    }

    /// Blocks of all open volumes, with their records.
    pub fn hidden_blocks(&self) -> u64 {
        self.volumes.iter().flatten().map(|volume| volume.blocks + 1).sum()
    }

    /// Adds a volume with its blocks that are on the lane. Its number is one more than the last.
    pub fn add(&mut self, volume: LaneVolume) -> usize {
        let number = self.volumes.len();
        assert!(number < HIDDEN_MAX, "the caller counts the volumes");
        if self.owners.is_empty() {
            self.owners = vec![FREE; self.area.slots() as usize];
        }
        for nth in 0..volume.map.len() as u64 {
            let address = if nth == volume.blocks { RECORD } else { nth };
            if let Some(p) = volume.newest(address) {
                let slot = self.slot(p);
                self.owners[slot as usize] = owner(LaneBlock { volume: number, address });
            }
        }
        self.volumes.push(Some(LaneVolume { synced_sum: volume.sum, ..volume }));
        self.tail = self.next;
        number
    }

    /// Forgets a volume: its slots are free.
    pub fn forget(&mut self, volume: usize) {
        for slot in &mut self.owners {
            if *slot != FREE && block_of(*slot).volume == volume {
                *slot = FREE;
            }
        }
        self.queue.retain(|block| block.volume != volume);
        self.waiting.retain(|block, _| block.volume != volume);
        self.volumes[volume] = None;
    }

    fn slot(&self, p: u64) -> u64 {
        p % self.area.slots()
    }

    /// Number of slots from the next one to the end of its stripe: a trip goes no further.
    pub fn stripe_left(&self) -> u64 {
        let (slot, stripe) = (self.slot(self.next), self.area.layout().stripe_slots);
        (stripe - slot % stripe).min(self.area.slots() - slot)
    }

    /// Fills the slots of the next `n` writes, which are in one stripe.
    pub fn write(&mut self, store: &dyn Store, n: usize) -> Result {
        let first = self.next;
        if self.slot(first).is_multiple_of(self.area.layout().stripe_slots) {
            // What lies behind in the new stripe may be live, if not all hidden volumes were open.
            self.cursor = Cursor::load(&self.area, Slot(self.slot(first)))?;
        }
        let contents = self.plan(n);
        self.input.read(store)?;
        let mut output = core::mem::take(&mut self.output);
        output.clear();
        output.add_write(&self.area, Slot(self.slot(first)), n as u64, &self.cursor);
        output.keep_behind(n - 1, &self.cursor);
        self.fill_randomly(&mut output, n);
        for (nth, content) in contents.into_iter().enumerate() {
            self.seal(first + nth as u64, content, output.slot_mut(nth));
        }
        let written = output.write(store);
        output.advance(&mut self.cursor, n - 1);
        self.output = output;
        written
    }

    /// Decides what the next `n` writes hold, and adds what must be read to the input. The maps are
    /// as after the writes then.
    fn plan(&mut self, n: usize) -> Vec<Content> {
        self.input.clear();
        let mut contents = Vec::with_capacity(n);
        for _ in 0..n {
            let content = self.choose();
            if let Content::Waiting(block, _) | Content::Moved { block, .. } = content {
                self.place(block);
            }
            self.next += 1;
            contents.push(content);
        }
        contents
    }

    fn choose(&mut self) -> Content {
        if self.owners.is_empty() {
            return Content::Random;
        }
        let slots = self.area.slots();
        while self.tail < self.next + slots && self.owners[self.slot(self.tail) as usize] == FREE {
            self.tail += 1;
        }
        if self.quiet {
            return self.beacon();
        }
        if self.tail - self.next <= self.margin {
            let slot = self.slot(self.tail);
            let block = block_of(self.owners[slot as usize]);
            let nth = self.input.slots();
            self.input.add(&self.area, Slot(slot), 1);
            self.tail += 1;
            return Content::Moved { block, from: self.tail - 1 - slots, nth };
        }
        match self.queue.pop_front() {
            Some(block) => {
                let waiting = self.waiting.remove(&block).expect("what is queued waits");
                Content::Waiting(block, waiting.plain)
            }
            None => self.beacon(),
        }
    }

    fn beacon(&mut self) -> Content {
        self.beacons += 1;
        let open = self.volumes.iter().filter(|volume| volume.is_some()).count();
        let nth = |(number, volume): (usize, &Option<_>)| volume.as_ref().map(|_| number);
        let numbers = self.volumes.iter().enumerate().filter_map(nth);
        match numbers.cycle().nth(self.beacons % open.max(1)) {
            Some(volume) => Content::Beacon(volume),
            None => Content::Random,
        }
    }

    /// The next write has the newest contents of `block`.
    fn place(&mut self, block: LaneBlock) {
        let p = self.next;
        let volume = self.volumes[block.volume].as_mut().expect("it is open");
        let before = volume.note(block.address, p);
        if let Some(before) = before {
            let slot = self.slot(before);
            if self.owners[slot as usize] == owner(block) {
                self.owners[slot as usize] = FREE;
            }
        }
        let slot = self.slot(p);
        self.owners[slot as usize] = owner(block);
    }

    /// Fills the slots with random bytes.
    fn fill_randomly(&mut self, output: &mut Run, n: usize) {
        let mut stream = Keystream::new(&Secret::random(&mut *self.rng));
        for nth in 0..n {
            let (entry, body) = output.slot_mut(nth);
            stream.apply(entry);
            stream.apply(body);
        }
    }

    fn seal(&mut self, p: u64, content: Content, (entry, body): (&mut [u8], &mut [u8])) {
        let slots = self.area.slots();
        if matches!(content, Content::Random) {
            return;
        }
        let (slot, salt) = (p % slots, self.rng.salt());
        let head_of = |volume: &LaneVolume, address| LaneHead {
            address,
            lap: (p / slots) as u32,
            opening: self.opening,
            lag: (p - self.synced) as u32,
            sum: volume.synced_sum,
        };
        let open = |volume: usize| self.volumes[volume].as_ref().expect("it is open");
        match content {
            Content::Random => unreachable!("it is random already"),
            Content::Beacon(volume) => {
                let volume = open(volume);
                volume.keys.seal_head(slot, salt, head_of(volume, BEACON), entry);
            }
            Content::Waiting(block, plain) => {
                let volume = open(block.volume);
                body.copy_from_slice(&plain);
                let head = head_of(volume, block.address);
                volume.keys.seal((slot, p), salt, head, (entry, body));
            }
            Content::Moved { block, from, nth } => {
                let volume = open(block.volume);
                let head = head_of(volume, block.address);
                let mut plain = vec![0; body.len()];
                let place = (from % slots, from);
                let is_whole =
                    volume.keys.open_body(place, block.address, self.input.slot(nth), &mut plain);
                if is_whole {
                    body.copy_from_slice(&plain);
                    volume.keys.seal((slot, p), salt, head, (entry, body));
                } else {
                    // The block is lost: reads of it are errors until it is written again.
                    volume.keys.seal_head(slot, salt, head, entry);
                }
            }
        }
    }

    /// Called when a sync begins.
    pub fn begin_sync(&self) -> LaneSync {
        let sums = self.volumes.iter().map(|v| v.as_ref().map_or_else(LaneSum::default, |v| v.sum));
        LaneSync { next: self.next, placed: self.placed(), sums: sums.collect() }
    }

    /// Called when the sync has succeeded.
    pub fn end_sync(&mut self, sync: &LaneSync) {
        if sync.next < self.synced {
            return;
        }
        self.synced = sync.next;
        self.durable = self.durable.max(sync.placed);
        for (volume, sum) in self.volumes.iter_mut().zip(&sync.sums) {
            if let Some(volume) = volume {
                volume.synced_sum = *sum;
            }
        }
    }

    /// Whether a block can wait for its slot without exceeding the memory for that.
    pub fn has_room(&self, block: LaneBlock) -> bool {
        self.queue.len() < WAITING_MAX || self.waiting.contains_key(&block)
    }

    /// Lets new contents of a block wait for their slot.
    pub fn enqueue(&mut self, block: LaneBlock, plain: &[u8]) {
        let (plain, ticket) = (plain.to_vec(), self.tickets);
        if let Some(waiting) = self.waiting.get_mut(&block) {
            waiting.plain = plain;
            return;
        }
        self.waiting.insert(block, WaitingBlock { plain, ticket });
        self.queue.push_back(block);
        self.tickets += 1;
    }

    /// The tickets that were given so far.
    pub fn tickets(&self) -> u64 {
        self.tickets
    }

    /// The tickets below have their slots.
    fn placed(&self) -> u64 {
        self.queue.front().map_or(self.tickets, |block| self.waiting[block].ticket)
    }

    /// Whether all tickets below `tickets` are durable.
    pub fn is_durable(&self, tickets: u64) -> bool {
        self.durable >= tickets
    }

    /// Blocks that wait for their slots.
    pub fn waits(&self) -> usize {
        self.queue.len()
    }

    /// Reads blocks of a hidden volume; a block that was never written is zeros.
    pub fn read(
        &mut self,
        store: &dyn Store,
        blocks: impl Iterator<Item = LaneBlock>,
        into: &mut [u8],
    ) -> Result {
        let len = self.area.layout().body_len;
        self.input.clear();
        let mut fetched = vec![];
        for (block, part) in blocks.zip(into.chunks_exact_mut(len)) {
            if let Some(waiting) = self.waiting.get(&block) {
                part.copy_from_slice(&waiting.plain);
                continue;
            }
            let volume = self.volumes[block.volume].as_ref().ok_or(Error::ReadOnly)?;
            match volume.newest(block.address) {
                None => part.fill(0),
                Some(p) => {
                    self.input.add(&self.area, Slot(self.slot(p)), 1);
                    fetched.push((block, p, part));
                }
            }
        }
        self.input.read(store)?;
        for (nth, (block, p, part)) in fetched.into_iter().enumerate() {
            let volume = self.volumes[block.volume].as_ref().expect("it was just read");
            let place = (self.slot(p), p);
            if !volume.keys.open_body(place, block.address, self.input.slot(nth), part) {
                part.fill(0);
                return Err(self.damage(block, p));
            }
        }
        Ok(())
    }

    fn damage(&self, block: LaneBlock, p: u64) -> Error {
        let place =
            Place { area: self.area.name(), slot: self.slot(p), block: Some(block.address) };
        Error::Tampered { place }
    }
}

fn owner(block: LaneBlock) -> u64 {
    (block.volume as u64) << 48 | block.address
}

fn block_of(owner: u64) -> LaneBlock {
    LaneBlock { volume: (owner >> 48) as usize, address: owner & ((1 << 48) - 1) }
}
