//! Protection of a process's memory from dumps and swap.

use rustix::mm::MlockAllFlags;
use rustix::process::{DumpableBehavior, Resource, Rlimit};

/// The result of [`harden_process`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hardening {
    /// No core is dumped, and other processes of the same user may not read this one's memory.
    pub dumps_off: bool,
}

/// Turns off core dumps and reading by debuggers. Call it before any key is in memory.
pub fn harden_process() -> Hardening {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let no_core = rustix::process::setrlimit(Resource::Core, none).is_ok();
    let hidden = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok();
    Hardening { dumps_off: no_core && hidden }
}

/// Locks all memory of this process, present and future, so that no page is swapped out; each page
/// is locked at its first use. Does nothing and returns false where the limit of locked memory is
/// finite: a later allocation might then fail because of it.
pub fn lock_all_memory() -> bool {
    let unlimited = rustix::process::getrlimit(Resource::Memlock).current.is_none();
    let privileged = rustix::process::geteuid().is_root();
    (unlimited || privileged)
        && rustix::mm::mlockall(
            MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT,
        )
        .is_ok()
}
