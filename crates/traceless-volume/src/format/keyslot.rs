//! Key slots: the master key, wrapped under each user's key. Eight slots of 4096 bytes, at 4096.

use super::keys::{MasterKey, UserKey};
use super::{u16_at, u32_at};
use crate::error::{Error, Result};
use argon2::{Algorithm, Argon2, Params, Version};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use traceless_core::rng::Rng;
use traceless_core::seal::{Aead, Nonce, SECRET_LEN, Sealer, Secret, TAG_LEN};
use zeroize::Zeroizing;

/// Number of key slots.
pub const KEY_SLOTS: usize = 8;

const SLOT_LEN: usize = 4096;
const SLOTS_AT: u64 = 4096;
const MAGIC: [u8; 8] = *b"TLKEYSLT";
const SALT_AT: usize = 32;
const WRAPPED_AT: usize = 64;
const USED_LEN: usize = WRAPPED_AT + SECRET_LEN + TAG_LEN;

/// Most memory that a key slot may demand, in KiB.
const MEMORY_KIB_MAX: u32 = 4 << 20;
/// Most passes that a key slot may demand.
const TIME_MAX: u32 = 100;
/// Most lanes that a key slot may demand.
const LANES_MAX: u32 = 16;

/// The cost of guessing a passphrase: the parameters of argon2id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kdf {
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub time: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Default for Kdf {
    /// 512 MiB, three passes, one lane.
    fn default() -> Self {
        Self { memory_kib: 512 << 10, time: 3, lanes: 1 }
    }
}

/// The kind of key that opens a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotKind {
    /// A passphrase, stretched with these parameters.
    Passphrase(Kdf),
    /// A key file.
    KeyFile,
}

/// A slot in use.
#[derive(Clone)]
pub struct KeySlot {
    /// Passphrase or key file.
    pub kind: SlotKind,
    salt: [u8; 32],
    wrapped: [u8; SECRET_LEN + TAG_LEN],
}

impl KeySlot {
    /// Wraps `master` for `key`. A passphrase is stretched with the parameters `kdf`.
    pub fn wrap(
        master: &MasterKey,
        uuid: &[u8; 16],
        key: &UserKey,
        kdf: Kdf,
        rng: &mut dyn Rng,
    ) -> Result<Self> {
        let kind = match key {
            UserKey::Passphrase(_) => SlotKind::Passphrase(kdf),
            UserKey::File(_) => SlotKind::KeyFile,
        };
        let mut slot = Self { kind, salt: [0; 32], wrapped: [0; SECRET_LEN + TAG_LEN] };
        rng.fill(&mut slot.salt);
        // A fresh salt makes a fresh wrapping key, so version 0 is used once.
        let sealer = Aead::new(&slot.wrapping_key(key, 0)?);
        let (body, tag) = slot.wrapped.split_at_mut(SECRET_LEN);
        sealer.seal(Nonce::of_fresh_key(0), &bound(uuid, kind), master.bytes(), body, tag);
        Ok(slot)
    }

    /// The master key, if `key` opens the slot.
    fn unwrap(&self, uuid: &[u8; 16], key: &UserKey, number: usize) -> Result<Option<MasterKey>> {
        let sealer = Aead::new(&self.wrapping_key(key, number)?);
        let (body, tag) = self.wrapped.split_at(SECRET_LEN);
        let mut master = Zeroizing::new([0; SECRET_LEN]);
        match sealer.open(Nonce::of_fresh_key(0), &bound(uuid, self.kind), body, tag, &mut *master)
        {
            Ok(()) => Ok(Some(MasterKey::from_bytes(&master).map_err(no_memory)?)),
            Err(_) => Ok(None),
        }
    }

    fn wrapping_key(&self, key: &UserKey, number: usize) -> Result<Secret> {
        match (self.kind, key) {
            (SlotKind::Passphrase(kdf), UserKey::Passphrase(typed)) => {
                stretch(typed, &self.salt, kdf, number)
            }
            (_, UserKey::File(bytes) | UserKey::Passphrase(bytes)) => {
                Ok(Secret::extract(&self.salt, bytes, "traceless key file"))
            }
        }
    }

    fn fits_kind(&self, key: &UserKey) -> bool {
        matches!(
            (self.kind, key),
            (SlotKind::Passphrase(_), UserKey::Passphrase(_))
                | (SlotKind::KeyFile, UserKey::File(_))
        )
    }

    /// The bytes of the slot; unused ones are random.
    pub fn encode(&self, rng: &mut dyn Rng) -> Vec<u8> {
        let mut out = vec![0; SLOT_LEN];
        rng.fill(&mut out[USED_LEN..]);
        out[..8].copy_from_slice(&MAGIC);
        if let SlotKind::Passphrase(kdf) = self.kind {
            out[8..10].copy_from_slice(&1u16.to_le_bytes());
            out[12..16].copy_from_slice(&kdf.memory_kib.to_le_bytes());
            out[16..20].copy_from_slice(&kdf.time.to_le_bytes());
            out[20..24].copy_from_slice(&kdf.lanes.to_le_bytes());
        } else {
            out[8..10].copy_from_slice(&2u16.to_le_bytes());
        }
        out[SALT_AT..SALT_AT + 32].copy_from_slice(&self.salt);
        out[WRAPPED_AT..USED_LEN].copy_from_slice(&self.wrapped);
        out
    }

    /// The slot in `bytes`; `None` if it is empty or of an unknown kind.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < SLOT_LEN || bytes[..8] != MAGIC {
            return None;
        }
        let kind = match u16_at(bytes, 8) {
            1 => SlotKind::Passphrase(Kdf {
                memory_kib: u32_at(bytes, 12),
                time: u32_at(bytes, 16),
                lanes: u32_at(bytes, 20),
            }),
            2 => SlotKind::KeyFile,
            _ => return None,
        };
        Some(Self {
            kind,
            salt: bytes[SALT_AT..SALT_AT + 32].try_into().expect("32 bytes"),
            wrapped: bytes[WRAPPED_AT..USED_LEN].try_into().expect("48 bytes"),
        })
    }
}

/// All key slots of an image.
pub struct KeySlots(Vec<Option<KeySlot>>);

impl KeySlots {
    /// Reads the slots of an image.
    pub fn read(image: &File) -> io::Result<Self> {
        let mut bytes = vec![0; KEY_SLOTS * SLOT_LEN];
        image.read_exact_at(&mut bytes, SLOTS_AT)?;
        Ok(Self(bytes.chunks_exact(SLOT_LEN).map(KeySlot::decode).collect()))
    }

    /// Slots that were read elsewhere, for example from a backup.
    pub fn from_list(slots: Vec<Option<KeySlot>>) -> Self {
        Self(slots)
    }

    /// Each slot in order, `None` for an empty one.
    pub fn iter(&self) -> impl Iterator<Item = Option<&KeySlot>> {
        self.0.iter().map(Option::as_ref)
    }

    /// Number of slots in use.
    pub fn in_use(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// The first empty slot.
    pub fn first_empty(&self) -> Result<usize> {
        self.0.iter().position(Option::is_none).ok_or(Error::KeySlotsFull(KEY_SLOTS))
    }

    /// The master key, and the number of the slot that `key` opens.
    pub fn unlock(&self, uuid: &[u8; 16], key: &UserKey) -> Result<(MasterKey, usize)> {
        let mut refused = None;
        for (number, slot) in self.0.iter().enumerate() {
            let Some(slot) = slot.as_ref().filter(|s| s.fits_kind(key)) else { continue };
            match slot.unwrap(uuid, key, number) {
                Ok(Some(master)) => return Ok((master, number)),
                Ok(None) => {}
                Err(e) => refused = Some(e),
            }
        }
        Err(refused.unwrap_or(Error::WrongKey))
    }

    /// Writes `slot` as number `number`, durably.
    pub fn write(image: &File, number: usize, slot: &KeySlot, rng: &mut dyn Rng) -> io::Result<()> {
        image.write_all_at(&slot.encode(rng), SLOTS_AT + (number * SLOT_LEN) as u64)?;
        image.sync_data()
    }

    /// Overwrites slot `number` with random bytes, durably. The disk may keep older copies.
    pub fn wipe(image: &File, number: usize, rng: &mut dyn Rng) -> io::Result<()> {
        let mut random = vec![0; SLOT_LEN];
        rng.fill(&mut random);
        image.write_all_at(&random, SLOTS_AT + (number * SLOT_LEN) as u64)?;
        image.sync_data()
    }
}

/// The key that argon2id makes of a passphrase for slot `number`.
pub(super) fn stretch(typed: &[u8], salt: &[u8; 32], kdf: Kdf, number: usize) -> Result<Secret> {
    let limits = Error::KdfLimits { slot: number, memory_kib: kdf.memory_kib, time: kdf.time };
    if kdf.memory_kib > MEMORY_KIB_MAX || kdf.time > TIME_MAX || kdf.lanes > LANES_MAX {
        return Err(limits);
    }
    let Ok(params) = Params::new(kdf.memory_kib, kdf.time, kdf.lanes, Some(SECRET_LEN)) else {
        return Err(limits);
    };
    let mut out = Zeroizing::new([0; SECRET_LEN]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(typed, salt, &mut *out)
        .map_err(|_| limits)?;
    Ok(Secret::from_bytes(*out))
}

/// The associated data: it binds a wrapped key to its volume and to its kind of slot.
fn bound(uuid: &[u8; 16], kind: SlotKind) -> Vec<u8> {
    let mut bound = uuid.to_vec();
    if let SlotKind::Passphrase(kdf) = kind {
        for word in [kdf.memory_kib, kdf.time, kdf.lanes] {
            bound.extend_from_slice(&word.to_le_bytes());
        }
    }
    bound
}

pub(super) fn no_memory(source: io::Error) -> Error {
    Error::Io { what: "lock memory for the key (raise ulimit -l)", path: "memory".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;

    fn passphrase(text: &str) -> UserKey {
        UserKey::Passphrase(Zeroizing::new(text.as_bytes().to_vec()))
    }

    #[test]
    fn each_key_opens_its_own_slot() {
        let rng = &mut SeededRng::new(1);
        let master = MasterKey::random(rng).unwrap();
        let quick = Kdf { memory_kib: 64, time: 1, lanes: 1 };
        let file = || UserKey::from_file(Zeroizing::new(vec![7; 32])).unwrap();
        let uuid = [3; 16];
        let image = tempfile::tempfile().unwrap();
        image.set_len(1 << 20).unwrap();
        for (number, key) in [(0, passphrase("one")), (3, file()), (7, passphrase("two"))] {
            let slot = KeySlot::wrap(&master, &uuid, &key, quick, rng).unwrap();
            KeySlots::write(&image, number, &slot, rng).unwrap();
        }
        let slots = KeySlots::read(&image).unwrap();
        assert_eq!(slots.in_use(), 3);
        assert_eq!(slots.first_empty().unwrap(), 1);
        for (number, key) in [(0, passphrase("one")), (3, file()), (7, passphrase("two"))] {
            let (found, slot) = slots.unlock(&uuid, &key).unwrap();
            assert_eq!((found.bytes(), slot), (master.bytes(), number));
        }
        assert!(matches!(slots.unlock(&uuid, &passphrase("three")), Err(Error::WrongKey)));
        assert!(matches!(slots.unlock(&[4; 16], &passphrase("one")), Err(Error::WrongKey)));
        KeySlots::wipe(&image, 0, rng).unwrap();
        let slots = KeySlots::read(&image).unwrap();
        assert!(matches!(slots.unlock(&uuid, &passphrase("one")), Err(Error::WrongKey)));
    }

    /// Each of the eight slots holds a key file. Flipping a used bit of a slot makes that key fail
    /// and no other; flipping an unused bit changes nothing.
    #[test]
    fn every_flipped_bit_of_the_slots_is_refused_or_harmless() {
        let rng = &mut SeededRng::new(1);
        let (master, uuid) = (MasterKey::random(rng).unwrap(), [3; 16]);
        let key = |nth: u8| UserKey::from_file(Zeroizing::new(vec![nth; 32])).unwrap();
        let quick = Kdf { memory_kib: 64, time: 1, lanes: 1 };
        for nth in 0..KEY_SLOTS {
            let slot = KeySlot::wrap(&master, &uuid, &key(nth as u8), quick, rng).unwrap();
            let mut bytes = slot.encode(rng);
            let mut refused = 0;
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let slots = KeySlots::from_list(vec![KeySlot::decode(&bytes)]);
                match slots.unlock(&uuid, &key(nth as u8)) {
                    Ok((opened, _)) => assert_eq!(opened.bytes(), master.bytes(), "bit {bit}"),
                    Err(Error::WrongKey) => refused += 1,
                    Err(other) => panic!("bit {bit}: {other}"),
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            // The used bits: magic and kind, salt, wrapped key and its tag.
            assert_eq!(refused, 8 * (8 + 2 + 32 + SECRET_LEN + TAG_LEN), "slot {nth}");
        }
    }

    #[test]
    fn greedy_slots_are_refused() {
        let rng = &mut SeededRng::new(1);
        let master = MasterKey::random(rng).unwrap();
        let greedy = Kdf { memory_kib: u32::MAX, time: 1, lanes: 1 };
        let made = KeySlot::wrap(&master, &[0; 16], &passphrase("x"), greedy, rng);
        assert!(matches!(made, Err(Error::KdfLimits { .. })));
        assert!(matches!(
            UserKey::from_file(Zeroizing::new(vec![0; 31])),
            Err(Error::KeyFileShort(31))
        ));
    }

    /// A slot's parameters are used before they are authenticated, so they must not cost more
    /// memory or time than a machine has.
    #[test]
    fn parameters_beyond_the_limits_are_refused_at_once() {
        let rng = &mut SeededRng::new(1);
        let (master, uuid) = (MasterKey::random(rng).unwrap(), [3; 16]);
        let quick = Kdf { memory_kib: 64, time: 1, lanes: 1 };
        let slot = KeySlot::wrap(&master, &uuid, &passphrase("one"), quick, rng).unwrap();
        let unlocked = |kdf| {
            let slot = KeySlot { kind: SlotKind::Passphrase(kdf), ..slot.clone() };
            slot.unwrap(&uuid, &passphrase("one"), 5).map(|found| found.is_some())
        };
        assert!(unlocked(quick).unwrap());
        let most = Kdf { memory_kib: 8 * LANES_MAX, time: TIME_MAX, lanes: LANES_MAX };
        assert!(!unlocked(most).unwrap(), "allowed, and another key");
        for beyond in [
            Kdf { memory_kib: MEMORY_KIB_MAX + 1, ..quick },
            Kdf { time: TIME_MAX + 1, ..quick },
            Kdf { memory_kib: 8 * (LANES_MAX + 1), lanes: LANES_MAX + 1, ..quick },
        ] {
            let refused = unlocked(beyond);
            assert!(matches!(refused, Err(Error::KdfLimits { slot: 5, .. })), "{beyond:?}");
        }
    }
}
