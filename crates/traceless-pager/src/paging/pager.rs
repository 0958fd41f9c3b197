//! Serving page faults by a thread of the program.

use super::arena::Arena;
use super::config::Config;
use super::error::{Error, Result};
use super::frames::Frames;
use super::holding::REST;
use super::locking::wipe_registers;
use super::serving::{FRAMES_MIN, Serving, places};
use super::stats::Summary;
use super::threads::{self, without_signals};
use super::uffd::Message;
use super::way::Way;
use crate::PAGE_LEN;
use crate::scheme::PageScheme;
use rustix::io::Errno;
use std::sync::Arc;
use std::thread::JoinHandle;
use traceless::clock::Monotonic;

/// Paged memory and the thread that serves its faults.
pub struct Pager {
    serving: Arc<Serving>,
    handler: Option<JoinHandle<()>>,
}

impl Pager {
    /// Paged memory of as many pages as `scheme` has, all zeros.
    pub fn start(scheme: Box<dyn PageScheme>, config: Config) -> Result<Self> {
        if config.frames < FRAMES_MIN {
            return Err(Error::Configuration("at least 8 pages must be resident"));
        }
        let way = config.way.map_or_else(Way::probe, Ok)?;
        let pages = scheme.pages() as usize;
        let places = places(&config, way)?;
        let frames = Frames::new(pages, config.frames, config.policy, config.seed);
        let arena = Arena::new(pages, places, &config, way)?;
        let (on_thread, on_failure) = (config.on_thread, config.on_failure);
        let serving = Arc::new(Serving::new(arena, scheme, frames, places, config));
        let served = serving.clone();
        let run = move || serve(&served, on_failure);
        let handler = threads::spawn("pager", on_thread, run)
            .map_err(|e| Error::os("no thread can be started", e))?;
        Ok(Self { serving, handler: Some(handler) })
    }

    /// First byte of the memory. The caller answers for how it uses the memory.
    pub fn start_of_memory(&self) -> *mut u8 {
        self.serving.arena().start() as *mut u8
    }

    /// Bytes of memory.
    pub fn len(&self) -> usize {
        self.serving.arena().pages() * PAGE_LEN
    }

    /// Whether there is no memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How pages leave.
    pub fn way(&self) -> Way {
        self.serving.arena().way()
    }

    /// What was counted, with every fault that was answered before this call.
    pub fn stats(&self) -> Summary {
        // A program goes on before its fault is counted: the lock waits until that is done.
        let _counted = self.serving.state();
        self.serving.counters().summary()
    }

    /// Locks all pages in memory that are resident or become so. Fails where that is not allowed.
    pub fn lock(&self) -> Result<(), Errno> {
        without_signals(|| {
            let _still = self.serving.state();
            self.serving.lock()
        })
    }

    /// Whether the pages are locked.
    pub fn is_locked(&self) -> bool {
        self.serving.arena().is_locked()
    }

    /// Runs `work`, which changes how memory is mapped, while no page comes or leaves. `work` gets
    /// the start of the mapping, and its length with the pager's own pages behind it.
    pub fn hold<T>(&self, work: impl FnOnce(usize, usize) -> T) -> T {
        without_signals(|| {
            let _still = self.serving.state();
            let (start, len) = self.serving.arena().mapped();
            work(start, len)
        })
    }

    /// Lets a thread run wherever the program wants, for some faults: the thread is about to start
    /// a thread or a process, or to query its processors. `for_good` if the program itself sets
    /// where the thread runs: then it is never held again.
    pub fn let_go(&self, thread: u32, for_good: bool) {
        without_signals(|| self.serving.let_go(thread, for_good));
    }

    /// Makes some pages zeros for their next access. Nothing is written to the store for that.
    ///
    /// # Safety
    /// No code relies on the contents of the pages, and no other thread uses them meanwhile.
    pub unsafe fn discard(&self, first: usize, pages: usize) -> Result {
        // A signal's handler that touched paged memory would wait for a page that only comes when
        // the lock is free.
        without_signals(|| self.serving.discard(first, pages))
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        if let Some(handler) = self.handler.take() {
            self.serving.arena().ring();
            // The thread ends the process if it fails, so there is no error to report.
            let _ = handler.join();
        }
    }
}

/// A bug must not leave the program waiting for pages that no thread brings any more.
struct EndsTheProcess;

impl Drop for EndsTheProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// Serves faults until the bell is touched.
fn serve(serving: &Serving, on_failure: fn(&Error) -> !) {
    let _ends = EndsTheProcess;
    let clock = Monotonic::start();
    let mut messages = [Message::default(); 16];
    let mut waits = true;
    loop {
        let count = match wait(serving, &mut waits, &mut messages) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(e) => on_failure(&Error::os("userfaultfd tells no faults", e)),
        };
        for message in &messages[..count] {
            let answered = serving.answer(message, &clock);
            wipe_registers();
            match answered {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => on_failure(&e),
            }
        }
    }
}

/// Waits for messages, but not for ever while a thread is held. `waits` is whether the last read
/// waited.
fn wait(serving: &Serving, waits: &mut bool, into: &mut [Message]) -> Result<usize, Errno> {
    let uffd = serving.arena().uffd();
    let is_holding = serving.is_holding();
    if *waits == is_holding {
        uffd.set_waits(!is_holding)?;
        *waits = !is_holding;
    }
    if is_holding && !uffd.has_messages(&REST)? {
        serving.rest();
        return Ok(0);
    }
    uffd.read(into)
}
