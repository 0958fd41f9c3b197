//! Variants that are calculated, not simulated.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use traceless::scheme::traffic;

/// The range of the number of blocks, as a power of two.
const LOG_BLOCKS: RangeInclusive<u32> = 4..=60;
const BLOCK_BITS: RangeInclusive<u64> = 1..=1 << 20;

/// Bits that recursive and unified ORAM move for each bit of a block if no cache helps, and the
/// paper's asymptotic bounds.
#[derive(Deserialize, Serialize, Clone, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Overheads {
    log_blocks: u32,
    block_bits: u64,
}

impl Overheads {
    /// Refuses parameters out of range.
    pub fn check(&self) -> Result<(), String> {
        if LOG_BLOCKS.contains(&self.log_blocks) && BLOCK_BITS.contains(&self.block_bits) {
            return Ok(());
        }
        Err("overheads: there are 2^4 to 2^60 blocks of 1 to 2^20 bits".to_owned())
    }

    /// Both overheads, and the paper's functions without their constants: log N + log³N / B, and
    /// log N + log³N / (B log log N).
    pub fn counts(&self) -> Value {
        let traffic::Overheads { recursive, unified } =
            traffic::Overheads::new(self.log_blocks, self.block_bits);
        let log = f64::from(self.log_blocks);
        let of_map = log.powi(3) / self.block_bits as f64;
        json!({"overheads": {
            "recursive": recursive,
            "unified": unified,
            "recursive-bound": log + of_map,
            "unified-bound": log + of_map / log.log2(),
        }})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_the_functions_of_the_paper() {
        let counts = Overheads { log_blocks: 16, block_bits: 256 }.counts();
        assert_eq!(counts["overheads"]["recursive-bound"], 16.0 + 16.0);
        assert_eq!(counts["overheads"]["unified-bound"], 16.0 + 4.0);
        let traffic::Overheads { recursive, unified } = traffic::Overheads::new(16, 256);
        assert_eq!(counts["overheads"]["recursive"], recursive);
        assert_eq!(counts["overheads"]["unified"], unified);
    }

    #[test]
    fn parameters_out_of_range_are_refused_and_bounds_of_the_range_are_not() {
        let of = |log_blocks, block_bits| Overheads { log_blocks, block_bits };
        for (log, bits) in [(3, 1), (61, 1), (4, 0), (4, (1 << 20) + 1), (u32::MAX, u64::MAX)] {
            assert!(of(log, bits).check().is_err(), "2^{log}, {bits}");
        }
        for (log, bits) in [(4, 1), (4, 1 << 20), (60, 1), (60, 1 << 20)] {
            assert!(of(log, bits).check().is_ok());
            let counts = of(log, bits).counts();
            let all = counts["overheads"].as_object().unwrap();
            assert!(all.values().all(|value| value.as_f64().is_some_and(|v| v > 0.0)), "{counts}");
        }
    }
}
