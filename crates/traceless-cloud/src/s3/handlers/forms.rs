//! Uploads by forms of browsers (POST Object).

use super::Handlers;
use super::inputs::check_acl;
use crate::connection::Connection;
use crate::s3::access::Grant;
use crate::s3::bodies::BodyClaims;
use crate::s3::checksums::Algorithm;
use crate::s3::conditions::Conditions;
use crate::s3::form_parser::{FormFields, FormFile};
use crate::s3::form_policy::PostPolicy;
use crate::s3::form_signature::signer_of;
use crate::s3::listing::escape;
use crate::s3::locks::Locks;
use crate::s3::note::{Headers, Note};
use crate::s3::objects::{self, WrittenObject};
use crate::s3::tags::Tags;
use hyper::header::{ETAG, HeaderName, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};
use s3s::dto::{
    Checksum, ObjectLockLegalHoldStatus, PostResponse, StreamingBlob, Tagging, Timestamp,
    TimestampFormat,
};
use s3s::xml::{Deserialize as _, Deserializer, Serialize as _, Serializer};
use s3s::{Body, S3Error, S3Result, s3_error};
use std::collections::HashMap;

/// Longest key, in bytes.
const KEY_LEN_MAX: usize = 1024;
/// What the name of the file replaces in a key.
const FILE_NAME: &str = "${filename}";
/// Begins names of fields with metadata of the user.
const METADATA: &str = "x-amz-meta-";
/// The version of a written object.
const VERSION: HeaderName = HeaderName::from_static("x-amz-version-id");

/// A form. No byte of its file has been read.
pub struct FormUpload {
    pub bucket: String,
    pub fields: FormFields,
    pub file: FormFile,
}

impl Handlers {
    /// Writes the file of a form, if its policy is signed and allows that.
    pub(super) async fn put_form(
        &self,
        form: FormUpload,
        connection: Option<&Connection>,
    ) -> S3Result<Response<Body>> {
        let FormUpload { bucket, mut fields, mut file } = form;
        let signer = signer_of(&fields, &self.keys)?;
        connection.inspect(|connection| connection.keep());
        if self.keys.grant(signer, &bucket) != Some(Grant::ReadWrite) {
            return Err(s3_error!(AccessDenied));
        }
        let policy = PostPolicy::parse(fields.get("policy").unwrap_or_default())?;
        let key = key_of(&fields, &file.name)?;
        if fields.get("bucket").is_some_and(|named| named != bucket) {
            return Err(s3_error!(AccessDenied, "the form is for another bucket"));
        }
        fields.set("key", key.clone());
        fields.set("bucket", bucket.clone());
        file.limit(policy.check(&fields, self.front.now_ms())?);
        check_acl(fields.get("acl"), &[])?;

        let target = self.target(&bucket, &key, Conditions::default());
        let note = note_of(&fields, target.stamp.now)?;
        let announced = BodyClaims {
            md5: fields.get("content-md5").map(str::to_owned),
            checksum: checksum_of(&fields),
            ..BodyClaims::default()
        };
        let body = Some(StreamingBlob::wrap(file));
        let put = objects::put(self.front.clone(), target, note, body, announced).await?;
        reply(&fields, (&bucket, &key), &put)
    }
}

fn key_of(fields: &FormFields, file_name: &str) -> S3Result<String> {
    let missing = || s3_error!(InvalidArgument, "Bucket POST must contain a field named 'key'");
    let key = fields.get("key").ok_or_else(missing)?.replace(FILE_NAME, file_name);
    match key.len() {
        0 => Err(s3_error!(InvalidArgument, "a key is not empty")),
        1..=KEY_LEN_MAX => Ok(key),
        _ => Err(s3_error!(KeyTooLongError)),
    }
}

fn note_of(fields: &FormFields, now: u64) -> S3Result<Note> {
    let header = |name: &str| {
        let value = fields.get(name).map(str::to_owned);
        value.map(|value| checked(name, value)).transpose()
    };
    let headers = Headers {
        content_type: header("content-type")?,
        content_encoding: header("content-encoding")?,
        content_disposition: header("content-disposition")?,
        content_language: header("content-language")?,
        cache_control: header("cache-control")?,
        expires: header("expires")?,
    };
    let metadata = fields.iter().filter_map(|(name, value)| {
        let own = name.strip_prefix(METADATA)?.to_owned();
        Some(checked(name, value.to_owned()).map(|value| (own, value)))
    });
    let metadata: HashMap<_, _> = metadata.collect::<S3Result<_>>()?;
    let tags = fields.get("tagging").map(tags_of).transpose()?.unwrap_or_default();
    let until = fields.get("x-amz-object-lock-retain-until-date").map(time_of).transpose()?;
    let hold = fields.get("x-amz-object-lock-legal-hold").map(str::to_owned);
    let locks = Locks::of_headers(
        fields.get("x-amz-object-lock-mode"),
        until.as_ref(),
        hold.map(ObjectLockLegalHoldStatus::from).as_ref(),
        now,
    )?;
    Ok(Note::new(headers, Some(metadata))?.tagged(tags).locked(locks))
}

/// Fails unless a field can be a header of the replies to readers.
fn checked(name: &str, value: String) -> S3Result<String> {
    let is_header = HeaderName::from_bytes(name.as_bytes()).is_ok()
        && HeaderValue::from_bytes(value.as_bytes()).is_ok();
    let wrong = || s3_error!(InvalidArgument, "the field {name} can be no header of the object");
    is_header.then_some(value).ok_or_else(wrong)
}

fn tags_of(xml: &str) -> S3Result<Tags> {
    let mut from = Deserializer::new(xml.as_bytes());
    let tagging = Tagging::deserialize(&mut from).and_then(|read| from.expect_eof().map(|()| read));
    Tags::of_object(tagging.map_err(|_| s3_error!(MalformedXML))?.tag_set)
}

fn time_of(text: &str) -> S3Result<Timestamp> {
    let wrong = |_| s3_error!(InvalidArgument, "the date of a retention is a time in ISO 8601");
    Timestamp::parse(TimestampFormat::DateTime, text).map_err(wrong)
}

fn checksum_of(fields: &FormFields) -> Checksum {
    let mut checksum = Checksum::default();
    for algorithm in Algorithm::ALL {
        let name = format!("x-amz-checksum-{}", algorithm.word().to_ascii_lowercase());
        *algorithm.field(&mut checksum) = fields.get(&name).map(str::to_owned);
    }
    checksum
}

fn reply(
    fields: &FormFields,
    (bucket, key): (&str, &str),
    put: &WrittenObject,
) -> S3Result<Response<Body>> {
    let etag = format!("\"{}\"", put.etag);
    let location = format!("/{bucket}/{}", escape(key, true));
    let redirect = fields.get("success_action_redirect").or_else(|| fields.get("redirect"));
    let (status, location, body) = if let Some(url) =
        redirect.and_then(|url| redirect_to(url, (bucket, key), &etag))
    {
        (StatusCode::SEE_OTHER, url, Body::empty())
    } else {
        match fields.get("success_action_status") {
            Some("200") => (StatusCode::OK, location, Body::empty()),
            Some("201") => {
                let body = xml(&PostResponse { location: &location, bucket, key, etag: &etag })?;
                (StatusCode::CREATED, location, body)
            }
            _ => (StatusCode::NO_CONTENT, location, Body::empty()),
        }
    };
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let headers = [(ETAG, Some(etag)), (LOCATION, Some(location)), (VERSION, put.version.clone())];
    for (name, value) in headers {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            reply.headers_mut().insert(name, value);
        }
    }
    Ok(reply)
}

/// The address that a browser goes to after its upload. An address that is none is ignored.
fn redirect_to(url: &str, (bucket, key): (&str, &str), etag: &str) -> Option<String> {
    let is_address = url.starts_with("http://") || url.starts_with("https://");
    let url: hyper::Uri = url.parse().ok().filter(|_| is_address && !url.contains('#'))?;
    let url = url.to_string();
    let separator = if url.contains('?') { '&' } else { '?' };
    let escaped = |text| escape(text, true);
    let (bucket, key, etag) = (escaped(bucket), escaped(key), escaped(etag));
    Some(format!("{url}{separator}bucket={bucket}&key={key}&etag={etag}"))
}

fn xml(response: &PostResponse<'_>) -> S3Result<Body> {
    let mut text = Vec::new();
    let mut to = Serializer::new(&mut text);
    let written = to.decl().and_then(|()| response.serialize(&mut to));
    written.map_err(S3Error::internal_error)?;
    Ok(Body::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_is_put_into_the_key() {
        let key = |key: &str| key_of(&FormFields::of(&[("key", key)]), "a.txt").map_err(|_| ());
        assert_eq!(key("u/${filename}"), Ok("u/a.txt".to_owned()));
        assert_eq!(key("u/${file}"), Ok("u/${file}".to_owned()));
        assert_eq!((key(""), key(&"x".repeat(KEY_LEN_MAX + 1))), (Err(()), Err(())));
        assert!(key_of(&FormFields::of(&[("key", "${filename}")]), "").is_err());
        assert!(key_of(&FormFields::of(&[]), "a").is_err());
    }

    #[test]
    fn fields_become_what_is_kept_with_the_object() {
        let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
        let form = FormFields::of(&[
            ("content-type", "text/plain"),
            ("x-amz-meta-colour", "blue"),
            ("tagging", tags),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-object-lock-retain-until-date", "2030-01-01T00:00:00Z"),
        ]);
        let note = note_of(&form, 5).unwrap();
        assert_eq!(note.content_type(), "text/plain");
        assert_eq!(note.metadata().get("colour").map(String::as_str), Some("blue"));
        assert_eq!(note.tags.count(), Some(1));
        assert!(note.locks.retention.is_some());
        for wrong in [
            ("x-amz-meta-a", "1\r\nx: y"),
            ("x-amz-meta-a b", "1"),
            ("content-type", "\n"),
            ("tagging", "<Tagging>"),
            ("tagging", "a=1"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-object-lock-legal-hold", "on"),
        ] {
            assert!(note_of(&FormFields::of(&[wrong]), 5).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_reply_is_what_the_form_wants() {
        let put = WrittenObject {
            etag: "e".to_owned(),
            checksum: Checksum::default(),
            version: Some("v".to_owned()),
        };
        let of = |pairs: &[(&str, &str)]| {
            let reply = reply(&FormFields::of(pairs), ("b", "a b"), &put).unwrap();
            let location = reply.headers()[LOCATION].to_str().unwrap().to_owned();
            let text = reply.body().bytes().unwrap_or_default();
            (reply.status().as_u16(), location, String::from_utf8(text.to_vec()).unwrap())
        };
        let own = "/b/a%20b".to_owned();
        assert_eq!(of(&[]), (204, own.clone(), String::new()));
        assert_eq!(of(&[("success_action_status", "404")]).0, 204);
        assert_eq!(of(&[("success_action_status", "200")]), (200, own.clone(), String::new()));
        let (status, location, text) = of(&[("success_action_status", "201")]);
        assert_eq!((status, location), (201, own.clone()));
        assert!(text.contains("<Bucket>b</Bucket><Key>a b</Key>"), "{text}");
        let to = |url: &str| of(&[("success_action_redirect", url), ("redirect", "x")]).1;
        let query = "bucket=b&key=a%20b&etag=%22e%22";
        assert_eq!(to("http://h/x"), format!("http://h/x?{query}"));
        assert_eq!(to("https://h/?y=1"), format!("https://h/?y=1&{query}"));
        for none in ["javascript:x", "/x", "http://h/ x\r\nSet-Cookie: y", "http://h/#x"] {
            assert_eq!(to(none), own, "{none}");
        }
    }
}
