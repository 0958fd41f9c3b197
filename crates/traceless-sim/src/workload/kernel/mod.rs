//! This project's own kernels of scientific programs. They really compute their results, and every
//! element that they load or store goes through a first cache.
//!
//! They solve the problems of the SPLASH-2 kernels of the same names with the same algorithms, but
//! contain no SPLASH-2 code. The workload is what the threads do, without the preparation that one
//! thread does for all of them. The kernels do not touch all arrays first either: the results of
//! these loops of the originals are not used, and compilers leave the loops out. First caches are
//! not coherent with each other.
//!
//! Two threads sort 2000 keys, each on a core of its own:
//!
//! ```
//! use traceless_sim::machine::Machine;
//! use traceless_sim::workload::Program;
//! use traceless_sim::workload::kernel::Kernel;
//!
//! # fn main() -> traceless_sim::Result {
//! let radix = Kernel::sized("radix", 2000).expect("a kernel has the name");
//! let sort = Program { threads: radix.workloads(2, 1)? };
//! let outcome = Machine::FOUR_CHANNELS.run_programs(0, &mut [sort])?;
//! // Each line of keys misses the first cache, and some other lines do.
//! assert!(outcome.run.records > 2000 * 4 / 64);
//! # Ok(())
//! # }
//! ```

mod fft;
mod lu;
mod ocean;
mod radix;
mod threads;

use super::Workload;
use crate::error::{Error, Result};
use fft::Fft;
use lu::Lu;
use ocean::Ocean;
use radix::Radix;
use std::sync::Arc;
use threads::{Space, ThreadKernel, launch};

/// A kernel, and the size of its problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// A transform of 2^m complex numbers in six steps, as a square matrix: m.
    Fft {
        /// Even.
        m: u32,
    },
    /// Sorting of `keys` keys of 19 bits, 12 bits at a time.
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
        /// Whether the points of a thread lie together.
        contiguous: bool,
    },
}

/// The inputs of the unified ORAM paper's Table 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputSet {
    /// The smaller set.
    A,
    /// The larger set.
    B,
}

impl Kernel {
    /// The kernel of this name with the input of a set.
    pub fn named(name: &str, set: InputSet) -> Option<Self> {
        let of = |a, b| if set == InputSet::A { a } else { b };
        let size = match name {
            "fft" => of(1 << 20, 1 << 24),
            "radix" => of(4 << 20, 64 << 20),
            "lu_c" => of(1024, 2048),
            "lu_nc" => of(768, 1024),
            _ => of(258, 514),
        };
        Self::sized(name, size)
    }

    /// The kernel of this name with `size` numbers, keys, or rows of its matrix or grid.
    pub fn sized(name: &str, size: usize) -> Option<Self> {
        Some(match name {
            // An odd power of two makes no square matrix, and m = 1 is refused.
            "fft" => Self::Fft { m: if size.is_power_of_two() { size.ilog2() } else { 1 } },
            "radix" => Self::Radix { keys: size },
            "lu_c" => Self::Lu { n: size, contiguous: true },
            "lu_nc" => Self::Lu { n: size, contiguous: false },
            "ocean_c" => Self::Ocean { n: size, contiguous: true },
            "ocean_nc" => Self::Ocean { n: size, contiguous: false },
            _ => return None,
        })
    }

    /// Refuses sizes that the algorithm does not take, and threads that it cannot be split among.
    pub fn check(&self, threads: usize) -> Result {
        let fits = match *self {
            Self::Fft { m } => m.is_multiple_of(2) && (2..=26).contains(&m),
            Self::Radix { keys } => (1..=1 << 28).contains(&keys),
            Self::Lu { n, .. } => n.is_multiple_of(lu::BLOCK) && (lu::BLOCK..=1 << 13).contains(&n),
            Self::Ocean { n, .. } => {
                (6..=(1 << 13) + 2).contains(&n)
                    && (n - 2).is_power_of_two()
                    && ocean::takes(n, threads)
            }
        };
        if fits && (1..=THREADS_MAX).contains(&threads) {
            Ok(())
        } else {
            Err(Error::Synthetic(
                "its kernel takes no problem of that size, or not so many threads",
            ))
        }
    }

    /// The workload of each thread, behind a first cache of its own as in the unified ORAM paper. A
    /// thread that waits for other threads reads one line again and again.
    pub fn workloads(self, threads: usize, seed: u64) -> Result<Vec<Box<dyn Workload>>> {
        self.check(threads)?;
        launch(threads, move |space| self.build(space, threads, seed))
    }

    fn build(self, space: &mut Space, threads: usize, seed: u64) -> Arc<dyn ThreadKernel> {
        match self {
            Self::Fft { m } => Arc::new(Fft::new(space, m, seed)),
            Self::Radix { keys } => Arc::new(Radix::new(space, keys, threads, seed)),
            Self::Lu { n, contiguous } => Arc::new(Lu::new(space, n, contiguous, seed)),
            Self::Ocean { n, contiguous } => {
                Arc::new(Ocean::new(space, n, contiguous, threads, seed))
            }
        }
    }
}

/// The most threads of a kernel.
const THREADS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Record;

    /// The records of all threads, which take turns.
    fn records(kernel: Kernel, threads: usize, count: usize) -> Vec<Record> {
        let mut workloads = kernel.workloads(threads, 1).unwrap();
        let mut all = vec![];
        loop {
            let before = all.len();
            for workload in &mut workloads {
                all.extend(workload.next().unwrap());
            }
            if all.len() == before || all.len() >= count {
                all.truncate(count);
                return all;
            }
        }
    }

    const SMALL: [Kernel; 6] = [
        Kernel::Fft { m: 12 },
        Kernel::Radix { keys: 20_000 },
        Kernel::Lu { n: 128, contiguous: true },
        Kernel::Lu { n: 128, contiguous: false },
        Kernel::Ocean { n: 66, contiguous: true },
        Kernel::Ocean { n: 66, contiguous: false },
    ];

    #[test]
    fn the_same_seed_makes_the_same_requests() {
        for kernel in SMALL {
            for threads in [1, 4] {
                let all = records(kernel, threads, usize::MAX);
                assert!(all.len() > 1000, "{kernel:?}");
                assert_eq!(all, records(kernel, threads, usize::MAX), "{kernel:?}");
                assert_eq!(all[..500], records(kernel, threads, 500), "{kernel:?}");
            }
        }
    }

    #[test]
    fn sets_are_the_papers() {
        for name in ["fft", "radix", "lu_c", "lu_nc", "ocean_c", "ocean_nc"] {
            let kernel = Kernel::named(name, InputSet::A).unwrap();
            assert_eq!(records(kernel, 4, 1000).len(), 1000, "{name}");
            Kernel::named(name, InputSet::B).unwrap().check(4).unwrap();
        }
        assert_eq!(Kernel::named("barnes", InputSet::A), None);
        for (wrong, threads) in [
            (Kernel::Fft { m: 21 }, 1),
            (Kernel::Radix { keys: 0 }, 1),
            (Kernel::Radix { keys: 10 }, 0),
            (Kernel::Lu { n: 100, contiguous: true }, 1),
            (Kernel::Ocean { n: 256, contiguous: true }, 1),
            (Kernel::Ocean { n: 258, contiguous: true }, 3),
        ] {
            assert!(wrong.workloads(threads, 1).is_err(), "{wrong:?}");
        }
    }
}
