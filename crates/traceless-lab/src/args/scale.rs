//! `traceless-lab scale`

use clap::Args;
use std::path::PathBuf;
use traceless_cli::args::parse_size;

#[derive(Args, Clone, Debug)]
pub struct ScaleArgs {
    /// Hosts that the tree is divided among
    #[arg(long, value_name = "P", value_delimiter = ',', default_value = "1,4,16,64,256",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub hosts: Vec<usize>,
    /// Blocks of the tree
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_count,
        default_value = "1e6,1e9,1e12")]
    pub blocks: Vec<u64>,
    /// Bytes of a block
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1K")]
    pub block_len: u64,
    /// Milliseconds of the network's round trip between gateway and hosts
    #[arg(long, value_name = "MS", value_delimiter = ',', value_parser = parse_ms,
        default_value = "0.2,1,10")]
    pub round_trip: Vec<f64>,
    /// Clients, each with one request at a time
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "64,1024",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub clients: Vec<usize>,
    /// Processors of the gateway's machine, and of each host's
    #[arg(long, value_name = "N,N", value_delimiter = ',', num_args = 1, default_value = "16,8",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: Vec<u32>,
    /// Bytes that the network moves in a second between the gateway and a host
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1G")]
    pub bandwidth: u64,
    /// Measure 1, 2 and 4 hosts on this machine, and compare the model with them
    #[arg(long)]
    pub check: bool,
    /// Take the times of the parts from this file, which an earlier run has saved
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// Save the times of the parts in this file
    #[arg(long, value_name = "FILE", conflicts_with = "calibration")]
    pub save_calibration: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// A count, which may be written as 1e12.
fn parse_count(text: &str) -> Result<u64, String> {
    let number = text.parse::<u64>().ok();
    let float = || text.parse::<f64>().ok().filter(|n| (1.0..1e18).contains(n) && n.fract() == 0.0);
    let count = number.or_else(|| float().map(|n| n as u64)).filter(|n| *n > 0);
    count.ok_or_else(|| "a count is a whole number of 1 or more, as 1000000 or 1e6".to_owned())
}

fn parse_ms(text: &str) -> Result<f64, String> {
    let ms = text.parse::<f64>().ok().filter(|ms| (0.0..=60_000.0).contains(ms));
    ms.ok_or_else(|| "a time is 0 to 60000 milliseconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_be_powers_of_ten() {
        assert_eq!(parse_count("1e12"), Ok(1_000_000_000_000));
        assert_eq!(parse_count("100000"), Ok(100_000));
        for wrong in ["", "0", "-1", "1.5", "1e18", "nan", "1e-3", "x"] {
            assert!(parse_count(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_ms("0.2"), Ok(0.2));
        assert!(["-1", "60001", "nan", "x"].into_iter().all(|wrong| parse_ms(wrong).is_err()));
    }
}
