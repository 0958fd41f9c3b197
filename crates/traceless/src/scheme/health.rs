//! Whether a scheme that rewrites what it reads may go on after an error.
//!
//! An access first reads, which changes no state; then it changes trusted state and writes. If the
//! store could not serve a read, the next access repeats that read before anything else: the same
//! bytes, for the same block, whichever block is requested next. So an observer sees the failure
//! and the repeated read, and does not learn whether the caller requested the block again.

use traceless_core::error::{Error, Result};

/// State of the scheme after the last access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Health {
    /// No operation is incomplete.
    #[default]
    Sound,
    /// A write or a sync failed: the store may hold a part of its data.
    WriteFailed,
    /// Data that was read did not verify.
    DamageFound,
    /// An access began to change trusted state and did not end.
    Aborted,
}

impl Health {
    /// Returns an error if no further access is allowed.
    pub fn check(self) -> Result {
        match self {
            Self::Sound => Ok(()),
            Self::WriteFailed => Err(Error::Poisoned),
            Self::DamageFound => Err(Error::EarlierDamage),
            Self::Aborted => Err(Error::EarlierAbort),
        }
    }

    /// Passes on the result of a read, before which no state changed. Only damage stops the scheme.
    pub fn after_read<R>(&mut self, read: Result<R>) -> Result<R> {
        *self = match &read {
            Err(Error::Tampered { .. } | Error::EarlierDamage) => Self::DamageFound,
            _ => Self::Sound,
        };
        read
    }

    /// Marks the start of a change of trusted state: without a call of [`end`](Self::end), the
    /// access counts as aborted.
    pub fn begin(&mut self) {
        *self = Self::Aborted;
    }

    /// Passes on the result of a change of trusted state and of the write after it.
    pub fn end<R>(&mut self, changed: Result<R>) -> Result<R> {
        *self = match &changed {
            Ok(_) => Self::Sound,
            Err(Error::Tampered { .. } | Error::EarlierDamage) => Self::DamageFound,
            Err(
                Error::StashOverflow { .. }
                | Error::LabelsSpent
                | Error::Misplaced { .. }
                | Error::EarlierAbort,
            ) => Self::Aborted,
            Err(_) => Self::WriteFailed,
        };
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::error::Place;

    #[test]
    fn only_what_changed_something_ends_a_scheme() {
        let damage = || Error::Tampered { place: Place { area: "tree", slot: 1, block: None } };
        let mut health = Health::default();
        health.after_read::<()>(Err(Error::Store("for now"))).unwrap_err();
        health.check().unwrap();
        health.after_read::<()>(Err(damage())).unwrap_err();
        assert!(matches!(health.check(), Err(Error::EarlierDamage)));
        health.begin();
        assert!(matches!(health.check(), Err(Error::EarlierAbort)));
        health.end(Ok(())).unwrap();
        health.check().unwrap();
        for (error, after) in [
            (Error::Store("cut"), Health::WriteFailed),
            (Error::StashOverflow { blocks: 2, limit: 1 }, Health::Aborted),
            (damage(), Health::DamageFound),
        ] {
            health.begin();
            health.end::<()>(Err(error)).unwrap_err();
            assert_eq!(health, after);
        }
        assert!(matches!(Health::WriteFailed.check(), Err(Error::Poisoned)));
    }
}
