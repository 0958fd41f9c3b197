//! The program's end by the end of its last thread, or of `traceless run`. The C library and the
//! kernel wait for all threads of a process, and the pager's threads do not end: so one of them
//! polls whether only the pager's threads are left. It also polls whether `traceless run` was
//! killed, and then kills the process.

use crate::own_threads::{has_one_other_thread, is_own_thread};
use crate::paged_memory::{note_unpaged, recording};
use crate::report::print;
use core::time::Duration;
use traceless_pager::paging::{Wrapper, spawn};

/// Polling interval. Polling for the first thread's end reads one file.
const INTERVAL: Duration = Duration::from_millis(100);

/// Polls after which it is noted how much of the program's memory is not paged.
const NOTED_EVERY: u32 = 10;

/// Index of the first thread's status among the fields after its name.
const STATUS_FIELD: usize = 49;

/// Completes what is recorded. Later page moves are not.
pub fn finish() {
    note_unpaged();
    let Some(recording) = recording() else { return };
    if let Err(e) = recording.finish() {
        print(&format!("the trace is not complete: {e}"));
    }
}

/// Starts the thread that polls. It calls `first` before anything else.
pub fn start_watcher(first: fn(), wrapper: Option<Wrapper>) -> Result<(), rustix::io::Errno> {
    spawn("pager-end", first, move || watch(wrapper.as_ref())).map(drop)
}

/// If `traceless run` started this program, makes the kernel continue it when that ends: a stopped
/// program cannot poll.
pub fn continue_when_wrapper_ends(wrapper: Option<u32>) {
    if wrapper == Some(std::os::unix::process::parent_id()) {
        // SAFETY: it sets which signal comes, and when. One that is not stopped is not changed.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT, 0, 0, 0) };
    }
}

fn watch(wrapper: Option<&Wrapper>) {
    debug_assert!(is_own_thread(), "a fault of this thread would not be served");
    for round in 1_u32.. {
        if wrapper.is_some_and(Wrapper::was_killed) {
            // SAFETY: it ends this process at once, as the wrapper was.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        std::thread::sleep(INTERVAL);
        if round % NOTED_EVERY == 1 {
            note_unpaged();
        }
        if let Some(status) = first_thread_status().filter(|_| has_one_other_thread()) {
            end_process(status);
            return;
        }
    }
}

/// The status of the first thread, if it has ended.
fn first_thread_status() -> Option<i32> {
    let id = std::process::id();
    let text = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?;
    exit_status_of(&text)
}

/// The status in the kernel's description of a thread, if it has ended.
fn exit_status_of(text: &str) -> Option<i32> {
    // The name stands in brackets, and may hold any character.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let status = (fields.next()? == "Z").then(|| fields.nth(STATUS_FIELD - 1))??;
    status.parse::<i32>().ok().map(|status| status >> 8)
}

/// Ends the process as it would have ended without the pager: with the program's exit handlers, in
/// a thread that is not the pager's, since they may touch paged memory.
fn end_process(status: i32) {
    if status != 0 {
        // SAFETY: a first thread that leaves a status requested its end from the kernel by itself.
        unsafe { libc::_exit(status) }
    }
    // SAFETY: no thread of the program runs any more.
    let ended = std::thread::Builder::new().spawn(|| unsafe { libc::exit(0) });
    if ended.is_err() {
        // SAFETY: it ends the process at once.
        unsafe { libc::_exit(0) }
    }
}
