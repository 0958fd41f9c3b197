//! The C library's functions for masks and actions of signals. They spare SIGSYS, as the program's
//! own system calls do: code of the program may run with these masks.

use super::signals::{KernelAction, change_sigsys_action, is_spared};
use crate::libc_functions::libc_function;
use core::ffi::c_int;
use libc::{SIGSYS, epoll_event, fd_set, nfds_t, pollfd, sighandler_t, sigset_t, timespec};

/// Functions that change the mask of a thread.
macro_rules! change_mask {
    ($($name:ident,)*) => {
        $(
            /// As of POSIX.
            ///
            /// # Safety
            /// As of POSIX.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                how: c_int,
                set: *const sigset_t,
                old: *mut sigset_t,
            ) -> c_int {
                type Change =
                    unsafe extern "C" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int;
                // SAFETY: that is its type; else the caller's promise.
                unsafe {
                    let spared = spared(how, set);
                    let set = spared.as_ref().map_or(set, core::ptr::from_ref);
                    libc_function!($name, Change)(how, set, old)
                }
            }
        )*
    };
}

change_mask! {
    pthread_sigmask,
    sigprocmask,
}

/// A mask without SIGSYS, if the program's blocks more signals and must spare that one.
unsafe fn spared(how: c_int, set: *const sigset_t) -> Option<sigset_t> {
    if !is_spared() || how == libc::SIG_UNBLOCK {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { set.as_ref() }.map(|set| without_sigsys(*set))
}

fn without_sigsys(mut set: sigset_t) -> sigset_t {
    // SAFETY: a record of ours.
    unsafe { libc::sigdelset(&raw mut set, SIGSYS) };
    set
}

/// Functions that wait for a signal with another mask in force.
macro_rules! waits_with_mask {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            /// As of the C library.
            ///
            /// # Safety
            /// As of the C library.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind,)* mask: *const sigset_t) -> c_int {
                type Wait = unsafe extern "C" fn($($kind,)* *const sigset_t) -> c_int;
                // SAFETY: that is its type; else the caller's promise.
                unsafe {
                    let spared = spared(libc::SIG_SETMASK, mask);
                    let mask = spared.as_ref().map_or(mask, core::ptr::from_ref);
                    libc_function!($name, Wait)($($argument,)* mask)
                }
            }
        )*
    };
}

waits_with_mask! {
    epoll_pwait(epoll: c_int, events: *mut epoll_event, room: c_int, milliseconds: c_int);
    ppoll(files: *mut pollfd, count: nfds_t, limit: *const timespec);
    pselect(
        count: c_int,
        read: *mut fd_set,
        written: *mut fd_set,
        failed: *mut fd_set,
        limit: *const timespec
    );
    sigsuspend();
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    type Change =
        unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    // SAFETY: the caller's promise.
    let wanted = if is_spared() { unsafe { new.as_ref() } } else { None };
    let spared = wanted.map(|action| {
        let sa_mask = without_sigsys(action.sa_mask);
        libc::sigaction { sa_mask, ..*action }
    });
    if is_spared() && signal == SIGSYS {
        let before = change_sigsys_action(spared.as_ref().map(kernels));
        if !old.is_null() {
            // SAFETY: the caller's promise.
            unsafe { old.write(librarys(&before)) };
        }
        return 0;
    }
    let new = spared.as_ref().map_or(new, core::ptr::from_ref);
    // SAFETY: that is its type; else the caller's promise.
    unsafe { libc_function!(sigaction, Change)(signal, new, old) }
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    type Change = unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t;
    if is_spared() && signal == SIGSYS {
        // SAFETY: zeros are an action.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        (action.sa_sigaction, action.sa_flags) = (handler, libc::SA_RESTART);
        return change_sigsys_action(Some(kernels(&action))).handler;
    }
    // SAFETY: that is its type; else the caller's promise.
    unsafe { libc_function!(signal, Change)(signal, handler) }
}

/// An action as the kernel has it, with the first 64 signals of its mask.
fn kernels(action: &libc::sigaction) -> KernelAction {
    // SAFETY: a mask is longer than that.
    let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
    let flags = u64::from(action.sa_flags.cast_unsigned());
    KernelAction { handler: action.sa_sigaction, flags, restorer: 0, mask }
}

/// An action as the C library has it.
fn librarys(action: &KernelAction) -> libc::sigaction {
    // SAFETY: zeros are an action, and a mask is longer than that.
    unsafe {
        let mut record: libc::sigaction = core::mem::zeroed();
        record.sa_sigaction = action.handler;
        record.sa_flags = (action.flags as u32).cast_signed();
        (&raw mut record.sa_mask).cast::<u64>().write(action.mask);
        record
    }
}
