//! Trace files as columns.

use crate::failure::{Failure, Result};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use std::fs::File;
use std::path::{Path, PathBuf};
use traceless_core::trace::{Event, Op, Request, SecretReader, TraceError, TraceReader};

/// Reads a trace file (docs/trace-format.md): what an observer saw.
///
/// prefix: of a trace that is cut or damaged take what is before, instead of raising DamageError.
///
/// Returns `Columns`, arrays of numpy with an item for each event: `time`, `surface` (an index of
/// SURFACES), `op` (READ, WRITE or SYNC), `at` (the first byte touched), `length` in bytes, and
/// `epoch`, the number of syncs before the event. `pandas.DataFrame(columns._asdict())` takes them.
#[pyfunction]
#[pyo3(signature = (path, *, prefix = false))]
pub fn read_trace(py: Python<'_>, path: PathBuf, prefix: bool) -> Result<Bound<'_, PyAny>> {
    let columns = py.detach(|| {
        let file = opened(&path)?;
        let reader = TraceReader::new(file).map_err(|error| Failure::trace(&path, &error))?;
        let mut columns = EventColumns::default();
        for_each(&path, prefix, reader, |event| columns.push(event))?;
        Ok::<_, Failure>(columns)
    })?;
    let EventColumns { time, surface, op, at, length, epoch, .. } = columns;
    let fields = (
        PyArray1::from_vec(py, time),
        PyArray1::from_vec(py, surface),
        PyArray1::from_vec(py, op),
        PyArray1::from_vec(py, at),
        PyArray1::from_vec(py, length),
        PyArray1::from_vec(py, epoch),
    );
    Ok(classes(py)?[0].bind(py).call1(fields)?)
}

/// Reads the requests behind a trace: the secret that its events must not reveal.
///
/// prefix: as for `read_trace`.
///
/// Returns `Secrets`, arrays of numpy with an item for each request: `seen` (the number of events
/// before it), `op` (READ or WRITE; SYNC says that from here on there are none), `at` and `length`.
#[pyfunction]
#[pyo3(signature = (path, *, prefix = false))]
pub fn read_secrets(py: Python<'_>, path: PathBuf, prefix: bool) -> Result<Bound<'_, PyAny>> {
    let columns = py.detach(|| {
        let file = opened(&path)?;
        let reader = SecretReader::new(file).map_err(|error| Failure::trace(&path, &error))?;
        let mut columns = (vec![], vec![], vec![], vec![]);
        for_each(&path, prefix, reader, |request: Request| {
            columns.0.push(request.events_before);
            columns.1.push(request.op as u8);
            columns.2.push(request.at);
            columns.3.push(request.len);
        })?;
        Ok::<_, Failure>(columns)
    })?;
    let fields = (
        PyArray1::from_vec(py, columns.0),
        PyArray1::from_vec(py, columns.1),
        PyArray1::from_vec(py, columns.2),
        PyArray1::from_vec(py, columns.3),
    );
    Ok(classes(py)?[1].bind(py).call1(fields)?)
}

/// Adds what traces are described by to the module.
pub fn add_names(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for ((name, ..), class) in CLASSES.iter().zip(classes(py)?) {
        module.add(*name, class)?;
    }
    module.add("OPS", PyTuple::new(py, ["read", "write", "sync"])?)?;
    module.add("SURFACES", PyTuple::new(py, ["storage", "dram", "page", "wire"])?)?;
    for (name, op) in [("READ", Op::Read), ("WRITE", Op::Write), ("SYNC", Op::Sync)] {
        module.add(name, op as u8)?;
    }
    Ok(())
}

/// Events, a column for each of their parts.
#[derive(Default)]
pub struct EventColumns {
    pub time: Vec<u64>,
    pub surface: Vec<u8>,
    pub op: Vec<u8>,
    pub at: Vec<u64>,
    pub length: Vec<u32>,
    pub epoch: Vec<i64>,
    pub syncs: i64,
}

impl EventColumns {
    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        self.time.push(event.time);
        self.surface.push(event.surface as u8);
        self.op.push(event.op as u8);
        self.at.push(event.at);
        self.length.push(event.len);
        self.epoch.push(self.syncs);
        self.syncs += i64::from(event.op == Op::Sync);
    }
}

/// The file of a trace.
pub fn opened(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| Failure::file(path, error))
}

/// Passes all items to `take`; with `prefix` only the ones before the first damage.
fn for_each<T>(
    path: &Path,
    prefix: bool,
    items: impl Iterator<Item = Result<T, TraceError>>,
    mut take: impl FnMut(T),
) -> Result {
    for item in items {
        match item {
            Ok(item) => take(item),
            Err(TraceError::Cut { .. } | TraceError::Damaged { .. }) if prefix => break,
            Err(error) => return Err(Failure::trace(path, &error)),
        }
    }
    Ok(())
}

const CLASSES: [(&str, &str, &str); 2] = [
    (
        "Columns",
        "time surface op at length epoch",
        "The events of a trace: arrays of numpy, as `read_trace` describes them.",
    ),
    (
        "Secrets",
        "seen op at length",
        "The requests behind a trace: arrays of numpy, as `read_secrets` describes them.",
    ),
];

/// The named tuples of columns.
fn classes(py: Python<'_>) -> PyResult<&Vec<Py<PyAny>>> {
    static MADE: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();
    MADE.get_or_try_init(py, || {
        let named_tuple = py.import("collections")?.getattr("namedtuple")?;
        let mut made = vec![];
        for (name, fields, about) in CLASSES {
            let options = PyDict::new(py);
            options.set_item("module", "traceless")?;
            let class = named_tuple.call((name, fields), Some(&options))?;
            class.setattr("__doc__", about)?;
            made.push(class.unbind());
        }
        Ok(made)
    })
}
