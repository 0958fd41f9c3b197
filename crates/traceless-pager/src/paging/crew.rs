//! Who does refreshes: whoever serves faults, and helpers, from one list of what is due.
//!
//! A helper may be killed at any moment. Each has a desk, which the others can look at: there it
//! notes what it is about to do, and leaves what it is about to write. So whatever it had begun can
//! be done again, and be the same.

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

/// How long it then sleeps, at most, before it looks whether the program is still there.
const ASLEEP_S: i64 = 1;

/// Pauses between two looks for work: the program may run on the other half of the same core.
const PAUSES: u32 = 8;

/// Looks for work between two looks at the clock.
const LOOKS: u32 = 16;

/// Refreshes after which a helper tells its processor time.
const CPU_INTERVAL: u64 = 64;

/// What all of them have.
pub struct RefreshBoard {
    /// The pages.
    pub areas: Areas,
    /// What is due, and what is done.
    pub board: Board,
}

/// What one writes often and others read often, on a line of its own.
#[repr(align(128))]
pub struct PaddedLine<T>(pub T);

/// What the crew tells each other. All zeros is how it begins.
#[repr(C)]
pub struct Words {
    /// All refreshes below it are to be done.
    pub goal: PaddedLine<AtomicU64>,
    /// The next one that nobody does yet.
    pub next: PaddedLine<AtomicU64>,
    /// How many are done.
    pub done: PaddedLine<AtomicU64>,
    /// Helpers that sleep, or are about to.
    pub asleep: PaddedLine<AtomicU32>,
    /// Changes when sleepers are to look again.
    pub calls: AtomicU32,
    /// Not 0 when helpers are to end.
    pub ends: AtomicU32,
    /// One more than the refresh that failed; 0 while none has.
    pub failed: AtomicU64,
    /// What the operating system said to it, if it was asked; else 0.
    pub errno: AtomicI32,
    /// Processor time of the helper that took most.
    pub cpu_ns: AtomicU64,
    /// One more than the processor that helpers leave to the program; 0 is none.
    pub off: AtomicU64,
    /// One more than the refresh that no helper gets through; 0 is none.
    #[cfg(test)]
    pub stuck_in: AtomicU64,
}

/// The words, in memory that helpers share.
pub struct Board(Mapping);

impl Board {
    /// With so many refreshes done, and none due.
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

/// Where a helper notes what it does, in memory that others share.
pub struct Desk(Mapping);

/// What lies on a desk. All zeros is how it begins.
#[repr(C)]
struct Notes {
    /// One more than the refresh that is under way; 0 is none.
    refresh: AtomicU64,
    /// Not 0 when that is sealed, lies here as it is to be written, and is being written.
    is_sealed: AtomicU32,
}

/// Where on the desk lies what is sealed.
const SEALED_AT: usize = 64;

impl Desk {
    /// With nothing on it.
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

    /// That is sealed, and may be written in part: what is to be written. For who does not work
    /// here, when whoever did has ended.
    pub fn sealed(&self) -> Option<&[u8]> {
        let is_sealed = self.notes().is_sealed.load(SeqCst) != 0;
        // SAFETY: that many bytes of the mapping, which nobody changes any more.
        is_sealed.then(|| unsafe { core::slice::from_raw_parts(self.0.at(SEALED_AT), SEALED_LEN) })
    }

    fn begin(&self, refresh: u64) {
        self.notes().refresh.store(refresh + 1, SeqCst);
    }

    fn seal(&self, sealed: &[u8]) {
        // SAFETY: as many bytes of the mapping, which nobody else looks at before it is said.
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
    /// A helper's life.
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
        // Whoever sets the goal looks for sleepers after that: one of both sees the other.
        if board.goal.0.load(SeqCst) == board.next.0.load(SeqCst) && board.ends.load(SeqCst) == 0 {
            let second = rustix::time::Timespec { tv_sec: ASLEEP_S, tv_nsec: 0 };
            // However it ends, there is a look for work.
            let _ = futex::wait(&board.calls, futex::Flags::empty(), call, Some(&second));
        }
        board.asleep.0.fetch_sub(1, SeqCst);
    }

    /// Does one refresh that is due, if there is one that nobody does yet.
    pub fn refresh_one(&self, desk: Option<&Desk>, buffer: &mut Buffer) -> bool {
        let board = &*self.board;
        let nth = board.next.0.load(Relaxed);
        // What the page's place follows from was written before the goal was set.
        if nth >= board.goal.0.load(Acquire) {
            return false;
        }
        // Noted before it is taken: nothing is taken that is not noted.
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

    /// Does again what somebody had begun who has ended, if it is one of these, and is not done.
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
            // Before that nothing was written.
            None => self.areas.refresh(nth, buffer),
        }
    }

    /// Why a refresh failed: the store did; or its own page, or the copy of it that was the newest,
    /// is not what it was.
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

/// What the operating system said, or 0 if it was not asked. A file that ends too early is told by
/// none of its numbers.
fn errno_of(error: &traceless::Error) -> i32 {
    match error {
        traceless::Error::Io(e) => e.raw_os_error().unwrap_or(libc::EIO),
        _ => 0,
    }
}
