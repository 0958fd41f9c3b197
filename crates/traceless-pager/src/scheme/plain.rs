//! The insecure control: each page has a slot of its own. Contents are hidden and fresh, but the
//! slots that are accessed leak all accesses.

use super::PageScheme;
use crate::Page;
use crate::slots::{Buffer, Cipher, Salts, Slots};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless::Hides;
use traceless::error::{Error, Result};
use traceless::seal::Secret;
use traceless::store::Store;

/// Pages that are sealed in slots of their own.
pub struct Plain {
    slots: Slots,
    /// The version of each page, counted from 1; 0 reads as zeros.
    versions: Vec<u64>,
    writes: u64,
    buffer: Buffer,
}

impl Plain {
    /// Bytes of store that `pages` pages take.
    pub fn store_len(pages: u64) -> u64 {
        Slots::store_len(pages)
    }

    /// A scheme with `pages` pages of zeros.
    pub fn new(
        store: Arc<dyn Store>,
        pages: u64,
        cipher: Cipher,
        key: &Secret,
        salts: Box<dyn Salts>,
    ) -> Result<Self> {
        let len = usize::try_from(pages).map_err(|_| Error::Geometry("too many pages"))?;
        Ok(Self {
            slots: Slots::new(store, pages, cipher, key, salts)?,
            versions: vec![0; len],
            writes: 0,
            buffer: Buffer::default(),
        })
    }
}

impl PageScheme for Plain {
    fn pages(&self) -> u64 {
        self.versions.len() as u64
    }

    fn swap(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        if let Some(page) = out {
            self.writes += 1;
            self.buffer.body().copy_from_slice(frame);
            self.slots.put(page, page, self.writes, &mut self.buffer)?;
            self.versions[page as usize] = self.writes;
        }
        if let Some(page) = wanted {
            match self.versions[page as usize] {
                0 => frame.fill(0),
                version => {
                    self.slots.get(page, page, version, &mut self.buffer)?;
                    frame.copy_from_slice(self.buffer.body());
                }
            }
        }
        Ok(())
    }

    fn holds(&self, page: u64) -> bool {
        self.versions[page as usize] != 0
    }

    fn forget(&mut self, page: u64) {
        self.versions[page as usize] = 0;
    }

    fn hides(&self) -> Hides {
        Hides::Nothing
    }

    fn trusted_bytes(&self) -> usize {
        size_of_val(&self.versions[..]) + size_of_val(self.buffer.bytes())
    }
}
