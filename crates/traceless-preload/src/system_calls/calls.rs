//! Serves the system calls of the program that are trapped, by the functions of this library that
//! replace the C library's.

use super::libc_context::{InTurn, with_libc};
use super::own_program::read_link;
use super::raw::int;
use super::{exec, raw};
use crate::loader_command::{is_other_process, own_process};
use crate::malloc::errno;
use crate::report::print;
use crate::{advice, files, fork, locking, mappings, program_break, shutdown};
use core::ffi::{c_int, c_uint, c_void};
use std::sync::Once;
use traceless_pager::PAGE_LEN;

/// The heap of old behind the program.
struct Break {
    start: usize,
    end: usize,
    /// The end of the memory that is kept for it.
    limit: usize,
}

static BREAK: InTurn<Break> = InTurn::new(Break { start: 0, end: 0, limit: 0 });

/// Notes where the program's heap of old begins, and where it must end.
pub fn begin(start: usize, limit: usize) {
    // SAFETY: no other thread of the program runs yet.
    unsafe { *BREAK.get() = Break { start, end: start, limit } };
}

/// Serves a system call with its arguments. Returns what the kernel would.
///
/// # Safety
/// As of the system call.
pub unsafe fn serve(number: i64, arguments: [usize; 6]) -> isize {
    let [first, second, third, ..] = arguments;
    // SAFETY: the caller's promise, for each.
    unsafe {
        match number {
            libc::SYS_execve => exec::execute(first, second, third),
            libc::SYS_execveat => exec::execute_at(arguments),
            libc::SYS_fork => copy([libc::SIGCHLD as usize, 0, 0, 0, 0, 0]),
            libc::SYS_clone => copy(arguments),
            libc::SYS_exit_group => end(first),
            libc::SYS_munmap if contains_this_stack(first, second) => unmap_later(first, second),
            libc::SYS_close => use_file(number, first, arguments),
            libc::SYS_dup2 | libc::SYS_dup3 => use_file(number, second, arguments),
            libc::SYS_readlink => read_link(number, first, [second, third], arguments),
            libc::SYS_readlinkat => read_link(number, second, [third, arguments[3]], arguments),
            _ => with_libc(|| {
                unmap_stacks_of_ended();
                serve_by_libc(number, arguments)
            }),
        }
    }
}

/// Serves a system call that closes a file, unless that is the pager's. It may take long, so other
/// threads have their turns meanwhile.
unsafe fn use_file(number: i64, file: usize, arguments: [usize; 6]) -> isize {
    if with_libc(|| files::is_own(int(file))) {
        return -(libc::EBADF as isize);
    }
    // SAFETY: the promise of the caller of `serve`.
    unsafe { raw::call(number as usize, arguments) }
}

/// Whether a range has this thread's stack: a thread of musl unmaps its own as it ends.
fn contains_this_stack(start: usize, len: usize) -> bool {
    let here = 0_u8;
    (start..start.saturating_add(len)).contains(&(&raw const here as usize))
}

/// The stacks of threads that are about to end, with the numbers of these threads.
static ENDING_STACKS: InTurn<Vec<(usize, usize, i32)>> = InTurn::new(Vec::new());

/// Has a later call unmap a range with this thread's stack, which is in use until the thread ends.
fn unmap_later(start: usize, len: usize) -> isize {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    with_libc(|| {
        // SAFETY: it is this thread's turn.
        unsafe { ENDING_STACKS.get() }.push((start, len, thread));
    });
    0
}

/// Unmaps the stacks of threads that have ended. It is this thread's turn.
fn unmap_stacks_of_ended() {
    // SAFETY: it is this thread's turn.
    let stacks = unsafe { ENDING_STACKS.get() };
    stacks.retain(|&(start, len, thread)| {
        // SAFETY: it sends no signal.
        let runs = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) } == 0;
        if !runs {
            // SAFETY: the thread has requested it.
            unsafe { mappings::munmap(start as *mut c_void, len) };
        }
        runs
    });
}

/// Serves a system call by the function that replaces the C library's.
unsafe fn serve_by_libc(number: i64, arguments: [usize; 6]) -> isize {
    let [first, len, third, fourth, fifth, sixth] = arguments;
    let address = first as *mut c_void;
    let [file, ints @ ..] = arguments.map(int);
    // SAFETY: the caller's promise, for each.
    let result = unsafe {
        match number {
            libc::SYS_mmap => {
                let offset = sixth.cast_signed() as libc::off_t;
                let kinds = (int(third), int(fourth), int(fifth));
                mappings::mmap(address, len, kinds.0, kinds.1, kinds.2, offset) as isize
            }
            libc::SYS_mremap => {
                let (new_len, to) = (third, fifth as *mut c_void);
                mappings::mremap(address, len, new_len, int(fourth), to) as isize
            }
            libc::SYS_brk => return change_break(first),
            libc::SYS_munmap => mappings::munmap(address, len) as isize,
            libc::SYS_mprotect => advice::mprotect(address, len, ints[1]) as isize,
            libc::SYS_madvise => advice::madvise(address, len, ints[1]) as isize,
            libc::SYS_mlock => locking::mlock(address, len) as isize,
            libc::SYS_mlock2 => locking::mlock2(address, len, third as c_uint) as isize,
            libc::SYS_munlock => locking::munlock(address, len) as isize,
            libc::SYS_mlockall => locking::mlockall(file) as isize,
            libc::SYS_munlockall => locking::munlockall() as isize,
            libc::SYS_close_range => {
                files::close_range(first as c_uint, len as c_uint, ints[1]) as isize
            }
            _ => return -(libc::ENOSYS as isize),
        }
    };
    if result == -1 { -(errno() as isize) } else { result }
}

/// Serves `brk`: moves the end of the heap of old, which is paged. Returns where it ends.
fn change_break(to: usize) -> isize {
    // SAFETY: it is this thread's turn.
    let Break { start, end, limit } = unsafe { BREAK.get() };
    if *limit == 0 {
        // The C library's, where this is a program with one.
        // SAFETY: the promise of the caller of `serve`.
        unsafe {
            program_break::brk(to as *mut c_void);
            return raw::call(libc::SYS_brk as usize, [0; 6]);
        }
    }
    let pages = |end: usize| end.next_multiple_of(PAGE_LEN);
    if (*start..=*limit).contains(&to) && set_pages(pages(*end), pages(to)) {
        *end = to;
    }
    end.cast_signed()
}

/// Maps the pages between two ends, or keeps them for later.
fn set_pages(from: usize, to: usize) -> bool {
    const KIND: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let is_more = to > from;
    let (protection, flags) = if is_more {
        (libc::PROT_READ | libc::PROT_WRITE, KIND)
    } else {
        (libc::PROT_NONE, KIND | libc::MAP_NORESERVE)
    };
    let (start, len) = (from.min(to) as *mut c_void, from.abs_diff(to));
    // SAFETY: memory that is kept for this, and not used, or given back by the program.
    len == 0 || unsafe { mappings::mmap(start, len, protection, flags, -1, 0) } == start
}

/// Serves `fork`, and `clone` where it makes a copy of the process.
unsafe fn copy([flags, stack, parent_number, child_number, ..]: [usize; 6]) -> isize {
    const SETS: usize = libc::CLONE_PARENT_SETTID as usize;
    const SETS_IN_CHILD: usize = libc::CLONE_CHILD_SETTID as usize;
    const CLEARS_IN_CHILD: usize = libc::CLONE_CHILD_CLEARTID as usize;
    const KNOWN: usize = SETS | SETS_IN_CHILD | CLEARS_IN_CHILD;
    if flags & !KNOWN != libc::SIGCHLD as usize || stack != 0 {
        return with_libc(|| {
            static REPORTED: Once = Once::new();
            REPORTED.call_once(|| print("a copy of the process with flags of clone is refused"));
            -(libc::EINVAL as isize)
        });
    }
    let process = with_libc(|| {
        // SAFETY: the promise of the caller of `serve`.
        let process = unsafe { fork::fork() } as isize;
        if process == -1 { -(errno() as isize) } else { process }
    });
    // SAFETY: the caller's promise.
    unsafe {
        if process == 0 {
            if flags & SETS_IN_CHILD != 0 {
                (child_number as *mut c_int).write_unaligned(own_process());
            }
            if flags & CLEARS_IN_CHILD != 0 {
                raw::call(libc::SYS_set_tid_address as usize, [child_number, 0, 0, 0, 0, 0]);
            }
        } else if process > 0 && flags & SETS != 0 {
            (parent_number as *mut c_int).write_unaligned(process as c_int);
        }
    }
    process
}

/// Serves `exit_group`.
fn end(status: usize) -> ! {
    if !is_other_process() {
        with_libc(shutdown::finish);
    }
    loop {
        // SAFETY: the program requests it.
        unsafe { raw::call(libc::SYS_exit_group as usize, [status, 0, 0, 0, 0, 0]) };
    }
}
