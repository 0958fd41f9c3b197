//! The schemes of random slots, HIVE and DataLair-style, as kinds of block scheme.

use super::{RandomGeometry, RandomSlots, Vacancy};
use crate::tiers;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::{self, Debug, Formatter};
use core::marker::PhantomData;
use traceless_core::error::Result;
use traceless_core::oram::{BlockOram, Hides, Oram};
use traceless_core::scheme::contract::{
    BlockScheme, Samples, Scheme, SchemeKind, SchemeOptions, SharedScheme, Timetable, u32_at,
    u64_at,
};
use traceless_core::scheme::{Facts, PlacedArea, SchemeContext};
use traceless_core::store::SlotLayout;

/// A scheme of random slots which knows by `V` whether one is free, with its parameters.
pub struct RandomScheme<V> {
    geometry: RandomGeometry,
    vacancy: PhantomData<fn() -> V>,
}

impl<V: Vacancy + 'static> RandomScheme<V> {
    /// The scheme with these parameters.
    pub fn new(geometry: RandomGeometry) -> Self {
        Self { geometry, vacancy: PhantomData }
    }

    /// Its [`choose`](SchemeKind::choose).
    pub(crate) fn choose(
        blocks: u64,
        block_len: usize,
        options: &SchemeOptions,
    ) -> Result<SharedScheme> {
        let fitting = RandomGeometry::map_tiers_for(blocks, options.map_memory);
        let tiers = tiers::placed(options.map, fitting);
        Ok(Arc::new(Self::new(RandomGeometry::new(blocks, block_len, tiers)?)))
    }

    /// Its [`decode`](SchemeKind::decode).
    pub(crate) fn decode(blocks: u64, block_len: usize, parameters: &[u8]) -> Result<SharedScheme> {
        let geometry = RandomGeometry {
            blocks,
            block_len,
            map_tiers: tiers::decode(u32_at(parameters, 8))?,
            unsynced_max: u64_at(parameters, 12),
        };
        geometry.check()?;
        Ok(Arc::new(Self::new(geometry)))
    }

    /// Its [`samples`](SchemeKind::samples).
    pub(crate) fn samples(blocks: u64, map_blocks: u64, block_len: usize) -> Result<Samples> {
        let sample = |blocks, tiers| -> Result<SharedScheme> {
            Ok(Arc::new(Self::new(RandomGeometry::new(blocks, block_len, tiers)?)))
        };
        Ok(vec![
            ("map in memory", sample(blocks, 0)?),
            ("map on the store", sample(map_blocks, 1)?),
        ])
    }
}

impl<V> Debug for RandomScheme<V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.geometry.fmt(f)
    }
}

impl<V: Vacancy + 'static> Scheme for RandomScheme<V> {
    fn name(&self) -> &'static str {
        V::KIND.name
    }

    fn blocks(&self) -> u64 {
        self.geometry.blocks
    }

    fn block_len(&self) -> usize {
        self.geometry.block_len
    }

    fn store_len(&self) -> u64 {
        self.geometry.store_len()
    }

    fn areas(&self) -> Vec<PlacedArea> {
        self.geometry.areas()
    }

    fn write_amplification(&self) -> f64 {
        self.geometry.write_amplification()
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn draws_places(&self) -> bool {
        true
    }

    fn check(&self) -> Result {
        self.geometry.check()
    }

    fn create(&self, context: SchemeContext) -> Result<Box<dyn Oram>> {
        Ok(self.create_block(context)?)
    }

    fn open(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Oram>> {
        Ok(self.open_block(context, state, progress)?)
    }
}

impl<V: Vacancy + 'static> BlockScheme for RandomScheme<V> {
    fn kind(&self) -> &'static SchemeKind {
        V::KIND
    }

    fn parameters(&self) -> Vec<u8> {
        // Where other kinds have a refresh ratio.
        let mut out = vec![0; 8];
        out.extend(u32::from(self.geometry.map_tiers).to_le_bytes());
        out.extend(self.geometry.unsynced_max.to_le_bytes());
        out
    }

    fn facts(&self, _writes: u64) -> Facts {
        Facts {
            map: Some(if self.geometry.map_tiers == 0 { "memory" } else { "disk" }),
            map_bytes: self.geometry.map_memory(),
            ..Facts::default()
        }
    }

    fn timetable(&self) -> Timetable {
        Timetable::unscheduled(self, self.geometry.unsynced_max)
    }

    fn slots_in_turn(&self) -> Vec<(u64, SlotLayout)> {
        let journals = self.geometry.tiers().into_iter().map(|tier| tier.journal);
        let areas = self.geometry.areas();
        areas.into_iter().skip(1).step_by(2).map(|(_, at, _)| at).zip(journals).collect()
    }

    fn drawn_slots(&self) -> Option<SlotLayout> {
        Some(self.geometry.slots())
    }

    fn resized(&self, blocks: u64) -> Result<SharedScheme> {
        Ok(Arc::new(Self::new(self.geometry.resized(blocks)?)))
    }

    fn create_block(&self, context: SchemeContext) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(RandomSlots::<V>::create(self.geometry, context)?))
    }

    fn open_block(
        &self,
        context: SchemeContext,
        state: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn BlockOram>> {
        Ok(Box::new(RandomSlots::<V>::open(self.geometry, context, state, progress)?))
    }

    fn peek_state(&self, state: &[u8]) -> Result<(u64, bool)> {
        RandomSlots::<V>::peek_state(state)
    }
}
