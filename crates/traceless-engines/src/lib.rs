//! Storage engines for the tree of a cloud store: Redis, S3 and PostgreSQL.
//!
//! A host keeps versions of nodes in a [`NodeStore`](traceless_cloud::store::NodeStore). Here the
//! nodes are on a server that users run already. Engines are untrusted, as the host is: they see
//! sealed slots, and when each of them is read.
//!
//! A URL is opened once the shape of the tree is known:
//!
//! ```
//! let store = traceless_engines::parse("redis://127.0.0.1/?store=tree", None)?;
//! // store.check()? connects; traceless_cloud::server::Settings takes the store.
//!
//! let unknown = traceless_engines::parse("mysql://127.0.0.1/", None).err();
//! assert!(unknown.is_some_and(|reason| reason.contains("there are file, postgres, redis")));
//! # Ok::<(), String>(())
//! ```
//!
//! The files:
//!
//! * `store_url`, `address`, `reach`: URLs of stores, engines that are connected to later, and now
//! * `engine`: the trait `Engine`: stripes under names, and a log
//! * `engine_store`: a store over an engine; `log_end`: commits, doubt about them, other hosts
//! * `engine_state`: a gateway's state in an engine
//! * `client`, `garbage`: requests on threads of their own, and stripes that are to be removed
//! * `entry`: entries of the log as bytes, and the versions that a log leads to
//! * `redis` (`deployment`: one server or a cluster; `sentinel`: the primary that sentinels choose;
//!   `service`: URLs of several servers), `s3`
//! * `postgres` (`tls`: modes and files; `verifier`: servers' certificates; `channel_binding`)
//! * `tls`: PEM files of options, and what TLS refuses
//! * `names`: names of stores and stripes as text
//! * `link`, `retry`, `outage`: connections that are replaced, requests that are repeated, and
//!   reports about it
#![forbid(unsafe_code)]

mod address;
#[cfg(all(test, any(feature = "postgres", feature = "redis")))]
mod certificates;
mod client;
#[cfg(test)]
mod conformance;
mod engine;
mod engine_state;
mod engine_store;
mod entry;
mod garbage;
mod link;
#[cfg(test)]
mod memory;
mod names;
mod outage;
#[cfg(feature = "postgres")]
mod postgres;
mod reach;
#[cfg(feature = "redis")]
mod redis;
mod retry;
#[cfg(feature = "s3")]
mod s3;
#[cfg(all(test, any(feature = "postgres", feature = "redis")))]
mod servers;
mod store_url;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod tls;

pub use address::EngineAddress;
pub use engine::RequestError;
pub use reach::{ReachError, reach, reach_copy};
pub use store_url::parse;
