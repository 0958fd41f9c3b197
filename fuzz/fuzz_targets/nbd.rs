//! Sends the NBD server requests as any client may: an error is fine, a panic or a hang is a
//! finding.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    traceless_volume::nbd::fuzz_session(bytes);
});
