//! A proxy that holds all bytes back, as a network of some length does.

use crate::report::failed;
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use traceless::clock::{Clock, Monotonic};
use traceless_cli::failure::Failure;
use traceless_sys::listen;

/// What proxies are to do, and what they have done.
#[derive(Default)]
pub struct ProxyTraffic {
    /// Nanoseconds for which bytes are held back in each direction.
    delay_ns: AtomicU64,
    /// How often bytes came from clients.
    messages: AtomicU64,
    /// Nanoseconds of processor time that the proxies have taken.
    cpu_ns: AtomicU64,
}

impl ProxyTraffic {
    /// Holds bytes back for so long in each direction from now on.
    pub fn set_delay(&self, time: Duration) {
        self.delay_ns.store(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How often bytes came from clients. A short message comes at once.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Seconds of processor time that the proxies have taken.
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_ns.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// A proxy of `target` that holds all bytes back for so long in each direction. It ends with the
/// process.
pub fn delay(target: SocketAddr, time: Duration) -> Result<SocketAddr, Failure> {
    let traffic = Arc::new(ProxyTraffic::default());
    traffic.set_delay(time);
    start(target, traffic)
}

/// A proxy of `target` with a delay that may change. It ends with the process.
pub fn start(target: SocketAddr, traffic: Arc<ProxyTraffic>) -> Result<SocketAddr, Failure> {
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
            forward(client, server, traffic.clone(), true);
            forward(to, from, traffic.clone(), false);
        }
    });
    Ok(address)
}

fn forward(mut from: TcpStream, mut to: TcpStream, traffic: Arc<ProxyTraffic>, counts: bool) {
    let (sender, receiver) = mpsc::channel::<(u64, Vec<u8>)>();
    let clock = Arc::new(Monotonic::start());
    let (arrivals, counted) = (clock.clone(), traffic.clone());
    thread::spawn(move || {
        let (mut buffer, mut cpu) = (vec![0; 64 << 10], ThreadTime::default());
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            let due = arrivals.now() + counted.delay_ns.load(Ordering::Relaxed);
            counted.messages.fetch_add(u64::from(counts), Ordering::Relaxed);
            if sender.send((due, buffer[..len].to_vec())).is_err() {
                break;
            }
            cpu.add_to(&counted.cpu_ns);
        }
    });
    thread::spawn(move || {
        let mut cpu = ThreadTime::default();
        for (due, bytes) in receiver {
            thread::sleep(Duration::from_nanos(due.saturating_sub(clock.now())));
            if to.write_all(&bytes).is_err() {
                break;
            }
            cpu.add_to(&traffic.cpu_ns);
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// The processor time of a thread that was counted already, in nanoseconds.
#[derive(Default)]
struct ThreadTime(u64);

impl ThreadTime {
    fn add_to(&mut self, sum: &AtomicU64) {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let now = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        sum.fetch_add(now - self.0, Ordering::Relaxed);
        self.0 = now;
    }
}
