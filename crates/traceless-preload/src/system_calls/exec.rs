//! Other programs that the program runs. The filter of system calls goes on in them, so a program
//! that is linked statically, which may lie at the same addresses, is loaded by this library, too.

use super::libc_context::with_libc;
use super::{own_program, raw};
use crate::loader_command::loader_command;
use core::ffi::{CStr, c_char};
use traceless_pager::paging::StaticProgram;

/// Serves `execve`.
///
/// # Safety
/// As of the system call.
pub unsafe fn execute(path: usize, arguments: usize, environment: usize) -> isize {
    let execute = |path, arguments| {
        let arguments = [path, arguments, environment, 0, 0, 0];
        // SAFETY: the caller's promise, or texts and a list of ours.
        unsafe { raw::call(libc::SYS_execve as usize, arguments) }
    };
    if path == 0 || arguments == 0 {
        return execute(path, arguments);
    }
    // SAFETY: the caller's promise.
    let is_own = unsafe { own_program::is_own_program(path as *const c_char) };
    let path = if is_own { own_program::path() as usize } else { path };
    let list = arguments as *const *const c_char;
    // SAFETY: the caller's promise: a text, and a list of texts that ends with a null pointer.
    let command = with_libc(|| unsafe {
        loader_command(CStr::from_ptr(path as *const c_char), |nth| *list.add(nth))
    });
    match command {
        Ok(None) => execute(path, arguments),
        Ok(Some(list)) => execute(StaticProgram::LOADER.as_ptr() as usize, list as usize),
        Err(errno) => -(errno as isize),
    }
}

/// Serves `execveat`.
///
/// # Safety
/// As of the system call.
pub unsafe fn execute_at(arguments: [usize; 6]) -> isize {
    let [folder, path, list, environment, flags, _] = arguments;
    if flags == 0 && path != 0 {
        // SAFETY: the caller's promise.
        let first = unsafe { *(path as *const u8) };
        if first == b'/' || raw::int(folder) == libc::AT_FDCWD {
            // SAFETY: the caller's promise.
            return unsafe { execute(path, list, environment) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { raw::call(libc::SYS_execveat as usize, arguments) }
}
