//! Whether Go's runtime is in the program. With cgo it maps memory by the C library, but discards
//! pages by system calls of its own, and relies on zeros afterwards. A page that is away then would
//! come back with its old contents, so what is reserved beside this runtime is not paged.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How many libraries had been loaded when all were looked at.
static LOADED: AtomicU64 = AtomicU64::new(0);
static IS_THERE: AtomicBool = AtomicBool::new(false);

/// The name and the type of the note that Go's linker writes.
const NAME: [u8; 4] = *b"Go\0\0";
const BUILD_ID: u32 = 4;

/// Whether this program or any of its libraries is written in Go.
pub fn has_go_runtime() -> bool {
    if IS_THERE.load(Relaxed) {
        return true;
    }
    let mut loaded = 0_u64;
    // SAFETY: the function has that type, and the number lives as long as the call.
    let found = unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut loaded).cast()) } == FOUND;
    LOADED.store(loaded, Relaxed);
    if found {
        IS_THERE.store(true, Relaxed);
    }
    found
}

const GO_ON: c_int = 0;
const NOTHING_NEW: c_int = 1;
const FOUND: c_int = 2;

/// Looks at one object of the program.
unsafe extern "C" fn look_at(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    loaded: *mut c_void,
) -> c_int {
    // SAFETY: the C library's description of an object, and the caller's number.
    let object = unsafe {
        loaded.cast::<u64>().write((*object).dlpi_adds);
        &*object
    };
    if object.dlpi_adds == LOADED.load(Relaxed) {
        return NOTHING_NEW;
    }
    // SAFETY: the object's table of segments.
    let segments =
        unsafe { core::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let mut notes = segments.iter().filter(|segment| segment.p_type == libc::PT_NOTE);
    let has_go = notes.any(|segment| {
        let start = (object.dlpi_addr + segment.p_vaddr) as *const u8;
        // SAFETY: a segment that is mapped as long as the object, and read only.
        has_go_note(unsafe { core::slice::from_raw_parts(start, segment.p_memsz as usize) })
    });
    if has_go { FOUND } else { GO_ON }
}

/// Whether the note of Go's linker is among these.
fn has_go_note(mut notes: &[u8]) -> bool {
    while let Some((head, rest)) = notes.split_first_chunk::<12>() {
        let number = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|nth| head[at + nth]));
        let [name, contents] = [number(0), number(4)].map(|len| len.next_multiple_of(4) as usize);
        if number(8) == BUILD_ID && rest.starts_with(&NAME) {
            return true;
        }
        notes = rest.get(name + contents..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note with contents of that length.
    fn note(name: &[u8], kind: u32, len: usize) -> Vec<u8> {
        let numbers = [name.len() as u32, len as u32, kind].map(u32::to_ne_bytes).concat();
        let mut note = [&numbers[..], name].concat();
        note.resize(note.len().next_multiple_of(4), 0);
        note.resize(note.len() + len.next_multiple_of(4), 7);
        note
    }

    #[test]
    fn the_note_of_go_is_found_among_notes() {
        let gnu = note(b"GNU\0", 3, 20);
        let go = note(b"Go\0\0", 4, 83);
        assert!(has_go_note(&go) && has_go_note(&[&gnu[..], &go].concat()));
        assert!(!has_go_note(&gnu) && !has_go_note(&[]) && !has_go_note(&gnu[..5]));
        assert!(!has_go_note(&note(b"Go\0\0", 3, 4)));
        assert!(!has_go_runtime(), "this program has none");
    }
}
