//! A scheme as a machine that does one path access at a time.
//!
//! A Path ORAM is stepped by hand, and then used as an array:
//!
//! ```
//! use traceless::Addr;
//! use traceless::controller::{Controller, StepKind, SteppedOram};
//! use traceless::oram::Oram;
//! use traceless::rng::System;
//! use traceless::scheme::path::PathOram;
//! use traceless::tree::{BareTree, STASH_BLOCKS, Shape};
//!
//! # fn main() -> traceless::Result {
//! let tree = BareTree::new(Shape::uniform(7, 4)?, 64);
//! let mut oram = PathOram::new(100, vec![tree], STASH_BLOCKS, Box::new(System))?;
//! assert_eq!(oram.step(&mut |_, _| {})?.kind, StepKind::Dummy, "no request waits");
//!
//! oram.submit(1, Addr(7))?;
//! let outcome = oram.step(&mut |_, block| block.fill(5))?;
//! assert_eq!((outcome.kind, outcome.finished), (StepKind::Data, Some(1)));
//!
//! let mut array = SteppedOram::new(oram);
//! let mut block = [0; 64];
//! array.read(Addr(7), &mut block)?;
//! assert_eq!(block, [5; 64]);
//! # Ok(())
//! # }
//! ```

use traceless_core::error::Result;
use traceless_core::oram::{Hides, Oram, check_request};
use traceless_core::types::Addr;

/// What a step was for. The adversary cannot distinguish the kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// A block of the client.
    Data,
    /// A block of the position map, on this level of the recursion, from 1 on.
    PosMap(u8),
    /// No request needed it.
    Dummy,
    /// An eviction, which only empties the stash.
    Eviction,
}

/// The outcome of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepOutcome {
    /// What the step was for.
    pub kind: StepKind,
    /// The request that it finished.
    pub finished: Option<u64>,
}

/// Called with a request's number and its block's body while the block is in trusted memory.
pub type Serve<'a> = &'a mut dyn FnMut(u64, &mut [u8]);

/// A scheme that does exactly one path access per step, useful or not: for issue at a constant
/// rate, and for simulation. Object-safe.
pub trait Controller: Send {
    /// Number of the client's blocks.
    fn blocks(&self) -> u64;

    /// Bytes in a block; 0 in a simulation.
    fn block_len(&self) -> usize;

    /// Queues an access to a block. Requests are served in order; `id` is chosen by the caller.
    fn submit(&mut self, id: u64, addr: Addr) -> Result;

    /// Number of requests that are queued and not finished.
    fn waiting(&self) -> usize;

    /// Makes one path access: the next useful one, or a dummy. Never none, never two. When it
    /// reaches the block of a request, `serve` may read and change the body.
    ///
    /// If the store cannot serve its read, nothing has changed, and the next step makes the same
    /// read again. A scheme that cannot do so refuses all later requests.
    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome>;

    /// Finishes the next request if that takes no path access, and returns its number. This is no
    /// step and causes no event, but an observer of the times of requests may learn from it:
    /// schemes do it only if their configuration allows it.
    fn finish_without_path(&mut self, serve: Serve<'_>) -> Result<Option<u64>> {
        let _ = serve;
        Ok(None)
    }

    /// Makes all finished requests durable. No request may be waiting.
    fn sync(&mut self) -> Result;

    /// What the claim covers.
    fn hides(&self) -> Hides;

    /// Syncs. A scheme that can be opened again accepts no request afterwards.
    fn close(&mut self) -> Result {
        self.sync()
    }

    /// Notifies the scheme that all queued requests will be stepped through at once, so that it can
    /// announce the known paths to the store. This is no step: it reveals only what the steps will
    /// reveal.
    fn announce(&mut self) {}
}

/// Requests that are announced to the store together, at most.
const ANNOUNCED_MAX: usize = 128;

/// A controller as an array of blocks: each request is stepped until it is finished.
///
/// Where the number of steps depends on what was accessed before (a PLB, a stash that is full), so
/// does the time that a request takes.
///
/// A request that an error interrupted is not dropped: its paths were observed, or announced. The
/// next request first steps until the old one is finished, and leaves its block unchanged.
pub struct SteppedOram<C>(C);

/// Id of the requests that [`SteppedOram::access`] makes.
const OWN: u64 = u64::MAX;

impl<C: Controller> SteppedOram<C> {
    /// The array of `controller`, which has no request waiting.
    pub fn new(controller: C) -> Self {
        Self(controller)
    }

    /// The controller.
    pub fn controller(&self) -> &C {
        &self.0
    }

    /// The controller, for maintenance. All its requests must come from this array.
    pub fn controller_mut(&mut self) -> &mut C {
        &mut self.0
    }

    /// Accesses one block; `change` gets it while it is in trusted memory.
    #[inline]
    pub fn access(&mut self, addr: Addr, mut change: impl FnMut(&mut [u8])) -> Result {
        self.finish_waiting()?;
        self.0.submit(OWN, addr)?;
        // Steps may also finish a request that the cache above has offered to the controller.
        let serve = &mut |id: u64, body: &mut [u8]| {
            if id == OWN {
                change(body);
            }
        };
        while self.0.finish_without_path(serve)? != Some(OWN) {
            if self.0.step(serve)?.finished == Some(OWN) {
                break;
            }
        }
        Ok(())
    }

    /// Steps until the requests that an earlier error interrupted are finished.
    #[inline]
    fn finish_waiting(&mut self) -> Result {
        while self.0.waiting() > 0 {
            self.0.step(&mut |_, _| {})?;
        }
        Ok(())
    }

    /// Accesses blocks in order, and announces them to the store together. What an observer learns
    /// is a function of their number, as it is for as many single accesses.
    fn access_many(&mut self, addrs: &[Addr], mut change: impl FnMut(usize, &mut [u8])) -> Result {
        self.finish_waiting()?;
        let mut before = 0;
        for part in addrs.chunks(ANNOUNCED_MAX) {
            for (nth, &addr) in part.iter().enumerate() {
                self.0.submit((before + nth) as u64, addr)?;
            }
            // A single request gains nothing from an announcement.
            if part.len() > 1 {
                self.0.announce();
            }
            before += part.len();
            let mut waiting = part.len();
            while waiting > 0 {
                let issued = self.0.step(&mut |nth, body| change(nth as usize, body))?;
                waiting -= usize::from(issued.finished.is_some());
            }
        }
        Ok(())
    }
}

impl<C: Controller> Oram for SteppedOram<C> {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn block_len(&self) -> usize {
        self.0.block_len()
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        let len = self.block_len();
        check_request(self.blocks(), len, addrs, into.len())?;
        self.access_many(addrs, |nth, body| into[nth * len..][..len].copy_from_slice(body))
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        let len = self.block_len();
        check_request(self.blocks(), len, addrs, from.len())?;
        self.access_many(addrs, |nth, body| body.copy_from_slice(&from[nth * len..][..len]))
    }

    fn update_many(&mut self, addrs: &[Addr], change: &mut dyn FnMut(usize, &mut [u8])) -> Result {
        check_request(self.blocks(), 0, addrs, 0)?;
        self.access_many(addrs, change)
    }

    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        check_request(self.blocks(), 0, &[addr], 0)?;
        self.access(addr, change)
    }

    fn sync(&mut self) -> Result {
        self.finish_waiting()?;
        self.0.sync()
    }

    fn hides(&self) -> Hides {
        self.0.hides()
    }

    fn close(&mut self) -> Result {
        self.finish_waiting()?;
        self.0.close()
    }
}
