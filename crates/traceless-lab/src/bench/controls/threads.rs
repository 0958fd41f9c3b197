//! Threads that wake each other.

use crate::report::{failed, summary};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io::{Read, Write, pipe};
use std::net::TcpStream;
use traceless::clock::{Clock, Monotonic};
use traceless_cli::failure::Failure;
use traceless_sys::listen::{Clients, bind};

/// Exchanges of one reading.
const EXCHANGES: usize = 2000;

/// Bytes of a message over TCP.
const MESSAGE_LEN: usize = 64;

/// Nanoseconds of one switch between two threads on one processor. One of them always waits for a
/// byte in a pipe, as a pager and a faulting program do.
pub fn switch_ns() -> Result<f64, Failure> {
    let allowed = sched_getaffinity(None).map_err(failed)?;
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    // The other thread inherits the affinity.
    sched_setaffinity(None, &here).map_err(failed)?;
    let (request, asking) = pipe().map_err(failed)?;
    let (reply, answering) = pipe().map_err(failed)?;
    let ns = exchange_ns([0], (reply, asking), (request, answering));
    sched_setaffinity(None, &allowed).map_err(failed)?;
    // An exchange has two switches.
    Ok(ns? / 2.0)
}

/// Nanoseconds of 64 bytes to another thread and back, over TCP on the loopback device.
pub fn round_trip_ns() -> Result<f64, Failure> {
    let anyone = Clients::Anyone { remedy: "the address is one of the loopback device" };
    let listener = bind("127.0.0.1:0", anyone).map_err(failed)?;
    let here = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
    let (there, _) = listener.accept().map_err(failed)?;
    for stream in [&here, &there] {
        stream.set_nodelay(true).map_err(failed)?;
    }
    let here = (here.try_clone().map_err(failed)?, here);
    let there = (there.try_clone().map_err(failed)?, there);
    exchange_ns([0; MESSAGE_LEN], here, there)
}

/// Nanoseconds until another thread returns a message: the median, which other load on the machine
/// hardly changes. `here` and `there` are the ends that this thread and the other one read from and
/// write to.
fn exchange_ns<const LEN: usize, R: Read + Send, W: Write + Send>(
    mut message: [u8; LEN],
    here: (R, W),
    there: (R, W),
) -> Result<f64, Failure> {
    let mut times_ns = Vec::with_capacity(EXCHANGES);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            exchange(there, |reader, writer| {
                let mut message = [0; LEN];
                reader.read_exact(&mut message)?;
                writer.write_all(&message)
            })
        });
        let clock = Monotonic::start();
        let exchanged = exchange(here, |reader, writer| {
            let begin = clock.now();
            writer.write_all(&message)?;
            reader.read_exact(&mut message)?;
            times_ns.push((clock.now() - begin) as f64);
            Ok(())
        });
        let of_other = other.join().map_err(|_| failed("the other thread is gone"))?;
        exchanged.and(of_other).map_err(failed)
    })?;
    Ok(summary(times_ns).0)
}

/// Calls `once` for each exchange, then closes the ends, so that the other thread ends after an
/// error too.
fn exchange<R, W>(
    (mut reader, mut writer): (R, W),
    mut once: impl FnMut(&mut R, &mut W) -> std::io::Result<()>,
) -> std::io::Result<()> {
    (0..EXCHANGES).try_for_each(|_| once(&mut reader, &mut writer))
}
