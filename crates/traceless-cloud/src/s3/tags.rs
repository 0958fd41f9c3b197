//! Tags of objects and buckets.

use s3s::dto::{Tag, TagSet};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most tags of an object, and of a bucket.
const OBJECT_TAGS_MAX: usize = 10;
const BUCKET_TAGS_MAX: usize = 50;
/// Most characters of a tag's key, and of its value.
const KEY_LEN_MAX: usize = 128;
const VALUE_LEN_MAX: usize = 256;
/// The beginning of keys that AWS keeps for itself.
const RESERVED: &str = "aws:";

/// Tags, in the order of their keys.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Tags(Vec<(String, String)>);

impl Tags {
    /// The tags of an object's list.
    pub fn of_object(set: TagSet) -> S3Result<Self> {
        Self::of(set, OBJECT_TAGS_MAX)
    }

    /// The tags of a bucket's list.
    pub fn of_bucket(set: TagSet) -> S3Result<Self> {
        Self::of(set, BUCKET_TAGS_MAX)
    }

    /// The tags of the header `x-amz-tagging`: a query string.
    pub fn of_header(header: Option<&str>) -> S3Result<Self> {
        let pairs = form_urlencoded::parse(header.unwrap_or_default().as_bytes()).into_owned();
        Self::checked(pairs.collect(), OBJECT_TAGS_MAX)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of `others` are among them.
    pub fn contain(&self, others: &Self) -> bool {
        others.0.iter().all(|tag| self.0.contains(tag))
    }

    /// How many there are; `None` for none, as headers have it.
    pub fn count(&self) -> Option<i32> {
        i32::try_from(self.0.len()).ok().filter(|count| *count > 0)
    }

    /// As the protocol's library has them.
    pub fn set(&self) -> TagSet {
        let tag = |(key, value): &(String, String)| Tag {
            key: Some(key.clone()),
            value: Some(value.clone()),
        };
        self.0.iter().map(tag).collect()
    }

    fn of(set: TagSet, most: usize) -> S3Result<Self> {
        let pair = |tag: Tag| Some((tag.key?, tag.value?));
        let pairs: Option<Vec<_>> = set.into_iter().map(pair).collect();
        Self::checked(pairs.ok_or_else(|| s3_error!(MalformedXML))?, most)
    }

    fn checked(mut pairs: Vec<(String, String)>, most: usize) -> S3Result<Self> {
        if pairs.len() > most {
            return Err(s3_error!(InvalidTag, "there are too many tags"));
        }
        let is_plain = |c: char| c.is_alphanumeric() || c.is_whitespace() || "+-=._:/@".contains(c);
        let mut keys = BTreeSet::new();
        for (key, value) in &pairs {
            let len = key.chars().count();
            if !(1..=KEY_LEN_MAX).contains(&len) || key.starts_with(RESERVED) {
                return Err(s3_error!(InvalidTag, "a tag's key has 1 to 128 characters"));
            }
            if value.chars().count() > VALUE_LEN_MAX {
                return Err(s3_error!(InvalidTag, "a tag's value has at most 256 characters"));
            }
            if !key.chars().chain(value.chars()).all(is_plain) {
                return Err(s3_error!(
                    InvalidTag,
                    "tags have letters, digits, blanks and +-=._:/@"
                ));
            }
            if !keys.insert(key) {
                return Err(s3_error!(InvalidTag, "two tags have the same key"));
            }
        }
        pairs.sort();
        Ok(Self(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(header: &str) -> String {
        let error = Tags::of_header(Some(header)).unwrap_err();
        assert_eq!(error.code().as_str(), "InvalidTag", "{header}");
        error.message().unwrap_or_default().to_owned()
    }

    #[test]
    fn tags_come_from_headers_and_lists_and_are_limited() {
        let tags = Tags::of_header(Some("empty&b%20c=d%2Fe&a=1")).unwrap();
        assert_eq!(tags.count(), Some(3));
        assert_eq!(Tags::of_object(tags.set()).unwrap(), tags);
        assert_eq!(tags.set()[1].value.as_deref(), Some("d/e"));
        assert_eq!(
            (Tags::of_header(None).unwrap(), Tags::default().count()),
            (Tags::default(), None)
        );

        let many = |count: usize| {
            let tags: Vec<_> = (0..count).map(|n| format!("k{n}=v")).collect();
            tags.join("&")
        };
        assert!(Tags::of_header(Some(&many(10))).is_ok());
        assert!(refused(&many(11)).contains("too many"));
        assert!(refused("a=1&a=2").contains("same key"));
        assert!(refused("=1").contains("1 to 128"));
        assert!(refused("aws:x=1").contains("1 to 128"));
        assert!(refused(&format!("{}=1", "k".repeat(129))).contains("1 to 128"));
        assert!(refused(&format!("k={}", "v".repeat(257))).contains("at most 256"));
        assert!(refused("k=%3C").contains("letters"));
        let bucket: TagSet =
            (0..50).map(|n| Tag { key: Some(n.to_string()), value: Some(String::new()) }).collect();
        assert!(Tags::of_bucket(bucket.clone()).is_ok() && Tags::of_object(bucket).is_err());
        let without = vec![Tag { key: Some("a".into()), value: None }];
        assert_eq!(Tags::of_object(without).unwrap_err().code().as_str(), "MalformedXML");
    }
}
