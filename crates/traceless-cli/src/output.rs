//! Printing, and showing the progress of long work.

use crate::args::ProgressHow;
use crate::failure::Failure;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use traceless_core::clock::{Clock, Monotonic};

/// Prints a line. A reader that has closed the pipe is no reason to fail.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a line on standard error, without a prefix.
pub fn eprint_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints an error on standard error.
pub fn print_error(line: &str) {
    let _ = writeln!(std::io::stderr(), "traceless: {line}");
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::usage)?;
    print_line(&text);
    Ok(())
}

/// Width of a full bar, in characters.
const BAR: u64 = 30;
/// Least time between two drawings of a bar, in nanoseconds.
const REDRAW_NS: u64 = 100_000_000;
/// Clears the line of a terminal, and moves to its beginning.
const CLEAR: &str = "\r\x1b[K";

/// Shows the progress of some work on standard error: as a bar on a terminal, or line by line.
pub struct Meter {
    what: &'static str,
    how: ProgressHow,
    bar: Option<Bar>,
    shown_percent: Option<u64>,
}

/// A bar on a terminal.
struct Bar {
    message: String,
    clock: Monotonic,
    drawn_at: Option<u64>,
}

impl Meter {
    pub fn new(what: &'static str, how: ProgressHow) -> Self {
        let is_visible = how == ProgressHow::Auto && std::io::stderr().is_terminal();
        let bar = is_visible.then(|| Bar {
            message: what.to_owned(),
            clock: Monotonic::start(),
            drawn_at: None,
        });
        Self { what, how, bar, shown_percent: None }
    }

    /// Shows that `done` of `all` is done.
    pub fn update(&mut self, done: u64, all: u64) {
        if let Some(bar) = &mut self.bar {
            bar.update(done, all);
        }
        let percent = percent(done, all);
        let step = percent / 5 * 5;
        if self.shown_percent == Some(step) {
            return;
        }
        self.shown_percent = Some(step);
        let mut err = std::io::stderr();
        let _ = match self.how {
            ProgressHow::Plain => writeln!(err, "{}: {percent} %", self.what),
            ProgressHow::Json => writeln!(
                err,
                "{}",
                serde_json::json!({
                    "schema": "traceless.progress.v1",
                    "what": self.what, "done": done, "all": all,
                })
            ),
            ProgressHow::Auto | ProgressHow::None => Ok(()),
        };
    }

    /// Shows beside the bar what is being done.
    pub fn set_message(&mut self, what: &str) {
        if let Some(bar) = &mut self.bar {
            what.clone_into(&mut bar.message);
        }
    }

    /// Removes the bar.
    pub fn finish(&mut self) {
        // A bar that was never drawn need not be removed.
        if self.bar.take().is_some_and(|bar| bar.drawn_at.is_some()) {
            let _ = write!(std::io::stderr(), "{CLEAR}");
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Bar {
    fn update(&mut self, done: u64, all: u64) {
        let now = self.clock.now();
        if self.drawn_at.is_some_and(|then| now - then < REDRAW_NS) && done < all {
            return;
        }
        self.drawn_at = Some(now);
        let line: String = self.line(done, all, now).chars().take(columns()).collect();
        let mut err = std::io::stderr();
        let _ = write!(err, "{CLEAR}{line}").and_then(|()| err.flush());
    }

    /// The text of the bar, `now` nanoseconds after its start.
    fn line(&self, done: u64, all: u64, now: u64) -> String {
        let percent = percent(done, all);
        let full = (percent * BAR / 100) as usize;
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR as usize - full));
        // The remaining time, if the work goes on at the same speed.
        let remaining =
            u128::from(now) * u128::from(all.saturating_sub(done)) / u128::from(done.max(1));
        let remaining =
            if done == 0 { String::new() } else { format!(" {} s", remaining / 1_000_000_000) };
        format!("{} [{bar}] {percent}%{remaining}", self.message)
    }
}

/// Characters that fit into a line of the terminal without wrapping.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    // Terminals that do not know their width say 0.
    if columns == 0 { 79 } else { columns - 1 }
}

/// The done percentage of `all`; 100 if `all` is 0.
fn percent(done: u64, all: u64) -> u64 {
    let percent = (u128::from(done) * 100).checked_div(u128::from(all)).unwrap_or(100);
    percent.min(100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_grows_with_the_work_and_shows_the_time_that_is_left() {
        let bar = Bar { message: "filling".to_owned(), clock: Monotonic::start(), drawn_at: None };
        let second = 1_000_000_000;
        let dashes = "-".repeat(30);
        assert_eq!(bar.line(0, 4, second), format!("filling [{dashes}] 0%"));
        let half = format!("{}{}", "#".repeat(15), "-".repeat(15));
        assert_eq!(bar.line(2, 4, 3 * second), format!("filling [{half}] 50% 3 s"));
        let full = "#".repeat(30);
        assert_eq!(bar.line(4, 4, second), format!("filling [{full}] 100% 0 s"));
        assert_eq!(bar.line(0, 0, 0), format!("filling [{full}] 100%"));
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
    }
}
