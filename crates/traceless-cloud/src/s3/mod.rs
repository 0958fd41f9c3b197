//! S3 in front of a gateway.
//!
//! Buckets, the list of objects, and all replies to HEAD and LIST come from the gateway's own
//! state, without a query. Objects' bytes go through the tree in pieces, so that no object is ever
//! in memory as a whole. Reading, writing or removing an object costs as many queries as its size
//! class.

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

pub use access::{AccessKeys, Grant};
pub(crate) use service::S3;
