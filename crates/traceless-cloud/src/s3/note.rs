//! An object's metadata, kept so that HEAD and LIST need no query.

use super::checksums::{StoredChecksum, UploadChecksum};
use super::locks::Locks;
use super::tags::Tags;
use super::times::timestamp;
use s3s::dto::{ETag, Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Most bytes of an object's headers and metadata in all.
const METADATA_LEN_MAX: usize = 8 << 10;
/// The media type of objects that were written without one.
const DEFAULT_TYPE: &str = "binary/octet-stream";

/// The metadata of an object, or of an upload for its future object.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Note {
    /// Digest of the object's bytes, or of the digests of its parts.
    pub etag: String,
    /// When it was written, in milliseconds since 1970.
    pub modified: u64,
    /// Headers that are returned as they were sent.
    pub headers: Headers,
    /// The user's metadata.
    pub metadata: BTreeMap<String, String>,
    /// Tags of an object.
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// The version, in a bucket that keeps versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether clients know the version as `null`, because versions were suspended.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub has_null_version: bool,
    /// Whether this is a delete marker.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_marker: bool,
    /// Object Lock.
    #[serde(default, skip_serializing_if = "Locks::is_none")]
    pub locks: Locks,
    /// A checksum of the bytes. Objects of older gateways have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<StoredChecksum>,
    /// The checksums of the parts that the object was joined of, if it has one itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub part_checksums: Vec<String>,
    /// The upload that the object was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// For an upload: the checksum that the object gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_checksum: Option<UploadChecksum>,
    /// For an upload: the object's bucket and key.
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
    /// A note with a request's headers and metadata.
    pub fn new(headers: Headers, metadata: Option<HashMap<String, String>>) -> S3Result<Self> {
        let metadata: BTreeMap<String, String> = metadata.unwrap_or_default().into_iter().collect();
        let note = Self { headers, metadata, ..Self::default() };
        if note.bytes().len() > METADATA_LEN_MAX {
            return Err(s3_error!(MetadataTooLarge));
        }
        Ok(note)
    }

    /// The same with tags, which count for themselves.
    pub fn tagged(self, tags: Tags) -> Self {
        Self { tags, ..self }
    }

    /// The same with the locks of a request.
    pub fn locked(self, locks: Locks) -> Self {
        Self { locks, ..self }
    }

    /// The same as a new object's: of its source it has neither version nor locks.
    pub fn of_copy(self) -> Self {
        let locks = Locks::default();
        Self {
            version: None,
            has_null_version: false,
            part_checksums: Vec::new(),
            upload: None,
            locks,
            ..self
        }
    }

    /// Decodes a note of the gateway.
    pub fn read(bytes: &[u8]) -> S3Result<Self> {
        serde_json::from_slice(bytes).map_err(|_| s3_error!(InternalError, "a note is damaged"))
    }

    /// Encodes the note for the gateway.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a note is text")
    }

    /// The checksum of one of the parts, counted from 0.
    pub fn part_checksum(&self, index: usize) -> Option<StoredChecksum> {
        let value = self.part_checksums.get(index)?.clone();
        Some(StoredChecksum { algorithm: self.checksum.as_ref()?.algorithm, value })
    }

    /// The entity tag.
    pub fn etag(&self) -> ETag {
        ETag::Strong(self.etag.clone())
    }

    /// The media type.
    pub fn content_type(&self) -> String {
        self.headers.content_type.clone().unwrap_or_else(|| DEFAULT_TYPE.to_owned())
    }

    /// The user's metadata.
    pub fn metadata(&self) -> HashMap<String, String> {
        self.metadata.clone().into_iter().collect()
    }

    /// When the object was written.
    pub fn modified(&self) -> Timestamp {
        timestamp(self.modified)
    }

    /// When the object expires for caches.
    pub fn expires(&self) -> Option<Timestamp> {
        Timestamp::parse(TimestampFormat::HttpDate, self.headers.expires.as_deref()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::times::http_date;
    use super::*;

    #[test]
    fn notes_round_trip() {
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
