//! Whether a scheme that rewrites what it reads may go on after an error.
//!
//! An access first reads, and changes nothing by that; then it changes trusted state and writes. A
//! read that the store could not serve is made again by the next access, before anything else: the
//! same bytes are read for the same block, whatever is asked for next. So who watches sees the
//! failure and that read again, and learns nothing of whether the caller asked for the block again.

use crate::error::{Error, Result};

/// What the last access left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Health {
    /// Nothing is half done.
    #[default]
    Sound,
    /// A write or a sync failed: the store may hold a part of it.
    WriteFailed,
    /// What was read did not verify.
    DamageFound,
    /// An access began to change trusted state, and did not end.
    Aborted,
}

impl Health {
    /// Refuses to go on where nothing may be accessed any more.
    pub fn check(self) -> Result {
        match self {
            Self::Sound => Ok(()),
            Self::WriteFailed => Err(Error::Poisoned),
            Self::DamageFound => Err(Error::EarlierDamage),
            Self::Aborted => Err(Error::EarlierAbort),
        }
    }

    /// Passes on what came of a read, before which nothing was changed. Only damage ends anything.
    pub fn after_read<R>(&mut self, read: Result<R>) -> Result<R> {
        *self = match &read {
            Err(Error::Tampered { .. } | Error::EarlierDamage) => Self::DamageFound,
            _ => Self::Sound,
        };
        read
    }

    /// From here on trusted state changes: what does not come to [`end`](Self::end) is cut off.
    pub fn begin(&mut self) {
        *self = Self::Aborted;
    }

    /// Passes on what came of a change of trusted state, and of the write after it.
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
    use crate::error::Place;

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
