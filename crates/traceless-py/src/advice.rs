//! Advice: which product protects from an adversary.

use crate::failure::Result;
use crate::json::to_python;
use pyo3::prelude::*;
use traceless_cli::advise::advise_by_options;

/// Which product and parameters protect from an adversary, what that costs, and what leaks, as
/// `traceless advise --json`.
///
/// watcher: the adversary, as what it observes: "copies" of the disk, "device-writes", "device",
///     "swap", "cloud", "bus" or "kernel".
/// size: how much is to be protected: bytes, or text as "1G".
/// hide_reads: whether reads must be hidden, too.
/// block_len: bytes of a block, of the watcher "cloud".
/// memory: bytes of memory that may be taken.
/// space_factor: bytes of store for each byte of `size`, at most.
/// writes: requests of a hundred that write, to a volume.
/// pattern: which blocks of a volume are written after each other: "runs" or "scattered".
/// rate: blocks a second that clients need at most, of the watcher "cloud".
/// latency: milliseconds that a request may wait, of the watcher "cloud".
/// dollars: dollars a month that hosts and gateway may cost, of the watcher "cloud".
///
/// Returns a dictionary in the schema "traceless.advise.v1" (docs/json.md): `protected` says
/// whether there is a product, `commands` has the commands to run, `learns` what still leaks.
///
/// >>> advice = traceless.advise("copies", "1G")
/// >>> advice.get('product'), advice.get('scheme')
/// ('volume', 'detwo')
#[pyfunction]
#[pyo3(signature = (
    watcher, size = None, *, hide_reads = false, block_len = None, memory = None,
    space_factor = None, writes = None, pattern = None, rate = None, latency = None,
    dollars = None,
))]
#[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
pub fn advise<'py>(
    py: Python<'py>,
    watcher: &str,
    size: Option<&Bound<'py, PyAny>>,
    hide_reads: bool,
    block_len: Option<&Bound<'py, PyAny>>,
    memory: Option<&Bound<'py, PyAny>>,
    space_factor: Option<f64>,
    writes: Option<u64>,
    pattern: Option<&str>,
    rate: Option<u64>,
    latency: Option<u64>,
    dollars: Option<f64>,
) -> Result<Bound<'py, PyAny>> {
    let text = |value: Option<&Bound<'py, PyAny>>| {
        value.map(|value| Ok::<_, PyErr>(value.str()?.to_string())).transpose()
    };
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let options = [
        ("watcher", Some(watcher.to_owned())),
        ("size", text(size)?),
        ("hide-reads", hide_reads.then(|| "yes".to_owned())),
        ("block-len", text(block_len)?),
        ("memory", text(memory)?),
        ("space-factor", space_factor.map(|factor| factor.to_string())),
        ("writes", number(writes)),
        ("pattern", pattern.map(str::to_owned)),
        ("rate", number(rate)),
        ("latency", number(latency)),
        ("dollars", dollars.map(|dollars| dollars.to_string())),
    ];
    let options: Vec<String> = options
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| format!("--{name}={value}")))
        .collect();
    let advice = py.detach(|| advise_by_options(options))?;
    to_python(py, &advice)
}
