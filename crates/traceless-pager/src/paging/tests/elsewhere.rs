//! Memory beside the pager's own, at any address and with any protection, behaves like memory.

use super::{EVICT_METHODS, detwo, plain};
use crate::PAGE_LEN;
use crate::paging::{Config, EvictMethod, Lock, Pager, Policy};
use crate::scheme::PageScheme;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use libc::{MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_EXEC, PROT_NONE, PROT_READ};
use traceless::rng::{Rng, SeededRng};

pub(super) const READ_WRITE: i32 = PROT_READ | libc::PROT_WRITE;

/// Pages of a reservation, of which the scheme has fewer.
const RESERVED: usize = 1024;

pub(super) fn map(at: usize, len: usize, protection: i32, flags: i32) -> usize {
    let flags = flags | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: fresh memory, in the place of memory of the test's at most.
    let mapped = unsafe { libc::mmap(at as *mut _, len, protection, flags, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    mapped as usize
}

/// A range of whole pages from an address on.
pub(super) fn pages(start: usize, count: usize) -> Range<usize> {
    start..start + count * PAGE_LEN
}

/// Reserves pages, and has them paged.
fn reserve(pager: &Pager, count: usize) -> Range<usize> {
    let range = pages(map(0, count * PAGE_LEN, PROT_NONE, 0), count);
    pager.register(&range).unwrap();
    range
}

pub(super) fn protect(range: &Range<usize>, protection: i32) {
    // SAFETY: memory of the test's.
    let done = unsafe { libc::mprotect(range.start as *mut _, range.len(), protection) };
    assert_eq!(done, 0);
}

pub(super) fn page_at<'a>(address: usize) -> &'a mut [u8; PAGE_LEN] {
    // SAFETY: a page of the test's, which is mapped and which no other reference is to.
    unsafe { &mut *(address as *mut [u8; PAGE_LEN]) }
}

fn discard(pager: &Pager, range: &Range<usize>) {
    // SAFETY: memory of the test's.
    let advise = || unsafe {
        libc::madvise(range.start as *mut _, range.len(), libc::MADV_DONTNEED_LOCKED) == 0
    };
    assert!(pager.replace(range, advise).unwrap());
}

fn unmap(pager: &Pager, range: &Range<usize>) {
    // SAFETY: memory of the test's, which is not used any more.
    let unmap = || unsafe { libc::munmap(range.start as *mut _, range.len()) == 0 };
    assert!(pager.replace(range, unmap).unwrap());
}

/// Moves a page to another address, and returns that.
fn relocate(pager: &Pager, from: usize) -> usize {
    let moved = pager.relocate(&pages(from, 1), || {
        let place = map(0, PAGE_LEN, PROT_NONE, 0);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: from memory of the test's to a place that is free for it.
        let to = unsafe { libc::mremap(from as *mut _, PAGE_LEN, PAGE_LEN, flags, place) };
        (to as usize == place).then_some(pages(place, 1))
    });
    let to = moved.unwrap().unwrap();
    assert_ne!(to.start, from);
    pager.register(&to).unwrap();
    to.start
}

fn pager(scheme: Box<dyn PageScheme>, method: EvictMethod, policy: Policy) -> Pager {
    let config = Config { frames: 12, evict_method: Some(method), policy, ..Config::default() };
    Pager::start(scheme, config).unwrap()
}

/// Writes, protects, discards and moves 100 pages of a reservation, and compares all with an array.
fn agrees_with_an_array(pager: &Pager, seed: u64) {
    const PROTECTIONS: [i32; 5] =
        [READ_WRITE, PROT_NONE, PROT_READ, PROT_READ | PROT_EXEC, READ_WRITE | PROT_EXEC];
    let reserved = reserve(pager, RESERVED);
    let mut at: Vec<usize> = (0..100).map(|nth| reserved.start + nth * 10 * PAGE_LEN).collect();
    let (mut truth, mut protection) = ([0_u8; 100], [READ_WRITE; 100]);
    for &start in &at {
        protect(&pages(start, 1), READ_WRITE);
    }
    let mut rng = SeededRng::new(seed);
    for step in 0..3000 {
        let nth = rng.below(100) as usize;
        if protection[nth] & PROT_READ != 0 {
            let is_right = page_at(at[nth]).iter().all(|&byte| byte == truth[nth]);
            assert!(is_right, "step {step}, page {nth}");
        }
        match rng.below(100) {
            0..40 if protection[nth] & READ_WRITE == READ_WRITE => {
                truth[nth] = step as u8;
                page_at(at[nth]).fill(step as u8);
            }
            40..80 => {
                protection[nth] = PROTECTIONS[rng.below(PROTECTIONS.len() as u64) as usize];
                protect(&pages(at[nth], 1), protection[nth]);
            }
            80..90 => {
                truth[nth] = 0;
                discard(pager, &pages(at[nth], 1));
            }
            90..95 => at[nth] = relocate(pager, at[nth]),
            _ => {}
        }
    }
    for (&start, truth) in at.iter().zip(&truth) {
        protect(&pages(start, 1), PROT_READ);
        assert!(page_at(start).iter().all(|byte| byte == truth));
        unmap(pager, &pages(start, 1));
    }
    unmap(pager, &reserved);
}

#[test]
fn reservations_are_memory_for_every_method_and_policy() {
    for method in EVICT_METHODS {
        for policy in Policy::ALL {
            if policy == Policy::Clock && method == EvictMethod::Protect {
                continue;
            }
            let pager = pager(detwo(128), method, policy);
            pager.prepare_executable();
            agrees_with_an_array(&pager, 1);
            let stats = pager.stats();
            assert!(stats.evictions > 500, "{stats:?}");
            assert_eq!((stats.resident, stats.outside), (0, 0), "all was unmapped");
        }
    }
}

/// Pages take numbers of the scheme's only when they are touched, and give them back.
#[test]
fn more_is_reserved_than_the_scheme_has_pages() {
    let pager = pager(plain(64), EvictMethod::probe().unwrap(), Policy::Fifo);
    let reserved = reserve(&pager, RESERVED);
    for first in [0, 300, RESERVED - 64] {
        let used = pages(reserved.start + first * PAGE_LEN, 64);
        let all = || used.clone().step_by(PAGE_LEN);
        protect(&used, READ_WRITE);
        all().for_each(|at| page_at(at).fill(at as u8 | 1));
        all().for_each(|at| assert_eq!(*page_at(at), [at as u8 | 1; PAGE_LEN]));
        discard(&pager, &reserved);
        all().for_each(|at| assert_eq!(page_at(at)[7], 0));
        let len = reserved.len();
        let replace = || map(reserved.start, len, PROT_NONE, MAP_FIXED) == reserved.start;
        assert!(pager.replace(&reserved, replace).unwrap());
        pager.register(&reserved).unwrap();
    }
    let stats = pager.stats();
    assert!(stats.resident_max <= 12 && stats.evictions > 300, "{stats:?}");
    unmap(&pager, &reserved);
}

/// A program unmaps paged memory without the pager, and other memory lies there afterwards.
#[test]
fn no_page_is_taken_from_what_took_the_place_of_paged_memory() {
    for method in EVICT_METHODS {
        // From memory that is not locked, as the other one is not, pages could be moved.
        let (evict_method, lock) = (Some(method), Lock::Off);
        let config = Config { frames: 12, evict_method, lock, ..Config::default() };
        let pager = Pager::start(plain(64), config).unwrap();
        let [gone, used] = [(); 2].map(|()| reserve(&pager, 16));
        protect(&gone, READ_WRITE);
        protect(&used, READ_WRITE);
        // All pages of the first one are in memory when it goes.
        gone.clone().step_by(PAGE_LEN).take(8).for_each(|at| page_at(at).fill(1));
        assert_eq!(map(gone.start, gone.len(), READ_WRITE, MAP_FIXED), gone.start);
        gone.clone().step_by(PAGE_LEN).for_each(|at| page_at(at).fill(2));
        for _ in 0..3 {
            used.clone().step_by(PAGE_LEN).for_each(|at| page_at(at)[0] += 1);
        }
        assert!(gone.clone().step_by(PAGE_LEN).all(|at| *page_at(at) == [2; PAGE_LEN]));
        used.clone().step_by(PAGE_LEN).for_each(|at| assert_eq!(page_at(at)[0], 3));
        unmap(&pager, &used);
        unmap(&pager, &gone);
    }
}

/// One thread counts on a page of a reservation, while another one makes pages leave, and a third
/// one changes what the page may be used for.
#[test]
fn no_update_is_lost_while_protection_changes() {
    for method in EVICT_METHODS {
        let pager = pager(plain(64), method, Policy::Fifo);
        pager.prepare_executable();
        let reserved = reserve(&pager, 64);
        protect(&reserved, READ_WRITE);
        // SAFETY: aligned memory that only atomics reach.
        let word =
            |page: usize| unsafe { &*((reserved.start + page * PAGE_LEN) as *const AtomicU64) };
        let (first, stop) = (pages(reserved.start, 1), AtomicBool::new(false));
        let counted = std::thread::scope(|scope| {
            let counting = scope.spawn(|| {
                let mut counted = 0;
                while !stop.load(Relaxed) {
                    word(0).fetch_add(1, Relaxed);
                    counted += 1;
                }
                counted
            });
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    protect(&first, READ_WRITE | PROT_EXEC);
                    protect(&first, READ_WRITE);
                }
            });
            for fault in 0..super::rounds(10_000) as usize {
                word(10 + fault * 7 % 50).fetch_add(1, Relaxed);
            }
            stop.store(true, Relaxed);
            counting.join().unwrap()
        });
        assert_eq!(word(0).load(Relaxed), counted, "{method:?}");
        unmap(&pager, &reserved);
    }
}
