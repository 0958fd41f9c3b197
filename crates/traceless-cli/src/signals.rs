//! SIGTERM, SIGINT and SIGHUP: each command chooses how to react.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Does work with a flag that SIGTERM and SIGINT set. What these signals do afterwards is the
/// caller's to say.
pub fn interruptible<T>(work: impl FnOnce(&AtomicBool) -> T) -> Result<T, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let register = |signal| signal_hook::flag::register(signal, flag.clone());
    let ids = [register(SIGTERM), register(SIGINT)];
    let done = work(&flag);
    for id in ids {
        signal_hook::low_level::unregister(id.map_err(Failure::usage)?);
    }
    Ok(done)
}

/// A flag that SIGTERM and SIGINT set. A second signal ends the process at once.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 2, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(Failure::usage)?;
    }
    Ok(flag)
}

/// Calls `stop` at each SIGTERM, SIGINT or SIGHUP, from a thread of its own.
pub fn on_stop(stop: impl Fn() + Send + 'static) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::usage)?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            stop();
        }
    });
    Ok(())
}
