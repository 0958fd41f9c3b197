//! A thread that makes accesses at a constant rate, with or without requests.

use super::{Pace, PacedOram, Record};
use crate::controller::Controller;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use traceless_core::clock::Timer;
use traceless_core::error::{Error, Result};
use traceless_core::oram::{Hides, Oram, check_request, one_by_one};
use traceless_core::types::Addr;

/// A paced scheme as an array: a thread makes accesses and serves requests until the service is
/// closed or dropped.
///
/// Requests queue up, so that several at once, as in [`read_many`](Oram::read_many), use
/// consecutive accesses.
pub struct Service {
    blocks: u64,
    block_len: usize,
    hides: Hides,
    requests: Option<Sender<ServiceRequest>>,
    thread: Option<JoinHandle<(Record, Result)>>,
}

enum ServiceRequest {
    /// Visits a block. The closure sends the answer to the caller; if it is dropped instead, the
    /// caller's channel reports that.
    Access(Addr, Visit),
    Sync(Sender<()>),
}

type Visit = Box<dyn FnOnce(&mut [u8]) + Send>;

impl Service {
    /// Starts the thread.
    pub fn start(
        controller: impl Controller + 'static,
        timer: impl Timer + 'static,
        pace: Pace,
    ) -> Self {
        let (blocks, block_len) = (controller.blocks(), controller.block_len());
        let hides = controller.hides();
        let (requests, received) = channel();
        let thread = std::thread::spawn(move || {
            let mut paced = PacedOram::new(controller, timer, pace);
            let served = serve(&mut paced, &received);
            (paced.record(), served)
        });
        Self { blocks, block_len, hides, requests: Some(requests), thread: Some(thread) }
    }

    /// Accesses one block. `visit` may change it. The thread that keeps the pace runs `visit` as
    /// part of the access, so it should be short.
    pub fn access<R: Send + 'static>(
        &self,
        addr: Addr,
        visit: impl FnOnce(&mut [u8]) -> R + Send + 'static,
    ) -> Result<R> {
        check_request(self.blocks, 0, &[addr], 0)?;
        self.submit(addr, visit).recv().map_err(|_| Error::EarlierAbort)
    }

    /// Stops the thread after all requests are finished and synced. Returns how well the pace was
    /// kept, or the error that ended the thread.
    pub fn stop(mut self) -> Result<Record> {
        self.join()
    }

    /// Queues an access. The receiver gets the answer, or a disconnect if the thread ends first.
    fn submit<R: Send + 'static>(
        &self,
        addr: Addr,
        visit: impl FnOnce(&mut [u8]) -> R + Send + 'static,
    ) -> Receiver<R> {
        let (answer, answered) = channel();
        let visit = Box::new(move |block: &mut [u8]| {
            // A caller that dropped its receiver does not need the answer.
            let _ = answer.send(visit(block));
        });
        self.send(ServiceRequest::Access(addr, visit));
        answered
    }

    fn send(&self, request: ServiceRequest) {
        if let Some(requests) = &self.requests {
            // If the thread has ended, the request is dropped here, and its answer channel with it.
            let _ = requests.send(request);
        }
    }

    fn join(&mut self) -> Result<Record> {
        self.requests = None;
        let Some(thread) = self.thread.take() else { return Err(Error::EarlierAbort) };
        let (record, served) = thread.join().map_err(|_| Error::EarlierAbort)?;
        served.map(|()| record)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Only `stop` reports errors.
        let _ = self.join();
    }
}

/// Steps until the channel is closed and no request waits.
fn serve<C: Controller, T: Timer>(
    paced: &mut PacedOram<C, T>,
    received: &Receiver<ServiceRequest>,
) -> Result {
    let mut waiting = VecDeque::<Visit>::new();
    let mut syncs = Vec::new();
    let mut open = true;
    while open || !waiting.is_empty() {
        loop {
            match received.try_recv() {
                Ok(ServiceRequest::Access(addr, visit)) => {
                    paced.submit(0, addr)?;
                    waiting.push_back(visit);
                }
                Ok(ServiceRequest::Sync(answer)) => syncs.push(answer),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    open = false;
                    break;
                }
            }
        }
        paced.step(&mut |_, block| {
            // Requests are served in order.
            if let Some(visit) = waiting.pop_front() {
                visit(block);
            }
        })?;
        if waiting.is_empty() && !syncs.is_empty() {
            paced.controller_mut().sync()?;
            syncs.drain(..).for_each(|answer| _ = answer.send(()));
        }
    }
    paced.controller_mut().close()
}

impl Oram for Service {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, into.len())?;
        let answers: Vec<_> =
            addrs.iter().map(|&addr| self.submit(addr, |block| block.to_vec())).collect();
        for (answer, part) in answers.iter().zip(into.chunks_exact_mut(self.block_len)) {
            part.copy_from_slice(&answer.recv().map_err(|_| Error::EarlierAbort)?);
        }
        Ok(())
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, from.len())?;
        let mut answers = Vec::new();
        for (addr, part) in one_by_one(addrs, self.block_len, from.len())? {
            let body = from[part].to_vec();
            answers.push(self.submit(addr, move |block| block.copy_from_slice(&body)));
        }
        answers.iter().try_for_each(|answer| answer.recv().map_err(|_| Error::EarlierAbort))
    }

    /// The syncs of the store are visible to an observer, and not paced.
    fn sync(&mut self) -> Result {
        let (answer, answered) = channel();
        self.send(ServiceRequest::Sync(answer));
        answered.recv().map_err(|_| Error::EarlierAbort)
    }

    fn hides(&self) -> Hides {
        self.hides
    }

    fn close(&mut self) -> Result {
        self.join().map(|_| ())
    }
}
