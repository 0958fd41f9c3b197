//! Failures as exceptions, with the words of the Rust errors. The class of an exception is the kind
//! of the failure.

use pyo3::exceptions::{PyException, PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::fmt::Display;
use std::io;
use std::path::Path;
use traceless_core::scheme::store_vault::NOTHING_SAVED;
use traceless_core::trace::TraceError;
use traceless_volume::error::Kind;

/// The reasons for which a call fails.
#[derive(Debug)]
pub enum Failure {
    /// A failure of this package, with its message.
    Kind(FailureKind, String),
    /// An exception that Python raised, for example in a function of the caller.
    Python(PyErr),
}

/// The kinds of failures, in the order of their classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// Data was changed, damaged or put back from an older copy.
    Damage = 1,
    /// No key fits.
    Key = 2,
    /// Wrong use, or the operation could not run.
    Usage = 3,
    /// There is no block of that number.
    Range = 4,
    /// A file or device failed, or is not what it should be.
    File = 5,
    /// A file or device is in use.
    Busy = 6,
}

/// Shorthand for results of this package.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Wrong use.
    pub fn usage(message: impl Display) -> Self {
        Self::Kind(FailureKind::Usage, message.to_string())
    }

    /// The file at `path` could not be opened, read or written.
    pub fn file(path: &Path, error: impl Display) -> Self {
        Self::Kind(FailureKind::File, format!("{}: {error}", path.display()))
    }

    /// The file at `path` is damaged.
    pub fn damage(path: &Path, what: impl Display) -> Self {
        Self::Kind(FailureKind::Damage, format!("{}: {what}", path.display()))
    }

    /// The trace file at `path` cannot be read.
    pub fn trace(path: &Path, error: &TraceError) -> Self {
        match error {
            TraceError::Cut { .. } | TraceError::Damaged { .. } => Self::damage(path, error),
            _ => Self::file(path, error),
        }
    }

    /// A file exists at the path where one was to be made.
    pub fn exists(path: &Path) -> Self {
        Self::file(path, "exists already; open it, or take another name")
    }

    /// A failure to make or open the file at `path`.
    pub fn opening(what: &str, path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AlreadyExists => Self::exists(path),
            _ => Self::file(path, format!("cannot {what}: {error}")),
        }
    }
}

impl From<traceless_core::Error> for Failure {
    fn from(error: traceless_core::Error) -> Self {
        traceless_volume::Error::from(error).into()
    }
}

impl From<traceless_volume::Error> for Failure {
    fn from(error: traceless_volume::Error) -> Self {
        use traceless_core::Error::{OutOfRange, State};
        use traceless_volume::Error::Scheme;
        let kind = match error.kind() {
            _ if matches!(error, Scheme(OutOfRange { .. })) => FailureKind::Range,
            _ if matches!(error, Scheme(State(NOTHING_SAVED))) => FailureKind::Key,
            Kind::Finding => FailureKind::Damage,
            Kind::Key => FailureKind::Key,
            Kind::Usage => FailureKind::Usage,
            Kind::Device => FailureKind::File,
            Kind::Busy => FailureKind::Busy,
        };
        Self::Kind(kind, error.to_string())
    }
}

impl From<traceless_cli::failure::Failure> for Failure {
    fn from(failure: traceless_cli::failure::Failure) -> Self {
        use traceless_cli::failure::{BUSY, DEVICE, FINDING, KEY};
        let kind = match failure.code {
            FINDING => FailureKind::Damage,
            KEY => FailureKind::Key,
            DEVICE => FailureKind::File,
            BUSY => FailureKind::Busy,
            _ => FailureKind::Usage,
        };
        Self::Kind(kind, failure.message)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            Failure::Kind(kind, message) => Python::attach(|py| match classes(py) {
                Ok(classes) => PyErr::from_type(classes[kind as usize].bind(py).clone(), message),
                Err(error) => error,
            }),
        }
    }
}

/// Adds the classes of exceptions to the module.
pub fn add_classes(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for class in classes(module.py())? {
        let class = class.bind(module.py());
        module.add(class.name()?, class)?;
    }
    Ok(())
}

const ABOUT: [(&str, &str); 7] = [
    ("Error", "Any failure of this package. The message says what to do next."),
    (
        "DamageError",
        "Data was changed, damaged or put back from an older copy. It is never returned.",
    ),
    ("WrongKeyError", "No key fits, or what was given cannot be a key."),
    ("UsageError", "Wrong use: sizes or options that cannot be, or a closed object."),
    ("RangeError", "There is no block of that number."),
    ("FileError", "A file or device failed, or is not what it should be."),
    ("BusyError", "A file is in use by another process, or by another object of this one."),
];

/// The classes of exceptions: the base class, and then one for each kind of failure.
fn classes(py: Python<'_>) -> PyResult<&Vec<Py<PyType>>> {
    static CLASSES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let mut made: Vec<Bound<'_, PyType>> = vec![];
        for (name, about) in ABOUT {
            let bases = match name {
                "Error" => vec![py.get_type::<PyException>()],
                "UsageError" => vec![made[0].clone(), py.get_type::<PyValueError>()],
                "RangeError" => {
                    vec![made[FailureKind::Usage as usize].clone(), py.get_type::<PyIndexError>()]
                }
                "FileError" => vec![made[0].clone(), py.get_type::<PyOSError>()],
                "BusyError" => vec![made[FailureKind::File as usize].clone()],
                _ => vec![made[0].clone()],
            };
            let content = PyDict::new(py);
            content.set_item("__module__", "traceless")?;
            content.set_item("__doc__", about)?;
            let class = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, content))?;
            made.push(class.cast_into::<PyType>()?);
        }
        Ok(made.into_iter().map(Bound::unbind).collect())
    })
}
