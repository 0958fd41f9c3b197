//! All programs that one pager serves: who comes in, who has ended, and whether anybody is left.

use super::link::{Link, Listener, What};
use super::space::{Space, counters};
use crate::paging::arena::Way;
use crate::paging::config::{Config, HOLDS_PROGRAMS};
use crate::paging::error::{Error, Result};
use crate::paging::files::OwnFile;
use crate::paging::serving::places;
use crate::paging::settings::Settings;
use core::sync::atomic::Ordering::Relaxed;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::sync::{Arc, Mutex, MutexGuard};
use traceless::rng::{Rng, System};

/// What all threads of the pager know.
pub struct House {
    settings: Settings,
    /// Who started the pager.
    owner: Link,
    live: Mutex<Live>,
    /// Readable when a program has ended.
    bell: OwnedFd,
}

/// Programs that are served.
#[derive(Default)]
struct Live {
    count: usize,
    /// Their processes, as far as they are known.
    processes: Vec<u32>,
}

/// Serves all programs that come in, until there are none and `owner` has said goodbye. If that was
/// killed it ends at once, and the kernel ends all programs.
pub fn serve(settings: Settings, owner: OwnedFd) -> Result {
    let owner = Link::from(OwnFile::from(owner));
    match begin(&settings) {
        Ok((listener, bell, name)) => {
            owner.send(What::Ready, [0; 2], &name, &[])?;
            Arc::new(House { settings, owner, live: Mutex::default(), bell }).serve(&listener)
        }
        Err(e) => owner.send(What::Refused, [0; 2], &e.to_string(), &[]),
    }
}

/// Where programs come in, what rings when one has ended, and the name that they find us under.
fn begin(settings: &Settings) -> Result<(Listener, OwnedFd, String)> {
    settings.check()?;
    if settings.way == Some(Way::Move) {
        return Err(Error::Configuration("pages are moved in the mode thread only"));
    }
    let Settings { resident: frames, policy, .. } = *settings;
    places(&Config { frames, policy, ..Config::default() }, Way::Protect)?;
    allow_many_files();
    let name = format!("traceless-{:032x}", drawn());
    let listener = Listener::new(&name)?;
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| Error::os("no event", e))?;
    Ok((listener, bell, name))
}

impl House {
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
        let _ = self.owner.send(What::Failed, [u64::from(process), 0], "", &[]);
    }

    /// Serves one more program, in a thread of its own.
    pub fn spawn(
        self: Arc<Self>,
        process: Option<u32>,
        make: impl FnOnce() -> Result<Space> + Send + 'static,
    ) -> Result {
        {
            let mut live = self.live();
            live.count += 1;
            live.processes.extend(process);
        }
        let house = self.clone();
        let body = move || {
            // Whoever came in was told why there is no room.
            let process = make().map_or(process, Space::run);
            house.has_ended(process);
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

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().expect("nobody panics while counting")
    }

    fn serve(self: Arc<Self>, listener: &Listener) -> Result {
        let (mut has_owner, mut is_first) = (true, true);
        let mut asked = Vec::new();
        while has_owner || self.live().count > 0 {
            let [comes, tells, _] = self.wait(listener, has_owner)?;
            let others = self.live().count > 0;
            if comes && let Some((link, process)) = listener.accept(others)? {
                let (house, first) = (self.clone(), core::mem::take(&mut is_first));
                // If there is no thread for it the link ends, and so does the program.
                let made = move || Space::new(&house, link, process, first);
                if let Err(e) = self.clone().spawn(Some(process), made) {
                    eprintln!("traceless: {e}");
                }
            }
            if tells {
                match self.owner.receive()? {
                    Some(told) if told.what == What::Ended => asked.push(told.numbers[0]),
                    Some(told) if told.what == What::Bye => has_owner = false,
                    Some(_) => {}
                    None => return self.is_left_alone(),
                }
            }
            let live = self.live();
            asked.retain(|&process| {
                let lives = live.processes.iter().any(|&one| u64::from(one) == process);
                if !lives {
                    // If it is gone it does not want to know any more.
                    let _ = self.owner.send(What::Done, [process, 0], "", &[]);
                }
                lives
            });
        }
        Ok(())
    }

    /// Who started us was killed. What it would have removed in the end is removed here.
    fn is_left_alone(&self) -> Result {
        if let Some(folder) = &self.settings.counters {
            // Whatever is left of it holds counters only.
            let _ = std::fs::remove_dir_all(folder);
        }
        Err(Error::Configuration("who started the pager was killed: it ends, and all programs"))
    }

    /// Which of these there are: a program that comes in, the owner's word, one that has ended.
    fn wait(&self, listener: &Listener, has_owner: bool) -> Result<[bool; 3]> {
        let owner = if has_owner { self.owner.as_fd() } else { self.bell.as_fd() };
        let mut all = [listener.as_fd(), owner, self.bell.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut all, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::os("nothing can be waited for", e)),
        }
        let [comes, tells, ended] = all.map(|one| !one.revents().is_empty());
        if ended {
            let _ = rustix::io::read(&self.bell, &mut [0; 8][..]);
        }
        Ok([comes, has_owner && tells, ended])
    }
}

/// Each program takes some files.
fn allow_many_files() {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    // With fewer files fewer programs can be served, and are told so.
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn drawn() -> u128 {
    let mut bytes = [0; 16];
    System.fill(&mut bytes);
    u128::from_le_bytes(bytes)
}
