//! Long work that Ctrl-C ends.

use crate::failure::Result;
use pyo3::prelude::*;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The time between two looks at Python's signals.
const PAUSE: Duration = Duration::from_millis(20);

/// Does `work` in a thread of its own. The flag is set when a signal raises an exception, which is
/// then the result, once the work has ended.
pub fn interruptible<R: Send>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<R> + Send,
) -> Result<R> {
    let interrupted = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(&interrupted));
        let mut raised = None;
        while raised.is_none() && !worker.is_finished() {
            py.detach(|| thread::sleep(PAUSE));
            raised = py.check_signals().err();
        }
        interrupted.store(raised.is_some(), Ordering::Relaxed);
        let result = py.detach(|| worker.join()).unwrap_or_else(|panic| resume_unwind(panic));
        raised.map_or(result, |error| Err(error.into()))
    })
}
