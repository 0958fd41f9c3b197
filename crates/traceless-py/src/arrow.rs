//! Data as Arrow, for pyarrow, polars and every tool that has the Arrow PyCapsule interface.
//! The memory that the crate filled is handed over: nothing is copied.

use crate::failure::{Failure, Result};
use crate::trace::{EventColumns, opened};
use arrow_array::ffi::to_ffi;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, FixedSizeBinaryArray, Int64Array, RecordBatch, RecordBatchIterator,
    UInt8Array, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless_core::trace::{TraceError, TraceReader};

/// Events of a batch, at most: a few megabytes.
const BATCH_LEN: usize = 1 << 16;

/// The events of a trace file as a stream of Arrow, a batch at a time: a trace may be larger than
/// memory. The columns are as of `read_trace`.
///
/// prefix: of a trace that is cut or damaged take what is before, instead of failing.
///
/// `polars.DataFrame(stream)` and `pyarrow.table(stream)` take it whole, and
/// `pyarrow.RecordBatchReader.from_stream(stream)` in batches.
///
/// Each use reads the file from its beginning.
#[pyclass(frozen, module = "traceless")]
pub struct TraceStream {
    path: PathBuf,
    prefix: bool,
}

#[pymethods]
impl TraceStream {
    #[new]
    #[pyo3(signature = (path, *, prefix = false))]
    fn new(path: PathBuf, prefix: bool) -> Result<Self> {
        // What is no trace is refused here, and not by the user of the stream.
        reader(&path)?;
        Ok(Self { path, prefix })
    }

    /// The stream, by the Arrow PyCapsule interface. The types of the columns are always the
    /// same.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches =
            Batches { events: reader(&self.path)?, prefix: self.prefix, syncs: 0, is_done: false };
        let stream =
            FFI_ArrowArrayStream::new(Box::new(RecordBatchIterator::new(batches, schema())));
        Ok(PyCapsule::new_with_value(py, stream, c"arrow_array_stream")?)
    }

    fn __repr__(&self) -> String {
        format!("<traceless.TraceStream of {}>", self.path.display())
    }
}

/// Blocks that `Array.read_batch` read, as an array of Arrow: fixed-size binary, an item a block.
#[pyclass(frozen, module = "traceless")]
pub struct Blocks(FixedSizeBinaryArray);

impl Blocks {
    /// The blocks that lie back to back in `bytes`.
    pub fn new(block_len: usize, bytes: Vec<u8>) -> Result<Self> {
        let len = i32::try_from(block_len).map_err(Failure::usage)?;
        let array = FixedSizeBinaryArray::try_new(len, bytes.into(), None);
        Ok(Self(array.map_err(Failure::usage)?))
    }
}

#[pymethods]
impl Blocks {
    /// The array, by the Arrow PyCapsule interface. Its type is always the same.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let (array, schema) = to_ffi(&self.0.to_data()).map_err(Failure::usage)?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        Ok((schema, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("<traceless.Blocks: {} of {} bytes>", self.0.len(), self.0.value_length())
    }
}

fn reader(path: &Path) -> Result<TraceReader<File>> {
    TraceReader::new(opened(path)?).map_err(|error| Failure::trace(path, &error))
}

/// The events of a trace, a batch an item.
struct Batches {
    events: TraceReader<File>,
    prefix: bool,
    /// Syncs so far.
    syncs: i64,
    is_done: bool,
}

impl Batches {
    fn next_batch(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns = EventColumns { syncs: self.syncs, ..EventColumns::default() };
        for event in self.events.by_ref().take(BATCH_LEN) {
            match event {
                Ok(event) => columns.push(event),
                Err(TraceError::Cut { .. } | TraceError::Damaged { .. }) if self.prefix => break,
                Err(error) => return Err(ArrowError::ExternalError(Box::new(error))),
            }
        }
        self.syncs = columns.syncs;
        RecordBatch::try_new(schema(), arrays(columns))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let batch = self.next_batch();
        self.is_done = batch.as_ref().map_or(true, |batch| batch.num_rows() < BATCH_LEN);
        batch.as_ref().map_or(true, |batch| batch.num_rows() > 0).then_some(batch)
    }
}

fn schema() -> SchemaRef {
    let field = |(name, of): (&str, DataType)| Field::new(name, of, false);
    let fields = [
        ("time", DataType::UInt64),
        ("surface", DataType::UInt8),
        ("op", DataType::UInt8),
        ("at", DataType::UInt64),
        ("length", DataType::UInt32),
        ("epoch", DataType::Int64),
    ];
    Arc::new(Schema::new(fields.map(field).to_vec()))
}

fn arrays(columns: EventColumns) -> Vec<ArrayRef> {
    let EventColumns { time, surface, op, at, length, epoch, .. } = columns;
    vec![
        Arc::new(UInt64Array::from(time)),
        Arc::new(UInt8Array::from(surface)),
        Arc::new(UInt8Array::from(op)),
        Arc::new(UInt64Array::from(at)),
        Arc::new(UInt32Array::from(length)),
        Arc::new(Int64Array::from(epoch)),
    ]
}
