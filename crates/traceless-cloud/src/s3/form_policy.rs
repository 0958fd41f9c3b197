//! The policy of a form: until when it may be sent, and what its fields may say.
//!
//! Each field must be named in a condition, so that a page cannot add one. Exempt are the policy
//! and its signature, fields that S3 ignores, and checksums, which only make a form stricter.

use super::form_parser::FormFields;
use super::times::ms_of;
use core::ops::RangeInclusive;
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{S3Error, S3Result, s3_error};
use serde::Deserialize;
use serde_json::Value;

/// Fields that no condition needs to name.
const EXEMPT: [&str; 4] = ["policy", "x-amz-signature", "signature", "awsaccesskeyid"];
/// Beginnings of names of fields that no condition needs to name.
const EXEMPT_BEGINNINGS: [&str; 2] = ["x-ignore-", "x-amz-checksum-"];

/// A policy.
pub struct PostPolicy {
    /// In milliseconds since 1970.
    expiration: u64,
    conditions: Vec<Condition>,
    /// Lengths of files, in bytes.
    lengths: RangeInclusive<u64>,
}

/// A condition on a field. Its name is in lower case.
enum Condition {
    Equals { field: String, value: String },
    Begins { field: String, prefix: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyDocument {
    expiration: String,
    conditions: Vec<Value>,
}

impl PostPolicy {
    /// Reads a policy: JSON, in base64.
    pub fn parse(policy: &str) -> S3Result<Self> {
        let text = base64_simd::STANDARD.decode_to_vec(policy);
        let text = text.map_err(|_| invalid("it is not base64"))?;
        let document: PolicyDocument =
            serde_json::from_slice(&text).map_err(|error| invalid(&error.to_string()))?;
        let mut policy = Self {
            expiration: expiration(&document.expiration)?,
            conditions: Vec::new(),
            lengths: 0..=u64::MAX,
        };
        for condition in &document.conditions {
            policy.add(condition)?;
        }
        Ok(policy)
    }

    /// Checks the fields of a form, among them its bucket, at a time in milliseconds since 1970.
    /// Returns which lengths its file may have.
    pub fn check(&self, fields: &FormFields, now: u64) -> S3Result<RangeInclusive<u64>> {
        if self.expiration <= now {
            return Err(refused("it has expired"));
        }
        for condition in &self.conditions {
            if !condition.holds(fields) {
                return Err(refused(&format!("a condition fails on {}", condition.field())));
            }
        }
        let is_named =
            |name: &str| self.conditions.iter().any(|condition| condition.field() == name);
        match fields.iter().find(|(name, _)| !is_exempt(name) && !is_named(name)) {
            Some((name, _)) => Err(refused(&format!("no condition names {name}"))),
            None => Ok(self.lengths.clone()),
        }
    }

    fn add(&mut self, condition: &Value) -> S3Result<()> {
        let wrong = || invalid("a condition is {FIELD: VALUE}, or [WORD, $FIELD, VALUE]");
        match condition {
            Value::Object(pairs) if pairs.len() == 1 => {
                let (field, value) = pairs.iter().next().ok_or_else(wrong)?;
                let value = value.as_str().ok_or_else(wrong)?.to_owned();
                self.conditions.push(Condition::Equals { field: field.to_lowercase(), value });
            }
            Value::Array(words) => {
                let [word, one, two] = &words[..] else { return Err(wrong()) };
                let word = word.as_str().ok_or_else(wrong)?.to_ascii_lowercase();
                if word == "content-length-range" {
                    let start = number(one)?.max(*self.lengths.start());
                    self.lengths = start..=number(two)?.min(*self.lengths.end());
                    return Ok(());
                }
                let field = one.as_str().and_then(|field| field.strip_prefix('$'));
                let field = field.ok_or_else(wrong)?.to_lowercase();
                let value = two.as_str().ok_or_else(wrong)?.to_owned();
                self.conditions.push(match &word[..] {
                    "eq" => Condition::Equals { field, value },
                    "starts-with" => Condition::Begins { field, prefix: value },
                    _ => return Err(wrong()),
                });
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

impl Condition {
    fn field(&self) -> &str {
        match self {
            Self::Equals { field, .. } | Self::Begins { field, .. } => field,
        }
    }

    fn holds(&self, fields: &FormFields) -> bool {
        match self {
            Self::Equals { field, value } => fields.get(field) == Some(value),
            Self::Begins { field, prefix } => {
                fields.get(field).unwrap_or_default().starts_with(prefix)
            }
        }
    }
}

fn is_exempt(name: &str) -> bool {
    EXEMPT.contains(&name) || EXEMPT_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

fn expiration(text: &str) -> S3Result<u64> {
    let time = Timestamp::parse(TimestampFormat::DateTime, text).ok();
    let time = time.filter(|_| text.as_bytes().get(10) == Some(&b'T'));
    let time = time.ok_or_else(|| invalid("the expiration is a time like 2026-01-31T12:00:00Z"))?;
    Ok(ms_of(&time))
}

fn number(value: &Value) -> S3Result<u64> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.ok_or_else(|| invalid("a length is a number, and not negative"))
}

fn invalid(what: &str) -> S3Error {
    s3_error!(InvalidPolicyDocument, "Invalid Policy: {what}")
}

fn refused(what: &str) -> S3Error {
    s3_error!(AccessDenied, "Invalid according to Policy: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn policy(conditions: &str) -> Result<PostPolicy, String> {
        document(&format!(
            "{{\"expiration\": \"2030-01-01T00:00:00.000Z\", \"conditions\": [{conditions}]}}"
        ))
    }

    fn document(text: &str) -> Result<PostPolicy, String> {
        let read = PostPolicy::parse(&base64_simd::STANDARD.encode_to_string(text));
        read.map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn fields_are_checked_against_all_conditions() {
        let policy = policy(
            "{\"bUcket\": \"b\"}, [\"Starts-With\", \"$KEY\", \"u/\"], [\"eq\", \"$acl\", \"\"], \
             [\"starts-with\", \"$x-amz-meta-a\", \"\"], [\"content-length-range\", 1, \"9\"], \
             [\"content-length-range\", 0, 5]",
        );
        let policy = policy.unwrap();
        let right = [("bucket", "b"), ("key", "u/1"), ("acl", ""), ("x-ignore-me", "1")];
        let check =
            |more: &[(&str, &str)]| policy.check(&FormFields::of(&[&right, more].concat()), NOW);
        assert_eq!(check(&[]).unwrap(), 1..=5);
        assert!(check(&[("x-amz-meta-a", "any"), ("signature", "s"), ("policy", "p")]).is_ok());
        for wrong in [("bucket", "c"), ("key", "v/1"), ("acl", "x"), ("submit", ""), ("token", "")]
        {
            let error = check(&[wrong]).unwrap_err();
            assert_eq!(error.code().as_str(), "AccessDenied", "{wrong:?}");
        }
        let end = 1_893_456_000_000;
        assert!(policy.check(&FormFields::of(&right), end - 1).is_ok());
        assert!(policy.check(&FormFields::of(&right), end).is_err());
        assert!(policy.check(&FormFields::of(&right[1..]), NOW).is_err());
        assert!(policy.check(&FormFields::of(&right[..2]), NOW).is_err());
    }

    #[test]
    fn other_policies_are_invalid() {
        for conditions in [
            "{}",
            "{\"a\": \"1\", \"b\": \"2\"}",
            "{\"a\": 1}",
            "[\"eq\", \"key\", \"a\"]",
            "[\"eq\", \"$key\"]",
            "[\"eq\", \"$key\", 1]",
            "[\"ends-with\", \"$key\", \"a\"]",
            "[\"content-length-range\", 0]",
            "[\"content-length-range\", -1, 0]",
            "\"eq\"",
        ] {
            assert_eq!(policy(conditions).err().unwrap(), "InvalidPolicyDocument", "{conditions}");
        }
        for text in [
            "",
            "[]",
            "{\"conditions\": []}",
            "{\"expiration\": \"2030-01-01T00:00:00Z\"}",
            "{\"expiration\": \"2030-01-01T00:00:00Z\", \"CONDITIONS\": []}",
            "{\"expiration\": \"2030-01-01 00:00:00+00:00\", \"conditions\": []}",
            "{\"expiration\": \"soon\", \"conditions\": []}",
        ] {
            assert_eq!(document(text).err().unwrap(), "InvalidPolicyDocument", "{text}");
        }
        assert!(
            PostPolicy::parse("?").is_err()
                && document("{\"expiration\": \"2030-01-01T00:00:00Z\", \"conditions\": []}")
                    .is_ok()
        );
    }
}
