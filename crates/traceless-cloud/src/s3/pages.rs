//! Requests of pages in browsers, and what the rules of a bucket let them do (CORS).
//!
//! A browser names the origin of the page in each request. Before requests that a page could not
//! make otherwise it sends a preflight request, which is not signed. The reply names what the first
//! rule that fits allows, and shows nothing else of the bucket.

use super::buckets::BucketNote;
use super::cors::CorsRequest;
use super::domains::Domains;
use crate::shared::{Kind, Protocol, SharedGateway};
use hyper::header::{
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderMap, HeaderName,
    ORIGIN,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request};
use s3s::host::S3Host;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// What a page of a browser wants of a bucket.
pub struct PageRequest {
    bucket: String,
    request: CorsRequest,
}

impl PageRequest {
    /// The page that makes a request, if a browser says so.
    pub fn of<B>(request: &Request<B>, domains: &Domains) -> Option<Self> {
        let header = |name: &HeaderName| request.headers().get(name)?.to_str().ok();
        let origin = header(&ORIGIN)?.to_owned();
        let is_preflight = request.method() == Method::OPTIONS;
        let method = if is_preflight {
            header(&ACCESS_CONTROL_REQUEST_METHOD)?
        } else {
            request.method().as_str()
        };
        let headers = header(&ACCESS_CONTROL_REQUEST_HEADERS).filter(|_| is_preflight);
        let headers = headers.unwrap_or_default().split(',').map(str::trim);
        let headers = headers.filter(|name| !name.is_empty()).map(str::to_ascii_lowercase);
        let bucket = bucket_of(request, domains)?;
        let (method, headers) = (method.to_owned(), headers.collect());
        Some(Self { bucket, request: CorsRequest { origin, method, headers, is_preflight } })
    }

    /// Answers whether the page may make its request.
    pub fn answer(&self, front: &SharedGateway) -> S3Result<HeaderMap> {
        let counted = front.metrics().request(Protocol::S3, Kind::State);
        let mut headers = HeaderMap::new();
        let is_allowed = self.add_to(&mut headers, front);
        counted.answered(is_allowed);
        if is_allowed { Ok(headers) } else { Err(forbidden()) }
    }

    /// Adds what the page may do to the headers of a reply. Returns whether a rule fits.
    pub fn add_to(&self, headers: &mut HeaderMap, front: &SharedGateway) -> bool {
        let note = front.read_state(|gateway| BucketNote::find(gateway, &self.bucket));
        let Ok(Ok(note)) = note else { return false };
        let rule = note.cors.iter().find(|rule| rule.allows(&self.request));
        rule.map(|rule| rule.write(&self.request, headers)).is_some()
    }
}

/// The bucket that a request is for.
pub fn bucket_of<B>(request: &Request<B>, domains: &Domains) -> Option<String> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(Authority::as_str))?;
    let named = domains.parse_host_header(host).ok()?;
    let of_path = || request.uri().path().split('/').nth(1);
    let bucket = named.bucket().or_else(of_path)?;
    (!bucket.is_empty()).then(|| bucket.to_owned())
}

/// Whether the path of a request for a bucket names no object.
pub fn names_bucket<B>(request: &Request<B>, bucket: &str) -> bool {
    let path = request.uri().path().trim_matches('/');
    path.is_empty() || path == bucket
}

/// The error for a page that no rule allows its request. A bucket that is missing gives the same.
fn forbidden() -> S3Error {
    let code = S3ErrorCode::Custom("AccessForbidden".into());
    let text = "CORSResponse: this CORS request is not allowed";
    let mut error = S3Error::with_message(code, text);
    error.set_status_code(hyper::StatusCode::FORBIDDEN);
    error
}

/// The error for a preflight request without an origin or a method.
pub fn incomplete() -> S3Error {
    let code = S3ErrorCode::Custom("BadRequest".into());
    let text = "Insufficient information: Origin and Access-Control-Request-Method are needed";
    let mut error = S3Error::with_message(code, text);
    error.set_status_code(hyper::StatusCode::BAD_REQUEST);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_is_in_the_host_or_in_the_path() {
        let domains = Domains(vec!["s3.example.com".into()]);
        let bucket = |host: &str, path: &str| {
            let request = Request::builder().uri(path).header(HOST, host).body(()).unwrap();
            bucket_of(&request, &domains)
        };
        assert_eq!(bucket("photos.s3.example.com", "/cat").as_deref(), Some("photos"));
        assert_eq!(bucket("s3.example.com:9000", "/photos/cat?x").as_deref(), Some("photos"));
        assert_eq!(bucket("127.0.0.1", "/photos").as_deref(), Some("photos"));
        assert_eq!(bucket("127.0.0.1", "/"), None);
    }
}
