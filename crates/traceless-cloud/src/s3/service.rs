//! The protocol's library as a service, and its workarounds for clients.

use super::access::AccessKeys;
use super::domains::Domains;
use super::door::Door;
use super::form_parser::read_form;
use super::handlers::{FormUpload, Handlers};
use super::pages::{self, PageRequest};
use super::request_id::RequestId;
use super::signature;
use super::unsized_bodies::UnsizedBody;
use crate::connection::{Connection, Wire};
use crate::random::SystemStream;
use crate::shared::SharedGateway;
use core::pin::Pin;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, EXPECT, HeaderValue};
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::region::Region;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, S3Error, S3Result, s3_error};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// The region that is named to clients with an invalid one.
const REGION: &str = "us-east-1";
/// How many seconds a request's date may differ from its arrival.
const SKEW_MAX: u32 = 15 * 60;
/// Longest body that is an instruction (like a list of objects to remove), which is kept in
/// memory.
const ORDER_LEN_MAX: usize = 4 << 20;

/// Answers requests of clients that have an access key.
#[derive(Clone)]
pub struct S3 {
    service: S3Service,
    handlers: Handlers,
    front: Arc<SharedGateway>,
    domains: Arc<Domains>,
    /// Source of names of requests.
    rng: Arc<Mutex<SystemStream>>,
}

impl S3 {
    /// Requests with new rules by which objects expire notify `new_rules`.
    pub fn new(
        front: Arc<SharedGateway>,
        keys: AccessKeys,
        domains: Vec<String>,
        new_rules: Arc<Notify>,
    ) -> Self {
        let keys = Arc::new(keys);
        let handlers = Handlers::new(front.clone(), keys.clone(), new_rules);
        let mut builder = S3ServiceBuilder::new(handlers.clone());
        builder.set_host(Domains(domains.clone()));
        let door = Door::new(keys, front.clone());
        builder.set_auth(door.clone());
        builder.set_access(door);
        let mut config = S3Config::default();
        config.presigned_url_max_skew_time_secs = SKEW_MAX;
        config.xml_max_body_size = ORDER_LEN_MAX;
        // Forms do not reach the library, which would keep all of their file in memory.
        config.post_object_max_file_size = 0;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        let domains = Arc::new(Domains(domains));
        let rng = Arc::new(Mutex::new(SystemStream::drawn()));
        Self { service: builder.build(), handlers, front, domains, rng }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, HttpError> {
        let wire = request.extensions().get().map_or(Wire::Network, Connection::wire);
        let is_last = expects_nothing(&request);
        let is_form = signature::is_form(&request);
        let checked = if is_form {
            signature::check_form(&request, wire)
        } else {
            signature::check(&request, wire)
        };
        let reply = match checked {
            Err(error) => closing(reply_of(error)?),
            Ok(()) if is_form => match answer_form(&self.handlers, &self.domains, request).await {
                Ok(reply) => reply,
                Err(error) => closing(reply_of(error)?),
            },
            Ok(()) if names_impossible_region(&request) => another_region(),
            Ok(()) => self.service.call(UnsizedBody::detach(request.map(Body::from))).await?,
        };
        Ok(if is_last { closing(reply) } else { reply })
    }

    /// Answers whether a page of a browser may make its request, which is not signed.
    fn answer_page(&self, page: Option<PageRequest>) -> Result<Response<Body>, HttpError> {
        match page.ok_or_else(pages::incomplete).and_then(|page| page.answer(&self.front)) {
            Ok(headers) => {
                let mut reply = Response::new(Body::empty());
                *reply.headers_mut() = headers;
                Ok(reply)
            }
            Err(error) => reply_of(error),
        }
    }
}

impl Service<Request<Incoming>> for S3 {
    type Response = Response<Body>;
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let id = RequestId::drawn(&mut *rng);
        drop(rng);
        let served = self.clone();
        Box::pin(async move {
            let page = PageRequest::of(&request, &served.domains);
            let mut reply = if request.method() == Method::OPTIONS {
                served.answer_page(page)?
            } else {
                let mut reply = served.answer(request).await?;
                if let Some(page) = page {
                    page.add_to(reply.headers_mut(), &served.front);
                }
                reply
            };
            id.add_to(&mut reply);
            Ok(reply)
        })
    }
}

/// Reads the fields of a form, and writes its file.
async fn answer_form(
    handlers: &Handlers,
    domains: &Domains,
    request: Request<Incoming>,
) -> S3Result<Response<Body>> {
    let bucket = pages::bucket_of(&request, domains);
    let bucket = bucket.filter(|bucket| pages::names_bucket(&request, bucket));
    let bucket = bucket.ok_or_else(|| s3_error!(MethodNotAllowed, "a form is sent to a bucket"))?;
    let connection = request.extensions().get().cloned();
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().to_owned();
    let (fields, file) = read_form(&kind, Box::pin(Body::from(request.into_body()))).await?;
    handlers.answer_form(FormUpload { bucket, fields, file }, connection).await
}

fn reply_of(error: S3Error) -> Result<Response<Body>, HttpError> {
    error.to_http_response().map_err(|error| HttpError::new(Box::new(error)))
}

/// Whether a client waits for `100 Continue` before an empty body. It is not sent, because nothing
/// is read. botocore takes the final reply for it, and then waits for another reply on the same
/// connection until it times out, so the connection must be closed.
fn expects_nothing<B: hyper::body::Body>(request: &Request<B>) -> bool {
    request.headers().contains_key(EXPECT) && request.body().is_end_stream()
}

/// Whether a request is signed for a region that the protocol's library rejects, like "US",
/// which s3cmd uses first.
fn names_impossible_region<B>(request: &Request<B>) -> bool {
    let signed = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let scope = signed.and_then(|signed| signed.split_once("Credential="));
    let region = scope.and_then(|(_, scope)| scope.split([',', ' ']).next()?.split('/').nth(2));
    region.is_some_and(|region| Region::new(region.into()).is_err())
}

/// Names the region to sign for, as S3 does. Clients then sign again.
fn another_region() -> Response<Body> {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>\
         <Code>AuthorizationHeaderMalformed</Code>\
         <Message>The region in the authorization is wrong; expecting '{REGION}'</Message>\
         <Region>{REGION}</Region></Error>"
    );
    let mut reply = Response::new(Body::from(text));
    *reply.status_mut() = StatusCode::BAD_REQUEST;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    closing(reply)
}

/// A reply that closes the connection: the rest of the client's bytes is not read.
fn closing(mut reply: Response<Body>) -> Response<Body> {
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::{Empty, Full};

    #[test]
    fn impossible_regions_are_refused() {
        let named = |authorization: &str| {
            let request = Request::builder().header(AUTHORIZATION, authorization);
            names_impossible_region(&request.body(()).unwrap())
        };
        let signed = "AWS4-HMAC-SHA256 Credential=key/20260101/REGION/s3/aws4_request,Signed";
        for (region, is_impossible) in [("us-east-1", false), ("here", false), ("US", true)] {
            assert_eq!(named(&signed.replace("REGION", region)), is_impossible, "{region}");
        }
        assert!(!named("AWS key:signature") && !named("Credential=") && !named("Credential=a/b"));
    }

    #[test]
    fn only_connections_with_unread_bodies_are_closed() {
        let request = || Request::builder().header(EXPECT, "100-continue");
        assert!(expects_nothing(&request().body(Empty::<Bytes>::new()).unwrap()));
        assert!(!expects_nothing(&request().body(Full::new(Bytes::from("x"))).unwrap()));
        assert!(!expects_nothing(&Request::new(Empty::<Bytes>::new())));
    }
}
