//! Times, as they are kept and as S3 has them.

use s3s::dto::{Timestamp, TimestampFormat};
use std::time::{Duration, SystemTime};

/// Milliseconds of a day.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The last time that S3's texts can have: the end of the year 9999, in milliseconds since 1970.
pub const TIME_MAX: u64 = 253_402_300_799_000;

/// A time in S3's type; the last one for times behind it.
pub fn timestamp(ms: u64) -> Timestamp {
    let ms = ms.min(TIME_MAX);
    Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
}

/// A time in the form in which it is kept.
pub fn http_date(time: Option<&Timestamp>) -> Option<String> {
    let mut text = Vec::new();
    time?.format(TimestampFormat::HttpDate, &mut text).ok()?;
    String::from_utf8(text).ok()
}

/// A time in milliseconds since 1970; the first one for times before.
pub fn ms_of(time: &Timestamp) -> u64 {
    let mut text = Vec::new();
    let written = time.format(TimestampFormat::EpochSeconds, &mut text);
    let text = written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default();
    let (seconds, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let Ok(seconds) = seconds.parse::<u64>() else { return 0 };
    let ms = format!("{fraction:0<3}").get(..3).and_then(|ms| ms.parse::<u64>().ok());
    seconds.saturating_mul(1000).saturating_add(ms.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_behind_the_last_one_can_be_sent() {
        let last = timestamp(u64::MAX);
        assert_eq!(ms_of(&last), TIME_MAX);
        assert_eq!(http_date(Some(&last)).unwrap(), "Fri, 31 Dec 9999 23:59:59 GMT");
        let text = "9999-12-31T23:59:59-01:00";
        assert!(ms_of(&Timestamp::parse(TimestampFormat::DateTime, text).unwrap()) > TIME_MAX);
    }

    #[test]
    fn times_are_read_to_the_millisecond() {
        for ms in [0, 1, 999, 1000, 1_700_000_000_020] {
            assert_eq!(ms_of(&timestamp(ms)), ms);
        }
        let before = Timestamp::parse(TimestampFormat::DateTime, "1950-01-01T00:00:00Z").unwrap();
        assert_eq!(ms_of(&before), 0);
    }
}
