//! What of a process's own memory is not paged, by the kernel's list of its mappings.

use core::ops::Range;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead};

/// Bytes of a process's own memory, so not of files, that are present and not paged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Unpaged {
    /// The first thread's stack.
    pub stack: u64,
    /// Variables of the program and its libraries, which lie behind what is mapped of their files.
    pub static_data: u64,
    /// The heap of old, behind the program (`brk`).
    pub program_break: u64,
    /// All other memory without a file: stacks of further threads, and what the program maps by
    /// system calls of its own.
    pub other: u64,
}

/// A mapping in the kernel's list.
#[derive(Default)]
struct Entry {
    range: Range<usize>,
    name: String,
    /// Bytes that are present and the process's own.
    own: u64,
    is_paged: bool,
}

impl Unpaged {
    /// Reads the list of mappings (`smaps` of `/proc`). Leaves out what is paged, and mappings that
    /// are the pager's own.
    ///
    /// # Errors
    /// The list's errors.
    pub fn read(list: impl BufRead, is_pagers: impl Fn(usize, &str) -> bool) -> io::Result<Self> {
        let mut unpaged = Self::default();
        let (mut current, mut before) = (Entry::default(), Entry::default());
        // Names of files are any bytes.
        for line in list.split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            if let Some(range) = mapped_range(&line) {
                let name = line.splitn(6, ' ').nth(5).unwrap_or_default().trim().to_owned();
                before = unpaged.add(current, &before, &is_pagers);
                current = Entry { range, name, ..Entry::default() };
            } else if let Some(kib) = line.strip_prefix("Anonymous:") {
                let kib = kib.trim().trim_end_matches(" kB").parse::<u64>();
                current.own = kib.unwrap_or(0) << 10;
            } else if let Some(flags) = line.strip_prefix("VmFlags:") {
                // Missing pages are reported to a userfaultfd.
                current.is_paged = flags.split_ascii_whitespace().any(|flag| flag == "um");
            }
        }
        unpaged.add(current, &before, &is_pagers);
        Ok(unpaged)
    }

    /// Adds a mapping, and returns it, with the name of the file before it if it continues that.
    fn add(
        &mut self,
        mut entry: Entry,
        before: &Entry,
        is_pagers: impl Fn(usize, &str) -> bool,
    ) -> Entry {
        let continues = before.name.starts_with('/') && before.range.end == entry.range.start;
        if entry.name.is_empty() && continues && !entry.is_paged {
            entry.name.clone_from(&before.name);
        }
        if !entry.is_paged && !is_pagers(entry.range.start, &entry.name) {
            *match entry.name.as_str() {
                "[stack]" => &mut self.stack,
                "[heap]" => &mut self.program_break,
                name if name.starts_with('/') => &mut self.static_data,
                _ => &mut self.other,
            } += entry.own;
        }
        entry
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.stack + self.static_data + self.program_break + self.other
    }
}

/// The range of addresses in a line that begins a mapping in the kernel's list (`maps`, `smaps`).
pub fn mapped_range(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
1000-3000 r-xp 00000000 08:01 42                         /usr/bin/a program
Anonymous:             4 kB
VmFlags: rd ex mr mw me
3000-5000 rw-p 00000000 00:00 0
Anonymous:             8 kB
VmFlags: rd wr
6000-7000 rw-p 00000000 00:00 0                          [heap]
Anonymous:            16 kB
VmFlags: rd wr
8000-9000 rw-p 00000000 00:00 0
Anonymous:            32 kB
VmFlags: rd wr um uw
9000-a000 rw-p 00000000 00:00 0
Anonymous:            64 kB
VmFlags: rd wr
b000-c000 rw-p 00000000 00:00 0                          [anon:a-name]
Anonymous:           128 kB
VmFlags: rd wr
d000-e000 rw-p 00000000 00:00 0                          [stack]
Anonymous:           256 kB
VmFlags: rd wr gd
";

    #[test]
    fn each_mapping_is_of_one_kind() {
        let read = |is_pagers: fn(usize, &str) -> bool| Unpaged::read(LIST.as_bytes(), is_pagers);
        let all = read(|_, _| false).unwrap();
        let kib = |kib: u64| kib << 10;
        let expected = Unpaged {
            stack: kib(256),
            static_data: kib(12),
            program_break: kib(16),
            other: kib(192),
        };
        assert_eq!((all, all.total()), (expected, kib(476)));
        let rest = read(|start, name| start == 0xb000 || name.contains("program")).unwrap();
        assert_eq!(rest, Unpaged { static_data: 0, other: kib(64), ..expected });
    }
}
