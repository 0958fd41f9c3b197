//! Logs on standard error. Only our own events: events of libraries may hold what clients sent.

use crate::args::LogForm;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub fn start(form: LogForm) {
    let own = Targets::new().with_target("traceless", Level::INFO);
    let own = own.with_target("traceless_cloud", Level::INFO);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let registry = tracing_subscriber::registry().with(own);
    let started = match form {
        LogForm::Text => registry.with(lines).try_init(),
        LogForm::Json => registry.with(lines.json()).try_init(),
    };
    // The process starts logging once; a second start would change nothing.
    let _ = started;
}
