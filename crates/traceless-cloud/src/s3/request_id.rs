//! Names of requests, by which the reports of a client and a server are compared.
//!
//! They are drawn at random, and say nothing of the request.

use crate::codec::hex;
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response};
use s3s::Body;
use traceless_core::rng::Rng;

/// Random bytes of the name of a request, and of that of its server.
const ID_LEN: usize = 8;
const HOST_LEN: usize = 48;
/// The headers with them.
const ID_HEADER: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_HEADER: HeaderName = HeaderName::from_static("x-amz-id-2");
/// The end of an error in XML.
const ERROR_END: &[u8] = b"</Error>";

/// The name of a request, and that of its server.
pub struct RequestId {
    id: String,
    host: String,
}

impl RequestId {
    /// Draws new names.
    pub fn drawn(rng: &mut dyn Rng) -> Self {
        let (mut id, mut host) = ([0; ID_LEN], [0; HOST_LEN]);
        rng.fill(&mut id);
        rng.fill(&mut host);
        let host = base64_simd::STANDARD.encode_to_string(host);
        Self { id: hex(&id).to_ascii_uppercase(), host }
    }

    /// Adds the names to the headers of a reply and, if it is an error, to its XML.
    pub fn add_to(&self, reply: &mut Response<Body>) {
        set(reply.headers_mut(), ID_HEADER, &self.id);
        set(reply.headers_mut(), HOST_HEADER, &self.host);
        if reply.status().is_success() {
            return;
        }
        let text = reply.body().bytes().unwrap_or_default();
        let Some(front) = text.strip_suffix(ERROR_END) else { return };
        let Self { id, host } = self;
        let names = format!("<RequestId>{id}</RequestId><HostId>{host}</HostId>");
        let text = [front, names.as_bytes(), ERROR_END].concat();
        if reply.headers().contains_key(CONTENT_LENGTH) {
            reply.headers_mut().insert(CONTENT_LENGTH, text.len().into());
        }
        *reply.body_mut() = Body::from(text);
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;
    use traceless_core::rng::SeededRng;

    #[test]
    fn replies_and_errors_have_the_name_of_their_request() {
        let mut rng = SeededRng::new(1);
        let (id, other) = (RequestId::drawn(&mut rng), RequestId::drawn(&mut rng));
        assert!(id.id != other.id && id.host != other.host);
        assert_eq!((id.id.len(), id.host.len()), (16, 64));
        let of = |status: StatusCode, text: &str| {
            let mut reply = Response::new(Body::from(text.to_owned()));
            *reply.status_mut() = status;
            reply.headers_mut().insert(CONTENT_LENGTH, text.len().into());
            id.add_to(&mut reply);
            assert_eq!(reply.headers()[ID_HEADER], id.id);
            assert_eq!(reply.headers()[HOST_HEADER], id.host);
            let text = String::from_utf8(reply.body().bytes().unwrap().to_vec()).unwrap();
            assert_eq!(reply.headers()[CONTENT_LENGTH], text.len().to_string());
            text
        };
        let error = "<Error><Code>x</Code></Error>";
        let names = format!("<RequestId>{}</RequestId><HostId>{}</HostId>", id.id, id.host);
        let complete = format!("<Error><Code>x</Code>{names}</Error>");
        assert_eq!(of(StatusCode::NOT_FOUND, error), complete);
        assert_eq!(of(StatusCode::OK, error), error);
        assert_eq!(of(StatusCode::NOT_FOUND, "<Err"), "<Err");
        let mut empty = Response::new(Body::empty());
        *empty.status_mut() = StatusCode::NOT_MODIFIED;
        id.add_to(&mut empty);
        assert!(empty.body().bytes().is_none_or(|text| text.is_empty()));
    }
}
