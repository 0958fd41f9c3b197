//! Page faults of a process, as the manager of its pages observes them.

use super::{LineError, LineEvent, fields, hexadecimal, nanoseconds, number};
use traceless_core::trace::{Event, Op, Surface};

/// Bytes of a page. The manager of pages observes the page of a fault, not the address in it.
const PAGE_LEN: u64 = 4096;

/// The bit of the processor's error code that marks a write.
const IS_WRITE: u64 = 2;

/// The name of the event in the output of `perf script`.
const PERF_NAME: &[u8] = b"exceptions:page_fault_user:";

/// A reader of the lines of one process.
#[derive(Default)]
pub struct Faults {
    process: Option<u32>,
}

/// `NANOSECONDS PID 0xADDRESS r|w`, or the output of `perf script`.
pub fn fits(line: &[u8]) -> bool {
    is_of_perf(line) || of_script(line).is_ok()
}

fn is_of_perf(line: &[u8]) -> bool {
    fields(line).any(|field| field == PERF_NAME)
}

impl Faults {
    pub fn read(&mut self, line: &[u8], events: &mut Vec<Event>) -> Result<LineEvent, LineError> {
        let (time, address, op) = if is_of_perf(line) {
            of_perf(line)?
        } else {
            let (time, process, address, op) = of_script(line)?;
            if *self.process.get_or_insert(process) != process {
                return Err("it is of another process than those before: trace one at a time");
            }
            (time, address, op)
        };
        let at = address / PAGE_LEN * PAGE_LEN;
        events.push(Event { time, surface: Surface::Page, op, at, len: PAGE_LEN as u32 });
        Ok(LineEvent::Events)
    }
}

fn of_script(line: &[u8]) -> Result<(u64, u32, u64, Op), LineError> {
    let all: Vec<&[u8]> = fields(line).take(5).collect();
    let [time, process, address, kind] = all[..] else {
        return Err("it has not four fields");
    };
    let op = match kind {
        b"r" => Op::Read,
        b"w" => Op::Write,
        _ => return Err("its last field is neither r nor w"),
    };
    Ok((
        number(time).ok_or("its time is no number")?,
        number(process).ok_or("its process is no number")?,
        hexadecimal(address).ok_or("its address is no number")?,
        op,
    ))
}

/// `COMMAND PID [CPU] SECONDS.MICROSECONDS: NAME address=0x... ip=... error_code=0x...`: a command
/// may have blanks, so the line is read from the event's name on, in both directions.
fn of_perf(line: &[u8]) -> Result<(u64, u64, Op), LineError> {
    let all: Vec<&[u8]> = fields(line).collect();
    let name = all.iter().position(|field| *field == PERF_NAME).ok_or("it is no page fault")?;
    let time = name.checked_sub(1).and_then(|before| all[before].strip_suffix(b":"));
    let time = time.and_then(nanoseconds).ok_or("its time is no number")?;
    let value = |key: &[u8]| all[name..].iter().find_map(|field| field.strip_prefix(key));
    let address = value(b"address=").and_then(hexadecimal).ok_or("its address is no number")?;
    let code = value(b"error_code=").and_then(hexadecimal).ok_or("its error code is no number")?;
    Ok((time, address, if code & IS_WRITE > 0 { Op::Write } else { Op::Read }))
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::super::tests::{invalid_line, ops, read};
    use super::*;

    const SCRIPT: &[u8] = b"\
Attaching 2 probes...
# time pid address kind
81000 4242 0x7f3a10002040 w
82000 4242 0x7f3a10003fff r
";

    /// Written by hand after the kernel's format of the event.
    const PERF: &[u8] = b"\
 Web Content  4242 [001]  5210.123456: exceptions:page_fault_user: address=0x7f3a10002040 \
ip=0x55d0c0de error_code=0x6
         cat  4242 [000]  5210.123460: exceptions:page_fault_user: address=0x401000 \
ip=__libc_start+0x10 error_code=0x14
";

    #[test]
    fn page_faults_become_events() {
        let pages = [(Op::Write, 0x7f3a_1000_2000, 4096), (Op::Read, 0x7f3a_1000_3000, 4096)];
        assert_eq!(Format::detect(SCRIPT), Some(Format::PageFaults));
        let (events, error) = read(Format::PageFaults, SCRIPT);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(ops(&events), pages);
        assert_eq!((events[1].time, events[1].surface), (82_000, Surface::Page));
        assert_eq!(Format::detect(PERF), Some(Format::PageFaults));
        let (events, error) = read(Format::PageFaults, PERF);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(ops(&events), [pages[0], (Op::Read, 0x40_1000, 4096)]);
        assert_eq!(events[0].time, 5_210_123_456_000);
    }

    #[test]
    fn invalid_lines_are_reported_by_number() {
        let name = "exceptions:page_fault_user:";
        for bad in [
            "1 2 0x1000".to_owned(),
            "1 2 0x1000 x".to_owned(),
            "1 2 4096 r".to_owned(),
            "x 2 0x1000 r".to_owned(),
            "1 3 0x1000 r".to_owned(),
            format!("{name} address=0x1000 error_code=0x2"),
            format!("a 1 0.5: {name} error_code=0x2"),
            format!("a 1 0.5: {name} address=main error_code=0x2"),
            format!("a 1 0.5: {name} address=0x1000"),
        ] {
            let text = format!("1 2 0x1000 r\n{bad}\n");
            assert_eq!(invalid_line(Format::PageFaults, text.as_bytes()), Some(2), "{bad}");
        }
    }
}
