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

/// What is computed wrongly.
#[derive(Clone, Copy, PartialEq)]
enum Half {
    Seals,
    Openings,
}

thread_local! {
    static WRONG: Cell<Option<(TypeId, Half)>> = const { Cell::new(None) };
}

/// Calls `act`, during which sealers of type `S` make wrong tags in this thread.
pub fn with<S: 'static, R>(act: impl FnOnce() -> R) -> R {
    wrong::<S, R>(Half::Seals, act)
}

/// Calls `act`, during which sealers of type `S` open wrong contents in this thread.
pub fn with_openings<S: 'static, R>(act: impl FnOnce() -> R) -> R {
    wrong::<S, R>(Half::Openings, act)
}

fn wrong<S: 'static, R>(half: Half, act: impl FnOnce() -> R) -> R {
    WRONG.set(Some((TypeId::of::<S>(), half)));
    let result = act();
    WRONG.set(None);
    result
}

/// Spoils a tag that a sealer of type `S` has made, if this thread computes it wrongly.
pub(super) fn spoil<S: 'static>(tag: &mut [u8]) {
    if WRONG.get() == Some((TypeId::of::<S>(), Half::Seals)) {
        tag[0] ^= 1;
    }
}

/// Spoils the end of contents that a sealer of type `S` has opened, if this thread opens wrongly.
pub(super) fn spoil_opened<S: 'static>(body: &mut [u8]) {
    if WRONG.get() == Some((TypeId::of::<S>(), Half::Openings))
        && let Some(last) = body.last_mut()
    {
        *last ^= 1;
    }
}
