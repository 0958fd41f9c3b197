//! The outcome of an audit, and its exit code.

use crate::failure::error_line;
use std::io::Write;
use std::path::Path;
use traceless_audit::Page;

/// Nothing was found.
pub const CLEAN: u8 = 0;
/// An adversary can distinguish two users, or a scheme does not do its work.
pub const FOUND: u8 = 1;
/// Wrong usage, or something could not be run.
pub const FAILED: u8 = 2;
/// Too little was recorded to conclude that nothing leaks.
pub const NOT_JUDGED: u8 = 3;
/// A file or an image is not what it should be.
pub const NOT_WHAT_IT_SHOULD_BE: u8 = 4;

/// The output of a command.
#[derive(Debug)]
pub struct Outcome {
    pub code: u8,
    pub out: String,
    pub err: String,
}

impl Outcome {
    pub fn new(code: u8, out: String) -> Self {
        Self { code, out, err: String::new() }
    }

    pub fn error(code: u8, message: &str) -> Self {
        Self {
            code,
            out: String::new(),
            err: format!("{}\n", error_line(code, kind_of(code), message)),
        }
    }

    /// A file could not be opened or read: it is missing, or not what it should be.
    pub fn file_error(path: &Path, error: &std::io::Error) -> Self {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let code = if missing { FAILED } else { NOT_WHAT_IT_SHOULD_BE };
        Self::error(code, &format!("{}: {error}", path.display()))
    }

    /// Prints it, and returns the exit code.
    pub fn printed(self) -> u8 {
        self.print(&mut std::io::stdout().lock(), &mut std::io::stderr().lock())
    }

    /// If the reader closed the pipe, the exit code stays, as the reader took what it wanted. Any
    /// other failure to print means that the verdict did not arrive.
    fn print(self, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
        // An error on standard error can be reported nowhere else.
        let _ = err.write_all(self.err.as_bytes()).and_then(|()| err.flush());
        match out.write_all(self.out.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                let _ = writeln!(err, "traceless: the report could not be printed: {error}");
                FAILED
            }
            _ => self.code,
        }
    }
}

/// Writes the page of a report to a file.
pub fn write_page(page: &Page<'_>, path: &Path) -> Result<(), Outcome> {
    let failed = |error| Outcome::error(FAILED, &format!("{}: {error}", path.display()));
    page.write(path).map_err(failed)
}

/// An exit code of the auditor as a word.
fn kind_of(code: u8) -> &'static str {
    match code {
        FOUND => "finding",
        NOT_JUDGED => "not judged",
        NOT_WHAT_IT_SHOULD_BE => "device",
        _ => "usage",
    }
}

/// `value` as JSON, with a newline at the end.
pub fn json(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("only strings are keys");
    format!("{text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_keeps_the_verdict_and_a_full_disk_does_not() {
        let printed = |kind| {
            let outcome = Outcome::new(FOUND, "leak\n".to_owned());
            outcome.print(&mut Broken(kind), &mut Broken(io::ErrorKind::BrokenPipe))
        };
        assert_eq!(printed(io::ErrorKind::BrokenPipe), FOUND);
        assert_eq!(printed(io::ErrorKind::StorageFull), FAILED);
    }
}
