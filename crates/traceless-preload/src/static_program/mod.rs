//! Programs that are linked statically, which load no library: the dynamic loader starts this
//! library in their place, and it loads them. It is what `exec` would be to them.
//!
//! Their memory is paged as that of other programs, with their static data and their first stack
//! (`first_stack`: arguments, environment and the kernel's values, as a program finds them).
//! `image` puts their segments into memory.

mod first_stack;
mod image;

use self::image::Image;
use crate::report::print;
use crate::system_calls::{calls, libc_context, own_program, trap};
use core::ffi::{CStr, c_char, c_int};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The exit code when the program cannot be loaded.
const NOT_LOADED: c_int = 126;

/// Loads and runs the program. The arguments are the name of its stand-in, its path, and its own.
///
/// # Safety
/// Lists that end with null pointers. Nothing else of the process runs.
pub unsafe fn run(arguments: *mut *mut c_char, environment: *mut *mut c_char) -> ! {
    // SAFETY: the caller's promise; `traceless run` passes that many.
    let path = unsafe { *arguments.add(1) };
    if path.is_null() {
        leave_unloaded("traceless", "there is no program to load");
    }
    // SAFETY: an argument, here and below.
    let text = unsafe { CStr::from_ptr(path) };
    let name = OsStr::from_bytes(text.to_bytes());
    // SAFETY: the lists.
    match unsafe { prepare(name, text, arguments.add(2), environment) } {
        // SAFETY: the program's first instruction, and a stack for it.
        Ok((entry, stack)) => unsafe { libc_context::leave(entry, stack) },
        Err(why) => leave_unloaded(&name.display().to_string(), &why),
    }
}

fn leave_unloaded(name: &str, why: &str) -> ! {
    print(&format!("{name}: {why}"));
    // SAFETY: it ends the process at once.
    unsafe { libc::_exit(NOT_LOADED) }
}

/// Makes all ready for the program's first instruction. Returns that, and the stack pointer.
unsafe fn prepare(
    path: &OsStr,
    text: &CStr,
    arguments: *mut *mut c_char,
    environment: *mut *mut c_char,
) -> Result<(usize, usize), String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let image = Image::load(&file).map_err(|e| e.to_string())?;
    drop(file);
    own_program::set_path(whole_path(path, text));
    // SAFETY: the caller's promise.
    let stack = unsafe { first_stack::build(&image, text, arguments, environment) };
    let stack = stack.map_err(|e| format!("there is no room for its stack: {e}"))?;
    name_process(path);
    calls::begin(image.range.end, image.range.end + image.break_room);
    trap::install(core::slice::from_ref(&image.code))?;
    Ok((image.entry, stack))
}

/// The program's whole path, to which the kernel's link would lead.
fn whole_path(path: &OsStr, text: &CStr) -> &'static CStr {
    let whole = std::fs::canonicalize(path).ok();
    let whole = whole.and_then(|path| CString::new(path.into_os_string().into_vec()).ok());
    Box::leak(whole.unwrap_or_else(|| text.to_owned()).into_boxed_c_str())
}

/// Gives the process the name that the kernel would have given it.
fn name_process(path: &OsStr) {
    let name = path.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let mut text = [0; 16];
    let len = name.len().min(text.len() - 1);
    text[..len].copy_from_slice(&name[..len]);
    // SAFETY: a text of 16 bytes that ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, text.as_ptr()) };
}
