//! A simulator of secure processors: what oblivious memory costs on a memory bus.
//!
//! A [`Workload`](workload) is what a program asks of memory, recorded or made up. A
//! [`processor`] runs it, as far as memory is concerned. What misses its caches goes to the
//! [`dram`], which is timed command by command.
//!
//! All times are in cycles of the processor. Words: docs of the library call what an adversary sees
//! a trace; the input of a simulation is a workload, whatever other simulators say.
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
