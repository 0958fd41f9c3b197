//! The program's own masks and actions for signals. SIGSYS is never blocked, or the kernel would
//! end the program at its next system call that is trapped; and its action is this library's.

use super::libc_context::InTurn;
use super::raw;
use crate::loader_command::is_other_process;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::{siginfo_t, ucontext_t};

/// The bit of SIGSYS in the kernel's masks.
const SIGSYS_BIT: u64 = 1 << (libc::SIGSYS - 1);

/// Bytes of the kernel's masks.
const MASK_LEN: usize = 8;

/// An action, as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelAction {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub mask: u64,
}

/// The action for SIGSYS that the program believes to have set.
static SIGSYS_ACTION: InTurn<KernelAction> =
    InTurn::new(KernelAction { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 });

/// Whether SIGSYS is spared.
static IS_SPARED: AtomicBool = AtomicBool::new(false);

/// Has SIGSYS spared by functions of the C library, too: this library's action is set.
pub fn spare() {
    IS_SPARED.store(true, Relaxed);
}

/// Whether SIGSYS is spared.
pub fn is_spared() -> bool {
    IS_SPARED.load(Relaxed)
}

/// Serves `rt_sigprocmask`, with the mask that will be in force.
///
/// # Safety
/// As of the system call.
pub unsafe fn change_mask(mask: &mut u64, [how, set, old, len, ..]: [usize; 6]) -> isize {
    let fails = |errno: c_int| -(errno as isize);
    if len != MASK_LEN {
        return fails(libc::EINVAL);
    }
    let before = *mask;
    if set != 0 {
        // SAFETY: the caller's promise.
        let set = unsafe { (set as *const u64).read_unaligned() };
        let changed = match raw::int(how) {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return fails(libc::EINVAL),
        };
        *mask = changed & !SIGSYS_BIT;
    }
    if old != 0 {
        // SAFETY: the caller's promise.
        unsafe { (old as *mut u64).write_unaligned(before) };
    }
    0
}

/// Whether a system call waits for a signal with another mask in force.
pub fn waits(number: i64) -> bool {
    const WAITING: [i64; 5] = [
        libc::SYS_rt_sigsuspend,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
    ];
    WAITING.contains(&number)
}

/// Serves a call that waits for a signal with another mask in force: an action that runs meanwhile
/// makes system calls, too.
///
/// # Safety
/// As of the system call.
pub unsafe fn wait(number: i64, mut arguments: [usize; 6]) -> isize {
    let nth = match number {
        libc::SYS_rt_sigsuspend => 0,
        libc::SYS_ppoll => 3,
        libc::SYS_pselect6 => 5,
        _ => 4,
    };
    let at = arguments[nth] as *const usize;
    // SAFETY: the caller's promise, and records of ours. The last argument of `pselect6` has the
    // address of the mask, and its length.
    unsafe {
        let mut pair = [0; 2];
        let mut mask = at.cast::<u64>();
        if number == libc::SYS_pselect6 && !at.is_null() {
            pair = at.cast::<[usize; 2]>().read_unaligned();
            mask = pair[0] as *const u64;
        }
        let spared = if mask.is_null() { 0 } else { mask.read_unaligned() & !SIGSYS_BIT };
        if !mask.is_null() {
            arguments[nth] = &raw const spared as usize;
            if number == libc::SYS_pselect6 {
                pair[0] = &raw const spared as usize;
                arguments[nth] = &raw const pair as usize;
            }
        }
        raw::call(number as usize, arguments)
    }
}

/// Serves `rt_sigaction`.
///
/// # Safety
/// As of the system call.
pub unsafe fn change_action(arguments: [usize; 6]) -> isize {
    let [signal, new, old, len, ..] = arguments;
    // SAFETY: the caller's promise.
    let wanted = (new != 0).then(|| unsafe { (new as *const KernelAction).read_unaligned() });
    if raw::int(signal) == libc::SIGSYS && len == MASK_LEN {
        let before = change_sigsys_action(wanted);
        if old != 0 {
            // SAFETY: the caller's promise.
            unsafe { (old as *mut KernelAction).write_unaligned(before) };
        }
        return 0;
    }
    let spared = wanted.map(|action| KernelAction { mask: action.mask & !SIGSYS_BIT, ..action });
    let at = spared.as_ref().map_or(0, |action| core::ptr::from_ref(action) as usize);
    // SAFETY: the caller's promise, but for a record of ours.
    unsafe { raw::call(libc::SYS_rt_sigaction as usize, [signal, at, old, len, 0, 0]) }
}

/// Has the program believe that its action for SIGSYS is `wanted`, if that is any. Returns the one
/// before.
pub fn change_sigsys_action(wanted: Option<KernelAction>) -> KernelAction {
    // A child of `vfork` has actions of its own, but this record is its parent's.
    let wanted = wanted.filter(|_| !is_other_process());
    // SAFETY: a program sets its actions on one thread at a time, or does not know which holds.
    let action = unsafe { SIGSYS_ACTION.get() };
    core::mem::replace(action, wanted.unwrap_or(*action))
}

/// Gives the program a SIGSYS that is not of this library's filter.
///
/// # Safety
/// The kernel's records for the signal.
pub unsafe fn pass_on(signal: c_int, information: *mut siginfo_t, context: *mut ucontext_t) {
    // SAFETY: as above: the program's action, or the record of none.
    let action = unsafe { *SIGSYS_ACTION.get() };
    match action.handler {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            let ends = KernelAction { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
            let (at, bit) = (&raw const ends as usize, SIGSYS_BIT);
            // SAFETY: records of ours; the process ends by the signal.
            unsafe {
                let own = |number| raw::call(number, [0; 6]) as usize;
                let (process, thread) =
                    (own(libc::SYS_getpid as usize), own(libc::SYS_gettid as usize));
                let number = signal as usize;
                raw::call(libc::SYS_rt_sigaction as usize, [number, at, 0, MASK_LEN, 0, 0]);
                raw::call(libc::SYS_tgkill as usize, [process, thread, number, 0, 0, 0]);
                let unblock = [libc::SIG_UNBLOCK as usize, &raw const bit as usize, 0, 8, 0, 0];
                raw::call(libc::SYS_rt_sigprocmask as usize, unblock);
            }
        }
        handler => {
            // SAFETY: the kernel's record, a mask of ours, and the program's own function for this
            // signal. Its system calls may be trapped meanwhile.
            unsafe {
                let before = (&raw const (*context).uc_sigmask).cast::<u64>().read_unaligned();
                let mask = (before | action.mask) & !SIGSYS_BIT;
                let set = [libc::SIG_SETMASK as usize, &raw const mask as usize, 0, MASK_LEN, 0, 0];
                raw::call(libc::SYS_rt_sigprocmask as usize, set);
                let act = core::mem::transmute::<
                    usize,
                    unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void),
                >(handler);
                act(signal, information, context.cast());
            }
        }
    }
}
