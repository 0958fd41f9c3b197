//! Requests to a disk, as `blkparse` or this project's script for bpftrace prints them.

use super::{LineError, LineEvent, fields, len_of, nanoseconds, number};
use traceless_core::trace::{Event, Op, Surface};

/// Bytes of a sector in these formats, independent of the disk.
const SECTOR_LEN: u64 = 512;

/// A reader of the lines of one device.
pub struct Block {
    is_blkparse: bool,
    device: Option<Vec<u8>>,
}

/// The fields of a line that are used.
struct Request<'a> {
    device: &'a [u8],
    time: u64,
    flags: &'a [u8],
    first: u64,
    sectors: u64,
}

/// `MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION FLAGS ...`
pub fn is_blkparse(line: &[u8]) -> bool {
    let mut fields = fields(line);
    fields.next().is_some_and(is_device)
        && fields.nth(2).is_some_and(|field| nanoseconds(field).is_some())
}

/// `NANOSECONDS MAJOR,MINOR FLAGS SECTOR SECTORS`
pub fn is_bpftrace(line: &[u8]) -> bool {
    of_script(line).is_ok()
}

fn is_device(field: &[u8]) -> bool {
    let mut numbers = field.split(|&byte| byte == b',').map(number::<u32>);
    matches!((numbers.next(), numbers.next(), numbers.next()), (Some(Some(_)), Some(Some(_)), None))
}

impl Block {
    pub fn of_blkparse() -> Self {
        Self { is_blkparse: true, device: None }
    }

    pub fn of_bpftrace() -> Self {
        Self { is_blkparse: false, device: None }
    }

    pub fn read(&mut self, line: &[u8], events: &mut Vec<Event>) -> Result<LineEvent, LineError> {
        let request = if self.is_blkparse {
            // The statistics at the end follow.
            if line.starts_with(b"CPU") || line.starts_with(b"Total") {
                return Ok(LineEvent::End);
            }
            match of_blkparse(line)? {
                None => return Ok(LineEvent::Events),
                Some(request) => request,
            }
        } else {
            of_script(line)?
        };
        if self.device.get_or_insert_with(|| request.device.to_vec()) != request.device {
            return Err("it is of another device than those before: trace one at a time");
        }
        request.push_event(events)?;
        Ok(LineEvent::Events)
    }
}

/// Parses a request that is issued to the device's driver. Lines of other steps, before or after,
/// give `None`.
fn of_blkparse(line: &[u8]) -> Result<Option<Request<'_>>, LineError> {
    const SHORT: LineError = "it has not the fields that blkparse prints";
    let mut fields = fields(line);
    let device = fields.next().filter(|field| is_device(field)).ok_or(SHORT)?;
    let time = fields.nth(2).and_then(nanoseconds).ok_or("its fourth field is no time")?;
    let action = fields.nth(1).ok_or(SHORT)?;
    if action != b"D" {
        return Ok(None);
    }
    let flags = fields.next().ok_or(SHORT)?;
    let place = fields.next().ok_or(SHORT)?;
    // A flush has no place: the name of its process follows.
    let (first, sectors) = if place.starts_with(b"[") {
        (0, 0)
    } else {
        let first = number(place).ok_or("its place is no number")?;
        if fields.next() != Some(b"+") {
            return Err("its place has no length");
        }
        (first, fields.next().and_then(number).ok_or("its length is no number")?)
    };
    Ok(Some(Request { device, time, flags, first, sectors }))
}

fn of_script(line: &[u8]) -> Result<Request<'_>, LineError> {
    let all: Vec<&[u8]> = fields(line).take(6).collect();
    let [time, device, flags, first, sectors] = all[..] else {
        return Err("it has not five fields");
    };
    if !is_device(device) {
        return Err("its second field is no device");
    }
    Ok(Request {
        device,
        time: number(time).ok_or("its time is no number")?,
        flags,
        first: number(first).ok_or("its place is no number")?,
        sectors: number(sectors).ok_or("its length is no number")?,
    })
}

impl Request<'_> {
    /// Adds the request's events. An F before the operation's flag means a flush before it.
    fn push_event(&self, events: &mut Vec<Event>) -> Result<(), LineError> {
        let surface = Surface::Storage;
        let sync = Event { time: self.time, surface, op: Op::Sync, at: 0, len: 0 };
        let (flushes, flags) = match self.flags.strip_prefix(b"F") {
            Some(rest) => (true, rest),
            None => (false, self.flags),
        };
        if flushes {
            events.push(sync);
        }
        let op = match flags.first() {
            Some(b'R') => Op::Read,
            // A discard changes the sectors that it covers.
            Some(b'W' | b'D') => Op::Write,
            Some(b'N' | b'F' | b'S') | None if flushes => return Ok(()),
            // Commands that move no data of the disk.
            Some(b'N') => return Ok(()),
            _ => return Err("its flags say neither read nor write"),
        };
        let what = "its place is beyond any disk";
        let at = self.first.checked_mul(SECTOR_LEN).ok_or(what)?;
        let len = len_of(self.sectors.checked_mul(SECTOR_LEN).ok_or(what)?)?;
        events.push(Event { op, at, len, ..sync });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::super::tests::{invalid_line, ops, read};
    use super::*;

    /// Written by hand after blkparse(1) and its source, not recorded.
    const BLKPARSE: &[u8] = b"\
  8,0    3        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427
  8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]
  8,0    3        3     0.000009038   697  D   W 223490 + 8 [kjournald]
  8,0    1        0     0.000010000     0  m   N cfq697 insert_request
  8,0    3        4     0.000020000   697  D  RA 16 + 256 [dd]
  8,0    3        5     0.000030000   697  D FWFS 8 + 8 [kjournald]
  8,0    3        6     0.000040000   697  D  FN [kworker/3:1H]
  8,0    3        7     0.000050000   697  D  DS 1024 + 2048 [fstrim]
  8,0    0        8     0.009461092     0  C   W 223490 + 8 [0]
CPU3 (8,0):
 Reads Queued:           1,      128KiB\t Writes Queued:           3,       12KiB
";

    const SCRIPT: &[u8] = b"\
Attaching 2 probes...
# time device flags sector sectors
1000 259,0 WS 2048 8
1500 259,0 FF 0 0
2000 259,0 R 4096 16
";

    #[test]
    fn lines_of_blkparse_become_events() {
        assert_eq!(Format::detect(BLKPARSE), Some(Format::Blkparse));
        let (events, error) = read(Format::Blkparse, BLKPARSE);
        assert!(error.is_none(), "{error:?}");
        let sync = (Op::Sync, 0, 0);
        assert_eq!(
            ops(&events),
            [
                (Op::Write, 223_490 * 512, 4096),
                (Op::Read, 8192, 131_072),
                sync,
                (Op::Write, 4096, 4096),
                sync,
                (Op::Write, 1024 * 512, 1 << 20),
            ]
        );
        assert_eq!(events[0].time, 9038);
        assert_eq!(events[0].surface, Surface::Storage);
    }

    #[test]
    fn lines_of_the_bpftrace_script_become_events() {
        assert_eq!(Format::detect(SCRIPT), Some(Format::Bpftrace));
        let (events, error) = read(Format::Bpftrace, SCRIPT);
        assert!(error.is_none(), "{error:?}");
        let expected = [(Op::Write, 1 << 20, 4096), (Op::Sync, 0, 0), (Op::Read, 1 << 21, 8192)];
        assert_eq!(ops(&events), expected);
        assert_eq!(events[2].time, 2000);
    }

    #[test]
    fn invalid_lines_are_reported_by_number() {
        let good = "8,0 3 1 0.5 697 D W 8 + 8 [a]";
        for bad in [
            "8 3 1 0.5 697 D W 8 + 8 [a]",
            "8,0 3 1 now 697 D W 8 + 8 [a]",
            "8,0 3 1 0.5",
            "8,0 3 1 0.5 697 D",
            "8,0 3 1 0.5 697 D X 8 + 8 [a]",
            "8,0 3 1 0.5 697 D W here + 8 [a]",
            "8,0 3 1 0.5 697 D W 8 8 [a]",
            "8,0 3 1 0.5 697 D W 8 + -8 [a]",
            "8,0 3 1 0.5 697 D W 8 + 8388608 [a]",
            "8,0 3 1 0.5 697 D W 36028797018963968 + 8 [a]",
            "8,1 3 1 0.5 697 D W 8 + 8 [a]",
        ] {
            let text = format!("{good}\n{bad}\n");
            assert_eq!(invalid_line(Format::Blkparse, text.as_bytes()), Some(2), "{bad}");
            assert_eq!(read(Format::Blkparse, text.as_bytes()).0.len(), 1);
        }
        let good = "1 8,0 W 8 8";
        for bad in ["1 8,0 W 8", "1 8,0 W 8 8 8", "1 8 W 8 8", "x 8,0 W 8 8", "1 8,0 - 8 8"] {
            let text = format!("{good}\n{bad}\n");
            assert_eq!(invalid_line(Format::Bpftrace, text.as_bytes()), Some(2), "{bad}");
        }
    }
}
