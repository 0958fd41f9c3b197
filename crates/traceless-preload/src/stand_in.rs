//! Whether the dynamic loader was started with a stand-in for a program that is linked statically,
//! which this library then loads.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use traceless_pager::paging::StaticProgram;

static LOADS_PROGRAM: AtomicBool = AtomicBool::new(false);

/// Whether this library loads a program that is linked statically.
pub fn loads_program() -> bool {
    LOADS_PROGRAM.load(Relaxed)
}

/// Looks at the arguments of the process. Called once, at the beginning.
///
/// # Safety
/// A list that ends with a null pointer.
pub unsafe fn look_at(arguments: *mut *mut c_char) {
    // SAFETY: the caller's promise.
    LOADS_PROGRAM.store(unsafe { is_stand_in(arguments) }, Relaxed);
}

/// Whether the dynamic loader was started with the library that stands for a program which is
/// linked statically.
///
/// # Safety
/// A list that ends with a null pointer.
unsafe fn is_stand_in(arguments: *mut *mut c_char) -> bool {
    // A program that names the loader has its address here.
    // SAFETY: it has no conditions.
    if unsafe { libc::getauxval(libc::AT_BASE) } != 0 || !cfg!(target_arch = "x86_64") {
        return false;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { (*arguments).as_ref().map(|name| CStr::from_ptr(name)) };
    name.is_some_and(|name| name.to_bytes() == StaticProgram::STAND_IN.as_bytes())
}
