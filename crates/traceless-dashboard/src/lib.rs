//! A live page that shows what an adversary observes beside what the user does.
//!
//! A [`Monitor`] counts the events of a store and the requests of its user, and keeps a sample of
//! both. A [`Server`] shows it to a browser and to Prometheus:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//! use std::sync::Arc;
//! use traceless_core::Extent;
//! use traceless_core::rng::System;
//! use traceless_core::store::{MemStore, Store, WatchedStore};
//! use traceless_dashboard::{Monitor, Server, random_token};
//! use traceless_sys::password::Password;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let monitor = Arc::new(Monitor::new("a store in memory"));
//! let store = WatchedStore::new(MemStore::new(4096), monitor.clone());
//! monitor.adversary().set_space(store.len());
//! let token = random_token(&mut System);
//! let password = Password::new(token.as_bytes())?;
//! let server = Server::start("127.0.0.1:0", monitor, password)?;
//! store.write(&[Extent::new(100, 3)], &[1, 2, 3])?;
//!
//! let mut client = TcpStream::connect(server.address())?;
//! let address = server.address();
//! write!(client, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n")?;
//! write!(client, "Authorization: Bearer {token}\r\n\r\n")?;
//! let mut reply = String::new();
//! client.read_to_string(&mut reply)?;
//! assert!(reply.starts_with("HTTP/1.1 200 "));
//! assert!(reply.contains("traceless_adversary_bytes_total{op=\"write\"} 3\n"));
//! # Ok(())
//! # }
//! ```
//!
//! File by file: `monitor`: both sides of a product, over an [`Activity`]; `report`: the JSON of
//! the page; `metrics`: the text for Prometheus; `token`: random passwords; `host`: under which
//! names the server is reached; `request`: the head of a request; `deadline`: a connection that
//! ends in time; `server`: connections and replies; `page`: the page itself.
//!
//! [`Activity`]: traceless_core::activity::Activity
#![forbid(unsafe_code)]

mod audit;
mod deadline;
mod host;
mod metrics;
mod monitor;
mod report;
mod request;
mod server;
mod token;

pub use monitor::{Monitor, Reading, RequestTimer};
pub use request::fuzz_request;
pub use server::{Server, clients};
pub use token::random_token;
