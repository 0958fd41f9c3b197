//! Messages of the pager on standard error, and the exit after a failure.

use traceless_pager::paging::Error;

/// The exit code of a program after a failure of its pager.
const FAILED: i32 = 125;

/// Ends the program: a page that it waits for cannot come.
pub fn fail(error: &Error) -> ! {
    print(&format!("paging cannot go on: {error}"));
    // SAFETY: it ends the process at once, without any of the program's own endings.
    unsafe { libc::_exit(FAILED) }
}

/// Prints one line on standard error.
pub fn print(what: &str) {
    let line = format!("traceless: {what}\n");
    // A failure to print cannot be reported anywhere.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
