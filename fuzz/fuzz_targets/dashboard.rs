//! Reads arbitrary bytes as the head of a request to the live page: a refusal is fine, a panic is a
//! finding.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    traceless_dashboard::fuzz_request(bytes);
});
