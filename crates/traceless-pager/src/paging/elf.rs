//! The headers of programs' files (ELF), as far as it takes to load them.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// What a program's file says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ElfHeaders {
    /// Its type: [`Self::FIXED`], or [`Self::ANYWHERE`] for one that runs at any address.
    pub kind: u16,
    /// Where its first instruction is.
    pub entry: u64,
    /// Where its table of segments lies in the file.
    pub table: u64,
    /// Its segments, in the order of the table.
    pub segments: Vec<Segment>,
}

/// A part of a program's file, and of its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// What the part is: [`Self::LOADED`] and its kin.
    pub kind: u32,
    /// What its memory may be used for: [`Self::EXECUTED`] and its kin.
    pub flags: u32,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Where it begins in memory.
    pub address: u64,
    /// Its length in the file, in bytes.
    pub file_len: u64,
    /// Its length in memory, in bytes; what the file lacks is zeros.
    pub len: u64,
}

impl Segment {
    /// A part that is loaded.
    pub const LOADED: u32 = 1;
    /// The name of the dynamic loader.
    pub const INTERPRETER: u32 = 3;
    /// What the stack may be used for, by its flags.
    pub const STACK: u32 = 0x6474_e551;

    /// It is executed.
    pub const EXECUTED: u32 = 1;
    /// It is written.
    pub const WRITTEN: u32 = 2;
    /// It is read.
    pub const READ: u32 = 4;
}

/// Bytes of the header of a file, and of an entry of its table.
const HEADER_LEN: usize = 64;
const ENTRY_LEN: usize = 56;

impl ElfHeaders {
    /// A program with fixed addresses.
    pub const FIXED: u16 = 2;
    /// A program that runs at any address.
    pub const ANYWHERE: u16 = 3;
    /// Bytes of a segment's entry in the table.
    pub const ENTRY_LEN: usize = ENTRY_LEN;

    /// Reads the headers of a file of 64 bits. `None` if they are damaged.
    pub fn read(file: &File) -> Option<Self> {
        let mut head = [0; HEADER_LEN];
        file.read_exact_at(&mut head, 0).ok()?;
        let (table, count) = (number(&head, 32, 8)?, number(&head, 56, 2)?);
        if number(&head, 54, 2)? != ENTRY_LEN as u64 {
            return None;
        }
        let mut entries = vec![0; usize::try_from(count).ok()? * ENTRY_LEN];
        file.read_exact_at(&mut entries, table).ok()?;
        let segments = entries.chunks_exact(ENTRY_LEN).map(segment).collect::<Option<_>>()?;
        let kind = u16::try_from(number(&head, 16, 2)?).ok()?;
        Some(Self { kind, entry: number(&head, 24, 8)?, table, segments })
    }

    /// The kinds of the segments of the file that begins with `head`, if that has the table. It
    /// allocates nothing.
    pub fn kinds_in(head: &[u8]) -> Option<impl Iterator<Item = u32>> {
        let (table, count) = (number(head, 32, 8)?, number(head, 56, 2)?);
        let (table, len) = (usize::try_from(table).ok()?, usize::try_from(count).ok()? * ENTRY_LEN);
        let entries = head.get(table..table.checked_add(len)?)?.chunks_exact(ENTRY_LEN);
        Some(entries.filter_map(|entry| Some(number(entry, 0, 4)? as u32)))
    }

    /// Whether the file names a dynamic loader.
    pub fn is_dynamic(&self) -> bool {
        self.segments.iter().any(|segment| segment.kind == Segment::INTERPRETER)
    }
}

fn segment(entry: &[u8]) -> Option<Segment> {
    Some(Segment {
        kind: number(entry, 0, 4)? as u32,
        flags: number(entry, 4, 4)? as u32,
        offset: number(entry, 8, 8)?,
        address: number(entry, 16, 8)?,
        file_len: number(entry, 32, 8)?,
        len: number(entry, 40, 8)?,
    })
}

/// A little-endian number of `len` bytes.
pub(super) fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..len].copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
    Some(u64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_names_its_loader_and_a_cut_table_is_damaged() {
        let path = std::env::current_exe().unwrap();
        let file = File::open(&path).unwrap();
        let headers = ElfHeaders::read(&file).unwrap();
        assert!(headers.is_dynamic() && headers.kind == ElfHeaders::ANYWHERE);
        let loaded = headers.segments.iter().filter(|one| one.kind == Segment::LOADED);
        assert!(loaded.clone().any(|one| one.flags & Segment::EXECUTED != 0));
        assert!(loaded.clone().all(|one| one.file_len <= one.len));

        let mut head = vec![0; 4096];
        file.read_exact_at(&mut head, 0).unwrap();
        let kinds: Vec<u32> = ElfHeaders::kinds_in(&head).unwrap().collect();
        assert_eq!(kinds, headers.segments.iter().map(|one| one.kind).collect::<Vec<_>>());
        let len = headers.table as usize + kinds.len() * ENTRY_LEN - 1;
        assert!(ElfHeaders::kinds_in(&head[..len]).is_none());
        let cut = tempfile::tempfile().unwrap();
        cut.write_all_at(&head[..len], 0).unwrap();
        assert_eq!(ElfHeaders::read(&cut), None);
        for damage in [u64::MAX, 1 << 63, 4096] {
            head[32..40].copy_from_slice(&damage.to_le_bytes());
            assert!(ElfHeaders::kinds_in(&head).is_none());
        }
    }
}
