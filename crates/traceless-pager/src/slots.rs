//! Pages in a store: bodies one behind the other, then their salts and tags, so that no body
//! crosses a page boundary of the store.
//!
//! The adversary may change the store at any time. So nothing is sealed or opened in the store
//! itself: a sealed page is copied out before it is opened, and copied in after it is sealed.
//!
//! A copy of this memory, as of a virtual machine that is resumed twice, goes on with the same key
//! and counts, and seals other pages under them. So each nonce has a salt besides its version. The
//! salt is drawn once the contents to seal are settled, and is stored in front of the tag.
//!
//! ```
//! use std::sync::Arc;
//! use traceless::{Error, Extent, rng::System, seal::Secret};
//! use traceless::store::{MemStore, Store};
//! use traceless_pager::slots::{Buffer, Cipher, Slots};
//!
//! # fn main() -> traceless::Result {
//! let store = Arc::new(MemStore::new(Slots::store_len(8)));
//! let key = Secret::random(&mut System);
//! let slots = Slots::new(store.clone(), 8, Cipher::default(), &key, Box::new(System))?;
//!
//! let mut buffer = Buffer::default();
//! buffer.body().fill(7);
//! let (slot, page, version) = (2, 1234, 1);
//! slots.put(slot, page, version, &mut buffer)?;
//! slots.get(slot, page, version, &mut buffer)?;
//! assert_eq!(buffer.body()[..3], [7, 7, 7]);
//!
//! // The adversary changes the beginning of the slot.
//! store.write(&[Extent::new(slot * 4096, 16)], &[0; 16])?;
//! let found = slots.get(slot, page, version, &mut buffer);
//! assert!(matches!(found, Err(Error::Tampered { .. })));
//! # Ok(())
//! # }
//! ```

use crate::{PAGE_LEN, Page};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless::error::{Error, Place, Result};
use traceless::rng::Salt;
/// AEGIS for pages, as [`Cipher::Aegis`] says.
#[cfg(not(feature = "std"))]
pub use traceless::seal::Aegis as PageAegis;
/// AEGIS for pages, as [`Cipher::Aegis`] says.
#[cfg(feature = "std")]
pub use traceless::seal::WideAegis as PageAegis;
use traceless::seal::{Aead, ChaChaHmac, Nonce, Sealer, Secret, TAG_LEN};
use traceless::store::Store;
use traceless::types::Extent;

/// The cipher that pages are sealed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cipher {
    /// AEGIS-256X4, the fastest where it is available (feature `std`); AEGIS-256 elsewhere.
    #[default]
    Aegis,
    /// AES-256-GCM.
    Gcm,
    /// `ChaCha20` with HMAC-SHA-256, as in the paging paper, to be compared with. The fastest on
    /// processors without instructions for AES.
    ChaChaHmac,
}

impl Cipher {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Aegis, Self::Gcm, Self::ChaChaHmac];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aegis => "aegis",
            Self::Gcm => "gcm",
            Self::ChaChaHmac => "chacha20-hmac",
        }
    }

    /// Refuses a cipher that this machine computes wrongly.
    #[cfg(feature = "std")]
    pub fn check(self) -> Result {
        match self {
            Self::Aegis => traceless::seal::Cipher::Aegis256X4.check(),
            Self::Gcm => traceless::seal::Cipher::AesGcm.check(),
            // It needs no instructions for AES, which are what emulated processors get wrong.
            Self::ChaChaHmac => Ok(()),
        }
    }

    /// Pages that one key may seal. GCM stays below 2^44 bytes a key.
    fn pages_max(self) -> u64 {
        match self {
            Self::Aegis | Self::ChaChaHmac => u64::MAX,
            Self::Gcm => (1 << 44) / PAGE_LEN as u64,
        }
    }

    fn sealer(self, key: &Secret) -> Box<dyn Sealer> {
        match self {
            Self::Aegis => Box::new(PageAegis::new(key)),
            Self::Gcm => Box::new(Aead::new(key)),
            Self::ChaChaHmac => Box::new(ChaChaHmac::new(key)),
        }
    }
}

/// Bytes that are stored beside a sealed page: a salt, and a tag.
const STAMP_LEN: usize = Salt::LEN + TAG_LEN;

/// Bytes of a sealed page.
pub const SEALED_LEN: usize = PAGE_LEN + STAMP_LEN;

/// A source of salts. Several threads draw at once, and so do cloned processes: none of them draws
/// what another one has drawn, nor does a copy of this memory.
pub trait Salts: Send + Sync {
    /// Draws fresh bits. They need not be secret.
    fn draw(&self) -> Salt;

    /// A salt for one more page, with contents that were settled when `salt` was drawn. It may be
    /// the same salt: a copy of this memory that was made since then seals the same contents.
    fn vary(&self, salt: Salt) -> Salt {
        salt
    }
}

/// Spreads times over all bits: 2^64 over the golden ratio, odd.
#[cfg(feature = "std")]
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Draws from the processor, without a system call.
#[cfg(feature = "std")]
impl Salts for traceless::rng::System {
    fn draw(&self) -> Salt {
        traceless::rng::Rng::salt(&mut Self)
    }

    /// Mixes in the processor's clock, where it has one: that is faster than a draw.
    fn vary(&self, salt: Salt) -> Salt {
        match traceless_sys::processor_ticks() {
            0 => self.draw(),
            ticks => Salt(salt.0 ^ ticks.wrapping_mul(SPREAD)),
        }
    }
}

/// A page with room for its salt and tag.
type Sealed = [u8; SEALED_LEN];

/// A page in trusted memory, before it is sealed or after it is opened, with room for salt and tag.
pub struct Buffer(Box<Sealed>);

impl Default for Buffer {
    fn default() -> Self {
        Self(Box::new([0; SEALED_LEN]))
    }
}

impl Buffer {
    /// The page.
    pub fn body(&mut self) -> &mut Page {
        self.0.first_chunk_mut().expect("a page comes first")
    }

    /// The page, its salt and its tag.
    pub fn bytes(&self) -> &[u8] {
        &self.0[..]
    }
}

/// Several pages in trusted memory, which are read and written together.
pub struct Buffers(Vec<Sealed>);

impl Buffers {
    /// Room for so many pages.
    pub fn new(count: usize) -> Self {
        Self(vec![[0; SEALED_LEN]; count])
    }

    /// How many pages there is room for.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

/// Where a page lies: its slot, and the version that is there; or nowhere, if it is zeros.
#[derive(Clone, Copy)]
pub struct Location {
    /// The slot. Where the page is zeros it is any one, which is read and not used.
    pub slot: u64,
    /// The version of the page there.
    pub version: Option<u64>,
}

/// Slots for sealed pages, under a key that seals nothing else.
pub struct Slots {
    store: Arc<dyn Store>,
    count: u64,
    sealer: Box<dyn Sealer>,
    salts: Box<dyn Salts>,
    versions_max: u64,
}

impl Slots {
    /// Bytes of store that `slots` slots take.
    pub fn store_len(slots: u64) -> u64 {
        slots * SEALED_LEN as u64
    }

    /// Bytes at the front of a store of that length that hold the pages; salts and tags follow.
    pub fn bodies_len(store_len: u64) -> u64 {
        store_len / SEALED_LEN as u64 * PAGE_LEN as u64
    }

    /// Makes `slots` slots, from the store's first byte on. A cipher that this machine computes
    /// wrongly is refused.
    pub fn new(
        store: Arc<dyn Store>,
        slots: u64,
        cipher: Cipher,
        key: &Secret,
        salts: Box<dyn Salts>,
    ) -> Result<Self> {
        if store.len() < Self::store_len(slots) {
            return Err(Error::Geometry("the store is smaller than its pages"));
        }
        #[cfg(feature = "std")]
        cipher.check()?;
        let (sealer, versions_max) = (cipher.sealer(key), cipher.pages_max());
        Ok(Self { store, count: slots, sealer, salts, versions_max })
    }

    /// Seals the buffer's page, writes it to `slot`, and returns the salt. Each `version` must be
    /// used only once.
    pub fn put(&self, slot: u64, page: u64, version: u64, buffer: &mut Buffer) -> Result<Salt> {
        let salt = self.seal(slot, page, version, None, buffer)?;
        self.write(slot, buffer.bytes())?;
        Ok(salt)
    }

    /// Seals the buffer's page for `slot`. Each `version` must be used only once. A `salt` that is
    /// given was drawn for another page when this page's contents were already settled: a copy of
    /// this memory that was made since then seals the same contents under it.
    pub fn seal(
        &self,
        slot: u64,
        page: u64,
        version: u64,
        salt: Option<Salt>,
        buffer: &mut Buffer,
    ) -> Result<Salt> {
        self.seal_in(slot, page, version, salt, &mut buffer.0)
    }

    fn seal_in(
        &self,
        slot: u64,
        page: u64,
        version: u64,
        salt: Option<Salt>,
        buffer: &mut Sealed,
    ) -> Result<Salt> {
        if version >= self.versions_max {
            return Err(Error::Store("the key has sealed as many pages as it may"));
        }
        let salt = salt.map_or_else(|| self.salts.draw(), |salt| self.salts.vary(salt));
        let (body, stamp) = buffer.split_at_mut(PAGE_LEN);
        let (nonce, tag) = (Nonce::new(version, salt), salt.put(stamp));
        self.sealer.seal_in_place(nonce, &bound(slot, page), body, tag);
        Ok(salt)
    }

    /// Reads pages, numbered from `first_page` on, from where they lie, and opens them. One request
    /// to the store, whichever of them are zeros.
    pub fn get_together(
        &self,
        first_page: u64,
        locations: &[Location],
        buffers: &mut Buffers,
    ) -> Result {
        let extents: Vec<Extent> =
            locations.iter().flat_map(|location| self.extents(location.slot)).collect();
        let buffers = &mut buffers.0[..locations.len()];
        self.store.read(&extents, buffers.as_flattened_mut())?;
        for ((page, location), buffer) in (first_page..).zip(locations).zip(buffers) {
            match location.version {
                Some(version) => self.open(location.slot, page, version, buffer)?,
                None => buffer[..PAGE_LEN].fill(0),
            }
        }
        Ok(())
    }

    /// Seals pages for as many slots from `first` on, each of which has the number of its page, and
    /// writes them by one request. Salt and versions are as of [`Slots::seal`]; versions increase
    /// by `step` from one to the next.
    pub fn put_together(
        &self,
        first: u64,
        (version, step): (u64, u64),
        salt: Option<Salt>,
        count: usize,
        buffers: &mut Buffers,
    ) -> Result {
        let buffers = &mut buffers.0[..count];
        for (nth, buffer) in (0..).zip(&mut *buffers) {
            self.seal_in(first + nth, first + nth, version + nth * step, salt, buffer)?;
        }
        let extents: Vec<Extent> =
            (first..first + count as u64).flat_map(|slot| self.extents(slot)).collect();
        self.store.write(&extents, buffers.as_flattened())
    }

    /// Writes what was sealed for `slot`.
    pub fn write(&self, slot: u64, sealed: &[u8]) -> Result {
        self.store.write(&self.extents(slot), sealed)
    }

    /// Reads `slot` into the buffer and opens it as this version of `page`.
    pub fn get(&self, slot: u64, page: u64, version: u64, buffer: &mut Buffer) -> Result {
        self.store.read(&self.extents(slot), &mut buffer.0[..])?;
        self.open(slot, page, version, &mut buffer.0)
    }

    fn open(&self, slot: u64, page: u64, version: u64, buffer: &mut Sealed) -> Result {
        let (body, stamp) = buffer.split_at_mut(PAGE_LEN);
        let (salt, tag) = Salt::split(stamp);
        let nonce = Nonce::new(version, salt);
        self.sealer.open_in_place(nonce, &bound(slot, page), body, tag).map_err(|_| {
            Error::Tampered { place: Place { area: "pages", slot, block: Some(page) } }
        })
    }

    fn extents(&self, slot: u64) -> [Extent; 2] {
        assert!(slot < self.count, "the slot exists");
        let stamps = self.count * PAGE_LEN as u64;
        [
            Extent::new(slot * PAGE_LEN as u64, PAGE_LEN),
            Extent::new(stamps + slot * STAMP_LEN as u64, STAMP_LEN),
        ]
    }
}

/// The data that a slot's tag binds besides the version.
fn bound(slot: u64, page: u64) -> [u8; 16] {
    let mut bound = [0; 16];
    bound[..8].copy_from_slice(&slot.to_le_bytes());
    bound[8..].copy_from_slice(&page.to_le_bytes());
    bound
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use traceless::rng::System;
    use traceless::store::MemStore;

    fn slots(store: &Arc<MemStore>, cipher: Cipher) -> Slots {
        let key = Secret::from_bytes([1; 32]);
        Slots::new(store.clone(), 2, cipher, &key, Box::new(System)).unwrap()
    }

    fn store() -> Arc<MemStore> {
        Arc::new(MemStore::new(Slots::store_len(2)))
    }

    #[test]
    fn names_of_ciphers_do_not_change() {
        let names: Vec<_> = Cipher::ALL.iter().map(|cipher| cipher.name()).collect();
        assert_eq!(names, ["aegis", "gcm", "chacha20-hmac"]);
    }

    #[test]
    fn a_cipher_that_is_computed_wrongly_is_refused() {
        use traceless::seal::wrong_machine::with;

        let refused = || {
            let key = Secret::from_bytes([1; 32]);
            let made = |cipher| Slots::new(store(), 2, cipher, &key, Box::new(System));
            Cipher::ALL.map(|cipher| matches!(made(cipher), Err(Error::CipherUnsound(_))))
        };
        assert_eq!(refused(), [false; 3]);
        assert_eq!(with::<PageAegis, _>(refused), [true, false, false]);
        assert_eq!(with::<Aead, _>(refused), [false, true, false]);
    }

    /// 2^32 pages are 2^44 bytes.
    #[test]
    fn a_gcm_key_seals_at_most_2_to_the_32_pages() {
        for (cipher, last) in [(Cipher::Gcm, (1 << 32) - 1), (Cipher::Aegis, u64::MAX - 1)] {
            let (slots, mut buffer) = (slots(&store(), cipher), Buffer::default());
            slots.put(0, 0, last, &mut buffer).unwrap();
            assert!(matches!(slots.put(0, 0, last + 1, &mut buffer), Err(Error::Store(_))));
        }
    }

    /// Not even with equal versions, which no scheme uses, is a page accepted elsewhere.
    #[test]
    fn a_page_is_bound_to_its_slot_and_number() {
        for cipher in Cipher::ALL {
            let store = store();
            let (slots, mut buffer) = (slots(&store, cipher), Buffer::default());
            slots.put(0, 5, 7, &mut buffer).unwrap();
            slots.get(0, 5, 7, &mut buffer).unwrap();
            let mut sealed = [0; SEALED_LEN];
            store.read(&slots.extents(0), &mut sealed).unwrap();
            store.write(&slots.extents(1), &sealed).unwrap();
            for (slot, page, version) in [(1, 5, 7), (0, 6, 7), (0, 5, 8)] {
                let found = slots.get(slot, page, version, &mut buffer);
                assert!(matches!(found, Err(Error::Tampered { .. })), "{slot} {page} {version}");
            }
        }
    }

    /// For any first salt, the salts of refreshes differ from it and from each other.
    #[test]
    fn salts_of_refreshes_vary() {
        for first in [0, u64::MAX, 0x5555_5555_5555_5555] {
            let mut salts: Vec<u64> = (0..16).map(|_| System.vary(Salt(first)).0).collect();
            salts.push(first);
            salts.sort_unstable();
            assert!(salts.windows(2).all(|pair| pair[0] != pair[1]), "{salts:x?}");
        }
    }
}
