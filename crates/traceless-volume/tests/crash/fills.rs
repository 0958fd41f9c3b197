//! Contents of blocks, each from a number.

/// A 64-bit hash: the finaliser of `SplitMix64`.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Fills `into` with the contents for `fill`: zeros for zero, as a block that was never written.
pub fn contents(fill: u64, into: &mut [u8]) {
    if fill == 0 {
        return into.fill(0);
    }
    for (i, word) in into.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&mix(fill ^ ((i as u64) << 40)).to_le_bytes());
    }
}
