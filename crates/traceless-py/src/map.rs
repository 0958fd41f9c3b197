//! The class `Map`.

use crate::buffer::InputBuffer;
use crate::failure::Result;
use crate::handle::Handle;
use crate::storage::{Recording, StorageArgs};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use std::path::PathBuf;
use traceless::map::MapBuilder;

/// A map from byte strings to byte strings. Every operation makes two accesses, which reveal
/// nothing of the key, the value, the kind of the operation and what it found.
///
/// capacity: the number of entries that there is room for.
/// key_len: bytes of a key, at most.
/// value_len: bytes of a value, at most.
/// oblivious: whether an adversary may watch this program's own memory; False is faster and
///     assumes that it does not. What lies in a file is always oblivious.
/// file: a file to make, in which the map lies. Without one it lies in memory, and ends with it.
/// key: 32 bytes that seal the file, and nothing else.
/// trace: a file to make with what an observer of `file` sees; see `read_trace`.
///
/// `Map.open` opens the map of a file again. It is used like a `dict`, but does not list its keys.
/// A map is a context manager that closes it.
///
/// >>> colours = traceless.Map(1000, key_len=16, value_len=3)
/// >>> colours[b"vermilion"] = bytes([227, 66, 52])
/// >>> b"ochre" in colours
/// False
#[pyclass(frozen, module = "traceless")]
pub struct Map {
    handle: Handle<OpenMap>,
    capacity: u64,
    key_len: usize,
    value_len: usize,
}

struct OpenMap {
    map: traceless::Map,
    /// The number of entries; `None` until they are counted.
    len: Option<u64>,
    recording: Option<Recording>,
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MapCall {
    Get,
    Insert,
    Remove,
}

#[derive(Clone, Copy)]
struct MapSizes {
    capacity: u64,
    key_len: usize,
    value_len: usize,
}

impl MapSizes {
    fn builder(self) -> MapBuilder {
        let Self { capacity, key_len, value_len } = self;
        traceless::Map::builder().capacity(capacity).key_len(key_len).value_len(value_len)
    }
}

#[pymethods]
impl Map {
    #[new]
    #[pyo3(signature = (
        capacity, key_len = 32, value_len = 32, *, oblivious = true, file = None, key = None,
        trace = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn new(
        py: Python<'_>,
        capacity: u64,
        key_len: usize,
        value_len: usize,
        oblivious: bool,
        file: Option<PathBuf>,
        key: Option<&Bound<'_, PyAny>>,
        trace: Option<PathBuf>,
    ) -> Result<Self> {
        let storage = StorageArgs::of(file, key, trace)?;
        let sizes = MapSizes { capacity, key_len, value_len };
        py.detach(|| {
            let Some(storage) = storage else {
                let map = if oblivious { sizes.builder().build()? } else { over_path(sizes)? };
                return Ok(Self::of(map, sizes, Some(0), None));
            };
            let storage = storage.create(sizes.builder().store_len()?)?;
            let builder = sizes.builder().store(storage.store.clone()).key(storage.key.clone());
            let map = storage.settle(builder.build())?;
            Ok(Self::of(map, sizes, Some(0), storage.recording))
        })
    }

    /// Opens the map in a file, which was made with the same key and sizes.
    #[classmethod]
    #[pyo3(signature = (file, capacity, key_len = 32, value_len = 32, *, key, trace = None))]
    fn open(
        class: &Bound<'_, PyType>,
        file: PathBuf,
        capacity: u64,
        key_len: usize,
        value_len: usize,
        key: &Bound<'_, PyAny>,
        trace: Option<PathBuf>,
    ) -> Result<Self> {
        let storage = StorageArgs::of(Some(file), Some(key), trace)?.expect("a file is given");
        let sizes = MapSizes { capacity, key_len, value_len };
        class.py().detach(|| {
            let storage = storage.open(sizes.builder().store_len()?)?;
            let map = sizes.builder().store(storage.store).key(storage.key).open()?;
            Ok(Self::of(map, sizes, None, storage.recording))
        })
    }

    /// The number of entries that there is room for.
    #[getter]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of a key, at most.
    #[getter]
    fn key_len(&self) -> usize {
        self.key_len
    }

    /// Bytes of a value, at most.
    #[getter]
    fn value_len(&self) -> usize {
        self.value_len
    }

    /// Whether the map was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.handle.is_closed(py)
    }

    /// Sets the value of a key. Returns its old value, or None.
    fn insert<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> Result<Option<Bound<'py, PyBytes>>> {
        self.operate(py, MapCall::Insert, key, Some(value))
    }

    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'_, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        let value = self.operate(py, MapCall::Get, key, None)?;
        Ok(value.map(Bound::into_any).or(default))
    }

    /// Removes a key. Returns its old value, or None.
    fn remove<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'_, PyAny>,
    ) -> Result<Option<Bound<'py, PyBytes>>> {
        self.operate(py, MapCall::Remove, key, None)
    }

    /// Removes a key and returns its value; without one `default`, or else raises KeyError.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> Result<Bound<'py, PyAny>> {
        if default.len() > 1 {
            return Err(PyTypeError::new_err("pop takes a key and one default").into());
        }
        match self.remove(py, key)? {
            Some(value) => Ok(value.into_any()),
            None if default.is_empty() => Err(missing(key)),
            None => Ok(default.get_item(0)?),
        }
    }

    /// Sets the values of several keys: of a mapping, or of pairs.
    fn update(&self, py: Python<'_>, entries: &Bound<'_, PyAny>) -> Result {
        let pairs = match entries.getattr_opt("items")? {
            Some(items) => items.call0()?,
            None => entries.clone(),
        };
        for pair in pairs.try_iter()? {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            self.insert(py, &key, &value)?;
        }
        Ok(())
    }

    /// Makes all earlier changes durable.
    fn sync(&self, py: Python<'_>) -> Result {
        self.handle.with(py, |open| Ok(open.map.sync()?))
    }

    /// Syncs, and ends the map. A second call does nothing.
    fn close(&self, py: Python<'_>) -> Result {
        self.handle.take(py, OpenMap::close).map(|_| ())
    }

    /// The number of entries. After an opening it is counted, in one pass over the whole map.
    fn __len__(&self, py: Python<'_>) -> Result<usize> {
        let len = self.handle.with(py, |open| {
            if open.len.is_none() {
                open.len = Some(open.map.count()?);
            }
            Ok(open.len.unwrap_or_default())
        })?;
        Ok(len as usize)
    }

    fn __bool__(&self, py: Python<'_>) -> Result<bool> {
        Ok(self.__len__(py)? > 0)
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> Result<bool> {
        Ok(self.operate(py, MapCall::Get, key, None)?.is_some())
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> Result<Bound<'py, PyBytes>> {
        self.operate(key.py(), MapCall::Get, key, None)?.ok_or_else(|| missing(key))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result {
        self.operate(key.py(), MapCall::Insert, key, Some(value)).map(|_| ())
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> Result {
        match self.operate(key.py(), MapCall::Remove, key, None)? {
            Some(_) => Ok(()),
            None => Err(missing(key)),
        }
    }

    fn __iter__(&self) -> Result {
        Err(PyTypeError::new_err("a map does not list its keys").into())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> Result {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let closed = if self.closed(py) { ", closed" } else { "" };
        format!("<traceless.Map with room for {} entries{closed}>", self.capacity)
    }
}

impl Map {
    fn of(
        map: traceless::Map,
        sizes: MapSizes,
        len: Option<u64>,
        recording: Option<Recording>,
    ) -> Self {
        let MapSizes { capacity, key_len, value_len } = sizes;
        let handle = Handle::new("map", OpenMap { map, len, recording });
        Self { handle, capacity, key_len, value_len }
    }

    /// Makes an operation, and returns the value that the key had.
    fn operate<'py>(
        &self,
        py: Python<'py>,
        call: MapCall,
        key: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
    ) -> Result<Option<Bound<'py, PyBytes>>> {
        let (key, value) = (InputBuffer::of(key)?, value.map(InputBuffer::of).transpose()?);
        let key = key.as_slice()?;
        let value = value.as_ref().map_or(Ok(&[][..]), InputBuffer::as_slice)?;
        let old = self.handle.with(py, |open| open.operate(call, key, value))?;
        Ok(old.map(|old| PyBytes::new(py, &old)))
    }
}

impl OpenMap {
    fn operate(&mut self, call: MapCall, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        // After a failure it is unknown whether the operation was done.
        let len = self.len.take();
        let answer = match call {
            MapCall::Get => self.map.get(key),
            MapCall::Insert => self.map.insert(key, value),
            MapCall::Remove => self.map.remove(key),
        };
        let old = match answer {
            Ok(old) => old,
            Err(error) => {
                if is_refusal(&error) {
                    self.len = len;
                }
                return Err(error.into());
            }
        };
        self.len = len.map(|len| match (call, &old) {
            (MapCall::Insert, None) => len + 1,
            (MapCall::Remove, Some(_)) => len - 1,
            _ => len,
        });
        Ok(old)
    }

    fn close(self) -> Result {
        let closed = self.map.close();
        let finished = self.recording.map_or(Ok(()), |recording| recording.finish());
        closed?;
        finished
    }
}

/// Whether an operation failed without a change to the map.
fn is_refusal(error: &traceless::Error) -> bool {
    matches!(error, traceless::Error::WrongLength { .. } | traceless::Error::MapFull { .. })
}

/// A map over Path ORAM in memory that no adversary watches.
fn over_path(sizes: MapSizes) -> Result<traceless::Map> {
    let (blocks, block_len) = (sizes.builder().blocks()?, sizes.builder().block_len()?);
    let array = traceless::Array::builder().blocks(blocks).block_len(block_len).build()?;
    Ok(sizes.builder().over(array.into_oram())?)
}

fn missing(key: &Bound<'_, PyAny>) -> crate::failure::Failure {
    PyKeyError::new_err(key.clone().unbind()).into()
}
