//! Bodies of uploads without an announced length (HTTP's chunked transfer encoding).
//!
//! The protocol's library refuses them, although it needs no length: it gets an empty body, and the
//! handler of the upload takes the real one, which verifies its hash itself.

use bytes::Bytes;
use core::pin::Pin;
use core::task::{Context, Poll};
use futures_util::{Stream, StreamExt as _};
use hyper::body::Body as _;
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::{Method, Request, StatusCode};
use s3s::crypto::{Checksum as _, Sha256};
use s3s::dto::StreamingBlob;
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};
use std::sync::{Arc, Mutex, PoisonError};

/// The header with the hash of a body.
const CONTENT_HASH: &str = "x-amz-content-sha256";
/// The header of a request that copies, and has no body.
const COPY_SOURCE: &str = "x-amz-copy-source";
/// Parameters of requests that upload bytes. Other ones are for instructions, which need a length.
const UPLOAD_PARAMETERS: [&str; 3] = ["partNumber", "uploadId", "x-id"];
/// The value of the header for a body without a hash.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// Digits of a hash.
const HASH_LEN: usize = 64;

/// The body of an upload, for its handler. Requests carry it among their extensions.
#[derive(Clone)]
pub struct UnsizedBody(Arc<Mutex<Option<HashedBody>>>);

impl UnsizedBody {
    /// Moves the body of an upload without a length from a request to its extensions.
    pub fn detach(mut request: Request<Body>) -> Request<Body> {
        if let Some(hash) = hash_of_unsized(&request) {
            let bytes = core::mem::take(request.body_mut());
            let hash = (hash != UNSIGNED).then(|| (Sha256::new(), hash));
            let body = HashedBody { bytes, hash };
            request.extensions_mut().insert(Self(Arc::new(Mutex::new(Some(body)))));
        }
        request
    }

    /// The body, once.
    pub fn take(&self) -> Option<StreamingBlob> {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        body.take().map(StreamingBlob::wrap)
    }
}

/// Bytes that end with an error if they do not have a hash.
struct HashedBody {
    bytes: Body,
    /// What hashes them, and the hash in hexadecimal digits.
    hash: Option<(Sha256, String)>,
}

impl Stream for HashedBody {
    type Item = S3Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.bytes.poll_next_unpin(context).map(|piece| match piece {
            Some(Ok(piece)) => {
                if let Some((hasher, _)) = &mut self.hash {
                    hasher.update(&piece);
                }
                Some(Ok(piece))
            }
            Some(Err(error)) => Some(Err(s3_error!(IncompleteBody, "the body broke off: {error}"))),
            None => {
                let (hasher, hash) = self.hash.take()?;
                let is_right = crate::codec::hex(&hasher.finalize()).eq_ignore_ascii_case(&hash);
                (!is_right).then(|| Err(another_hash()))
            }
        })
    }
}

/// The error for a body that does not have its hash.
pub fn another_hash() -> S3Error {
    let code = S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into());
    let text = "the body does not have the hash in x-amz-content-sha256";
    let mut error = S3Error::with_message(code, text);
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

/// For an upload without a length: the hash that its body is to have, or `UNSIGNED`.
fn hash_of_unsized(request: &Request<Body>) -> Option<String> {
    let headers = request.headers();
    let query = request.uri().query().unwrap_or_default().split('&');
    let is_upload = |parameter: &str| {
        let name = parameter.split('=').next().unwrap_or_default();
        name.is_empty() || name.starts_with("X-Amz-") || UPLOAD_PARAMETERS.contains(&name)
    };
    let has_length = headers.contains_key(CONTENT_LENGTH)
        || request.body().is_end_stream()
        || hyper::body::Body::size_hint(request.body()).exact().is_some();
    let is_plain = request.method() == Method::PUT && !headers.contains_key(COPY_SOURCE);
    if has_length || !is_plain || !query.into_iter().all(is_upload) {
        return None;
    }
    let hash = headers.get(CONTENT_HASH).map(HeaderValue::to_str)?.ok()?;
    let is_hash = hash.len() == HASH_LEN && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hash || hash == UNSIGNED).then(|| hash.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use hyper::http::request::Builder;
    use std::io;

    const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    fn request() -> Builder {
        Request::builder().method("PUT").uri("/b/k?x-id=PutObject&uploadId=1&X-Amz-Date=d")
    }

    fn unsized_body() -> Body {
        let pieces = [&b"hel"[..], b"lo"].map(|piece| Ok::<_, io::Error>(Bytes::from(piece)));
        Body::from(StreamingBlob::wrap(stream::iter(pieces)))
    }

    fn is_detached(request: Builder, body: Body) -> bool {
        let request = UnsizedBody::detach(request.body(body).unwrap());
        let detached = request.extensions().get::<UnsizedBody>().is_some();
        assert_eq!(detached, detached && request.body().is_end_stream());
        detached
    }

    fn read(hash: &str) -> Result<Vec<u8>, String> {
        let request = request().header(CONTENT_HASH, hash).body(unsized_body()).unwrap();
        let request = UnsizedBody::detach(request);
        let body: &UnsizedBody = request.extensions().get().unwrap();
        let mut pieces = body.take().unwrap();
        assert!(body.take().is_none());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut bytes = Vec::new();
            while let Some(piece) = pieces.next().await {
                bytes.extend_from_slice(&piece.map_err(|error| error.to_string())?);
            }
            Ok(bytes)
        })
    }

    #[test]
    fn a_body_without_a_length_has_its_hash() {
        assert_eq!(read(HASH).unwrap(), b"hello");
        assert_eq!(read(&HASH.to_uppercase()).unwrap(), b"hello");
        assert_eq!(read(UNSIGNED).unwrap(), b"hello");
        assert!(read(&HASH.replace('2', "3")).unwrap_err().contains("XAmzContentSHA256Mismatch"));
    }

    #[test]
    fn only_uploads_without_a_length_pass_the_library_by() {
        let hashed = || request().header(CONTENT_HASH, HASH);
        assert!(is_detached(hashed(), unsized_body()));
        assert!(!is_detached(hashed(), Body::from(b"hello".to_vec())));
        assert!(!is_detached(hashed(), Body::empty()));
        for (name, value) in [("content-length", "5"), (COPY_SOURCE, "b/k")] {
            assert!(!is_detached(hashed().header(name, value), unsized_body()), "{name}");
        }
        assert!(!is_detached(request(), unsized_body()));
        for hash in ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "NONE", &HASH[1..]] {
            assert!(!is_detached(request().header(CONTENT_HASH, hash), unsized_body()), "{hash}");
        }
        assert!(!is_detached(hashed().method("POST"), unsized_body()));
        assert!(!is_detached(hashed().uri("/b/k?tagging"), unsized_body()));
        assert!(!is_detached(hashed().uri("/b/k?uploadId=1&%74agging"), unsized_body()));
    }
}
