//! Conditional requests.

use super::note::Note;
use hyper::header::{ETAG, HeaderName, HeaderValue, LAST_MODIFIED};
use s3s::dto::{ETagCondition, Timestamp, TimestampFormat};
use s3s::{S3Error, S3Result, s3_error};

/// The conditions on an object under which a request is carried out.
#[derive(Clone, Default)]
pub struct Conditions {
    /// The object has this tag.
    pub matches: Option<ETagCondition>,
    /// The object does not have this tag.
    pub matches_not: Option<ETagCondition>,
    /// The object was written after this time.
    pub modified_since: Option<Timestamp>,
    /// The object was not written after this time.
    pub unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// Fails unless an object may be read. Tags have precedence over times.
    pub fn check_read(&self, note: &Note) -> S3Result<()> {
        self.check_match(Some(note))?;
        if self.matches.is_none()
            && self.unmodified_since.as_ref().is_some_and(|since| is_later(note, since))
        {
            return Err(s3_error!(PreconditionFailed));
        }
        let unchanged = match (&self.matches_not, &self.modified_since) {
            (Some(tag), _) => fits(tag, note),
            (None, Some(since)) => !is_later(note, since),
            (None, None) => false,
        };
        if unchanged { Err(not_modified(note)) } else { Ok(()) }
    }

    /// Fails unless an object may be copied.
    pub fn check_copy(&self, note: &Note) -> S3Result<()> {
        self.check_read(note).map_err(|_| s3_error!(PreconditionFailed))
    }

    /// Fails unless the existing object, if any, may be replaced.
    pub fn check_write(&self, note: Option<&Note>) -> S3Result<()> {
        self.check_match(note)?;
        let there = self.matches_not.as_ref().zip(note).is_some_and(|(tag, note)| fits(tag, note));
        if there { Err(s3_error!(PreconditionFailed)) } else { Ok(()) }
    }

    fn check_match(&self, note: Option<&Note>) -> S3Result<()> {
        match (&self.matches, note) {
            (Some(tag), Some(note)) if !fits(tag, note) => Err(s3_error!(PreconditionFailed)),
            (Some(_), None) => Err(s3_error!(NoSuchKey)),
            _ => Ok(()),
        }
    }
}

/// The reply to a client that has the object already, with what identifies it.
fn not_modified(note: &Note) -> S3Error {
    let mut modified = Vec::new();
    let written = note.modified().format(TimestampFormat::HttpDate, &mut modified);
    let modified = written.ok().and_then(|()| HeaderValue::from_bytes(&modified).ok());
    let etag = HeaderValue::from_str(&format!("\"{}\"", note.etag)).ok();
    let version = note.known_version().and_then(|id| HeaderValue::from_str(&id).ok());
    let version_name = HeaderName::from_static("x-amz-version-id");
    let headers = [(LAST_MODIFIED, modified), (ETAG, etag), (version_name, version)];
    let mut error = s3_error!(NotModified);
    error.set_headers(
        headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
    );
    error
}

fn fits(condition: &ETagCondition, note: &Note) -> bool {
    condition.as_etag().is_none_or(|tag| tag.value() == note.etag)
}

/// Whether an object was written after the given second.
fn is_later(note: &Note, since: &Timestamp) -> bool {
    super::times::timestamp(note.modified / 1000 * 1000) > *since
}

#[cfg(test)]
mod tests {
    use super::super::times::timestamp;
    use super::*;
    use s3s::dto::ETag;

    #[test]
    fn conditions_follow_http() {
        let note = Note { etag: "a".to_owned(), modified: 5_500, ..Note::default() };
        let tag = |tag: &str| Some(ETagCondition::ETag(ETag::Strong(tag.to_owned())));
        let all = Conditions::default;
        let read = |conditions: Conditions| {
            let code = conditions.check_read(&note).map_err(|e| e.code().as_str().to_owned());
            code.err().unwrap_or_default()
        };
        assert_eq!(read(Conditions { matches: tag("a"), ..all() }), "");
        assert_eq!(read(Conditions { matches: tag("b"), ..all() }), "PreconditionFailed");
        assert_eq!(read(Conditions { matches_not: tag("a"), ..all() }), "NotModified");
        assert_eq!(read(Conditions { matches_not: tag("b"), ..all() }), "");
        let since = |ms| Some(timestamp(ms));
        assert_eq!(read(Conditions { modified_since: since(5_000), ..all() }), "NotModified");
        assert_eq!(read(Conditions { modified_since: since(4_000), ..all() }), "");
        let unmodified = Conditions { unmodified_since: since(4_000), ..all() };
        assert_eq!(read(unmodified.clone()), "PreconditionFailed");
        assert_eq!(read(Conditions { matches: tag("a"), ..unmodified }), "");
        let absent = Conditions { matches_not: Some(ETagCondition::Any), ..all() };
        assert!(absent.check_write(None).is_ok() && absent.check_write(Some(&note)).is_err());
        let there = Conditions { matches: tag("a"), ..all() };
        assert!(there.check_write(None).is_err() && there.check_write(Some(&note)).is_ok());
    }
}
