//! Starting the pager's process, and learning how it ended.

use super::link::{DISCONNECTED, Link, MessageKind};
use crate::paging::error::{Error, Result};
use crate::paging::settings::{Settings, VARIABLE};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A pager in a process of its own. When this is dropped the pager goes on until its last program
/// ends; when the process that has this is killed, the pager ends all programs.
pub struct PagerProcess {
    child: Child,
    link: Link,
    name: String,
}

impl Drop for PagerProcess {
    fn drop(&mut self) {
        // Without this message the pager takes its owner for killed, and ends all programs.
        let _ = self.link.send(MessageKind::OwnerLeaves, [0; 2], "", &[]);
    }
}

/// How the pager served a program that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The pager served it to its end.
    Served,
    /// The pager could not serve it any more, has printed why, and has ended it.
    Failed,
    /// The pager has ended, and so have all its programs.
    PagerEnded,
}

impl PagerProcess {
    /// Starts the pager. `command` calls [`serve`](super::serve) with its settings from the
    /// environment, and its standard input.
    pub fn start(mut command: Command, settings: &Settings) -> Result<Self> {
        let (link, pager_link) = Link::pair()?;
        let started = command
            .env(VARIABLE, settings.encode())
            .stdin(OwnedFd::from(pager_link))
            .stdout(Stdio::null())
            // Signals of a terminal go to the program only: the pager ends after it.
            .process_group(0)
            .spawn();
        let child = started.map_err(|e| {
            Error::os("the pager cannot be started", Errno::from_io_error(&e).unwrap_or(Errno::IO))
        })?;
        // This drops our copy of the pager's side of the link: else its end would not be noticed.
        drop(command);
        let ready = link.receive()?.ok_or(DISCONNECTED)?.expect(MessageKind::Ready)?;
        Ok(Self { child, link, name: ready.text })
    }

    /// The name of the socket that programs connect to.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the pager served this program, which has ended. Waits until all its records are written.
    pub fn exit_of(&mut self, process: u32) -> Exit {
        self.outcome_of(process).unwrap_or_else(|_| {
            let _ = self.child.wait();
            Exit::PagerEnded
        })
    }

    fn outcome_of(&self, process: u32) -> Result<Exit> {
        self.link.send(MessageKind::Ended, [u64::from(process), 0], "", &[])?;
        let mut ended = Exit::Served;
        loop {
            let message = self.link.receive()?.ok_or(DISCONNECTED)?;
            match message.kind {
                MessageKind::Failed if message.numbers[0] == u64::from(process) => {
                    ended = Exit::Failed;
                }
                MessageKind::Done => return Ok(ended),
                _ => {}
            }
        }
    }
}
