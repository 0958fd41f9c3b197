//! Functions of the C library that start threads, processes or another program. Before they do, the
//! thread is released from its processor. And a program that is linked statically is run by the
//! dynamic loader, so that it is paged.
//!
//! Only on this kind of processor can this library intercept them; elsewhere the pager pins no
//! thread.

use crate::affinity::{own_number, unpin_thread};
use crate::libc_functions::{Function, address_of};
use crate::loader_command::{is_needed, loader_command};
use crate::malloc::set_errno;
use crate::report::print;
use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;
use traceless_pager::paging::StaticProgram;

/// The registers with arguments, as they lie on the stack below the return address and further
/// arguments.
#[repr(C)]
struct Registers {
    rax: usize,
    r9: usize,
    r8: usize,
    rcx: usize,
    rdx: usize,
    rsi: usize,
    rdi: usize,
    return_address: usize,
    /// There may be more of them, or none.
    further: [usize; 1],
}

/// Releases this thread, and returns the address of the C library's function that is to run, with
/// the arguments that are to be passed.
unsafe extern "C" fn prepare(function: Function, registers: *mut Registers) -> *mut c_void {
    unpin_thread(own_number(), false);
    // SAFETY: the caller's registers.
    let registers = unsafe { &mut *registers };
    let copies =
        matches!(function, Function::clone) && registers.rdx & libc::CLONE_VM as usize == 0;
    if copies && is_needed() {
        return refuse_copy as *mut c_void;
    }
    // SAFETY: the caller's registers.
    let function = unsafe { registers.with_loader(function) };
    address_of(function)
}

/// In the place of `clone` where it would make a copy of the process, which would lack what is
/// paged.
extern "C" fn refuse_copy() -> c_int {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| print("a copy of the process by clone is refused"));
    set_errno(libc::EINVAL);
    -1
}

/// How a function that runs a program gets its arguments.
enum Arguments {
    /// A list in a register.
    List,
    /// One by one, with a null pointer behind the last; and the environment behind that, or none.
    OneByOne { has_environment: bool },
}

impl Registers {
    /// Has the dynamic loader run a program that is linked statically. Returns the function that
    /// does that.
    unsafe fn with_loader(&mut self, function: Function) -> Function {
        let is_searched = matches!(
            function,
            Function::execvp | Function::execvpe | Function::execlp | Function::posix_spawnp
        );
        let kind = match function {
            Function::execv | Function::execve | Function::execvp | Function::execvpe => {
                Arguments::List
            }
            Function::posix_spawn | Function::posix_spawnp => Arguments::List,
            Function::execl | Function::execlp => Arguments::OneByOne { has_environment: false },
            Function::execle => Arguments::OneByOne { has_environment: true },
            _ => return function,
        };
        let spawns = matches!(function, Function::posix_spawn | Function::posix_spawnp);
        let name = if spawns { self.rsi } else { self.rdi } as *const c_char;
        if name.is_null() || !is_needed() {
            return function;
        }
        // SAFETY: the caller's promise to the function: a text.
        let name = unsafe { CStr::from_ptr(name) };
        let mut room = [0; PATH_MAX];
        let path = if is_searched { find(name, &mut room) } else { Some(name) };
        let Some(path) = path else { return function };
        let list = if spawns { self.r8 } else { self.rsi } as *const *const c_char;
        let command = match kind {
            Arguments::List if list.is_null() => return function,
            // SAFETY: the caller's promise to the function: a list of texts.
            Arguments::List => unsafe { loader_command(path, |nth| *list.add(nth)) },
            // SAFETY: the same, one by one.
            Arguments::OneByOne { .. } => unsafe { loader_command(path, |nth| self.argument(nth)) },
        };
        // What does not fit fails in the C library's function, too.
        let Ok(Some(command)) = command else { return function };
        let (path, command) = (StaticProgram::LOADER.as_ptr() as usize, command as usize);
        match kind {
            Arguments::List if spawns => (self.rsi, self.r8) = (path, command),
            Arguments::List => (self.rdi, self.rsi) = (path, command),
            Arguments::OneByOne { has_environment } => {
                // SAFETY: one argument more follows the last one.
                let count = (0..usize::MAX)
                    .take_while(|&nth| unsafe { !self.argument(nth).is_null() })
                    .count();
                // SAFETY: the same.
                self.rdx = unsafe { self.argument(count + 1) } as usize;
                (self.rdi, self.rsi) = (path, command);
                return if has_environment { Function::execve } else { Function::execv };
            }
        }
        function
    }

    /// The argument of that index after the first, which names the program.
    ///
    /// # Safety
    /// There are that many.
    unsafe fn argument(&self, nth: usize) -> *const c_char {
        let registers = [self.rsi, self.rdx, self.rcx, self.r8, self.r9];
        let further = (&raw const self.further).cast::<usize>();
        // SAFETY: the caller's promise.
        let value = registers.get(nth).copied().unwrap_or_else(|| unsafe { *further.add(nth - 5) });
        value as *const c_char
    }
}

const PATH_MAX: usize = 4096;

/// The file that a name without a slash names (`PATH`), in `room`. `None` if there is none.
fn find<'a>(name: &'a CStr, room: &'a mut [u8; PATH_MAX]) -> Option<&'a CStr> {
    if name.to_bytes().contains(&b'/') {
        return Some(name);
    }
    // SAFETY: the value is used before the program goes on.
    let folders = unsafe {
        let value = libc::getenv(c"PATH".as_ptr());
        if value.is_null() { c"/bin:/usr/bin" } else { CStr::from_ptr(value) }
    };
    let name = name.to_bytes_with_nul();
    let mut len = 0;
    for folder in folders.to_bytes().split(|&byte| byte == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let end = folder.len() + 1 + name.len();
        let Some(path) = room.get_mut(..end) else { continue };
        path[..folder.len()].copy_from_slice(folder);
        path[folder.len()] = b'/';
        path[folder.len() + 1..].copy_from_slice(name);
        let is_found = CStr::from_bytes_with_nul(path)
            .is_ok_and(|path| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok());
        if is_found {
            len = end;
            break;
        }
    }
    CStr::from_bytes_with_nul(&room[..len]).ok()
}

/// Functions that replace the C library's: each calls `prepare`, and jumps to the C library's
/// function. They leave the stack as it was: `vfork` returns to it twice, and it holds further
/// arguments.
macro_rules! spawners {
    ($($name:ident,)*) => {
        $(
            /// As of the C library.
            ///
            /// # Safety
            /// As of the C library.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "push rax",
                    "mov edi, {function}",
                    "mov rsi, rsp",
                    "call {prepare}",
                    "mov r11, rax",
                    "pop rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp r11",
                    function = const Function::$name as usize,
                    prepare = sym prepare,
                )
            }
        )*
    };
}

spawners! {
    pthread_create,
    vfork,
    clone,
    posix_spawn,
    posix_spawnp,
    system,
    popen,
    execl,
    execle,
    execlp,
    execv,
    execve,
    execvp,
    execvpe,
    fexecve,
    execveat,
}
