//! A disk at 7200 rpm: the IBM 43W7622 of the `SqORAM` paper, section 7.1.

use super::Disk;
use traceless::trace::{Event, Op};

/// Bytes that pass below the head in a second.
const BYTES_PER_SECOND: f64 = 300e6;
/// Half a turn, which is the average wait for a sector.
const HALF_TURN_NS: f64 = 4.17e6;
/// A seek to the next track.
const TRACK_SEEK_NS: f64 = 1e6;
/// The average seek between two random places.
const AVERAGE_SEEK_NS: f64 = 9e6;
/// The average of the square root of the distance of two random places on a disk of length 1.
const AVERAGE_ROOT_OF_DISTANCE: f64 = 8.0 / 15.0;

/// Requests that the disk may sort if it has an elevator.
const QUEUE_DEPTH: usize = 32;

/// The disk. A request that begins where the last one ended costs its transfer alone. Any other
/// costs a seek, which grows with the square root of the distance, and half a turn; a short gap
/// ahead costs the time in which it passes below the head, if that is less.
pub struct Hdd {
    span: u64,
    head: u64,
    /// Writes that wait to be sorted.
    queue: Vec<Event>,
    has_elevator: bool,
}

impl Hdd {
    /// A disk of `span` bytes. With an elevator it queues up to 32 writes between two syncs and
    /// serves them sorted by place; without, it serves each request at once.
    pub fn new(span: u64, has_elevator: bool) -> Self {
        Self { span, head: 0, queue: vec![], has_elevator }
    }

    fn serve_one(&mut self, event: &Event) -> f64 {
        let distance = self.head.abs_diff(event.at);
        let moved = self.seek_ns(distance) + HALF_TURN_NS;
        let wait = if event.at >= self.head { transfer_ns(distance).min(moved) } else { moved };
        self.head = event.at + u64::from(event.len);
        wait + transfer_ns(u64::from(event.len))
    }

    fn seek_ns(&self, distance: u64) -> f64 {
        let slope = (AVERAGE_SEEK_NS - TRACK_SEEK_NS) / AVERAGE_ROOT_OF_DISTANCE;
        TRACK_SEEK_NS + slope * (distance as f64 / self.span as f64).min(1.0).sqrt()
    }
}

impl Disk for Hdd {
    fn serve(&mut self, call: &[Event]) -> f64 {
        let mut took = 0.0;
        for event in call {
            match event.op {
                Op::Sync => took += self.drain(),
                Op::Write if self.has_elevator => {
                    self.queue.push(*event);
                    if self.queue.len() == QUEUE_DEPTH {
                        took += self.drain();
                    }
                }
                Op::Read | Op::Write => took += self.serve_one(event),
            }
        }
        took
    }

    fn drain(&mut self) -> f64 {
        let mut queue = std::mem::take(&mut self.queue);
        // Upwards from the head, then from the start: no request waits for more than one sweep.
        queue.sort_by_key(|event| (event.at < self.head, event.at));
        queue.iter().map(|event| self.serve_one(event)).sum()
    }
}

fn transfer_ns(bytes: u64) -> f64 {
    bytes as f64 / BYTES_PER_SECOND * 1e9
}

#[cfg(test)]
mod tests {
    use super::super::seconds;
    use super::super::testing::requests;
    use super::*;
    use traceless::rng::{Rng, SeededRng};

    const SPAN: u64 = 1 << 40;

    fn random_offsets(count: usize) -> impl Iterator<Item = u64> {
        let mut rng = SeededRng::new(1);
        (0..count).map(move |_| rng.below(SPAN / 4096) * 4096)
    }

    #[test]
    fn sequential_requests_run_at_the_transfer_rate() {
        let events = requests(Op::Read, 1 << 20, (0..1000).map(|i| i << 20));
        let took = seconds(&mut Hdd::new(SPAN, false), &events);
        assert!((took - f64::from(1000 << 20) / BYTES_PER_SECOND).abs() < 1e-6, "{took}");
    }

    #[test]
    fn random_small_requests_take_a_seek_and_half_a_turn() {
        let events = requests(Op::Write, 4096, random_offsets(20_000));
        let per_second = 20_000.0 / seconds(&mut Hdd::new(SPAN, false), &events);
        assert!((74.0..78.0).contains(&per_second), "{per_second} a second");
    }

    #[test]
    fn seeks_grow_with_the_distance_and_short_gaps_pass_by() {
        let second = |at: u64| {
            let mut disk = Hdd::new(SPAN, false);
            disk.serve(&requests(Op::Read, 4096, [0].into_iter()));
            disk.serve(&requests(Op::Read, 4096, [at].into_iter())) - transfer_ns(4096)
        };
        assert!(second(4096).abs() < 1.0);
        assert!((second(8192) - transfer_ns(4096)).abs() < 1.0, "a gap of one block passes by");
        // A seek backwards has no gap to pass.
        assert!(second(0) > TRACK_SEEK_NS + HALF_TURN_NS);
        let (near, far) = (second(SPAN / 1000), second(SPAN));
        assert!(near < far && (far - HALF_TURN_NS - 16e6).abs() < 1e4, "{near} {far}");
    }

    #[test]
    fn an_elevator_sorts_writes_but_not_across_a_sync() {
        let zigzag = || (0..QUEUE_DEPTH as u64).map(|i| if i % 2 == 0 { i } else { SPAN - i });
        let mut events = requests(Op::Write, 1, zigzag());
        let plain = seconds(&mut Hdd::new(SPAN, false), &events);
        let sorted = seconds(&mut Hdd::new(SPAN, true), &events);
        assert!(sorted * 8.0 < plain, "{sorted} {plain}");
        let syncs: Vec<Event> = requests(Op::Sync, 0, std::iter::repeat_n(0, events.len()));
        events = events.into_iter().zip(syncs).flat_map(|(write, sync)| [write, sync]).collect();
        let synced = seconds(&mut Hdd::new(SPAN, true), &events);
        assert!((synced - plain).abs() < 1e-9, "{synced} {plain}");
    }
}
