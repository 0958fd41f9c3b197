//! What whoever runs the program is told.

use traceless_pager::paging::Error;

/// What a pager that failed leaves as the program's status.
const FAILED: i32 = 125;

/// Ends the program: a page that it waits for cannot come.
pub fn fail(error: &Error) -> ! {
    say(&format!("paging cannot go on: {error}"));
    // SAFETY: it ends the process at once, without any of the program's own endings.
    unsafe { libc::_exit(FAILED) }
}

/// One line for whoever runs the program.
pub fn say(what: &str) {
    let line = format!("traceless: {what}\n");
    // There is nobody to tell that nobody could be told.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
