//! Paged memory behaves like memory: no write is lost, torn or old, whichever thread or kernel call
//! touches it.

mod copy;
mod elsewhere;
mod pace;

use super::faults::eviction::PINNED_TRIES;
use super::{Config, Error, EvictMethod, FRAMES_MIN, PagedRegion, Pager, Policy, SharedMemory};
use crate::PAGE_LEN;
use crate::scheme::{Areas, DetWo, PageScheme, Plain};
use crate::slots::{Cipher, Slots};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use traceless::rng::{Rng, SeededRng, System};
use traceless::seal::Secret;
use traceless_block::detwo::Refresh;

const EVICT_METHODS: [EvictMethod; 2] = [EvictMethod::Move, EvictMethod::Protect];

fn plain(pages: u64) -> Box<dyn PageScheme> {
    let store = Arc::new(SharedMemory::unnamed(Slots::store_len(pages)).unwrap());
    let key = Secret::random(&mut System);
    Box::new(Plain::new(store, pages, Cipher::default(), &key, Box::new(System)).unwrap())
}

fn detwo(pages: u64) -> Box<dyn PageScheme> {
    let refresh = Refresh::new(3, 1).unwrap();
    let store = Arc::new(SharedMemory::unnamed(Areas::store_len(pages, refresh)).unwrap());
    let key = Secret::random(&mut System);
    let salts = Box::new(System);
    let areas = Areas::new(store, pages, refresh, Cipher::default(), &key, salts);
    Box::new(DetWo::new(areas.unwrap()))
}

fn region(scheme: Box<dyn PageScheme>, frames: usize, method: EvictMethod) -> PagedRegion {
    let config = Config { frames, evict_method: Some(method), ..Config::default() };
    PagedRegion::new(scheme, config).unwrap()
}

/// More rounds if the environment has a factor: `TRACELESS_ROUNDS=100`.
fn rounds(base: u64) -> u64 {
    let factor = std::env::var("TRACELESS_ROUNDS").ok().and_then(|text| text.parse().ok());
    base * factor.unwrap_or(1)
}

#[test]
fn a_region_is_memory_for_every_scheme_method_and_policy() {
    for make in [plain, detwo] {
        for method in EVICT_METHODS {
            for policy in Policy::ALL {
                if policy == Policy::Clock && method == EvictMethod::Protect {
                    continue;
                }
                let config =
                    Config { frames: 12, policy, evict_method: Some(method), ..Config::default() };
                let mut region = PagedRegion::new(make(64), config).unwrap();
                agrees_with_an_array(&mut region);
                let stats = region.stats();
                assert!(stats.evictions > 500 && stats.resident_max == 12, "{stats:?}");
                assert!(stats.resident == 12 && stats.resident + stats.outside <= 64, "{stats:?}");
                region.discard(0, 64).unwrap();
                let stats = region.stats();
                assert_eq!((stats.resident, stats.outside), (0, 0));
            }
        }
    }
}

fn agrees_with_an_array(region: &mut PagedRegion) {
    let mut truth = vec![0; region.len()];
    let mut rng = SeededRng::new(1);
    for step in 0..1000 {
        // Up to four pages at once, most of the time across their borders.
        let at = rng.below((truth.len() - 3 * PAGE_LEN) as u64) as usize;
        let len = 1 + rng.below(3 * PAGE_LEN as u64) as usize;
        assert!(region[at..at + len] == truth[at..at + len], "step {step}");
        truth[at..at + len].fill(step as u8);
        region[at..at + len].fill(step as u8);
        if step % 50 == 49 {
            let first = rng.below(60) as usize;
            region.discard(first, 4).unwrap();
            truth[first * PAGE_LEN..(first + 4) * PAGE_LEN].fill(0);
        }
    }
    assert!(region[..] == truth[..]);
}

/// One thread counts on a hot page while another thread makes that page leave again and again. A
/// write between copying the page and discarding it would be lost: returns how many were, and how
/// many remain.
fn updates_lost(method: EvictMethod, faults: u64) -> (u64, u64) {
    let region = region(plain(64), 8, method);
    let words = words_of(&region);
    let (stop, per_page) = (AtomicBool::new(false), PAGE_LEN / 8);
    let counted = std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut counted = 0;
            while !stop.load(Ordering::Relaxed) {
                words[3].fetch_add(1, Ordering::Relaxed);
                counted += 1;
            }
            counted
        });
        let mut rng = SeededRng::new(2);
        for _ in 0..faults {
            words[(1 + rng.below(63) as usize) * per_page].fetch_add(1, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
        counting.join().unwrap()
    });
    let other_pages: u64 = (1..64).map(|page| words[page * per_page].load(Ordering::Relaxed)).sum();
    let found = words[3].load(Ordering::Relaxed) + other_pages;
    (counted + faults - found, found)
}

#[test]
fn a_region_begins_at_the_configured_address() {
    let start = || {
        let config = Config { start: Some(1 << 36), ..Config::default() };
        PagedRegion::new(plain(64 + 512), config)
    };
    let mut first = start().unwrap();
    assert_eq!(first.as_ptr() as usize, 1 << 36);
    agrees_with_an_array(&mut first);
    assert!(matches!(start(), Err(Error::Configuration(_))), "it is taken");
    drop(first);
    assert!(start().is_ok());
}

#[test]
fn no_update_is_lost_while_its_page_leaves() {
    for method in EVICT_METHODS {
        let (lost, found) = updates_lost(method, rounds(20_000));
        assert_eq!(lost, 0, "{method:?}");
        println!("{method:?}: {found} updates, none lost");
    }
}

/// Without protection updates are lost, and [`updates_lost`] must notice it.
#[test]
fn lost_updates_are_noticed() {
    assert!((0..50).any(|_| updates_lost(EvictMethod::Unprotected, 20_000).0 > 0));
}

fn words_of(region: &PagedRegion) -> &[AtomicU64] {
    // SAFETY: aligned memory of that length, reached through atomics only while they live.
    unsafe { core::slice::from_raw_parts(region.as_ptr().cast(), region.len() / 8) }
}

#[test]
fn threads_share_a_region() {
    for (method, threads) in EVICT_METHODS.into_iter().zip([3, 2]) {
        let region = region(detwo(64), 4 * threads + 4, method);
        let words = words_of(&region);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    let mut rng = SeededRng::new(thread as u64);
                    for _ in 0..rounds(8000) {
                        let at = rng.below(words.len() as u64) as usize;
                        words[at].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let sum: u64 = words.iter().map(|word| word.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, rounds(8000) * threads as u64);
    }
}

/// One instruction that reads and writes across borders of pages needs four pages at once.
#[test]
fn operands_that_straddle_pages_make_progress() {
    let mut region = region(plain(64), FRAMES_MIN, EvictMethod::probe().unwrap());
    for page in 1..32 {
        let (from, to) = (page * PAGE_LEN - 8, (page + 32) * PAGE_LEN - 8);
        region[from..from + 16].copy_from_slice(&[page as u8; 16]);
        region.copy_within(from..from + 16, to);
        assert_eq!(region[to..to + 16], [page as u8; 16]);
    }
}

#[test]
fn the_kernel_reads_and_writes_a_region() {
    for method in EVICT_METHODS {
        let mut file = tempfile::tempfile().unwrap();
        let mut region = region(plain(512), 8, method);
        let mut contents = vec![0; 1 << 20];
        SeededRng::new(4).fill(&mut contents);
        region[1..=1 << 20].copy_from_slice(&contents);
        file.write_all(&region[1..=1 << 20]).unwrap();
        let mut found = vec![0; 1 << 20];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).unwrap();
        assert!(found == contents);
        let into = &mut region[(1 << 20) - 5..(2 << 20) - 5];
        std::os::unix::fs::FileExt::read_exact_at(&file, into, 0).unwrap();
        assert!(region[(1 << 20) - 5..(2 << 20) - 5] == contents);
    }
}

/// Reads a file into pages by direct I/O, which pins them: these pages must stay. Returns whether
/// all contents arrived, and how often a page had to stay. Each round is `pages` pages.
fn direct_io(method: EvictMethod, rounds: usize, pages: usize) -> (bool, u64) {
    use rustix::fs::{Mode, OFlags};
    // Direct I/O needs a file system that has it: the folder of the build lies on one.
    let program = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let path = folder.path().join("direct");
    let mut contents = vec![0; pages * PAGE_LEN];
    SeededRng::new(5).fill(&mut contents);
    std::fs::write(&path, &contents).unwrap();
    let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap();
    let mut file = std::fs::File::from(file);
    let mut region = region(plain(1024), 8, method);
    let all_arrive = (0..rounds).all(|round| {
        let at = round % 8 * 100 * PAGE_LEN;
        region[at..at + contents.len()].fill(0);
        let mut done = 0;
        while done < contents.len() {
            done += file.read(&mut region[at + done..at + contents.len()]).unwrap();
        }
        std::io::Seek::rewind(&mut file).unwrap();
        region[at..at + contents.len()] == contents
    });
    (all_arrive, region.stats().pinned)
}

/// Of the two methods only moving notices that pages are pinned.
#[test]
fn direct_io_reaches_pages() {
    let rounds = rounds(8) as usize;
    for pages in [256, 32] {
        let (arrives, pinned) = direct_io(EvictMethod::Move, rounds, pages);
        assert!(arrives);
        assert!(pinned > 0, "no page was pinned when it was to leave");
        let faults = (3 * rounds * pages) as u64;
        assert!(pinned < faults * PINNED_TRIES as u64, "a fault tries a few of them only");
    }
}

/// With [`EvictMethod::Protect`] pinned pages leave, and [`direct_io`] must notice it.
#[test]
fn lost_direct_io_is_noticed() {
    assert!(!direct_io(EvictMethod::Protect, 100, 256).0);
}

/// With eight frames four threads would take each other's pages away, so there must be more.
#[test]
fn threads_get_the_frames_that_they_need() {
    let region = region(plain(64), FRAMES_MIN, EvictMethod::probe().unwrap());
    let words = words_of(&region);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                (0..64).for_each(|page| {
                    words[page * PAGE_LEN / 8 + thread].fetch_add(1, Ordering::Relaxed);
                });
            });
        }
    });
    assert!((FRAMES_MIN..=4 * 4 + 4).contains(&(region.stats().resident_max as usize)));
    assert!((0..4).all(|thread| words[thread].load(Ordering::Relaxed) == 1));
}

#[test]
fn too_few_frames_are_refused() {
    let config = Config { frames: FRAMES_MIN - 1, ..Config::default() };
    assert!(matches!(PagedRegion::new(plain(64), config), Err(Error::Configuration(_))));
}

/// Under the policy clock a page that is touched often stays, or comes back from the standby list.
#[test]
fn pages_in_use_stay_with_the_clock_policy() {
    let evictions = |policy| {
        let config = Config { frames: 16, policy, ..Config::default() };
        let mut region = PagedRegion::new(plain(256), config).unwrap();
        for step in 0..1600 {
            region[(step % 8) * PAGE_LEN] += 1;
            if step % 8 == 7 {
                region[(8 + step % 248) * PAGE_LEN] += 1;
            }
        }
        assert_eq!(region[0], 200);
        region.stats().evictions
    };
    let (fifo, clock) = (evictions(Policy::Fifo), evictions(Policy::Clock));
    assert!(clock * 4 < fifo * 3, "{clock} of {fifo}");
}

#[test]
fn victims_are_the_same_with_every_scheme() {
    let order = |scheme| {
        let mut region = region(scheme, 15, EvictMethod::probe().unwrap());
        for page in (0..64).chain((0..64).rev()).cycle().take(1000) {
            region[page * PAGE_LEN] += 1;
        }
        region.stats().order_hash
    };
    assert_eq!(order(plain(64)), order(detwo(64)));
}

/// The processors that this thread may run on.
fn may_run() -> CpuSet {
    sched_getaffinity(None).unwrap()
}

/// Causes faults until this thread is pinned to one processor, or for a million touches.
fn is_pinned(region: &mut PagedRegion, may: CpuSet) -> bool {
    (0..1_000_000).any(|touch| {
        region[touch % 64 * PAGE_LEN] = 1;
        let now = may_run();
        assert!(now == may || now.count() == 1);
        now != may
    })
}

#[test]
fn a_thread_that_faults_often_is_pinned() {
    let may = may_run();
    if may.count() < 2 {
        return;
    }
    for method in EVICT_METHODS {
        let config = Config {
            frames: 8,
            evict_method: Some(method),
            pin_threads: true,
            ..Config::default()
        };
        let mut region = PagedRegion::new(plain(64), config).unwrap();
        assert!(is_pinned(&mut region, may), "{method:?}");
        // The thread is unpinned soon after its last fault.
        assert!((0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            may_run() == may
        }));
        assert!(is_pinned(&mut region, may));
        // A fault of another thread unpins the pinned one.
        let before = region.stats().faults;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| region.iter().step_by(PAGE_LEN).map(|&b| b as usize).sum());
            let _: usize = other.join().unwrap();
        });
        assert!(region.stats().faults >= before + 50);
        assert_eq!(may_run(), may);
        assert!(is_pinned(&mut region, may));
        drop(region);
        assert_eq!(may_run(), may);
    }
}

/// When another thread wants its processor, the pinned thread is unpinned for some faults, and only
/// then.
#[test]
fn a_pinned_thread_is_unpinned_on_a_contended_processor() {
    const FREE: u32 = 200;
    let may = may_run();
    // The times that threads wait are not available in every kernel.
    if may.count() < 2 || !std::path::Path::new("/proc/self/schedstat").exists() {
        return;
    }
    let config = Config { frames: 8, pin_threads: true, ..Config::default() };
    let mut region = PagedRegion::new(plain(64), config).unwrap();
    assert!(is_pinned(&mut region, may));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The new thread inherits the processor to which this one is pinned.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                core::hint::spin_loop();
            }
        });
        let mut free = 0;
        let was_unpinned = (0..1_000_000).any(|touch| {
            region[touch % 64 * PAGE_LEN] = 1;
            free = if may_run() == may { free + 1 } else { 0 };
            free == FREE
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(was_unpinned);
    });
}

/// A thread that starts right after `unpin_thread` may run wherever this one could.
#[test]
fn threads_that_an_unpinned_thread_starts_are_free() {
    let may = may_run();
    let this = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let config = Config { frames: 8, pin_threads: true, ..Config::default() };
    let pager = Pager::start(plain(64), config).unwrap();
    let touch = |page: usize| {
        // SAFETY: a byte of its memory, which no other code uses.
        unsafe { pager.start_of_memory().add(page * PAGE_LEN).write_volatile(1) };
    };
    for _ in 0..if may.count() > 1 { 5 } else { 0 } {
        assert!((0..1_000_000).any(|nth| {
            touch(nth % 64);
            may_run() != may
        }));
        pager.unpin_thread(this, false);
        (0..64).for_each(touch);
        assert_eq!(std::thread::spawn(may_run).join().unwrap(), may);
    }
    pager.unpin_thread(this, true);
    for nth in 0..5000 {
        touch(nth % 64);
        assert_eq!(may_run(), may);
    }
}

#[test]
fn threads_are_pinned_only_if_configured() {
    let may = may_run();
    let mut region = region(plain(64), 8, EvictMethod::probe().unwrap());
    assert!((0..5000).all(|touch| {
        region[touch % 64 * PAGE_LEN] = 1;
        may_run() == may
    }));
}
