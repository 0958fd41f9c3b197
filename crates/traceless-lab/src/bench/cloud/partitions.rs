//! A tree that is divided among hosts: what the division adds to the queries.

use crate::report::{Row, failed, row};
use std::sync::Arc;
use traceless::seal::Secret;
use traceless_cli::failure::Failure;
use traceless_cloud::gateway::{Gateway, Keys};
use traceless_cloud::host::InProcess;
use traceless_cloud::host_group::ConnectedHost;
use traceless_cloud::kernel::Choice;
use traceless_cloud::params::Params;
use traceless_cloud::random::SystemStream;
use traceless_cloud::store::MemStore;

const HOSTS: u8 = 4;
const BLOCKS: u64 = 20_000;

/// The row of queries that four hosts get, of requests for blocks that are not at the gateway.
pub fn padding() -> Result<Row, Failure> {
    let mut rng = SystemStream::drawn();
    let keys = Keys::new(&Secret::random(&mut rng), &[7; 16]);
    let params = Params::new(BLOCKS, 1024, 32).map_err(failed)?;
    let shared = keys.shared(&params, Choice::Benes);
    let mut hosts = Vec::new();
    for number in 1..=HOSTS {
        let own = [number; 16];
        let store = MemStore::new(params.geometry);
        let (host, enclave) = InProcess::start(&shared, store, &own, &mut rng).map_err(failed)?;
        hosts.push(ConnectedHost { host: Arc::new(host), session: (own, enclave) });
    }
    let (hosts, rng) = ((hosts, None), Box::new(rng));
    let mut gateway =
        Gateway::open_divided(params, &keys, Choice::Benes, hosts, None, rng).map_err(failed)?;
    for first in (0..BLOCKS).step_by(32) {
        let ids: Vec<u64> = (first..BLOCKS.min(first + 32)).collect();
        gateway.get_many(&ids).map_err(failed)?;
    }
    let counts = gateway.counts();
    let ratio = counts.queries as f64 / (BLOCKS - counts.hits) as f64;
    Ok(row("cloud-partition-padding", "ratio", vec![ratio]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_hosts_get_no_queries_more_than_one() {
        let row = padding().unwrap();
        assert_eq!(row.measured, Some(1.0));
    }
}
