//! A simulator of secure processors: what oblivious memory costs on a memory bus.
//!
//! A [`Workload`](workload) is what a program asks of memory, recorded or made up. A
//! [`processor`] runs it, as far as memory is concerned. What misses its caches goes to the
//! [`dram`], which is timed command by command.
//!
//! All times are in cycles of the processor. Words: docs of the library call what an adversary sees
//! a trace; the input of a simulation is a workload, whatever other simulators say.
//!
//! File by file: `workload`: what a program asks of memory, and the
//! formats it comes in, and what is made up (`named`, `table_2`, `kernel` with its `threads`);
//! `processor`: cores (`rob`), which talk to a `backend`; `cache` and `llc`: what lies between
//! (`llc/early`: which dirty line is written back early); `oram`: a scheme of the library there
//! (`config`: all choices, with names for those that papers compare; `build`; `front`: what the
//! caches may ask of a scheme; `requests`: what the last one does ask for and gives back; `tree`;
//! `layout`, `bus`: the lines that a step touches; `recursive`: maps in trees of their own;
//! `counts`, `latency`); `dram`: `geometry`, `address`, `config`, `channel` (which command goes out
//! when), `queue`, `power` and `energy`, `stats` and `summary`, `log`, `checker`; `constant`: a
//! memory known by its bandwidth and latency; `times`: how long things took; `watch`: who looks on;
//! `machine`: all of it, as TOML says. Times are in cycles of the processor, and only cycles in
//! which something happens are looked at; `tests` hold a memory that looks at each cycle, to
//! compare with.
#![forbid(unsafe_code)]

pub mod backend;
pub mod cache;
pub mod constant;
pub mod dram;
pub mod error;
pub mod llc;
pub mod machine;
pub mod oram;
pub mod processor;
pub mod times;
mod watch;
pub mod workload;

pub use error::{Error, Result};
pub use watch::{Note, Watch};
