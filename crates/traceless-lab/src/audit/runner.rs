//! Runs a workload on a target and keeps what an adversary observes.

use super::target::{AuditTarget, BLOCK_LEN, Open};
use super::workload::{Interruption, UserWorkload, WorkloadPair, mix, pairs};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use traceless::durable::MemVault;
use traceless::rng::SeededRng;
use traceless::scheme::SchemeContext;
use traceless::seal::{Cipher, Secret};
use traceless::store::{MemStore, Store, WatchedStore};
use traceless::trace::{Event, Op, Recorder, Witness};
use traceless::types::total_len;
use traceless::{Addr, Error, Extent, Hides, Result};
use traceless_cli::trace::Trace;

/// How much a run writes and how often it opens the volume.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Blocks that a run writes in all.
    pub writes: u64,
    /// Openings after the first, for a pair with interruptions.
    pub openings: u64,
}

/// Blocks of a batch that a workload with discards discards.
const DISCARDED: u64 = 3;

/// Batches between two syncs.
const SYNC_EVERY: u64 = 7;

/// What the adversary observes of `workload`, one side of `pair`. The workload draws from `seed`,
/// the scheme from `draws`.
pub fn trace_of(
    target: &AuditTarget,
    pair: &WorkloadPair,
    workload: UserWorkload,
    length: Length,
    keeps_reads: bool,
    (seed, draws): (u64, u64),
) -> Result<Vec<Event>> {
    let mut session = Session::new(target, keeps_reads, draws);
    let mut user =
        VolumeUser { target, pair, workload, seed, written: 0, batches: 0, on_request: &|_, _| {} };
    let mut open = session.create()?;
    let segments = if pair.interruption == Interruption::Nothing { 1 } else { length.openings + 1 };
    for segment in 0..segments {
        let is_last = segment + 1 == segments;
        if pair.interruption == Interruption::CutWrite && !is_last {
            session.store.halt_after(2 + (segment * 5 % 11).cast_signed());
        }
        let until = length.writes * (segment + 1) / segments;
        match user.write_until(&mut open, until) {
            Err(_) if session.store.has_halted() => user.written = until,
            result => result?,
        }
        if is_last || pair.interruption == Interruption::Close {
            open.oram().close()?;
        }
        if !is_last {
            drop(open);
            open =
                session.reopen(pair.interruption == Interruption::CutWrite && segment % 2 == 1)?;
        }
    }
    Ok(session.witness.events.take())
}

/// Writes `writes` blocks of `workload`, and records all events in `trace`, reads included.
pub fn record(
    target: &AuditTarget,
    workload: UserWorkload,
    writes: u64,
    seed: u64,
    trace: &Trace,
) -> Result {
    let log = EventLog { reads: true, events: Recorder::default(), file: trace.witness() };
    let mut session = Session::with_log(target, log, mix(seed, 2));
    let pair = WorkloadPair { a: workload, b: workload, ..pairs(Hides::WritesOnly)[0] };
    let mut open = session.create()?;
    let on_request = trace.request_recorder();
    let record_request = |op, addr: u64| {
        if let Some(record_request) = &on_request {
            record_request(op, addr * BLOCK_LEN as u64, BLOCK_LEN as u32);
        }
    };
    let mut user = VolumeUser {
        target,
        pair: &pair,
        workload,
        seed,
        written: 0,
        batches: 0,
        on_request: &record_request,
    };
    user.write_until(&mut open, writes)?;
    open.oram().close()
}

/// A target's store, its witness, and the state that opens the target again.
pub struct Session<'a> {
    target: &'a AuditTarget,
    pub store: Arc<HaltingStore>,
    pub witness: Arc<EventLog>,
    vault: MemVault,
    seed: u64,
}

impl<'a> Session<'a> {
    pub fn new(target: &'a AuditTarget, keeps_reads: bool, seed: u64) -> Self {
        Self::with_log(
            target,
            EventLog { reads: keeps_reads, events: Recorder::default(), file: None },
            seed,
        )
    }

    fn with_log(target: &'a AuditTarget, log: EventLog, seed: u64) -> Self {
        let witness = Arc::new(log);
        let disk = MemStore::new(target.store_len());
        let store = Arc::new(HaltingStore::new(WatchedStore::new(disk, witness.clone())));
        Self { target, store, witness, vault: MemVault::default(), seed }
    }

    pub fn create(&mut self) -> Result<Open> {
        self.target.create(self.context())
    }

    /// Opens the target again; if `cut`, recovery is interrupted and then starts anew.
    pub fn reopen(&mut self, cut: bool) -> Result<Open> {
        if cut {
            self.store.halt_after(2);
            let tried = self.target.open(self.context(), &self.vault.kept());
            if !self.store.has_halted() {
                self.store.resume();
                return tried;
            }
        }
        self.store.resume();
        self.target.open(self.context(), &self.vault.kept())
    }

    fn context(&mut self) -> SchemeContext {
        // Each run's scheme draws from another seed, so equal traces are not due to equal draws.
        self.seed = mix(self.seed, 1);
        SchemeContext {
            store: self.store.clone(),
            first: 0,
            key: Secret::from_bytes([9; 32]),
            vault: Box::new(self.vault.clone()),
            rng: Box::new(SeededRng::new(self.seed)),
            read_only: false,
            cipher: Cipher::default(),
            expect_writes: 0,
        }
    }
}

/// A user that works through a workload.
struct VolumeUser<'a> {
    target: &'a AuditTarget,
    pair: &'a WorkloadPair,
    workload: UserWorkload,
    seed: u64,
    written: u64,
    batches: u64,
    /// Is called for each block before a write or read of it.
    on_request: &'a dyn Fn(Op, u64),
}

impl VolumeUser<'_> {
    fn write_until(&mut self, open: &mut Open, until: u64) -> Result {
        while self.written < until {
            let lengths = self.pair.batches;
            let length = lengths[self.batches as usize % lengths.len()].min(until - self.written);
            self.write_batch(open, length)?;
            self.written += length;
            self.batches += 1;
            if let Some(pattern) = self.workload.reads {
                let addrs: Vec<_> = (0..length)
                    .map(|i| pattern.address(self.written + i, self.target.blocks(), !self.seed))
                    .map(Addr)
                    .collect();
                for addr in &addrs {
                    (self.on_request)(Op::Read, addr.0);
                }
                open.oram().read_many(&addrs, &mut vec![0; addrs.len() * BLOCK_LEN])?;
            }
            if self.batches.is_multiple_of(SYNC_EVERY) {
                open.oram().sync()?;
            }
        }
        Ok(())
    }

    fn write_batch(&self, open: &mut Open, length: u64) -> Result {
        if let Open::Disk(disk) = open
            && self.workload.dummies
            && length == 1
        {
            return disk.write_dummy();
        }
        let (n, workload) = (self.target.blocks(), self.workload);
        if let Open::Disk(disk) = open
            && let Some(pattern) = workload.discards
            && length == DISCARDED
        {
            let first = pattern.address(self.written, n - length + 1, self.seed);
            return disk.discard(first..first + length);
        }
        let mut addrs = Vec::new();
        let mut data = vec![0; length as usize * BLOCK_LEN];
        for (i, block) in (self.written..).zip(data.chunks_exact_mut(BLOCK_LEN)) {
            let pattern = workload.first_pass.filter(|_| i < n).unwrap_or(workload.writes);
            let address = pattern.address(i, n, self.seed);
            workload.contents.fill(block, i, address, self.seed);
            addrs.push(Addr(address));
        }
        for addr in &addrs {
            (self.on_request)(Op::Write, addr.0);
        }
        open.oram().write_many(&addrs, &data)
    }
}

/// Keeps events; reads only if `reads`.
pub struct EventLog {
    reads: bool,
    pub events: Recorder,
    /// If present, gets the events instead of `events`.
    file: Option<Arc<dyn Witness>>,
}

impl Witness for EventLog {
    fn record(&self, event: Event) {
        if !self.reads && event.op == Op::Read {
            return;
        }
        match &self.file {
            Some(file) => file.record(event),
            None => self.events.record(event),
        }
    }
}

/// A store that halts at a given write or sync: half of that write arrives, then all calls fail
/// until `resume`. Reads are not counted, because their number may depend on hidden data.
pub struct HaltingStore {
    inner: WatchedStore<MemStore, Arc<EventLog>>,
    remaining: AtomicI64,
}

impl HaltingStore {
    fn new(inner: WatchedStore<MemStore, Arc<EventLog>>) -> Self {
        Self { inner, remaining: AtomicI64::new(i64::MAX) }
    }

    fn halt_after(&self, calls: i64) {
        self.remaining.store(calls, Ordering::Relaxed);
    }

    fn resume(&self) {
        self.remaining.store(i64::MAX, Ordering::Relaxed);
    }

    fn has_halted(&self) -> bool {
        self.remaining.load(Ordering::Relaxed) < 0
    }

    fn count(&self) -> i64 {
        self.remaining.fetch_sub(1, Ordering::Relaxed)
    }
}

const HALTED: Error = Error::Store("it was stopped");

#[deny(clippy::missing_trait_methods)]
impl Store for HaltingStore {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
    fn unit(&self) -> usize {
        self.inner.unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> Result {
        if self.has_halted() { Err(HALTED) } else { self.inner.read(extents, into) }
    }
    fn prefetch(&self, extents: &[Extent]) {
        self.inner.prefetch(extents);
    }
    fn takes_discards(&self) -> bool {
        self.inner.takes_discards()
    }
    fn discard(&self, extents: &[Extent]) {
        self.inner.discard(extents);
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> Result {
        match self.count() {
            1.. => self.inner.write(extents, from),
            0 => {
                // The first half of the extents arrives, with half of the last extent in it.
                let mut part = extents[..extents.len().div_ceil(2)].to_vec();
                if let Some(last) = part.last_mut() {
                    last.len /= 2;
                }
                self.inner.write(&part, &from[..total_len(&part)])?;
                Err(HALTED)
            }
            _ => Err(HALTED),
        }
    }
    fn sync(&self) -> Result {
        if self.count() > 0 { self.inner.sync() } else { Err(HALTED) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::target::AuditSubject;
    use super::*;
    use traceless_block::detwo::DETWO;
    use traceless_block::plain::PLAIN;

    const LENGTH: Length = Length { writes: 300, openings: 10 };

    fn trace(interruption: Interruption) -> Vec<Event> {
        let targets = AuditSubject::Block(&DETWO).targets(64, 512).unwrap();
        let pair = WorkloadPair { interruption, ..pairs(AuditSubject::Block(&DETWO).hides())[0] };
        trace_of(&targets[0], &pair, pair.a, LENGTH, false, (1, 1)).unwrap()
    }

    fn writes(events: &[Event]) -> usize {
        events.iter().filter(|e| e.op == Op::Write).count()
    }

    #[test]
    fn interruptions_show_in_the_trace() {
        let syncs = |events: &[Event]| events.iter().filter(|e| e.op == Op::Sync).count();
        let (uninterrupted, crashes) = (trace(Interruption::Nothing), trace(Interruption::Crash));
        let (closes, cuts) = (trace(Interruption::Close), trace(Interruption::CutWrite));
        // Each opening syncs the recovered state, and so does each close.
        assert!(syncs(&crashes) > syncs(&uninterrupted));
        assert!(syncs(&closes) > syncs(&crashes));
        // A crash in the middle of a write loses that write and the rest of the segment.
        assert!(writes(&cuts) < writes(&crashes), "{} {}", writes(&cuts), writes(&crashes));
    }

    #[test]
    fn a_store_halts_in_the_middle_of_a_write_until_it_is_resumed() {
        let targets = AuditSubject::Block(&PLAIN).targets(64, 0).unwrap();
        let session = Session::new(&targets[0], false, 1);
        let store = &session.store;
        let extents = [Extent::new(0, 8), Extent::new(100, 8), Extent::new(200, 8)];
        store.halt_after(1);
        store.sync().unwrap();
        assert!(store.write(&extents, &[1; 24]).is_err());
        assert!(store.has_halted());
        assert!(store.sync().is_err() && store.read(&extents, &mut [0; 24]).is_err());
        store.resume();
        let mut bytes = [9; 24];
        store.read(&extents, &mut bytes).unwrap();
        assert_eq!(bytes[..12], [1; 12]);
        assert_eq!(bytes[12..], [0; 12]);
    }
}
