//! What is kept with an object, so that HEAD and LIST need no query.

use s3s::dto::{ETag, Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

/// Bytes of an object's own headers and metadata in all.
const METADATA_LEN_MAX: usize = 8 << 10;
/// The media type of what came without one.
const DEFAULT_TYPE: &str = "binary/octet-stream";

/// What is kept with an object, or with an upload for the object that it becomes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Note {
    /// Digest of its bytes, or of those of its parts.
    pub etag: String,
    /// When it was written, in milliseconds since 1970.
    pub modified: u64,
    /// Headers that come back as they went.
    pub headers: Headers,
    /// What the user keeps with it.
    pub metadata: BTreeMap<String, String>,
    /// Of an upload: the bucket and the key of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<(String, String)>,
}

/// Headers of an object.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Headers {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_disposition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

impl Note {
    /// A note with what came with a request.
    pub fn new(headers: Headers, metadata: Option<HashMap<String, String>>) -> S3Result<Self> {
        let metadata: BTreeMap<String, String> = metadata.unwrap_or_default().into_iter().collect();
        let note = Self { headers, metadata, ..Self::default() };
        if note.bytes().len() > METADATA_LEN_MAX {
            return Err(s3_error!(MetadataTooLarge));
        }
        Ok(note)
    }

    /// From what the gateway keeps.
    pub fn read(bytes: &[u8]) -> S3Result<Self> {
        serde_json::from_slice(bytes).map_err(|_| s3_error!(InternalError, "a note is damaged"))
    }

    /// As the gateway keeps it.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a note is text")
    }

    /// The entity tag.
    pub fn etag(&self) -> ETag {
        ETag::Strong(self.etag.clone())
    }

    /// The media type.
    pub fn content_type(&self) -> String {
        self.headers.content_type.clone().unwrap_or_else(|| DEFAULT_TYPE.to_owned())
    }

    /// What the user keeps with it.
    pub fn metadata(&self) -> HashMap<String, String> {
        self.metadata.clone().into_iter().collect()
    }

    /// When it was written.
    pub fn modified(&self) -> Timestamp {
        timestamp(self.modified)
    }

    /// When it expires for caches.
    pub fn expires(&self) -> Option<Timestamp> {
        Timestamp::parse(TimestampFormat::HttpDate, self.headers.expires.as_deref()?).ok()
    }
}

/// A time as S3 tells it.
pub fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
}

/// A time as it is kept.
pub fn http_date(time: Option<&Timestamp>) -> Option<String> {
    let mut text = Vec::new();
    time?.format(TimestampFormat::HttpDate, &mut text).ok()?;
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_as_they_went() {
        let metadata = HashMap::from([("colour".to_owned(), "blue".to_owned())]);
        let headers = Headers {
            expires: http_date(Some(&timestamp(1_700_000_000_000))),
            ..Headers::default()
        };
        let mut note = Note::new(headers, Some(metadata)).unwrap();
        (note.etag, note.modified) = ("abc".to_owned(), 5);
        assert_eq!(Note::read(&note.bytes()).unwrap(), note);
        assert_eq!(note.expires(), Some(timestamp(1_700_000_000_000)));
        assert_eq!(note.content_type(), DEFAULT_TYPE);
        let large = HashMap::from([("a".to_owned(), "x".repeat(METADATA_LEN_MAX))]);
        assert!(Note::new(Headers::default(), Some(large)).is_err());
        assert!(Note::read(b"{").is_err());
    }
}
