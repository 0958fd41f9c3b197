//! K, the number of main blocks refreshed per write, as an exact ratio.

use traceless_core::error::{Error, Result};

/// Main blocks refreshed per logical write, P/Q. The holding area has at least blocks / K slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refresh {
    p: u32,
    q: u32,
}

/// Upper bound of P and Q in lowest terms.
pub const REFRESH_TERM_MAX: u32 = 1000;

impl Refresh {
    /// One refresh per write: two physical writes per write, and twice the space.
    pub const ONE: Self = Self { p: 1, q: 1 };

    /// The ratio `p` / `q`.
    pub fn new(p: u32, q: u32) -> Result<Self> {
        if p == 0 || q == 0 {
            return Err(Error::Geometry("the refresh ratio must be above zero"));
        }
        let common = gcd(p, q);
        let (p, q) = (p / common, q / common);
        if p > REFRESH_TERM_MAX || q > REFRESH_TERM_MAX {
            return Err(Error::Geometry("the refresh ratio has a term above 1000"));
        }
        Ok(Self { p, q })
    }

    /// Parses `3`, `1/3` or `2.5`.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = Error::Geometry("the refresh ratio must look like 3, 1/3 or 2.5");
        let number = |s: &str| s.parse::<u32>().ok().filter(|_| !s.starts_with('+'));
        if let Some((p, q)) = text.split_once('/') {
            return match (number(p), number(q)) {
                (Some(p), Some(q)) => Self::new(p, q),
                _ => Err(bad),
            };
        }
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let scale = 10u32.checked_pow(part.len().min(4) as u32).unwrap_or(0);
        match (number(whole), number(part)) {
            (Some(whole), Some(fraction)) if part.len() <= 3 => {
                let p = whole.checked_mul(scale).and_then(|x| x.checked_add(fraction));
                p.map_or(Err(bad), |p| Self::new(p, scale))
            }
            _ => Err(bad),
        }
    }

    /// P, in lowest terms.
    pub fn p(self) -> u32 {
        self.p
    }

    /// Q, in lowest terms.
    pub fn q(self) -> u32 {
        self.q
    }

    /// Total number of refreshes after `writes` writes: floor(writes * K).
    pub fn after(self, writes: u64) -> u64 {
        let product = u128::from(writes) * u128::from(self.p) / u128::from(self.q);
        u64::try_from(product).expect("no volume lives for 2^54 writes")
    }

    /// Maximum number of refreshes in any `writes` consecutive writes: ceil(writes * K).
    pub fn at_most(self, writes: u64) -> u64 {
        (writes * u64::from(self.p)).div_ceil(u64::from(self.q))
    }

    /// Number of writes that always cause at least `blocks` refreshes: ceil(blocks / K).
    pub fn writes_for(self, blocks: u64) -> u64 {
        (blocks * u64::from(self.q)).div_ceil(u64::from(self.p))
    }
}

impl core::fmt::Display for Refresh {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.q {
            1 => write!(f, "{}", self.p),
            q => write!(f, "{}/{q}", self.p),
        }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn ratios_are_read_and_printed() {
        for (text, shown) in [
            ("1", "1"),
            ("3", "3"),
            ("1/3", "1/3"),
            ("2.5", "5/2"),
            ("0.25", "1/4"),
            ("6/4", "3/2"),
        ] {
            assert_eq!(Refresh::parse(text).unwrap().to_string(), shown);
        }
        let refused = [
            "",
            "0",
            "0/1",
            "1/0",
            "-1",
            "a",
            "1/2/3",
            "1.",
            "1.2345",
            "1.2500",
            "1.02500",
            "1001",
            "1e3",
            ".5",
            "+1",
            "99999999999",
        ];
        for text in refused {
            assert!(Refresh::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn refreshes_add_up() {
        let k = Refresh::new(3, 7).unwrap();
        assert_eq!(k.after(7), 3);
        assert_eq!(k.after(6), 2);
        assert_eq!(k.after(u64::MAX / 4), (u128::from(u64::MAX / 4) * 3 / 7) as u64);
        assert_eq!(k.writes_for(3), 7);
        assert_eq!(k.at_most(1), 1);
        for n in 0..100 {
            assert!(k.after(n + 5) - k.after(n) <= k.at_most(5));
            assert!(k.after(n + k.writes_for(10)) - k.after(n) >= 10);
        }
    }
}
