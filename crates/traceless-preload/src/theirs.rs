//! The functions of the C library that ours take the place of.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

macro_rules! functions {
    ($($name:ident,)*) => {
        /// One of them.
        #[expect(non_camel_case_types, reason = "they are called so")]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub enum Function {
            $($name,)*
        }

        const NAMES: [&CStr; [$(Function::$name),*].len()] = [$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("it ends with the only zero"),
            }
        ),*];
    };
}

functions! {
    __register_atfork,
    _Fork,
    clone,
    close,
    close_range,
    closefrom,
    daemon,
    dlopen,
    dup2,
    dup3,
    execl,
    execle,
    execlp,
    execv,
    execve,
    execveat,
    execvp,
    execvpe,
    fcntl,
    fcntl64,
    fexecve,
    fork,
    forkpty,
    open,
    open64,
    openat,
    openat64,
    popen,
    posix_spawn,
    posix_spawnp,
    pthread_create,
    pthread_getaffinity_np,
    pthread_setaffinity_np,
    sched_getaffinity,
    sched_setaffinity,
    system,
    vfork,
}

static FOUND: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(null_mut()) }; NAMES.len()];

/// Finds all of them. The threads of the pager must not look for any later: the program may hold
/// the lock that it takes, and wait for a page.
pub fn find_all() {
    for (name, found) in NAMES.iter().zip(&FOUND) {
        found.store(look_for(name), Relaxed);
    }
}

/// Where one of them is.
pub extern "C" fn address_of(function: Function) -> *mut c_void {
    let known = &FOUND[function as usize];
    if known.load(Relaxed).is_null() {
        // Nothing is paged, or what is loaded before this library asks before all were found.
        known.store(look_for(NAMES[function as usize]), Relaxed);
    }
    let found = known.load(Relaxed);
    assert!(!found.is_null(), "the C library has what it always had");
    found
}

/// One of them, as a function of that type.
macro_rules! theirs {
    ($name:ident, $kind:ty) => {
        // That function has this type; this stands in unsafe blocks only.
        core::mem::transmute::<*mut core::ffi::c_void, $kind>($crate::theirs::address_of(
            $crate::theirs::Function::$name,
        ))
    };
}
pub(crate) use theirs;

fn look_for(name: &CStr) -> *mut c_void {
    // SAFETY: a name, and the objects behind this one.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}
