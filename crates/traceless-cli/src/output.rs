//! What is printed, and how long work shows how far it is.

use crate::args::ProgressHow;
use crate::failure::Failure;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Prints a line. A reader that has gone away is no reason to fail.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a line on standard error as it is.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints what went wrong.
pub fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "traceless: {line}");
}

/// Prints a value as JSON.
pub fn say_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::usage)?;
    say(&text);
    Ok(())
}

/// Three digits that count.
pub fn shortened(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        1.0..10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A table without lines, whose first column is words and all others numbers.
pub fn new_table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Shows on standard error how far some work is.
pub struct Meter {
    what: &'static str,
    how: ProgressHow,
    bar: ProgressBar,
    shown_percent: Option<u64>,
}

impl Meter {
    pub fn new(what: &'static str, how: ProgressHow) -> Self {
        let visible = how == ProgressHow::Auto && std::io::stderr().is_terminal();
        let target =
            if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {percent}% {eta}")
            .expect("the template is sound");
        let bar = ProgressBar::with_draw_target(Some(0), target).with_style(style);
        bar.set_message(what);
        Self { what, how, bar, shown_percent: None }
    }

    /// So much of so much is done.
    pub fn update(&mut self, done: u64, all: u64) {
        self.bar.set_length(all);
        self.bar.set_position(done);
        let percent = (done * 100).checked_div(all).unwrap_or(100);
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

    /// Says beside the bar what is being done.
    pub fn tell(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
