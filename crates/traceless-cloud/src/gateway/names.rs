//! Which name stands for which blocks.

use super::record::{Reader, Writer};
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// Bytes under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// How many bytes.
    pub len: u32,
    /// The blocks that hold them.
    pub ids: Vec<u32>,
}

/// Names in order, and the blocks that no name stands for.
#[derive(Default)]
pub struct Names {
    objects: BTreeMap<Vec<u8>, Object>,
    /// Blocks from here on were never used; those before that are free.
    next: u32,
    free: Vec<u32>,
}

impl Names {
    /// How many.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// What a name stands for.
    pub fn get(&self, name: &[u8]) -> Option<&Object> {
        self.objects.get(name)
    }

    /// Names in order, behind `after`.
    pub fn behind(&self, after: &[u8]) -> impl Iterator<Item = &Vec<u8>> {
        use core::ops::Bound::{Excluded, Unbounded};
        self.objects.range::<[u8], _>((Excluded(after), Unbounded)).map(|(name, _)| name)
    }

    /// Blocks that nobody uses, of so many that there are; kept until they are bound or returned.
    pub fn reserve(&mut self, count: usize, blocks: u64) -> Option<Vec<u32>> {
        let fresh = count.saturating_sub(self.free.len());
        if u64::from(self.next) + fresh as u64 > blocks {
            return None;
        }
        let mut ids = self.free.split_off(self.free.len() - (count - fresh));
        ids.extend(self.next..self.next + fresh as u32);
        self.next += fresh as u32;
        Some(ids)
    }

    /// Gives blocks back.
    pub fn release(&mut self, ids: Vec<u32>) {
        self.free.extend(ids);
    }

    /// Lets a name stand for an object, and frees what it stood for.
    pub fn bind(&mut self, name: Vec<u8>, object: Object) {
        if let Some(old) = self.objects.insert(name, object) {
            self.free.extend(old.ids);
        }
    }

    /// Forgets a name.
    pub fn unbind(&mut self, name: &[u8]) {
        if let Some(old) = self.objects.remove(name) {
            self.free.extend(old.ids);
        }
    }

    /// Finds the free blocks, after names were loaded and bound in any way.
    pub fn find_free(&mut self) {
        let ids = || self.objects.values().flat_map(|object| object.ids.iter().copied());
        self.next = ids().max().map_or(0, |last| last + 1);
        let mut used = vec![false; self.next as usize];
        for id in ids() {
            used[id as usize] = true;
        }
        self.free = (0..self.next).filter(|id| !used[*id as usize]).collect();
    }

    /// Appends all names.
    pub fn save(&self, out: &mut Writer) {
        out.u64(self.objects.len() as u64);
        for (name, object) in &self.objects {
            write_bound(name, object, out);
        }
    }

    /// Becomes what was saved.
    pub fn load(&mut self, from: &mut Reader<'_>) -> Result {
        for _ in 0..from.u64()? {
            let (name, object) = read_bound(from)?;
            self.objects.insert(name, object);
        }
        Ok(())
    }
}

/// Appends a name and what it stands for.
pub fn write_bound(name: &[u8], object: &Object, out: &mut Writer) {
    out.u32(name.len() as u32);
    out.0.extend_from_slice(name);
    out.u32(object.len);
    out.u32(object.ids.len() as u32);
    out.u32s(&object.ids);
}

/// Takes a name and what it stands for.
pub fn read_bound(from: &mut Reader<'_>) -> Result<(Vec<u8>, Object)> {
    let len = from.u32()? as usize;
    let name = from.bytes(len)?.to_vec();
    let (len, count) = (from.u32()?, from.u32()? as usize);
    if count > from.0.len() / 4 {
        return Err(Error::State("the gateway's state"));
    }
    let mut ids = vec![0; count];
    from.u32s(&mut ids)?;
    Ok((name, Object { len, ids }))
}
