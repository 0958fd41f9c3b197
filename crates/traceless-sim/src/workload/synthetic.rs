//! Made-up workloads: one pattern, without end.

use super::permutation::Permutation;
use super::{LINE_LEN, Op, Record};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use traceless::rng::{Rng, SeededRng};

/// A pattern, and the working set that it is laid over.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Synthetic {
    /// The order of the lines.
    pub pattern: Pattern,
    /// The working set: bytes, from address 0 on.
    #[serde(default = "Synthetic::default_bytes")]
    pub bytes: u64,
    /// Share of the operations that write, from 0 to 1.
    #[serde(default = "Synthetic::default_write_share")]
    pub write_share: f64,
    /// Instructions before each operation.
    #[serde(default = "Synthetic::default_before")]
    pub before: u64,
}

/// The order in which lines are accessed.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pattern {
    /// Each line as likely as any other: `uniform`.
    Uniform,
    /// One line after the other, over and over: `sequential`.
    Sequential,
    /// Every N-th line; each further pass begins a line later: `stride:N`.
    Stride(u64),
    /// Each line once, in an order that looks random; then in the same order again: `chase`.
    Chase,
    /// The k-th most popular line with a probability proportional to k^-S: `zipf:S`. The place of a
    /// line is independent of its popularity.
    Zipf(f64),
}

/// Bytes of the largest working set.
const BYTES_MAX: u64 = 1 << 40;
const BEFORE_MAX: u64 = 1 << 32;
const EXPONENT_MAX: f64 = 8.0;

impl Synthetic {
    /// The pattern over the 4 GiB that the IR-ORAM paper protects; operations as in USIMM's
    /// examples: 30 % write, and 10 instructions lie between.
    pub fn new(pattern: Pattern) -> Self {
        Self {
            pattern,
            bytes: Self::default_bytes(),
            write_share: Self::default_write_share(),
            before: Self::default_before(),
        }
    }

    fn default_bytes() -> u64 {
        4 << 30
    }

    fn default_write_share() -> f64 {
        0.3
    }

    fn default_before() -> u64 {
        10
    }

    /// Refuses values that are out of range.
    pub fn check(&self) -> Result {
        if self.bytes < LINE_LEN || self.bytes > BYTES_MAX {
            return Err(Error::Synthetic("its working set is a line to 1 TiB"));
        }
        if !(0.0..=1.0).contains(&self.write_share) {
            return Err(Error::Synthetic("from 0 to 1 of its operations write"));
        }
        if self.before > BEFORE_MAX {
            return Err(Error::Synthetic("more than 2^32 instructions lie between operations"));
        }
        match self.pattern {
            Pattern::Stride(0) => Err(Error::Synthetic("its stride is at least a line")),
            Pattern::Zipf(exponent) if !(0.0..=EXPONENT_MAX).contains(&exponent) => {
                Err(Error::Synthetic("its exponent is from 0 to 8"))
            }
            _ => Ok(()),
        }
    }

    /// The operations, without end. The same seed gives the same ones.
    pub fn records(&self, seed: u64) -> Result<impl Iterator<Item = Record> + use<>> {
        self.check()?;
        let Self { write_share, before, .. } = *self;
        let mut rng = SeededRng::new(seed);
        let mut lines = PatternState::new(self.pattern, self.bytes / LINE_LEN, &mut rng);
        Ok(std::iter::from_fn(move || {
            let addr = lines.next(&mut rng) * LINE_LEN;
            let op = if unit(&mut rng) < write_share { Op::Write } else { Op::Read };
            Some(Record { before, op, addr })
        }))
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        Ok(match (name, number) {
            ("uniform", None) => Self::Uniform,
            ("sequential", None) => Self::Sequential,
            ("chase", None) => Self::Chase,
            ("stride", Some(number)) => {
                let lines = number.parse().map_err(|_| Error::Synthetic("stride:N is in lines"))?;
                Self::Stride(lines)
            }
            ("zipf", Some(number)) => {
                Self::Zipf(number.parse().map_err(|_| Error::Synthetic("zipf:S takes a number"))?)
            }
            _ => {
                let known = "a pattern is uniform, sequential, stride:N, chase or zipf:S";
                return Err(Error::Synthetic(known));
            }
        })
    }
}

impl TryFrom<String> for Pattern {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        match pattern {
            Pattern::Uniform => "uniform".to_owned(),
            Pattern::Sequential => "sequential".to_owned(),
            Pattern::Chase => "chase".to_owned(),
            Pattern::Stride(lines) => format!("stride:{lines}"),
            Pattern::Zipf(exponent) => format!("zipf:{exponent}"),
        }
    }
}

/// The progress of a pattern.
enum PatternState {
    Uniform { len: u64 },
    Stride { len: u64, stride: u64, first: u64, next: u64 },
    Chase { order: Permutation, len: u64, nth: u64 },
    Zipf { ranks: Zipf, order: Permutation },
}

impl PatternState {
    fn new(pattern: Pattern, len: u64, rng: &mut SeededRng) -> Self {
        match pattern {
            Pattern::Uniform => Self::Uniform { len },
            Pattern::Sequential => Self::Stride { len, stride: 1, first: 0, next: 0 },
            Pattern::Stride(stride) => {
                Self::Stride { len, stride: stride.min(len), first: 0, next: 0 }
            }
            Pattern::Chase => Self::Chase { order: Permutation::new(len, rng), len, nth: 0 },
            Pattern::Zipf(exponent) => {
                Self::Zipf { ranks: Zipf::new(len, exponent), order: Permutation::new(len, rng) }
            }
        }
    }

    #[inline]
    fn next(&mut self, rng: &mut SeededRng) -> u64 {
        match self {
            Self::Uniform { len } => rng.below(*len),
            Self::Stride { len, stride, first, next } => {
                let line = *next;
                *next += *stride;
                if *next >= *len {
                    *first = (*first + 1) % *stride;
                    *next = *first;
                }
                line
            }
            Self::Chase { order, len, nth } => {
                let line = order.at(*nth);
                *nth = (*nth + 1) % *len;
                line
            }
            Self::Zipf { ranks, order } => order.at(ranks.draw(rng) - 1),
        }
    }
}

/// Draws ranks with a probability that falls with a power of the rank, by rejection-inversion
/// (Hörmann and Derflinger, 1996): a rank is drawn under a smooth curve above the steps, and kept
/// if the point lies below the step.
struct Zipf {
    len: f64,
    exponent: f64,
    /// The integral from before the first rank, where the first step is cut, to behind the last.
    from: f64,
    to: f64,
}

impl Zipf {
    fn new(len: u64, exponent: f64) -> Self {
        let mut zipf = Self { len: len as f64, exponent, from: 0.0, to: 0.0 };
        zipf.from = zipf.integral(1.5) - 1.0;
        zipf.to = zipf.integral(zipf.len + 0.5);
        zipf
    }

    fn draw(&self, rng: &mut SeededRng) -> u64 {
        loop {
            let point = self.from + unit(rng) * (self.to - self.from);
            let rank = self.inverse(point).round().clamp(1.0, self.len);
            if point >= self.integral(rank + 0.5) - rank.powf(-self.exponent) {
                return rank as u64;
            }
        }
    }

    /// The integral of `x` to the power of minus the exponent, from 1 on.
    fn integral(&self, x: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power.abs() < NEARLY_ONE { x.ln() } else { (x.powf(power) - 1.0) / power }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power.abs() < NEARLY_ONE {
            area.exp()
        } else {
            (1.0 + area * power).max(0.0).powf(1.0 / power)
        }
    }
}

/// Exponents that differ from 1 by less than this count as 1.
const NEARLY_ONE: f64 = 1e-9;

/// A random number from 0 to below 1.
pub(super) fn unit(rng: &mut SeededRng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pattern: &str, lines: u64, count: usize) -> Vec<u64> {
        let pattern = pattern.parse().unwrap();
        let bytes = lines * LINE_LEN;
        let made_up = Synthetic { bytes, write_share: 0.5, before: 3, pattern };
        made_up.records(1).unwrap().take(count).map(|record| record.addr / LINE_LEN).collect()
    }

    #[test]
    fn patterns_are_what_they_are_called() {
        assert_eq!(lines("sequential", 3, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(lines("stride:3", 8, 9), [0, 3, 6, 1, 4, 7, 2, 5, 0]);
        assert_eq!(lines("stride:9", 2, 4), [0, 1, 0, 1]);
        let chase = lines("chase", 1000, 2000);
        assert_eq!(chase[..1000], chase[1000..]);
        let mut once = chase[..1000].to_vec();
        once.sort_unstable();
        assert!(once.into_iter().eq(0..1000));
        let mut counts = [0; 4];
        for line in lines("uniform", 4, 40_000) {
            counts[line as usize] += 1;
        }
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
    }

    #[test]
    fn a_rank_is_as_popular_as_zipf_says() {
        for exponent in [0.0, 0.5, 1.0, 1.5] {
            let (ranks, mut rng) = (Zipf::new(50, exponent), SeededRng::new(1));
            let mut counts = [0; 50];
            (0..200_000).for_each(|_| counts[ranks.draw(&mut rng) as usize - 1] += 1);
            let weight = |rank: usize| ((rank + 1) as f64).powf(-exponent);
            let all: f64 = (0..50).map(weight).sum();
            for (rank, count) in counts.into_iter().enumerate() {
                let expected = 200_000.0 * weight(rank) / all;
                let off = (f64::from(count) - expected).abs();
                assert!(off < 5.0 * expected.sqrt(), "{exponent}, {rank}: {count} for {expected}");
            }
        }
    }

    #[test]
    fn the_share_that_writes_and_the_seed_are_kept() {
        let of = |write_share, seed| {
            let made_up = Synthetic { write_share, ..Synthetic::new(Pattern::Uniform) };
            made_up.records(seed).unwrap().take(10_000).collect::<Vec<_>>()
        };
        let writes = |share| of(share, 1).iter().filter(|r| r.op == Op::Write).count();
        assert_eq!((writes(0.0), writes(1.0)), (0, 10_000));
        assert!((2_300..2_700).contains(&writes(0.25)), "{}", writes(0.25));
        assert_eq!(of(0.5, 7), of(0.5, 7));
        assert_ne!(of(0.5, 7), of(0.5, 8));
    }

    #[test]
    fn files_say_what_is_made_up() {
        let made_up: Synthetic = toml::from_str("pattern = \"zipf:0.9\"\nbytes = 4096").unwrap();
        let expected = Synthetic { bytes: 4096, ..Synthetic::new(Pattern::Zipf(0.9)) };
        assert_eq!(made_up, expected);
        assert_eq!(toml::from_str::<Synthetic>(&toml::to_string(&made_up).unwrap()), Ok(made_up));
        for text in ["bytes = 4096", "pattern = \"none\"", "pattern = \"chase\"\ncolour = 1"] {
            assert!(toml::from_str::<Synthetic>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let fine = Synthetic::new(Pattern::Uniform);
        let refused = |made_up: Synthetic| assert!(made_up.records(1).is_err(), "{made_up:?}");
        refused(Synthetic { bytes: 63, ..fine });
        refused(Synthetic { bytes: u64::MAX, ..fine });
        refused(Synthetic { write_share: 1.1, ..fine });
        refused(Synthetic { write_share: f64::NAN, ..fine });
        refused(Synthetic { before: u64::MAX, ..fine });
        refused(Synthetic { pattern: Pattern::Stride(0), ..fine });
        refused(Synthetic { pattern: Pattern::Zipf(-1.0), ..fine });
        refused(Synthetic { pattern: Pattern::Zipf(f64::NAN), ..fine });
        for pattern in ["", "unifrom", "uniform:1", "stride", "stride:x", "zipf", "zipf:x"] {
            assert!(pattern.parse::<Pattern>().is_err(), "{pattern}");
        }
        for pattern in ["uniform", "sequential", "stride:3", "chase", "zipf:0.8"] {
            assert_eq!(String::from(pattern.parse::<Pattern>().unwrap()), pattern);
        }
    }
}
