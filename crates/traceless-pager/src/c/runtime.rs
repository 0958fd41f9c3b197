//! What stands in for `std` where there is none: the panic handler.

use super::StoreTable;
use core::ffi::{c_char, c_void};
use core::fmt::Write;
use core::hint::spin_loop;
use core::panic::PanicInfo;
use core::ptr;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

/// The function of the pager that was made last, which gets the message of a panic.
static HALT: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static CONTEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

type Halt = unsafe extern "C" fn(*mut c_void, *const c_char);

/// Sets the function that gets the message of a panic from now on.
pub fn halt_with(table: &StoreTable) {
    CONTEXT.store(table.context, Release);
    HALT.store(table.halt.map_or(ptr::null_mut(), |halt| halt as *mut ()), Release);
}

/// Reports the place of a bug of this library, and nothing that could be secret.
#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    let mut why = Text { bytes: [0; 160], len: 0 };
    // What does not fit is left out.
    let _ = write!(why, "a bug in traceless-pager");
    if let Some(place) = info.location() {
        let _ = write!(why, ", {}:{}", place.file(), place.line());
    }
    let halt = HALT.load(Acquire);
    if !halt.is_null() {
        // SAFETY: a function of this type was put there, and nothing else.
        let halt: Halt = unsafe { core::mem::transmute(halt) };
        // SAFETY: the caller's table promises that it may be called; the text ends with a zero.
        unsafe { halt(CONTEXT.load(Acquire), why.bytes.as_ptr().cast()) };
    }
    // The caller's function may return, but a panic must never go on.
    loop {
        spin_loop();
    }
}

/// The compiler's own libraries name this where they are built to unwind. Nothing ever unwinds
/// here, so it is never called.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// A string of C, which always ends with a zero.
struct Text {
    bytes: [u8; 160],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = &mut self.bytes[self.len..159];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}
