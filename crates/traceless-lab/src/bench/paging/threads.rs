//! `DetWoORAM` as the paging paper makes it parallel: for each page that leaves, each refresh has a
//! new thread. The measurement is native and without page faults, as in the paper.

use super::subject::PagingSubject;
use crate::report::failed;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use traceless::clock::{Clock, Monotonic};
use traceless::rng::System;
use traceless::seal::Secret;
use traceless_cli::failure::Failure;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::SharedMemory;
use traceless_pager::scheme::Areas;
use traceless_pager::slots::Buffer;

/// Accesses of each measurement, after the same number to fill the areas.
const ACCESSES: u64 = 400;
const PAGES: u64 = 256;

/// The effect of a thread for each refresh.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub struct Threads {
    /// How many times faster an access is with threads: less than 1 if it is slower.
    pub speed_up: f64,
    /// Share of an access that starting threads takes.
    pub creation_share: f64,
}

/// Measures accesses of one page each, and takes medians.
pub fn measure(subject: &PagingSubject) -> Result<Threads, Failure> {
    let mut alone = Accesses::new(subject)?;
    let mut spawned = Accesses::new(subject)?;
    let mut times = [vec![], vec![], vec![]];
    for nth in 0..2 * ACCESSES {
        // Both take turns, so that other load on the machine affects both.
        let (without_threads, _) = alone.access(nth, false)?;
        let (with_threads, creation) = spawned.access(nth, true)?;
        if nth >= ACCESSES {
            for (times, ns) in times.iter_mut().zip([without_threads, with_threads, creation]) {
                times.push(ns);
            }
        }
    }
    let [without_threads, with_threads, creation] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2] as f64
    });
    Ok(Threads {
        speed_up: without_threads / with_threads,
        creation_share: creation / with_threads,
    })
}

struct Accesses {
    areas: Areas,
    refreshed: u64,
    buffers: Vec<Buffer>,
    clock: Monotonic,
}

impl Accesses {
    fn new(subject: &PagingSubject) -> Result<Self, Failure> {
        let settings = subject.settings().map_err(failed)?;
        let len = Areas::store_len(PAGES, settings.refresh);
        let store = Arc::new(SharedMemory::unnamed(len).map_err(failed)?);
        let key = Secret::random(&mut System);
        let salts = Box::new(System);
        let areas = Areas::new(store, PAGES, settings.refresh, settings.cipher, &key, salts);
        let areas = areas.map_err(failed)?;
        Ok(Self {
            // Refreshes below this number belong to creation.
            refreshed: areas.due(),
            areas,
            buffers: (0..=subject.refresh).map(|_| Buffer::default()).collect(),
            clock: Monotonic::start(),
        })
    }

    /// One page leaves and another one comes. Returns the nanoseconds of all, and of starting
    /// threads.
    fn access(&mut self, nth: u64, with_threads: bool) -> Result<(u64, u64), Failure> {
        let (mut frame, mut starting) = ([nth as u8; PAGE_LEN], 0);
        let start = self.clock.now();
        let (buffer, buffers_of_refreshes) = self.buffers.split_first_mut().expect("there is one");
        self.areas.write(nth % PAGES, &frame, buffer).map_err(failed)?;
        let due = self.refreshed..self.areas.due();
        self.refreshed = due.end;
        if with_threads {
            let (areas, clock) = (&self.areas, &self.clock);
            std::thread::scope(|scope| {
                let before = clock.now();
                let all = due.zip(buffers_of_refreshes);
                let threads: Vec<_> = all
                    .map(|(nth, buffer)| scope.spawn(move || areas.refresh(nth, buffer)))
                    .collect();
                starting = clock.now() - before;
                threads.into_iter().try_for_each(|t| t.join().expect("refreshing does not panic"))
            })
            .map_err(failed)?;
        } else {
            for nth in due {
                self.areas.refresh(nth, buffer).map_err(failed)?;
            }
        }
        let wanted = (nth + PAGES / 2) % PAGES;
        self.areas.read(wanted, self.refreshed, &mut frame, buffer).map_err(failed)?;
        Ok((self.clock.now() - start, starting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_and_starting_threads_is_a_part_of_it() {
        let threads = measure(&PagingSubject::default()).unwrap();
        assert!(threads.speed_up > 0.0);
        assert!(threads.creation_share > 0.0 && threads.creation_share < 1.0);
        let mut accesses = Accesses::new(&PagingSubject::default()).unwrap();
        for nth in 0..1000 {
            accesses.access(nth, nth % 2 == 0).unwrap();
        }
    }
}
