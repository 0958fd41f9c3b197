//! Rounds of accesses, and their results.

use crate::args::{Seal, TreeArgs, TreeWorkload};
use crate::bench::controls::{Controls, OperationTimes};
use crate::report::{cpu_seconds, failed, peak_memory, summary};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use traceless::clock::{Clock, Monotonic};
use traceless::controller::Controller;
use traceless::rng::{Rng, SeededRng};
use traceless::seal::{Aead, Aegis, HashSeal, MaskSeal, NoSeal, Sealer, Secret};
use traceless::store::{MemStore, Store};
use traceless::trace::{Event, Witness};
use traceless::types::{Addr, Extent};
use traceless_cli::failure::Failure;

#[derive(Serialize, Deserialize)]
pub struct Numbers {
    pub accesses_per_cpu_second: f64,
    pub accesses_per_second: f64,
    pub cpu_us_per_access: f64,
    /// Largest less smallest round, as a share of the median; none for a single round.
    pub spread: Option<f64>,
    pub paths_per_access: f64,
    /// Paths between two accesses, which delay no request.
    pub idle_paths_per_access: f64,
    /// Bytes moved between store and trusted memory.
    pub bytes_per_access: f64,
    pub init_seconds: f64,
    /// Without the memory of the controls.
    pub peak_memory_bytes: u64,
    pub memory_over_payload: f64,
    /// Times of the controls, with `--controls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readings: Option<Readings>,
}

/// The times of the controls in each part of a measurement.
#[derive(Serialize, Deserialize)]
pub struct Readings {
    pub init: OperationTimes,
    /// For each round, microseconds of processor time of an access, and the controls.
    pub rounds: Vec<(f64, OperationTimes)>,
}

/// An access to one block.
#[derive(Clone, Copy)]
pub struct Access {
    pub addr: Addr,
    /// Whether the access changes the block.
    pub is_write: bool,
}

/// A scheme that is measured.
pub trait TreeSubject {
    /// Accesses a block, and returns the number of paths.
    fn access(
        &mut self,
        access: Access,
        visit: &mut dyn FnMut(&mut [u8]),
    ) -> traceless::Result<u64>;

    /// Uses the time between two accesses, and returns the number of paths.
    fn idle(&mut self) -> traceless::Result<u64> {
        Ok(0)
    }

    /// Bytes moved so far between store and trusted memory.
    fn bytes_moved(&self) -> u64;
}

/// A controller with one path per step.
pub struct Stepping<C, M> {
    controller: C,
    steps: u64,
    /// Bytes moved in a given number of steps.
    moved: M,
}

impl<C: Controller, M: Fn(u64) -> u64> Stepping<C, M> {
    pub fn new(controller: C, moved: M) -> Self {
        Self { controller, steps: 0, moved }
    }
}

impl<C: Controller, M: Fn(u64) -> u64> TreeSubject for Stepping<C, M> {
    fn access(
        &mut self,
        access: Access,
        visit: &mut dyn FnMut(&mut [u8]),
    ) -> traceless::Result<u64> {
        self.controller.submit(0, access.addr)?;
        let mut steps = 1;
        while self.controller.step(&mut |_, body| visit(body))?.finished.is_none() {
            steps += 1;
        }
        self.steps += steps;
        Ok(steps)
    }

    fn bytes_moved(&self) -> u64 {
        (self.moved)(self.steps)
    }
}

/// Accesses before the measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WarmUp {
    /// Writes each block.
    EveryBlock,
    /// Writes this many blocks, at most.
    Blocks(u64),
    /// No accesses: the scheme is measured in its initial state.
    None,
}

/// Makes a scheme and measures it.
pub fn measure(
    args: &TreeArgs,
    warm_up: WarmUp,
    make: impl FnOnce() -> Result<Box<dyn TreeSubject>, Failure>,
) -> Result<Numbers, Failure> {
    let mut controls = match args.controls {
        Some(len) => Controls::of_memory().and_passes(sealer(args.seal()), len),
        None => Controls::default(),
    };
    let ((mut subject, init_seconds), init) = controls.beside(|| {
        let start = cpu_seconds();
        Ok((make()?, cpu_seconds() - start))
    })?;
    let first = match warm_up {
        WarmUp::EveryBlock => args.blocks,
        WarmUp::Blocks(blocks) => blocks.min(args.blocks),
        WarmUp::None => 0,
    };
    for addr in 0..first {
        let access = Access { addr: Addr(addr), is_write: true };
        subject.access(access, &mut |block| block.fill(1)).map_err(failed)?;
    }
    let before = subject.bytes_moved();
    let mut driver =
        AccessDriver { args, rng: SeededRng::new(2), next: 0, paths: 0, idle_paths: 0 };
    let (mut rounds, mut wall_us) = (vec![], vec![]);
    for _ in 0..args.rounds.max(1) {
        let ((cpu, wall), reading) = controls.beside(|| driver.round(&mut *subject))?;
        rounds.push((cpu, reading));
        wall_us.push(wall);
    }
    let all = (rounds.len() as u64 * args.accesses.max(1)) as f64;
    let (cpu_us, spread) = summary(rounds.iter().map(|(cpu, _)| *cpu).collect());
    let (wall_us, _) = summary(wall_us);
    let peak = peak_memory("self")?.saturating_sub(controls.bytes());
    Ok(Numbers {
        accesses_per_cpu_second: 1e6 / cpu_us,
        accesses_per_second: 1e6 / wall_us,
        cpu_us_per_access: cpu_us,
        spread,
        paths_per_access: driver.paths as f64 / all,
        idle_paths_per_access: driver.idle_paths as f64 / all,
        bytes_per_access: (subject.bytes_moved() - before) as f64 / all,
        init_seconds,
        peak_memory_bytes: peak,
        memory_over_payload: peak as f64 / (args.blocks * args.block_len.max(1) as u64) as f64,
        readings: args.controls.map(|_| Readings { init, rounds }),
    })
}

/// The sealer for the controls.
fn sealer(seal: Seal) -> fn(&Secret) -> Box<dyn Sealer> {
    match seal {
        Seal::None => |_| Box::new(NoSeal),
        Seal::Aead => |key| Box::new(Aead::new(key)),
        Seal::Aegis => |key| Box::new(Aegis::new(key)),
        Seal::Merkle => |key| Box::new(HashSeal::new(key)),
        Seal::Pmmac => |key| Box::new(MaskSeal::new(key)),
    }
}

/// Makes the accesses of all rounds.
struct AccessDriver<'a> {
    args: &'a TreeArgs,
    rng: SeededRng,
    /// The next block in order.
    next: u64,
    paths: u64,
    idle_paths: u64,
}

impl AccessDriver<'_> {
    /// Makes one round of accesses. Returns microseconds per access, of processor time and of wall
    /// time.
    fn round(&mut self, subject: &mut dyn TreeSubject) -> Result<(f64, f64), Failure> {
        let (args, mut sum) = (self.args, 0);
        let accesses = args.accesses.max(1);
        let (clock, cpu) = (Monotonic::start(), cpu_seconds());
        for nth in 0..accesses {
            let addr = match args.workload {
                TreeWorkload::Random => self.rng.below(args.blocks),
                TreeWorkload::Sequential => self.next % args.blocks,
            };
            self.next += 1;
            // Reads and writes alternate.
            let is_write = nth % 2 == 1;
            let mut visit = |block: &mut [u8]| {
                if is_write {
                    block.fill(nth as u8);
                } else {
                    sum += u64::from(block.first().copied().unwrap_or(0));
                }
            };
            let access = Access { addr: Addr(addr), is_write };
            self.paths += subject.access(access, &mut visit).map_err(failed)?;
            self.idle_paths += subject.idle().map_err(failed)?;
        }
        std::hint::black_box(sum);
        let cpu_us = (cpu_seconds() - cpu) * 1e6 / accesses as f64;
        Ok((cpu_us, clock.now() as f64 / 1e3 / accesses as f64))
    }
}

/// Bytes moved, counted by one thread.
#[derive(Clone, Default)]
pub struct MovedBytes(Arc<AtomicU64>);

impl MovedBytes {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A load and a store instead of an atomic addition, which would cost too much in a measured
    /// loop.
    fn add(&self, bytes: usize) {
        self.0.store(self.bytes() + bytes as u64, Ordering::Relaxed);
    }
}

/// Counts the bytes of simulated accesses.
impl Witness for MovedBytes {
    fn record(&self, event: Event) {
        self.add(event.len as usize);
    }
}

/// A store in memory that counts the bytes it moves.
pub struct CountingStore {
    store: MemStore,
    moved: MovedBytes,
}

impl CountingStore {
    pub fn new(len: u64, moved: &MovedBytes) -> Arc<Self> {
        Arc::new(Self { store: MemStore::new(len), moved: moved.clone() })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for CountingStore {
    fn len(&self) -> u64 {
        self.store.len()
    }
    fn is_empty(&self) -> bool {
        self.store.is_empty()
    }
    fn unit(&self) -> usize {
        self.store.unit()
    }
    fn read(&self, extents: &[Extent], into: &mut [u8]) -> traceless::Result {
        self.moved.add(into.len());
        self.store.read(extents, into)
    }
    fn prefetch(&self, extents: &[Extent]) {
        self.store.prefetch(extents);
    }
    fn takes_discards(&self) -> bool {
        self.store.takes_discards()
    }
    fn discard(&self, extents: &[Extent]) {
        self.store.discard(extents);
    }
    fn write(&self, extents: &[Extent], from: &[u8]) -> traceless::Result {
        self.moved.add(from.len());
        self.store.write(extents, from)
    }
    fn sync(&self) -> traceless::Result {
        self.store.sync()
    }
}
