//! The requests of the last cache: reads, write-backs, clean lines that it drops, and lines that it
//! offers for an early write-back.

use super::{Oram, Phase, UNTIMED};
use crate::backend::{Answer, Backend, LineGroup, OFFERED};
use crate::error::Result;
use crate::oram::{Early, Pace, Remap, SimController};
use crate::workload::{LINE_LEN, Op};
use traceless::types::Addr;

/// A request for a block, with all reads and write-backs that wait for it.
#[derive(Default)]
pub(super) struct BlockRequest {
    block: u64,
    /// Tickets of reads, and since when each waits.
    tickets: Vec<(u64, u64)>,
    /// For each line that came back, since when it waits.
    written: Vec<u64>,
    /// A bit for each line of the block, set if it is read.
    requested: u64,
}

/// The number of the request for an offered line.
const OFFER: u64 = u64::MAX;

impl Backend for Oram {
    fn capacity(&self) -> u64 {
        self.controller.blocks() * self.bundle() * LINE_LEN
    }

    fn read(&mut self, now: u64, addr: u64, ticket: u64) -> Result<Answer> {
        let block = self.block(addr);
        self.label(block);
        let leaves = self.blocks_leave && self.out.insert(block);
        if !leaves && self.is_served(block) {
            self.bring(block, self.bit(addr));
            self.measured.read(None, 1);
            return Ok(Answer::At(now + 1));
        }
        let id = if leaves {
            self.request(block, |controller, id| controller.submit_fetch(id, Addr(block)))?
        } else {
            self.join(block)?
        };
        self.counts.requests += u64::from(leaves);
        let bit = self.bit(addr);
        let request = self.requests.get_mut(&id).expect("it waits");
        request.tickets.push((ticket, now));
        request.requested |= bit;
        Ok(Answer::Later)
    }

    fn write(&mut self, now: u64, addr: u64) -> Result {
        self.give_back(now, addr, true)
    }

    fn drop_clean(&mut self, now: u64, addr: u64) -> Result {
        self.give_back(now, addr, false)
    }

    fn takes_writes(&self) -> bool {
        self.requests.len() < self.config.queue
    }

    fn is_written(&self) -> bool {
        self.requests.values().all(|request| !request.tickets.is_empty())
    }

    fn wants_offer(&self) -> bool {
        self.offered.is_none() && self.config.early != Some(Early::Nothing)
    }

    fn offer(&mut self, addr: u64) -> Result {
        let block = self.block(addr);
        self.controller.offer(OFFER, Addr(block))?;
        self.offered = Some(block);
        Ok(())
    }

    fn withdraw(&mut self) {
        self.controller.withdraw();
        self.offered = None;
    }

    fn note_operation(&mut self) {
        if matches!(self.config.pace, Pace::FetchSlots(_)) && self.phase == Phase::Idle {
            self.operations += 1;
            self.due = self.next_due(0);
        }
    }

    fn warm(&mut self, op: Op, addr: u64) -> Result {
        let block = self.block(addr);
        let leaves = self.blocks_leave && op == Op::Read && self.out.insert(block);
        if op == Op::Read {
            self.label(block);
        } else if self.labelled.remove(&self.line(addr)) {
            return Ok(());
        }
        if leaves {
            self.controller.submit_fetch(UNTIMED, Addr(block))?;
        } else if op == Op::Write && self.out.remove(&block) {
            self.controller.submit_return(UNTIMED, Addr(block))?;
        } else {
            self.controller.submit(UNTIMED, Addr(block))?;
        }
        self.bring(block, if op == Op::Read { self.bit(addr) } else { 0 });
        self.finish_untimed()
    }

    fn take_prefetched(&mut self, lines: &mut Vec<LineGroup>) {
        lines.clear();
        core::mem::swap(&mut self.brought, lines);
    }

    fn warm_drop(&mut self, addr: u64) -> Result {
        let block = self.block(addr);
        self.labelled.remove(&self.line(addr));
        if self.out.remove(&block) {
            self.controller.submit_return(UNTIMED, Addr(block))?;
            self.finish_untimed()?;
        }
        Ok(())
    }

    fn wake(&self) -> u64 {
        self.next_wake()
    }

    fn tick(&mut self, now: u64, done: &mut dyn FnMut(u64, u64)) -> Result {
        self.advance(now, done)
    }
}

impl Oram {
    /// Lines of a block.
    pub(super) fn bundle(&self) -> u64 {
        self.config.bundle.expect("it is resolved")
    }

    fn block(&self, addr: u64) -> u64 {
        addr / LINE_LEN / self.bundle() % self.controller.blocks()
    }

    /// The number of a line.
    fn line(&self, addr: u64) -> u64 {
        self.block(addr) * self.bundle() + addr / LINE_LEN % self.bundle()
    }

    /// The bit of a line in its block.
    fn bit(&self, addr: u64) -> u64 {
        1 << (addr / LINE_LEN % self.bundle())
    }

    /// Makes a request for a block by `submit`, and returns its number.
    fn request(
        &mut self,
        block: u64,
        submit: impl FnOnce(&mut dyn SimController, u64) -> traceless::error::Result,
    ) -> Result<u64> {
        let id = self.next_request;
        self.next_request += 1;
        self.has_request = true;
        submit(&mut *self.controller, id)?;
        self.requests.insert(id, BlockRequest { block, ..BlockRequest::default() });
        if self.bundle() > 1 {
            self.of_block.insert(block, id);
        }
        Ok(id)
    }

    /// The number of a request for a block that may stay in the memory: a new one, or one that
    /// already waits for another line of the block.
    fn join(&mut self, block: u64) -> Result<u64> {
        if let Some(&id) = self.of_block.get(&block) {
            self.counts.joined += 1;
            return Ok(id);
        }
        self.request(block, |controller, id| controller.submit(id, Addr(block)))
    }

    /// Hands a block's lines to the cache; the bits of `requested` are the lines that were
    /// requested.
    fn bring(&mut self, block: u64, requested: u64) {
        let lines = self.bundle();
        if lines > 1 {
            self.brought.push(LineGroup { addr: block * lines * LINE_LEN, lines, requested });
        }
    }

    /// Notes that the last cache reads lines of a block, and keeps their labels if the scheme says
    /// so.
    fn label(&mut self, block: u64) {
        if self.config.remap == Some(Remap::WithLine) {
            let lines = self.bundle();
            self.labelled.extend(block * lines..(block + 1) * lines);
        }
    }

    /// Whether a block is at hand; then the request is served.
    fn is_served(&mut self, block: u64) -> bool {
        self.counts.requests += 1;
        let is_served = self.controller.is_served_without_path(Addr(block));
        self.counts.at_hand += u64::from(is_served);
        is_served
    }

    /// Takes a line, clean or dirty, that the last cache gives up.
    fn give_back(&mut self, now: u64, addr: u64, is_dirty: bool) -> Result {
        let block = self.block(addr);
        if self.out.remove(&block) {
            self.counts.requests += 1;
            let submit =
                |controller: &mut dyn SimController, id| controller.submit_return(id, Addr(block));
            let id = self.request(block, submit)?;
            self.wait_written(id, now);
            return Ok(());
        }
        if self.labelled.remove(&self.line(addr)) {
            self.counts.returned += 1;
            return Ok(());
        }
        // A clean line of a block that stayed in the memory has nothing to bring back.
        let has_left = self.config.remap == Some(Remap::Delayed) && !self.blocks_leave;
        if is_dirty || has_left {
            if self.is_served(block) {
                self.measured.write_back(1);
            } else {
                let id = self.join(block)?;
                self.wait_written(id, now);
            }
        }
        Ok(())
    }

    /// Makes a line that came back wait for a request, from `now` on.
    fn wait_written(&mut self, request: u64, now: u64) {
        self.requests.get_mut(&request).expect("it waits").written.push(now);
    }

    /// Finishes a request that a path access served; its data is there at `there`.
    pub(super) fn finish(&mut self, request: u64, there: u64, done: &mut dyn FnMut(u64, u64)) {
        let walked = core::mem::take(&mut self.walked);
        self.finish_after(Some(walked), request, there, done);
    }

    /// Finishes a request after `walked` accesses to the position map, or without any path access.
    pub(super) fn finish_after(
        &mut self,
        walked: Option<usize>,
        request: u64,
        there: u64,
        done: &mut dyn FnMut(u64, u64),
    ) {
        if request == OFFER {
            // Otherwise the offer was withdrawn after its access had begun.
            if let Some(block) = self.offered.take() {
                self.bring(block, 0);
                self.counts.early_lines += 1;
                done(OFFERED, there);
            }
            return;
        }
        if let Some(BlockRequest { block, tickets, written, requested }) =
            self.requests.remove(&request)
        {
            self.of_block.remove(&block);
            self.bring(block, requested);
            for since in written {
                self.measured.write_back(there.saturating_sub(since));
            }
            for (ticket, since) in tickets {
                self.measured.read(walked, there.saturating_sub(since));
                done(ticket, there);
            }
        }
    }
}
