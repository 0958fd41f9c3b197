//! A host that is far away: a proxy holds all bytes back for half a round trip.

use super::serving::{RedisLoad, ServingProcess, redis_benchmark};
use crate::report::{Row, failed, row};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use traceless::clock::{Clock, Monotonic};
use traceless_cli::failure::Failure;
use traceless_cli::output::print_error;
use traceless_sys::listen;

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

/// A proxy of `target` that holds all bytes back for so long in each direction. It ends with the
/// process.
pub fn delay(target: SocketAddr, time: Duration) -> Result<SocketAddr, Failure> {
    let listener =
        listen::bind("127.0.0.1:0", listen::Clients::Anyone { remedy: "" }).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(target) else { break };
            for stream in [&client, &server] {
                // Without it only latency is worse.
                let _ = stream.set_nodelay(true);
            }
            let Ok((from, to)) = client.try_clone().and_then(|c| Ok((c, server.try_clone()?)))
            else {
                break;
            };
            forward(client, server, time);
            forward(to, from, time);
        }
    });
    Ok(address)
}

fn forward(mut from: TcpStream, mut to: TcpStream, time: Duration) {
    let (sender, receiver) = mpsc::channel::<(u64, Vec<u8>)>();
    let clock = std::sync::Arc::new(Monotonic::start());
    let reading = clock.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            let due = reading.now() + time.as_nanos() as u64;
            if sender.send((due, buffer[..len].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(Duration::from_nanos(due.saturating_sub(clock.now())));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
