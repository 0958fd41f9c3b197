//! Bytes of the caller: `bytes`, arrays of numpy, and every other object with a buffer. None of
//! them is copied here.

use crate::failure::{Failure, Result};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// Bytes that a call reads.
pub enum InputBuffer<'py> {
    /// An object that never changes.
    Bytes(Bound<'py, PyBytes>),
    /// The memory of another object.
    Memory(PyReadonlyArray1<'py, u8>),
    /// No bytes, of which numpy makes no array.
    Empty,
}

impl<'py> InputBuffer<'py> {
    /// The bytes of `object`.
    pub fn of(object: &Bound<'py, PyAny>) -> Result<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone()));
        }
        match flat_array(object)? {
            None => Ok(Self::Empty),
            Some(array) => Ok(Self::Memory(array.try_readonly().map_err(busy)?)),
        }
    }

    /// The bytes as a slice.
    pub fn as_slice(&self) -> Result<&[u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.as_bytes()),
            Self::Memory(array) => array.as_slice().map_err(Failure::usage),
            Self::Empty => Ok(&[]),
        }
    }
}

/// Memory of the caller that a call writes to.
pub struct OutputBuffer<'py>(Option<PyReadwriteArray1<'py, u8>>);

impl<'py> OutputBuffer<'py> {
    /// The memory of `object`.
    pub fn of(object: &Bound<'py, PyAny>) -> Result<Self> {
        if object.is_instance_of::<PyBytes>() {
            return Err(Failure::usage(READ_ONLY));
        }
        let Some(array) = flat_array(object)? else { return Ok(Self(None)) };
        let array = array.try_readwrite().map_err(|error| match error {
            numpy::BorrowError::NotWriteable => Failure::usage(READ_ONLY),
            _ => busy(error),
        })?;
        Ok(Self(Some(array)))
    }

    /// The memory as a slice.
    pub fn as_slice(&mut self) -> Result<&mut [u8]> {
        match &mut self.0 {
            Some(array) => array.as_slice_mut().map_err(Failure::usage),
            None => Ok(&mut []),
        }
    }
}

const READ_ONLY: &str = "the buffer cannot be written: give a bytearray or a numpy array";

fn busy(_: numpy::BorrowError) -> Failure {
    Failure::usage("the buffer is in use by another call: give each call one of its own")
}

/// The buffer of `object` as an array of bytes in its order; `None` if it has no bytes.
fn flat_array<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyArray1<u8>>>> {
    // The usual case, without the detour over a view.
    if let Ok(array) = object.cast::<PyArray1<u8>>()
        && array.is_c_contiguous()
        && !array.is_empty()
    {
        return Ok(Some(array.clone()));
    }
    let view = PyMemoryView::from(object)?;
    if view.getattr("nbytes")?.extract::<usize>()? == 0 {
        return Ok(None);
    }
    if !view.getattr("c_contiguous")?.extract::<bool>()? {
        return Err(Failure::usage("the buffer has gaps: give one that is contiguous"));
    }
    let flat = view.call_method1("cast", ("B",))?;
    let numpy = object.py().import("numpy")?;
    let array = numpy.call_method1("frombuffer", (flat, "uint8"))?;
    Ok(Some(array.cast_into::<PyArray1<u8>>().map_err(PyErr::from)?))
}
