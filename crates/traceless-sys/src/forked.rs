//! A forked copy of this process, for tests of what a copy must not do.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Exit code of a copy in which the work panicked.
const PANICKED: i32 = 101;

/// Forks this process, runs `act` in the copy, and returns its result. Only the calling thread
/// exists in the copy. Panics if the copy fails.
pub fn in_a_copy(act: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    // SAFETY: the copy runs `act` and ends, without returning to what this thread was called from.
    // Its other threads are gone; what they had locked `act` must not need.
    match unsafe { libc::fork() } {
        -1 => panic!("no copy: {}", std::io::Error::last_os_error()),
        0 => {
            drop(reader);
            end(writer, act)
        }
        copy => {
            drop(writer);
            let mut output = Vec::new();
            std::fs::File::from(reader).read_to_end(&mut output).expect("a pipe is read");
            let mut status = 0;
            // SAFETY: `copy` is a child of this process, and no other code waits for it.
            let waited = unsafe { libc::waitpid(copy, &raw mut status, 0) };
            assert!(waited == copy && status == 0, "the copy ended with {status:#x}");
            output
        }
    }
}

/// Does the work of a copy, and ends the copy.
fn end(writer: OwnedFd, act: impl FnOnce() -> Vec<u8>) -> ! {
    let code = match catch_unwind(AssertUnwindSafe(act)) {
        Ok(output) => i32::from(std::fs::File::from(writer).write_all(&output).is_err()),
        Err(_) => PANICKED,
    };
    // SAFETY: it ends the process at once, without running what the other threads had registered.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_changes_its_own_memory_alone() {
        let mut number = 1;
        let output = in_a_copy(|| {
            number += 1;
            vec![number; 100_000]
        });
        assert_eq!(output, vec![2; 100_000]);
        assert_eq!(number, 1);
        assert!(catch_unwind(|| in_a_copy(|| panic!("planted"))).is_err());
    }
}
