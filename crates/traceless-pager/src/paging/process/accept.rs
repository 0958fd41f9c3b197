//! Accepts programs that are to be paged, and ends when neither a program nor the owner is left.

use super::link::{Link, Listener, MessageKind};
use super::server::PagerServer;
use super::session::ClientSession;
use crate::paging::config::Config;
use crate::paging::error::{Error, Result};
use crate::paging::faults::eviction::standby_places;
use crate::paging::kernel::evict::EvictMethod;
use crate::paging::kernel::own_files::OwnFile;
use crate::paging::settings::Settings;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::sync::Arc;
use traceless::rng::{Rng, System};

/// Serves all programs that connect, until there are none and `owner` leaves. If the
/// owner was killed this ends at once, and the kernel ends all programs.
pub fn serve(settings: Settings, owner: OwnedFd) -> Result {
    let owner = Link::from(OwnFile::from(owner));
    match begin(&settings) {
        Ok((listener, program_ended, name)) => {
            owner.send(MessageKind::Ready, [0; 2], &name, &[])?;
            Arc::new(PagerServer::new(settings, owner, program_ended)).serve(&listener)
        }
        Err(e) => owner.send(MessageKind::Refused, [0; 2], &e.to_string(), &[]),
    }
}

/// Makes the socket that programs connect to, the event that signals the end of a program, and the
/// name of the socket.
fn begin(settings: &Settings) -> Result<(Listener, OwnedFd, String)> {
    settings.check()?;
    if settings.evict_method == Some(EvictMethod::Move) {
        return Err(Error::Configuration("pages are moved in the mode thread only"));
    }
    let Settings { resident: frames, policy, .. } = *settings;
    standby_places(&Config { frames, policy, ..Config::default() }, EvictMethod::Protect)?;
    allow_many_files();
    let name = format!("traceless-{:032x}", random_number());
    let listener = Listener::new(&name)?;
    let program_ended = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|e| Error::os("no event", e))?;
    Ok((listener, program_ended, name))
}

impl PagerServer {
    fn serve(self: Arc<Self>, listener: &Listener) -> Result {
        let (mut has_owner, mut is_first) = (true, true);
        let mut pending_replies = Vec::new();
        while has_owner || self.live().count > 0 {
            let [has_client, has_message, _] = self.wait(listener, has_owner)?;
            let is_serving = self.live().count > 0;
            if has_client && let Some((link, process)) = listener.accept(is_serving)? {
                let (server, first) = (self.clone(), core::mem::take(&mut is_first));
                // If no thread can be started the link is dropped, and that ends the program.
                let serve = move || Ok(ClientSession::new(&server, link, process, first)?.run());
                if let Err(e) = self.clone().spawn(Some(process), serve) {
                    eprintln!("traceless: {e}");
                }
            }
            if has_message {
                match self.owner.receive()? {
                    Some(message) if message.kind == MessageKind::Ended => {
                        pending_replies.push(message.numbers[0]);
                    }
                    Some(message) if message.kind == MessageKind::OwnerLeaves => has_owner = false,
                    Some(_) => {}
                    None => return self.fail_without_owner(),
                }
            }
            let live = self.live();
            pending_replies.retain(|&process| {
                let lives = live.processes.iter().any(|&one| u64::from(one) == process);
                if !lives {
                    // The owner may have ended: then it does not need the answer.
                    let _ = self.owner.send(MessageKind::Done, [process, 0], "", &[]);
                }
                lives
            });
        }
        Ok(())
    }

    /// The owner was killed: removes the folder that it would have removed, and fails.
    fn fail_without_owner(&self) -> Result {
        if let Some(folder) = &self.settings().counters {
            // What cannot be removed is removed by the next `traceless run`.
            let _ = std::fs::remove_dir_all(folder);
        }
        Err(Error::Configuration("who started the pager was killed: it ends, and all programs"))
    }

    /// Waits for an event: a program connects, the owner sends a message, a program has ended.
    fn wait(&self, listener: &Listener, has_owner: bool) -> Result<[bool; 3]> {
        let owner = if has_owner { self.owner.as_fd() } else { self.program_ended.as_fd() };
        let mut all = [listener.as_fd(), owner, self.program_ended.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut all, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::os("nothing can be waited for", e)),
        }
        let [has_client, has_message, ended] = all.map(|one| !one.revents().is_empty());
        if ended {
            let _ = rustix::io::read(&self.program_ended, &mut [0; 8][..]);
        }
        Ok([has_client, has_owner && has_message, ended])
    }
}

/// Raises the limit of open files: each program takes some.
fn allow_many_files() {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    // Under a lower limit fewer programs can be served; further ones are refused with a message.
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn random_number() -> u128 {
    let mut bytes = [0; 16];
    System.fill(&mut bytes);
    u128::from_le_bytes(bytes)
}
