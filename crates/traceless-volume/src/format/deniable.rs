//! The parts of a deniable image that take the place of header and key slots: without a
//! key all of it is random bytes.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 32 | the salt of every key of a user |
//! | 512 | 64 | which key slots are in use, once keys were added or changed |
//! | 4096 | 15 × 4096 | key slots of the public volume |
//!
//! There is no header: the length of the image gives all sizes. Hidden volumes have no place of
//! their own; each has a [`HiddenRecord`] on the lane.

use super::keyslot::stretch;
use super::{Kdf, Keys, MasterKey, UserKey};
use crate::error::{Error, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use traceless_block::deniable::{HIDDEN_MAX, HiddenKey};
use traceless_core::rng::Rng;
use traceless_core::seal::{Aead, Cipher, Nonce, SECRET_LEN, Salt, Sealer, Secret, TAG_LEN};
use zeroize::Zeroizing;

/// Key slots of the public volume.
pub const DENIABLE_SLOTS: usize = 15;

const IN_USE_AT: u64 = 512;
const IN_USE_LEN: usize = 64;

const SLOT_LEN: usize = 4096;
const SLOTS_AT: u64 = 4096;
const VERSION: u16 = 1;

/// What is sealed in a key slot: version, cipher, reserved, master key.
const PLAIN_LEN: usize = 8 + SECRET_LEN;
const SEALED_AT: usize = Salt::LEN;
const TAG_AT: usize = SEALED_AT + PLAIN_LEN;

/// The random bytes at the beginning of an image.
#[derive(Clone, Copy)]
pub struct ImageSalt([u8; 32]);

/// The keys that a user's key gives in one image.
pub struct UserSecrets {
    slot: Secret,
    /// The key of the hidden volume that the user's key opens.
    pub hidden: Secret,
}

impl ImageSalt {
    /// The salt of an image.
    pub fn read(image: &File) -> io::Result<Self> {
        let mut salt = [0; 32];
        image.read_exact_at(&mut salt, 0)?;
        Ok(Self(salt))
    }

    /// The id of the public volume.
    pub fn uuid(&self) -> [u8; 16] {
        self.0[..16].try_into().expect("16 bytes")
    }

    /// The keys that `key` gives. A passphrase costs the same in every image: what an image said
    /// about its cost would not be random.
    pub fn secrets(&self, key: &UserKey) -> Result<UserSecrets> {
        let root = match key {
            UserKey::Passphrase(typed) => stretch(typed, &self.0, Kdf::default(), 0)?,
            UserKey::File(bytes) => Secret::extract(&self.0, bytes, "traceless deniable key file"),
        };
        let derive = |part: &[u8]| root.derive(&[b"deniable", part]);
        Ok(UserSecrets { slot: derive(b"key slot"), hidden: derive(b"hidden volume") })
    }
}

/// What opens the public volume.
pub struct PublicPart {
    /// Its master key.
    pub master: MasterKey,
    /// The cipher of its areas.
    pub cipher: Cipher,
}

impl PublicPart {
    /// A copy.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { master: self.master.duplicate()?, cipher: self.cipher })
    }

    /// Its keys.
    pub fn keys(&self, salt: &ImageSalt) -> io::Result<Keys> {
        Ok(Keys::new(self.master.duplicate()?, salt.uuid()))
    }

    fn encode(&self) -> Zeroizing<[u8; PLAIN_LEN]> {
        let mut plain = Zeroizing::new([0; PLAIN_LEN]);
        plain[..2].copy_from_slice(&VERSION.to_le_bytes());
        plain[2] = self.cipher.code();
        plain[8..].copy_from_slice(self.master.bytes());
        plain
    }

    fn decode(plain: &[u8]) -> Result<Self> {
        let version = super::u16_at(plain, 0);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let cipher = Cipher::of_code(plain[2]).ok_or(Error::Cipher(plain[2]))?;
        let mut master = Zeroizing::new([0; SECRET_LEN]);
        master.copy_from_slice(&plain[8..8 + SECRET_LEN]);
        let master = MasterKey::from_bytes(&master).map_err(super::keyslot::no_memory)?;
        Ok(Self { master, cipher })
    }
}

/// The key slots of an image.
pub struct DeniableSlots(Vec<u8>);

impl DeniableSlots {
    /// Reads the slots of an image.
    pub fn read(image: &File) -> io::Result<Self> {
        let mut bytes = vec![0; DENIABLE_SLOTS * SLOT_LEN];
        image.read_exact_at(&mut bytes, SLOTS_AT)?;
        Ok(Self(bytes))
    }

    /// What opens the public volume, and the number of the slot, if the user's key opens one. All
    /// slots are tried.
    pub fn unlock(
        &self,
        salt: &ImageSalt,
        secrets: &UserSecrets,
    ) -> Result<Option<(PublicPart, usize)>> {
        let cipher = Aead::new(&secrets.slot);
        let mut found = None;
        for (number, slot) in self.0.chunks_exact(SLOT_LEN).enumerate() {
            let mut plain = Zeroizing::new([0; PLAIN_LEN]);
            let nonce = Nonce::new(number as u64, Salt::split(slot).0);
            let (sealed, tag) = (&slot[SEALED_AT..TAG_AT], &slot[TAG_AT..TAG_AT + TAG_LEN]);
            if cipher.open(nonce, &salt.0, sealed, tag, &mut *plain).is_ok() {
                found = Some((plain, number));
            }
        }
        found.map(|(plain, number)| Ok((PublicPart::decode(&*plain)?, number))).transpose()
    }

    /// Writes slot `number`, durably.
    pub fn write(
        image: &File,
        number: usize,
        salt: &ImageSalt,
        (secrets, public): (&UserSecrets, &PublicPart),
        rng: &mut dyn Rng,
    ) -> io::Result<()> {
        let mut slot = vec![0; SLOT_LEN];
        rng.fill(&mut slot);
        let drawn = rng.salt();
        let (sealed, tag) = drawn.put(&mut slot).split_at_mut(PLAIN_LEN);
        let (nonce, plain) = (Nonce::new(number as u64, drawn), public.encode());
        let cipher = Aead::new(&secrets.slot);
        cipher.seal(nonce, &salt.0, &*plain, sealed, &mut tag[..TAG_LEN]);
        write_durably(image, &slot, SLOTS_AT + (number * SLOT_LEN) as u64)
    }

    /// Fills slot `number` with random bytes, durably.
    pub fn wipe(image: &File, number: usize, rng: &mut dyn Rng) -> io::Result<()> {
        let mut slot = vec![0; SLOT_LEN];
        rng.fill(&mut slot);
        write_durably(image, &slot, SLOTS_AT + (number * SLOT_LEN) as u64)
    }
}

/// The state of a key slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// It holds nothing.
    Empty,
    /// It may hold a key: a change of it was begun, and perhaps not completed.
    Changing,
    /// It holds a key.
    Key,
}

/// Which key slots are in use, sealed under the public volume's key: without a user's key a slot is
/// as random as an empty one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotsInUse {
    /// A bit for each slot that is not empty.
    used: u16,
    /// A bit for each slot that holds a key.
    keys: u16,
}

impl SlotsInUse {
    /// No slot in use.
    pub const NONE: Self = Self { used: 0, keys: 0 };

    /// Bytes of what is sealed: two bits for each slot.
    const PLAIN_LEN: usize = 4;

    /// Reads the record; `None` if it is damaged.
    pub fn read(image: &File, keys: &Keys) -> io::Result<Option<Self>> {
        let mut bytes = [0; IN_USE_LEN];
        image.read_exact_at(&mut bytes, IN_USE_AT)?;
        let (sealed, tag) = bytes[Salt::LEN..].split_at(Self::PLAIN_LEN);
        let nonce = Nonce::new(0, Salt::split(&bytes).0);
        let mut plain = [0; Self::PLAIN_LEN];
        let cipher = Aead::new(&keys.slots_in_use());
        let opened = cipher.open(nonce, keys.uuid(), sealed, &tag[..TAG_LEN], &mut plain);
        let [a, b, c, d] = plain;
        Ok(opened
            .ok()
            .map(|()| Self { used: u16::from_le_bytes([a, b]), keys: u16::from_le_bytes([c, d]) }))
    }

    /// Writes the record, durably.
    pub fn write(self, image: &File, keys: &Keys, rng: &mut dyn Rng) -> io::Result<()> {
        let mut bytes = [0; IN_USE_LEN];
        rng.fill(&mut bytes);
        let drawn = rng.salt();
        let (sealed, tag) = drawn.put(&mut bytes).split_at_mut(Self::PLAIN_LEN);
        let nonce = Nonce::new(0, drawn);
        let ([a, b], [c, d]) = (self.used.to_le_bytes(), self.keys.to_le_bytes());
        let cipher = Aead::new(&keys.slots_in_use());
        cipher.seal(nonce, keys.uuid(), &[a, b, c, d], sealed, &mut tag[..TAG_LEN]);
        write_durably(image, &bytes, IN_USE_AT)
    }

    /// The record with slot `number` in another state.
    #[must_use]
    pub fn with(self, number: usize, state: SlotState) -> Self {
        let set = |bits: u16, is_set: bool| {
            if is_set { bits | 1 << number } else { bits & !(1 << number) }
        };
        Self {
            used: set(self.used, state != SlotState::Empty),
            keys: set(self.keys, state == SlotState::Key),
        }
    }

    /// The numbers of the slots that hold a key.
    pub fn keys(self) -> impl Iterator<Item = usize> {
        (0..DENIABLE_SLOTS).filter(move |number| self.keys >> number & 1 == 1)
    }

    /// Whether slot `number` may hold a key.
    pub fn is_used(self, number: usize) -> bool {
        number < DENIABLE_SLOTS && self.used >> number & 1 == 1
    }

    /// The first slot that is not in use.
    pub fn first_empty(self) -> Result<usize> {
        let mut all = 0..DENIABLE_SLOTS;
        let empty = all.find(|number| !self.is_used(*number));
        empty.ok_or(Error::KeySlotsFull(DENIABLE_SLOTS))
    }
}

fn write_durably(image: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    image.write_all_at(bytes, at)?;
    image.sync_data()
}

/// What a hidden volume knows of itself and of the less secret ones.
pub struct HiddenRecord {
    /// Whether the volume was removed.
    pub removed: bool,
    /// Its blocks.
    pub blocks: u64,
    /// What opens the public volume.
    pub public: PublicPart,
    /// The hidden volumes that it was made beside, the least secret first.
    pub below: Vec<HiddenKey>,
}

const BELOW_AT: usize = 16 + PLAIN_LEN;
const BELOW_LEN: usize = SECRET_LEN + 8;

impl HiddenRecord {
    /// The record in `len` bytes.
    pub fn encode(&self, len: usize) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(vec![0; len]);
        out[..2].copy_from_slice(&VERSION.to_le_bytes());
        out[2] = u8::from(self.removed);
        out[3] = self.below.len() as u8;
        out[8..16].copy_from_slice(&self.blocks.to_le_bytes());
        out[16..BELOW_AT].copy_from_slice(&*self.public.encode());
        for (below, part) in self.below.iter().zip(out[BELOW_AT..].chunks_exact_mut(BELOW_LEN)) {
            part[..SECRET_LEN].copy_from_slice(below.secret.bytes());
            part[SECRET_LEN..].copy_from_slice(&below.blocks.to_le_bytes());
        }
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if super::u16_at(bytes, 0) != VERSION {
            return Err(Error::Version(super::u16_at(bytes, 0)));
        }
        let count = usize::from(bytes[3]).min(HIDDEN_MAX - 1);
        let below = bytes[BELOW_AT..].chunks_exact(BELOW_LEN).take(count).map(|part| HiddenKey {
            secret: Secret::from_bytes(part[..SECRET_LEN].try_into().expect("a key")),
            blocks: super::u64_at(part, SECRET_LEN),
        });
        Ok(Self {
            removed: bytes[2] != 0,
            blocks: super::u64_at(bytes, 8),
            public: PublicPart::decode(&bytes[16..BELOW_AT])?,
            below: below.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::SeededRng;

    fn secrets(salt: &ImageSalt, byte: u8) -> UserSecrets {
        salt.secrets(&UserKey::from_file(vec![byte; 32].into()).unwrap()).unwrap()
    }

    #[test]
    fn a_slot_opens_by_its_key_and_is_random_bytes() {
        let rng = &mut SeededRng::new(1);
        let file = tempfile::tempfile().unwrap();
        let mut bytes = vec![0; 1 << 16];
        rng.fill(&mut bytes);
        file.write_all_at(&bytes, 0).unwrap();
        let salt = ImageSalt::read(&file).unwrap();
        let public = PublicPart { master: MasterKey::random(rng).unwrap(), cipher: Cipher::AesGcm };
        let (fitting, foreign) = (secrets(&salt, 1), secrets(&salt, 2));
        DeniableSlots::write(&file, 14, &salt, (&fitting, &public), rng).unwrap();
        let slots = DeniableSlots::read(&file).unwrap();
        let (found, number) = slots.unlock(&salt, &fitting).unwrap().unwrap();
        assert!(number == 14 && found.master.is(&public.master) && found.cipher == public.cipher);
        assert!(slots.unlock(&salt, &foreign).unwrap().is_none());
        let other = ImageSalt([3; 32]);
        assert!(slots.unlock(&other, &secrets(&other, 1)).unwrap().is_none());
        let moved = DeniableSlots([&slots.0[SLOT_LEN..], &slots.0[..SLOT_LEN]].concat());
        assert!(moved.unlock(&salt, &fitting).unwrap().is_none(), "a slot is bound to its place");
        for at in (14 * SLOT_LEN..14 * SLOT_LEN + TAG_AT + TAG_LEN).step_by(5) {
            let mut flipped = DeniableSlots(slots.0.clone());
            flipped.0[at] ^= 1;
            assert!(flipped.unlock(&salt, &fitting).unwrap().is_none(), "{at}");
        }
    }

    #[test]
    fn the_slots_in_use_are_known_with_the_public_key_only() {
        let rng = &mut SeededRng::new(1);
        let file = tempfile::tempfile().unwrap();
        let mut bytes = vec![0; 1 << 16];
        rng.fill(&mut bytes);
        file.write_all_at(&bytes, 0).unwrap();
        let salt = ImageSalt::read(&file).unwrap();
        let keys = || Keys::new(MasterKey::random(&mut SeededRng::new(2)).unwrap(), salt.uuid());
        let read = || SlotsInUse::read(&file, &keys()).unwrap();
        assert_eq!(read(), None, "random bytes are no record");
        let numbers = |used: SlotsInUse| used.keys().collect::<Vec<_>>();
        let first = SlotsInUse::NONE.with(0, SlotState::Key);
        first.write(&file, &keys(), rng).unwrap();
        let known = || read().expect("it was written");
        assert_eq!((numbers(known()), known().first_empty().unwrap()), (vec![0], 1));
        let next = known().with(1, SlotState::Changing).with(14, SlotState::Key);
        next.with(0, SlotState::Empty).write(&file, &keys(), rng).unwrap();
        assert_eq!((numbers(known()), known().first_empty().unwrap()), (vec![14], 0));
        assert_eq!(
            [0, 1, 14, 15].map(|number| known().is_used(number)),
            [false, true, true, false]
        );
        let foreign = Keys::new(MasterKey::random(&mut SeededRng::new(3)).unwrap(), salt.uuid());
        assert_eq!(SlotsInUse::read(&file, &foreign).unwrap(), None);
        let full = (0..DENIABLE_SLOTS)
            .fold(known(), |used, number| used.with(number, SlotState::Changing));
        assert!(matches!(full.first_empty(), Err(Error::KeySlotsFull(DENIABLE_SLOTS))));
        assert!(ImageSalt::read(&file).unwrap().0 == salt.0, "the salt stays");
    }

    #[test]
    fn a_record_comes_back_as_it_went() {
        let master = MasterKey::random(&mut SeededRng::new(1)).unwrap();
        let public = PublicPart { master, cipher: Cipher::Aegis256 };
        let below = |n: u8| HiddenKey { secret: Secret::from_bytes([n; 32]), blocks: n.into() };
        let below = (0..14).map(below).collect();
        let record = HiddenRecord { removed: false, blocks: 77, public, below };
        let bytes = record.encode(4096);
        let read = HiddenRecord::decode(&bytes).unwrap();
        assert_eq!((read.removed, read.blocks, read.below.len()), (false, 77, 14));
        assert!(read.public.master.is(&record.public.master));
        assert_eq!(read.public.cipher, Cipher::Aegis256);
        let last = (read.below[13].secret.bytes(), read.below[13].blocks);
        assert_eq!(last, (&[13; 32], 13));
        assert!(HiddenRecord { removed: true, ..record }.encode(4096)[2] == 1);
        assert!(HiddenRecord::decode(&[9; 4096]).is_err());
    }
}
