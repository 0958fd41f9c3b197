//! A flash disk of medium speed.

use super::Disk;
use traceless::trace::{Event, Op};

const READ_NS: f64 = 80e3;
const WRITE_NS: f64 = 20e3;
const BYTES_PER_SECOND: f64 = 500e6;
/// The disk reads and writes whole pages.
const PAGE_BYTES: u64 = 4096;
/// Requests of one call that are served at the same time.
const CHANNELS: usize = 8;

/// The disk. Requests of one call wait for their latency together, eight at a time, and pass
/// through one link, page by page.
pub struct Ssd;

impl Disk for Ssd {
    fn serve(&mut self, call: &[Event]) -> f64 {
        let mut channels = [0.0; CHANNELS];
        let mut pages = 0;
        let requests_of_call = call.iter().filter(|event| event.op != Op::Sync);
        for (number, event) in requests_of_call.enumerate() {
            let latency = if event.op == Op::Read { READ_NS } else { WRITE_NS };
            channels[number % CHANNELS] += latency;
            pages += pages_of(event);
        }
        let latency_of_call = channels.into_iter().fold(0.0, f64::max);
        latency_of_call + (pages * PAGE_BYTES) as f64 / BYTES_PER_SECOND * 1e9
    }

    fn drain(&mut self) -> f64 {
        0.0
    }
}

fn pages_of(event: &Event) -> u64 {
    let end = event.at + u64::from(event.len);
    end.div_ceil(PAGE_BYTES) - event.at / PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::super::seconds;
    use super::super::testing::requests;
    use super::*;

    #[test]
    fn small_requests_take_their_latency() {
        let events = requests(Op::Read, 4096, (0..1000).map(|i| i * 1_000_000 / 4096 * 4096));
        let took = seconds(&mut Ssd, &events) / 1000.0;
        assert!((took - (80e-6 + 4096.0 / 500e6)).abs() < 1e-9, "{took}");
        let writes = requests(Op::Write, 512, (0..1000).map(|i| i * 4096));
        let took = seconds(&mut Ssd, &writes) / 1000.0;
        assert!((took - (20e-6 + 4096.0 / 500e6)).abs() < 1e-9, "half a page costs one: {took}");
    }

    #[test]
    fn large_requests_run_at_the_rate_of_the_link() {
        let events = requests(Op::Read, 64 << 20, (0..16).map(|i| i << 26));
        let rate = f64::from(16 << 26) / seconds(&mut Ssd, &events);
        assert!((0.99..1.0).contains(&(rate / BYTES_PER_SECOND)), "{rate}");
    }

    #[test]
    fn requests_of_one_call_wait_together() {
        let apart = requests(Op::Read, 4096, (0..8).map(|i| i << 20));
        let together: Vec<Event> = apart.iter().map(|e| Event { time: 0, ..*e }).collect();
        let (apart, together) = (seconds(&mut Ssd, &apart), seconds(&mut Ssd, &together));
        assert!((apart - together - 7.0 * 80e-6).abs() < 1e-9, "{apart} {together}");
    }
}
