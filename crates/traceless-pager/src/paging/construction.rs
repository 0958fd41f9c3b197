//! The scheme and the store that the settings describe.

use super::error::{Error, Result};
use super::kernel::memory::SharedNumbers;
use super::kernel::own_files::OwnFile;
use super::number_file::ActivityFile;
use super::refresh::scheme::HelperDetWo;
use super::settings::{Scheme, Settings};
use super::store::backing::{self, BackedScheme, Space};
use super::store::host_copies::HostCopyStore;
use super::store::nbd::NbdStore;
use super::store::shared::SharedMemory;
use super::store::split::SplitStore;
use crate::PAGE_LEN;
use crate::scheme::{
    Areas, DetWo, FusedPath, FusedRing, Growth, Opam, PageScheme, Path as PageTree, Plain,
    TreeParts, drawn_path_leaves, drawn_ring_leaves,
};
use crate::slots::{Cipher, PageAegis};
use rustix::fd::RawFd;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless::activity::{ActivityWitness, SharedActivity};
use traceless::clock::MachineClock;
use traceless::rng::{SeededRng, System};
use traceless::seal::{Aead, ChaChaHmac, Sealer, Secret};
use traceless::store::{PlaceAudit, Store, WatchedStore};
use traceless::trace::{FileWitness, Witness, WitnessPair};

/// A recording of the events of a store.
pub type Recording = Arc<FileWitness<File>>;

impl Settings {
    /// The activity of the live page, if there is one: locked in memory where resident pages are.
    /// The process that shows it may have ended and removed the file: then nothing is shown.
    pub fn open_activity(&self) -> Result<Option<SharedActivity>> {
        let file = self.activity.as_deref().map(ActivityFile::open);
        let Some(Ok(file)) = file else { return Ok(None) };
        self.lock.apply(|| file.lock())?;
        Ok(Some(Arc::new(file)))
    }

    /// Makes the scheme, under a fresh key, and the recording of its events. While events are
    /// recorded there are no helpers: only one process writes the recording.
    pub fn build(&self) -> Result<(Box<dyn PageScheme>, Option<Recording>)> {
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
        if self.starter.is_none() || self.starter == parent {
            return self.build_first();
        }
        self.build_with_suffix(&std::process::id().to_string())
    }

    /// The same as [`Self::build`] for the first program: its files have the names in the settings.
    pub fn build_first(&self) -> Result<(Box<dyn PageScheme>, Option<Recording>)> {
        self.check()?;
        // Every scheme has as much for a page. Without room for it the process would be aborted.
        if Vec::<u64>::new().try_reserve_exact(self.pages).is_err() {
            return Err(Error::Configuration("so many pages need more memory than there is"));
        }
        let recording = self.trace.as_deref().map(record).transpose()?;
        let witness = recording.clone().map(|recording| recording as Arc<dyn Witness>);
        let has_times = self.pace.is_some();
        let observers = Observers { witness, activity: self.open_activity()?, has_times };
        let scheme = self.scheme(&observers)?;
        let scheme = match (&self.backing, &self.export) {
            (Some(path), _) => Box::new(BackedScheme::in_file(scheme, path.clone())),
            (None, Some(export)) => Box::new(BackedScheme::in_export(scheme, export)),
            (None, None) => scheme,
        };
        Ok((scheme, recording))
    }

    /// The same as [`Self::build`] for another program: its files have these names, with a dot and
    /// `name`.
    pub fn build_with_suffix(
        &self,
        name: &str,
    ) -> Result<(Box<dyn PageScheme>, Option<Recording>)> {
        let own = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| {
                let mut whole = path.as_os_str().to_owned();
                whole.push(format!(".{name}"));
                whole.into()
            })
        };
        let (backing, trace) = (own(&self.backing), own(&self.trace));
        let growth = match self.growth {
            // Memory is not taken at once, as an export may be.
            Growth::Whole if self.export.is_some() => Growth::Evictions,
            growth => growth,
        };
        let settings = Self { backing, export: None, growth, trace, ..self.clone() };
        settings.build_first()
    }

    fn scheme(&self, observers: &Observers) -> Result<Box<dyn PageScheme>> {
        let pages = self.pages as u64;
        let (key, salts) = (Secret::random(&mut System), Box::new(System));
        if self.scheme == Scheme::Plain {
            let (store, _) = self.store(observers, PlaceAudit::default())?;
            return Ok(Box::new(Plain::new(store, pages, self.cipher, &key, salts)?));
        }
        if self.scheme.is_tree() {
            return match self.cipher {
                Cipher::Aegis => self.tree(observers, PageAegis::new),
                Cipher::Gcm => self.tree(observers, Aead::new),
                Cipher::ChaChaHmac => self.tree(observers, ChaChaHmac::new),
            };
        }
        let (store, file) = self.store(observers, self.audit_of_turns())?;
        let Some(mut mode) = self.refresh_mode(observers.witness.is_some()) else {
            let areas = Areas::growing(store, self.main_area(), self.cipher, &key, salts)?;
            return Ok(if self.has_backing() {
                Box::new(DetWo::with_few_requests(areas))
            } else {
                Box::new(DetWo::new(areas))
            });
        };
        mode.file = file;
        let main = self.main_area();
        let numbers = Box::new(SharedNumbers::zeros(Areas::numbers_for(main)?)?);
        let areas = Areas::with_numbers(store, main, self.cipher, &key, salts, numbers)?;
        Ok(Box::new(HelperDetWo::new(areas, mode)?))
    }

    /// Makes a tree scheme, under fresh keys.
    fn tree<C: Sealer + 'static>(
        &self,
        observers: &Observers,
        sealer: fn(&Secret) -> C,
    ) -> Result<Box<dyn PageScheme>> {
        let (pages, cached) = (self.pages as u64, self.cached);
        let sample = sealer(&Secret::random(&mut System));
        let leaves = match self.scheme {
            Scheme::Ring => Some(drawn_ring_leaves(pages, cached, &sample)?),
            // It hides nothing: a page is read on the path that it was written to.
            Scheme::Opam => None,
            _ => Some(drawn_path_leaves(pages, cached, &sample)?),
        };
        let audit = match leaves {
            Some(leaves) => PlaceAudit::default().with_draws(Box::new(leaves)),
            None => PlaceAudit::default(),
        };
        let (store, _) = self.store(observers, audit)?;
        let rng = Box::new(SeededRng::drawn(&mut System));
        let parts = TreeParts { store, pages, cached, sealer, rng, salts: Box::new(System) };
        Ok(match self.scheme {
            Scheme::Ring => Box::new(FusedRing::ring(parts)?),
            Scheme::PathFused => Box::new(FusedPath::path(parts)?),
            Scheme::Opam => Box::new(Opam::opam(parts)?),
            _ => Box::new(PageTree::new(parts)?),
        })
    }

    /// The space of a backing file: what grows takes it as it does.
    fn space(&self) -> Space {
        let refreshes = self.scheme != Scheme::Plain && !self.scheme.is_tree();
        if refreshes && self.main_area().grows() { Space::Sparse } else { Space::Reserved }
    }

    /// An audit of DetWoORAM's writes. Only the holding area is written in turn where refreshes may
    /// be late or other processes do them.
    fn audit_of_turns(&self) -> PlaceAudit {
        let [main, hold] = Areas::slots_in_turn(self.pages as u64, self.refresh);
        let audit = PlaceAudit::default().with_turns([hold], 1);
        let audit = match self.scheme {
            Scheme::DetWo => audit.with_turns([main], 1),
            _ => audit,
        };
        if self.main_area().grows() { audit.with_growth() } else { audit }
    }

    /// The store for pages, and the descriptor of its file, if it has one that is not mapped. The
    /// audit is for a live page.
    fn store(
        &self,
        observers: &Observers,
        audit: PlaceAudit,
    ) -> Result<(Arc<dyn Store>, Option<RawFd>)> {
        let len = self.store_len()?;
        if self.ocalls {
            return Ok((observers.watch(HostCopyStore::new(len)?, audit), None));
        }
        if let Some(export) = &self.export {
            let in_export = self.len_in_file(len);
            let block_len = if self.scheme.is_tree() { 1 } else { PAGE_LEN };
            let store = NbdStore::connect(export, in_export, block_len)?;
            return Ok((observers.watch(SplitStore::new(store, len)?, audit), None));
        }
        let Some(path) = &self.backing else {
            return Ok((observers.watch(SharedMemory::unnamed(len)?, audit), None));
        };
        let in_file = self.len_in_file(len);
        let (store, file) = backing::open(path, in_file, self.space())?;
        if in_file == len {
            return Ok((observers.watch(store, audit), Some(file)));
        }
        Ok((observers.watch(SplitStore::new(store, len)?, audit), Some(file)))
    }
}

/// What observes the events of a store.
struct Observers {
    /// A recording. Only one process may write it.
    witness: Option<Arc<dyn Witness>>,
    /// The activity of a live page, which any number of processes record into.
    activity: Option<SharedActivity>,
    /// Whether events have times: at a constant rate these are to be as public as the events.
    has_times: bool,
}

impl Observers {
    /// The store, with its observers.
    fn watch(&self, store: impl Store + 'static, audit: PlaceAudit) -> Arc<dyn Store> {
        let page = self.activity.clone().map(|activity| {
            activity.adversary.set_space(store.len());
            let witness = ActivityWitness::new(activity);
            witness.start_audit(Box::new(audit));
            Arc::new(witness) as Arc<dyn Witness>
        });
        match WitnessPair::of(self.witness.clone(), page) {
            Some(witness) if self.has_times => {
                Arc::new(WatchedStore::with_clock(store, witness, MachineClock))
            }
            Some(witness) => Arc::new(WatchedStore::new(store, witness)),
            None => Arc::new(store),
        }
    }
}

fn record(path: &Path) -> Result<Recording> {
    let file = File::create(path).map_err(traceless::Error::from)?;
    let file = OwnFile::at_high_number(file.into()).keep_open();
    Ok(Arc::new(FileWitness::new(file.into()).map_err(traceless::Error::from)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::PagesMoved;
    use traceless::activity::{AuditCounts, EventAudit};
    use traceless::trace::{Op, TraceReader};

    #[test]
    fn no_scheme_is_made_with_a_cipher_that_is_computed_wrongly() {
        use traceless::seal::wrong_machine::with;

        for scheme in Scheme::ALL {
            let base = Settings { scheme, resident: 8, pages: 200, ..Settings::default() };
            let made = |cipher| Settings { cipher, ..base.clone() }.build_first().map(drop);
            let refused = with::<PageAegis, _>(|| made(Cipher::Aegis)).unwrap_err();
            assert!(refused.to_string().contains("aegis-256x4 wrongly"), "{refused}");
            with::<PageAegis, _>(|| made(Cipher::Gcm)).unwrap();
        }
    }

    #[test]
    fn stores_move_as_many_pages_as_the_settings_say() {
        let folder = tempfile::tempdir().unwrap();
        let trace = Some(folder.path().join("trace"));
        for scheme in Scheme::ALL {
            let base = Settings { scheme, resident: 8, pages: 200, ..Settings::default() };
            let settings = Settings { trace: trace.clone(), ..base };
            let (before, after) = (moved(&settings, 400), moved(&settings, 1200));
            let expected = settings.pages_moved().unwrap();
            for (counted, expected) in [
                ((after.read - before.read) / 800.0, expected.read),
                ((after.written - before.written) / 800.0, expected.written),
            ] {
                // Tags are extra, and buckets of a ring that are rewritten early.
                let most = if scheme == Scheme::Ring { 0.1 } else { 0.05 };
                let error = (counted / expected - 1.0).abs();
                assert!(error <= most, "{scheme:?}: {counted} in place of {expected}");
            }
        }
    }

    /// Pages' worth of bytes that a store reads and writes in so many faults of a program that
    /// scans its pages.
    fn moved(settings: &Settings, faults: u64) -> PagesMoved {
        let (mut scheme, recording) = settings.build_first().unwrap();
        let (pages, resident) = (settings.pages as u64, settings.resident as u64);
        for fault in 0..faults {
            let out = fault.checked_sub(resident).map(|before| before % pages);
            scheme.swap(out, Some(fault % pages), &mut [7; PAGE_LEN]).unwrap();
            scheme.settle().unwrap();
        }
        let memory = settings.scheme_memory().unwrap();
        let trusted = scheme.trusted_bytes();
        assert!((memory..memory + 3 * PAGE_LEN).contains(&trusted), "{settings:?}: {trusted}");
        recording.unwrap().finish().unwrap();
        let bytes = |op| {
            let file = File::open(settings.trace.as_ref().unwrap()).unwrap();
            let events = TraceReader::new(file).unwrap().map(|event| event.unwrap());
            let lens = events.filter(|event| event.op == op).map(|event| f64::from(event.len));
            lens.sum::<f64>() / PAGE_LEN as f64
        };
        PagesMoved { read: bytes(Op::Read), written: bytes(Op::Write) }
    }

    #[test]
    fn impossible_settings_are_refused() {
        let with = |resident, pages| Settings { resident, pages, ..Settings::default() };
        for settings in [with(7, 100), with(100, 100), with(8, 0)] {
            assert!(matches!(settings.build(), Err(Error::Configuration(_))));
        }
        assert!(with(8, 100).build().is_ok());
        let host = |scheme| Settings { scheme, ocalls: true, ..with(8, 100) }.build();
        assert!(host(Scheme::Eager).is_err());
        assert!(host(Scheme::DetWo).is_ok());
    }
    /// The writes of a store of `settings` that a live page would count as out of turn.
    fn out_of_turn(settings: &Settings, mut audit: PlaceAudit) -> u64 {
        moved(settings, 3000);
        let counts = AuditCounts::default();
        let file = File::open(settings.trace.as_ref().unwrap()).unwrap();
        for event in TraceReader::new(file).unwrap() {
            audit.record(&event.unwrap(), &counts);
        }
        let found = counts.read();
        assert!(found.in_turn > 2900, "{found:?}");
        found.out_of_turn
    }

    #[test]
    fn the_audit_of_a_live_page_follows_a_store_that_grows() {
        let folder = tempfile::tempdir().unwrap();
        let trace = Some(folder.path().join("trace"));
        for scheme in [Scheme::DetWo, Scheme::Eager] {
            for growth in Growth::ALL {
                let base = Settings { resident: 8, pages: 900, ..Settings::default() };
                let settings = Settings { scheme, growth, trace: trace.clone(), ..base };
                let audit = settings.audit_of_turns();
                assert_eq!(out_of_turn(&settings, audit), 0, "{scheme:?} {growth:?}");
                let whole = Settings { growth: Growth::Whole, ..settings.clone() };
                let found = out_of_turn(&settings, whole.audit_of_turns());
                assert_eq!(found > 0, growth != Growth::Whole, "{scheme:?} {growth:?}: {found}");
            }
        }
    }
}
