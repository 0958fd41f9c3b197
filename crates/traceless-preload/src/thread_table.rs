//! The C library's table of a thread's variables (the dynamic thread vector). The C library and
//! this one read it whenever they use a variable of the thread. It is allocated as the thread
//! begins, so it is in paged memory, but for the first thread's: while a copy of the process has no
//! pager, the thread that forks uses a table in ordinary memory.

use crate::paged_memory::is_paged;
use core::cell::{Cell, UnsafeCell};
use core::hint::black_box;
use core::ptr::copy_nonoverlapping;

/// An entry: the number of entries, that of changes, or an object's variables.
type Entry = [usize; 2];

/// Entries for which there is room.
const ENTRIES_MAX: usize = 1024;

struct TableRoom(UnsafeCell<[Entry; ENTRIES_MAX]>);

// SAFETY: one thread at a time forks.
unsafe impl Sync for TableRoom {}

static ROOM: TableRoom = TableRoom(UnsafeCell::new([[0; 2]; ENTRIES_MAX]));

/// A table in ordinary memory in the place of this thread's, until it is dropped.
pub struct OrdinaryTable {
    paged: *mut Entry,
    entries: usize,
}

thread_local! {
    static VARIABLE: Cell<u8> = const { Cell::new(0) };
}

impl OrdinaryTable {
    /// Has the C library bring this thread's table up to date, which may allocate a longer one:
    /// objects with variables may have been loaded since the thread has used any.
    pub fn prepare() {
        VARIABLE.set(black_box(VARIABLE.get()));
    }

    /// Puts it there, if this thread's is in paged memory. One thread at a time.
    pub fn take_place() -> Option<Self> {
        let table = table();
        if !is_paged(table as usize, size_of::<Entry>()) {
            return None;
        }
        // SAFETY: the record of this thread points behind the table's first entry, which is the
        // number of entries behind the second; and one thread at a time.
        unsafe {
            let paged = table.sub(1);
            let entries = (*paged)[0].saturating_add(2);
            if entries > ENTRIES_MAX {
                return None;
            }
            let room = ROOM.0.get().cast::<Entry>();
            copy_nonoverlapping(paged, room, entries);
            set_table(room.add(1));
            Some(Self { paged, entries })
        }
    }
}

impl Drop for OrdinaryTable {
    fn drop(&mut self) {
        // SAFETY: the table that was there, which is as long; and one thread at a time.
        unsafe {
            copy_nonoverlapping(ROOM.0.get().cast::<Entry>(), self.paged, self.entries);
            set_table(self.paged.add(1));
        }
    }
}

/// What the thread register leads to: the second entry of the table.
fn table() -> *mut Entry {
    let table: *mut Entry;
    // SAFETY: the C library's record of this thread has the address there.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, fs:[8]", out(reg) table, options(nostack, readonly));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mrs {0}, tpidr_el0", "ldr {0}, [{0}]", out(reg) table,
            options(nostack, readonly));
    }
    table
}

/// # Safety
/// The second entry of a table with what this thread's has.
unsafe fn set_table(table: *mut Entry) {
    // SAFETY: as above.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov fs:[8], {}", in(reg) table, options(nostack));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mrs {1}, tpidr_el0", "str {0}, [{1}]", in(reg) table, out(reg) _,
            options(nostack));
    }
}
