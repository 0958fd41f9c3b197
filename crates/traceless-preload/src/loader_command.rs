//! The command by which a program that is linked statically runs: the dynamic loader, with
//! arguments before the program's own.
//!
//! Its arguments lie in memory that is used again: a child of `vfork`, which shares the memory of
//! its parent, could not free it.

use crate::paged_memory::paged;
use core::ffi::{CStr, c_char, c_int};
use core::ptr::null;
use core::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use rustix::fs::{Access, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use traceless_pager::paging::{ElfHeaders, Segment, StaticProgram};

/// The path of this library's file, once it was looked up.
static LIBRARY: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// This process, as far as this library has noticed; a child of `vfork` has another number.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Notes which process this is, and looks up what commands need. Called at the beginning.
pub fn prepare() {
    note_process();
    // SAFETY: an address of this library's, and a record of ours.
    unsafe {
        let mut object: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr((&raw const LIBRARY).cast(), &raw mut object) != 0 {
            LIBRARY.store(object.dli_fname.cast_mut(), Relaxed);
        }
    }
}

/// Notes which process this is: also in each copy of it.
pub fn note_process() {
    PROCESS.store(own_process(), Relaxed);
}

/// Whether this thread is not of the process that was noted, as in a child of `vfork`.
pub fn is_other_process() -> bool {
    PROCESS.load(Relaxed) != own_process()
}

/// The number of this process.
pub fn own_process() -> c_int {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The arguments with which the [loader](StaticProgram::LOADER) runs the program that `path` names,
/// if it is linked statically: a list that ends with a null pointer. `argument` gives the
/// arguments, of which the one behind the last is null. They stay until this thread calls this
/// function again, or the process runs the program. Fails with `E2BIG` or `ENOMEM`.
///
/// # Safety
/// Each argument is a text, or null.
pub unsafe fn loader_command(
    path: &CStr,
    argument: impl Fn(usize) -> *const c_char,
) -> Result<Option<*const *const c_char>, c_int> {
    let library = LIBRARY.load(Relaxed);
    let can = |path: &CStr, access| rustix::fs::access(path, access).is_ok();
    if library.is_null() || !can(path, Access::EXEC_OK) || !may_be_static(path) {
        return Ok(None);
    }
    // SAFETY: the loader's name of this library.
    let library_path = unsafe { CStr::from_ptr(library) };
    // Under another root (`chroot`) they may be missing.
    if !can(StaticProgram::LOADER, Access::EXEC_OK) || !can(library_path, Access::READ_OK) {
        return Ok(None);
    }
    // SAFETY: the loader's name of this library, and the caller's promise.
    let text = |text: *const c_char| OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes());
    let Some(program) = StaticProgram::at(Path::new(OsStr::from_bytes(path.to_bytes()))) else {
        return Ok(None);
    };
    let first = argument(0);
    let name = if first.is_null() { OsStr::new("") } else { text(first) };
    let own = program.loader_arguments(Path::new(text(library)), name);
    let rest = if first.is_null() {
        0
    } else {
        (1..usize::MAX).take_while(|&n| !argument(n).is_null()).count()
    };
    let pointers = 1 + own.len() + rest + 1;
    let texts: usize = own.iter().map(|text| text.len() + 1).sum();
    let memory = Room::take().ok_or(libc::ENOMEM)?.memory(pointers * 8 + texts)?;
    let list = memory as *mut *const c_char;
    // SAFETY: the memory is that long, and nothing else uses it.
    unsafe {
        list.write(StaticProgram::LOADER.as_ptr());
        let mut into = list.add(pointers).cast::<u8>();
        for (nth, text) in own.iter().enumerate() {
            list.add(1 + nth).write(into.cast());
            into.copy_from_nonoverlapping(text.as_bytes().as_ptr(), text.len());
            into.add(text.len()).write(0);
            into = into.add(text.len() + 1);
        }
        for nth in 0..rest {
            list.add(1 + own.len() + nth).write(argument(1 + nth));
        }
        list.add(pointers - 1).write(null());
    }
    Ok(Some(list))
}

/// Whether a program of this process that is linked statically is run by the loader: where a thread
/// of this process is the pager.
pub fn is_needed() -> bool {
    paged().is_some_and(|paged| paged.own_pager().is_some())
}

/// Whether a file may be a program that is linked statically, or a script. It allocates nothing, as
/// most programs are neither, and run from anywhere.
fn may_be_static(path: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return false };
    let mut head = [0; 4096];
    let len = rustix::io::pread(&file, &mut head[..], 0).unwrap_or(0);
    let head = &head[..len];
    if !head.starts_with(b"\x7fELF") {
        return head.starts_with(b"#!");
    }
    let kinds = ElfHeaders::kinds_in(head);
    kinds.is_none_or(|mut kinds| kinds.all(|kind| kind != Segment::INTERPRETER))
}

/// Memory for one list of arguments.
struct Room {
    /// The thread that uses it; 0 if none does. The kernel clears it when a child of `vfork` runs a
    /// program, or ends.
    user: AtomicI32,
    memory: AtomicUsize,
    len: AtomicUsize,
}

/// As many as threads may run programs at the same time.
static ROOMS: [Room; 1024] = [const {
    Room { user: AtomicI32::new(0), memory: AtomicUsize::new(0), len: AtomicUsize::new(0) }
}; 1024];

/// Added to the number of a thread of another process, which is not looked for.
const OTHER: i32 = 1 << 30;

impl Room {
    /// A room for this thread, which keeps it.
    fn take() -> Option<&'static Self> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let is_other = is_other_process();
        let user = if is_other { thread | OTHER } else { thread };
        let own = ROOMS.iter().find(|room| room.user.load(Relaxed) == user);
        let take = |room: &&Room| {
            let before = room.user.load(Relaxed);
            is_free(before) && room.user.compare_exchange(before, user, Acquire, Relaxed).is_ok()
        };
        let room = own.or_else(|| ROOMS.iter().find(take))?;
        if is_other {
            // SAFETY: the number stays as long as the memory. A child of `vfork` has none so far.
            unsafe { libc::syscall(libc::SYS_set_tid_address, room.user.as_ptr()) };
        }
        Some(room)
    }

    /// Memory of at least `len` bytes.
    fn memory(&self, len: usize) -> Result<usize, c_int> {
        let before = (self.memory.load(Relaxed), self.len.load(Relaxed));
        if before.1 >= len {
            return Ok(before.0);
        }
        let len = len.next_multiple_of(4096);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: fresh memory at an address that the kernel chooses; and this room's, which is not
        // used.
        unsafe {
            let mapped = mmap_anonymous(core::ptr::null_mut(), len, protection, MapFlags::PRIVATE);
            let memory = mapped.map_err(|_| libc::E2BIG)? as usize;
            self.memory.store(memory, Release);
            self.len.store(len, Release);
            if before.1 > 0 {
                let _ = munmap(before.0 as *mut _, before.1);
            }
            Ok(memory)
        }
    }
}

/// Whether no thread of that number uses a room.
fn is_free(user: i32) -> bool {
    if user == 0 || user & OTHER != 0 {
        return user == 0;
    }
    // SAFETY: it sends no signal.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, own_process(), user, 0) };
    found != 0
}
