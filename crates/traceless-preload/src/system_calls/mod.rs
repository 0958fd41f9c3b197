//! System calls that code of the program makes by itself, past the C library: where it is linked
//! statically, and where Go's runtime is.
//!
//! The kernel traps what this code requests of it with respect to memory, files of the pager's, and
//! copies of the process, by a filter of system calls (seccomp) and SIGSYS; the functions of this
//! library that replace the C library's then serve it.
//!
//! | module | what it holds |
//! |---|---|
//! | `trap` | the filter, and the action for SIGSYS |
//! | `calls` | what is done for each system call that is trapped |
//! | `signals` | the program's own masks and actions, which must spare SIGSYS |
//! | `libc_signals` | the same by functions of the C library |
//! | `exec` | other programs that it runs in its place |
//! | `own_program` | the kernel's names for the program |
//! | `libc_context` | stack and thread of the C library, on which this library runs |
//! | `raw` | system calls without the C library |

pub mod calls;
mod exec;
pub mod libc_context;
mod libc_signals;
pub mod own_program;
mod raw;
mod signals;
pub mod trap;
