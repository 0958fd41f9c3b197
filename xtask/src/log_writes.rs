//! Playing back what the kernel's dm-log-writes recorded, for `./test --guest`.
//!
//! The log is a superblock, then entries, in units of a sector; the superblock has the length of a
//! sector. An entry takes one sector; the bytes of a write follow its entry. The kernel's
//! `Documentation/admin-guide/device-mapper/log-writes.rst` explains the order: a write is in the
//! log once a flush has made it durable, so that each prefix is a disk that a crash can leave
//! behind.

use crate::Outcome;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
/// Bytes of an entry before the text of a mark.
const ENTRY_LEN: usize = 32;
const SECTOR_LEN_MAX: u32 = 1 << 16;
/// A single request of the block layer is smaller.
const WRITE_LEN_MAX: u64 = 64 << 20;

const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;

pub fn run(args: &[&str]) -> Result<Outcome, String> {
    match args {
        ["points", log, count] => {
            let log = Log::open(Path::new(log)).map_err(|e| format!("{log}: {e}"))?;
            for (index, mark) in points(log, number(count)?).map_err(|e| e.to_string())? {
                println!("{index} {mark}");
            }
        }
        ["replay", log, image, from, to] => {
            let log = Log::open(Path::new(log)).map_err(|e| format!("{log}: {e}"))?;
            let mut image =
                OpenOptions::new().write(true).open(image).map_err(|e| format!("{image}: {e}"))?;
            replay(log, &mut image, number(from)?, number(to)?).map_err(|e| e.to_string())?;
        }
        _ => return Err("log-writes takes points LOG COUNT or replay LOG IMAGE FROM TO".into()),
    }
    Ok(Outcome::Clean)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

/// A log that is read from its beginning on.
struct Log<R> {
    file: R,
    entries: u64,
    sector_len: u64,
    /// Entries taken so far.
    taken: u64,
}

#[derive(PartialEq, Eq, Debug)]
enum Entry {
    Write {
        at: u64,
        bytes: Vec<u8>,
    },
    /// A user's text between the writes.
    Mark(String),
    /// A flush without a write, or a discard.
    Other,
}

impl Log<File> {
    fn open(path: &Path) -> io::Result<Self> {
        Self::new(File::open(path)?)
    }
}

impl<R: Read + Seek> Log<R> {
    fn new(mut file: R) -> io::Result<Self> {
        let mut head = [0; 28];
        file.read_exact(&mut head)?;
        let sector_len = u32::from_le_bytes(head[24..].try_into().expect("four bytes"));
        let sane = (512..=SECTOR_LEN_MAX).contains(&sector_len) && sector_len.is_power_of_two();
        if word(&head, 0) != MAGIC || word(&head, 1) != VERSION || !sane {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a log of dm-log-writes"));
        }
        file.seek(SeekFrom::Start(u64::from(sector_len)))?;
        Ok(Self { file, entries: word(&head, 2), sector_len: u64::from(sector_len), taken: 0 })
    }

    fn next(&mut self) -> io::Result<Option<Entry>> {
        if self.taken == self.entries {
            return Ok(None);
        }
        self.taken += 1;
        let mut sector = vec![0; self.sector_len as usize];
        self.file.read_exact(&mut sector)?;
        let (at, count) = (word(&sector, 0), word(&sector, 1));
        let (flags, text_len) = (word(&sector, 2), word(&sector, 3));
        if flags & MARK != 0 {
            let text = &sector[ENTRY_LEN..];
            let text = &text[..text.len().min(text_len as usize)];
            let text = String::from_utf8_lossy(text).trim_end_matches('\0').to_string();
            return Ok(Some(Entry::Mark(text)));
        }
        if flags & DISCARD != 0 || count == 0 {
            return Ok(Some(Entry::Other));
        }
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "an entry makes no sense");
        let at = at.checked_mul(self.sector_len).ok_or_else(invalid)?;
        let len = count.checked_mul(self.sector_len).ok_or_else(invalid)?;
        if len > WRITE_LEN_MAX {
            return Err(invalid());
        }
        let mut bytes = vec![0; len as usize];
        self.file.read_exact(&mut bytes)?;
        Ok(Some(Entry::Write { at, bytes }))
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"))
}

/// Where to stop: after each mark and the whole log, and at `count` more places spread evenly. Each
/// is a count of entries, with the last mark before it that is a number, or 0.
fn points<R: Read + Seek>(mut log: Log<R>, count: u64) -> io::Result<Vec<(u64, u64)>> {
    let spread: Vec<u64> = (1..=count).map(|i| i * log.entries / (count + 1)).collect();
    let mut found = Vec::new();
    let mut last = 0;
    while let Some(entry) = log.next()? {
        let marked = if let Entry::Mark(text) = &entry {
            last = text.parse().unwrap_or(last);
            true
        } else {
            false
        };
        if marked || spread.contains(&log.taken) || log.taken == log.entries {
            found.push((log.taken, last));
        }
    }
    Ok(found)
}

/// Carries out the writes from the entry `from` up to, and not including, the entry `to`.
fn replay<R: Read + Seek>(
    mut log: Log<R>,
    image: &mut (impl Write + Seek),
    from: u64,
    to: u64,
) -> io::Result<()> {
    while log.taken < to {
        let Some(entry) = log.next()? else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the log is shorter"));
        };
        if let Entry::Write { at, bytes } = entry
            && log.taken > from
        {
            image.seek(SeekFrom::Start(at))?;
            image.write_all(&bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    const FLUSH: u64 = 1;

    fn sector(words: &[u64], text: &[u8]) -> Vec<u8> {
        let mut sector: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        sector.extend(text);
        sector.resize(512, 0);
        sector
    }

    /// Two writes, a mark, a discard, a flush, and a write of two sectors.
    fn log() -> Vec<u8> {
        let mut log = sector(&[MAGIC, VERSION, 6, 512], &[]);
        log.extend(sector(&[3, 1, 0, 0], &[]));
        log.extend([1; 512]);
        log.extend(sector(&[0, 1, FLUSH, 0], &[]));
        log.extend([2; 512]);
        log.extend(sector(&[0, 0, MARK, 2], b"17"));
        log.extend(sector(&[0, 4, DISCARD, 0], &[]));
        log.extend(sector(&[0, 0, FLUSH, 0], &[]));
        log.extend(sector(&[2, 2, 0, 0], &[]));
        log.extend([3; 1024]);
        log
    }

    fn played(from: u64, to: u64) -> Vec<u8> {
        let mut image = Cursor::new(vec![0; 2048]);
        replay(Log::new(Cursor::new(log())).unwrap(), &mut image, from, to).unwrap();
        image.into_inner().chunks(512).map(|sector| sector[0]).collect()
    }

    #[test]
    fn a_prefix_is_played_back() {
        assert_eq!(played(0, 0), [0, 0, 0, 0]);
        assert_eq!(played(0, 1), [0, 0, 0, 1]);
        assert_eq!(played(0, 5), [2, 0, 0, 1]);
        assert_eq!(played(0, 6), [2, 0, 3, 3]);
        assert_eq!(played(1, 5), [2, 0, 0, 0], "what was played before is left out");
    }

    #[test]
    fn points_follow_marks_and_the_end() {
        let points = |count| points(Log::new(Cursor::new(log())).unwrap(), count).unwrap();
        assert_eq!(points(0), [(3, 17), (6, 17)]);
        assert_eq!(points(2), [(2, 0), (3, 17), (4, 17), (6, 17)]);
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let mut image = Cursor::new(vec![]);
        let log_of = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = log();
            change(&mut bytes);
            Log::new(Cursor::new(bytes))
        };
        assert!(log_of(&|bytes| bytes[0] ^= 1).is_err());
        assert!(log_of(&|bytes| bytes[24] = 1).is_err());
        assert!(log_of(&|bytes| bytes.truncate(20)).is_err());
        let cut = log_of(&|bytes| bytes.truncate(700)).unwrap();
        assert!(replay(cut, &mut image, 0, 6).is_err());
        let endless = log_of(&|bytes| bytes[512 + 15] = 0xff).unwrap();
        assert!(replay(endless, &mut image, 0, 6).is_err());
        assert!(replay(log_of(&|_| ()).unwrap(), &mut image, 0, 7).is_err());
    }
}
