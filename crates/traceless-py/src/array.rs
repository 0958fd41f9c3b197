//! The class `Array`.

use crate::arrow::Blocks;
use crate::buffer::{InputBuffer, OutputBuffer};
use crate::failure::{Failure, Result};
use crate::handle::Handle;
use crate::storage::{Recording, StorageArgs};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyTuple, PyType};
use std::iter;
use std::path::PathBuf;
use traceless::Hides;
use traceless::array::ArrayBuilder;
use traceless::scheme::linear::LinearScheme;
use traceless::scheme::path::PathGeometry;

/// Blocks of equal length, numbered from 0 on, with accesses that reveal nothing of which block is
/// accessed, and whether it is read or written. How many accesses there are stays visible.
///
/// blocks: the number of blocks. Blocks that were never written hold zeros.
/// block_len: bytes of a block.
/// oblivious: whether an adversary may also watch this program's own memory; False assumes that it
///     watches the file alone.
/// scheme: "path" or "linear"; the default is the faster one of them. Not with `oblivious`.
/// file: a file to make, in which the array lies. Without one it lies in memory, and ends with it.
/// key: 32 bytes that seal the file, and nothing else.
/// contents: blocks back to back, from block 0 on, that the array begins with.
/// trace: a file to make with what an observer of `file` sees; see `read_trace`.
///
/// `Array.open` opens the array of a file again. An array is a context manager that closes it.
///
/// >>> array = traceless.Array(1000, block_len=64)
/// >>> array[7] = bytes(64)
/// >>> len(array[7])
/// 64
#[pyclass(frozen, module = "traceless")]
pub struct Array {
    handle: Handle<OpenArray>,
    blocks: u64,
    block_len: usize,
    hides: Hides,
}

struct OpenArray {
    array: traceless::Array,
    recording: Option<Recording>,
}

/// The description of an array, as it comes from Python.
struct ArraySpec {
    blocks: u64,
    block_len: usize,
    oblivious: bool,
    scheme: Option<String>,
}

impl ArraySpec {
    fn builder(&self) -> Result<ArrayBuilder> {
        let Self { blocks, block_len, oblivious, .. } = *self;
        let builder = traceless::Array::builder().blocks(blocks).block_len(block_len);
        match self.scheme.as_deref() {
            None => Ok(builder.oblivious(oblivious)),
            Some(_) if oblivious => {
                Err(Failure::usage("`oblivious` is a scheme of its own: leave `scheme` out"))
            }
            Some("path") => Ok(builder.scheme(PathGeometry::new(blocks, block_len)?)),
            Some("linear") => Ok(builder.scheme(LinearScheme { blocks, block_len })),
            Some(other) => {
                let message = format!("there is no scheme `{other}`; there are path, linear");
                Err(Failure::usage(message))
            }
        }
    }
}

#[pymethods]
impl Array {
    #[new]
    #[pyo3(signature = (
        blocks, block_len = 64, *, oblivious = false, scheme = None, file = None, key = None,
        contents = None, trace = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn new(
        py: Python<'_>,
        blocks: u64,
        block_len: usize,
        oblivious: bool,
        scheme: Option<String>,
        file: Option<PathBuf>,
        key: Option<&Bound<'_, PyAny>>,
        contents: Option<&Bound<'_, PyAny>>,
        trace: Option<PathBuf>,
    ) -> Result<Self> {
        let storage = StorageArgs::of(file, key, trace)?;
        let contents = contents.map(InputBuffer::of).transpose()?;
        let bytes = contents.as_ref().map(InputBuffer::as_slice).transpose()?;
        if let Some(bytes) = bytes
            && !bytes.len().is_multiple_of(block_len.max(1))
        {
            let message = format!("`contents` has {} bytes: no whole blocks", bytes.len());
            return Err(Failure::usage(message));
        }
        let spec = ArraySpec { blocks, block_len, oblivious, scheme };
        py.detach(|| {
            let build = |builder: ArrayBuilder| match bytes {
                Some(bytes) => builder.load(bytes.chunks_exact(block_len.max(1))),
                None => builder.build(),
            };
            let Some(storage) = storage else { return Ok(Self::of(build(spec.builder()?)?, None)) };
            let storage = storage.create(spec.builder()?.store_len()?)?;
            let builder = spec.builder()?.store(storage.store.clone()).key(storage.key.clone());
            let array = storage.settle(build(builder))?;
            Ok(Self::of(array, storage.recording))
        })
    }

    /// Opens the array in a file, which was made with the same key, sizes and scheme.
    ///
    /// If it was not closed, changes since the last sync may be lost, and every block first gets
    /// another path, which takes a few accesses a block.
    #[classmethod]
    #[pyo3(signature = (
        file, blocks, block_len = 64, *, key, oblivious = false, scheme = None, trace = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn open(
        class: &Bound<'_, PyType>,
        file: PathBuf,
        blocks: u64,
        block_len: usize,
        key: &Bound<'_, PyAny>,
        oblivious: bool,
        scheme: Option<String>,
        trace: Option<PathBuf>,
    ) -> Result<Self> {
        let storage = StorageArgs::of(Some(file), Some(key), trace)?.expect("a file is given");
        let spec = ArraySpec { blocks, block_len, oblivious, scheme };
        class.py().detach(|| {
            let storage = storage.open(spec.builder()?.store_len()?)?;
            let array = spec.builder()?.store(storage.store).key(storage.key).open()?;
            Ok(Self::of(array, storage.recording))
        })
    }

    /// The number of blocks.
    #[getter]
    fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of a block.
    #[getter]
    fn block_len(&self) -> usize {
        self.block_len
    }

    /// What the scheme hides: "reads and writes", "writes" or "nothing".
    #[getter]
    fn hides(&self) -> &'static str {
        match self.hides {
            Hides::ReadsAndWrites => "reads and writes",
            Hides::WritesOnly => "writes",
            Hides::Nothing => "nothing",
        }
    }

    /// Whether the array was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.handle.is_closed(py)
    }

    /// Reads a block.
    fn read<'py>(&self, py: Python<'py>, addr: u64) -> Result<Bound<'py, PyBytes>> {
        Ok(PyBytes::new_with(py, self.block_len, |into| {
            self.handle.with(py, |open| Ok(open.array.read_many(&[addr], into)?))?;
            Ok(())
        })?)
    }

    /// Reads a block into `buffer`, which has exactly its length.
    fn read_into(&self, py: Python<'_>, addr: u64, buffer: &Bound<'_, PyAny>) -> Result {
        let mut buffer = OutputBuffer::of(buffer)?;
        let into = buffer.as_slice()?;
        self.handle.with(py, |open| Ok(open.array.read_many(&[addr], into)?))
    }

    /// Writes a block.
    fn write(&self, py: Python<'_>, addr: u64, block: &Bound<'_, PyAny>) -> Result {
        let block = InputBuffer::of(block)?;
        let from = block.as_slice()?;
        self.handle.with(py, |open| Ok(open.array.write(addr, from)?))
    }

    /// Reads blocks in order, as an array of numpy with a row for each.
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        addrs: &Bound<'_, PyAny>,
    ) -> Result<Bound<'py, PyArray2<u8>>> {
        self.rows(py, &addrs_of(addrs)?)
    }

    /// Reads blocks in order, as an array of Arrow: `pyarrow.array` and `polars.Series` take it.
    fn read_batch(&self, py: Python<'_>, addrs: &Bound<'_, PyAny>) -> Result<Blocks> {
        let addrs = addrs_of(addrs)?;
        let len = addrs.len().checked_mul(self.block_len);
        let len = len.ok_or_else(|| Failure::usage("so many blocks do not fit in memory"))?;
        self.handle.with(py, |open| {
            let mut bytes = vec![0; len];
            open.array.read_many(&addrs, &mut bytes)?;
            Blocks::new(self.block_len, bytes)
        })
    }

    /// Reads blocks in order, back to back, into `buffer`, which has exactly their length.
    fn read_many_into(
        &self,
        py: Python<'_>,
        addrs: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
    ) -> Result {
        let (addrs, mut buffer) = (addrs_of(addrs)?, OutputBuffer::of(buffer)?);
        let into = buffer.as_slice()?;
        self.handle.with(py, |open| Ok(open.array.read_many(&addrs, into)?))
    }

    /// Writes blocks in order from `blocks`, in which they are back to back.
    fn write_many(
        &self,
        py: Python<'_>,
        addrs: &Bound<'_, PyAny>,
        blocks: &Bound<'_, PyAny>,
    ) -> Result {
        let (addrs, blocks) = (addrs_of(addrs)?, InputBuffer::of(blocks)?);
        let from = blocks.as_slice()?;
        self.handle.with(py, |open| Ok(open.array.write_many(&addrs, from)?))
    }

    /// Reads a block and changes it in one access, which looks like any other.
    ///
    /// `function` gets the block, and returns the new one, or None to leave it as it is. An
    /// observer can measure how long it takes. Returns the old block.
    fn update(
        &self,
        py: Python<'_>,
        addr: u64,
        function: &Bound<'_, PyAny>,
    ) -> Result<Py<PyBytes>> {
        let function = function.clone().unbind();
        let visit = |block: &mut [u8]| -> Result<Py<PyBytes>> {
            Python::attach(|py| {
                let old = PyBytes::new(py, block);
                let new = function.bind(py).call1((old.clone(),))?;
                if !new.is_none() {
                    let new = InputBuffer::of(&new)?;
                    let (new, want) = (new.as_slice()?, block.len());
                    if new.len() != want {
                        let got = new.len();
                        return Err(traceless::Error::WrongLength { want, got }.into());
                    }
                    block.copy_from_slice(new);
                }
                Ok(old.unbind())
            })
        };
        self.handle.with(py, |open| open.array.access(addr, visit)?)
    }

    /// Makes all earlier changes durable.
    fn sync(&self, py: Python<'_>) -> Result {
        self.handle.with(py, |open| Ok(open.array.sync()?))
    }

    /// Syncs, and ends the array. A second call does nothing.
    fn close(&self, py: Python<'_>) -> Result {
        self.handle.take(py, OpenArray::close).map(|_| ())
    }

    fn __len__(&self) -> usize {
        self.blocks as usize
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = key.py();
        match Selection::of(key, self.blocks)? {
            Selection::One(addr) => Ok(self.read(py, addr)?.into_any()),
            Selection::Many(addrs) => Ok(self.rows(py, &addrs)?.into_any()),
        }
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, blocks: &Bound<'_, PyAny>) -> Result {
        let py = key.py();
        let blocks = InputBuffer::of(blocks)?;
        let (addrs, from) = (Selection::of(key, self.blocks)?.into_addrs(), blocks.as_slice()?);
        self.handle.with(py, |open| Ok(open.array.write_many(&addrs, from)?))
    }

    fn __iter__<'py>(this: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        let builtins = this.py().import("builtins")?;
        let addrs = builtins.call_method1("range", (this.get().blocks,))?;
        Ok(builtins.call_method1("map", (this.getattr("read")?, addrs))?)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> Result {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let Self { blocks, block_len, .. } = self;
        let closed = if self.closed(py) { ", closed" } else { "" };
        format!("<traceless.Array of {blocks} blocks of {block_len} bytes{closed}>")
    }
}

impl Array {
    fn of(array: traceless::Array, recording: Option<Recording>) -> Self {
        Self {
            blocks: array.blocks(),
            block_len: array.block_len(),
            hides: array.hides(),
            handle: Handle::new("array", OpenArray { array, recording }),
        }
    }

    /// Blocks as an array of numpy, a row each.
    fn rows<'py>(&self, py: Python<'py>, addrs: &[u64]) -> Result<Bound<'py, PyArray2<u8>>> {
        let block_len = self.block_len;
        let blocks = self.handle.with(py, |open| {
            check_range(addrs, self.blocks)?;
            let mut blocks = vec![0; addrs.len() * block_len];
            open.array.read_many(addrs, &mut blocks)?;
            Ok(blocks)
        })?;
        Ok(PyArray1::from_vec(py, blocks).reshape([addrs.len(), block_len])?)
    }
}

impl OpenArray {
    fn close(self) -> Result {
        let closed = self.array.close();
        let finished = self.recording.map_or(Ok(()), |recording| recording.finish());
        closed?;
        finished
    }
}

/// The blocks that an index or a slice stands for.
enum Selection {
    One(u64),
    Many(Vec<u64>),
}

impl Selection {
    fn of(key: &Bound<'_, PyAny>, blocks: u64) -> Result<Self> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let range = slice.indices(isize::try_from(blocks).unwrap_or(isize::MAX))?;
            let next = |at: &isize| at.checked_add(range.step);
            let addrs = iter::successors(Some(range.start), next).take(range.slicelength);
            return Ok(Self::Many(addrs.map(|at| at as u64).collect()));
        }
        let index: i64 = key.extract()?;
        let from_end = if index < 0 { blocks.checked_add_signed(index) } else { None };
        Ok(Self::One(from_end.unwrap_or(index as u64)))
    }

    fn into_addrs(self) -> Vec<u64> {
        match self {
            Self::One(addr) => vec![addr],
            Self::Many(addrs) => addrs,
        }
    }
}

/// Numbers of blocks: an array of numpy, or any sequence of numbers.
fn addrs_of(addrs: &Bound<'_, PyAny>) -> Result<Vec<u64>> {
    if let Ok(array) = addrs.cast::<PyArray1<u64>>() {
        return array.to_vec().map_err(Failure::usage);
    }
    Ok(addrs.extract()?)
}

/// Refuses blocks that are not there before there is memory for them.
fn check_range(addrs: &[u64], blocks: u64) -> Result {
    match addrs.iter().find(|&&addr| addr >= blocks) {
        Some(&addr) => {
            Err(traceless::Error::OutOfRange { addr: traceless::Addr(addr), blocks }.into())
        }
        None => Ok(()),
    }
}
