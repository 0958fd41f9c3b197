//! The pager's side: the memory of one program, served by a thread of its own.

use super::link::{Link, MessageKind};
use super::server::PagerServer;
use crate::paging::construction::Recording;
use crate::paging::error::{Error, Result};
use crate::paging::faults::affinity::UNPIN_AFTER;
use crate::paging::faults::copying::CopyMemory;
use crate::paging::faults::frames::Frames;
use crate::paging::faults::service::FaultService;
use crate::paging::kernel::arena::{Arena, SharedPages};
use crate::paging::kernel::own_files::OwnFile;
use crate::paging::kernel::uffd::{Message, Uffd};
use crate::paging::pager::{check_pace, timespec};
use core::sync::atomic::Ordering::Relaxed;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;
use std::collections::BTreeSet;
use std::sync::Arc;
use traceless::clock::{Clock, Monotonic};

/// Seconds between two checks of a program that has closed its link.
const CHECK_S: i64 = 1;

/// How long a program without a link may go on. Many programs close all files before they run
/// another program; but one that lives on could make no requests, and would not end with the pager.
const UNLINKED_NS: u64 = 10_000_000_000;

/// Seconds to wait for the end of a program that was killed.
const KILL_WAIT_S: i64 = 10;

/// The memory of one program, and the program's process.
pub struct ClientSession {
    server: Arc<PagerServer>,
    service: FaultService,
    /// `None` once the program has closed it: some programs close all files that they do not know.
    link: Option<Link>,
    /// When the closed link was first noticed.
    unlinked_since: Option<u64>,
    /// `None` for a copy that has not named its process yet.
    program: Option<Program>,
    _lifeline: OwnedFd,
    recording: Option<Recording>,
    pending_copy: Option<PendingCopy>,
    /// Copies of the program so far.
    copies: u64,
}

/// A copy of a program that does not run yet.
struct PendingCopy {
    copy: CopyMemory,
    link: Link,
    lifeline: OwnedFd,
    recording: Option<Recording>,
}

struct Program {
    process: u32,
    handle: OwnedFd,
}

/// Whether there is more to do.
#[derive(PartialEq, Eq)]
enum Next {
    Wait,
    End,
}

impl ClientSession {
    /// Makes memory for a program that has just connected, and sends it; or sends the reason why
    /// not.
    pub fn new(
        server: &Arc<PagerServer>,
        link: Link,
        process: u32,
        is_first: bool,
    ) -> Result<Self> {
        match Self::set_up(server, &link, process, is_first) {
            Ok((service, program, lifeline, recording)) => Ok(Self {
                server: server.clone(),
                service,
                link: Some(link),
                unlinked_since: None,
                program: Some(program),
                _lifeline: lifeline,
                recording,
                pending_copy: None,
                copies: 0,
            }),
            Err(e) => {
                // The program may have gone meanwhile.
                let _ = link.send(MessageKind::Refused, [0; 2], &e.to_string(), &[]);
                Err(e)
            }
        }
    }

    fn set_up(
        server: &PagerServer,
        link: &Link,
        process: u32,
        is_first: bool,
    ) -> Result<(FaultService, Program, OwnedFd, Option<Recording>)> {
        let (settings, config) = (server.settings(), server.config(process));
        let (scheme, recording) = if is_first {
            settings.build_first()?
        } else {
            settings.build_with_suffix(&process.to_string())?
        };
        check_pace(settings.pace, &*scheme)?;
        let program = Program::open(process)?;
        let memory = SharedPages::new(settings.pages)?;
        let (program_end, lifeline) = lifeline()?;
        link.send(MessageKind::Memory, [0; 2], "", &[memory.file(), program_end.as_fd()])?;
        let message = link.receive()?.ok_or(Error::Configuration("the program has ended"))?;
        let mut registered = message.expect(MessageKind::Registered)?;
        let (uffd, start) =
            (OwnFile::from(registered.file(0)?).into(), registered.numbers[0] as usize);
        let is_locked = registered.numbers[1];
        let arena = Arena::of_other_process(uffd, memory, start, settings.pages);
        let frames = Frames::new(settings.pages, config.frames, config.policy, config.seed);
        let service = FaultService::new(arena, scheme, frames, 0, config);
        service.set_target(process);
        service.counters().locked.store(is_locked, Relaxed);
        link.send(MessageKind::Served, [0; 2], "", &[])?;
        Ok((service, program, lifeline, recording))
    }

    /// The program's process, if it is known.
    fn process(&self) -> Option<u32> {
        self.program.as_ref().map(|program| program.process)
    }

    /// Serves the program until it ends, or cannot be served any more: then the program is killed.
    /// Returns its process, if that is known.
    pub fn run(mut self) -> Option<u32> {
        let clock = Monotonic::start();
        self.service.start_ticks(&clock);
        let failed = loop {
            match self.step(&clock) {
                Ok(Next::Wait) => {}
                Ok(Next::End) | Err(Error::Os { errno: Errno::SRCH, .. }) => {
                    break self.service.finish_ticks(&clock).err();
                }
                Err(e) => break Some(e),
            }
        };
        if let Some(error) = &failed {
            eprintln!("traceless: paging cannot go on: {error}");
            if let Some(program) = &self.program {
                self.server.report_failure(program.process);
                program.kill();
            }
        }
        if let Some(Err(e)) = self.recording.as_ref().map(|recording| recording.finish()) {
            eprintln!("traceless: the trace is not complete: {e}");
        }
        self.process()
    }

    /// Waits for an event, and handles it.
    fn step(&mut self, clock: &Monotonic) -> Result<Next> {
        let (faults, request, ended) = self.wait(clock)?;
        if faults {
            self.answer_faults(clock)?;
        }
        if ended {
            return Ok(Next::End);
        }
        self.service.tick_if_due(clock)?;
        if !faults && !request {
            self.service.unpin_idle_thread();
        }
        if self.link.is_none() {
            return self.check_unlinked(clock.now());
        }
        if request { self.request(clock) } else { Ok(Next::Wait) }
    }

    /// Whether a program without a link still has its memory.
    fn check_unlinked(&mut self, now: u64) -> Result<Next> {
        // A copy that has not named its process cannot run yet.
        if self.program.is_none() || !self.service.arena().is_in_use() {
            return Ok(Next::End);
        }
        if now - *self.unlinked_since.get_or_insert(now) > UNLINKED_NS {
            return Err(Error::Configuration("the program has closed the files of its pager"));
        }
        Ok(Next::Wait)
    }

    /// Waits, but no longer than to the next tick. Returns which of these there are: faults,
    /// requests, the program's end.
    fn wait(&self, clock: &Monotonic) -> Result<(bool, bool, bool)> {
        let link = self.link.as_ref().map(Link::as_fd);
        let program = self.program.as_ref().map(|program| program.handle.as_fd());
        let uffd = self.service.arena().uffd().as_fd();
        // A file that is missing here is replaced by the one of the faults.
        let mut all = [uffd, link.unwrap_or(uffd), program.unwrap_or(uffd)]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let pause = match self.unlinked_since {
            _ if self.service.has_pinned_thread() => Some(UNPIN_AFTER),
            _ if self.link.is_some() => None,
            None => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
            Some(_) => Some(Timespec { tv_sec: CHECK_S, tv_nsec: 0 }),
        };
        let to_tick = self.service.ns_to_tick(clock).map(timespec);
        let pause = pause.into_iter().chain(to_tick).min_by_key(|time| (time.tv_sec, time.tv_nsec));
        match poll(&mut all, pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::os("nothing can be waited for", e)),
        }
        let [faults, request, ended] = all.map(|one| !one.revents().is_empty());
        Ok((faults, link.is_some() && request, program.is_some() && ended))
    }

    fn answer_faults(&self, clock: &Monotonic) -> Result {
        let mut messages = [Message::default(); 16];
        let count = self.messages(&mut messages)?;
        for message in &messages[..count] {
            self.service.answer(message, clock)?;
        }
        Ok(())
    }

    fn messages(&self, into: &mut [Message]) -> Result<usize> {
        match self.service.arena().uffd().read(into) {
            Ok(count) => Ok(count),
            Err(Errno::INTR | Errno::AGAIN) => Ok(0),
            Err(e) => Err(Error::os("userfaultfd tells no faults", e)),
        }
    }

    /// Handles a request of the program.
    fn request(&mut self, clock: &Monotonic) -> Result<Next> {
        let Some(link) = &self.link else { return Ok(Next::Wait) };
        let Some(received) = link.receive()? else {
            self.link = None;
            // Without a link the program could not request that its thread be unpinned.
            self.service.disable_pinning();
            return Ok(Next::Wait);
        };
        match received.kind {
            MessageKind::Discard => {
                let (first, count) = self.pages_of(received.numbers)?;
                self.service.discard(first, count)?;
                self.reply(MessageKind::Done, "", &[])?;
            }
            MessageKind::Wipe | MessageKind::Keep => {
                let (first, count) = self.pages_of(received.numbers)?;
                self.service.set_wiped_in_copies(first, count, received.kind == MessageKind::Wipe);
                self.reply(MessageKind::Done, "", &[])?;
            }
            MessageKind::Unpin => {
                let [thread, for_good] = received.numbers;
                self.service.unpin_thread(u32::try_from(thread).unwrap_or(0), for_good != 0);
                self.reply(MessageKind::Done, "", &[])?;
            }
            MessageKind::Fork => {
                self.pending_copy = None;
                match self.prepare_copy() {
                    Ok(pending_copy) => self.pending_copy = Some(pending_copy),
                    Err(e) => self.reply(MessageKind::Refused, &e.to_string(), &[])?,
                }
            }
            MessageKind::Freeze => {
                self.service.suspend_affinity();
                self.service.keep_locked()?;
                self.service.forget_waiting();
                self.reply(MessageKind::Done, "", &[])?;
                return self.serve_fork(clock);
            }
            MessageKind::CopyStarted => {
                let sender = received.sender.ok_or(Error::Configuration("a copy has no name"))?;
                self.program = Some(Program::open(sender)?);
                self.service.set_target(sender);
                self.server.add_process(sender);
                self.reply(MessageKind::Served, "", &[self.service.arena().uffd().as_fd()])?;
            }
            _ => return Err(Error::Configuration("the program asks for nothing we know")),
        }
        Ok(Next::Wait)
    }

    /// Pages that a request names: the first, and how many. Refuses pages that do not exist.
    fn pages_of(&self, numbers: [u64; 2]) -> Result<(usize, usize)> {
        let [first, count] = numbers.map(|number| number as usize);
        let end = first.checked_add(count);
        if end.is_none_or(|end| end > self.service.arena().pages()) {
            return Err(Error::Configuration("the program names pages that it has not"));
        }
        Ok((first, count))
    }

    /// Sends an answer to the program. It is no error if the program has gone meanwhile.
    fn reply(&self, kind: MessageKind, text: &str, files: &[BorrowedFd]) -> Result {
        match self.link.as_ref().map(|link| link.send(kind, [0; 2], text, files)) {
            Some(Err(Error::Os { errno: Errno::PIPE | Errno::CONNRESET, .. })) | None => Ok(()),
            Some(sent) => sent,
        }
    }

    /// Makes the memory for a copy, and sends the program the files for it.
    fn prepare_copy(&mut self) -> Result<PendingCopy> {
        // New threads and helpers inherit the processors of this thread.
        self.service.suspend_affinity();
        let process = self.process().unwrap_or(0);
        self.copies += 1;
        let settings = self.server.settings();
        let config = self.server.config(process);
        let (scheme, recording) =
            settings.build_with_suffix(&format!("{process}-{}", self.copies))?;
        let copy = CopyMemory {
            memory: SharedPages::new(settings.pages)?,
            scheme,
            frames: Frames::new(settings.pages, config.frames, config.policy, config.seed),
            wiped: BTreeSet::new(),
            config,
        };
        let (link, client_link) = Link::pair()?;
        link.names_senders()?;
        let (program_end, lifeline) = lifeline()?;
        let files = [copy.memory.file(), client_link.as_fd(), program_end.as_fd()];
        self.reply(MessageKind::Copy, "", &files)?;
        Ok(PendingCopy { copy, link, lifeline, recording })
    }

    /// Serves a fork: the program's memory is not mapped, and its faults are of threads that wait
    /// until it is mapped again.
    fn serve_fork(&mut self, clock: &Monotonic) -> Result<Next> {
        loop {
            let (faults, request, ended) = self.wait(clock)?;
            self.service.tick_if_due(clock)?;
            if faults {
                let mut messages = [Message::default(); 16];
                let count = self.messages(&mut messages)?;
                for uffd in messages[..count].iter().filter_map(Uffd::from_fork_event) {
                    self.serve_copy(uffd)?;
                }
            }
            if ended {
                return Ok(Next::End);
            }
            let Some(link) = self.link.as_ref().filter(|_| request) else { continue };
            let Some(received) = link.receive()? else { return Ok(Next::End) };
            match received.kind {
                MessageKind::Fill => {
                    let pending_copy = self.pending_copy.as_mut();
                    let pending_copy =
                        pending_copy.ok_or(Error::Configuration("a copy without a fork"))?;
                    self.service.copy_to(&mut pending_copy.copy)?;
                    self.reply(MessageKind::Done, "", &[])?;
                }
                MessageKind::Thaw => {
                    // If the fork failed, the memory for the copy is dropped.
                    self.pending_copy = None;
                    self.service.arena().wake_all()?;
                    self.reply(MessageKind::Done, "", &[])?;
                    return Ok(Next::Wait);
                }
                _ => return Err(Error::Configuration("the program forks in no order we know")),
            }
        }
    }

    /// Serves the copy of a program, which runs from now on, in a thread of its own.
    fn serve_copy(&mut self, uffd: Uffd) -> Result {
        // A copy that the program did not announce has no memory of ours, and so no faults.
        let Some(PendingCopy { copy, link, lifeline, recording }) = self.pending_copy.take() else {
            return Ok(());
        };
        let (start, pages) = (self.service.arena().start(), self.service.arena().pages());
        let CopyMemory { memory, scheme, frames, wiped, config } = copy;
        let server = self.server.clone();
        self.service.suspend_affinity();
        self.server.clone().spawn(None, move || {
            let arena = Arena::of_other_process(uffd, memory, start, pages);
            let service = FaultService::new(arena, scheme, frames, 0, config);
            service.inherit_wiped(wiped);
            let session = Self {
                server,
                service,
                link: Some(link),
                unlinked_since: None,
                program: None,
                _lifeline: lifeline,
                recording,
                pending_copy: None,
                copies: 0,
            };
            Ok(session.run())
        })
    }
}

impl Program {
    fn open(process: u32) -> Result<Self> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(Error::Configuration("the program is in another world"))?;
        let handle = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|e| Error::os("the program cannot be watched", e))?;
        Ok(Self { process, handle })
    }

    /// Kills the program, and waits for its end: until then its memory must not change.
    fn kill(&self) {
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        let limit = Timespec { tv_sec: KILL_WAIT_S, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&limit));
    }
}

/// A pipe that no process writes to: the program's end, and the pager's.
fn lifeline() -> Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::os("no pipe", e))
}
