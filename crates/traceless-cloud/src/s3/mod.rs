//! S3 in front of a gateway.
//!
//! Buckets, what objects there are, and all that HEAD and LIST tell are the gateway's own state,
//! and are answered without a query. Bytes of objects go through the tree, in pieces, so that no
//! object is ever in memory as a whole. What an object costs: its size class, read, written or
//! removed.

mod access;
mod bodies;
mod conditions;
mod errors;
mod handlers;
mod listing;
mod note;
mod objects;
#[cfg(test)]
mod tests;
mod uploads;

pub use access::{Grant, Keys};

use crate::front::Front;
use handlers::Handlers;
use s3s::service::{S3Service, S3ServiceBuilder};
use std::sync::Arc;

/// What answers the requests of whoever has one of these keys.
pub(crate) fn service(front: Arc<Front>, keys: Keys) -> S3Service {
    let keys = Arc::new(keys);
    let mut builder = S3ServiceBuilder::new(Handlers::new(front, keys.clone()));
    builder.set_auth(access::Door(keys.clone()));
    builder.set_access(access::Door(keys));
    builder.build()
}
