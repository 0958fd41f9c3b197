//! The functions of the C library that this library replaces.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

macro_rules! functions {
    ($($name:ident,)*) => {
        /// A replaced function.
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
    __cxa_thread_atexit_impl,
    __register_atfork,
    _Fork,
    brk,
    clone,
    close,
    close_range,
    closefrom,
    daemon,
    dlopen,
    dup2,
    dup3,
    epoll_pwait,
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
    ppoll,
    pselect,
    pthread_create,
    pthread_getaffinity_np,
    pthread_setaffinity_np,
    pthread_sigmask,
    sbrk,
    sched_getaffinity,
    sched_setaffinity,
    sigaction,
    signal,
    sigprocmask,
    sigsuspend,
    system,
    vfork,
}

static ADDRESSES: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(null_mut()) }; NAMES.len()];

/// Looks up all functions. The pager's threads must not look any up later: the program may hold the
/// loader's lock, and wait for a page.
pub fn find_all() {
    for (name, address) in NAMES.iter().zip(&ADDRESSES) {
        address.store(resolve(name), Relaxed);
    }
}

/// The addresses of all functions that were looked up.
pub fn functions_found() -> impl Iterator<Item = usize> {
    ADDRESSES.iter().map(|address| address.load(Relaxed) as usize)
}

/// The address of a C library function.
pub extern "C" fn address_of(function: Function) -> *mut c_void {
    let entry = &ADDRESSES[function as usize];
    if entry.load(Relaxed).is_null() {
        // Either nothing is paged, or a library that was loaded earlier calls before `find_all` has
        // run.
        entry.store(resolve(NAMES[function as usize]), Relaxed);
    }
    let address = entry.load(Relaxed);
    assert!(!address.is_null(), "the C library has what it always had");
    address
}

/// A C library function, as a function of the given type.
macro_rules! libc_function {
    ($name:ident, $kind:ty) => {
        // That function has this type; this stands in unsafe blocks only.
        core::mem::transmute::<*mut core::ffi::c_void, $kind>($crate::libc_functions::address_of(
            $crate::libc_functions::Function::$name,
        ))
    };
}
pub(crate) use libc_function;

fn resolve(name: &CStr) -> *mut c_void {
    // SAFETY: a name, and the objects behind this one.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}
