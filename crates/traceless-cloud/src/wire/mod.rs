//! Between gateway and host: TLS 1.3, and messages in frames. Each request has a number, and its
//! reply the same one. A reply that was lost with its connection is asked for again by sending the
//! request again as it was, under the same number: it is not carried out a second time.

pub mod fence;
pub mod message;
pub mod tls;
