//! The system calls that the kernel refuses to a program if its pages cannot be pinned, so that no
//! data is lost without an error. Calls of the C library are served otherwise where that is
//! possible, and never get here; these are system calls that bypass it:
//!
//! | system call | the program's error | why |
//! |---|---|---|
//! | `io_uring_setup` and its kin | `ENOSYS`, as of old kernels | registered buffers are pinned |
//! | files with `O_DIRECT` | `EINVAL`, as of some file systems | the disk writes to the page |
//! | `openat2` | `ENOSYS` | its flags cannot be looked at |
//! | `socket` of `AF_XDP` | `EAFNOSUPPORT` | the network card writes to the page |
//!
//! A filter of the kernel (seccomp) refuses them. Threads, copies of the process and programs that
//! it runs inherit the filter; their memory is paged in the same way.

use core::ffi::{c_int, c_ulong};
use core::mem::offset_of;
use libc::{sock_filter, sock_fprog};

/// With this number of entries, the error of `io_uring_setup` shows whether the filter is
/// installed.
const PROBE: u32 = 0x7472_6163;

/// The filter's error for the probe; the kernel itself never returns it.
const PRESENT: c_int = libc::ESHUTDOWN;

/// The numbers of `io_uring_setup` and the two calls after it, and of `openat2`: on all processors.
const IO_URING: u32 = 425;
const OPENAT2: u32 = 437;

/// The system calls of x86-64's other ABI (x32) have the same numbers with this bit.
const X32_BIT: u32 = 1 << 30;

pub const AUDIT_ARCH: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

/// From now on the calls are refused to this thread, and to all threads and processes it starts.
pub fn install() -> Result<(), &'static str> {
    if is_installed() {
        return Ok(());
    }
    let filter = filter();
    let program = sock_fprog {
        len: u16::try_from(filter.len()).expect("a filter is short"),
        filter: filter.as_ptr().cast_mut(),
    };
    if load_filter(&program) || (forbid_new_privileges() && load_filter(&program)) {
        return Ok(());
    }
    Err("the kernel cannot refuse io_uring to the program (seccomp), which would lose data there")
}

/// Whether the process that started this program has installed the filter.
fn is_installed() -> bool {
    // SAFETY: without parameters it fails, with or without the filter.
    let probed = unsafe { libc::syscall(libc::SYS_io_uring_setup, PROBE, 0_usize) };
    // SAFETY: this thread's own.
    probed == -1 && unsafe { *libc::__errno_location() } == PRESENT
}

pub fn load_filter(program: &sock_fprog) -> bool {
    let flags: c_ulong = 0;
    // SAFETY: a program of that length, which the kernel copies.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, program) == 0 }
}

/// An unprivileged process may install a filter only if no program that it runs gains privileges.
pub fn forbid_new_privileges() -> bool {
    // SAFETY: it changes what `exec` does, and nothing else.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 }
}

/// A condition of a rule: it tests the lower half of an argument, which holds flags and names.
struct Condition {
    argument: usize,
    code: u32,
    value: u32,
}

/// Whether the argument equals `value`.
fn equals(argument: usize, value: u32) -> Condition {
    Condition { argument, code: libc::BPF_JEQ, value }
}

/// Whether the argument has any of these bits.
fn has_bits(argument: usize, bits: u32) -> Condition {
    Condition { argument, code: libc::BPF_JSET, value: bits }
}

pub fn instruction(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

pub fn load(at: usize) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32)
}

pub fn return_code(with: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, with)
}

/// Goes on if the comparison holds; else skips `else_skip` instructions.
pub fn continue_if(code: u32, k: u32, else_skip: usize) -> sock_filter {
    let jf = u8::try_from(else_skip).expect("a rule is short");
    sock_filter { jf, ..instruction(libc::BPF_JMP | code | libc::BPF_K, k) }
}

/// Refuses the system call with this number with `errno` if all conditions hold. Else the next rule
/// is evaluated.
fn rule(number: u32, conditions: &[Condition], errno: c_int) -> Vec<sock_filter> {
    let condition_len = 2;
    let mut rule = vec![
        load(offset_of!(libc::seccomp_data, nr)),
        instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, !X32_BIT),
        continue_if(libc::BPF_JEQ, number, condition_len * conditions.len() + 1),
    ];
    for (nth, condition) in conditions.iter().enumerate() {
        let rest = condition_len * (conditions.len() - 1 - nth) + 1;
        rule.push(load(offset_of!(libc::seccomp_data, args) + 8 * condition.argument));
        rule.push(continue_if(condition.code, condition.value, rest));
    }
    rule.push(return_code(libc::SECCOMP_RET_ERRNO | errno as u32));
    rule
}

fn filter() -> Vec<sock_filter> {
    let mut filter = rule(IO_URING, &[equals(0, PROBE)], PRESENT);
    for number in [IO_URING, IO_URING + 1, IO_URING + 2, OPENAT2] {
        filter.extend(rule(number, &[], libc::ENOSYS));
    }
    // The other calls have their numbers on this kind of processor only.
    filter.push(load(offset_of!(libc::seccomp_data, arch)));
    filter.push(sock_filter { jt: 1, ..continue_if(libc::BPF_JEQ, AUDIT_ARCH, 0) });
    filter.push(return_code(libc::SECCOMP_RET_ALLOW));
    let direct = libc::O_DIRECT as u32;
    let sets_flags = equals(1, libc::F_SETFL as u32);
    #[cfg(target_arch = "x86_64")]
    filter.extend(rule(libc::SYS_open as u32, &[has_bits(1, direct)], libc::EINVAL));
    filter.extend(rule(libc::SYS_openat as u32, &[has_bits(2, direct)], libc::EINVAL));
    filter.extend(rule(libc::SYS_fcntl as u32, &[sets_flags, has_bits(2, direct)], libc::EINVAL));
    let express = equals(0, libc::AF_XDP as u32);
    filter.extend(rule(libc::SYS_socket as u32, &[express], libc::EAFNOSUPPORT));
    filter.push(return_code(libc::SECCOMP_RET_ALLOW));
    filter
}
