//! Object Lock: versions that cannot be removed until a time, or while there is a legal hold.
//!
//! The gateway's clock decides whether a time has come.

use super::times::{DAY_MS, TIME_MAX, ms_of, timestamp};
use s3s::dto::{self, ObjectLockLegalHoldStatus, ObjectLockRetentionMode, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use serde::{Deserialize, Serialize};

const DAYS_PER_YEAR: u64 = 365;
/// Longest retention by default: a hundred years.
const DAYS_MAX: u64 = 100 * DAYS_PER_YEAR;

/// What ends a retention before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LockMode {
    /// A request with `x-amz-bypass-governance-retention`.
    Governance,
    /// Nothing.
    Compliance,
}

impl LockMode {
    fn parse(text: &str) -> Option<Self> {
        match text {
            ObjectLockRetentionMode::GOVERNANCE => Some(Self::Governance),
            ObjectLockRetentionMode::COMPLIANCE => Some(Self::Compliance),
            _ => None,
        }
    }

    /// The word that S3 has for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Governance => ObjectLockRetentionMode::GOVERNANCE,
            Self::Compliance => ObjectLockRetentionMode::COMPLIANCE,
        }
    }
}

/// A time before which a version is not removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Retention {
    pub mode: LockMode,
    /// In milliseconds since 1970.
    pub until: u64,
}

impl Retention {
    /// The retention that a request's headers set, if any.
    pub fn of_headers(
        mode: Option<&str>,
        until: Option<&Timestamp>,
        now: u64,
    ) -> S3Result<Option<Self>> {
        match (mode, until) {
            (None, None) => Ok(None),
            (Some(mode), Some(until)) => {
                let mode = LockMode::parse(mode)
                    .ok_or_else(|| s3_error!(InvalidArgument, "there is no such retention mode"))?;
                Self::future(mode, until, now).map(Some)
            }
            _ => Err(s3_error!(InvalidArgument, "a retention has a mode and a date")),
        }
    }

    /// The retention that a request's body sets. Without mode and date it removes one.
    pub fn of_body(body: Option<&dto::ObjectLockRetention>, now: u64) -> S3Result<Option<Self>> {
        let malformed = || s3_error!(MalformedXML, "a retention has a mode and a date");
        let body = body.ok_or_else(malformed)?;
        match (&body.mode, &body.retain_until_date) {
            (None, None) => Ok(None),
            (Some(mode), Some(until)) => {
                let mode = LockMode::parse(mode.as_str()).ok_or_else(malformed)?;
                Self::future(mode, until, now).map(Some)
            }
            _ => Err(malformed()),
        }
    }

    fn future(mode: LockMode, until: &Timestamp, now: u64) -> S3Result<Self> {
        let until = ms_of(until);
        if until <= now || until > TIME_MAX {
            return Err(s3_error!(InvalidArgument, "the date of a retention is in the future"));
        }
        Ok(Self { mode, until })
    }

    /// As a reply's body has it.
    pub fn body(self) -> dto::ObjectLockRetention {
        dto::ObjectLockRetention {
            mode: Some(ObjectLockRetentionMode::from_static(self.mode.word())),
            retain_until_date: Some(timestamp(self.until)),
        }
    }

    fn is_over(self, now: u64) -> bool {
        self.until <= now
    }
}

/// The locks of a version.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Locks {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// Whether it has a legal hold; `None` if it never had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legal_hold: Option<bool>,
}

impl Locks {
    /// The locks that a request's headers set.
    pub fn of_headers(
        mode: Option<&str>,
        until: Option<&Timestamp>,
        legal_hold: Option<&ObjectLockLegalHoldStatus>,
        now: u64,
    ) -> S3Result<Self> {
        let retention = Retention::of_headers(mode, until, now)?;
        let legal_hold = legal_hold.map(|status| read_hold(status.as_str()));
        let legal_hold = legal_hold.transpose();
        let legal_hold =
            legal_hold.map_err(|_| s3_error!(InvalidArgument, "a legal hold is ON or OFF"))?;
        Ok(Self { retention, legal_hold })
    }

    /// Whether there are none, and never were.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The status of the legal hold, as the protocol's library has it.
    pub fn hold_status(&self) -> Option<ObjectLockLegalHoldStatus> {
        let word = |on| {
            if on { ObjectLockLegalHoldStatus::ON } else { ObjectLockLegalHoldStatus::OFF }
        };
        Some(ObjectLockLegalHoldStatus::from_static(word(self.legal_hold?)))
    }

    /// Fails unless the version may be removed. `bypass` ends a retention of governance.
    pub fn check_removal(&self, now: u64, bypass: bool) -> S3Result<()> {
        if self.legal_hold == Some(true) {
            return Err(s3_error!(AccessDenied, "the version has a legal hold"));
        }
        match self.retention.filter(|retention| !retention.is_over(now)) {
            Some(retention) if retention.mode == LockMode::Compliance || !bypass => {
                Err(s3_error!(AccessDenied, "the version is retained until a date"))
            }
            _ => Ok(()),
        }
    }

    /// Fails unless the retention may become `new`. A retention in force can be prolonged;
    /// `bypass` allows every other change of governance, and nothing allows it of compliance.
    pub fn check_change(&self, new: Option<Retention>, now: u64, bypass: bool) -> S3Result<()> {
        let Some(old) = self.retention.filter(|old| !old.is_over(now)) else { return Ok(()) };
        let is_longer = new.is_some_and(|new| new.mode == old.mode && new.until >= old.until);
        if is_longer || (old.mode == LockMode::Governance && bypass) {
            return Ok(());
        }
        Err(s3_error!(AccessDenied, "the retention in force can only be prolonged"))
    }
}

/// Reads the status of a legal hold.
pub fn read_hold(status: &str) -> S3Result<bool> {
    match status {
        ObjectLockLegalHoldStatus::ON => Ok(true),
        ObjectLockLegalHoldStatus::OFF => Ok(false),
        _ => Err(s3_error!(MalformedXML, "a legal hold is ON or OFF")),
    }
}

/// Object Lock of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct BucketLock {
    /// The retention of new versions without one of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<DefaultRetention>,
}

/// The retention of new versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DefaultRetention {
    pub mode: LockMode,
    pub period: Period,
}

/// A number of days or years.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    Days(u32),
    Years(u32),
}

impl Period {
    fn new(days: Option<i32>, years: Option<i32>) -> S3Result<Self> {
        let (count, of): (_, fn(u32) -> Self) = match (days, years) {
            (Some(days), None) => (days, Self::Days),
            (None, Some(years)) => (years, Self::Years),
            _ => return Err(s3_error!(MalformedXML, "a period has days or years")),
        };
        let period = u32::try_from(count).ok().filter(|count| *count > 0).map(of);
        period.filter(|period| period.days() <= DAYS_MAX).ok_or_else(|| {
            let code = S3ErrorCode::Custom("InvalidRetentionPeriod".into());
            let mut error = S3Error::with_message(code, "a period has 1 day to 100 years");
            error.set_status_code(hyper::StatusCode::BAD_REQUEST);
            error
        })
    }

    fn days(self) -> u64 {
        match self {
            Self::Days(days) => days.into(),
            Self::Years(years) => u64::from(years) * DAYS_PER_YEAR,
        }
    }
}

impl BucketLock {
    /// Object Lock of a request's body.
    pub fn of_body(body: Option<dto::ObjectLockConfiguration>) -> S3Result<Self> {
        let malformed =
            || s3_error!(MalformedXML, "Object Lock is Enabled, with a rule or without");
        let body = body.ok_or_else(malformed)?;
        let enabled = body.object_lock_enabled.ok_or_else(malformed)?;
        if enabled.as_str() != dto::ObjectLockEnabled::ENABLED {
            return Err(malformed());
        }
        let Some(rule) = body.rule else { return Ok(Self::default()) };
        let rule = rule.default_retention.ok_or_else(malformed)?;
        let mode = rule.mode.and_then(|mode| LockMode::parse(mode.as_str()));
        let mode = mode.ok_or_else(malformed)?;
        let period = Period::new(rule.days, rule.years)?;
        Ok(Self { default: Some(DefaultRetention { mode, period }) })
    }

    /// As a reply's body has it.
    pub fn body(self) -> dto::ObjectLockConfiguration {
        let rule = self.default.map(|DefaultRetention { mode, period }| {
            let (days, years) = match period {
                Period::Days(days) => (i32::try_from(days).ok(), None),
                Period::Years(years) => (None, i32::try_from(years).ok()),
            };
            let mode = Some(ObjectLockRetentionMode::from_static(mode.word()));
            let default = dto::DefaultRetention { days, mode, years };
            dto::ObjectLockRule { default_retention: Some(default) }
        });
        let enabled = dto::ObjectLockEnabled::from_static(dto::ObjectLockEnabled::ENABLED);
        dto::ObjectLockConfiguration { object_lock_enabled: Some(enabled), rule }
    }

    /// The retention of a version that is written now and has none of its own.
    pub fn retention(&self, now: u64) -> Option<Retention> {
        let DefaultRetention { mode, period } = self.default?;
        Some(Retention { mode, until: now + period.days() * DAY_MS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn retained(mode: LockMode, until: u64) -> Locks {
        Locks { retention: Some(Retention { mode, until }), legal_hold: None }
    }

    #[test]
    fn locks_keep_versions_until_their_time() {
        let may = |locks: Locks, bypass| locks.check_removal(NOW, bypass).is_ok();
        assert!(may(Locks::default(), false));
        assert!(may(retained(LockMode::Compliance, NOW), false), "its time has come");
        assert!(!may(retained(LockMode::Compliance, NOW + 1), true));
        assert!(!may(retained(LockMode::Governance, NOW + 1), false));
        assert!(may(retained(LockMode::Governance, NOW + 1), true));
        let hold = |on| Locks { legal_hold: Some(on), ..retained(LockMode::Governance, NOW + 1) };
        assert!(!may(hold(true), true) && may(hold(false), true));
    }

    #[test]
    fn retentions_in_force_are_only_prolonged() {
        use LockMode::{Compliance, Governance};
        let may = |old: Locks, mode, until, bypass| {
            old.check_change(Some(Retention { mode, until }), NOW, bypass).is_ok()
        };
        for mode in [Governance, Compliance] {
            assert!(may(retained(mode, NOW + 5), mode, NOW + 5, false));
            assert!(!may(retained(mode, NOW + 5), mode, NOW + 4, false));
            assert!(may(retained(mode, NOW), mode, NOW + 4, false), "it is over");
        }
        let governance = retained(Governance, NOW + 5);
        assert!(!may(governance, Compliance, NOW + 9, false));
        assert!(may(governance, Compliance, NOW + 1, true));
        assert!(governance.check_change(None, NOW, true).is_ok());
        assert!(governance.check_change(None, NOW, false).is_err());
        let compliance = retained(Compliance, NOW + 5);
        assert!(!may(compliance, Governance, NOW + 9, true));
        assert!(!may(compliance, Compliance, NOW + 4, true));
        assert!(compliance.check_change(None, NOW, true).is_err());
    }

    #[test]
    fn requests_are_read() {
        let at = |ms| timestamp(ms);
        let read = |mode, until: Option<u64>| {
            let until = until.map(at);
            let read = Retention::of_headers(mode, until.as_ref(), NOW);
            read.map_err(|error| error.code().as_str().to_owned())
        };
        let governance = Retention { mode: LockMode::Governance, until: NOW + 1000 };
        assert_eq!(read(None, None), Ok(None));
        assert_eq!(read(Some("GOVERNANCE"), Some(NOW + 1000)), Ok(Some(governance)));
        for (mode, until) in [
            (Some("GOVERNANCE"), None),
            (None, Some(NOW + 1000)),
            (Some("governance"), Some(NOW + 1000)),
            (Some("GOVERNANCE"), Some(NOW)),
        ] {
            assert_eq!(read(mode, until), Err("InvalidArgument".to_owned()), "{mode:?} {until:?}");
        }
        assert_eq!(Retention::of_body(Some(&governance.body()), NOW).unwrap(), Some(governance));
        let text = "9999-12-31T23:59:59-01:00";
        let late = Timestamp::parse(s3s::dto::TimestampFormat::DateTime, text).unwrap();
        assert!(Retention::of_headers(Some("GOVERNANCE"), Some(&late), NOW).is_err());
        let half = dto::ObjectLockRetention { mode: None, ..governance.body() };
        assert_eq!(
            Retention::of_body(Some(&half), NOW).unwrap_err().code().as_str(),
            "MalformedXML"
        );
        assert_eq!(
            Retention::of_body(Some(&dto::ObjectLockRetention::default()), NOW).unwrap(),
            None
        );
        assert!(read_hold("ON").unwrap() && !read_hold("OFF").unwrap() && read_hold("on").is_err());
    }

    #[test]
    fn a_bucket_has_a_default_of_days_or_years() {
        let code = |days, years| match Period::new(days, years) {
            Ok(period) => format!("{period:?}"),
            Err(error) => error.code().as_str().to_owned(),
        };
        assert_eq!(
            (code(Some(3), None), code(None, Some(2))),
            ("Days(3)".into(), "Years(2)".into())
        );
        for (days, years) in [(None, None), (Some(1), Some(1))] {
            assert_eq!(code(days, years), "MalformedXML");
        }
        for days in [0, -1, 100 * 365 + 1] {
            assert_eq!(code(Some(days), None), "InvalidRetentionPeriod");
        }
        let default = DefaultRetention { mode: LockMode::Compliance, period: Period::Years(2) };
        let lock = BucketLock { default: Some(default) };
        let until = NOW + 2 * 365 * DAY_MS;
        assert_eq!(lock.retention(NOW), Some(Retention { mode: LockMode::Compliance, until }));
        assert_eq!(BucketLock::of_body(Some(lock.body())).unwrap(), lock);
        assert_eq!(
            BucketLock::of_body(Some(BucketLock::default().body())).unwrap(),
            BucketLock::default()
        );
        for wrong in [None, Some(dto::ObjectLockConfiguration::default())] {
            assert_eq!(BucketLock::of_body(wrong).unwrap_err().code().as_str(), "MalformedXML");
        }
    }
}
