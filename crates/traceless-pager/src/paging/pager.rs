//! Serves page faults by a thread of the program.

use super::config::Config;
use super::counters::Summary;
use super::error::{Error, Result};
use super::faults::affinity::UNPIN_AFTER;
use super::faults::eviction::standby_places;
use super::faults::frames::Frames;
use super::faults::pace::Pace;
use super::faults::page_numbers::PageNumbers;
use super::faults::service::{FRAMES_MIN, FaultService};
use super::kernel::arena::Arena;
use super::kernel::evict::EvictMethod;
use super::kernel::locking::wipe_registers;
use super::kernel::threads::{self, without_signals};
use super::kernel::uffd::Message;
use super::unpaged::Unpaged;
use crate::PAGE_LEN;
use crate::scheme::PageScheme;
use core::ops::Range;
use rustix::io::Errno;
use rustix::time::Timespec;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use traceless::Hides;
use traceless::clock::Monotonic;

/// Paged memory and the thread that serves its faults.
pub struct Pager {
    service: Arc<FaultService>,
    handler: Option<JoinHandle<()>>,
}

/// A thread that will serve faults.
pub struct PagerThread {
    service: Sender<Arc<FaultService>>,
    handle: JoinHandle<()>,
}

impl PagerThread {
    /// Starts the thread for a pager of this configuration. If it `may_fault`, the C library may
    /// touch memory without a pager as the thread begins, which SIGSEGV reports.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(config: &Config, may_fault: bool) -> Result<Self> {
        let (sender, receiver) = channel::<Arc<FaultService>>();
        let on_failure = config.on_failure;
        let run = move || {
            if let Ok(service) = receiver.recv() {
                serve(&service, on_failure);
            }
        };
        let spawn = if may_fault { threads::spawn_with_early_faults } else { threads::spawn };
        let handle = spawn("pager", config.on_thread, run)
            .map_err(|e| Error::os("no thread can be started", e))?;
        Ok(Self { service: sender, handle })
    }

    fn serve(self, service: Arc<FaultService>) -> JoinHandle<()> {
        // The thread waits for it.
        let _ = self.service.send(service);
        self.handle
    }
}

impl Pager {
    /// Paged memory of as many pages as `scheme` has, all zeros.
    pub fn start(scheme: Box<dyn PageScheme>, config: Config) -> Result<Self> {
        let thread = PagerThread::start(&config, false)?;
        Self::start_with(scheme, None, thread, config)
    }

    /// Paged memory with what `scheme` holds: the pages are where `numbers` says, or in their
    /// order.
    pub(super) fn start_with(
        scheme: Box<dyn PageScheme>,
        numbers: Option<PageNumbers>,
        thread: PagerThread,
        config: Config,
    ) -> Result<Self> {
        if config.frames < FRAMES_MIN {
            return Err(Error::Configuration("at least 8 pages must be resident"));
        }
        check_pace(config.pace, &*scheme)?;
        let method = config.evict_method.map_or_else(EvictMethod::probe, Ok)?;
        let pages = scheme.pages() as usize;
        let places = standby_places(&config, method)?;
        let frames = Frames::new(pages, config.frames, config.policy, config.seed);
        let arena = Arena::new(pages, places, &config, method)?;
        let service = Arc::new(FaultService::new(arena, scheme, frames, places, config));
        if let Some(numbers) = numbers {
            service.inherit_numbers(numbers);
        }
        let handler = thread.serve(service.clone());
        Ok(Self { service, handler: Some(handler) })
    }

    /// Copies all pages into a scheme, and returns where they are in the program.
    pub(super) fn copy_to(
        &self,
        scheme: &mut dyn PageScheme,
        ranges: &[Range<usize>],
        is_zeros: impl Fn(usize) -> bool,
    ) -> Result<PageNumbers> {
        without_signals(|| self.service.copy_own_to(scheme, ranges, is_zeros))
    }

    /// Lets all threads go on after the fork for which pages were copied.
    pub fn end_fork(&self, ranges: &[Range<usize>]) {
        without_signals(|| self.service.end_fork(ranges));
    }

    /// First byte of the memory. The caller answers for how it uses the memory.
    pub fn start_of_memory(&self) -> *mut u8 {
        self.service.arena().start() as *mut u8
    }

    /// Bytes of memory.
    pub fn len(&self) -> usize {
        self.service.arena().pages() * PAGE_LEN
    }

    /// Whether there is no memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How pages leave.
    pub fn evict_method(&self) -> EvictMethod {
        self.service.arena().evict_method()
    }

    /// What was counted, with every fault that was answered before this call.
    pub fn stats(&self) -> Summary {
        // A program goes on before its fault is counted: the lock waits until that is done.
        let _counted = self.service.state();
        self.service.counters().summary()
    }

    /// Notes how much of this process's own memory is not paged; `is_pagers` knows the pager's own
    /// mappings by their starts and names. Where `/proc` cannot be read nothing is noted.
    pub fn note_unpaged(&self, is_pagers: impl Fn(usize, &str) -> bool) {
        let list = std::fs::File::open("/proc/self/smaps").map(std::io::BufReader::new);
        if let Ok(unpaged) = list.and_then(|list| Unpaged::read(list, is_pagers)) {
            self.service.counters().note_unpaged(unpaged);
        }
    }

    /// Notes as much as another pager has: this process is a copy of that pager's.
    pub fn note_unpaged_of(&self, other: &Self) {
        self.service.counters().note_unpaged(other.service.counters().unpaged());
    }

    /// Locks all pages in memory that are resident or become so. Fails where that is not allowed.
    pub fn lock(&self) -> Result<(), Errno> {
        without_signals(|| {
            let _paused = self.service.state();
            self.service.lock()
        })
    }

    /// Whether the pages are locked.
    pub fn is_locked(&self) -> bool {
        self.service.arena().is_locked()
    }

    /// Runs `work`, which changes how memory is mapped, while no page comes or leaves. `work` gets
    /// the start of the mapping, and its length with the pager's own pages behind it.
    pub fn while_paused<T>(&self, work: impl FnOnce(usize, usize) -> T) -> T {
        without_signals(|| {
            let _paused = self.service.state();
            let (start, len) = self.service.arena().mapping_range();
            work(start, len)
        })
    }

    /// Lets a thread run wherever the program wants, for some faults: the thread is about to start
    /// a thread or a process, or to query its processors. `for_good` if the program itself sets
    /// where the thread runs: then it is never pinned again.
    pub fn unpin_thread(&self, thread: u32, for_good: bool) {
        without_signals(|| self.service.unpin_thread(thread, for_good));
    }

    /// Pages memory of this process beside the pager's own, which is private, has no name, and was
    /// not touched yet. Its pages are among as many as the scheme has, from when they are touched.
    ///
    /// # Errors
    /// [`Error::Unlocked`] if the pager's own memory is locked, and this cannot be; or the kernel's
    /// refusal. Then the memory is not paged.
    pub fn register(&self, range: &Range<usize>) -> Result {
        without_signals(|| self.service.allow_anywhere());
        self.service.arena().register(range.start, range.len())
    }

    /// Lets pages that may be written and executed leave as fast as other pages. Called before the
    /// program has any.
    pub fn prepare_executable(&self) {
        self.service.arena().prepare_executable();
    }

    /// Runs `change`, which unmaps the memory of a range, replaces it or makes it zeros, and
    /// returns whether it did. No page moves meanwhile. Returns the same.
    ///
    /// # Errors
    /// The kernel's refusal to discard pages that are on the standby list.
    pub fn replace(&self, range: &Range<usize>, change: impl FnOnce() -> bool) -> Result<bool> {
        without_signals(|| self.service.replace(range, change))
    }

    /// Runs `change`, which moves the memory of a range to the one that it returns, or resizes it.
    /// No page moves meanwhile. Returns the same. Memory that has moved must be registered again.
    ///
    /// # Errors
    /// As of [`replace`](Self::replace).
    pub fn relocate(
        &self,
        from: &Range<usize>,
        change: impl FnOnce() -> Option<Range<usize>>,
    ) -> Result<Option<Range<usize>>> {
        without_signals(|| self.service.relocate(from, change))
    }

    /// Makes some pages zeros for their next access. Nothing is written to the store for that.
    ///
    /// # Safety
    /// No code relies on the contents of the pages, and no other thread uses them meanwhile.
    pub unsafe fn discard(&self, first: usize, pages: usize) -> Result {
        // A signal's handler that touched paged memory would wait for a page that only comes when
        // the lock is free.
        without_signals(|| self.service.discard(first, pages))
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        if let Some(handler) = self.handler.take() {
            self.service.arena().signal_shutdown();
            // The thread ends the process if it fails, so there is no error to report.
            let _ = handler.join();
        }
    }
}

/// Refuses a constant rate for a scheme that shows which pages come and leave at any rate.
pub(super) fn check_pace(pace: Option<Pace>, scheme: &dyn PageScheme) -> Result {
    if pace.is_some() && scheme.hides() == Hides::Nothing {
        return Err(Error::Configuration("a scheme that hides nothing has no constant rate"));
    }
    Ok(())
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

/// Serves faults until the shutdown page is touched.
fn serve(service: &FaultService, on_failure: fn(&Error) -> !) {
    let _ends = EndsTheProcess;
    let clock = Monotonic::start();
    service.start_ticks(&clock);
    let mut messages = [Message::default(); 16];
    let mut blocking = true;
    loop {
        let count = match wait(service, &clock, &mut blocking, &mut messages) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(e) => on_failure(&Error::os("userfaultfd tells no faults", e)),
        };
        for message in &messages[..count] {
            let answered = service.answer(message, &clock);
            wipe_registers();
            match answered {
                Ok(true) => {}
                Ok(false) => {
                    return service.finish_ticks(&clock).unwrap_or_else(|e| on_failure(&e));
                }
                Err(e) => on_failure(&e),
            }
        }
        if let Err(e) = service.tick_if_due(&clock) {
            on_failure(&e);
        }
        wipe_registers();
    }
}

/// Waits for messages, but no longer than to the next tick, and not for ever while a thread is
/// pinned. `blocking` is whether the last read could wait.
fn wait(
    service: &FaultService,
    clock: &Monotonic,
    blocking: &mut bool,
    into: &mut [Message],
) -> Result<usize, Errno> {
    let uffd = service.arena().uffd();
    let to_tick = service.ns_to_tick(clock).map(timespec);
    let limit = to_tick.or_else(|| service.has_pinned_thread().then_some(UNPIN_AFTER));
    if *blocking == limit.is_some() {
        uffd.set_blocking(limit.is_none())?;
        *blocking = limit.is_none();
    }
    if let Some(limit) = limit
        && !uffd.wait_for_messages(&limit)?
    {
        service.unpin_idle_thread();
        return Ok(0);
    }
    uffd.read(into)
}

/// Nanoseconds as the kernel takes them.
pub(super) fn timespec(ns: u64) -> Timespec {
    Timespec::try_from(Duration::from_nanos(ns)).expect("584 years are a time for the kernel")
}
