//! Access logs of S3: a provider's view of the requests of its customers.

use super::{LineError, LineEvent, len_of, number, place_of, wire_event};
use traceless_core::trace::{Event, Op};

/// The index of the operation among the fields, and the fewest fields of a line.
const OPERATION: usize = 6;
const FIELDS_MIN: usize = 13;

/// An empty field.
const NONE: &[u8] = b"-";

/// `OWNER BUCKET [TIME] ADDRESS REQUESTER REQUEST-ID OPERATION KEY "REQUEST" STATUS ERROR SENT SIZE
/// ...`
pub fn fits(line: &[u8]) -> bool {
    let fields = split(line);
    fields.len() >= FIELDS_MIN && time_of(fields[2]).is_some()
}

pub fn read(line: &[u8], events: &mut Vec<Event>) -> Result<LineEvent, LineError> {
    let fields = split(line);
    if fields.len() < FIELDS_MIN {
        return Err("it has fewer fields than an access log of S3");
    }
    let (bucket, operation, key) = (fields[1], fields[OPERATION], fields[OPERATION + 1]);
    let (sent, size) = (fields[OPERATION + 5], fields[OPERATION + 6]);
    let time = time_of(fields[2]).ok_or("its third field is no time")?;
    let op = op_of(operation).ok_or("its operation is none of S3")?;
    // An object may be sent in part: the observable length of a read is what was sent.
    let length = if op == Op::Read { sent } else { size };
    let len = if length == NONE { 0 } else { number(length).ok_or("a length is no number")? };
    events.push(wire_event(time, op, place_of(&[bucket, b"/", key]), len_of(len)?));
    Ok(LineEvent::Events)
}

/// Whether an operation, for example `REST.GET.OBJECT`, reads or writes.
fn op_of(operation: &[u8]) -> Option<Op> {
    let mut parts = operation.split(|&byte| byte == b'.');
    let (how, verb) = (parts.next()?, parts.next()?);
    let is_known = matches!(how, b"REST" | b"SOAP" | b"WEBSITE" | b"BATCH" | b"S3");
    let op = match verb {
        b"GET" | b"HEAD" | b"OPTIONS" => Op::Read,
        _ => Op::Write,
    };
    is_known.then_some(op)
}

/// Splits a line at single blanks; some fields are in brackets or quotes.
fn split(line: &[u8]) -> Vec<&[u8]> {
    let mut fields = vec![];
    let mut rest = line;
    while let Some(first) = rest.first() {
        let (begin, end) = match first {
            b'[' => (1, find(&rest[1..], b"] ")),
            b'"' => (1, find(&rest[1..], b"\" ")),
            _ => (0, find(rest, b" ")),
        };
        let closing = usize::from(begin == 1);
        let end = end.map_or(rest.len().saturating_sub(closing).max(begin), |end| begin + end);
        fields.push(&rest[begin.min(end)..end]);
        rest = rest.get(end + closing + 1..).unwrap_or_default();
    }
    fields
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Nanoseconds since 1970 of `06/Feb/2019:00:00:38 +0000`.
fn time_of(field: &[u8]) -> Option<u64> {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let field: &[u8; 26] = field.try_into().ok()?;
    let separators = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    if separators.iter().any(|&(at, byte)| field[at] != byte) {
        return None;
    }
    let two = |at: usize| digits(&field[at..at + 2]);
    let month = MONTHS.chunks(3).position(|month| *month == field[3..6])?;
    let days = days_since_1970(digits(&field[7..11])?, month as u64 + 1, two(0)?)?;
    let seconds = days * 86_400 + two(12)? * 3_600 + two(15)? * 60 + two(18)?;
    let offset = two(22)? * 3_600 + two(24)? * 60;
    let seconds = match field[21] {
        b'+' => seconds.checked_sub(offset)?,
        b'-' => seconds + offset,
        _ => return None,
    };
    seconds.checked_mul(1_000_000_000)
}

fn digits(field: &[u8]) -> Option<u64> {
    field.iter().all(u8::is_ascii_digit).then(|| number(field))?
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    if year < 1970 {
        return None;
    }
    let of_years: u64 = (1970..year).map(|year| 365 + u64::from(is_leap(year))).sum();
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let of_months: u64 = lengths[..month as usize - 1].iter().sum();
    (1..=lengths[month as usize - 1]).contains(&day).then(|| of_years + of_months + day - 1)
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::super::tests::{invalid_line, ops, read};
    use super::*;

    /// The form is that of the examples in Amazon's manual; the names are made up.
    const LOG: &[u8] = b"\
79a59df900b949e5 bucket1 [06/Feb/2019:00:00:38 +0000] 192.0.2.3 79a59df900b949e5 3E57427F3EXAMPLE \
REST.GET.VERSIONING - \"GET /bucket1?versioning HTTP/1.1\" 200 - 113 - 7 - \"-\" \
\"S3Console/0.4\" - s9lzHYrFp76ZVxRcpX9+5cjAnEH2ROuNkd2BHfIa6UkFVdtjf5mKR3/eTPFvsiP/XV/VLi31234= \
SigV4 ECDHE-RSA-AES128-GCM-SHA256 AuthHeader bucket1.s3.us-west-1.amazonaws.com TLSV1.2 - -
79a59df900b949e5 bucket1 [06/Feb/2019:00:00:39 +0000] 192.0.2.3 79a59df900b949e5 4B5C1A0EXAMPLE00 \
REST.PUT.OBJECT photos/a%20b.jpg \"PUT /bucket1/photos/a%20b.jpg HTTP/1.1\" 200 - - 4096 41 28 \
\"-\" \"a \"quoted\" agent\" - x= SigV4 - - - - - -
79a59df900b949e5 bucket1 [06/Feb/2019:02:00:40 +0200] 192.0.2.3 79a59df900b949e5 5B5C1A0EXAMPLE00 \
REST.GET.OBJECT photos/a%20b.jpg \"GET /bucket1/photos/a%20b.jpg HTTP/1.1\" 206 - 100 4096 9 8 \
\"-\" \"agent\" - x= SigV4 - - - - - -
";

    #[test]
    fn log_lines_become_events() {
        assert_eq!(Format::detect(LOG), Some(Format::S3));
        let (events, error) = read(Format::S3, LOG);
        assert!(error.is_none(), "{error:?}");
        let photo = place_of(&[b"bucket1/photos/a%20b.jpg"]);
        let list = place_of(&[b"bucket1/-"]);
        let expected = [(Op::Read, list, 113), (Op::Write, photo, 4096), (Op::Read, photo, 100)];
        assert_eq!(ops(&events), expected);
        assert_eq!(events[0].time, 1_549_411_238_000_000_000);
        assert_eq!(events[2].time - events[1].time, 1_000_000_000);
    }

    #[test]
    fn dates_are_days_since_1970() {
        assert_eq!(days_since_1970(1970, 1, 1), Some(0));
        assert_eq!(days_since_1970(2000, 3, 1), Some(11_017));
        assert_eq!(days_since_1970(2100, 3, 1), Some(47_541));
        assert_eq!(days_since_1970(2023, 2, 29), None);
        assert_eq!(days_since_1970(1969, 12, 31), None);
    }

    #[test]
    fn invalid_lines_are_reported_by_number() {
        let line = |time: &str, operation: &str, sent: &str| {
            format!(
                "o b [{time}] a r i {operation} k \"GET /b/k\" 200 - {sent} 5 7 - \"-\" \"-\"\n"
            )
        };
        let good = line("06/Feb/2019:00:00:38 +0000", "REST.GET.OBJECT", "5");
        assert!(read(Format::S3, good.as_bytes()).1.is_none());
        for bad in [
            line("06/Fxb/2019:00:00:38 +0000", "REST.GET.OBJECT", "5"),
            line("31/Feb/2019:00:00:38 +0000", "REST.GET.OBJECT", "5"),
            line("06/Feb/2019:00:00:38", "REST.GET.OBJECT", "5"),
            line("06/Feb/2019:00:00:38 +0000", "GET", "5"),
            line("06/Feb/2019:00:00:38 +0000", "REST.GET.OBJECT", "five"),
            line("06/Feb/2019:00:00:38 +0000", "REST.GET.OBJECT", "4294967296"),
            "o b [06/Feb/2019:00:00:38 +0000] a r i REST.GET.OBJECT k\n".to_owned(),
            "[\n".to_owned(),
            "\"\n".to_owned(),
        ] {
            let text = format!("{good}{bad}");
            assert_eq!(invalid_line(Format::S3, text.as_bytes()), Some(2), "{bad}");
        }
    }
}
