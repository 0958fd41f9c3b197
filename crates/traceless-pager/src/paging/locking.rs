//! Memory that never reaches a swap device or a core dump: resident pages, keys, and whatever holds
//! either for a moment.
//!
//! Locking is by mapping, and the kernel counts whole mappings against the limit of locked memory
//! (`RLIMIT_MEMLOCK`), although a page takes memory only once it is there. Who has `CAP_IPC_LOCK`
//! has no limit.

use super::error::{Error, Result};
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
    /// Always: where the limit does not allow it nothing is paged.
    Strict,
    /// Not before the program locks memory itself.
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

    /// Locks by `lock` what this asks for, and tells whether it is locked.
    pub(super) fn apply(self, lock: impl FnOnce() -> Result<(), Errno>) -> Result<bool> {
        match self {
            Self::Off => Ok(false),
            Self::Auto => Ok(lock().is_ok()),
            Self::Strict => lock().map(|()| true).map_err(Error::Unlocked),
        }
    }
}

/// Mappings of stores, at most, that a process which locks all of its memory leaves out.
const STORES_MAX: usize = 128;

/// Memory with nothing but sealed pages, which may be swapped out.
static STORES: [Region; STORES_MAX] = [const { Region::none() }; STORES_MAX];

/// Whether this process locked all of its memory, also what is mapped later.
static ALL_IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// Addresses, or none.
struct Region {
    start: AtomicUsize,
    len: AtomicUsize,
}

impl Region {
    const fn none() -> Self {
        Self { start: AtomicUsize::new(0), len: AtomicUsize::new(0) }
    }
}

/// Whether this process may lock mappings of `len` bytes together.
pub fn may_lock(len: usize) -> Result<(), Errno> {
    let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a fresh mapping without access, which is unmapped below.
    let start = unsafe { mmap_anonymous(core::ptr::null_mut(), len, none, flags) }?;
    let locked = lock(start as usize, len);
    // SAFETY: exactly what was mapped.
    let _ = unsafe { munmap(start, len) };
    locked
}

/// Whether it may lock whatever it maps.
pub fn may_lock_all() -> Result<(), Errno> {
    const MORE_THAN_THERE_IS: usize = 1 << 40;
    may_lock(MORE_THAN_THERE_IS)
}

/// No page of these mappings is swapped out, each from when it comes.
pub fn lock(start: usize, len: usize) -> Result<(), Errno> {
    // Locked pages can be discarded from Linux 5.18 on, and pages that leave are. An empty range
    // only asks whether the kernel knows the advice.
    // SAFETY: nothing is changed.
    unsafe { madvise(start as *mut _, 0, Advice::LinuxDontneedLocked) }?;
    // SAFETY: contents stay as they are.
    unsafe { mlock_with(start as *mut _, len, MlockFlags::ONFAULT) }
}

/// Core dumps leave these mappings out.
pub fn leave_out_of_cores(start: usize, len: usize) -> Result {
    // SAFETY: contents stay as they are.
    unsafe { madvise(start as *mut _, len, Advice::LinuxDontDump) }
        .map_err(|e| Error::os("memory refuses advice", e))
}

/// Locks all memory of this process, now and later, but for stores; a process that has nothing in
/// it but what is the pager's. Refused where there is a limit, which a later mapping would meet.
pub fn lock_this_process() -> Result<(), Errno> {
    may_lock_all()?;
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    ALL_IS_LOCKED.store(true, Relaxed);
    Ok(())
}

/// Whether [`lock_this_process`] did.
pub(super) fn all_is_locked() -> bool {
    ALL_IS_LOCKED.load(Relaxed)
}

/// In a process that has just been cloned off one with secrets: no core is dumped of it, and what
/// it has is locked where that is allowed, since a copy of locked memory is not.
pub(super) fn keep_a_clone() {
    // Neither can fail but for a limit, of which whoever started this process knows.
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

/// A mapping of a store, for as long as it is mapped.
pub(super) struct StoreNote(Option<&'static Region>);

impl StoreNote {
    /// It may be swapped out, and core dumps leave it out: its pages are sealed, and many.
    pub fn new(start: usize, len: usize) -> Result<Self> {
        leave_out_of_cores(start, len)?;
        if all_is_locked() {
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

impl Drop for StoreNote {
    fn drop(&mut self) {
        if let Some(region) = self.0 {
            region.start.store(0, Relaxed);
        }
    }
}

/// Leaves nothing of a page or a key in the vector registers of this thread, which a core dump of
/// the program would hold.
pub(super) fn wipe_registers() {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::asm;
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the processor has the order, and all that it changes is declared.
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

/// Those that only AVX-512 has.
#[cfg(target_arch = "x86_64")]
fn wipe_upper_registers() {
    // SAFETY: the caller knows that the processor has these. The compiler uses none of them here,
    // as they are not among what every processor of this kind has.
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
    use crate::paging::memory::Mapping;

    /// What the kernel says of the mapping that begins there.
    fn flags_of(start: usize) -> Vec<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let head = format!("{start:x}-");
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&head));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags: ")).unwrap();
        flags.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_locked_mapping_is_locked_and_gives_pages_back() {
        let mapping = Mapping::paged(16 * PAGE_LEN, None).unwrap();
        let has = |flag: &str| flags_of(mapping.start()).iter().any(|one| one == flag);
        assert!(has("dd") && !has("lo"), "it is in no core, and not locked yet");
        mapping.lock().unwrap();
        assert!(has("lo") && has("dd"));
        // SAFETY: memory of our own.
        unsafe { mapping.at(PAGE_LEN).write(7) };
        mapping.discard(PAGE_LEN, PAGE_LEN).unwrap();
        // SAFETY: the same.
        assert_eq!(unsafe { mapping.at(PAGE_LEN).read() }, 0);
    }

    #[test]
    fn a_store_is_in_no_core() {
        let mapping = Mapping::inherited(4 * PAGE_LEN).unwrap();
        let note = StoreNote::new(mapping.start(), 4 * PAGE_LEN).unwrap();
        assert!(flags_of(mapping.start()).iter().any(|flag| flag == "dd"));
        let is_noted = || STORES.iter().any(|one| one.start.load(Relaxed) == mapping.start());
        assert!(is_noted());
        drop(note);
        assert!(!is_noted());
    }

    #[test]
    fn what_is_asked_for_is_told() {
        let refused = || Err(Errno::NOMEM);
        assert!(!Lock::Off.apply(|| unreachable!("nothing is locked")).unwrap());
        assert!(!Lock::Auto.apply(refused).unwrap());
        assert!(matches!(Lock::Strict.apply(refused), Err(Error::Unlocked(Errno::NOMEM))));
        assert!(Lock::Strict.apply(|| Ok(())).unwrap());
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn registers_hold_nothing_after_a_fault() {
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
