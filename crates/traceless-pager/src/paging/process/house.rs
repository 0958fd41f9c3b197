//! The programs that one pager serves: their settings, and which of them are alive.

use super::link::{Link, MessageKind};
use crate::paging::config::{Config, HOLDS_PROGRAMS, SharedCounters};
use crate::paging::error::{Error, Result};
use crate::paging::settings::Settings;
use crate::paging::stats::{CounterFile, Counters};
use core::sync::atomic::Ordering::Relaxed;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// State that all threads of the pager share.
pub struct House {
    settings: Settings,
    /// The link to the process that started the pager.
    pub owner: Link,
    live: Mutex<Live>,
    /// An event, readable when a program has ended.
    pub bell: OwnedFd,
}

/// The programs that are served.
#[derive(Default)]
pub struct Live {
    pub count: usize,
    /// The processes of these programs, as far as they are known.
    pub processes: Vec<u32>,
}

impl House {
    /// State of a pager that serves no program yet.
    pub fn new(settings: Settings, owner: Link, bell: OwnedFd) -> Self {
        Self { settings, owner, live: Mutex::default(), bell }
    }

    /// The settings of all programs.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The configuration for one program.
    pub fn config(&self, process: u32) -> Config {
        let counters = counters(self.settings.counters.as_deref(), process);
        counters.limit.store(self.settings.counted, Relaxed);
        Config {
            frames: self.settings.resident,
            policy: self.settings.policy,
            overflow: self.settings.overflow,
            holds: HOLDS_PROGRAMS,
            counters,
            ..Config::default()
        }
    }

    /// Notes the process of a copy of a program.
    pub fn is_known(&self, process: u32) {
        self.live().processes.push(process);
    }

    /// Reports to the owner that a program is ended, since it cannot be served.
    pub fn tell_of_failure(&self, process: u32) {
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
        let house = self.clone();
        let body = move || {
            // The program already has the message that says why it is refused.
            house.has_ended(serve().unwrap_or(process));
        };
        let spawned = std::thread::Builder::new().name("space".into()).spawn(body);
        spawned.map(drop).map_err(|e| {
            self.has_ended(process);
            Error::os("no thread can be started", Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))
        })
    }

    fn has_ended(&self, process: Option<u32>) {
        let mut live = self.live();
        live.count -= 1;
        if let Some(nth) = live.processes.iter().position(|&one| Some(one) == process) {
            live.processes.swap_remove(nth);
        }
        // Any number makes the event readable.
        let _ = rustix::io::write(&self.bell, &1u64.to_le_bytes());
    }

    /// The programs that are alive.
    pub fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().expect("nobody panics while counting")
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
