//! A copy of the process that a thread of it pages has all pages, and shares none.

use super::elsewhere::{READ_WRITE, map, page_at, pages, protect};
use crate::PAGE_LEN;
use crate::paging::refresh::helper::FORK_TURN;
use crate::paging::{
    Config, EvictMethod, Pager, PagerThread, PagesCopy, Policy, Ranges, Scheme, Settings,
};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use libc::{PROT_NONE, PROT_READ};
use std::sync::PoisonError;

const PAGES: usize = 96;
/// Pages of the pager's own memory, and of memory elsewhere, that hold something.
const OWN: usize = 48;
const ELSEWHERE: usize = 24;

/// Paged memory: the pager's own, and some elsewhere.
struct Memory {
    pager: Pager,
    settings: Settings,
    elsewhere: Ranges,
}

/// The outcome in a copy, as its exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Right = 0,
    NotStarted,
    EarlyPage,
    Contents,
    Protection,
    Writes,
}

impl Memory {
    fn new(settings: Settings, config: Config) -> Self {
        let (scheme, _) = settings.build_first().unwrap();
        let pager = Pager::start(scheme, Config { frames: settings.resident, ..config }).unwrap();
        let range = pages(map(0, (ELSEWHERE + 8) * PAGE_LEN, READ_WRITE, 0), ELSEWHERE + 8);
        pager.register(&range).unwrap();
        let mut elsewhere = Ranges::default();
        elsewhere.add(range);
        Self { pager, settings, elsewhere }
    }

    /// The first address elsewhere.
    fn other(&self) -> usize {
        self.elsewhere.iter().next().unwrap().start
    }

    /// The pages that hold something.
    fn used(&self) -> impl Iterator<Item = usize> + use<> {
        let all =
            [pages(self.pager.start_of_memory() as usize, OWN), pages(self.other(), ELSEWHERE)];
        all.into_iter().flat_map(|range| range.step_by(PAGE_LEN))
    }

    fn fill(&self, seed: u64) {
        self.used().zip(seed..).for_each(|(page, number)| set(page, number));
    }

    fn holds(&self, seed: u64) -> bool {
        self.used().zip(seed..).all(|(page, number)| get(page) == number)
    }

    /// What a copy finds, in which the page at `early` is touched before it has a pager, and
    /// `wiped` is zeros.
    fn copy(&self, early: usize, wiped: &Range<usize>) -> Outcome {
        let mut copy = PagesCopy::prepare(&self.settings, "copy").unwrap();
        let mut all_wiped = Ranges::default();
        all_wiped.add(wiped.clone());
        let turn = FORK_TURN.lock().unwrap_or_else(PoisonError::into_inner);
        copy.fill(&self.pager, &self.elsewhere, &all_wiped).unwrap();
        // SAFETY: the copy does what a program's own does: it starts threads, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let outcome = self.in_child(copy, early, wiped);
            // SAFETY: it ends the copy at once.
            unsafe { libc::_exit(outcome as i32) };
        }
        copy.end_in_program(&self.pager);
        drop(turn);
        let status = status_of(child);
        assert!(libc::WIFEXITED(status), "{status:x}");
        let all = [
            Outcome::NotStarted,
            Outcome::EarlyPage,
            Outcome::Contents,
            Outcome::Protection,
            Outcome::Writes,
        ];
        let is = |outcome: &Outcome| *outcome as i32 == libc::WEXITSTATUS(status);
        all.into_iter().find(is).unwrap_or(Outcome::Right)
    }

    fn in_child(&self, mut copy: PagesCopy, early: usize, wiped: &Range<usize>) -> Outcome {
        copy.reserve();
        let is_early = copy.bring_early(early + 8) && !copy.bring_early(early);
        if !is_early || copy.bring_early(0) || get(early) != 100 + self.nth(early) {
            return Outcome::EarlyPage;
        }
        set(early, 999);
        let config = Config { frames: 8, ..Config::default() };
        let Ok((_pager, _)) =
            PagerThread::start(&config, false).and_then(|thread| copy.start(thread, config))
        else {
            return Outcome::NotStarted;
        };
        let is_right = |(page, number): (usize, u64)| {
            let expected = match page {
                page if page == early => 999,
                page if wiped.contains(&page) => 0,
                _ => number,
            };
            get(page) == expected
        };
        if !self.used().zip(100..).all(is_right) {
            return Outcome::Contents;
        }
        if is_writable(self.other() + ELSEWHERE * PAGE_LEN) || !is_writable(self.other()) {
            return Outcome::Protection;
        }
        self.fill(200);
        if self.holds(200) { Outcome::Right } else { Outcome::Writes }
    }

    fn nth(&self, page: usize) -> u64 {
        self.used().position(|used| used == page).unwrap() as u64
    }
}

/// How a child ended.
fn status_of(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}

fn get(page: usize) -> u64 {
    u64::from_le_bytes(*page_at(page)[8..].first_chunk().unwrap())
}

fn set(page: usize, number: u64) {
    page_at(page)[8..16].copy_from_slice(&number.to_le_bytes());
}

/// Whether the kernel may write to a page for this process.
fn is_writable(page: usize) -> bool {
    // SAFETY: the kernel writes a byte there, if it may.
    unsafe {
        let zero = libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY);
        let read = libc::read(zero, page as *mut _, 1);
        libc::close(zero);
        read == 1
    }
}

/// Copies a program's memory with these settings.
fn copies_are_right(settings: Settings, config: Config) {
    let name = settings.scheme.name();
    let memory = Memory::new(settings, config);
    let other = memory.other();
    protect(&pages(other + ELSEWHERE * PAGE_LEN, 4), PROT_READ);
    protect(&pages(other + (ELSEWHERE + 4) * PAGE_LEN, 4), PROT_NONE);
    let own = memory.pager.start_of_memory() as usize;
    memory.fill(100);
    for (early, wiped) in [
        (own, pages(own + 3 * PAGE_LEN, 5)),
        (own + (OWN - 1) * PAGE_LEN, pages(other + PAGE_LEN, 2)),
        (other + 5 * PAGE_LEN, pages(other, 1)),
    ] {
        assert_eq!(memory.copy(early, &wiped), Outcome::Right, "{name}");
        assert!(memory.holds(100), "{name}");
    }
    memory.fill(300);
    assert!(memory.holds(300), "{name}");
}

fn settings(scheme: Scheme) -> Settings {
    Settings { resident: 16, pages: PAGES, scheme, ..Settings::default() }
}

#[test]
fn a_copy_has_all_pages_and_shares_none_for_every_scheme() {
    for scheme in Scheme::ALL {
        copies_are_right(settings(scheme), Config::default());
    }
}

#[test]
fn a_copy_has_all_pages_however_pages_leave() {
    let clock = Config { policy: Policy::Clock, ..Config::default() };
    let protect = Config { evict_method: Some(EvictMethod::Protect), ..Config::default() };
    for config in [clock, protect] {
        copies_are_right(settings(Scheme::DetWo), config);
    }
}

/// A thread writes to the first page, and then to the last. In a copy they differ by one write at
/// most, as they do at any moment, though the pages between them are copied meanwhile.
#[test]
fn a_copy_is_of_one_moment() {
    let memory = Memory::new(settings(Scheme::DetWo), Config::default());
    memory.fill(100);
    let (first, last) = (memory.used().next().unwrap(), memory.used().last().unwrap());
    let is_done = AtomicBool::new(false);
    set(first, 0);
    set(last, 0);
    let write = |page: usize, number| {
        // SAFETY: an aligned word of the memory, which one thread writes to.
        unsafe { AtomicU64::from_ptr((page + 8) as *mut u64) }.store(number, SeqCst);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                write(first, number);
                write(last, number);
                if is_done.load(SeqCst) {
                    break;
                }
            }
        });
        let is_right = (0..20).all(|_| {
            let turn = FORK_TURN.lock().unwrap_or_else(PoisonError::into_inner);
            let mut copy = PagesCopy::prepare(&memory.settings, "moment").unwrap();
            copy.fill(&memory.pager, &memory.elsewhere, &Ranges::default()).unwrap();
            // SAFETY: the copy reads two pages, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                copy.reserve();
                let is_there = copy.bring_early(first) && copy.bring_early(last);
                let is_right = is_there && get(first).wrapping_sub(get(last)) <= 1;
                // SAFETY: it ends the copy at once.
                unsafe { libc::_exit(i32::from(!is_right)) };
            }
            copy.end_in_program(&memory.pager);
            drop(turn);
            status_of(child) == 0
        });
        is_done.store(true, SeqCst);
        assert!(is_right);
    });
}
