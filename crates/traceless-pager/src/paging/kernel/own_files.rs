//! The library's own files in a program that may close every file that it did not open.

use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Numbers of files that the program must not close, each plus one; 0 is none.
static OWN_NUMBERS: [AtomicI32; 128] = [const { AtomicI32::new(0) }; 128];

/// A file of the library. Its number is among [`own_files`] if it was moved to a high number.
#[derive(Debug)]
pub struct OwnFile {
    // Declared before the file, so that the number is withdrawn before the file is closed.
    registration: Option<OwnNumber>,
    file: OwnedFd,
}

impl OwnFile {
    /// Moves the file to a high number, where programs that expect low numbers do not meet it.
    pub fn at_high_number(file: OwnedFd) -> Self {
        const HIGH: RawFd = 900;
        let file = rustix::io::fcntl_dupfd_cloexec(&file, HIGH).unwrap_or(file);
        Self { registration: Some(OwnNumber::new(file.as_raw_fd())), file }
    }

    /// The file, which stays open until the process ends.
    pub fn keep_open(self) -> OwnedFd {
        core::mem::forget(self.registration);
        self.file
    }
}

/// The numbers of files that the program must not close, in no order.
pub fn own_files() -> impl Iterator<Item = RawFd> {
    OWN_NUMBERS
        .iter()
        .filter_map(|entry| entry.load(Relaxed).checked_sub(1).filter(|&file| file >= 0))
}

/// Numbers among [`own_files`] until this is dropped, right before the files are closed.
pub struct OwnNumbers(pub Vec<RawFd>);

impl Drop for OwnNumbers {
    fn drop(&mut self) {
        for &file in &self.0 {
            replace(file + 1, 0);
        }
    }
}

/// Closes files that a process before its fork had: no value in this process uses them any more.
pub fn close_own(files: &[RawFd]) {
    for &file in files {
        replace(file + 1, 0);
        // SAFETY: a file of ours, as the numbers say; what used it is never dropped.
        unsafe { rustix::io::close(file) };
    }
}

impl From<OwnedFd> for OwnFile {
    fn from(file: OwnedFd) -> Self {
        Self { registration: None, file }
    }
}

impl From<OwnFile> for OwnedFd {
    fn from(OwnFile { registration: _, file }: OwnFile) -> Self {
        file
    }
}

impl AsFd for OwnFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for OwnFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// A number that is among [`own_files`], if there was room: few files of a program are the
/// library's.
#[derive(Debug)]
struct OwnNumber(RawFd);

impl OwnNumber {
    fn new(file: RawFd) -> Self {
        replace(0, file + 1);
        Self(file)
    }
}

impl Drop for OwnNumber {
    fn drop(&mut self) {
        replace(self.0 + 1, 0);
    }
}

fn replace(old: i32, new: i32) {
    let _ =
        OWN_NUMBERS.iter().any(|entry| entry.compare_exchange(old, new, Relaxed, Relaxed).is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_files_lists_a_file_while_it_is_open() {
        let open = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let is_listed = |number| own_files().any(|file| file == number);
        let file = OwnFile::at_high_number(open());
        assert!(file.as_raw_fd() >= 900 && is_listed(file.as_raw_fd()));
        let stays = OwnFile::at_high_number(open()).keep_open();
        assert!(is_listed(stays.as_raw_fd()));
        drop(OwnNumber(stays.as_raw_fd()));
        // Other tests may reuse a number that was given back: this one is never in use.
        let number = RawFd::MAX - 1;
        let registration = OwnNumber::new(number);
        assert!(is_listed(number));
        drop(registration);
        assert!(!is_listed(number));
    }
}
