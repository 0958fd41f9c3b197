//! A pager's configuration, checked, and how much memory and store it takes.

use super::heap::calculate;
use super::store::{Callbacks, CallerSalts};
use super::{Config, Refusal};
use crate::scheme::{
    Areas, DeferredDetWo, DetWo, FusedPath, FusedRing, MainArea, Opam, PageScheme, Path, Plain,
    TreeParts, TreeSize,
};
use crate::slots::{Cipher, PageAegis, Slots};
use alloc::boxed::Box;
use alloc::sync::Arc;
use traceless::error::Error;
use traceless::rng::{Rng, SeededRng};
use traceless::seal::{Aead, ChaChaHmac, SECRET_LEN, Sealer, Secret};
use traceless_block::detwo::Refresh;

/// The most pages of a pager: 16 TiB of them.
pub const PAGES_MAX: u64 = 1 << 32;

/// The most threads that may refresh at the same time.
pub const HELPERS_MAX: u32 = 64;

/// The schemes, by their number in the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CScheme {
    Plain,
    DetWo,
    Eager,
    Path,
    PathFused,
    Ring,
    Opam,
}

impl CScheme {
    const ALL: [Self; 7] = [
        Self::Plain,
        Self::DetWo,
        Self::Eager,
        Self::Path,
        Self::PathFused,
        Self::Ring,
        Self::Opam,
    ];
}

/// A configuration that was checked.
pub struct Plan {
    pages: u64,
    scheme: CScheme,
    cipher: Cipher,
    refresh: Option<Refresh>,
    pub helpers: u32,
    cached: usize,
    /// Bytes of the caller's memory that the scheme takes.
    pub scheme_size: usize,
    /// Bytes of the caller's store.
    pub store_size: u64,
}

/// A scheme, and its postponed refreshes if helpers may do them.
pub type Built = (Box<dyn PageScheme>, Option<Arc<crate::scheme::RefreshPool>>);

impl Plan {
    /// Checks a configuration, and calculates its sizes.
    pub fn of(config: &Config) -> Result<Self, Refusal> {
        let scheme = CScheme::ALL.get(config.scheme as usize).copied();
        let cipher = Cipher::ALL.get(config.cipher as usize).copied();
        let (Some(scheme), Some(cipher)) = (scheme, cipher) else { return Err(Refusal::Invalid) };
        let sizes = (1..=PAGES_MAX).contains(&config.pages) && config.helpers <= HELPERS_MAX;
        if !sizes || config.reserved != 0 {
            return Err(Refusal::Invalid);
        }
        let mut plan = Self {
            pages: config.pages,
            scheme,
            cipher,
            refresh: None,
            helpers: config.helpers,
            cached: config.cached as usize,
            scheme_size: 0,
            store_size: 0,
        };
        if matches!(scheme, CScheme::DetWo | CScheme::Eager) {
            let refresh = Refresh::new(config.refresh, 1).map_err(|_| Refusal::Invalid)?;
            if config.pages < refresh.at_most(1) {
                return Err(Refusal::Invalid);
            }
            plan.refresh = Some(refresh);
        }
        let sizes = calculate(|| plan.sizes().ok());
        (plan.scheme_size, plan.store_size) = sizes.ok_or(Refusal::Invalid)?;
        Ok(plan)
    }

    fn sizes(&self) -> Result<(usize, u64), Error> {
        let pages = usize::try_from(self.pages).map_err(|_| Error::Geometry("too many pages"))?;
        if let Some(refresh) = self.refresh {
            let memory = Areas::memory_for(MainArea::whole(self.pages, refresh))?;
            return Ok((memory, Areas::store_len(self.pages, refresh)));
        }
        if self.scheme == CScheme::Plain {
            return Ok((pages * size_of::<u64>(), Slots::store_len(self.pages)));
        }
        match self.cipher {
            Cipher::Aegis => self.tree_sizes(PageAegis::new),
            Cipher::Gcm => self.tree_sizes(Aead::new),
            Cipher::ChaChaHmac => self.tree_sizes(ChaChaHmac::new),
        }
    }

    fn tree_sizes<C: Sealer>(&self, sealer: fn(&Secret) -> C) -> Result<(usize, u64), Error> {
        let sample = sealer(&Secret::from_bytes([0; SECRET_LEN]));
        let size = match self.scheme {
            CScheme::Ring => TreeSize::ring(self.pages, self.cached, &sample)?,
            _ => TreeSize::path(self.pages, self.cached, &sample)?,
        };
        Ok((size.memory, size.store))
    }

    /// Makes the scheme over the caller's store. Keys and paths come from `seed`.
    pub fn build(&self, store: Callbacks, seed: &Secret) -> Result<Built, Error> {
        let (store, rng) = (Arc::new(store), SeededRng::drawn(&mut SecretSource(seed)));
        let mut rng: Box<dyn Rng> = Box::new(rng);
        let (pages, cipher) = (self.pages, self.cipher);
        let salts = Box::new(CallerSalts(store.clone()));
        if let Some(refresh) = self.refresh {
            let key = Secret::random(&mut *rng);
            let areas = Areas::new(store, pages, refresh, cipher, &key, salts)?;
            if self.scheme == CScheme::DetWo {
                return Ok((Box::new(DetWo::new(areas)), None));
            }
            let deferred = DeferredDetWo::new(areas);
            let pool = deferred.refresh_pool();
            return Ok((Box::new(deferred), Some(pool)));
        }
        if self.scheme == CScheme::Plain {
            let key = Secret::random(&mut *rng);
            return Ok((Box::new(Plain::new(store, pages, cipher, &key, salts)?), None));
        }
        let tree = match cipher {
            Cipher::Aegis => self.tree(store, rng, PageAegis::new),
            Cipher::Gcm => self.tree(store, rng, Aead::new),
            Cipher::ChaChaHmac => self.tree(store, rng, ChaChaHmac::new),
        };
        Ok((tree?, None))
    }

    fn tree<C: Sealer + 'static>(
        &self,
        store: Arc<Callbacks>,
        rng: Box<dyn Rng>,
        sealer: fn(&Secret) -> C,
    ) -> Result<Box<dyn PageScheme>, Error> {
        let (pages, cached) = (self.pages, self.cached);
        let salts = Box::new(CallerSalts(store.clone()));
        let parts = TreeParts { store, pages, cached, sealer, rng, salts };
        Ok(match self.scheme {
            CScheme::Ring => Box::new(FusedRing::ring(parts)?),
            CScheme::PathFused => Box::new(FusedPath::path(parts)?),
            CScheme::Opam => Box::new(Opam::opam(parts)?),
            _ => Box::new(Path::new(parts)?),
        })
    }
}

/// A generator that returns one secret, once, as another generator's seed.
struct SecretSource<'a>(&'a Secret);

impl Rng for SecretSource<'_> {
    fn fill(&mut self, out: &mut [u8]) {
        out.copy_from_slice(self.0.bytes());
    }
}
