//! How a program is to be paged. The program gets these settings in its environment.

use super::error::{Error, Result};
use super::faults::frames::{PAGES_MAX, Policy};
use super::faults::pace::Pace;
use super::faults::service::FRAMES_MIN;
use super::kernel::evict::EvictMethod;
use super::kernel::locking::Lock;
use super::refresh::scheme::RefreshMode;
use super::store::nbd_address::NbdAddress;
use crate::PAGE_LEN;
use crate::scheme::{Areas, Growth, MainArea, PagesMoved, TreeSize};
use crate::slots::{Cipher, PageAegis, Slots};
use std::path::PathBuf;
use traceless::seal::{Aead, ChaChaHmac, SECRET_LEN, Sealer, Secret};
use traceless_block::detwo::Refresh;

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

    pub(super) fn is_tree(self) -> bool {
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

    pub(super) fn main_area(&self) -> MainArea {
        MainArea { pages: self.pages as u64, refresh: self.refresh, growth: self.growth }
    }

    pub(super) fn refresh_mode(&self, alone: bool) -> Option<RefreshMode> {
        let (eager, parallel) = match self.scheme {
            Scheme::Eager => (true, false),
            Scheme::Parallel => (false, true),
            Scheme::EagerParallel => (true, true),
            _ => return None,
        };
        let helpers = if alone { 0 } else { self.helpers };
        Some(RefreshMode { eager, parallel, helpers, file: None })
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
    pub(super) fn has_backing(&self) -> bool {
        self.backing.is_some() || self.export.is_some()
    }

    /// Bytes of a store of `len` that lie in the backing file or export. Salts and tags of slots
    /// are few, and stay in memory: a page then takes one access to the file, not two.
    pub(super) fn len_in_file(&self, len: u64) -> u64 {
        if self.scheme.is_tree() { len } else { Slots::bodies_len(len) }
    }
}

const INVALID_SETTINGS: Error = Error::Configuration("the settings of paging cannot be understood");

fn parse_name<T: Copy>(all: &[T], name: fn(T) -> &'static str, value: &str) -> Result<T> {
    all.iter().copied().find(|&one| name(one) == value).ok_or(INVALID_SETTINGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_pages_than_have_numbers_are_refused() {
        let settings = |pages| Settings { pages, resident: 64, ..Settings::default() };
        settings(PAGES_MAX).check().unwrap();
        let refused = settings(PAGES_MAX + 1).check().unwrap_err().to_string();
        assert!(refused.contains(&PAGES_MAX.to_string()), "{refused}");
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
}
