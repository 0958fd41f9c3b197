//! Messages between gateway and enclave, which the host carries and cannot read, change or repeat.
//!
//! Both sides put a random number into each session, so messages of an earlier session are refused
//! in a later one, even if the host restarts the enclave. Each direction and purpose has its own
//! key, and each message a counter and a salt, which form its nonce. The salt is drawn only when
//! the message's content is final. So two copies of one side, for example a machine resumed twice
//! from one snapshot, do not reuse a nonce for two messages, although both count on from the same
//! number.
//!
//! A message arrives once, and not a second time:
//!
//! ```
//! use traceless_cloud::Error;
//! use traceless_cloud::channel::{Receiver, Sender, session_key};
//! use traceless_core::rng::System;
//! use traceless_core::seal::Secret;
//!
//! # fn main() -> traceless_cloud::Result {
//! let shared = Secret::random(&mut System);
//! let (gateway, enclave) = ([1; 16], [2; 16]);
//! let key = session_key(&shared, &gateway, &enclave, b"query");
//! let mut sender = Sender::new(&key, Box::new(System));
//! let mut receiver = Receiver::new(&key);
//!
//! let mut message = sender.seal(b"block 7");
//! let mut repeated = message.clone();
//! assert_eq!(receiver.open(&mut message)?, b"block 7");
//! assert!(matches!(receiver.open(&mut repeated), Err(Error::Replayed)));
//! # Ok(())
//! # }
//! ```

use crate::codec::Writer;
use crate::error::{Error, Result};
use crate::geometry::TAG_LEN;
use alloc::boxed::Box;
use alloc::vec::Vec;
use traceless_core::rng::Rng;
use traceless_core::seal::{self, Aead, Salt, Sealer, Secret};

/// A side's random contribution to a session.
pub type Nonce = [u8; 16];

const COUNTER_LEN: usize = 8;
const HEAD_LEN: usize = COUNTER_LEN + Salt::LEN;
/// Bytes that a sealed message is longer than its plaintext.
pub const OVERHEAD: usize = HEAD_LEN + TAG_LEN;
/// How far a message's counter may lie behind the newest one. Several messages of queries are under
/// way at once, and may overtake each other.
const WINDOW: u64 = 1024;
const WORD_BITS: u64 = u64::BITS as u64;

/// The key of one direction and purpose of a session.
pub fn session_key(shared: &Secret, gateway: &Nonce, enclave: &Nonce, purpose: &[u8]) -> Secret {
    shared.derive(&[b"session", gateway, enclave, purpose])
}

/// The sending end of one direction.
pub struct Sender {
    aead: Aead,
    next: u64,
    rng: Box<dyn Rng>,
}

impl Sender {
    /// Seals under `key`, which no other sender uses, with salts from `rng`.
    pub fn new(key: &Secret, rng: Box<dyn Rng>) -> Self {
        Self { aead: Aead::new(key), next: 1, rng }
    }

    /// The number of the next message.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Seals a message.
    pub fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let counter = self.next;
        self.next += 1;
        let salt = self.rng.salt();
        let mut out = Writer::with_capacity(plain.len() + OVERHEAD);
        out.u64(counter).bytes(&salt.to_bytes()).bytes(plain).bytes(&[0; TAG_LEN]);
        let mut message = out.into_bytes();
        let (body, tag) = message[HEAD_LEN..].split_at_mut(plain.len());
        self.aead.seal_in_place(seal::Nonce::new(counter, salt), &[], body, tag);
        message
    }
}

/// The receiving end of one direction.
pub struct Receiver {
    aead: Aead,
    newest: u64,
    /// Bit i: whether the last message with a counter of i, modulo the window, was received.
    received: [u64; (WINDOW / WORD_BITS) as usize],
}

impl Receiver {
    /// Opens messages that are sealed under the sender's key.
    pub fn new(key: &Secret) -> Self {
        let mut received = [0; (WINDOW / WORD_BITS) as usize];
        // No message has the counter zero.
        received[0] = 1;
        Self { aead: Aead::new(key), newest: 0, received }
    }

    /// The plaintext of a message. Messages may overtake each other, but none is accepted twice.
    pub fn open<'a>(&mut self, message: &'a mut [u8]) -> Result<&'a [u8]> {
        Ok(self.open_numbered(message)?.1)
    }

    /// The number of a message, and its plaintext as of [`Self::open`].
    pub fn open_numbered<'a>(&mut self, message: &'a mut [u8]) -> Result<(u64, &'a [u8])> {
        let parts = message
            .split_first_chunk_mut::<COUNTER_LEN>()
            .and_then(|(counter, rest)| Some((counter, rest.split_first_chunk_mut()?)))
            .filter(|(_, (_, rest))| rest.len() >= TAG_LEN);
        let (counter, (salt, rest)) = parts.ok_or(Error::Malformed("too short"))?;
        let counter = u64::from_le_bytes(*counter);
        let (body, tag) = rest.split_at_mut(rest.len() - TAG_LEN);
        let nonce = seal::Nonce::new(counter, Salt::from_bytes(*salt));
        self.aead.open_in_place(nonce, &[], body, tag).map_err(|_| Error::Unauthentic)?;
        self.accept(counter)?;
        Ok((counter, body))
    }

    fn accept(&mut self, counter: u64) -> Result {
        if counter > self.newest {
            // The new counters get the bits of the counters that leave the window.
            let ahead = (counter - self.newest).min(WINDOW);
            for new in counter - ahead + 1..=counter {
                let (word, bit) = self.bit(new);
                *word &= !bit;
            }
            self.newest = counter;
        }
        if self.newest - counter >= WINDOW {
            return Err(Error::Replayed);
        }
        let (word, bit) = self.bit(counter);
        if *word & bit != 0 {
            return Err(Error::Replayed);
        }
        *word |= bit;
        Ok(())
    }

    /// The word with the bit of a counter, and the bit.
    fn bit(&mut self, counter: u64) -> (&mut u64, u64) {
        let place = counter % WINDOW;
        (&mut self.received[(place / WORD_BITS) as usize], 1 << (place % WORD_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;

    fn ends() -> (Sender, Receiver) {
        let key = session_key(&Secret::from_bytes([1; 32]), &[2; 16], &[3; 16], b"test");
        (Sender::new(&key, Box::new(SeededRng::new(1))), Receiver::new(&key))
    }

    #[test]
    fn each_message_is_accepted_once_in_any_order() {
        let (mut sender, mut receiver) = ends();
        let messages: Vec<Vec<u8>> = (0..2000_u16).map(|i| sender.seal(&i.to_le_bytes())).collect();
        for i in [0, 5, 3, 4, 1000, 1, 1999, 1172] {
            let mut message = messages[i].clone();
            assert_eq!(receiver.open(&mut message).unwrap(), (i as u16).to_le_bytes());
            let mut again = messages[i].clone();
            assert!(matches!(receiver.open(&mut again), Err(Error::Replayed)), "{i}");
        }
        // The counter lies before the window, so the receiver cannot know whether it was used.
        assert!(matches!(receiver.open(&mut messages[2].clone()), Err(Error::Replayed)));
    }

    #[test]
    fn altered_messages_are_refused_and_do_not_move_the_window() {
        let (mut sender, mut receiver) = ends();
        let message = sender.seal(b"query");
        for byte in 0..message.len() {
            let mut changed = message.clone();
            changed[byte] ^= 1;
            assert!(matches!(receiver.open(&mut changed), Err(Error::Unauthentic)));
        }
        for len in 0..OVERHEAD {
            assert!(matches!(receiver.open(&mut vec![0; len]), Err(Error::Malformed(_))));
        }
        assert_eq!(receiver.open(&mut message.clone()).unwrap(), b"query");
        let key = session_key(&Secret::from_bytes([1; 32]), &[2; 16], &[4; 16], b"test");
        let later = Receiver::new(&key).open(&mut message.clone()).map(<[u8]>::to_vec);
        assert!(matches!(later, Err(Error::Unauthentic)), "a session of another enclave");
    }

    /// Compares the window with a list of all received counters: close, far ahead and far behind.
    #[test]
    fn the_window_agrees_with_a_list() {
        let mut rng = SeededRng::new(5);
        let mut draw = |below: u64| {
            let mut bytes = [0; 8];
            rng.fill(&mut bytes);
            u64::from_le_bytes(bytes) % below
        };
        for reach in [3, 40, WINDOW, WINDOW + 1, 2 * WINDOW] {
            let mut receiver = ends().1;
            let mut accepted = std::collections::BTreeSet::from([0]);
            for _ in 0..3000 {
                let newest = *accepted.last().unwrap();
                let counter = (newest + reach / 3).saturating_sub(draw(reach)).max(1);
                let is_near = newest.saturating_sub(counter) < WINDOW;
                let is_new = is_near && accepted.insert(counter);
                assert_eq!(receiver.accept(counter).is_ok(), is_new, "{counter} after {newest}");
            }
            // All counters inside the window, after jumps by about the window's length.
            for ahead in [WINDOW - 1, WINDOW, WINDOW + 1, 1] {
                let next = *accepted.last().unwrap() + ahead;
                accepted.insert(next);
                receiver.accept(next).unwrap();
                for counter in next.saturating_sub(WINDOW + 2)..=next {
                    let is_new = next - counter < WINDOW && accepted.insert(counter);
                    assert_eq!(receiver.accept(counter).is_ok(), is_new, "{counter} after {next}");
                }
            }
        }
    }
}
