//! Kernels of scientific programs, of our own: what they compute is computed, and every element that
//! they load or store goes through a first cache.
//!
//! They solve the problems of the SPLASH-2 kernels of the same names with the same algorithms, on
//! one core, and hold no code of theirs.

mod fft;
mod lu;
mod ocean;
mod radix;

use super::{Filter, Op, Record, Workload};
use crate::cache;
use crate::error::{Error, Result};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// A kernel, and the size of its problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// A transform of 2^m complex numbers in six steps, as a square matrix: m.
    Fft {
        /// Even.
        m: u32,
    },
    /// Sorting of so many keys of 19 bits, 12 bits at a time.
    Radix {
        /// Keys.
        keys: usize,
    },
    /// A square matrix in two triangles, without pivots, in blocks of 16.
    Lu {
        /// Rows.
        n: usize,
        /// Whether the elements of a block lie together.
        contiguous: bool,
    },
    /// Currents on a square grid: stencils, and a multigrid solver.
    Ocean {
        /// Points of a row, the border included; two more than a power of two.
        n: usize,
    },
}

/// The inputs of the unified ORAM paper's Table 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Set {
    /// The smaller.
    A,
    /// The larger.
    B,
}

/// The first cache of that paper's cores.
const L1: cache::Config = cache::Config { bytes: 32 << 10, ways: 4 };

impl Kernel {
    /// The kernel of this name with the input of a set.
    pub fn named(name: &str, set: Set) -> Option<Self> {
        let of = |a: usize, b: usize| if set == Set::A { a } else { b };
        Some(match name {
            "fft" => Self::Fft { m: of(20, 24) as u32 },
            "radix" => Self::Radix { keys: of(4 << 20, 64 << 20) },
            "lu_c" => Self::Lu { n: of(1024, 2048), contiguous: true },
            "lu_nc" => Self::Lu { n: of(768, 1024), contiguous: false },
            "ocean" => Self::Ocean { n: of(258, 514) },
            _ => return None,
        })
    }

    /// Refuses sizes that the algorithm does not take.
    pub fn check(&self) -> Result {
        let fits = match *self {
            Self::Fft { m } => m.is_multiple_of(2) && (2..=26).contains(&m),
            Self::Radix { keys } => (1..=1 << 28).contains(&keys),
            Self::Lu { n, .. } => n.is_multiple_of(lu::BLOCK) && (lu::BLOCK..=1 << 13).contains(&n),
            Self::Ocean { n } => (6..=(1 << 13) + 2).contains(&n) && (n - 2).is_power_of_two(),
        };
        if fits {
            Ok(())
        } else {
            Err(Error::Synthetic("its kernel takes no problem of that size"))
        }
    }

    /// What it asks of memory, behind the first cache of the unified ORAM paper.
    pub fn workload(self, seed: u64) -> Result<Box<dyn Workload>> {
        self.check()?;
        let filter = Filter::new(&L1)?;
        let (sender, receiver) = sync_channel(CHUNKS);
        std::thread::spawn(move || {
            let mut memory = Memory::new(filter, sender);
            self.run(&mut memory, seed);
            memory.hand_over();
        });
        Ok(Box::new(Running { receiver, chunk: vec![].into_iter() }))
    }

    fn run(self, memory: &mut Memory, seed: u64) {
        match self {
            Self::Fft { m } => {
                fft::run(memory, m, seed);
            }
            Self::Radix { keys } => {
                radix::run(memory, keys, seed);
            }
            Self::Lu { n, contiguous } => {
                lu::run(memory, n, contiguous, seed);
            }
            Self::Ocean { n } => {
                ocean::run(memory, n, seed);
            }
        }
    }
}

/// Records that go from a kernel to who simulates it at once, and how often it may be ahead.
const CHUNK: usize = 1 << 14;
const CHUNKS: usize = 4;

/// A kernel on a thread of its own, which waits where nobody asks for more.
struct Running {
    receiver: Receiver<Vec<Record>>,
    chunk: std::vec::IntoIter<Record>,
}

impl Workload for Running {
    fn next(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(record) = Iterator::next(&mut self.chunk) {
                return Ok(Some(record));
            }
            match self.receiver.recv() {
                Ok(chunk) => self.chunk = chunk.into_iter(),
                Err(_) => return Ok(None),
            }
        }
    }
}

/// What a kernel loads from and stores to.
struct Memory {
    filter: Filter,
    out: SyncSender<Vec<Record>>,
    chunk: Vec<Record>,
    /// Where the next array begins.
    free: u64,
    unheard: bool,
}

const PAGE_LEN: u64 = 4096;

impl Memory {
    fn new(filter: Filter, out: SyncSender<Vec<Record>>) -> Self {
        Self { filter, out, chunk: vec![], free: 0, unheard: false }
    }

    /// Places an array.
    fn array<T: Copy>(&mut self, values: Vec<T>) -> Array<T> {
        let first = self.free;
        let len = (values.len() * size_of::<T>()) as u64;
        self.free += len.next_multiple_of(PAGE_LEN);
        Array { first, values }
    }

    /// So many instructions that touch no memory.
    #[inline]
    fn work(&mut self, instructions: u64) {
        self.filter.work(instructions);
    }

    /// Whether nobody listens any more: then a kernel may as well end.
    fn is_unheard(&self) -> bool {
        self.unheard
    }

    #[inline]
    fn access(&mut self, op: Op, addr: u64, len: u64) {
        self.filter.instruction();
        let chunk = &mut self.chunk;
        self.filter.access(op, addr, addr + len - 1, |record| chunk.push(record));
        if self.chunk.len() >= CHUNK {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let chunk = core::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK + 2));
        self.unheard |= self.out.send(chunk).is_err();
    }
}

/// An array that tells where it is touched.
struct Array<T> {
    first: u64,
    values: Vec<T>,
}

impl<T: Copy> Array<T> {
    #[inline]
    fn load(&self, memory: &mut Memory, nth: usize) -> T {
        memory.access(Op::Read, self.addr(nth), size_of::<T>() as u64);
        self.values[nth]
    }

    #[inline]
    fn store(&mut self, memory: &mut Memory, nth: usize, value: T) {
        memory.access(Op::Write, self.addr(nth), size_of::<T>() as u64);
        self.values[nth] = value;
    }

    fn addr(&self, nth: usize) -> u64 {
        self.first + (nth * size_of::<T>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a kernel where nobody looks at what it asks for.
    pub fn alone<T>(run: impl FnOnce(&mut Memory) -> T) -> T {
        let (sender, receiver) = sync_channel(CHUNKS);
        std::thread::spawn(move || receiver.into_iter().for_each(drop));
        run(&mut Memory::new(Filter::new(&L1).unwrap(), sender))
    }

    fn records(kernel: Kernel, count: usize) -> Vec<Record> {
        let mut workload = kernel.workload(1).unwrap();
        std::iter::from_fn(|| workload.next().unwrap()).take(count).collect()
    }

    const SMALL: [Kernel; 5] = [
        Kernel::Fft { m: 12 },
        Kernel::Radix { keys: 20_000 },
        Kernel::Lu { n: 128, contiguous: true },
        Kernel::Lu { n: 128, contiguous: false },
        Kernel::Ocean { n: 66 },
    ];

    #[test]
    fn the_same_seed_asks_for_the_same() {
        for kernel in SMALL {
            let all = records(kernel, usize::MAX);
            assert!(all.len() > 1000, "{kernel:?}");
            assert_eq!(all, records(kernel, usize::MAX), "{kernel:?}");
            assert_eq!(all[..500], records(kernel, 500), "{kernel:?}");
        }
    }

    #[test]
    fn sets_are_those_of_the_paper() {
        for name in ["fft", "radix", "lu_c", "lu_nc", "ocean"] {
            let kernel = Kernel::named(name, Set::A).unwrap();
            assert_eq!(records(kernel, 1000).len(), 1000, "{name}");
            Kernel::named(name, Set::B).unwrap().check().unwrap();
        }
        assert_eq!(Kernel::named("barnes", Set::A), None);
        for wrong in [
            Kernel::Fft { m: 21 },
            Kernel::Radix { keys: 0 },
            Kernel::Lu { n: 100, contiguous: true },
            Kernel::Ocean { n: 256 },
        ] {
            assert!(wrong.workload(1).is_err(), "{wrong:?}");
        }
    }
}
