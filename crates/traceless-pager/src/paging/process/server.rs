//! The programs that one pager serves: their settings, and which of them are alive.

use super::link::{Link, MessageKind};
use crate::paging::config::{Config, PIN_PROGRAM_THREADS, SharedCounters};
use crate::paging::counters::{CounterFile, Counters};
use crate::paging::error::{Error, Result};
use crate::paging::settings::Settings;
use core::sync::atomic::Ordering::Relaxed;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// State that all threads of the pager share.
pub struct PagerServer {
    settings: Settings,
    /// The link to the process that started the pager.
    pub owner: Link,
    live: Mutex<LivePrograms>,
    /// An event, readable when a program has ended.
    pub program_ended: OwnedFd,
}

/// The programs that are served.
#[derive(Default)]
pub struct LivePrograms {
    pub count: usize,
    /// The processes of these programs, as far as they are known.
    pub processes: Vec<u32>,
}

impl PagerServer {
    /// State of a pager that serves no program yet.
    pub fn new(settings: Settings, owner: Link, program_ended: OwnedFd) -> Self {
        Self { settings, owner, live: Mutex::default(), program_ended }
    }

    /// The settings of all programs.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The configuration for one program.
    pub fn config(&self, process: u32) -> Config {
        let counters = counters(self.settings.counters.as_deref(), process);
        counters.limit.store(self.settings.fault_limit, Relaxed);
        Config {
            frames: self.settings.resident,
            policy: self.settings.policy,
            overflow: self.settings.overflow,
            pin_threads: PIN_PROGRAM_THREADS,
            pace: self.settings.pace,
            counters,
            // Where locking it is refused, so is the scheme.
            activity: self.settings.open_activity().unwrap_or_default(),
            ..Config::default()
        }
    }

    /// Notes the process of a copy of a program.
    pub fn add_process(&self, process: u32) {
        self.live().processes.push(process);
    }

    /// Reports to the owner that a program is ended, since it cannot be served.
    pub fn report_failure(&self, process: u32) {
        // The owner may have ended.
        let _ = self.owner.send(MessageKind::Failed, [u64::from(process), 0], "", &[]);
    }

    /// Runs `serve` for one more program, in a thread of its own. In the end `serve` returns the
    /// program's process, if that is known by then.
    pub fn spawn(
        self: Arc<Self>,
        process: Option<u32>,
        serve: impl FnOnce() -> Result<Option<u32>> + Send + 'static,
    ) -> Result {
        {
            let mut live = self.live();
            live.count += 1;
            live.processes.extend(process);
        }
        let server = self.clone();
        let body = move || {
            // The program already has the message that says why it is refused.
            server.remove_program(serve().unwrap_or(process));
        };
        let spawned = std::thread::Builder::new().name("session".into()).spawn(body);
        spawned.map(drop).map_err(|e| {
            self.remove_program(process);
            Error::os("no thread can be started", Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))
        })
    }

    fn remove_program(&self, process: Option<u32>) {
        let mut live = self.live();
        live.count -= 1;
        if let Some(nth) = live.processes.iter().position(|&one| Some(one) == process) {
            live.processes.swap_remove(nth);
        }
        // Any number makes the event readable.
        let _ = rustix::io::write(&self.program_ended, &1u64.to_le_bytes());
    }

    /// The programs that are alive.
    pub fn live(&self) -> MutexGuard<'_, LivePrograms> {
        self.live.lock().expect("no thread panics while counting")
    }
}

/// The counters for a program of this process number.
fn counters(folder: Option<&Path>, process: u32) -> SharedCounters {
    // The owner may have ended, and removed its folder.
    match folder.map(|folder| CounterFile::create_for(folder, process)) {
        Some(Ok(file)) => Arc::new(file),
        _ => Arc::new(Box::<Counters>::default()),
    }
}
