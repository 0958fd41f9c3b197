//! Rules by which objects, old versions and unfinished uploads of a bucket expire.

use super::note::Note;
use super::tags::Tags;
use super::times::{DAY_MS, TIME_MAX, ms_of, timestamp};
use s3s::dto::{self, ExpirationStatus};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most rules of a bucket.
const RULES_MAX: usize = 1000;
/// Longest prefix of a rule: that of a key.
const PREFIX_LEN_MAX: usize = 1024;
/// Longest name of a rule.
const ID_LEN_MAX: usize = 255;

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rule {
    pub id: String,
    pub is_enabled: bool,
    pub filter: Filter,
    /// When objects expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration: Option<Expiration>,
    /// When old versions are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noncurrent: Option<NoncurrentExpiration>,
    /// After how many days unfinished uploads are aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_days: Option<u32>,
}

/// The objects that a rule is for.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Filter {
    pub prefix: String,
    pub tags: Tags,
    /// Longer than so many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer: Option<u64>,
    /// Shorter than so many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shorter: Option<u64>,
    /// Whether the request had its prefix beside the rule, as older clients do.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_old: bool,
}

/// When objects expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expiration {
    /// So many days after they were written.
    Days(u32),
    /// At a time, in milliseconds since 1970.
    Date(u64),
    /// Delete markers, once there is no other version.
    Marker,
}

/// When old versions are removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NoncurrentExpiration {
    /// So many days after a newer one was written.
    pub days: u32,
    /// How many of them stay in any case.
    pub newer: u32,
}

impl Filter {
    /// Whether a rule is for an object of `len` bytes.
    pub fn includes(&self, key: &str, note: &Note, len: u64) -> bool {
        key.starts_with(&self.prefix)
            && note.tags.contain(&self.tags)
            && self.longer.is_none_or(|least| len > least)
            && self.shorter.is_none_or(|most| len < most)
    }

    /// Whether it is by prefix alone.
    fn is_by_prefix(&self) -> bool {
        self.tags.is_empty() && self.longer.is_none() && self.shorter.is_none()
    }

    fn of_request(rule: &dto::LifecycleRule) -> S3Result<Self> {
        let Some(filter) = &rule.filter else {
            let prefix = rule.prefix.clone().ok_or_else(|| malformed("a rule has a filter"))?;
            return Ok(Self { prefix, is_old: true, ..Self::default() });
        };
        if rule.prefix.is_some() {
            return Err(malformed("a rule has a filter or a prefix"));
        }
        let and = filter.and.clone().unwrap_or_default();
        let tags = and.tags.into_iter().flatten().chain(filter.tag.clone()).collect();
        let bytes = |one: Option<i64>, two: Option<i64>| {
            let bytes = one.or(two).map(u64::try_from).transpose();
            bytes.map_err(|_| s3_error!(InvalidArgument, "a size is not negative"))
        };
        Ok(Self {
            prefix: filter.prefix.clone().or(and.prefix).unwrap_or_default(),
            tags: Tags::of_object(tags)?,
            longer: bytes(filter.object_size_greater_than, and.object_size_greater_than)?,
            shorter: bytes(filter.object_size_less_than, and.object_size_less_than)?,
            is_old: false,
        })
    }

    fn reply(&self) -> dto::LifecycleRuleFilter {
        let prefix = Some(self.prefix.clone());
        if self.is_by_prefix() {
            return dto::LifecycleRuleFilter { prefix, ..dto::LifecycleRuleFilter::default() };
        }
        let bytes = |bytes: Option<u64>| bytes.and_then(|bytes| i64::try_from(bytes).ok());
        let and = dto::LifecycleRuleAndOperator {
            object_size_greater_than: bytes(self.longer),
            object_size_less_than: bytes(self.shorter),
            prefix: prefix.filter(|prefix| !prefix.is_empty()),
            tags: Some(self.tags.set()).filter(|tags| !tags.is_empty()),
        };
        dto::LifecycleRuleFilter { and: Some(and), ..dto::LifecycleRuleFilter::default() }
    }
}

impl Rule {
    /// The rules of a request.
    pub fn of_request(body: Option<dto::BucketLifecycleConfiguration>) -> S3Result<Vec<Self>> {
        let rules = body.ok_or_else(|| malformed("there are rules"))?.rules;
        if rules.is_empty() || rules.len() > RULES_MAX {
            return Err(malformed("there are 1 to 1000 rules"));
        }
        let rules: Vec<_> = rules.iter().enumerate().map(Self::of_one).collect::<S3Result<_>>()?;
        let ids: BTreeSet<_> = rules.iter().map(|rule| &rule.id).collect();
        if ids.len() < rules.len() {
            return Err(s3_error!(InvalidArgument, "two rules have the same name"));
        }
        Ok(rules)
    }

    fn of_one((index, rule): (usize, &dto::LifecycleRule)) -> S3Result<Self> {
        let moves = rule.transitions.iter().flatten();
        moves.filter_map(|to| to.date.as_ref()).try_for_each(|date| midnight(date).map(drop))?;
        if rule.transitions.is_some() || rule.noncurrent_version_transitions.is_some() {
            return Err(s3_error!(NotImplemented, "there is one storage class, so no transitions"));
        }
        let is_enabled = match rule.status.as_str() {
            ExpirationStatus::ENABLED => true,
            ExpirationStatus::DISABLED => false,
            _ => return Err(malformed("a rule is Enabled or Disabled")),
        };
        let id = rule.id.clone().filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| format!("rule-{}", index + 1));
        if id.len() > ID_LEN_MAX {
            return Err(s3_error!(InvalidArgument, "the name of a rule has at most 255 bytes"));
        }
        let filter = Filter::of_request(rule)?;
        if filter.prefix.len() > PREFIX_LEN_MAX {
            return Err(s3_error!(InvalidArgument, "a prefix has at most 1024 bytes"));
        }
        let expiration = rule.expiration.as_ref().map(expiration).transpose()?;
        let noncurrent = rule.noncurrent_version_expiration.as_ref().map(noncurrent).transpose()?;
        let abort = rule.abort_incomplete_multipart_upload.as_ref();
        let abort_days = abort.map(|abort| days(abort.days_after_initiation)).transpose()?;
        if expiration.is_none() && noncurrent.is_none() && abort_days.is_none() {
            return Err(s3_error!(InvalidRequest, "a rule has an action"));
        }
        if abort_days.is_some() && !filter.is_by_prefix() {
            return Err(s3_error!(InvalidRequest, "uploads are chosen by their prefix alone"));
        }
        Ok(Self { id, is_enabled, filter, expiration, noncurrent, abort_days })
    }

    /// As a reply has it.
    pub fn reply(&self) -> dto::LifecycleRule {
        let expiration = self.expiration.map(|expiration| match expiration {
            Expiration::Days(days) => {
                dto::LifecycleExpiration { days: count(days), ..Default::default() }
            }
            Expiration::Date(date) => {
                dto::LifecycleExpiration { date: Some(timestamp(date)), ..Default::default() }
            }
            Expiration::Marker => dto::LifecycleExpiration {
                expired_object_delete_marker: Some(true),
                ..Default::default()
            },
        });
        let noncurrent = self.noncurrent.map(|of| dto::NoncurrentVersionExpiration {
            newer_noncurrent_versions: count(of.newer).filter(|newer| *newer > 0),
            noncurrent_days: count(of.days),
        });
        let abort = self
            .abort_days
            .map(|days| dto::AbortIncompleteMultipartUpload { days_after_initiation: count(days) });
        let status =
            if self.is_enabled { ExpirationStatus::ENABLED } else { ExpirationStatus::DISABLED };
        dto::LifecycleRule {
            abort_incomplete_multipart_upload: abort,
            expiration,
            filter: (!self.filter.is_old).then(|| self.filter.reply()),
            id: Some(self.id.clone()),
            noncurrent_version_expiration: noncurrent,
            noncurrent_version_transitions: None,
            prefix: self.filter.is_old.then(|| self.filter.prefix.clone()),
            status: ExpirationStatus::from_static(status),
            transitions: None,
        }
    }
}

fn expiration(of: &dto::LifecycleExpiration) -> S3Result<Expiration> {
    match (of.days, &of.date, of.expired_object_delete_marker) {
        (Some(number), None, None) => days(Some(number)).map(Expiration::Days),
        (None, Some(date), None) => midnight(date).map(Expiration::Date),
        (None, None, Some(true)) => Ok(Expiration::Marker),
        _ => Err(malformed("an expiration has days, a date, or the word for delete markers")),
    }
}

/// The date of a rule, in milliseconds since 1970.
fn midnight(date: &dto::Timestamp) -> S3Result<u64> {
    let ms = ms_of(date);
    if !ms.is_multiple_of(DAY_MS) || ms > TIME_MAX {
        return Err(s3_error!(InvalidArgument, "the date of a rule is at midnight"));
    }
    Ok(ms)
}

fn noncurrent(of: &dto::NoncurrentVersionExpiration) -> S3Result<NoncurrentExpiration> {
    let newer = u32::try_from(of.newer_noncurrent_versions.unwrap_or_default());
    let newer = newer.map_err(|_| s3_error!(InvalidArgument, "a number is not negative"))?;
    Ok(NoncurrentExpiration { days: days(of.noncurrent_days)?, newer })
}

fn days(number: Option<i32>) -> S3Result<u32> {
    let number = number.and_then(|number| u32::try_from(number).ok()).filter(|days| *days > 0);
    number.ok_or_else(|| s3_error!(InvalidArgument, "a rule has 1 day or more"))
}

fn count(number: u32) -> Option<i32> {
    i32::try_from(number).ok()
}

fn malformed(text: &'static str) -> s3s::S3Error {
    s3_error!(MalformedXML, "{text}")
}

/// Whether so many days have gone by.
pub fn is_past(since: u64, days: u32, now: u64) -> bool {
    end_of(since, days) <= now
}

/// When so many days have gone by: they end at midnight, as in S3.
pub fn end_of(since: u64, days: u32) -> u64 {
    since.saturating_add(u64::from(days) * DAY_MS).div_ceil(DAY_MS).saturating_mul(DAY_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> dto::LifecycleRule {
        dto::LifecycleRule {
            expiration: Some(dto::LifecycleExpiration { days: Some(3), ..Default::default() }),
            filter: Some(dto::LifecycleRuleFilter {
                prefix: Some("logs/".to_owned()),
                ..Default::default()
            }),
            ..Rule {
                id: "a".to_owned(),
                is_enabled: true,
                filter: Filter::default(),
                expiration: None,
                noncurrent: None,
                abort_days: None,
            }
            .reply()
        }
    }

    fn read(rules: Vec<dto::LifecycleRule>) -> Result<Vec<Rule>, String> {
        let read = Rule::of_request(Some(dto::BucketLifecycleConfiguration { rules }));
        read.map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn rules_are_read_and_replied() {
        let and = dto::LifecycleRuleAndOperator {
            object_size_less_than: Some(100),
            prefix: Some("x".to_owned()),
            tags: Some(Tags::of_header(Some("a=b")).unwrap().set()),
            ..Default::default()
        };
        let rules = vec![
            rule(),
            dto::LifecycleRule {
                id: Some("b".to_owned()),
                filter: Some(dto::LifecycleRuleFilter { and: Some(and), ..Default::default() }),
                noncurrent_version_expiration: Some(dto::NoncurrentVersionExpiration {
                    newer_noncurrent_versions: Some(2),
                    noncurrent_days: Some(7),
                }),
                ..rule()
            },
            dto::LifecycleRule {
                id: Some("c".to_owned()),
                filter: None,
                prefix: Some(String::new()),
                expiration: None,
                abort_incomplete_multipart_upload: Some(dto::AbortIncompleteMultipartUpload {
                    days_after_initiation: Some(1),
                }),
                ..rule()
            },
        ];
        let known = read(rules.clone()).unwrap();
        assert_eq!(known.iter().map(Rule::reply).collect::<Vec<_>>(), rules);
        let kept = serde_json::to_vec(&known).unwrap();
        assert_eq!(serde_json::from_slice::<Vec<Rule>>(&kept).unwrap(), known);
        let unnamed = dto::LifecycleRule { id: None, ..rule() };
        assert_eq!(read(vec![unnamed]).unwrap()[0].id, "rule-1");
    }

    #[test]
    fn wrong_rules_are_refused() {
        let of_days = |days| dto::LifecycleRule {
            expiration: Some(dto::LifecycleExpiration { days: Some(days), ..Default::default() }),
            ..rule()
        };
        let at = |ms| dto::LifecycleRule {
            expiration: Some(dto::LifecycleExpiration {
                date: Some(timestamp(ms)),
                ..Default::default()
            }),
            ..rule()
        };
        assert!(read(vec![at(3 * DAY_MS)]).is_ok());
        let both = dto::LifecycleRule { prefix: Some(String::new()), ..rule() };
        let idle = dto::LifecycleRule { expiration: None, ..rule() };
        let moves = dto::LifecycleRule { transitions: Some(Vec::new()), ..rule() };
        let at_noon =
            dto::Transition { date: Some(timestamp(DAY_MS / 2)), ..dto::Transition::default() };
        let moves_at_noon = dto::LifecycleRule { transitions: Some(vec![at_noon]), ..rule() };
        let odd = dto::LifecycleRule { status: ExpirationStatus::from_static("enabled"), ..rule() };
        for (rules, code) in [
            (vec![], "MalformedXML"),
            (vec![of_days(0)], "InvalidArgument"),
            (vec![of_days(-1)], "InvalidArgument"),
            (vec![at(3 * DAY_MS + 1000)], "InvalidArgument"),
            (vec![rule(), rule()], "InvalidArgument"),
            (vec![both], "MalformedXML"),
            (vec![idle], "InvalidRequest"),
            (vec![moves], "NotImplemented"),
            (vec![moves_at_noon], "InvalidArgument"),
            (vec![odd], "MalformedXML"),
            (vec![dto::LifecycleRule { id: Some("x".repeat(256)), ..rule() }], "InvalidArgument"),
        ] {
            assert_eq!(read(rules).unwrap_err(), code);
        }
    }

    #[test]
    fn days_end_at_midnight() {
        for (since, end) in [(0, 2), (1, 3), (DAY_MS - 1, 3), (DAY_MS, 3), (DAY_MS + 1, 4)] {
            assert_eq!(end_of(since, 2), end * DAY_MS, "{since}");
            assert!(is_past(since, 2, end * DAY_MS) && !is_past(since, 2, end * DAY_MS - 1));
        }
        assert!(!is_past(u64::MAX, u32::MAX, u64::MAX - 1));
    }

    #[test]
    fn filters_choose_objects() {
        let note = Note::default().tagged(Tags::of_header(Some("a=b&c=d")).unwrap());
        let filter = |prefix: &str, tags: &str, longer, shorter| Filter {
            prefix: prefix.to_owned(),
            tags: Tags::of_header(Some(tags)).unwrap(),
            longer,
            shorter,
            is_old: false,
        };
        let includes = |filter: Filter| filter.includes("logs/1", &note, 10);
        assert!(includes(Filter::default()));
        assert!(includes(filter("logs/", "a=b", Some(9), Some(11))));
        assert!(!includes(filter("log/", "", None, None)));
        assert!(!includes(filter("", "a=c", None, None)));
        assert!(!includes(filter("", "", Some(10), None)));
        assert!(!includes(filter("", "", None, Some(10))));
    }
}
