//! Unified ORAM below a cache, as in IR-ORAM: an exclusive cache that holds the only copy of its
//! lines (delayed remapping, LLC-D), and a cache that writes dirty lines back when the ORAM is idle
//! (IR-DWB).
//!
//! The cache is direct-mapped: a block may be in one line only. The benefit of associativity
//! belongs to the cache and is not measured.

use super::measure::{Access, TreeSubject};
use crate::args::TreeArgs;
use traceless::controller::Controller;
use traceless::posmap::Labels;
use traceless::scheme::unified::Unified;
use traceless::tree::BucketTree;
use traceless::types::Addr;
use traceless_cli::failure::Failure;

/// The kinds of requests to the ORAM.
const FETCH: u64 = 0;
const WRITE_BACK: u64 = 1;
const OFFER: u64 = 2;

/// Lines of a cache.
pub struct CacheLines {
    addrs: Vec<Option<Addr>>,
    bodies: Vec<u8>,
    body_len: usize,
}

impl CacheLines {
    /// Lines for `--llc` KiB of cache, with blocks of `len` bytes.
    pub fn new(args: &TreeArgs, len: usize) -> Result<Self, Failure> {
        let lines = args.llc as usize * 1024 / len;
        if lines == 0 {
            return Err(Failure::usage("--llc has no room for a block"));
        }
        let body_len = args.block_len;
        Ok(Self { addrs: vec![None; lines], bodies: vec![0; lines * body_len], body_len })
    }

    /// The line that may hold a block.
    fn nth(&self, addr: Addr) -> usize {
        (addr.0 % self.addrs.len() as u64) as usize
    }

    fn body(&mut self, nth: usize) -> &mut [u8] {
        &mut self.bodies[nth * self.body_len..][..self.body_len]
    }
}

/// An exclusive cache: its lines are not in the ORAM. An evicted line goes back, changed or not,
/// and takes path accesses for the map only.
pub struct ExclusiveCache<T, L, M> {
    oram: Unified<T, L>,
    lines: CacheLines,
    steps: u64,
    moved: M,
}

impl<T, L, M> ExclusiveCache<T, L, M> {
    pub fn new(oram: Unified<T, L>, lines: CacheLines, moved: M) -> Self {
        Self { oram, lines, steps: 0, moved }
    }
}

impl<T: BucketTree, L: Labels, M> ExclusiveCache<T, L, M> {
    /// Accesses paths until the one waiting request is finished.
    fn finish(&mut self, mut serve: impl FnMut(&mut [u8], &mut [u8]), nth: usize) -> Completion {
        let Self { oram, lines, .. } = self;
        let mut steps = 0;
        let mut serve = |_: u64, block: &mut [u8]| serve(block, lines.body(nth));
        while oram.finish_without_path(&mut serve)?.is_none() {
            steps += 1;
            if oram.step(&mut serve)?.finished.is_some() {
                break;
            }
        }
        Ok(steps)
    }
}

type Completion = traceless::Result<u64>;

impl<T: BucketTree, L: Labels, M: Fn(u64) -> u64> TreeSubject for ExclusiveCache<T, L, M> {
    fn access(&mut self, access: Access, visit: &mut dyn FnMut(&mut [u8])) -> Completion {
        let (addr, mut steps) = (access.addr, 0);
        let nth = self.lines.nth(addr);
        if self.lines.addrs[nth] != Some(addr) {
            if let Some(old) = self.lines.addrs[nth].take() {
                self.oram.submit_return(WRITE_BACK, old)?;
                steps += self.finish(|block, line| block.copy_from_slice(line), nth)?;
            }
            self.oram.submit_fetch(FETCH, addr)?;
            steps += self.finish(|block, line| line.copy_from_slice(block), nth)?;
            self.lines.addrs[nth] = Some(addr);
        }
        visit(self.lines.body(nth));
        self.steps += steps;
        Ok(steps)
    }

    fn bytes_moved(&self) -> u64 {
        (self.moved)(self.steps)
    }
}

/// A cache that offers its dirty lines in turn. Between two accesses there is time for one path,
/// which writes back a line, or is a dummy if there is none.
pub struct EarlyWriteBack<T, L, M> {
    oram: Unified<T, L>,
    lines: CacheLines,
    dirty: Vec<bool>,
    /// The offered line.
    offered: Option<usize>,
    /// The next line to look at.
    next: usize,
    steps: u64,
    moved: M,
}

/// Lines that the cache looks at between two accesses, at most.
const LOOKS_MAX: usize = 8;

impl<T: BucketTree, L: Labels, M> EarlyWriteBack<T, L, M> {
    pub fn new(oram: Unified<T, L>, lines: CacheLines, moved: M) -> Self {
        let dirty = vec![false; lines.addrs.len()];
        Self { oram, lines, dirty, offered: None, next: 0, steps: 0, moved }
    }

    /// One path access, which may finish a request for the line `nth`, or the offer.
    fn step(&mut self, nth: usize) -> traceless::Result<Option<u64>> {
        let Self { oram, lines, offered, .. } = self;
        let finished = oram.step(&mut |id, block| match id {
            FETCH => lines.body(nth).copy_from_slice(block),
            WRITE_BACK => block.copy_from_slice(lines.body(nth)),
            _ => block.copy_from_slice(lines.body(offered.expect("a line was offered"))),
        })?;
        self.steps += 1;
        if finished.finished == Some(OFFER) {
            let offered = self.offered.take().expect("a line was offered");
            self.dirty[offered] = false;
        }
        Ok(finished.finished)
    }

    /// Accesses paths until a request for the line `nth` is finished.
    fn finish(&mut self, id: u64, nth: usize) -> Completion {
        let mut steps = 1;
        while self.step(nth)? != Some(id) {
            steps += 1;
        }
        Ok(steps)
    }

    /// Withdraws the offer of line `nth`: it is evicted, or written again.
    fn withdraw(&mut self, nth: usize) {
        if self.offered == Some(nth) {
            self.oram.withdraw();
            self.offered = None;
        }
    }
}

impl<T: BucketTree, L: Labels, M: Fn(u64) -> u64> TreeSubject for EarlyWriteBack<T, L, M> {
    fn access(&mut self, access: Access, visit: &mut dyn FnMut(&mut [u8])) -> Completion {
        let Access { addr, is_write } = access;
        let (nth, mut steps) = (self.lines.nth(addr), 0);
        let cached_addr = self.lines.addrs[nth];
        if cached_addr != Some(addr) {
            self.withdraw(nth);
            if let Some(old) = cached_addr.filter(|_| self.dirty[nth]) {
                self.oram.submit(WRITE_BACK, old)?;
                steps += self.finish(WRITE_BACK, nth)?;
                self.dirty[nth] = false;
            }
            self.oram.submit(FETCH, addr)?;
            steps += self.finish(FETCH, nth)?;
            self.lines.addrs[nth] = Some(addr);
        }
        if is_write {
            self.withdraw(nth);
            self.dirty[nth] = true;
        }
        visit(self.lines.body(nth));
        Ok(steps)
    }

    fn idle(&mut self) -> Completion {
        for _ in 0..LOOKS_MAX {
            let nth = self.next;
            if self.offered.is_some() {
                break;
            }
            self.next = (nth + 1) % self.dirty.len();
            if let Some(addr) = self.lines.addrs[nth].filter(|_| self.dirty[nth]) {
                self.oram.offer(OFFER, addr)?;
                self.offered = Some(nth);
            }
        }
        self.step(self.next)?;
        Ok(1)
    }

    fn bytes_moved(&self) -> u64 {
        (self.moved)(self.steps)
    }
}
