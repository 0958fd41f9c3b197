//! S3 in front of a gateway.
//!
//! Buckets, what objects there are, and all that HEAD and LIST tell are the gateway's own state,
//! and are answered without a query. Bytes of objects go through the tree, in pieces, so that no
//! object is ever in memory as a whole. What an object costs: its size class, read, written or
//! removed.

mod access;
mod bodies;
mod conditions;
mod copies;
mod errors;
mod handlers;
mod listing;
mod note;
mod objects;
mod service;
mod signature;
#[cfg(test)]
mod tests;
mod uploads;

pub use access::{Grant, Keys};
pub(crate) use service::S3;
