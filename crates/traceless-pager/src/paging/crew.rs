//! Refreshes done by several processes: the one that serves faults, and helpers.
//!
//! All take the refreshes that are due from one shared list.
//!
//! A helper may be killed at any moment. Each helper has a [`Desk`] in shared memory: there it
//! notes the refresh that it is about to do, and leaves the bytes that it is about to write. So
//! another process can repeat a refresh that a helper had begun, and write the same bytes.

use super::error::Result;
use super::helper::Parent;
use super::memory::Mapping;
use super::threads::{self, Place};
use crate::scheme::Areas;
use crate::slots::{Buffer, SEALED_LEN};
use core::ops::{Deref, Range};
use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use rustix::thread::futex;
use traceless::clock::{Clock, Monotonic};
use traceless::error::Place as Damaged;

/// How long a helper without work stays awake.
const AWAKE_NS: u64 = 50_000;

/// How long a helper then sleeps, at most, before it checks that the program still runs.
const ASLEEP_S: i64 = 1;

/// Pauses between two checks for work: the program may run on the other half of the same core.
const PAUSES: u32 = 8;

/// Checks for work between two readings of the clock.
const LOOKS: u32 = 16;

/// Refreshes after which a helper publishes its processor time.
const CPU_INTERVAL: u64 = 64;

/// The part of the scheme that helpers share.
pub struct RefreshBoard {
    /// The pages.
    pub areas: Areas,
    /// Which refreshes are due, and how many are done.
    pub board: Board,
}

/// A value on cache lines of its own: one process writes it often, and other ones read it often.
#[repr(align(128))]
pub struct PaddedLine<T>(pub T);

/// The state of all refreshes, shared by all processes. It begins as all zeros.
#[repr(C)]
pub struct Words {
    /// All refreshes below this number are due.
    pub goal: PaddedLine<AtomicU64>,
    /// The next refresh that no process has taken.
    pub next: PaddedLine<AtomicU64>,
    /// How many refreshes are done.
    pub done: PaddedLine<AtomicU64>,
    /// Helpers that sleep, or are about to.
    pub asleep: PaddedLine<AtomicU32>,
    /// Changes when sleeping helpers are to check again.
    pub calls: AtomicU32,
    /// Not 0 when helpers are to end.
    pub ends: AtomicU32,
    /// One more than the refresh that failed; 0 while none has.
    pub failed: AtomicU64,
    /// The error of the operating system that made it fail; 0 if another cause did.
    pub errno: AtomicI32,
    /// Processor time of the helper that used most.
    pub cpu_ns: AtomicU64,
    /// One more than the processor that helpers leave to the program; 0 is none.
    pub off: AtomicU64,
    /// One more than the refresh that no helper completes; 0 is none.
    #[cfg(test)]
    pub stuck_in: AtomicU64,
}

/// The words, in memory that helpers share.
pub struct Board(Mapping);

impl Board {
    /// A board with `done` refreshes done, and none due.
    pub fn new(done: u64) -> Result<Self> {
        let board = Self(Mapping::inherited(size_of::<Words>())?);
        for word in [&board.goal, &board.next, &board.done] {
            word.0.store(done, Relaxed);
        }
        Ok(board)
    }
}

impl Deref for Board {
    type Target = Words;
    fn deref(&self) -> &Words {
        // SAFETY: a mapping of that size, aligned to a page, that lives as long as this; all of it
        // is atomic, and zeros are values of it.
        unsafe { &*self.0.at(0).cast() }
    }
}

/// Where a helper notes its work, in memory that it shares with the other processes.
pub struct Desk(Mapping);

/// The notes of a desk. They begin as all zeros.
#[repr(C)]
struct Notes {
    /// One more than the refresh that is under way; 0 is none.
    refresh: AtomicU64,
    /// Not 0 once the page of that refresh is sealed: the desk holds it, and the helper is writing
    /// it.
    is_sealed: AtomicU32,
}

/// Where the sealed page begins on the desk.
const SEALED_AT: usize = 64;

impl Desk {
    /// A desk without notes.
    pub fn new() -> Result<Self> {
        Ok(Self(Mapping::inherited(SEALED_AT + SEALED_LEN)?))
    }

    fn notes(&self) -> &Notes {
        // SAFETY: a mapping that is longer, aligned to a page, and lives as long as this; all of
        // it is atomic, and zeros are values of it.
        unsafe { &*self.0.at(0).cast() }
    }

    /// The refresh that is under way.
    pub fn refresh(&self) -> Option<u64> {
        self.notes().refresh.load(SeqCst).checked_sub(1)
    }

    /// The sealed page of the refresh that is under way, which may be written in part. For the
    /// other processes, once the helper has ended.
    pub fn sealed(&self) -> Option<&[u8]> {
        let is_sealed = self.notes().is_sealed.load(SeqCst) != 0;
        // SAFETY: that many bytes of the mapping, which no process changes any more.
        is_sealed.then(|| unsafe { core::slice::from_raw_parts(self.0.at(SEALED_AT), SEALED_LEN) })
    }

    fn begin(&self, refresh: u64) {
        self.notes().refresh.store(refresh + 1, SeqCst);
    }

    fn seal(&self, sealed: &[u8]) {
        // SAFETY: as many bytes of the mapping, which no process reads before the flag is set.
        unsafe {
            core::ptr::copy_nonoverlapping(sealed.as_ptr(), self.0.at(SEALED_AT), SEALED_LEN);
        }
        self.notes().is_sealed.store(1, SeqCst);
    }

    fn clear(&self) {
        self.notes().is_sealed.store(0, SeqCst);
        self.notes().refresh.store(0, SeqCst);
    }
}

impl RefreshBoard {
    /// The loop of a helper: refreshes until it is to end.
    pub fn help(&self, parent: &Parent, desk: &Desk, buffer: &mut Buffer) {
        let (clock, board) = (Monotonic::start(), &*self.board);
        let (mut place, mut off) = (Place::anywhere(), 0);
        let (mut idle_since, mut looks) = (clock.now(), 0);
        while board.ends.load(Relaxed) == 0 {
            if off != board.off.load(Relaxed) {
                off = board.off.load(Relaxed);
                place.keep_off(off.checked_sub(1).map(|cpu| cpu as usize));
            }
            if self.refresh_one(Some(desk), buffer) {
                looks = 0;
                continue;
            }
            for _ in 0..PAUSES {
                core::hint::spin_loop();
            }
            looks += 1;
            if looks == 1 {
                idle_since = clock.now();
            } else if looks % LOOKS == 0 && clock.now() - idle_since > AWAKE_NS {
                self.sleep();
                looks = 0;
                if !parent.is_there() {
                    return;
                }
            }
        }
    }

    /// Sleeps until there is work, or for a second.
    fn sleep(&self) {
        let board = &*self.board;
        board.cpu_ns.fetch_max(threads::cpu_ns(), Relaxed);
        let call = board.calls.load(SeqCst);
        board.asleep.0.fetch_add(1, SeqCst);
        // The process that sets the goal reads `asleep` afterwards, so it sees this helper, or this
        // helper sees the goal.
        if board.goal.0.load(SeqCst) == board.next.0.load(SeqCst) && board.ends.load(SeqCst) == 0 {
            let second = rustix::time::Timespec { tv_sec: ASLEEP_S, tv_nsec: 0 };
            // However the wait ends, the helper checks for work next.
            let _ = futex::wait(&board.calls, futex::Flags::empty(), call, Some(&second));
        }
        board.asleep.0.fetch_sub(1, SeqCst);
    }

    /// Does one refresh that is due, if there is one that no process has taken.
    pub fn refresh_one(&self, desk: Option<&Desk>, buffer: &mut Buffer) -> bool {
        let board = &*self.board;
        let nth = board.next.0.load(Relaxed);
        // `Acquire`: what the page's slot follows from was written before the goal was set.
        if nth >= board.goal.0.load(Acquire) {
            return false;
        }
        // The note comes before the refresh is taken, so that no refresh is taken without a note.
        desk.inspect(|desk| desk.begin(nth));
        if board.next.0.compare_exchange(nth, nth + 1, AcqRel, Relaxed).is_ok() {
            if let Err(e) = self.refresh(nth, desk, buffer) {
                board.errno.store(errno_of(&e), Relaxed);
                board.failed.store(nth + 1, Release);
            }
            board.done.0.fetch_add(1, Release);
            if nth.is_multiple_of(CPU_INTERVAL) {
                board.cpu_ns.fetch_max(threads::cpu_ns(), Relaxed);
            }
        }
        desk.inspect(|desk| desk.clear());
        true
    }

    fn refresh(&self, nth: u64, desk: Option<&Desk>, buffer: &mut Buffer) -> traceless::Result {
        let Some(desk) = desk else { return self.areas.refresh(nth, buffer) };
        self.areas.prepare(nth, buffer)?;
        desk.seal(buffer.bytes());
        #[cfg(test)]
        while self.board.stuck_in.load(SeqCst) == nth + 1 {
            core::hint::spin_loop();
        }
        self.areas.publish(nth, buffer.bytes())
    }

    /// Repeats the refresh that an ended helper had begun, if it is one of `due` and is not done.
    pub fn take_over(
        &self,
        desk: &Desk,
        due: &Range<u64>,
        buffer: &mut Buffer,
    ) -> traceless::Result {
        let Some(nth) = desk.refresh().filter(|nth| due.contains(nth)) else { return Ok(()) };
        if self.areas.is_published(nth, buffer) {
            return Ok(());
        }
        match desk.sealed() {
            Some(sealed) => self.areas.publish(nth, sealed),
            // The helper had written nothing before it sealed the page.
            None => self.areas.refresh(nth, buffer),
        }
    }

    /// Why a refresh failed: the store did; or its own page, or the newest copy of it, was changed.
    pub fn failure(&self, refresh: u64) -> traceless::Error {
        match self.board.errno.load(Relaxed) {
            0 => {
                let page = refresh % self.areas.pages();
                let place = Damaged { area: "pages", slot: page, block: Some(page) };
                traceless::Error::Tampered { place }
            }
            errno => traceless::Error::Io(std::io::Error::from_raw_os_error(errno)),
        }
    }
}

/// The error of the operating system, or 0 if another cause failed. A file that ends too early has
/// no number: it counts as `EIO`.
fn errno_of(error: &traceless::Error) -> i32 {
    match error {
        traceless::Error::Io(e) => e.raw_os_error().unwrap_or(libc::EIO),
        _ => 0,
    }
}
