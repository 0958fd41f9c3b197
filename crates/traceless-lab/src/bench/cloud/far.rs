//! A host that is far away: a proxy holds all bytes back for half a round trip.

use super::serving::{RedisLoad, ServingProcess, redis_benchmark};
use crate::delay_proxy::delay;
use crate::report::{Row, failed, row};
use std::ffi::OsStr;
use std::time::Duration;
use traceless_cli::failure::Failure;
use traceless_cli::output::print_error;

/// The round trip to the host.
const ROUND_TRIP: Duration = Duration::from_millis(1);
/// Clients, each with one request at a time.
const CLIENTS: u32 = 8;
const ROUNDS: usize = 5;

/// The row of clients without pipelining, of one client.
pub fn clients(quick: bool) -> Result<Row, Failure> {
    let folder = tempfile::tempdir().map_err(failed)?;
    let (store, state) = (folder.path().join("store"), folder.path().join("state"));
    let place = [OsStr::new("file:"), store.as_os_str()].join(OsStr::new(""));
    let words = |text: &'static str| text.split(' ').map(OsStr::new).collect::<Vec<_>>();
    let host = [words("host --listen 127.0.0.1:0 --durability process --store"), vec![&*place]];
    let host = ServingProcess::start(&host.concat(), "host")?;
    let proxy = delay(host.address.parse().map_err(failed)?, ROUND_TRIP / 2)?.to_string();
    let certificate = store.join("host.pem");
    let gateway = [
        words("gateway --resp 127.0.0.1:0 --allow-simulated-tee --durability process"),
        words("--blocks 100000 --host"),
        vec![OsStr::new(&proxy)],
        words("--host-cert"),
        vec![certificate.as_os_str(), OsStr::new("--state"), state.as_os_str()],
    ];
    let gateway = ServingProcess::start(&gateway.concat(), "RESP")?;
    print_error(&format!(
        "measuring {CLIENTS} clients, a host {ROUND_TRIP:?} away, and one client"
    ));
    let requests = if quick { 1000 } else { 5000 };
    let load = RedisLoad { clients: CLIENTS, pipelined: 1, requests, names: 20_000 };
    redis_benchmark(&gateway, &RedisLoad { requests: 40_000, clients: 50, pipelined: 16, ..load })?;
    let mut ratios = vec![];
    for _ in 0..ROUNDS {
        let [_, one] = redis_benchmark(&gateway, &RedisLoad { clients: 1, ..load })?;
        let many = RedisLoad { requests: requests * u64::from(CLIENTS), ..load };
        let [_, many] = redis_benchmark(&gateway, &many)?;
        ratios.push(many / one);
    }
    Ok(row("cloud-far-clients", "ratio", ratios))
}
