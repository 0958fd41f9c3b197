//! A machine that computes a cipher wrongly, as some emulated processors do: a planted fault, for
//! tests.
//!
//! ```
//! use traceless_core::seal::{Cipher, WideAegis, wrong_machine};
//!
//! let cipher = Cipher::Aegis256X4;
//! assert!(cipher.is_sound());
//! wrong_machine::with::<WideAegis, _>(|| assert!(!cipher.is_sound()));
//! assert!(cipher.is_sound());
//! ```

use std::any::TypeId;
use std::cell::Cell;

thread_local! {
    static WRONG: Cell<Option<TypeId>> = const { Cell::new(None) };
}

/// Calls `act`, during which sealers of type `S` make wrong tags in this thread.
pub fn with<S: 'static, R>(act: impl FnOnce() -> R) -> R {
    WRONG.set(Some(TypeId::of::<S>()));
    let result = act();
    WRONG.set(None);
    result
}

/// Spoils a tag that a sealer of type `S` has made, if this thread computes it wrongly.
pub(super) fn spoil<S: 'static>(tag: &mut [u8]) {
    if WRONG.get() == Some(TypeId::of::<S>()) {
        tag[0] ^= 1;
    }
}
