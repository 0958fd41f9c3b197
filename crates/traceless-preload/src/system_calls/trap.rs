//! The filter of system calls that traps the program's own, and the action for SIGSYS that serves
//! them.
//!
//! Only code of the program's image is trapped: the C library, and the functions of this one, make
//! the same system calls. The filter is inherited by every thread and process that the program
//! starts, and by the programs that they run. So [`exec`](super::exec) has programs that are linked
//! statically started by this library, too.

use super::{calls, raw, signals};
use crate::syscall_filter::{
    AUDIT_ARCH, continue_if, forbid_new_privileges, load, load_filter, return_code,
};
use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::{siginfo_t, sock_filter, sock_fprog, ucontext_t};

/// Files with at least this number may be the pager's, if numbers go that far; else all may be.
const OWN_FILE_MIN: u32 = 900;

/// What the kernel passes on with a system call that this filter traps.
const MARK: u32 = 0x7472;
const TRAP: u32 = libc::SECCOMP_RET_TRAP | MARK;

/// The system calls that are trapped in any case.
const TRAPPED: [i64; 21] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_fork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit_group,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_close_range,
    libc::SYS_rt_sigsuspend,
];

/// Whether the filter is this program's. If not, the program that was here before has installed it,
/// and calls are the kernel's.
static IS_OWN: AtomicBool = AtomicBool::new(false);

const SYS_SECCOMP: c_int = 1;

/// The registers with the arguments of a system call.
const ARGUMENTS: [c_int; 6] =
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];

/// Has the system calls of this code, whole pages each, trapped from now on. If it fails, the
/// first ranges may be.
pub fn install(code: &[Range<usize>]) -> Result<(), &'static str> {
    IS_OWN.store(true, Relaxed);
    set_action().ok_or("the kernel sets no action for SIGSYS")?;
    for part in code.iter().flat_map(parts_of) {
        let filter = filter(&part);
        let program = sock_fprog {
            len: u16::try_from(filter.len()).expect("a filter is short"),
            filter: filter.as_ptr().cast_mut(),
        };
        let is_loaded = load_filter(&program) || (forbid_new_privileges() && load_filter(&program));
        if !is_loaded {
            return Err("the kernel does not trap its system calls (seccomp)");
        }
    }
    Ok(())
}

/// The parts of a range between multiples of 4 GiB: a filter compares the halves of addresses.
fn parts_of(range: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let Range { start, end } = *range;
    let nth = move |number: usize| start.max(number << 32)..end.min((number + 1) << 32);
    (start >> 32..=(end - 1) >> 32).map(nth)
}

/// Serves system calls that a filter of an earlier program of this process traps, if there is one:
/// this program's code may lie at the same addresses.
pub fn serve_inherited() {
    const FILTERED: c_int = 2;
    // SAFETY: it changes nothing.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP) } == FILTERED {
        set_action();
    }
}

/// Sets the action, and lets the signal come.
fn set_action() -> Option<()> {
    if signals::is_spared() {
        // It was set for an inherited filter.
        return Some(());
    }
    // SAFETY: records of ours, and a function for a signal with information, on the stack that the
    // program has for signals, as its own may be short.
    let is_set = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = act as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // Also the C library's own signals, which `sigfillset` leaves out: their actions would run
        // on a stack that is in use.
        (&raw mut action.sa_mask).cast::<u64>().write(u64::MAX);
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigaddset(&raw mut all, libc::SIGSYS);
        libc::sigaction(libc::SIGSYS, &raw const action, core::ptr::null_mut()) == 0
            && libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const all, core::ptr::null_mut()) == 0
    };
    is_set.then(signals::spare)
}

/// The action: serves a system call, on a thread of the program. It must not use the C library.
unsafe extern "C" fn act(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    let context = context.cast::<ucontext_t>();
    // SAFETY: the kernel's records for this signal.
    let (code, registers) = unsafe { ((*information).si_code, &mut (*context).uc_mcontext.gregs) };
    // SAFETY: the kernel's record.
    let data = unsafe { (*information).si_errno };
    if code != SYS_SECCOMP || data != MARK.cast_signed() {
        // SAFETY: the kernel's records.
        return unsafe { signals::pass_on(signal, information, context) };
    }
    let number = registers[libc::REG_RAX as usize];
    let arguments = ARGUMENTS.map(|register| registers[register as usize] as usize);
    // SAFETY: the kernel puts this mask in force when the action ends.
    let mask = unsafe { &mut *(&raw mut (*context).uc_sigmask).cast::<u64>() };
    let result = match number {
        // SAFETY: the program's promise to the kernel.
        libc::SYS_rt_sigprocmask => unsafe { signals::change_mask(mask, arguments) },
        // SAFETY: the same.
        libc::SYS_rt_sigaction => unsafe { signals::change_action(arguments) },
        // SAFETY: the same.
        _ if signals::waits(number) => unsafe { signals::wait(number, arguments) },
        // SAFETY: the same.
        _ if !IS_OWN.load(Relaxed) => unsafe { raw::call(number as usize, arguments) },
        // SAFETY: the same.
        _ => unsafe { calls::serve(number, arguments) },
    };
    registers[libc::REG_RAX as usize] = result as i64;
}

/// The least number of a file that may be the pager's.
fn own_file_min() -> u32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a record of ours.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if limit.rlim_cur > u64::from(OWN_FILE_MIN) + 100 { OWN_FILE_MIN } else { 3 }
}

/// Allows what the comparison does not hold for.
fn allow_unless(code: u32, k: u32) -> [sock_filter; 2] {
    [sock_filter { jt: 1, ..continue_if(code, k, 0) }, return_code(libc::SECCOMP_RET_ALLOW)]
}

/// Returns `with` if the comparison holds.
fn return_if(code: u32, k: u32, with: u32) -> [sock_filter; 2] {
    [continue_if(code, k, 1), return_code(with)]
}

/// Traps a system call with this number if the comparison holds of an argument's lower half.
fn trap_if(number: i64, argument: usize, code: u32, k: u32) -> [sock_filter; 5] {
    let [compare, trap] = return_if(code, k, TRAP);
    [
        load(offset_of!(libc::seccomp_data, nr)),
        continue_if(libc::BPF_JEQ, number as u32, 3),
        load(offset_of!(libc::seccomp_data, args) + 8 * argument),
        compare,
        trap,
    ]
}

fn filter(code: &Range<usize>) -> Vec<sock_filter> {
    let pointer = offset_of!(libc::seccomp_data, instruction_pointer);
    let halves = |address: usize| [address as u32, (address >> 32) as u32];
    let ([low, high], [end, _]) = (halves(code.start), halves(code.end - 1));
    let mut filter = vec![load(offset_of!(libc::seccomp_data, arch))];
    filter.extend(allow_unless(libc::BPF_JEQ, AUDIT_ARCH));
    filter.push(load(pointer + 4));
    filter.extend(allow_unless(libc::BPF_JEQ, high));
    filter.push(load(pointer));
    filter.extend(allow_unless(libc::BPF_JGE, low));
    filter.extend(return_if(libc::BPF_JGT, end, libc::SECCOMP_RET_ALLOW));
    filter.push(load(offset_of!(libc::seccomp_data, nr)));
    for number in TRAPPED {
        filter.extend(return_if(libc::BPF_JEQ, number as u32, TRAP));
    }
    // Its flags lie in memory. C libraries and Go take the older one where this one is missing.
    let missing = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    filter.extend(return_if(libc::BPF_JEQ, libc::SYS_clone3 as u32, missing));
    for (number, argument) in [(libc::SYS_close, 0), (libc::SYS_dup2, 1), (libc::SYS_dup3, 1)] {
        filter.extend(trap_if(number, argument, libc::BPF_JGE, own_file_min()));
    }
    let with_masks = [
        (libc::SYS_ppoll, 3),
        (libc::SYS_pselect6, 5),
        (libc::SYS_epoll_pwait, 4),
        (libc::SYS_epoll_pwait2, 4),
    ];
    for (number, argument) in with_masks {
        filter.extend(trap_if(number, argument, libc::BPF_JSET, u32::MAX));
    }
    // Threads, and processes that use the same memory until they run another program, are the
    // kernel's. The rest are copies of the process.
    let mut copies = trap_if(libc::SYS_clone, 0, libc::BPF_JSET, libc::CLONE_VM as u32);
    (copies[3].jt, copies[3].jf) = (1, 0);
    filter.extend(copies);
    filter.push(return_code(libc::SECCOMP_RET_ALLOW));
    filter
}
