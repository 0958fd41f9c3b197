//! How a program is to be paged. The program gets these settings in its environment.

use super::error::{Error, Result};
use super::faults::frames::{PAGES_MAX, Policy};
use super::faults::pace::Pace;
use super::faults::service::FRAMES_MIN;
use super::kernel::evict::EvictMethod;
use super::kernel::locking::Lock;
use super::kernel::memory::SharedNumbers;
use super::kernel::own_files::OwnFile;
use super::number_file::ActivityFile;
use super::refresh::scheme::{HelperDetWo, RefreshMode};
use super::store::backing::{self, BackedScheme, Space};
use super::store::host_copies::HostCopyStore;
use super::store::nbd::NbdStore;
use super::store::nbd_address::NbdAddress;
use super::store::shared::SharedMemory;
use super::store::split::SplitStore;
use crate::PAGE_LEN;
use crate::scheme::{
    Areas, DetWo, FusedPath, FusedRing, Growth, MainArea, Opam, PageScheme, PagesMoved,
    Path as PageTree, Plain, TreeParts, TreeSize, drawn_path_leaves, drawn_ring_leaves,
};
use crate::slots::{Cipher, PageAegis, Slots};
use rustix::fd::RawFd;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use traceless::activity::{ActivityWitness, SharedActivity};
use traceless::clock::MachineClock;
use traceless::rng::{SeededRng, System};
use traceless::seal::{Aead, ChaChaHmac, SECRET_LEN, Sealer, Secret};
use traceless::store::{PlaceAudit, Store, WatchedStore};
use traceless::trace::{FileWitness, Witness, WitnessPair};
use traceless_block::detwo::Refresh;

/// A recording of the events of a store.
pub type Recording = Arc<FileWitness<File>>;

/// The environment variable that holds the settings.
pub const VARIABLE: &str = "TRACELESS_PAGER";

/// The most helpers: each has a file in the program, and few files of a program are the library's.
const HELPERS_MAX: usize = 64;

/// The encoded settings are padded to a multiple of so many bytes.
const ENCODED_MULTIPLE: usize = 1024;

/// The scheme for pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scheme {
    /// The insecure control.
    Plain,
    /// `DetWoORAM`.
    #[default]
    DetWo,
    /// `DetWoORAM`; a helper does the refreshes once the program goes on.
    Eager,
    /// `DetWoORAM`; helpers share the refreshes with the handler.
    Parallel,
    /// `DetWoORAM`; helpers and the handler share the refreshes, once the program goes on.
    EagerParallel,
    /// Path ORAM, two accesses a fault.
    Path,
    /// Path ORAM, one access a fault.
    PathFused,
    /// Ring ORAM, one access a fault.
    Ring,
    /// OPAM: insecure, to be compared with.
    Opam,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Plain,
        Self::DetWo,
        Self::Eager,
        Self::Parallel,
        Self::EagerParallel,
        Self::Path,
        Self::PathFused,
        Self::Ring,
        Self::Opam,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::DetWo => "detwo",
            Self::Eager => "eager",
            Self::Parallel => "parallel",
            Self::EagerParallel => "eager-parallel",
            Self::Path => "path",
            Self::PathFused => "path-fused",
            Self::Ring => "ring",
            Self::Opam => "opam",
        }
    }

    fn is_tree(self) -> bool {
        matches!(self, Self::Path | Self::PathFused | Self::Ring | Self::Opam)
    }
}

/// How a program is to be paged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Resident pages.
    pub resident: usize,
    /// All pages.
    pub pages: usize,
    /// The scheme for them.
    pub scheme: Scheme,
    /// Pages refreshed for each that leaves, in the schemes that refresh.
    pub refresh: Refresh,
    /// What the part of the store that these schemes use follows from.
    pub growth: Growth,
    /// The cipher that pages are sealed with.
    pub cipher: Cipher,
    /// Helper processes, in the schemes that have any.
    pub helpers: usize,
    /// Levels of a tree that are kept in trusted memory.
    pub cached: usize,
    /// Which resident page leaves.
    pub policy: Policy,
    /// How pages are evicted; the best method that the kernel has, if none is given.
    pub evict_method: Option<EvictMethod>,
    /// The address of the first page, if it is to be the same in each run; else the kernel chooses.
    /// In the mode process the kernel always chooses.
    pub start: Option<usize>,
    /// Whether resident pages are locked in memory.
    pub lock: Lock,
    /// Pages that may be resident in addition while other pages are pinned.
    pub overflow: usize,
    /// The file that pages go to; anonymous memory if there is none.
    pub backing: Option<PathBuf>,
    /// The export of an NBD server that pages go to, in place of a file. The pages of copies of the
    /// program, and of programs that it starts, go to anonymous memory.
    pub export: Option<NbdAddress>,
    /// Whether pages go to a host that copies them once more, to be compared with.
    pub ocalls: bool,
    /// The folder in which each program leaves its counters.
    pub counters: Option<PathBuf>,
    /// Faults that are counted, from the first on; 0 for all.
    pub fault_limit: u64,
    /// The file that events of the store are recorded in.
    pub trace: Option<PathBuf>,
    /// The file that shows what programs and their stores do, for a live page.
    pub activity: Option<PathBuf>,
    /// The name of the pager's socket, if the pager is another process.
    pub pager: Option<String>,
    /// The rate of accesses to the store, if it is to be constant.
    pub pace: Option<Pace>,
    /// The process that starts the first program. Programs that this one starts use files of their
    /// own: the same names, with a dot and their process number.
    pub starter: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            resident: 256,
            pages: (256 << 20) / PAGE_LEN,
            scheme: Scheme::default(),
            refresh: Refresh::new(3, 1).expect("three is a ratio"),
            growth: Growth::default(),
            cipher: Cipher::default(),
            helpers: 1,
            cached: 0,
            policy: Policy::default(),
            evict_method: None,
            start: None,
            lock: Lock::default(),
            overflow: 4096,
            backing: None,
            export: None,
            ocalls: false,
            counters: None,
            fault_limit: 0,
            trace: None,
            activity: None,
            pager: None,
            pace: None,
            starter: None,
        }
    }
}

impl Settings {
    /// Encodes the settings as one string, paths last: they may hold any character but a line feed.
    /// Empty lines pad it: programs copy their environment to their heap, which is to look the same
    /// with all schemes.
    pub fn encode(&self) -> String {
        let mut lines = vec![
            format!("resident={}", self.resident),
            format!("pages={}", self.pages),
            format!("scheme={}", self.scheme.name()),
            format!("refresh={}", self.refresh),
            format!("growth={}", self.growth.name()),
            format!("cipher={}", self.cipher.name()),
            format!("helpers={}", self.helpers),
            format!("cached={}", self.cached),
            format!("policy={}", self.policy.name()),
            format!("lock={}", self.lock.name()),
            format!("overflow={}", self.overflow),
            format!("counted={}", self.fault_limit),
            format!("ocalls={}", self.ocalls),
        ];
        lines.extend(self.evict_method.map(|method| format!("way={}", method.name())));
        lines.extend(self.start.map(|start| format!("start={start}")));
        lines.extend(self.starter.map(|process| format!("first={process}")));
        lines.extend(self.pace.map(|pace| format!("pace={pace}")));
        lines.extend(self.export.as_ref().map(|export| format!("export={export}")));
        lines.extend(self.pager.as_ref().map(|name| format!("pager={name}")));
        let paths = [
            ("backing", &self.backing),
            ("counters", &self.counters),
            ("trace", &self.trace),
            ("activity", &self.activity),
        ];
        for (key, path) in paths {
            lines.extend(path.as_ref().map(|path| format!("{key}={}", path.display())));
        }
        let mut text = lines.join("\n");
        let len = text.len().next_multiple_of(ENCODED_MULTIPLE);
        text.extend(core::iter::repeat_n('\n', len - text.len()));
        text
    }

    /// Decodes the string that `encode` made.
    pub fn decode(text: &str) -> Result<Self> {
        let mut settings = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once('=').ok_or(INVALID_SETTINGS)?;
            settings.set(key, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Result {
        let number = || value.parse::<usize>().map_err(|_| INVALID_SETTINGS);
        match key {
            "resident" => self.resident = number()?,
            "pages" => self.pages = number()?,
            "scheme" => self.scheme = parse_name(&Scheme::ALL, Scheme::name, value)?,
            "refresh" => self.refresh = Refresh::parse(value)?,
            "growth" => self.growth = parse_name(&Growth::ALL, Growth::name, value)?,
            "cipher" => self.cipher = parse_name(&Cipher::ALL, Cipher::name, value)?,
            "helpers" => self.helpers = number()?,
            "cached" => self.cached = number()?,
            "policy" => self.policy = parse_name(&Policy::ALL, Policy::name, value)?,
            "lock" => self.lock = parse_name(&Lock::ALL, Lock::name, value)?,
            "way" => {
                self.evict_method = Some(parse_name(&EvictMethod::ALL, EvictMethod::name, value)?);
            }
            "start" => self.start = Some(number()?),
            "overflow" => self.overflow = number()?,
            "ocalls" => self.ocalls = value.parse().map_err(|_| INVALID_SETTINGS)?,
            "counted" => self.fault_limit = value.parse().map_err(|_| INVALID_SETTINGS)?,
            "backing" => self.backing = Some(value.into()),
            "export" => {
                self.export = Some(NbdAddress::parse(value).map_err(|_| INVALID_SETTINGS)?);
            }
            "counters" => self.counters = Some(value.into()),
            "trace" => self.trace = Some(value.into()),
            "activity" => self.activity = Some(value.into()),
            "pace" => self.pace = Some(Pace::parse(value).ok_or(INVALID_SETTINGS)?),
            "pager" => self.pager = Some(value.into()),
            "first" => self.starter = Some(value.parse().map_err(|_| INVALID_SETTINGS)?),
            _ => return Err(INVALID_SETTINGS),
        }
        Ok(())
    }

    /// Refuses settings that cannot work.
    pub fn check(&self) -> Result {
        if self.resident < FRAMES_MIN {
            return Err(Error::Configuration("at least 8 pages must be resident"));
        }
        if self.pages <= self.resident {
            return Err(Error::Configuration(
                "with as many pages as are resident none would leave",
            ));
        }
        if self.pages > PAGES_MAX {
            return Err(Error::Configuration(
                "at most 4294967294 pages, which is 16 TiB less 8 KiB",
            ));
        }
        if (self.pages as u64) < self.refresh.at_most(1) {
            return Err(Error::Configuration("fewer pages than are refreshed at once"));
        }
        if self.helpers > HELPERS_MAX {
            return Err(Error::Configuration("more than 64 helpers"));
        }
        if self.ocalls && (self.has_backing() || self.refresh_mode(false).is_some()) {
            return Err(Error::Configuration("a host that copies has no file, and no helpers"));
        }
        if self.export.is_some() && (self.backing.is_some() || self.refresh_mode(false).is_some()) {
            return Err(Error::Configuration("an export has no file, and no helpers"));
        }
        Ok(self.cipher.check()?)
    }

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

    /// Bytes of trusted memory that a tree takes, its labels and cached levels included. 0 for
    /// other schemes, which take little.
    pub fn tree_memory(&self) -> Result<usize> {
        if !self.scheme.is_tree() {
            return Ok(0);
        }
        Ok(self.tree_size()?.memory)
    }

    /// Bytes of trusted memory that the scheme takes beside resident pages and small buffers.
    pub fn scheme_memory(&self) -> Result<usize> {
        match self.scheme {
            Scheme::Plain => Ok(self.pages * size_of::<u64>()),
            _ if self.scheme.is_tree() => self.tree_memory(),
            _ => Ok(Areas::memory_for(self.main_area())?),
        }
    }

    /// Bytes of the store that pages go to.
    pub fn store_len(&self) -> Result<u64> {
        let pages = self.pages as u64;
        match self.scheme {
            Scheme::Plain => Ok(Slots::store_len(pages)),
            _ if self.scheme.is_tree() => Ok(self.tree_size()?.store),
            _ => Ok(Areas::store_len(pages, self.refresh)),
        }
    }

    /// Pages that the store reads and writes when one page leaves and another one comes, on
    /// average, once all pages were away.
    pub fn pages_moved(&self) -> Result<PagesMoved> {
        let once = |pages| PagesMoved { read: pages, written: pages };
        Ok(match self.scheme {
            Scheme::Plain => once(1.0),
            Scheme::Ring | Scheme::PathFused => self.tree_size()?.moved,
            Scheme::Path => once(2.0 * self.tree_size()?.moved.written),
            // Both paths are read, and one is written.
            Scheme::Opam => {
                let path = self.tree_size()?.moved;
                PagesMoved { read: 2.0 * path.read, ..path }
            }
            Scheme::DetWo | Scheme::Eager | Scheme::Parallel | Scheme::EagerParallel => {
                once(1.0 + f64::from(self.refresh.p()) / f64::from(self.refresh.q()))
            }
        })
    }

    /// The size of the tree, which depends on the cipher's tags.
    fn tree_size(&self) -> Result<TreeSize> {
        fn sample<C>(new: fn(&Secret) -> C) -> C {
            new(&Secret::from_bytes([0; SECRET_LEN]))
        }
        match self.cipher {
            Cipher::Aegis => self.tree_size_with(&sample(PageAegis::new)),
            Cipher::Gcm => self.tree_size_with(&sample(Aead::new)),
            Cipher::ChaChaHmac => self.tree_size_with(&sample(ChaChaHmac::new)),
        }
    }

    fn tree_size_with<C: Sealer>(&self, sample: &C) -> Result<TreeSize> {
        let (pages, cached) = (self.pages as u64, self.cached);
        Ok(match self.scheme {
            Scheme::Ring => TreeSize::ring(pages, cached, sample)?,
            _ => TreeSize::path(pages, cached, sample)?,
        })
    }

    /// The space of a backing file: what grows takes it as it does.
    fn space(&self) -> Space {
        let refreshes = self.scheme != Scheme::Plain && !self.scheme.is_tree();
        if refreshes && self.main_area().grows() { Space::Sparse } else { Space::Reserved }
    }

    fn main_area(&self) -> MainArea {
        MainArea { pages: self.pages as u64, refresh: self.refresh, growth: self.growth }
    }

    fn refresh_mode(&self, alone: bool) -> Option<RefreshMode> {
        let (eager, parallel) = match self.scheme {
            Scheme::Eager => (true, false),
            Scheme::Parallel => (false, true),
            Scheme::EagerParallel => (true, true),
            _ => return None,
        };
        let helpers = if alone { 0 } else { self.helpers };
        Some(RefreshMode { eager, parallel, helpers, file: None })
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

    /// Bytes of the store that lie in memory.
    pub fn store_len_in_memory(&self) -> Result<u64> {
        let len = self.store_len()?;
        Ok(if self.has_backing() { len - self.len_in_file(len) } else { len })
    }

    /// Whether the scheme hides which pages are read.
    pub fn hides_reads(&self) -> bool {
        self.scheme.is_tree() && self.scheme != Scheme::Opam
    }

    /// Whether pages go to a file or an export.
    fn has_backing(&self) -> bool {
        self.backing.is_some() || self.export.is_some()
    }

    /// Bytes of a store of `len` that lie in the backing file or export. Salts and tags of slots
    /// are few, and stay in memory: a page then takes one access to the file, not two.
    fn len_in_file(&self, len: u64) -> u64 {
        if self.scheme.is_tree() { len } else { Slots::bodies_len(len) }
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

const INVALID_SETTINGS: Error = Error::Configuration("the settings of paging cannot be understood");

fn parse_name<T: Copy>(all: &[T], name: fn(T) -> &'static str, value: &str) -> Result<T> {
    all.iter().copied().find(|&one| name(one) == value).ok_or(INVALID_SETTINGS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::trace::{Op, TraceReader};

    #[test]
    fn more_pages_than_have_numbers_are_refused() {
        let settings = |pages| Settings { pages, resident: 64, ..Settings::default() };
        settings(PAGES_MAX).check().unwrap();
        let refused = settings(PAGES_MAX + 1).check().unwrap_err().to_string();
        assert!(refused.contains(&PAGES_MAX.to_string()), "{refused}");
    }

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
    fn settings_survive_encoding() {
        let settings = Settings {
            resident: 15,
            pages: 1000,
            scheme: Scheme::Plain,
            refresh: Refresh::new(1, 3).unwrap(),
            growth: Growth::Pages,
            cipher: Cipher::Gcm,
            helpers: 3,
            cached: 4,
            policy: Policy::Random,
            evict_method: Some(EvictMethod::Protect),
            start: Some(1 << 30),
            lock: Lock::Strict,
            overflow: 7,
            backing: Some("/a=b c".into()),
            export: Some(NbdAddress::parse("nbd+unix:///a%3d?socket=/b%0a").unwrap()),
            counters: Some("/d".into()),
            fault_limit: 9,
            ocalls: true,
            trace: Some("/e".into()),
            activity: Some("/f".into()),
            pager: Some("a-b".into()),
            pace: Some(Pace { per_second: 30, length: 900 }),
            starter: Some(77),
        };
        assert_eq!(Settings::decode(&settings.encode()).unwrap(), settings);
        assert_eq!(Settings::decode("").unwrap(), Settings::default());
        let lens = Scheme::ALL.map(|scheme| Settings { scheme, ..settings.clone() }.encode().len());
        assert_eq!(lens, [ENCODED_MULTIPLE; Scheme::ALL.len()]);
        for text in ["resident", "resident=x", "scheme=none", "colour=red", "way=out", "refresh=0"]
        {
            assert!(Settings::decode(text).is_err(), "{text}");
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
}
