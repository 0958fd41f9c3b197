//! Memory that never reaches a swap device or a core dump: resident pages, keys, and buffers that
//! hold either for a moment.
//!
//! Memory is locked by mapping, and the kernel counts whole mappings against the limit of locked
//! memory (`RLIMIT_MEMLOCK`), although a page takes memory only once it is present. A process with
//! `CAP_IPC_LOCK` has no limit.

use crate::paging::error::{Error, Result};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MlockAllFlags, MlockFlags, ProtFlags, madvise, mlock_with, mlockall,
    mmap_anonymous, munlock, munmap,
};

/// Whether resident pages are locked in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lock {
    /// Where the limit of locked memory allows it.
    #[default]
    Auto,
    /// Always: where the limit does not allow it paging is refused.
    Strict,
    /// Only once the program locks memory itself.
    Off,
}

impl Lock {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Strict, Self::Off];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Strict => "strict",
            Self::Off => "off",
        }
    }

    /// Calls `lock` as this setting requires, and returns whether the memory is locked.
    pub(crate) fn apply(self, lock: impl FnOnce() -> Result<(), Errno>) -> Result<bool> {
        match self {
            Self::Off => Ok(false),
            Self::Auto => Ok(lock().is_ok()),
            Self::Strict => lock().map(|()| true).map_err(Error::Unlocked),
        }
    }
}

/// The most mappings of stores that a process which locks all of its memory leaves unlocked.
const STORES_MAX: usize = 128;

/// Mappings that hold only sealed pages, and may be swapped out.
static STORES: [Region; STORES_MAX] = [const { Region::none() }; STORES_MAX];

/// Whether this process locked all of its memory, also later mappings.
static IS_ALL_LOCKED: AtomicBool = AtomicBool::new(false);

/// A range of addresses; `start` is 0 if there is none.
struct Region {
    start: AtomicUsize,
    len: AtomicUsize,
}

impl Region {
    const fn none() -> Self {
        Self { start: AtomicUsize::new(0), len: AtomicUsize::new(0) }
    }
}

/// Whether this process may lock `len` bytes.
pub fn may_lock(len: usize) -> Result<(), Errno> {
    let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a fresh mapping without access, which is unmapped below.
    let start = unsafe { mmap_anonymous(core::ptr::null_mut(), len, none, flags) }?;
    let locked = lock(start as usize, len);
    // SAFETY: exactly what was mapped.
    let _ = unsafe { munmap(start, len) };
    locked
}

/// Whether this process may lock all memory that it will ever map.
pub fn may_lock_all() -> Result<(), Errno> {
    const MORE_THAN_THERE_IS: usize = 1 << 40;
    may_lock(MORE_THAN_THERE_IS)
}

/// Locks a range: each page stays in memory from when it becomes present.
pub fn lock(start: usize, len: usize) -> Result<(), Errno> {
    // Locked pages can be discarded from Linux 5.18 on, and pages that leave are. For an empty
    // range the call only checks that the kernel knows the advice.
    // SAFETY: nothing is changed.
    unsafe { madvise(start as *mut _, 0, Advice::LinuxDontneedLocked) }?;
    // SAFETY: contents stay as they are.
    unsafe { mlock_with(start as *mut _, len, MlockFlags::ONFAULT) }
}

/// Leaves a range out of core dumps.
pub fn exclude_from_core_dumps(start: usize, len: usize) -> Result {
    // SAFETY: contents stay as they are.
    unsafe { madvise(start as *mut _, len, Advice::LinuxDontDump) }
        .map_err(|e| Error::os("memory refuses advice", e))
}

/// Locks all memory of this process, now and later, but for stores. For a process that has no other
/// memory than the pager's. Refused where there is a limit, since a later mapping could meet it.
pub fn lock_this_process() -> Result<(), Errno> {
    may_lock_all()?;
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    IS_ALL_LOCKED.store(true, Relaxed);
    Ok(())
}

/// Whether [`lock_this_process`] has succeeded.
pub(crate) fn is_all_locked() -> bool {
    IS_ALL_LOCKED.load(Relaxed)
}

/// Protects a process that has just been cloned off one with secrets: it dumps no core, and its
/// memory is locked where that is allowed, since a clone does not inherit locks.
pub(crate) fn protect_clone() {
    // Only a limit makes these fail, and the parent process has met the same limit.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    if mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT).is_err() {
        return;
    }
    for store in &STORES {
        let (start, len) = (store.start.load(Relaxed), store.len.load(Relaxed));
        if start != 0 {
            // SAFETY: contents stay as they are.
            let _ = unsafe { munlock(start as *mut _, len) };
        }
    }
}

/// Marks a mapping as a store, until this is dropped.
pub(crate) struct StoreRegion(Option<&'static Region>);

impl StoreRegion {
    /// Lets the mapping be swapped out, and leaves it out of core dumps: its pages are sealed, and
    /// many.
    pub fn new(start: usize, len: usize) -> Result<Self> {
        exclude_from_core_dumps(start, len)?;
        if is_all_locked() {
            // SAFETY: contents stay as they are.
            let _ = unsafe { munlock(start as *mut _, len) };
        }
        let takes =
            |region: &&Region| region.start.compare_exchange(0, start, Relaxed, Relaxed).is_ok();
        let region = STORES.iter().find(takes);
        region.inspect(|region| region.len.store(len, Relaxed));
        Ok(Self(region))
    }
}

/// The mappings of all stores of this process.
pub(crate) fn store_regions() -> impl Iterator<Item = Range<usize>> {
    STORES.iter().filter_map(|store| {
        let (start, len) = (store.start.load(Relaxed), store.len.load(Relaxed));
        (start != 0).then_some(start..start + len)
    })
}

/// Unmaps the stores of a process before its fork: no value in this process uses them any more.
pub(crate) fn unmap_stores(stores: &[Range<usize>]) {
    for store in stores {
        let is_it = |region: &&Region| region.start.load(Relaxed) == store.start;
        if let Some(region) = STORES.iter().find(is_it) {
            region.start.store(0, Relaxed);
        }
        // SAFETY: a store of ours, as the list said; what used it is never dropped.
        let _ = unsafe { munmap(store.start as *mut _, store.len()) };
    }
}

impl Drop for StoreRegion {
    fn drop(&mut self) {
        if let Some(region) = self.0 {
            region.start.store(0, Relaxed);
        }
    }
}

/// Clears the vector registers of this thread, since a core dump of the program would show what
/// they hold of a page or a key.
pub(crate) fn wipe_registers() {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::asm;
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the processor has the instruction, and all that it changes is declared.
            unsafe {
                asm!("vzeroall", out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _,
                    out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _,
                    out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    options(nomem, nostack, preserves_flags));
            }
        }
        if std::arch::is_x86_feature_detected!("avx512f") {
            wipe_upper_registers();
        }
    }
}

/// Clears the registers that only AVX-512 has.
#[cfg(target_arch = "x86_64")]
fn wipe_upper_registers() {
    // SAFETY: the caller has checked that the processor has these. The compiler uses none of them
    // here, as they are not in the target's baseline.
    unsafe {
        core::arch::asm!(
            "vpxorq zmm16, zmm16, zmm16",
            "vpxorq zmm17, zmm17, zmm17",
            "vpxorq zmm18, zmm18, zmm18",
            "vpxorq zmm19, zmm19, zmm19",
            "vpxorq zmm20, zmm20, zmm20",
            "vpxorq zmm21, zmm21, zmm21",
            "vpxorq zmm22, zmm22, zmm22",
            "vpxorq zmm23, zmm23, zmm23",
            "vpxorq zmm24, zmm24, zmm24",
            "vpxorq zmm25, zmm25, zmm25",
            "vpxorq zmm26, zmm26, zmm26",
            "vpxorq zmm27, zmm27, zmm27",
            "vpxorq zmm28, zmm28, zmm28",
            "vpxorq zmm29, zmm29, zmm29",
            "vpxorq zmm30, zmm30, zmm30",
            "vpxorq zmm31, zmm31, zmm31",
            options(nomem, nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_LEN;
    use crate::paging::kernel::memory::{Mapping, discard};

    /// The kernel's flags of the mapping that begins at `start`.
    fn flags_of(start: usize) -> Vec<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let head = format!("{start:x}-");
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&head));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags: ")).unwrap();
        flags.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn locked_mappings_still_discard_pages() {
        let mapping = Mapping::paged(16 * PAGE_LEN, None).unwrap();
        let has = |flag: &str| flags_of(mapping.start()).iter().any(|one| one == flag);
        assert!(has("dd") && !has("lo"), "it is in no core, and not locked yet");
        mapping.lock().unwrap();
        assert!(has("lo") && has("dd"));
        // SAFETY: memory of our own.
        unsafe { mapping.at(PAGE_LEN).write(7) };
        // SAFETY: a page of the mapping, which only this test uses.
        unsafe { discard(mapping.start() + PAGE_LEN, PAGE_LEN) }.unwrap();
        // SAFETY: memory of our own.
        assert_eq!(unsafe { mapping.at(PAGE_LEN).read() }, 0);
    }

    #[test]
    fn stores_are_excluded_from_core_dumps() {
        let mapping = Mapping::shared_with_forks(4 * PAGE_LEN).unwrap();
        let region = StoreRegion::new(mapping.start(), 4 * PAGE_LEN).unwrap();
        assert!(flags_of(mapping.start()).iter().any(|flag| flag == "dd"));
        let is_listed = || STORES.iter().any(|one| one.start.load(Relaxed) == mapping.start());
        assert!(is_listed());
        drop(region);
        assert!(!is_listed());
    }

    #[test]
    fn lock_settings_report_whether_memory_is_locked() {
        let refused = || Err(Errno::NOMEM);
        assert!(!Lock::Off.apply(|| unreachable!("nothing is locked")).unwrap());
        assert!(!Lock::Auto.apply(refused).unwrap());
        assert!(matches!(Lock::Strict.apply(refused), Err(Error::Unlocked(Errno::NOMEM))));
        assert!(Lock::Strict.apply(|| Ok(())).unwrap());
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vector_registers_are_wiped() {
        let mut left = [1_u8; 16];
        // SAFETY: moves between registers and memory of our own.
        unsafe {
            core::arch::asm!("movdqu xmm7, [{}]", in(reg) left.as_ptr(), out("xmm7") _);
            wipe_registers();
            core::arch::asm!("movdqu [{}], xmm7", in(reg) left.as_mut_ptr(), out("xmm7") _);
        }
        assert_eq!(left, [0; 16]);
    }
}
