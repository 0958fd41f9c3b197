//! A constant rate: each tick has as many accesses as any other, with or without requests.
//!
//! Requests become accesses of single blocks, which wait for a tick. The accesses of a tick are one
//! update of the ORAM: of blocks that requests wait for, in their order, and for the rest of a
//! spare block, which keeps its contents. Syncs follow fixed numbers of ticks, and a flush waits
//! for the next one that begins. If a scheme hides writes only, reads do not wait for ticks: they
//! are visible anyway.
//!
//! A tick that is late is not left out. If it is late by a period or more, all later ones shift by
//! that delay.

use super::{POISONED, Volume};
use crate::device::Device;
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use traceless_core::clock::Timer;
use traceless_core::oram::Hides;
use traceless_core::types::{Addr, Extent};

/// Accesses a second, at most.
pub const ACCESSES_PER_SECOND_MAX: u32 = 1_000_000;

/// Ticks a second, at most: more accesses than these are several a tick.
const TICKS_PER_SECOND_MAX: u32 = 500;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Bytes that are read together by a scheme that does not hide reads.
const READ_PIECE: usize = 64 << 10;

/// Nanoseconds between two syncs, about.
const SYNC_PERIOD: u64 = NS_PER_SECOND / 20;

/// An open volume, with accesses to its image at a constant rate while [`run`](Self::run) runs.
pub struct ConstantRateDevice {
    volume: Arc<Volume>,
    /// Accesses of a tick.
    together: usize,
    /// Nanoseconds between two ticks.
    period: u64,
    /// Ticks between two syncs.
    ticks_per_sync: u64,
    hides_reads: bool,
    waiting: Mutex<VecDeque<BlockAccess>>,
    syncs: Mutex<Syncs>,
    synced: Condvar,
    has_ended: AtomicBool,
    late: AtomicU64,
}

/// An access of a block, or of a part of it.
struct BlockAccess {
    block: u64,
    range: Range<usize>,
    /// What is written; `None` for a read.
    contents: Option<Vec<u8>>,
    /// What was read, once the tick is over.
    read: Vec<u8>,
    /// Its number among the accesses of its request.
    part: usize,
    reply: Sender<(usize, io::Result<Vec<u8>>)>,
    /// Whether a tick with several accesses, this one among them, failed: now it gets an update of
    /// its own.
    is_alone: bool,
}

/// The syncs so far.
#[derive(Default)]
struct Syncs {
    begun: u64,
    ended: u64,
    /// The number of the last sync that failed, and its error.
    failed: Option<(u64, Errno)>,
    /// Whether no further sync will come.
    is_over: bool,
}

impl ConstantRateDevice {
    /// The volume with `per_second` accesses a second, as soon as [`run`](Self::run) is called.
    pub fn new(volume: Arc<Volume>, per_second: u32) -> Result<Self> {
        if !(1..=ACCESSES_PER_SECOND_MAX).contains(&per_second) {
            return Err(Error::ConstantRate("there are 1 to 1000000 accesses a second"));
        }
        if volume.read_only {
            return Err(Error::ConstantRate("a volume for reading only has no accesses to hide"));
        }
        let hides = volume.header.scheme.hides();
        if hides == Hides::Nothing {
            return Err(Error::ConstantRate("its scheme shows every address"));
        }
        let together = per_second.div_ceil(TICKS_PER_SECOND_MAX);
        let period = NS_PER_SECOND * u64::from(together) / u64::from(per_second);
        Ok(Self {
            volume,
            together: together as usize,
            period,
            ticks_per_sync: SYNC_PERIOD.div_ceil(period),
            hides_reads: hides == Hides::ReadsAndWrites,
            waiting: Mutex::default(),
            syncs: Mutex::default(),
            synced: Condvar::new(),
            has_ended: AtomicBool::new(false),
            late: AtomicU64::new(0),
        })
    }

    /// Makes ticks until [`end`](Self::end) is called. `timer` is in nanoseconds.
    pub fn run(&self, timer: &dyn Timer) {
        // Also if a tick panics nothing may wait for the next one.
        let _end = EndOfTicks(self);
        let (mut spare, mut due) = (0, timer.now() + self.period);
        for number in 1.. {
            timer.wait_until(due);
            if self.has_ended.load(Ordering::Acquire) {
                break;
            }
            let late = timer.now().saturating_sub(due);
            self.tick(number, &mut spare);
            due += self.period;
            if late >= self.period {
                self.late.fetch_add(1, Ordering::Relaxed);
                due += late;
            }
        }
    }

    /// Ends [`run`](Self::run) with the next tick. What waits then fails.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Ticks so far that were late by a period or more: the rate was too high for the machine.
    pub fn late_ticks(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// One tick. `spare` is the block of accesses that no request needs. Answers come last: their
    /// number must not delay the sync.
    fn tick(&self, number: u64, spare: &mut u64) {
        let mut accesses = self.take();
        let outcome = match &mut accesses[..] {
            [only] if only.is_alone => {
                let outcome = self.access_alone(only);
                self.update_spare(self.together - 1, spare);
                Some(outcome)
            }
            [] => {
                self.update_spare(self.together, spare);
                None
            }
            // If it fails, one of them did, or the spare block: each finds out by itself.
            some => self.access(some, *spare).ok().map(Ok),
        };
        if number.is_multiple_of(self.ticks_per_sync) {
            self.sync();
        }
        match outcome {
            Some(Err(error)) => {
                let errno = errno_of(error);
                for access in &mut accesses {
                    access.fail(errno);
                }
            }
            Some(Ok(())) => accesses.iter_mut().for_each(BlockAccess::succeed),
            None => self.put_back(accesses),
        }
    }

    /// The accesses of the next tick, in the order of requests.
    fn take(&self) -> Vec<BlockAccess> {
        let mut waiting = self.lock();
        let count = match waiting.front() {
            Some(first) if first.is_alone => 1,
            _ => waiting.iter().take(self.together).take_while(|next| !next.is_alone).count(),
        };
        waiting.drain(..count).collect()
    }

    fn put_back(&self, accesses: Vec<BlockAccess>) {
        let mut waiting = self.lock();
        for access in accesses.into_iter().rev() {
            waiting.push_front(BlockAccess { is_alone: true, ..access });
        }
    }

    fn access(&self, accesses: &mut [BlockAccess], spare: u64) -> Result {
        self.volume.check_writable()?;
        let mut addrs: Vec<_> = accesses.iter().map(|access| Addr(access.block)).collect();
        addrs.resize(self.together, Addr(spare));
        let mut serve = |nth: usize, block: &mut [u8]| {
            if let Some(access) = accesses.get_mut(nth) {
                access.serve(block);
            }
        };
        Ok(self.volume.oram.write().expect(POISONED).update_many(&addrs, &mut serve)?)
    }

    fn access_alone(&self, access: &mut BlockAccess) -> Result {
        self.volume.check_writable()?;
        let (addr, mut oram) = (Addr(access.block), self.volume.oram.write().expect(POISONED));
        match &access.contents {
            // The whole of a block can be written although its old contents are lost.
            Some(contents) if contents.len() == self.volume.block_len => {
                Ok(oram.write_many(&[addr], contents)?)
            }
            _ => Ok(oram.update(addr, &mut |block| access.serve(block))?),
        }
    }

    /// Makes accesses that change nothing. If the spare block is damaged, the next one takes its
    /// place.
    fn update_spare(&self, count: usize, spare: &mut u64) {
        if self.volume.check_writable().is_err() {
            return;
        }
        let addrs = vec![Addr(*spare); count];
        let mut oram = self.volume.oram.write().expect(POISONED);
        if oram.update_many(&addrs, &mut |_, _| {}).is_err() {
            *spare = (*spare + 1) % oram.blocks();
        }
    }

    fn sync(&self) {
        let number = {
            let mut syncs = self.lock_syncs();
            syncs.begun += 1;
            syncs.begun
        };
        let synced = self.volume.flush_all();
        let mut syncs = self.lock_syncs();
        syncs.ended = number;
        if let Err(error) = synced {
            syncs.failed = Some((number, errno_of(error)));
        }
        self.synced.notify_all();
    }

    /// Fails what still waits, and what comes.
    fn refuse_the_rest(&self) {
        self.end();
        self.lock().clear();
        self.lock_syncs().is_over = true;
        self.synced.notify_all();
    }

    /// Adds the accesses of a request to the ones that wait. They are made beforehand: a tick must
    /// not wait for a long request.
    fn request(&self, places: &[Extent], from: Option<&[u8]>) -> BlockRequest {
        let (block_len, (reply, replies)) = (self.volume.block_len as u64, channel());
        let (mut parts, mut accesses, mut at_byte) = (Vec::new(), VecDeque::new(), 0);
        for place in places {
            let (mut at, end) = (place.at, place.end());
            while at < end {
                let within = (at % block_len) as usize;
                let len = (end - at).min(block_len - within as u64) as usize;
                accesses.push_back(BlockAccess {
                    block: at / block_len,
                    range: within..within + len,
                    contents: from.map(|from| from[at_byte..at_byte + len].to_vec()),
                    read: Vec::new(),
                    part: parts.len(),
                    reply: reply.clone(),
                    is_alone: false,
                });
                parts.push(at_byte..at_byte + len);
                (at, at_byte) = (at + len as u64, at_byte + len);
            }
        }
        let mut waiting = self.lock();
        if !self.has_ended.load(Ordering::Acquire) {
            waiting.append(&mut accesses);
        }
        BlockRequest { parts, replies }
    }

    /// Reads at once what a scheme does not hide. A tick waits for no more than a piece.
    fn read_in_pieces(&self, places: &[Extent], into: &mut [u8]) -> io::Result<()> {
        let mut rest = into;
        for place in places {
            let (part, next) = rest.split_at_mut(place.len);
            for (at, piece) in (place.at..).step_by(READ_PIECE).zip(part.chunks_mut(READ_PIECE)) {
                self.volume.read(at, piece)?;
            }
            rest = next;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<BlockAccess>> {
        self.waiting.lock().expect("nothing panics under this lock")
    }

    fn lock_syncs(&self) -> MutexGuard<'_, Syncs> {
        self.syncs.lock().expect("nothing panics under this lock")
    }
}

/// The error number that clients get for an error.
fn errno_of(error: Error) -> Errno {
    Errno::from_io_error(&error.into_io()).unwrap_or(Errno::IO)
}

/// Refuses what waits for ticks when they end.
struct EndOfTicks<'a>(&'a ConstantRateDevice);

impl Drop for EndOfTicks<'_> {
    fn drop(&mut self) {
        self.0.refuse_the_rest();
    }
}

impl BlockAccess {
    fn serve(&mut self, block: &mut [u8]) {
        let part = &mut block[self.range.clone()];
        match &self.contents {
            Some(contents) => part.copy_from_slice(contents),
            None => self.read = part.to_vec(),
        }
    }

    fn succeed(&mut self) {
        // A caller that went away needs no answer.
        let _ = self.reply.send((self.part, Ok(std::mem::take(&mut self.read))));
    }

    fn fail(&mut self, errno: Errno) {
        let _ = self.reply.send((self.part, Err(errno.into())));
    }
}

/// A request with accesses that wait for ticks.
struct BlockRequest {
    /// The bytes of each access, among the bytes of the request.
    parts: Vec<Range<usize>>,
    replies: Receiver<(usize, io::Result<Vec<u8>>)>,
}

impl BlockRequest {
    /// Waits for all accesses; `into` gets what they read. Returns the first error.
    fn wait(self, mut into: Option<&mut [u8]>) -> io::Result<()> {
        let mut outcome = Ok(());
        for _ in 0..self.parts.len() {
            // Without an answer the ticks have ended.
            let (part, read) = self.replies.recv().map_err(|_| io::Error::from(Errno::IO))?;
            match (read, &mut into) {
                (Ok(read), Some(into)) => into[self.parts[part].clone()].copy_from_slice(&read),
                (Ok(_), None) => {}
                (Err(error), _) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }
}

/// Discards are not kept, as how many blocks they mark would show in their time: they are writes of
/// zeros.
impl Device for ConstantRateDevice {
    fn len(&self) -> u64 {
        self.volume.len
    }

    fn block_len(&self) -> u32 {
        Device::block_len(&*self.volume)
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_many(&[Extent::new(at, into.len())], into)
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.write_many(&[Extent::new(at, from.len())], from)
    }

    fn read_many(&self, places: &[Extent], into: &mut [u8]) -> io::Result<()> {
        if !self.hides_reads {
            return self.read_in_pieces(places, into);
        }
        for place in places {
            self.volume.check_range(place.at, place.len as u64, Errno::INVAL)?;
        }
        self.request(places, None).wait(Some(into))
    }

    fn write_many(&self, places: &[Extent], from: &[u8]) -> io::Result<()> {
        for place in places {
            self.volume.check_range(place.at, place.len as u64, Errno::NOSPC)?;
        }
        self.request(places, Some(from)).wait(None)
    }

    /// Waits for the next sync that begins.
    fn flush(&self) -> io::Result<()> {
        let mut syncs = self.lock_syncs();
        let wanted = syncs.begun + 1;
        while syncs.ended < wanted {
            if syncs.is_over {
                return Err(Errno::IO.into());
            }
            syncs = self.synced.wait(syncs).expect("nothing panics under this lock");
        }
        match syncs.failed {
            Some((number, error)) if number >= wanted => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{make, open, options};
    use super::*;
    use crate::format::AREAS_AT;
    use crate::volume::OpenOptions;
    use std::path::Path;
    use std::thread;
    use std::time::Duration;
    use traceless_block::detwo::{DetWoGeometry, Refresh};
    use traceless_block::plain::PlainScheme;
    use traceless_block::ring::RingGeometry;
    use traceless_core::clock::Monotonic;
    use traceless_core::rng::{Rng, SeededRng};
    use traceless_core::scheme::contract::BlockScheme;
    use traceless_core::trace::{Event, Op, Recorder};

    /// Four accesses a tick.
    const PER_SECOND: u32 = 2000;
    const TICKS: u64 = 60;
    const BLOCKS: u64 = 60;

    fn schemes() -> [Arc<dyn BlockScheme>; 2] {
        let ring = RingGeometry::with_buckets(BLOCKS, 4096, 4, &[2, 4]).unwrap();
        let detwo = DetWoGeometry::new(BLOCKS, 4096, Refresh::ONE, 0).unwrap();
        [Arc::new(ring), Arc::new(detwo)]
    }

    fn device(path: &Path, options: &OpenOptions) -> ConstantRateDevice {
        ConstantRateDevice::new(Arc::new(open(path, options).unwrap()), PER_SECOND).unwrap()
    }

    /// What shows of the ticks while `user` makes requests: without what a scheme draws, and
    /// without reads that it does not hide. With `skips`, ticks are left out that no request needs.
    fn shown(
        scheme: &Arc<dyn BlockScheme>,
        skips: bool,
        user: impl Fn(&ConstantRateDevice) + Sync,
    ) -> Vec<Event> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        make(&path, &options(scheme.clone()));
        let witness = Arc::new(Recorder::default());
        let watched = OpenOptions {
            witness: Some(witness.clone()),
            event_times: false,
            ..OpenOptions::default()
        };
        let (device, mut spare) = (device(&path, &watched), 0);
        let mut trace = Vec::new();
        thread::scope(|scope| {
            let user = scope.spawn(|| user(&device));
            // The first tick has requests, if there are any.
            while device.lock().is_empty() && !user.is_finished() {
                thread::yield_now();
            }
            for number in 1.. {
                thread::sleep(Duration::from_micros(300));
                if !skips || !device.lock().is_empty() {
                    device.tick(number, &mut spare);
                }
                if number == TICKS {
                    trace = witness.take();
                }
                if number > TICKS && user.is_finished() {
                    break;
                }
            }
        });
        let places = trace.into_iter().filter(|event| event.op == Op::Sync || event.at >= AREAS_AT);
        let of_scheme = |event: Event| match event.op {
            Op::Sync => event,
            _ => Event { at: event.at - AREAS_AT, ..event },
        };
        let trace: Vec<_> = places.map(of_scheme).collect();
        match scheme.read_trace(&trace) {
            Some(split) => split.unwrap().public,
            None => trace.into_iter().filter(|event| event.op != Op::Read).collect(),
        }
    }

    fn reads_and_writes(device: &ConstantRateDevice) {
        let mut rng = SeededRng::new(1);
        for round in 0..40 {
            let at = rng.below(BLOCKS * 4096 - 9000);
            if round % 2 == 0 {
                device.write(at, &vec![round; 1 + rng.below(9000) as usize]).unwrap();
            } else {
                device.read(at, &mut vec![0; 1 + rng.below(9000) as usize]).unwrap();
            }
        }
    }

    fn flushes(device: &ConstantRateDevice) {
        for block in 0..4 {
            device.write(block * 4096, &[1; 4096]).unwrap();
            device.flush().unwrap();
        }
    }

    #[test]
    fn ticks_are_the_same_with_and_without_requests() {
        for scheme in schemes() {
            let idle = shown(&scheme, false, |_| {});
            assert!(idle.len() > TICKS as usize, "{}", idle.len());
            assert!(idle.iter().any(|event| event.op == Op::Sync));
            assert!(idle == shown(&scheme, false, reads_and_writes), "{}", scheme.name());
            assert!(idle == shown(&scheme, false, flushes), "{}", scheme.name());
            // A planted fault: ticks without a request are left out.
            let skipped = [shown(&scheme, true, |_| {}), shown(&scheme, true, reads_and_writes)];
            assert!(skipped[0] != skipped[1], "{}", scheme.name());
        }
    }

    #[test]
    fn requests_read_and_write_what_they_should() {
        for scheme in schemes() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("image");
            make(&path, &options(scheme));
            let volume = Arc::new(open(&path, &OpenOptions::default()).unwrap());
            let device = ConstantRateDevice::new(volume.clone(), 20_000).unwrap();
            let (mut rng, mut model) = (SeededRng::new(3), vec![0; (BLOCKS * 4096) as usize]);
            thread::scope(|scope| {
                scope.spawn(|| device.run(&Monotonic::start()));
                for round in 0..40 {
                    let (at, len) = (rng.below(BLOCKS * 4096 - 20_000), 1 + rng.below(20_000));
                    let range = at as usize..(at + len) as usize;
                    if round % 3 == 0 {
                        let mut read = vec![0; len as usize];
                        device.read(at, &mut read).unwrap();
                        assert!(read == model[range]);
                    } else {
                        model[range.clone()].fill(round);
                        device.write(at, &model[range]).unwrap();
                    }
                }
                assert!(device.write(BLOCKS * 4096 - 1, &[0; 2]).is_err());
                device.discard(4096, 10_000).unwrap();
                model[4096..14_096].fill(0);
                device.flush().unwrap();
                device.end();
            });
            assert!(device.read(0, &mut [0; 8192]).is_err() || !device.hides_reads);
            assert!(device.write(0, &[0]).is_err() && device.flush().is_err());
            let mut read = vec![1; model.len()];
            volume.read(0, &mut read).unwrap();
            assert!(read == model);
            volume.close().unwrap();
        }
    }

    /// A damaged block fails its own requests until it is written, also if it is the spare one.
    #[test]
    fn a_damaged_block_fails_alone() {
        let [_, detwo] = schemes();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        make(&path, &options(detwo));
        let witness = Arc::new(Recorder::default());
        let watched = OpenOptions { witness: Some(witness.clone()), ..OpenOptions::default() };
        let volume = Arc::new(open(&path, &watched).unwrap());
        volume.write(0, &vec![7; 3 * 4096]).unwrap();
        witness.take();
        volume.read(0, &mut [0; 4096]).unwrap();
        let place = witness.take().into_iter().rfind(|event| event.op == Op::Read).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_at(&file, &[0xff; 16], place.at + 100).unwrap();
        let device = ConstantRateDevice::new(volume, PER_SECOND).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| device.run(&Monotonic::start()));
            // Part of a block needs its old contents.
            let parts = [Extent::new(0, 10), Extent::new(4096, 10)];
            assert!(device.write_many(&parts, &[8; 20]).is_err());
            device.write(4096, &[9; 10]).unwrap();
            device.write(0, &[9; 4096]).unwrap();
            device.write(5, &[9; 10]).unwrap();
            device.end();
        });
    }

    #[test]
    fn what_cannot_have_a_rate_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, detwo] = ["plain", "detwo"].map(|name| folder.path().join(name));
        make(&plain, &options(Arc::new(PlainScheme { blocks: 9, block_len: 4096 })));
        make(&detwo, &options(schemes()[1].clone()));
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        for (path, options, rate) in [
            (&plain, OpenOptions::default(), 5),
            (&detwo, read_only, 5),
            (&detwo, OpenOptions::default(), 0),
            (&detwo, OpenOptions::default(), ACCESSES_PER_SECOND_MAX + 1),
        ] {
            let volume = Arc::new(open(path, &options).unwrap());
            let refused = ConstantRateDevice::new(volume, rate).err();
            assert!(matches!(refused, Some(Error::ConstantRate(_))), "{refused:?}");
        }
    }
}
