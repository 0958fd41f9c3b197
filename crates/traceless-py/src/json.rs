//! Reports as Python objects: what `--json` prints, without the text between.

use crate::failure::{Failure, Result};
use pyo3::prelude::*;
use serde::Serialize;

/// The value as dictionaries, lists, strings and numbers.
pub fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> Result<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(Failure::usage)?;
    Ok(py.import("json")?.call_method1("loads", (text,))?)
}
