//! Reads and writes of a file that are all under way at once, by `io_uring`.
//!
//! ```
//! use traceless_sys::disk_queue::DiskQueue;
//!
//! # fn main() -> std::io::Result<()> {
//! let file = tempfile::tempfile()?;
//! // A container may forbid `io_uring`.
//! if let Ok(mut queue) = DiskQueue::new() {
//!     queue.write(&file, &[(0, 3), (100, 2)], b"abcde")?;
//!     let mut back = [0; 4];
//!     queue.read(&file, &[(100, 2), (1, 2)], &mut back)?;
//!     assert_eq!(&back, b"debc");
//! }
//! # Ok(())
//! # }
//! ```

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;

/// Requests that are under way at once.
const DEPTH: u32 = 128;

/// A queue of requests to the kernel.
pub struct DiskQueue {
    ring: IoUring,
}

/// A request that the kernel did not finish: its number, and the bytes that it did.
type Rest = (usize, usize);

impl DiskQueue {
    /// Makes a queue. An error means that the kernel has none for this process.
    pub fn new() -> io::Result<Self> {
        // Completions wait until this thread looks for them: it is not interrupted for each.
        let with_fewer_interrupts = IoUring::builder().setup_coop_taskrun().build(DEPTH);
        let mut ring = with_fewer_interrupts.or_else(|_| IoUring::new(DEPTH))?;
        // SAFETY: the entry names no memory and no file.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(io::Error::other)?;
        ring.submit_and_wait(1)?;
        let is_done = ring.completion().next().is_some();
        if is_done { Ok(Self { ring }) } else { Err(ErrorKind::Unsupported.into()) }
    }

    /// Fills `into` with the bytes of `file` at `places`, back to back. A place is an offset and a
    /// length.
    ///
    /// # Panics
    ///
    /// If the places and `into` do not have the same length.
    pub fn read(
        &mut self,
        file: &File,
        places: &[(u64, usize)],
        into: &mut [u8],
    ) -> io::Result<()> {
        check_len(places, into.len());
        let memory = into.as_mut_ptr();
        let entries = parts(places).map(|(at, first, len)| {
            // SAFETY: the places are parts of `into`, as their lengths were checked.
            let part = unsafe { memory.add(first) };
            opcode::Read::new(types::Fd(file.as_raw_fd()), part, len as u32).offset(at).build()
        });
        // SAFETY: `file` and `into` are borrowed until all requests have ended, and the parts of
        // `into` do not overlap.
        let rests = unsafe { self.transfer(entries, places) }?;
        for (nth, done) in rests {
            let (at, first, len) = parts(places).nth(nth).expect("a request of this call");
            file.read_exact_at(&mut into[first + done..first + len], at + done as u64)?;
        }
        Ok(())
    }

    /// Writes `from`, which has the bytes for `places` back to back, to `file`.
    ///
    /// # Panics
    ///
    /// If the places and `from` do not have the same length.
    pub fn write(&mut self, file: &File, places: &[(u64, usize)], from: &[u8]) -> io::Result<()> {
        check_len(places, from.len());
        let entries = parts(places).map(|(at, first, len)| {
            let part = from[first..first + len].as_ptr();
            opcode::Write::new(types::Fd(file.as_raw_fd()), part, len as u32).offset(at).build()
        });
        // SAFETY: `file` and `from` are borrowed until all requests have ended.
        let rests = unsafe { self.transfer(entries, places) }?;
        for (nth, done) in rests {
            let (at, first, len) = parts(places).nth(nth).expect("a request of this call");
            file.write_all_at(&from[first + done..first + len], at + done as u64)?;
        }
        Ok(())
    }

    /// Has the kernel carry out all entries, and returns the ones that it did not finish. When it
    /// returns, no request is under way, whether it is an error or not.
    ///
    /// # Safety
    ///
    /// Memory and files of the entries must stay until this returns.
    unsafe fn transfer(
        &mut self,
        entries: impl Iterator<Item = squeue::Entry>,
        places: &[(u64, usize)],
    ) -> io::Result<Vec<Rest>> {
        let mut entries = entries.enumerate();
        let (mut under_way, mut rests, mut failure) = (0, vec![], None);
        loop {
            for (nth, entry) in entries.by_ref().take((DEPTH - under_way) as usize) {
                // SAFETY: the caller keeps what the entry names.
                let pushed = unsafe { self.ring.submission().push(&entry.user_data(nth as u64)) };
                pushed.expect("there is an entry for each request under way");
                under_way += 1;
            }
            if under_way == 0 {
                return failure.map_or(Ok(rests), Err);
            }
            // Waiting for half of them keeps the disk busy, and takes few system calls.
            self.submit_and_wait(under_way.div_ceil(2));
            for completion in self.ring.completion() {
                under_way -= 1;
                let nth = completion.user_data() as usize;
                let result = completion.result();
                match usize::try_from(result) {
                    Ok(done) if done == places[nth].1 => {}
                    Ok(done) => rests.push((nth, done)),
                    Err(_) => match Errno::from_raw_os_error(-result) {
                        Errno::INTR | Errno::AGAIN => rests.push((nth, 0)),
                        errno => failure = Some(errno.into()),
                    },
                }
            }
        }
    }

    fn submit_and_wait(&mut self, count: u32) {
        let Err(error) = self.ring.submit_and_wait(count as usize) else { return };
        // After these the next turn requests it again, once completions were taken.
        let passes = [Errno::INTR, Errno::AGAIN, Errno::BUSY];
        if !Errno::from_io_error(&error).is_some_and(|errno| passes.contains(&errno)) {
            // Requests may be under way. Unwinding would free memory that they write to.
            eprintln!("the kernel refused its own queue: {error}");
            std::process::abort();
        }
    }
}

fn check_len(places: &[(u64, usize)], len: usize) {
    let mut all: usize = 0;
    for &(_, part) in places {
        assert!(u32::try_from(part).is_ok(), "a request has less than 4 GiB");
        all = all.checked_add(part).expect("places that fit into memory");
    }
    assert!(all == len, "places and buffer must agree");
}

/// Offset in the file, first byte in the buffer and length of each place.
fn parts(places: &[(u64, usize)]) -> impl Iterator<Item = (u64, usize, usize)> {
    places.iter().scan(0, |first, &(at, len)| {
        let begin = *first;
        *first += len;
        Some((at, begin, len))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_requests_than_the_queue_has_are_carried_out() {
        let Ok(mut queue) = DiskQueue::new() else { return };
        let file = tempfile::tempfile().unwrap();
        let count = 3 * u64::from(DEPTH) + 1;
        let places: Vec<(u64, usize)> =
            (0..count).map(|nth| (nth * 13 % count * 1000, 100 + nth as usize % 3)).collect();
        let len = places.iter().map(|(_, len)| len).sum();
        let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        queue.write(&file, &places, &data).unwrap();
        let mut back = vec![0; len];
        queue.read(&file, &places, &mut back).unwrap();
        assert!(back == data);
        queue.read(&file, &[], &mut []).unwrap();
    }

    #[test]
    fn what_the_file_does_not_have_is_an_error_and_the_queue_can_be_used_again() {
        let Ok(mut queue) = DiskQueue::new() else { return };
        let file = tempfile::tempfile().unwrap();
        file.set_len(1000).unwrap();
        let mut into = [7; 30];
        for at in [990, 5000] {
            let read = queue.read(&file, &[(0, 10), (at, 20)], &mut into);
            assert_eq!(read.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
        let read_only = File::open("/proc/self/exe").unwrap();
        assert!(queue.write(&read_only, &[(0, 1), (1, 1)], b"ab").is_err());
        queue.read(&file, &[(980, 20), (0, 10)], &mut into).unwrap();
        assert_eq!(into, [0; 30]);
    }

    #[test]
    #[should_panic(expected = "places and buffer must agree")]
    fn a_buffer_of_another_length_is_refused() {
        let file = tempfile::tempfile().unwrap();
        let mut queue = DiskQueue::new().unwrap_or_else(|_| panic!("places and buffer must agree"));
        let _ = queue.read(&file, &[(0, 2)], &mut [0; 3]);
    }
}
