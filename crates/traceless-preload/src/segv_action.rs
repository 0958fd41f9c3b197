//! The program's action for SIGSEGV, while this library's is in its place: in a copy of the process
//! paged memory is missing until its pager runs, and the C library may touch it before.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering::SeqCst};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use traceless_pager::PAGE_LEN;

/// Brings the missing page at an address in the copy. Returns whether it was one.
pub type BringPage = fn(usize) -> bool;

/// This library's action, until it is dropped. One at a time.
pub struct SegvAction(());

/// The program's action, and what brings a page.
static SAVED: ActionCell = ActionCell(UnsafeCell::new(None));

struct ActionCell(UnsafeCell<Option<(libc::sigaction, BringPage)>>);

// SAFETY: written before the action that reads it is set, while no other thread sets one.
unsafe impl Sync for ActionCell {}

/// A page that the kernel makes zeros in copies of the process, and that is not zeros here. The
/// number of the process would not do: a child of `vfork` has another one, and this memory.
static MARK: AtomicPtr<AtomicU8> = AtomicPtr::new(null_mut());

impl SegvAction {
    /// Maps what [`Self::set`] needs.
    pub fn prepare() -> Result<(), Errno> {
        if MARK.load(SeqCst).is_null() {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a fresh mapping at an address that the kernel chooses.
            let page =
                unsafe { mmap_anonymous(null_mut(), PAGE_LEN, protection, MapFlags::PRIVATE) }?;
            // SAFETY: contents stay as they are in this process.
            unsafe { madvise(page, PAGE_LEN, Advice::LinuxWipeOnFork) }?;
            MARK.store(page.cast(), SeqCst);
        }
        Ok(())
    }

    /// Sets the action, once it was prepared.
    pub fn set(bring: BringPage) -> Self {
        mark().store(1, SeqCst);
        // SAFETY: records of our own, and a function for a signal with information. It does not run
        // on a stack of its own, which may be missing in the copy.
        unsafe {
            let [mut action, mut before]: [libc::sigaction; 2] = core::mem::zeroed();
            action.sa_sigaction = act as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            libc::sigaction(libc::SIGSEGV, core::ptr::null(), &raw mut before);
            *SAVED.0.get() = Some((before, bring));
            libc::sigaction(libc::SIGSEGV, &raw const action, null_mut());
        }
        Self(())
    }
}

impl Drop for SegvAction {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the program's action back.
fn restore() {
    // SAFETY: written before, and by no other thread meanwhile.
    if let Some((before, _)) = unsafe { &*SAVED.0.get() } {
        // SAFETY: the action that was there.
        unsafe { libc::sigaction(libc::SIGSEGV, before, null_mut()) };
    }
}

/// The number in the page that is zeros in copies.
fn mark() -> &'static AtomicU8 {
    // SAFETY: a mapping that stays, which each action was prepared with.
    unsafe { &*MARK.load(SeqCst) }
}

/// In the copy: brings the page, if one is missing. Else runs the program's action.
unsafe extern "C" fn act(signal: c_int, information: *mut libc::siginfo_t, context: *mut c_void) {
    type WithInformation = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    // SAFETY: written before this action was set.
    let Some((before, bring)) = (unsafe { &*SAVED.0.get() }) else { return };
    let is_copy = mark().load(SeqCst) == 0;
    // SAFETY: the kernel's record of a fault, which has an address.
    if is_copy && bring(unsafe { (*information).si_addr() } as usize) {
        return;
    }
    match before.sa_sigaction {
        // The access is tried again, and ends the program.
        libc::SIG_DFL | libc::SIG_IGN => restore(),
        // SAFETY: the program has set it for this signal, as its flags say.
        action => unsafe {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                let act = core::mem::transmute::<usize, WithInformation>(action);
                act(signal, information, context);
            } else {
                let act = core::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(action);
                act(signal);
            }
        },
    }
}
