//! Threads of a kernel: the arrays that they share, and the accesses of each thread behind a first
//! cache of its own.

use crate::cache;
use crate::error::Result;
use crate::workload::{Filter, Op, Record, Workload};
use core::cell::{Cell, RefCell};
use core::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The first cache of a core of the unified ORAM paper.
const L1: cache::Config = cache::Config { bytes: 32 << 10, ways: 4 };

const PAGE_LEN: u64 = 4096;

/// The address that waiting threads read until all have come to a barrier; no array lies there.
const BARRIER_ADDR: u64 = 0;

/// Instructions between two reads of it, and further instructions that a barrier takes.
const BETWEEN_LOOKS: u64 = 1000;
const BARRIER_WORK: u64 = 20;

/// The work of every thread of a kernel.
pub trait ThreadKernel: Send + Sync {
    /// Does the part of `memory`'s thread. Between two barriers, no thread may read or write a
    /// value that another thread writes.
    fn run(&self, memory: &mut ThreadMemory);
}

/// The workloads of a kernel's threads. The computation starts with the first call of `next`.
pub fn launch(
    threads: usize,
    build: impl FnOnce(&mut Space) -> Arc<dyn ThreadKernel> + Send + 'static,
) -> Result<Vec<Box<dyn Workload>>> {
    let team = Arc::new(Team::default());
    let passed: Rc<[Cell<u64>]> = (0..threads).map(|_| Cell::new(0)).collect();
    let (mut memories, mut receivers) = (vec![], vec![]);
    for thread in 0..threads {
        let (out, receiver) = sync_channel(CHUNKS);
        receivers.push(receiver);
        memories.push(ThreadMemory {
            filter: Filter::new(&L1)?,
            thread,
            threads,
            out,
            chunk: vec![],
            unheard: false,
            team: team.clone(),
        });
    }
    let start: Start = Box::new(move || {
        std::thread::spawn(move || {
            let kernel = build(&mut Space::default());
            for mut memory in memories {
                let kernel = kernel.clone();
                std::thread::spawn(move || {
                    kernel.run(&mut memory);
                    memory.hand_over(false);
                });
            }
        });
    });
    let start = Rc::new(RefCell::new(Some(start)));
    let running = |(thread, receiver)| {
        let (start, passed) = (start.clone(), passed.clone());
        let running = Running {
            start,
            receiver,
            records: vec![].into_iter(),
            at_barrier: false,
            waits: false,
            thread,
            passed,
        };
        Box::new(running) as Box<dyn Workload>
    };
    Ok(receivers.into_iter().enumerate().map(running).collect())
}

type Start = Box<dyn FnOnce()>;

/// Records that a thread hands over at once, and how many chunks of them it may be ahead of the
/// simulation.
const CHUNK: usize = 1 << 14;
const CHUNKS: usize = 4;

struct Chunk {
    records: Vec<Record>,
    /// Whether the thread waits at a barrier after these records.
    at_barrier: bool,
}

/// The receiving end of a kernel's thread. The thread waits if the simulation falls behind.
struct Running {
    start: Rc<RefCell<Option<Start>>>,
    receiver: Receiver<Chunk>,
    records: std::vec::IntoIter<Record>,
    /// Whether a barrier comes after these records; whether the thread waits at a barrier.
    at_barrier: bool,
    waits: bool,
    thread: usize,
    /// For each thread, the number of barriers that it has come to; after its end, `u64::MAX`.
    passed: Rc<[Cell<u64>]>,
}

impl Workload for Running {
    fn next(&mut self) -> Result<Option<Record>> {
        if let Some(start) = self.start.take() {
            start();
        }
        loop {
            if let Some(record) = Iterator::next(&mut self.records) {
                return Ok(Some(record));
            }
            let own = &self.passed[self.thread];
            if self.at_barrier {
                own.set(own.get() + 1);
                (self.at_barrier, self.waits) = (false, true);
            }
            if self.waits && self.passed.iter().any(|passed| passed.get() < own.get()) {
                let (before, op) = (BETWEEN_LOOKS, Op::Read);
                return Ok(Some(Record { before, op, addr: BARRIER_ADDR }));
            }
            self.waits = false;
            let Ok(Chunk { records, at_barrier }) = self.receiver.recv() else {
                own.set(u64::MAX);
                return Ok(None);
            };
            self.records = records.into_iter();
            self.at_barrier = at_barrier;
        }
    }
}

/// The barrier of the real threads.
#[derive(Default)]
struct Team {
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

#[derive(Default)]
struct Meeting {
    /// Threads that wait, and barriers that all threads have passed.
    waiting: usize,
    passed: u64,
    /// Whether a thread has ended, so that no further barrier will be passed.
    is_over: bool,
}

impl Team {
    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all `threads` threads. False if one of them has ended instead.
    fn wait(&self, threads: usize) -> bool {
        let mut meeting = self.meeting();
        let passed = meeting.passed;
        meeting.waiting += 1;
        if meeting.waiting == threads {
            meeting.waiting = 0;
            meeting.passed += 1;
            self.changed.notify_all();
        }
        while meeting.passed == passed && !meeting.is_over {
            meeting = self.changed.wait(meeting).unwrap_or_else(PoisonError::into_inner);
        }
        meeting.passed > passed
    }

    fn end(&self) {
        self.meeting().is_over = true;
        self.changed.notify_all();
    }
}

/// The memory of a kernel's thread: records each load and store.
pub struct ThreadMemory {
    filter: Filter,
    thread: usize,
    threads: usize,
    out: SyncSender<Chunk>,
    chunk: Vec<Record>,
    unheard: bool,
    team: Arc<Team>,
}

impl Drop for ThreadMemory {
    fn drop(&mut self) {
        self.team.end();
    }
}

impl ThreadMemory {
    /// Which thread this is.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Threads in all.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The part of `things` things that a thread works on.
    pub fn part(&self, things: usize, thread: usize) -> Range<usize> {
        things * thread / self.threads..things * (thread + 1) / self.threads
    }

    /// Counts instructions that touch no memory.
    #[inline]
    pub fn work(&mut self, instructions: u64) {
        self.filter.work(instructions);
    }

    /// Waits for the other threads. False if the receiver has ended: then the kernel may end, too.
    #[must_use]
    pub fn barrier(&mut self) -> bool {
        self.access(Op::Write, BARRIER_ADDR, size_of::<u64>() as u64);
        self.work(BARRIER_WORK);
        self.hand_over(true);
        !self.unheard && self.team.wait(self.threads)
    }

    /// Whether the receiver has ended.
    pub fn is_unheard(&self) -> bool {
        self.unheard
    }

    /// Counts an instruction for each word, and records the access.
    #[inline]
    fn access(&mut self, op: Op, addr: u64, len: u64) {
        self.filter.work(len.div_ceil(size_of::<u64>() as u64));
        let chunk = &mut self.chunk;
        self.filter.access(op, addr, addr + len - 1, |record| chunk.push(record));
        if self.chunk.len() >= CHUNK {
            self.hand_over(false);
        }
    }

    fn hand_over(&mut self, at_barrier: bool) {
        let records = core::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK + 2));
        self.unheard |= self.out.send(Chunk { records, at_barrier }).is_err();
    }
}

/// The address space of a program.
pub struct Space {
    /// The address at which the next array begins.
    free: u64,
}

impl Default for Space {
    fn default() -> Self {
        Self { free: BARRIER_ADDR + PAGE_LEN }
    }
}

impl Space {
    /// Places an array.
    pub fn array<T: Value>(&mut self, values: impl IntoIterator<Item = T>) -> Array<T> {
        let first = self.free;
        let cells: Box<[T::Cell]> = values.into_iter().map(T::cell).collect();
        self.free += ((cells.len() * size_of::<T>()) as u64).next_multiple_of(PAGE_LEN);
        Array { first, cells }
    }
}

/// An array that records each access to its elements.
pub struct Array<T: Value> {
    first: u64,
    cells: Box<[T::Cell]>,
}

impl<T: Value> Array<T> {
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    #[inline]
    pub fn load(&self, memory: &mut ThreadMemory, nth: usize) -> T {
        memory.access(Op::Read, self.addr(nth), size_of::<T>() as u64);
        self.peek(nth)
    }

    #[inline]
    pub fn store(&self, memory: &mut ThreadMemory, nth: usize, value: T) {
        memory.access(Op::Write, self.addr(nth), size_of::<T>() as u64);
        T::set(&self.cells[nth], value);
    }

    /// A value, without recording the access.
    pub fn peek(&self, nth: usize) -> T {
        T::get(&self.cells[nth])
    }

    fn addr(&self, nth: usize) -> u64 {
        self.first + (nth * size_of::<T>()) as u64
    }
}

/// A type of array elements. Threads that touch the same value have a barrier between them.
pub trait Value: Copy {
    /// A place for a value that threads share.
    type Cell: Send + Sync;

    fn cell(self) -> Self::Cell;
    fn get(cell: &Self::Cell) -> Self;
    fn set(cell: &Self::Cell, value: Self);
}

impl Value for u32 {
    type Cell = AtomicU32;

    fn cell(self) -> AtomicU32 {
        AtomicU32::new(self)
    }

    fn get(cell: &AtomicU32) -> Self {
        cell.load(Relaxed)
    }

    fn set(cell: &AtomicU32, value: Self) {
        cell.store(value, Relaxed);
    }
}

impl Value for f64 {
    type Cell = AtomicU64;

    fn cell(self) -> AtomicU64 {
        AtomicU64::new(self.to_bits())
    }

    fn get(cell: &AtomicU64) -> Self {
        Self::from_bits(cell.load(Relaxed))
    }

    fn set(cell: &AtomicU64, value: Self) {
        cell.store(value.to_bits(), Relaxed);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Runs a kernel and drops its records.
    pub fn alone<T: ThreadKernel + 'static>(
        threads: usize,
        build: impl FnOnce(&mut Space) -> T,
    ) -> Arc<T> {
        let kernel = Arc::new(build(&mut Space::default()));
        let shared = kernel.clone();
        end(&mut launch(threads, move |_| shared).unwrap());
        kernel
    }

    /// Takes records from all threads in turn until all have ended.
    fn end(workloads: &mut [Box<dyn Workload>]) {
        let mut all_end = false;
        while !all_end {
            all_end = true;
            for workload in &mut *workloads {
                all_end &= workload.next().unwrap().is_none();
            }
        }
    }

    /// Each thread adds 1 to the value that the other thread wrote before the last barrier.
    struct Turns {
        counts: Array<u32>,
    }

    impl ThreadKernel for Turns {
        fn run(&self, memory: &mut ThreadMemory) {
            let (own, other) = (memory.thread(), 1 - memory.thread());
            for turn in 0..100 {
                // One of the threads has much more to do.
                memory.work(if own == 0 { 1 } else { 1 << 20 });
                let seen = self.counts.load(memory, 2 * turn + other);
                self.counts.store(memory, 2 * (turn + 1) + own, seen + 1);
                if !memory.barrier() {
                    return;
                }
            }
        }
    }

    #[test]
    fn threads_wait_for_each_other() {
        let turns = alone(2, |space| Turns { counts: space.array(vec![0; 202]) });
        assert!((0..202).all(|nth| turns.counts.peek(nth) == nth as u32 / 2));
    }

    #[test]
    fn a_waiting_thread_reads_the_flag_again_and_again() {
        let build = |space: &mut Space| Turns { counts: space.array(vec![0; 202]) };
        let mut workloads = launch(2, move |space| Arc::new(build(space))).unwrap();
        // Only the first thread's records are taken, so it never gets past the first barrier.
        let records: Vec<_> = (0..50).map(|_| workloads[0].next().unwrap().unwrap()).collect();
        let look = Record { before: BETWEEN_LOOKS, op: Op::Read, addr: BARRIER_ADDR };
        assert_eq!(records.iter().filter(|record| **record == look).count(), 48);
        // When the other thread's records are taken, too, both come to their ends.
        end(&mut workloads);
    }
}
