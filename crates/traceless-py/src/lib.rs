//! The Python package `traceless`: oblivious arrays and maps, volumes, cloud stores, traces, the
//! auditor, the simulator, and advice. maturin makes a wheel of this crate and of the folder
//! `python`, in which `__init__.pyi` has the types of all of it.
//!
//! File by file: `array`, `map`, `volume`, `gateway`: the classes of these names; `trace`, `audit`,
//! `sim`, `advice`: the functions; `arrow`: blocks and traces as Arrow. `handle`: what an object
//! holds, and the end of it; `storage`: the files that arrays and maps lie in, and trace files;
//! `buffer`: bytes of the caller; `failure`: exceptions; `interrupt`: Ctrl-C; `json`: reports as
//! dictionaries.
//!
//! A call that works does so without the lock of the interpreter.
#![forbid(unsafe_code)]
#![allow(clippy::doc_markdown, reason = "comments of classes and functions are for Python's help")]
#![allow(clippy::needless_pass_by_value, reason = "arguments come from Python by value")]
#![allow(clippy::unused_self, reason = "Python calls methods of objects")]

mod advice;
mod array;
mod arrow;
mod audit;
mod buffer;
mod failure;
mod gateway;
mod handle;
mod interrupt;
mod json;
mod map;
mod sim;
mod storage;
mod trace;
mod volume;

/// Storage that does not reveal which data is used.
///
/// Array, Map: data in memory or in a file; accesses reveal nothing of which data is accessed.
/// Volume: an encrypted block device in a file, which hides which blocks are written.
/// Gateway: a store of values at a host, which does not learn which value is requested.
/// advise: which product protects from an adversary, what that costs, and what leaks.
/// read_trace, read_secrets: what an observer saw, as columns; TraceStream: as a stream of Arrow.
/// compare_traces: the auditor: can an observer distinguish two users?
/// simulate, run_experiment, sweep, merge_shards, report_rows: secure processors, simulated;
///     traceless.ray.sweep: on a cluster.
///
/// Every failure is a `traceless.Error`, of a class for its kind.
#[pyo3::pymodule(name = "_traceless")]
mod module {
    use super::{failure, trace};
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::advice::advise;
    #[pymodule_export]
    use super::array::Array;
    #[pymodule_export]
    use super::arrow::{Blocks, TraceStream};
    #[pymodule_export]
    use super::audit::compare_traces;
    #[pymodule_export]
    use super::gateway::Gateway;
    #[pymodule_export]
    use super::map::Map;
    #[pymodule_export]
    use super::sim::{merge_shards, report_rows, run_experiment, simulate, sweep};
    #[pymodule_export]
    use super::trace::{read_secrets, read_trace};
    #[pymodule_export]
    use super::volume::Volume;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        trace::add_names(module)?;
        failure::add_classes(module)?;
        // A volume counts as a raw file for isinstance.
        let raw = module.py().import("io")?.getattr("RawIOBase")?;
        raw.call_method1("register", (module.getattr("Volume")?,))?;
        Ok(())
    }
}
