//! Frames of a trace file (docs/trace-format.md): a number of events, stored field by field in few
//! bytes.
//!
//! An event's place is stored as its distance from the end of an earlier event, `lag` events
//! before: lag 1 where stretches follow each other, or the number of events of an access where all
//! accesses look alike. All distances are multiples of `scale`, and most are small.

use super::{Event, Op, Surface};
use std::collections::HashMap;

/// Events of a frame, at most.
pub const FRAME_EVENTS: usize = 1 << 14;

/// Bytes of a frame's body, at most: the worst case and some slack.
pub const BODY_MAX: usize = 1 << 19;

/// Largest lag, and how many events of a frame are sampled to choose the lag.
const LAG_MAX: usize = 128;
const LAG_SAMPLE: usize = 512;

/// Bytes of a body before the list of event kinds.
const FIXED_LEN: usize = 24;

/// Encoded length of an event kind.
const KIND_LEN: usize = 8;

/// Zeros behind each column of numbers, so that every number can be read as eight bytes.
const PADDING: usize = 8;

/// Bits of the code for a number's length, and how many codes share a byte.
const CODE_BITS: usize = 2;
const CODES: usize = 8 / CODE_BITS;

/// Appends the body of a frame to `out`.
pub fn encode(events: &[Event], out: &mut Vec<u8>) {
    assert!((1..=FRAME_EVENTS).contains(&events.len()), "a frame has events, but not too many");
    let lag = best_lag(events);
    let differences: Vec<u64> =
        (0..events.len()).map(|i| events[i].at.wrapping_sub(expected(events, i, lag))).collect();
    let scale = differences.iter().fold(0, |scale, &d| gcd(magnitude(d), scale)).max(1);
    let places: Vec<u64> = differences.iter().map(|&d| folded(divided(d, scale))).collect();
    let first_time = events[0].time;
    let before = core::iter::once(first_time).chain(events.iter().map(|event| event.time));
    let times: Vec<u64> =
        events.iter().zip(before).map(|(e, before)| folded(e.time.wrapping_sub(before))).collect();
    let (kinds, kind_of) = kinds(events);

    out.extend_from_slice(&first_time.to_le_bytes());
    out.extend_from_slice(&scale.to_le_bytes());
    out.extend_from_slice(&(kinds.len() as u16).to_le_bytes());
    out.extend_from_slice(&(lag as u16).to_le_bytes());
    out.push(widest(&times));
    out.push(widest(&places));
    out.extend_from_slice(&[0; 2]);
    for kind in &kinds {
        out.extend_from_slice(&kind.to_bytes());
    }
    push_bits(&kind_of, bits_for(kinds.len()), out);
    push_numbers(&times, out);
    push_numbers(&places, out);
}

/// What is wrong with a frame.
pub type Damage = &'static str;

/// Replaces `events` by the `count` events that `body` encodes.
pub fn decode(count: usize, body: &[u8], events: &mut Vec<Event>) -> Result<(), Damage> {
    events.clear();
    if count == 0 || count > FRAME_EVENTS {
        return Err("it has too many events");
    }
    let mut input = Input(body);
    let fixed = input.take(FIXED_LEN)?;
    let word = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("8 bytes"));
    let short = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
    let (first_time, scale, kinds, lag) = (word(0), word(8), short(16), short(18));
    if kinds == 0 || kinds > count || lag == 0 || lag > LAG_MAX {
        return Err("its header has a number that cannot be");
    }
    let known: Vec<EventKind> = input
        .take(kinds * KIND_LEN)?
        .chunks_exact(KIND_LEN)
        .map(|bytes| EventKind::of_bytes(bytes.try_into().expect("8 bytes")))
        .collect::<Result<_, _>>()?;
    let mut kind_of = Bits::new(&mut input, count, bits_for(kinds))?;
    let mut times = Numbers::new(&mut input, count, fixed[20])?;
    let mut places = Numbers::new(&mut input, count, fixed[21])?;
    if !input.0.is_empty() {
        return Err("it is longer than its events");
    }
    let mut time = first_time;
    for i in 0..count {
        let kind = *known.get(kind_of.next()).ok_or("an event is of no known kind")?;
        time = time.wrapping_add(unfolded(times.next()));
        let at = expected(events, i, lag).wrapping_add(unfolded(places.next()).wrapping_mul(scale));
        events.push(Event { time, surface: kind.surface, op: kind.op, at, len: kind.len });
    }
    Ok(())
}

/// End of the event `lag` events before number `i`; zero for the first events.
#[inline]
fn expected(events: &[Event], i: usize, lag: usize) -> u64 {
    let before = i.checked_sub(lag).map(|i| &events[i]);
    before.map_or(0, |event| event.at.wrapping_add(u64::from(event.len)))
}

/// The lag with the smallest distances.
fn best_lag(events: &[Event]) -> usize {
    let sample = &events[..events.len().min(LAG_SAMPLE)];
    let bytes = |lag: &usize| -> u32 {
        let differences =
            (*lag..sample.len()).map(|i| sample[i].at.wrapping_sub(expected(sample, i, *lag)));
        // The events before the first lag count as costly as the average of the rest.
        let bytes: u32 = differences.map(|d| u64::from(bytes_of(folded(d)))).sum::<u64>() as u32;
        bytes * 64 / (sample.len() - lag) as u32
    };
    (1..=LAG_MAX.min(sample.len() / 2)).min_by_key(bytes).unwrap_or(1)
}

/// The absolute value of a distance in two's complement.
fn magnitude(difference: u64) -> u64 {
    difference.cast_signed().unsigned_abs()
}

fn divided(difference: u64, by: u64) -> u64 {
    let quotient = magnitude(difference) / by;
    if difference.cast_signed() < 0 { quotient.wrapping_neg() } else { quotient }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Zigzag encoding: distances near zero, on either side, become small numbers.
#[inline]
fn folded(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

#[inline]
fn unfolded(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// The fields that many events share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct EventKind {
    len: u32,
    op: Op,
    surface: Surface,
}

impl EventKind {
    fn of(event: &Event) -> Self {
        Self { len: event.len, op: event.op, surface: event.surface }
    }

    fn to_bytes(self) -> [u8; KIND_LEN] {
        let [a, b, c, d] = self.len.to_le_bytes();
        [a, b, c, d, self.op as u8, self.surface as u8, 0, 0]
    }

    fn of_bytes([a, b, c, d, op, surface, ..]: [u8; KIND_LEN]) -> Result<Self, Damage> {
        Ok(Self {
            len: u32::from_le_bytes([a, b, c, d]),
            op: *Op::ALL.get(usize::from(op)).ok_or("unknown operation")?,
            surface: *Surface::ALL.get(usize::from(surface)).ok_or("unknown surface")?,
        })
    }
}

/// The distinct kinds of events, and the index of each event's kind.
fn kinds(events: &[Event]) -> (Vec<EventKind>, Vec<u16>) {
    let (mut known, mut numbers) = (vec![], HashMap::new());
    let mut last = (EventKind::of(&events[0]), 0);
    let of = |event| {
        let kind = EventKind::of(event);
        if known.is_empty() || kind != last.0 {
            let next = known.len() as u16;
            last = (kind, *numbers.entry(kind).or_insert(next));
            if last.1 == next {
                known.push(kind);
            }
        }
        last.1
    };
    let kind_of = events.iter().map(of).collect();
    (known, kind_of)
}

/// Bits of an index below `kinds`: 0 or a divisor of 16.
fn bits_for(kinds: usize) -> usize {
    [0, 1, 2, 4, 8].into_iter().find(|bits| kinds <= 1 << bits).unwrap_or(16)
}

/// Packs numbers of `bits` bits each, the first one in the lowest bits.
fn push_bits(numbers: &[u16], bits: usize, out: &mut Vec<u8>) {
    match bits {
        0 => {}
        16 => numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes())),
        _ => {
            for some in numbers.chunks(8 / bits) {
                let packed = some.iter().rev().fold(0, |byte, number| byte << bits | number);
                out.push(packed as u8);
            }
        }
    }
}

struct Bits<'a> {
    bytes: &'a [u8],
    width: usize,
    next: usize,
}

impl<'a> Bits<'a> {
    fn new(input: &mut Input<'a>, count: usize, width: usize) -> Result<Self, Damage> {
        Ok(Self { bytes: input.take((count * width).div_ceil(8))?, width, next: 0 })
    }

    #[inline]
    fn next(&mut self) -> usize {
        let at = self.next * self.width;
        self.next += 1;
        match self.width {
            0 => 0,
            16 => usize::from(u16::from_le_bytes([self.bytes[at / 8], self.bytes[at / 8 + 1]])),
            _ => usize::from(self.bytes[at / 8] >> (at % 8)) & ((1 << self.width) - 1),
        }
    }
}

fn bytes_of(number: u64) -> u8 {
    (u64::BITS - number.leading_zeros()).div_ceil(8) as u8
}

/// Bytes of the largest number: zero if all numbers are zero, else at least three.
fn widest(numbers: &[u64]) -> u8 {
    let most = numbers.iter().copied().max().unwrap_or(0);
    if most == 0 { 0 } else { bytes_of(most).max(3) }
}

/// Writes a code of two bits for each number (no byte, one, two, or as many as the widest), then
/// the bytes of the numbers.
fn push_numbers(numbers: &[u64], out: &mut Vec<u8>) {
    let width = widest(numbers);
    if width == 0 {
        return;
    }
    let code = |number: &u64| bytes_of(*number).min(3);
    let codes = numbers.chunks(CODES);
    out.extend(codes.map(|c| c.iter().rev().fold(0, |byte, n| byte << CODE_BITS | code(n))));
    for number in numbers {
        let len = [0, 1, 2, width][usize::from(code(number))];
        out.extend_from_slice(&number.to_le_bytes()[..usize::from(len)]);
    }
    out.extend_from_slice(&[0; PADDING]);
}

struct Numbers<'a> {
    codes: &'a [u8],
    /// The bytes of the remaining numbers, and the padding.
    bytes: &'a [u8],
    /// Length in bytes for each code, and the mask that selects as many of eight bytes.
    lens: [usize; 1 << CODE_BITS],
    masks: [u64; 1 << CODE_BITS],
    next: usize,
}

impl<'a> Numbers<'a> {
    fn new(input: &mut Input<'a>, count: usize, width: u8) -> Result<Self, Damage> {
        let lens = [0, 1, 2, usize::from(width)];
        if width == 0 {
            let padding = &[0; PADDING];
            return Ok(Self { codes: &[], bytes: padding, lens, masks: [0; 4], next: 0 });
        }
        if !(3..=8).contains(&width) {
            return Err("a column is too wide");
        }
        let codes = input.take(count.div_ceil(CODES))?;
        let code = |nth: usize| usize::from(codes[nth / CODES] >> (nth % CODES * CODE_BITS)) & 3;
        let len: usize = (0..count).map(|nth| lens[code(nth)]).sum();
        let bytes = input.take(len + PADDING)?;
        let masks = lens.map(|len| if len == 0 { 0 } else { u64::MAX >> (64 - 8 * len) });
        Ok(Self { codes, bytes, lens, masks, next: 0 })
    }

    #[inline]
    fn next(&mut self) -> u64 {
        let Some(byte) = self.codes.get(self.next / CODES) else { return 0 };
        let code = usize::from(byte >> (self.next % CODES * CODE_BITS)) & 3;
        self.next += 1;
        let word = self.bytes.first_chunk().expect("the padding is behind it");
        self.bytes = &self.bytes[self.lens[code]..];
        u64::from_le_bytes(*word) & self.masks[code]
    }
}

/// The unread rest of a body.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("it is shorter than its events")?;
        self.0 = rest;
        Ok(taken)
    }
}
