//! Writes of several threads that meet are one write of the ORAM.
//!
//! While a thread writes, writes of other threads gather into a group, and the first of these
//! threads to wake writes the whole group. What gathers depends on when writes come and how long
//! they are, which is public, and not on their addresses.

use crate::error::Result;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use traceless_core::types::Addr;

/// Bytes of a group at most, and of a write that joins one: a longer one fills trips by itself.
const GROUP_LEN_MAX: usize = 1 << 20;
const JOINING_LEN_MAX: usize = 64 << 10;

/// The writes that wait while another one is under way.
#[derive(Default)]
pub(super) struct WriteQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether a thread writes: a group, or a write that found none waiting.
    is_writing: bool,
    waiting: Group,
}

/// Blocks that are written together, and their bytes back to back.
#[derive(Default)]
struct Group {
    addrs: Vec<Addr>,
    bytes: Vec<u8>,
    /// Whether all of it was written, once it is known.
    outcome: Arc<OnceLock<bool>>,
}

impl WriteQueue {
    /// Writes blocks by `write`, perhaps together with blocks of other threads. If that fails, each
    /// thread writes its own blocks again, so that a write fails only by itself.
    pub fn write(
        &self,
        addrs: &[Addr],
        from: &[u8],
        write: impl Fn(&[Addr], &[u8]) -> Result,
    ) -> Result {
        let mut state = self.lock();
        if from.len() > JOINING_LEN_MAX {
            drop(state);
            return write(addrs, from);
        }
        while state.waiting.bytes.len() + from.len() > GROUP_LEN_MAX {
            state = self.wait(state);
        }
        if !state.is_writing && state.waiting.addrs.is_empty() {
            let turn = self.begin(state);
            let written = write(addrs, from);
            drop(turn);
            return written;
        }
        state.waiting.addrs.extend_from_slice(addrs);
        state.waiting.bytes.extend_from_slice(from);
        let outcome = state.waiting.outcome.clone();
        let is_written = loop {
            if let Some(&is_written) = outcome.get() {
                break is_written;
            }
            if state.is_writing {
                state = self.wait(state);
                continue;
            }
            let group = std::mem::take(&mut state.waiting);
            let turn = self.begin(state);
            let is_written = write(&group.addrs, &group.bytes).is_ok();
            group.outcome.set(is_written).expect("one thread writes a group");
            drop(turn);
            break is_written;
        };
        if is_written { Ok(()) } else { write(addrs, from) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).expect("nothing panics under this lock")
    }

    fn begin(&self, mut state: MutexGuard<'_, State>) -> Turn<'_> {
        state.is_writing = true;
        Turn(self)
    }
}

/// The time in which a thread writes. It ends also if that panics: other threads then find out by
/// themselves what became of the ORAM.
struct Turn<'a>(&'a WriteQueue);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().is_writing = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    type Written = Mutex<Vec<(Vec<u64>, Vec<u8>)>>;

    fn note(written: &Written, addrs: &[Addr], bytes: &[u8]) {
        let addrs = addrs.iter().map(|addr| addr.0).collect();
        written.lock().unwrap().push((addrs, bytes.to_vec()));
    }

    /// Runs `during` while a write is under way, with a queue in which each write is recorded, and
    /// fails for the block 13.
    fn while_another_one_writes(written: &Written, count: u64, addr: impl Fn(u64) -> u64) -> usize {
        let queue = WriteQueue::default();
        let write = |addrs: &[Addr], bytes: &[u8]| {
            note(written, addrs, bytes);
            match addrs.iter().find(|addr| addr.0 == 13) {
                Some(&addr) => Err(traceless_core::Error::OutOfRange { addr, blocks: 13 }.into()),
                None => Ok(()),
            }
        };
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel();
        thread::scope(|scope| {
            let queue = &queue;
            scope.spawn(move || {
                let hold = |_: &[Addr], _: &[u8]| {
                    begun.send(()).unwrap();
                    may_end.recv().unwrap();
                    Ok(())
                };
                queue.write(&[Addr(0)], &[0], hold).unwrap();
            });
            has_begun.recv().unwrap();
            let threads: Vec<_> = (1..=count)
                .map(|nth| {
                    let addr = addr(nth);
                    let joined =
                        scope.spawn(move || queue.write(&[Addr(addr)], &[nth as u8], write));
                    while queue.lock().waiting.addrs.len() < nth as usize {
                        thread::yield_now();
                    }
                    joined
                })
                .collect();
            end.send(()).unwrap();
            threads.into_iter().map(|one| one.join().unwrap()).filter(Result::is_err).count()
        })
    }

    #[test]
    fn writes_that_meet_are_one_in_their_order() {
        let written = Written::default();
        assert_eq!(while_another_one_writes(&written, 5, |nth| nth * 2), 0);
        let written = written.into_inner().unwrap();
        assert_eq!(written, [(vec![2, 4, 6, 8, 10], vec![1, 2, 3, 4, 5])]);
    }

    #[test]
    fn a_write_fails_only_by_itself() {
        let written = Written::default();
        assert_eq!(while_another_one_writes(&written, 3, |nth| 11 + nth), 1);
        let mut written = written.into_inner().unwrap();
        assert_eq!(written.remove(0), (vec![12, 13, 14], vec![1, 2, 3]));
        written.sort();
        assert_eq!(written, [(vec![12], vec![1]), (vec![13], vec![2]), (vec![14], vec![3])]);
    }

    #[test]
    fn a_write_alone_and_a_long_one_are_written_as_they_are() {
        let queue = WriteQueue::default();
        let long = vec![7; JOINING_LEN_MAX + 1];
        for bytes in [&[1][..], &long] {
            let written = Written::default();
            let write = |addrs: &[Addr], bytes: &[u8]| {
                note(&written, addrs, bytes);
                Ok(())
            };
            queue.write(&[Addr(9)], bytes, write).unwrap();
            assert_eq!(written.into_inner().unwrap(), [(vec![9], bytes.to_vec())]);
        }
    }

    #[test]
    fn a_panic_ends_its_turn() {
        let queue = WriteQueue::default();
        let panics = || queue.write(&[Addr(0)], &[0], |_, _| panic!("on purpose"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        queue.write(&[Addr(0)], &[0], |_, _| Ok(())).unwrap();
    }
}
