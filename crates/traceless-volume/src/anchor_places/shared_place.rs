//! A value on a server that is changed by compare-and-swap: of two machines with the same anchor
//! only one goes on.

use super::{Outcome, RETRY_TIME};
use crate::error::{Error, Result};
use crate::format::anchor::{
    ANCHOR_LEN, AnchorPlace, AnchorRecord, AnchorUse, FoundRecords, MAGIC,
};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use traceless_core::clock::{Clock, Monotonic};

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// A value that a server keeps. Requests end by themselves, with an error, in seconds.
pub(super) trait SharedValue: Send {
    /// The value's name in messages, without a password.
    fn name(&self) -> String;

    /// The value, if there is one.
    fn get(&mut self) -> Outcome<Option<Vec<u8>>>;

    /// Replaces `old` by `new` if `old` is what is there, `None` being nothing, and says whether
    /// it was. After an error both are possible.
    fn swap(&mut self, old: Option<&[u8]>, new: &[u8]) -> Outcome<bool>;

    /// Fails if the server would replace a value that is not `old`. `old` is the value, if there is
    /// one.
    fn prove(&mut self, old: Option<&[u8]>) -> Outcome {
        let _ = old;
        Ok(())
    }
}

/// The place of an anchor in a shared value: the record of the volume, or zeros, and behind it that
/// of an image that may replace it.
pub(super) struct SharedPlace<V> {
    value: V,
    known: Option<Vec<u8>>,
    /// Values that may have arrived, although the server did not say so.
    sent: Vec<Vec<u8>>,
    is_taken: bool,
}

impl<V: SharedValue> SharedPlace<V> {
    pub fn new(value: V) -> Self {
        Self { value, known: None, sent: vec![], is_taken: false }
    }

    fn away(&self, source: io::Error) -> Error {
        Error::AnchorAway { place: self.name(), source }
    }

    fn look(&mut self) -> Result<Option<Vec<u8>>> {
        let found = self.value.get();
        found.map_err(|e| self.away(e))
    }

    fn record(&self, number: usize) -> Option<&[u8]> {
        self.known.as_deref()?.chunks_exact(ANCHOR_LEN).nth(number)
    }

    /// Replaces the value.
    fn replace(&mut self, new: &[u8]) -> Result {
        self.persist(|place| {
            let swapped = match place.value.swap(place.known.as_deref(), new) {
                Ok(false) => place.has_arrived(new),
                other => other,
            };
            if swapped.is_err() {
                place.sent.push(new.to_vec());
            }
            swapped
        })?;
        self.known = Some(new.to_vec());
        self.sent.clear();
        Ok(())
    }

    /// Makes attempts until one succeeds, also while the server is away for a moment. None follows
    /// once the value is of another opening.
    fn persist(&mut self, attempt: impl Fn(&mut Self) -> Outcome<bool>) -> Result {
        let clock = Monotonic::start();
        while !self.is_taken {
            match attempt(self) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(e) if is_final(&e) || Duration::from_nanos(clock.now()) >= RETRY_TIME => {
                    return Err(self.away(e));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        Err(Error::AnchorTaken(self.name()))
    }

    /// After a swap was refused: whether `new` is there all the same. If an earlier one is, it is
    /// what the next swap replaces; if it is not of this process, no swap follows.
    fn has_arrived(&mut self, new: &[u8]) -> Outcome<bool> {
        let found = self.value.get()?;
        let is_sent = found.as_ref().is_some_and(|found| self.sent.contains(found));
        if is_sent && found.as_deref() == Some(new) {
            return Ok(true);
        }
        self.is_taken = !is_sent && found != self.known;
        if self.is_taken {
            return Ok(false);
        }
        let is_unchanged = found == self.known;
        self.known = found;
        if is_unchanged {
            // It was another value for a moment, or the server refuses for another reason.
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(false)
    }
}

impl<V: SharedValue> AnchorPlace for SharedPlace<V> {
    fn name(&self) -> PathBuf {
        self.value.name().into()
    }

    fn claim(&mut self, anchor_use: AnchorUse) -> Result {
        self.known = self.look()?;
        let is_foreign = self.known.as_ref().is_some_and(|value| !is_anchor(value));
        let is_refused = match anchor_use {
            AnchorUse::Create { force } => self.known.is_some() && (!force || is_foreign),
            AnchorUse::Advance => false,
            AnchorUse::Replace => is_foreign,
        };
        if is_refused {
            return Err(Error::Exists(self.name()));
        }
        let known = self.known.take();
        let proved = self.value.prove(known.as_deref());
        self.known = known;
        proved.map_err(|e| self.away(e))
    }

    fn read(&mut self) -> Result<FoundRecords> {
        self.known = self.look()?;
        if self.known.is_none() {
            return Err(Error::AnchorMissing(self.name()));
        }
        let list = |record: Option<&[u8]>| record.map(<[u8]>::to_vec).into_iter().collect();
        Ok(FoundRecords { current: list(self.record(0)), coming: list(self.record(1)) })
    }

    fn confirm(&mut self) -> Result {
        self.persist(|place| {
            let found = place.value.get()?;
            let is_sent = found.as_ref().is_some_and(|found| place.sent.contains(found));
            place.is_taken = found != place.known && !is_sent;
            Ok(!place.is_taken)
        })
    }

    fn put(&mut self, record: &AnchorRecord) -> Result {
        self.replace(&record.bytes)
    }

    fn put_coming(&mut self, record: &AnchorRecord) -> Result {
        let current = self.record(0).unwrap_or(&[0; ANCHOR_LEN]);
        let both = [current, &record.bytes].concat();
        self.replace(&both)
    }

    fn promote(&mut self) -> Result {
        let coming = self.record(1).map(<[u8]>::to_vec);
        coming.map_or(Err(Error::AnchorMissing(self.name())), |coming| self.replace(&coming))
    }

    fn forget_coming(&mut self) -> Result {
        match (self.record(0).map(<[u8]>::to_vec), self.record(1)) {
            (Some(current), Some(_)) => self.replace(&current),
            _ => Ok(()),
        }
    }
}

/// Whether a value is an anchor's: one record or two, of which the first may be zeros.
fn is_anchor(value: &[u8]) -> bool {
    let is_record = |record: &[u8]| record.starts_with(&MAGIC) || record.iter().all(|&b| b == 0);
    let records = value.len() / ANCHOR_LEN;
    value.len().is_multiple_of(ANCHOR_LEN)
        && (1..=2).contains(&records)
        && value.chunks_exact(ANCHOR_LEN).all(is_record)
}

/// Whether the next attempt would fail for the same reason.
fn is_final(e: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, PermissionDenied, Unsupported};
    matches!(e.kind(), PermissionDenied | Unsupported | InvalidData | InvalidInput)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    /// What a server does with one swap.
    #[derive(Clone, Copy, PartialEq)]
    enum Fate {
        Answered,
        /// It arrives, and the reply is lost.
        Unanswered,
        /// It does not arrive.
        Lost,
        Refused,
    }

    /// A server in memory, which several places share, and the fates of this place's next swaps.
    #[derive(Clone, Default)]
    struct MemoryValue {
        value: Arc<Mutex<Option<Vec<u8>>>>,
        fates: Arc<Mutex<VecDeque<Fate>>>,
    }

    impl SharedValue for MemoryValue {
        fn name(&self) -> String {
            "memory".into()
        }

        fn get(&mut self) -> Outcome<Option<Vec<u8>>> {
            Ok(self.value.lock().unwrap().clone())
        }

        fn swap(&mut self, old: Option<&[u8]>, new: &[u8]) -> Outcome<bool> {
            let fate = self.fates.lock().unwrap().pop_front().unwrap_or(Fate::Answered);
            match fate {
                Fate::Lost => return Err(io::ErrorKind::TimedOut.into()),
                Fate::Refused => return Err(io::ErrorKind::PermissionDenied.into()),
                Fate::Answered | Fate::Unanswered => {}
            }
            let mut value = self.value.lock().unwrap();
            let fits = value.as_deref() == old;
            if fits {
                *value = Some(new.to_vec());
            }
            if fate == Fate::Unanswered { Err(io::ErrorKind::TimedOut.into()) } else { Ok(fits) }
        }
    }

    fn record(number: u8) -> AnchorRecord {
        let mut bytes = [number; ANCHOR_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        AnchorRecord { sequence: number.into(), counter: 0, bytes }
    }

    fn place(server: &MemoryValue) -> SharedPlace<MemoryValue> {
        SharedPlace::new(MemoryValue { fates: Arc::default(), ..server.clone() })
    }

    #[test]
    fn of_two_openings_one_goes_on() {
        let server = MemoryValue::default();
        let mut first = place(&server);
        first.claim(AnchorUse::Create { force: false }).unwrap();
        first.put(&record(1)).unwrap();
        let mut second = place(&server);
        assert!(matches!(second.claim(AnchorUse::Create { force: false }), Err(Error::Exists(_))));
        second.claim(AnchorUse::Advance).unwrap();
        assert_eq!(second.read().unwrap().current, [record(1).bytes.to_vec()]);
        second.put(&record(2)).unwrap();
        let mut third = place(&server);
        third.claim(AnchorUse::Advance).unwrap();
        third.confirm().unwrap();
        for _ in 0..2 {
            assert!(matches!(first.put(&record(3)), Err(Error::AnchorTaken(_))));
        }
        assert!(matches!(first.confirm(), Err(Error::AnchorTaken(_))));
        second.put(&record(4)).unwrap();
        assert_eq!(*server.value.lock().unwrap(), Some(record(4).bytes.to_vec()));
        assert!(matches!(third.confirm(), Err(Error::AnchorTaken(_))), "before it writes");
    }

    #[test]
    fn replies_that_are_lost_change_nothing() {
        for fates in [
            [Fate::Unanswered, Fate::Answered],
            [Fate::Lost, Fate::Unanswered],
            [Fate::Unanswered, Fate::Unanswered],
        ] {
            let server = MemoryValue::default();
            let mut place = SharedPlace::new(server.clone());
            place.claim(AnchorUse::Create { force: false }).unwrap();
            server.fates.lock().unwrap().extend(fates);
            for number in 1..4 {
                place.put(&record(number)).unwrap();
                assert_eq!(*server.value.lock().unwrap(), Some(record(number).bytes.to_vec()));
            }
        }
    }

    #[test]
    fn a_value_that_arrived_unseen_is_replaced_by_the_next() {
        let server = MemoryValue::default();
        let mut place = SharedPlace::new(server.clone());
        place.claim(AnchorUse::Create { force: false }).unwrap();
        place.put(&record(1)).unwrap();
        // The reply to the second is lost, and the third is not tried again.
        server.fates.lock().unwrap().extend([Fate::Unanswered, Fate::Refused]);
        assert!(matches!(place.put(&record(2)), Err(Error::AnchorAway { .. })));
        place.put(&record(3)).unwrap();
        assert_eq!(*server.value.lock().unwrap(), Some(record(3).bytes.to_vec()));
        // What another machine wrote is not.
        *server.value.lock().unwrap() = Some(record(9).bytes.to_vec());
        assert!(matches!(place.put(&record(4)), Err(Error::AnchorTaken(_))));
        assert_eq!(*server.value.lock().unwrap(), Some(record(9).bytes.to_vec()));
    }

    #[test]
    fn a_prepared_record_replaces_the_current_one_or_goes() {
        let server = MemoryValue::default();
        let mut first = place(&server);
        first.claim(AnchorUse::Create { force: false }).unwrap();
        first.put(&record(1)).unwrap();
        for keep in [false, true] {
            let mut prepared = place(&server);
            prepared.claim(AnchorUse::Replace).unwrap();
            prepared.put_coming(&record(5)).unwrap();
            let found = prepared.read().unwrap();
            assert_eq!(found.current, [record(1).bytes.to_vec()]);
            assert_eq!(found.coming, [record(5).bytes.to_vec()]);
            let want = if keep {
                prepared.promote().unwrap();
                record(5)
            } else {
                prepared.forget_coming().unwrap();
                record(1)
            };
            assert_eq!(*server.value.lock().unwrap(), Some(want.bytes.to_vec()));
        }
    }

    #[test]
    fn what_is_no_anchor_stays() {
        for foreign in [b"letter".to_vec(), vec![7; ANCHOR_LEN], vec![], vec![0; 3 * ANCHOR_LEN]] {
            let server = MemoryValue::default();
            *server.value.lock().unwrap() = Some(foreign.clone());
            for anchor_use in [AnchorUse::Create { force: true }, AnchorUse::Replace] {
                let refused = place(&server).claim(anchor_use);
                assert!(matches!(refused, Err(Error::Exists(_))), "{foreign:?}");
            }
        }
    }
}
