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

/// What all threads of the pager know.
pub struct House {
    settings: Settings,
    /// Who started the pager.
    pub owner: Link,
    live: Mutex<Live>,
    /// Readable when a program has ended.
    pub bell: OwnedFd,
}

/// Programs that are served.
#[derive(Default)]
pub struct Live {
    pub count: usize,
    /// Their processes, as far as they are known.
    pub processes: Vec<u32>,
}

impl House {
    /// A pager that serves no program yet.
    pub fn new(settings: Settings, owner: Link, bell: OwnedFd) -> Self {
        Self { settings, owner, live: Mutex::default(), bell }
    }

    /// How programs are paged.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The same, for one of them.
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

    /// The process of a copy.
    pub fn is_known(&self, process: u32) {
        self.live().processes.push(process);
    }

    /// A program is ended, since it cannot be served.
    pub fn tell_of_failure(&self, process: u32) {
        // Who started us may have ended.
        let _ = self.owner.send(MessageKind::Failed, [u64::from(process), 0], "", &[]);
    }

    /// Serves one more program, in a thread of its own, by `serve`, which tells in the end which
    /// process it was, if that is known by then.
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
            // Whoever came in was told why there is no room.
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
        // Any number rings it.
        let _ = rustix::io::write(&self.bell, &1u64.to_le_bytes());
    }

    /// The programs that are alive.
    pub fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().expect("nobody panics while counting")
    }
}

/// Where a program of this process number is counted.
fn counters(folder: Option<&Path>, process: u32) -> SharedCounters {
    // Whoever wanted to know may have gone, and its folder with it.
    match folder.map(|folder| CounterFile::create_for(folder, process)) {
        Some(Ok(file)) => Arc::new(file),
        _ => Arc::new(Box::<Counters>::default()),
    }
}
