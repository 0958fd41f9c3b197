//! The server's descriptions of itself.

use super::protocol::Reply;
use crate::gateway::{Gateway, Namespace};

/// The reply to INFO.
pub fn info(gateway: &Gateway, expiring: usize) -> Reply {
    let (counts, params) = (gateway.counts(), gateway.params());
    let lines = [
        "# Server".to_owned(),
        // Clients read this version to learn which commands they may use.
        "redis_version:7.0.0".to_owned(),
        format!("traceless_version:{}", env!("CARGO_PKG_VERSION")),
        "redis_mode:standalone".to_owned(),
        "tee_protection:none".to_owned(),
        "# Gateway".to_owned(),
        format!("blocks:{}", params.blocks),
        format!("block_len:{}", params.geometry.block_len),
        format!("blocks_used:{}", gateway.blocks_used()),
        format!("queries:{}", counts.queries),
        format!("hits:{}", counts.hits),
        format!("rounds:{}", counts.rounds),
        format!("renewed_nodes:{}", counts.renewed),
        format!("waits:{}", counts.waits),
        format!("waiting_max:{}", counts.stash_max),
        "# Keyspace".to_owned(),
        format!("db0:keys={},expires={expiring}", gateway.names(Namespace::Values)),
    ];
    Reply::Bulk((lines.join("\r\n") + "\r\n").into_bytes())
}

/// The reply to HELLO, for a version of the protocol.
pub fn hello(version: u8) -> Reply {
    let word = |word: &str| Reply::Bulk(word.as_bytes().to_vec());
    Reply::Map(vec![
        word("server"),
        word("traceless"),
        word("version"),
        word(env!("CARGO_PKG_VERSION")),
        word("proto"),
        Reply::Integer(version.into()),
        word("mode"),
        word("standalone"),
        word("role"),
        word("master"),
        word("modules"),
        Reply::Array(Vec::new()),
    ])
}

/// The reply to CONFIG GET, with the values that redis-benchmark reads.
pub fn config(what: &[u8]) -> Reply {
    let value = match &what.to_ascii_lowercase()[..] {
        b"save" => "",
        b"appendonly" => "yes",
        _ => return Reply::Map(Vec::new()),
    };
    Reply::Map(vec![Reply::Bulk(what.to_vec()), Reply::Bulk(value.as_bytes().to_vec())])
}
