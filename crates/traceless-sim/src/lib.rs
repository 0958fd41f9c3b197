//! A simulator of secure processors: what oblivious memory costs on a memory bus.
//!
//! A [`Workload`](workload) is the sequence of memory operations of a program, recorded or made up.
//! A [`processor`] runs it, as far as memory is concerned. Accesses that miss its caches go to the
//! [`dram`], which is timed command by command.
//!
//! Random reads and writes on one machine, without and with an oblivious memory:
//!
//! ```
//! use traceless_sim::machine::Machine;
//! use traceless_sim::oram::{self, Scheme};
//! use traceless_sim::workload::named;
//!
//! # fn main() -> traceless_sim::Result {
//! let plain = Machine::FOUR_CHANNELS;
//! let oblivious = Machine {
//!     oram: Some(oram::Config {
//!         scheme: Scheme::Path,
//!         blocks: Some(1 << 12),
//!         levels: 11,
//!         cached_levels: 0,
//!         ..oram::Config::default()
//!     }),
//!     ..plain.clone()
//! };
//! let cycles = |machine: &Machine| {
//!     let mut workloads = [named("uniform?bytes=256K&before=10", 200, 1)?];
//!     machine.run(&mut workloads).map(|outcome| outcome.run.cycles)
//! };
//! assert!(cycles(&oblivious)? > 10 * cycles(&plain)?);
//! # Ok(())
//! # }
//! ```
//!
//! Terms: the library's docs call what an adversary observes a trace; here the input of a
//! simulation is called a workload, although other simulators call it a trace.
//!
//! File by file: `workload`: the operations of programs, the formats that recorded ones come in,
//! and the ones that are made up (`named`, `table_2`, `kernel` with its `threads`); `processor`:
//! cores (`rob`), which send requests to a `backend`; `cache` and `llc`: the caches between them
//! (`llc/early`: which dirty line is written back early); `oram`: a scheme of the library behind
//! the caches (`config`: all choices, with names for the configurations that papers compare;
//! `build`; `controller`: what the caches may request of a scheme; `requests`: the lines that the
//! last-level cache requests and gives back; `tree`; `layout`, `step_trace`: the lines that a step
//! touches; `recursive`: maps in trees of their own; `counts`, `latency`); `dram`: `geometry`,
//! `address`, `config`, `channel` (which command goes out when), `queue`, `power` and `energy`,
//! `stats` and `summary`, `log`, `checker`; `constant`: a memory known by its bandwidth and
//! latency; `latency`: how long requests took; `watch`: the witnesses of a run; `machine`: the
//! whole machine, as TOML describes it; `record` (feature): workloads of programs as they run
//! (`lackey`, `qemu`); `experiment`: figures of papers, and what their claims
//! become; `parallel`: work on all cores; `error`. All times are in cycles of the processor.
//! The simulator skips cycles in which nothing happens; `tests` compare it with a memory that
//! simulates each cycle.
#![forbid(unsafe_code)]

pub mod backend;
pub mod cache;
pub mod constant;
pub mod dram;
pub mod error;
#[cfg(feature = "experiments")]
pub mod experiment;
pub mod latency;
pub mod llc;
pub mod machine;
pub mod oram;
#[cfg(feature = "experiments")]
pub mod parallel;
pub mod processor;
#[cfg(feature = "record")]
pub mod record;
mod watch;
pub mod workload;

pub use error::{Error, Result};
pub use watch::{LiveObserver, LiveRun, RequestHook, Watch};
