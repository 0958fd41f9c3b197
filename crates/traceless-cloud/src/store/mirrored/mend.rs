//! Reads what is damaged, or cannot be read, from the copy.

use super::super::{BoxedStore, CopyableStore, NodeStore as _, NodeVersion, SlotRead};
use super::suspects::SlotSource;
use super::{CopyProgress, Mirror};
use crate::enclave::DamagedSlots;
use crate::error::{Error, Result};

impl<S: CopyableStore> Mirror<S> {
    /// Reads from the store what can be read of a node. Slots that cannot be read become zeros, and
    /// are returned.
    pub(super) async fn read_slot_by_slot(
        &self,
        version: NodeVersion,
        into: &mut [u8],
    ) -> Result<DamagedSlots> {
        let mut unreadable = DamagedSlots::new();
        let slots = into.chunks_exact_mut(self.geometry.slot_len());
        for (slot, into) in (0..).zip(slots) {
            let mut read = [SlotRead { version, slot, into }];
            match self.first.read_slots(&mut read).await {
                Err(Error::Io(_)) => {
                    read[0].into.fill(0);
                    unreadable.insert(slot);
                }
                other => other?,
            }
        }
        Ok(unreadable)
    }

    /// Reads slots one by one, from the copy where the store cannot be read.
    pub(super) async fn read_each(&self, copy: &BoxedStore, reads: &mut [SlotRead<'_>]) -> Result {
        for read in reads {
            let read = core::slice::from_mut(read);
            match self.first.read_slots(read).await {
                Err(failed @ Error::Io(_)) => copy.read_slots(read).await.map_err(|_| failed)?,
                other => other?,
            }
        }
        Ok(())
    }

    /// Takes slots that are read again from the copy, as far as it has them.
    pub(super) async fn read_again(
        &self,
        copy: &BoxedStore,
        reads: &mut [SlotRead<'_>],
        again: &[(usize, SlotSource)],
    ) {
        let slots = again.iter().map(|&(number, _)| (reads[number].version, reads[number].slot));
        let copied = self.read_copied(copy, slots.collect()).await;
        let mut differing = 0;
        for (&(number, source), copied) in again.iter().zip(&copied) {
            if self.geometry.layer_of(reads[number].version.node) == 0 {
                // The first slot of the next query.
                differing = 0;
            }
            let (into, Some(copied)) = (&mut *reads[number].into, copied) else { continue };
            if into == &copied[..] {
                continue;
            }
            let is_copied = match source {
                SlotSource::Store => false,
                SlotSource::Copy => true,
                SlotSource::Mixed { copy_first } => (differing % 2 == 0) == copy_first,
            };
            if is_copied {
                into.copy_from_slice(copied);
            }
            differing += 1;
        }
    }

    /// Reads slots from the copy; `None` for a slot that it cannot read. A copy that does not
    /// answer is behind.
    async fn read_copied(
        &self,
        copy: &BoxedStore,
        slots: Vec<(NodeVersion, u32)>,
    ) -> Vec<Option<Vec<u8>>> {
        let mut copied = vec![vec![0; self.geometry.slot_len()]; slots.len()];
        let mut reads: Vec<SlotRead<'_>> = slots
            .into_iter()
            .zip(&mut copied)
            .map(|((version, slot), into)| SlotRead { version, slot, into })
            .collect();
        let mut found = vec![true; reads.len()];
        let mut read = copy.read_slots(&mut reads).await;
        if matches!(read, Err(Error::Io(_) | Error::Store(_))) {
            // A part of them can be read.
            read = Ok(());
            for (read_slot, found) in reads.iter_mut().zip(&mut found) {
                let one = copy.read_slots(core::slice::from_mut(read_slot)).await;
                *found = one.is_ok();
                if matches!(one, Err(Error::Engine(_))) {
                    read = one;
                    break;
                }
            }
        }
        drop(reads);
        if let Err(failed) = &read {
            self.fall_behind(failed);
            found.fill(false);
        }
        copied.into_iter().zip(found).map(|(bytes, is_found)| is_found.then_some(bytes)).collect()
    }

    /// A node that was read from the store, with what is damaged in it or cannot be read from the
    /// copy.
    pub(super) async fn mend_node(
        &self,
        version: NodeVersion,
        into: &mut [u8],
        read: Result,
    ) -> Result {
        let Some(copy) = self.copy_to_read() else { return read };
        if let Err(Error::Io(_)) = &read {
            let unreadable = self.read_slot_by_slot(version, into).await?;
            // What cannot be read from the copy, either, is found to be damaged.
            self.replace_slots(&copy, version, into, &unreadable).await;
        } else {
            read?;
        }
        self.replace_damaged(&copy, version, into).await;
        Ok(())
    }

    /// Takes the slots of a node that are known to be damaged from the copy, as far as it has them.
    /// Returns whether it has all of them.
    pub(super) async fn replace_damaged(
        &self,
        copy: &BoxedStore,
        version: NodeVersion,
        into: &mut [u8],
    ) -> bool {
        let damaged = self.damaged().slots(version);
        self.replace_slots(copy, version, into, &damaged).await
    }

    async fn replace_slots(
        &self,
        copy: &BoxedStore,
        version: NodeVersion,
        into: &mut [u8],
        slots: &DamagedSlots,
    ) -> bool {
        if slots.is_empty() {
            return true;
        }
        let names = slots.iter().map(|slot| (version, *slot)).collect();
        let copied = self.read_copied(copy, names).await;
        for (slot, copied) in slots.iter().zip(&copied) {
            if let Some(copied) = copied {
                self.slot_of(into, *slot).copy_from_slice(copied);
            }
        }
        copied.iter().all(Option::is_some)
    }

    fn slot_of<'b>(&self, node: &'b mut [u8], slot: u32) -> &'b mut [u8] {
        let len = self.geometry.slot_len();
        &mut node[slot as usize * len..][..len]
    }

    /// Compares a node with the copy's, until the enclave has judged its bytes.
    pub(super) async fn compare(&self, copy: &BoxedStore, version: NodeVersion, bytes: &[u8]) {
        if !matches!(self.state().progress, CopyProgress::Whole(_)) {
            return;
        }
        let len = self.geometry.slot_len();
        let mut copied = vec![0; bytes.len()];
        let differing = match copy.read_node_to_verify(version, &mut copied).await {
            Ok(()) => {
                let pairs = bytes.chunks_exact(len).zip(copied.chunks_exact(len));
                let differing = pairs.enumerate().filter(|(_, (own, copied))| own != copied);
                differing.map(|(slot, _)| slot as u32).collect()
            }
            Err(Error::Io(_)) => (0..(bytes.len() / len) as u32).collect(),
            // The version was replaced meanwhile.
            Err(Error::Store(_)) => return,
            Err(failed) => return self.fall_behind(&failed),
        };
        self.damaged().set_differing(version, differing);
    }
}
