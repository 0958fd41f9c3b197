//! The control bits of a Beneš network, computed at the gateway, where accesses are not observed.

use alloc::vec::Vec;

/// A packed list of bits.
pub struct Bits {
    bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    pub fn with_capacity(bits: usize) -> Self {
        Self { bytes: Vec::with_capacity(bits.div_ceil(8)), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(8) {
            self.bytes.push(0);
        }
        self.bytes[self.len / 8] |= u8::from(bit) << (self.len % 8);
        self.len += 1;
    }
}

/// The half of the network that a row passes through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Unknown,
    Upper,
    Lower,
}

/// Appends the control bits of the network that sends row i to row `dest[i]`, in the order of its
/// exchanges.
pub fn route(dest: &[u32], bits: &mut Bits) {
    let rows = dest.len();
    if rows < 2 {
        return;
    }
    if rows == 2 {
        bits.push(dest[0] == 1);
        return;
    }
    let mut source = alloc::vec![0_u32; rows];
    for (from, &to) in dest.iter().enumerate() {
        source[to as usize] = from as u32;
    }
    let half = rows / 2;
    let halves = choose_halves(dest, &source);
    let lower = |row: usize| halves[row] == Half::Lower;
    for row in 0..half {
        bits.push(lower(row));
    }
    let (mut above, mut below) = (Vec::with_capacity(half), Vec::with_capacity(rows - half));
    for row in 0..half {
        let (up, down) = if lower(row) { (half + row, row) } else { (row, half + row) };
        above.push(within(dest[up], half));
        below.push(within(dest[down], half));
    }
    if !rows.is_multiple_of(2) {
        below.push(within(dest[rows - 1], half));
    }
    route(&above, bits);
    route(&below, bits);
    for &from in &source[..half] {
        bits.push(lower(from as usize));
    }
}

/// The row of its half's network that leads to row `to` at the other end.
fn within(to: u32, half: usize) -> u32 {
    let half = half as u32;
    match to / half {
        0 => to,
        // The odd row is at the end of the lower half.
        2 => half,
        _ => to - half,
    }
}

/// Two rows of one exchange pass through different halves, at both ends, and the odd row passes
/// through the lower half. So each choice forces the next one, around loops.
fn choose_halves(dest: &[u32], source: &[u32]) -> Vec<Half> {
    let rows = dest.len();
    let half = rows / 2;
    let partner = |row: usize| match row / half {
        0 => Some(row + half),
        1 => Some(row - half),
        _ => None,
    };
    let mut halves = alloc::vec![Half::Unknown; rows];
    let odd = (!rows.is_multiple_of(2)).then_some(rows - 1);
    for start in odd.into_iter().chain(half..2 * half) {
        let mut row = start;
        while halves[row] == Half::Unknown {
            halves[row] = Half::Lower;
            let Some(other_end) = partner(dest[row] as usize) else { break };
            let other = source[other_end] as usize;
            halves[other] = Half::Upper;
            row = partner(other).expect("the odd row passes through the lower half");
        }
    }
    halves
}
