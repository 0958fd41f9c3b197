//! A scheme as a machine that does one path access at a time.

use crate::error::Result;
use crate::oram::{Hides, Oram, check_request};
use crate::types::Addr;

/// What one step was for. The adversary cannot tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// A block of the user's.
    Data,
    /// A block of the position map, on this level of the recursion, from 1 on.
    PosMap(u8),
    /// Nothing asked for it.
    Dummy,
    /// It only emptied the stash.
    Eviction,
}

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepOutcome {
    /// What it was for.
    pub kind: StepKind,
    /// The request that it finished.
    pub finished: Option<u64>,
}

/// What is done with a block while it is in trusted memory: its request's number, and its body.
pub type Serve<'a> = &'a mut dyn FnMut(u64, &mut [u8]);

/// A scheme that does exactly one path access each time it is asked, useful or not: for issue at a
/// fixed rate, and for simulation. Object-safe.
pub trait Controller: Send {
    /// Number of the user's blocks.
    fn blocks(&self) -> u64;

    /// Bytes in a block; 0 in a simulation.
    fn block_len(&self) -> usize;

    /// Asks for an access to a block. Requests are served in order; `id` is the caller's.
    fn submit(&mut self, id: u64, addr: Addr) -> Result;

    /// Requests that were asked for and are not finished.
    fn waiting(&self) -> usize;

    /// One path access: the next useful one, or a dummy. Never none, never two. When it reaches the
    /// block of a request, `serve` may read and change the body.
    ///
    /// If the store cannot serve its read, nothing has changed, and the next step makes the same
    /// read again. A scheme that cannot do so refuses everything after it.
    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome>;

    /// Finishes the request whose turn it is if that takes no path access, and tells which one.
    /// This is no step and cannot be seen, but who sees when requests are made may learn from it;
    /// so schemes do it only if they were told to.
    fn finish_at_hand(&mut self, serve: Serve<'_>) -> Result<Option<u64>> {
        let _ = serve;
        Ok(None)
    }

    /// Makes everything durable that was finished. No request waits.
    fn sync(&mut self) -> Result;

    /// What the claim covers.
    fn hides(&self) -> Hides;

    /// Syncs, and takes no request any more if it is to be opened again.
    fn close(&mut self) -> Result {
        self.sync()
    }

    /// Tells that what was submitted will be stepped through at once, so that the store may be told
    /// of all of it that is known. No step: what it shows is what the steps will show.
    fn announce(&mut self) {}
}

/// Requests that are told to the store together, at most.
const ANNOUNCED_MAX: usize = 128;

/// A controller as an array of blocks: each request is stepped until it is finished.
///
/// Where the number of steps depends on what was accessed before (a PLB, a stash that is full), so
/// does the time that a request takes.
///
/// A request that an error cut off is not forgotten: its paths were seen, or announced. The next
/// one first steps until it is finished, and leaves its block as it is.
pub struct SteppedOram<C>(C);

/// What its own requests are called.
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

    /// The controller, to be looked after. It gets no requests but from here.
    pub fn controller_mut(&mut self) -> &mut C {
        &mut self.0
    }

    /// Accesses one block; `change` sees it while it is in trusted memory.
    #[inline]
    pub fn access(&mut self, addr: Addr, mut change: impl FnMut(&mut [u8])) -> Result {
        self.finish_waiting()?;
        self.0.submit(OWN, addr)?;
        // Others may be finished in between: what was offered.
        let serve = &mut |id: u64, body: &mut [u8]| {
            if id == OWN {
                change(body);
            }
        };
        while self.0.finish_at_hand(serve)? != Some(OWN) {
            if self.0.step(serve)?.finished == Some(OWN) {
                break;
            }
        }
        Ok(())
    }

    /// Steps until no request waits that an earlier error cut off.
    #[inline]
    fn finish_waiting(&mut self) -> Result {
        while self.0.waiting() > 0 {
            self.0.step(&mut |_, _| {})?;
        }
        Ok(())
    }

    /// Accesses blocks in order, which are told to the store together. What is seen is a function
    /// of their number, as is that of as many accesses.
    fn access_many(&mut self, addrs: &[Addr], mut change: impl FnMut(usize, &mut [u8])) -> Result {
        self.finish_waiting()?;
        let mut before = 0;
        for part in addrs.chunks(ANNOUNCED_MAX) {
            for (nth, &addr) in part.iter().enumerate() {
                self.0.submit((before + nth) as u64, addr)?;
            }
            // One alone has nobody to wait for.
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
