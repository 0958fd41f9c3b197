//! Does any nonce ever cover two contents? Numbers and openings as docs/format.md has them.

use crate::disk::{Event, Piece};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use traceless::scheme::detwo::{Geometry, MAP_FAN};
use traceless::store::Layout;
use traceless_volume::format::{AREAS_AT, SUPERBLOCK_LEN, SUPERBLOCKS_AT};

/// One area of one tier.
struct Place {
    tier: u8,
    main: bool,
    first: u64,
    layout: Layout,
    blocks: u64,
}

impl Place {
    fn header_at(&self, stripe: u64) -> u64 {
        self.first + stripe * self.layout.stripe_len()
    }

    fn slots_of(&self, stripe: u64) -> std::ops::Range<u64> {
        let first = stripe * self.layout.stripe_slots;
        first..(first + self.layout.stripe_slots).min(self.layout.slots)
    }

    fn entry<'a>(&self, slot: u64, pieces: &'a [Piece]) -> Option<&'a [u8]> {
        let (stripe, nth) = (slot / self.layout.stripe_slots, slot % self.layout.stripe_slots);
        let at = self.header_at(stripe) + nth * self.layout.entry_len as u64;
        whole(pieces, at, self.layout.entry_len)
    }

    fn body<'a>(&self, slot: u64, pieces: &'a [Piece]) -> Option<&'a [u8]> {
        let (stripe, nth) = (slot / self.layout.stripe_slots, slot % self.layout.stripe_slots);
        let bodies = self.header_at(stripe) + self.layout.header_len() as u64;
        whole(pieces, bodies + nth * self.layout.body_len as u64, self.layout.body_len)
    }

    /// The stripes that any of `pieces` touches.
    fn touched(&self, pieces: &[Piece]) -> Vec<u64> {
        let end = self.first + self.layout.len();
        let mut stripes = vec![];
        for piece in pieces.iter().filter(|p| p.at < end && p.end() > self.first) {
            let from = (piece.at.max(self.first) - self.first) / self.layout.stripe_len();
            let to = (piece.end().min(end) - 1 - self.first) / self.layout.stripe_len();
            stripes.extend(from..=to);
        }
        stripes.sort_unstable();
        stripes.dedup();
        stripes
    }
}

/// The stretch from `at` on, if one of `pieces` holds all of it.
fn whole(pieces: &[Piece], at: u64, len: usize) -> Option<&[u8]> {
    let piece = pieces.iter().find(|p| p.at <= at && at + len as u64 <= p.end())?;
    Some(&piece.bytes[(at - piece.at) as usize..][..len])
}

/// Where everything lies.
pub struct Areas {
    geometry: Geometry,
    places: Vec<Place>,
}

impl Areas {
    pub fn new(geometry: &Geometry) -> Self {
        let k = geometry.refresh;
        let (mut first, mut blocks, mut places) = (AREAS_AT, geometry.blocks, vec![]);
        for tier in 0..=geometry.map_tiers {
            let body_len = if tier == 0 { geometry.block_len } else { 512 };
            let hold_slots = k.writes_for(blocks) + geometry.unsynced_max + 64;
            let main_slots = blocks + k.at_most(geometry.unsynced_max + 1) + 256;
            for (main, slots, entry_len, stripe_slots) in
                [(false, hold_slots, 64, 64), (true, main_slots, 16, 256)]
            {
                let layout = Layout { slots, body_len, entry_len, stripe_slots };
                places.push(Place { tier, main, first, layout, blocks });
                first += layout.len();
            }
            blocks = blocks.div_ceil(MAP_FAN);
        }
        assert_eq!(first - AREAS_AT, geometry.store_len(), "docs/format.md, section 7");
        Self { geometry: *geometry, places }
    }

    /// Slots of tier 0: holding, main.
    pub fn slots(&self) -> [u64; 2] {
        [self.places[0].layout.slots, self.places[1].layout.slots]
    }

    /// In words: which part of the image it is.
    pub fn describe(&self, piece: &Piece) -> String {
        let (at, len) = (piece.at, piece.bytes.len());
        if at < AREAS_AT {
            let which = if (at - SUPERBLOCKS_AT) < SUPERBLOCK_LEN as u64 { "A" } else { "B" };
            return format!("superblock {which}");
        }
        let place = self.places.iter().rev().find(|p| p.first <= at).expect("areas begin there");
        let area = if place.main { "main" } else { "holding" };
        let within = at - place.first;
        let (stripe, within) =
            (within / place.layout.stripe_len(), within % place.layout.stripe_len());
        let (slots, header) = (place.slots_of(stripe), place.layout.header_len() as u64);
        let slot = |bytes, each: usize| slots.start + bytes / each as u64;
        let part = if within < header {
            format!("header from the entry of slot {}", slot(within, place.layout.entry_len))
        } else {
            format!("bodies from slot {}", slot(within - header, place.layout.body_len))
        };
        format!("tier {} {area} {part}, {len} bytes", place.tier)
    }
}

/// An opening, as the state in the superblock tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    pub number: u64,
    pub start: u64,
}

/// The openings in a state (docs/format.md, section 5).
pub fn openings(state: &[u8]) -> Vec<Opening> {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    let list = state[16..].chunks_exact(32);
    list.map(|o| Opening { number: word(o), start: word(&o[24..]) }).collect()
}

/// What a nonce is made of: tier, kind of key, number, opening.
type Nonce = (u8, Kind, u64, u64);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    /// A holding entry without its body.
    Entry,
    Holding,
    Main,
}

/// What each nonce sealed, and when first.
#[derive(Clone, Default)]
pub struct Nonces {
    seen: HashMap<Nonce, (usize, u64)>,
}

impl Nonces {
    /// Takes note of what `log` wrote, as events from number `first` on. `openings` are those of
    /// that time, and `count` bounds the writes of which refreshes may appear.
    pub fn note(
        &mut self,
        areas: &Areas,
        log: &[Event],
        first: usize,
        openings: &[Opening],
        count: u64,
    ) -> Result<(), String> {
        self.note_after(None, areas, log, first, openings, count)
    }

    /// As [`Nonces::note`], when also the events before number `.1` of another log happened.
    pub fn note_after(
        &mut self,
        past: Option<(&Self, usize)>,
        areas: &Areas,
        log: &[Event],
        first: usize,
        openings: &[Opening],
        count: u64,
    ) -> Result<(), String> {
        for (i, event) in log.iter().enumerate() {
            let Event::Write(pieces) = event else { continue };
            if pieces[0].at < AREAS_AT {
                continue;
            }
            for place in &areas.places {
                for stripe in place.touched(pieces) {
                    for (nonce, hash) in sealed(areas, place, stripe, pieces, openings, count)? {
                        self.see(past, nonce, first + i, hash)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn see(
        &mut self,
        past: Option<(&Self, usize)>,
        nonce: Nonce,
        event: usize,
        hash: u64,
    ) -> Result<(), String> {
        let (_, known) = *self.seen.entry(nonce).or_insert((event, hash));
        let before = past.and_then(|(past, until)| past.seen.get(&nonce).filter(|s| s.0 < until));
        if known != hash || before.is_some_and(|&(_, known)| known != hash) {
            let (tier, kind, number, opening) = nonce;
            return Err(format!(
                "one nonce, two contents: tier {tier}, {kind:?} number {number}, opening {opening}"
            ));
        }
        Ok(())
    }
}

/// The nonces that a write to one stripe used, each with a hash of what it sealed.
fn sealed(
    areas: &Areas,
    place: &Place,
    stripe: u64,
    pieces: &[Piece],
    openings: &[Opening],
    count: u64,
) -> Result<Vec<(Nonce, u64)>, String> {
    let mut list = vec![];
    let k = areas.geometry.refresh;
    for slot in place.slots_of(stripe) {
        let (entry, body) = (place.entry(slot, pieces), place.body(slot, pieces));
        if place.main {
            let Some(body) = body else { continue };
            let entry = entry.ok_or("a main body was written without its tag")?;
            // The newest refresh that goes there.
            let bound = place.blocks + k.after(count);
            let back = (bound - 1).checked_sub(slot).ok_or("a refresh before its time")?;
            let r = bound - 1 - back % place.layout.slots;
            let made = openings.iter().rev().find(|o| place.blocks + k.after(o.start) <= r);
            let opening = made.unwrap_or(&openings[0]).number;
            list.push(((place.tier, Kind::Main, r, opening), hash(&[entry, body])));
            continue;
        }
        let Some(entry) = entry else {
            if body.is_some() {
                return Err("a holding body was written without its entry".into());
            }
            continue;
        };
        if entry.iter().all(|&b| b == 0) {
            continue;
        }
        let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
        let (number, opening) = (word(0), word(8));
        if number % place.layout.slots != slot {
            return Err(format!("entry of write {number} in holding slot {slot}"));
        }
        list.push(((place.tier, Kind::Entry, number, opening), hash(&[entry])));
        if let Some(body) = body {
            list.push(((place.tier, Kind::Holding, number, opening), hash(&[body])));
        }
    }
    Ok(list)
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in parts {
        hasher.write(part);
    }
    hasher.finish()
}
