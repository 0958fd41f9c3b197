//! The stack and the thread of the C library on which this library runs. The program has its own C
//! library, if any, and its own idea of what the thread register points to. The C library that this
//! library is linked to was started on the process's first thread, which then went on as the
//! program; what belonged to it serves any thread of the program, one at a time.

use super::raw;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// The stack pointer of the first thread when it became the program, and its thread register.
static STACK: AtomicUsize = AtomicUsize::new(0);
static THREAD: AtomicUsize = AtomicUsize::new(0);

const ARCH_SET_FS: usize = 0x1002;
const ARCH_GET_FS: usize = 0x1003;

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

/// Runs `work` as the C library's first thread. All signals are blocked, and this is no thread of
/// the C library, but one of the program.
pub fn with_libc<T>(work: impl FnOnce() -> T) -> T {
    let mut task = Task { work: Some(work), done: None };
    let turn = TURN.take();
    let own = thread_register();
    set_thread_register(THREAD.load(Relaxed));
    let run = runner_of(&task) as *const () as usize;
    // SAFETY: the stack is used by one thread at a time.
    unsafe { call_on(STACK.load(Relaxed), (&raw mut task).cast(), run) };
    set_thread_register(own);
    drop(turn);
    task.done.expect("the work was done")
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

static TURN: Turn = Turn(AtomicU32::new(FREE));

/// A lock without the C library.
struct Turn(AtomicU32);

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and other threads may wait.
const WAITED_FOR: u32 = 2;

/// The time for which a thread has its turn.
struct OwnTurn<'a>(&'a Turn);

impl Turn {
    fn take(&self) -> OwnTurn<'_> {
        if self.0.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            while self.0.swap(WAITED_FOR, Acquire) != FREE {
                self.futex(libc::FUTEX_WAIT, WAITED_FOR);
            }
        }
        OwnTurn(self)
    }

    fn futex(&self, operation: i32, value: u32) {
        let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
        let arguments = [self.0.as_ptr() as usize, operation, value as usize, 0, 0, 0];
        // SAFETY: the number lives as long as the process; without a time limit.
        unsafe { raw::call(libc::SYS_futex as usize, arguments) };
    }
}

impl Drop for OwnTurn<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(FREE, Release) == WAITED_FOR {
            self.0.futex(libc::FUTEX_WAKE, 1);
        }
    }
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
