//! The confinement of an enclave's process: it keeps only its files, memory and threads.
//!
//! A system call that is not listed ends the process. Some calls fail instead, because libraries
//! make them and can do without: opening files and testing for their existence (for the number of
//! processors, or whether the machine may be a copy), and the newer call that starts threads,
//! because a filter cannot check its arguments.

use crate::error::{Error, Result};
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use std::collections::BTreeMap;

/// Calls on open files, memory, threads and time.
const ALLOWED: [c_long; 34] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_membarrier,
];

/// Calls that fail, each with its error. For the same work some C libraries make older calls, where
/// a processor has them.
const REFUSED: &[(c_long, i32)] = &[
    (libc::SYS_openat, libc::EPERM),
    (libc::SYS_newfstatat, libc::EPERM),
    (libc::SYS_clone3, libc::ENOSYS),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, libc::EPERM),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_stat, libc::EPERM),
];

/// Confines this thread and all threads that it starts. This cannot be undone.
pub fn confine() -> Result {
    for &(call, error) in REFUSED {
        let refused = SeccompAction::Errno(error as u32);
        apply(BTreeMap::from([(call, Vec::new())]), SeccompAction::Allow, refused)?;
    }
    // This filter comes last, because it forbids adding filters.
    apply(allowed(), SeccompAction::KillProcess, SeccompAction::Allow)
}

fn allowed() -> BTreeMap<c_long, Vec<SeccompRule>> {
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    // Another filter lets them fail.
    rules.extend(REFUSED.iter().map(|&(call, _)| (call, Vec::new())));
    // Private memory that cannot be executed.
    let data = masked(2, libc::PROT_EXEC, 0);
    let own = masked(3, libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS);
    rules.insert(libc::SYS_mmap, vec![rule(vec![data.clone(), own])]);
    rules.insert(libc::SYS_mprotect, vec![rule(vec![data])]);
    // Threads, not processes.
    let thread = libc::CLONE_THREAD | libc::CLONE_VM;
    rules.insert(libc::SYS_clone, vec![rule(vec![masked(0, thread, thread)])]);
    // The name of a thread.
    rules.insert(libc::SYS_prctl, vec![rule(vec![masked(0, i32::MAX, libc::PR_SET_NAME)])]);
    rules
}

/// Whether the bits of an argument under `mask` equal `value`.
fn masked(argument: u8, mask: i32, value: i32) -> SeccompCondition {
    let operator = SeccompCmpOp::MaskedEq(mask as u64);
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value as u64)
        .expect("a call has six arguments")
}

fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("there is a condition")
}

fn apply(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result {
    let refused = |_| Error::Store("the system confines no process here (seccomp)");
    let architecture = std::env::consts::ARCH.try_into().map_err(refused)?;
    let filter = SeccompFilter::new(rules, otherwise, matching, architecture).map_err(refused)?;
    let program: BpfProgram = filter.try_into().map_err(refused)?;
    apply_filter(&program)
        .map_err(|_| Error::Store("the system confines no process here (seccomp)"))
}
