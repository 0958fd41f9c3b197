//! S3 in front of a gateway.
//!
//! Buckets, the list of objects, and all replies to HEAD and LIST come from the gateway's own
//! state, without a query. Objects' bytes go through the tree in pieces, so that no object is ever
//! in memory as a whole. Reading, writing or removing an object costs as many queries as its size
//! class.
//!
//! Access keys from a file, and a server that refuses clients without a key:
//!
//! ```
//! use std::io::{Read, Write};
//! use traceless_cloud::http::Http;
//! use traceless_cloud::s3::{AccessKeys, Grant};
//! use traceless_cloud::shared::{SharedGateway, Stop, Wall};
//! # use std::sync::Arc;
//! # use traceless_cloud::kernel::Choice;
//! # use traceless_cloud::local_deployment::LocalDeployment;
//! # use traceless_cloud::params::Params;
//! # use traceless_cloud::store::Durability;
//! # use traceless_cloud::tee::Policy;
//!
//! # fn main() -> traceless_cloud::Result {
//! # let folder = tempfile::tempdir()?;
//! # let params = Params::new(500, 64, 4)?;
//! # let local =
//! #     LocalDeployment::new(folder.path(), None, None, Policy::Simulated);
//! # let gateway = local.open(params, Choice::Benes, Durability::Process)?.gateway;
//! # let front = Arc::new(SharedGateway::new(gateway, Arc::default(), Arc::new(Wall)));
//! # let path = folder.path().join("s3-keys");
//! std::fs::write(&path, "ann secret-of-ann photos=rw *=ro\n")?;
//! let keys = AccessKeys::read(&path)?;
//! assert_eq!(keys.grant("ann", "photos"), Some(Grant::ReadWrite));
//! assert_eq!(keys.grant("bob", "photos"), None);
//!
//! let stop = Stop::default();
//! let mut http = Http::start(&stop)?;
//! let address = http.s3("127.0.0.1:0", &front, keys, vec![], None)?;
//! let mut client = std::net::TcpStream::connect(address)?;
//! client.write_all(b"GET /photos HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")?;
//! let mut reply = String::new();
//! client.read_to_string(&mut reply)?;
//! assert!(reply.starts_with("HTTP/1.1 403") && reply.contains("AccessDenied"));
//! stop.request();
//! http.finish();
//! # Ok(())
//! # }
//! ```

mod access;
mod bodies;
mod buckets;
mod checksums;
mod conditions;
mod copies;
mod cors;
mod domains;
mod door;
mod errors;
mod expiry;
mod expiry_header;
mod form_parser;
mod form_policy;
mod form_signature;
mod handlers;
mod lifecycle;
mod listing;
mod locks;
mod names;
mod note;
mod object_info;
mod objects;
mod pages;
mod request_id;
mod service;
mod signature;
mod tags;
#[cfg(test)]
mod tests;
mod times;
mod unsized_bodies;
mod uploads;
mod version_listing;
mod versions;

pub use access::{AccessKeys, Grant};
pub(crate) use expiry::expire;
pub(crate) use service::S3;
