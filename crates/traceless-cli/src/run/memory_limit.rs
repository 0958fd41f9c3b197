//! The memory that paging takes, against what the control group of this process may have.

use super::RunError;
use crate::output::print_error;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{FRAMES_MIN, Settings};
use traceless_sys::MemoryLimit;

/// Unless the user names a number, resident pages take at most one part of the limit in so many.
const RESIDENT_SHARE: u64 = 8;

/// How many pages are resident, if the user names no number: `unlimited`, or fewer under a low
/// limit.
pub fn default_resident(unlimited: usize) -> usize {
    MemoryLimit::of_this_process().map_or(unlimited, |limit| resident_under(limit.bytes, unlimited))
}

fn resident_under(limit: u64, unlimited: usize) -> usize {
    let pages = usize::try_from(limit / RESIDENT_SHARE / PAGE_LEN as u64).unwrap_or(usize::MAX);
    unlimited.min(pages).max(FRAMES_MIN)
}

/// Checks the memory that paging takes against the limit: refuses what cannot begin, and warns of
/// what may end with the program killed by the kernel.
pub fn check(settings: &Settings) -> Result<(), RunError> {
    let Some(limit) = MemoryLimit::of_this_process() else { return Ok(()) };
    let need = MemoryNeed {
        resident: (settings.resident * PAGE_LEN) as u64,
        trusted: settings.scheme_memory()? as u64,
        store: settings.store_len_in_memory()?,
    };
    match need.against(&limit) {
        Ok(()) => Ok(()),
        Err(why) if need.always() > limit.bytes => Err(RunError::MemoryLimit(why)),
        Err(why) => {
            print_error(&why);
            Ok(())
        }
    }
}

/// Bytes of memory that paging takes for a program, beside what the program has that is not paged.
struct MemoryNeed {
    resident: u64,
    trusted: u64,
    /// The store, if it lies in memory.
    store: u64,
}

impl MemoryNeed {
    /// What every program takes.
    fn always(&self) -> u64 {
        self.resident + self.trusted
    }

    /// Says what to do if the limit is too low.
    fn against(&self, limit: &MemoryLimit) -> Result<(), String> {
        let Self { resident, trusted, store } = *self;
        let (most, what) = if self.always() > limit.bytes {
            (self.always(), "take less --memory or --resident")
        } else {
            (
                self.always() + store,
                "take less --memory, or --backing FILE; else the kernel may end it",
            )
        };
        if most <= limit.bytes {
            return Ok(());
        }
        let [most, limit_mib, resident, trusted, store] =
            [most, limit.bytes, resident, trusted, store].map(mib);
        Err(format!(
            "paging takes up to {most} MiB of memory for a program (resident pages {resident}, the \
             scheme {trusted}, the store {store}), and {} allows {limit_mib}: {what}",
            limit.file.display()
        ))
    }
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named_with_its_numbers() {
        let against = |mib: u64, [resident, trusted, store]: [u64; 3]| {
            let need =
                MemoryNeed { resident: resident << 20, trusted: trusted << 20, store: store << 20 };
            need.against(&MemoryLimit { bytes: mib << 20, file: "/cg/memory.max".into() })
        };
        assert_eq!(against(100, [50, 20, 30]), Ok(()));
        let of_store = against(100, [50, 20, 31]).unwrap_err();
        assert!(of_store.contains("up to 101 MiB") && of_store.contains("--backing"), "{of_store}");
        let refused = against(69, [50, 20, 31]).unwrap_err();
        assert!(refused.contains("up to 70 MiB") && refused.contains("allows 69"), "{refused}");
        assert!(refused.contains("/cg/memory.max") && !refused.contains("--backing"), "{refused}");
        assert_eq!(resident_under(1 << 30, 256), 256);
        assert_eq!(resident_under(4 << 20, 256), 128);
        assert_eq!(resident_under(4096, 256), FRAMES_MIN);
    }
}
