//! The stack and the thread of the C library on which this library runs, one thread of the program
//! at a time.
//!
//! A program that is linked statically has its own C library, if any, and its own idea of what the
//! thread register points to; Go's runtime may have, too. The C library that this library is linked
//! to was started on the process's first thread. What belonged to that serves any thread of the
//! program, but the threads that the C library has started.

use super::raw;
use crate::protected;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use traceless_pager::PAGE_LEN;

/// The stack pointer with which functions of this library begin, and the first thread's register.
static STACK: AtomicUsize = AtomicUsize::new(0);
static THREAD: AtomicUsize = AtomicUsize::new(0);

/// Whether the program uses the same C library.
static IS_SHARED: AtomicBool = AtomicBool::new(false);

/// Bytes of a stack that is no thread's, without the page below it that none may access.
const STACK_LEN: usize = 256 << 10;

const ARCH_SET_FS: usize = 0x1002;
const ARCH_GET_FS: usize = 0x1003;

/// Reserves a stack, for a program that uses the same C library. Called on the first thread.
pub fn share() -> Result<(), Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let (len, below) = (STACK_LEN + PAGE_LEN, MapFlags::PRIVATE | MapFlags::FIXED);
    // SAFETY: fresh memory, and its first page, which nothing uses.
    let start = unsafe {
        let start = mmap_anonymous(null_mut(), len, protection, MapFlags::PRIVATE)?;
        mmap_anonymous(start, PAGE_LEN, ProtFlags::empty(), below)?;
        start as usize
    };
    protected::protect(start + PAGE_LEN, STACK_LEN);
    STACK.store(start + len, Relaxed);
    THREAD.store(thread_register(), Relaxed);
    IS_SHARED.store(true, Relaxed);
    Ok(())
}

/// Goes on as the program, at its first instruction, for good.
///
/// # Safety
/// An address of code, and a stack as the kernel makes it.
pub unsafe fn leave(entry: usize, stack: usize) -> ! {
    let here = 0_u64;
    // Callers of this function never go on, but what they hold may be used.
    let below = (&raw const here as usize).saturating_sub(4096) & !63;
    STACK.store(below, Relaxed);
    THREAD.store(thread_register(), Relaxed);
    // SAFETY: the caller's promise. The kernel starts programs with zeros.
    unsafe {
        core::arch::asm!(
            "mov rsp, rsi",
            "xor edx, edx",
            "xor ebp, ebp",
            "xor esi, esi",
            "jmp rdi",
            in("rdi") entry,
            in("rsi") stack,
            options(noreturn),
        )
    }
}

/// Runs `work` on the C library's stack, and as its first thread if this is no thread of the C
/// library. All signals are blocked.
pub fn with_libc<T>(work: impl FnOnce() -> T) -> T {
    let mut task = Task { work: Some(work), done: None };
    // A signal's action may need it in the midst of a fork, which has it.
    let turn = take_turn();
    let own = thread_register();
    let is_librarys = IS_SHARED.load(Relaxed) && is_of_libc(own);
    if !is_librarys {
        set_thread_register(THREAD.load(Relaxed));
    }
    let run = runner_of(&task) as *const () as usize;
    // SAFETY: the stack is used by one thread at a time.
    unsafe { call_on(STACK.load(Relaxed), (&raw mut task).cast(), run) };
    if !is_librarys {
        set_thread_register(own);
    }
    drop(turn);
    task.done.expect("the work was done")
}

/// Keeps other threads from [`with_libc`], unless this thread does.
pub fn take_turn() -> Option<OwnTurn> {
    (TURN.owner.load(Relaxed) != own_thread()).then(|| TURN.take())
}

/// Whether the thread register points to the C library's record of a thread, which begins with its
/// own address, and has it once more.
fn is_of_libc(register: usize) -> bool {
    let record = register as *const usize;
    // SAFETY: the thread register points to that much memory: else a runtime could not use it.
    !record.is_null() && unsafe { *record == register && *record.add(2) == register }
}

/// What runs on the C library's stack, and its result.
struct Task<F, T> {
    work: Option<F>,
    done: Option<T>,
}

impl<F: FnOnce() -> T, T> Task<F, T> {
    extern "C" fn run(task: *mut Self) {
        // SAFETY: a task that nothing else uses meanwhile.
        let task = unsafe { &mut *task };
        task.done = task.work.take().map(|work| work());
    }
}

/// The function that runs a task of that type.
fn runner_of<F: FnOnce() -> T, T>(_: &Task<F, T>) -> extern "C" fn(*mut Task<F, T>) {
    Task::run
}

/// Calls a function with an argument on another stack.
#[unsafe(naked)]
unsafe extern "C" fn call_on(stack: usize, argument: *mut u8, function: usize) {
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rsi",
        "call rdx",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

fn thread_register() -> usize {
    let mut value = 0_usize;
    let into = &raw mut value as usize;
    // SAFETY: it writes the number.
    unsafe { raw::call(libc::SYS_arch_prctl as usize, [ARCH_GET_FS, into, 0, 0, 0, 0]) };
    value
}

fn set_thread_register(value: usize) {
    // SAFETY: a thread's own value, as it was before, or the first thread's.
    unsafe { raw::call(libc::SYS_arch_prctl as usize, [ARCH_SET_FS, value, 0, 0, 0, 0]) };
}

static TURN: Turn = Turn { state: AtomicU32::new(FREE), owner: AtomicI32::new(0) };

/// A lock without the C library.
struct Turn {
    state: AtomicU32,
    /// The thread that has its turn; 0 is none.
    owner: AtomicI32,
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and other threads may wait.
const WAITED_FOR: u32 = 2;

/// The time for which a thread has its turn.
pub struct OwnTurn(&'static Turn);

impl Turn {
    fn take(&'static self) -> OwnTurn {
        if self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            while self.state.swap(WAITED_FOR, Acquire) != FREE {
                self.futex(libc::FUTEX_WAIT, WAITED_FOR);
            }
        }
        self.owner.store(own_thread(), Relaxed);
        OwnTurn(self)
    }

    fn futex(&self, operation: i32, value: u32) {
        let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
        let arguments = [self.state.as_ptr() as usize, operation, value as usize, 0, 0, 0];
        // SAFETY: the number lives as long as the process; without a time limit.
        unsafe { raw::call(libc::SYS_futex as usize, arguments) };
    }
}

impl Drop for OwnTurn {
    fn drop(&mut self) {
        self.0.owner.store(0, Relaxed);
        if self.0.state.swap(FREE, Release) == WAITED_FOR {
            self.0.futex(libc::FUTEX_WAKE, 1);
        }
    }
}

/// The kernel's number of this thread.
fn own_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// A value that only [`with_libc`] gives access to.
pub struct InTurn<T>(UnsafeCell<T>);

// SAFETY: one thread at a time has its turn.
unsafe impl<T> Sync for InTurn<T> {}

impl<T> InTurn<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// # Safety
    /// It is this thread's turn, or the only thread; and no other reference to the value is used.
    #[expect(clippy::mut_from_ref, reason = "one thread at a time")]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}
