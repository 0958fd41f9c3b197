//! Options that several commands share.

use clap::{Args, ValueEnum};
use std::fmt;

#[derive(Args, Clone, Debug)]
pub struct ProgressArgs {
    /// Show the progress of long work
    #[arg(long, value_name = "HOW", value_enum, num_args = 0..=1, require_equals = true,
          default_value = "auto", default_missing_value = "plain")]
    pub progress: ProgressHow,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ProgressHow {
    /// A bar on a terminal, nothing elsewhere
    Auto,
    /// A line now and then
    Plain,
    /// A JSON object a line, on standard error
    Json,
    /// Nothing
    None,
}

/// Reads `1G`, `512M`, `4096`: binary suffixes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let (number, shift) = match lower.char_indices().last() {
        Some((at, 'k')) => (&lower[..at], 10),
        Some((at, 'm')) => (&lower[..at], 20),
        Some((at, 'g')) => (&lower[..at], 30),
        Some((at, 't')) => (&lower[..at], 40),
        Some((at, 'p')) => (&lower[..at], 50),
        _ => (lower, 0),
    };
    let number: u64 = number.parse().map_err(|_| "a size looks like 1G, 512M or 4096")?;
    number.checked_mul(1 << shift).ok_or_else(|| "that is more than 16 EiB".into())
}

/// When what an adversary observes is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rate {
    /// As requests need it.
    Demand,
    /// So many accesses each second.
    Fixed(u32),
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Demand => f.write_str("demand"),
            Self::Fixed(per_second) => write!(f, "fixed={per_second}/s"),
        }
    }
}

/// Reads what [`Rate`] shows.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    if text == "demand" {
        return Ok(Rate::Demand);
    }
    let rate = text.strip_prefix("fixed=").and_then(|rest| rest.strip_suffix("/s")?.parse().ok());
    let rate = rate.filter(|&per_second| per_second > 0).map(Rate::Fixed);
    rate.ok_or_else(|| "neither `demand` nor `fixed=N/s`, as `fixed=500/s`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Rate, parse_rate, parse_size};
    use traceless_advise::size_text;

    #[test]
    fn sizes_are_read_as_they_were_written() {
        for bytes in [0, 1000, 4096, 3 << 19, 5 << 40] {
            assert_eq!(parse_size(&size_text(bytes)), Ok(bytes));
        }
    }

    #[test]
    fn sizes_have_binary_suffixes() {
        for (text, bytes) in [
            ("1G", 1 << 30),
            ("512m", 512 << 20),
            ("4096", 4096),
            ("10T", 10 << 40),
            ("3KiB", 3072),
        ] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for text in ["", "G", "1.5G", "-1", "1X", "99999999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_understood() {
        assert_eq!(parse_rate("demand"), Ok(Rate::Demand));
        assert_eq!(parse_rate("fixed=250/s"), Ok(Rate::Fixed(250)));
        assert_eq!(Rate::Fixed(250).to_string(), "fixed=250/s");
        for wrong in ["fixed", "fixed=250", "fixed=0/s", "fixed=-1/s", "250/s", ""] {
            assert!(parse_rate(wrong).unwrap_err().contains("fixed=N/s"), "{wrong}");
        }
    }
}
