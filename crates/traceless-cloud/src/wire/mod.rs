//! Between gateway and host: TLS 1.3, and messages in frames. A request and its reply have the same
//! number. If a reply is lost with its connection, the gateway sends the request again, unchanged
//! and under the same number: the host does not carry it out again.

pub mod fence;
pub mod message;
pub mod tls;
