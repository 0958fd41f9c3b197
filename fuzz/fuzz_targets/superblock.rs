//! Opens arbitrary bytes as superblocks: an error is fine, a panic is a finding.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    traceless_volume::format::fuzz_superblock(bytes);
});
