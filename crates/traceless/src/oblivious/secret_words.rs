//! Saves and loads words of the trusted state that may be secret, without branching on them.

use alloc::vec::Vec;
use traceless_core::durable::take_saved;
use traceless_core::error::Result;
use traceless_sys::ct::{self, secret::classify};

/// Saves words that may be secret.
pub(super) fn save_secret(words: &[u64], out: &mut Vec<u8>) {
    out.extend_from_slice(ct::bytes_of(words));
}

/// Loads as many words as `words` holds, and marks them as secret.
pub(super) fn load_secret(words: &mut [u64], from: &mut &[u8]) -> Result {
    let saved = take_saved(from, size_of_val(words))?;
    ct::bytes_of_mut(words).copy_from_slice(saved);
    classify(words);
    Ok(())
}
