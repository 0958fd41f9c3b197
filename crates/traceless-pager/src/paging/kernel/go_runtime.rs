//! Whether Go's runtime is in the program. With cgo it maps memory by the C library, but discards
//! pages by system calls of its own, and relies on zeros afterwards. A page that is away then would
//! come back with its old contents, so what is reserved beside this runtime is not paged, unless
//! its system calls are trapped.

use crate::PAGE_LEN;
use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::OnceLock;

/// How many libraries had been loaded when all were looked at.
static LOADED: AtomicU64 = AtomicU64::new(0);
static IS_THERE: AtomicBool = AtomicBool::new(false);

/// Whether system calls of the program itself are trapped.
static IS_TRAPPED: AtomicBool = AtomicBool::new(false);

/// The name and the type of the note that Go's linker writes.
const NAME: [u8; 4] = *b"Go\0\0";
const BUILD_ID: u32 = 4;

/// Whether this program or any of its libraries is written in Go, and its system calls are not
/// trapped.
pub fn has_go_runtime() -> bool {
    if IS_THERE.load(Relaxed) {
        return true;
    }
    let (mut loaded, mut nth) = (0, 0);
    let found = look_at_objects(|object| {
        (loaded, nth) = (object.dlpi_adds, nth + 1);
        if loaded == LOADED.load(Acquire) {
            return Some(IS_THERE.load(Relaxed));
        }
        // The program is the first object.
        let counts = nth > 1 || !IS_TRAPPED.load(Relaxed);
        let is_go = if nth == 1 { is_program_go(object) } else { has_go(object) };
        (counts && is_go).then_some(true)
    });
    let is_there = found == Some(true);
    if is_there {
        IS_THERE.store(true, Release);
    }
    // Behind it: another thread finds nothing new only once it can find the runtime.
    LOADED.store(loaded, Release);
    is_there
}

/// Where the program's own code is, if it is written in Go: whole pages. Called before the program
/// begins.
pub fn go_code() -> Vec<Range<usize>> {
    let code = look_at_objects(|object| {
        Some(if is_program_go(object) { code_of(object) } else { vec![] })
    });
    code.unwrap_or_default()
}

/// Notes that the system calls of the program itself are trapped.
pub fn note_program_trapped() {
    IS_TRAPPED.store(true, Relaxed);
    IS_THERE.store(false, Relaxed);
    // Libraries behind the program were not looked at.
    LOADED.store(0, Relaxed);
}

/// Looks at the program and its libraries until `look` has a result, which is returned.
fn look_at_objects<T, L: FnMut(&libc::dl_phdr_info) -> Option<T>>(look: L) -> Option<T> {
    unsafe extern "C" fn look_at<T, L: FnMut(&libc::dl_phdr_info) -> Option<T>>(
        object: *mut libc::dl_phdr_info,
        _: libc::size_t,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the C library's description of an object, and the caller's search.
        let (object, (look, result)) = unsafe { (&*object, &mut *search.cast::<(L, Option<T>)>()) };
        *result = look(object);
        c_int::from(result.is_some())
    }
    let mut search = (look, None);
    // SAFETY: the function has that type, and the search lives as long as the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at::<T, L>), (&raw mut search).cast()) };
    search.1
}

/// The parts of an object of that kind, and where each lies.
fn parts(
    object: &libc::dl_phdr_info,
    kind: u32,
) -> impl Iterator<Item = (&libc::Elf64_Phdr, Range<usize>)> {
    // SAFETY: the object's table.
    let table =
        unsafe { core::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    table.iter().filter(move |part| part.p_type == kind).map(|part| {
        let start = (object.dlpi_addr + part.p_vaddr) as usize;
        (part, start..start + part.p_memsz as usize)
    })
}

/// Whether an object is written in Go.
fn has_go(object: &libc::dl_phdr_info) -> bool {
    parts(object, libc::PT_NOTE).any(|(_, range)| {
        // SAFETY: a segment that is mapped as long as the object, and read only.
        has_go_note(unsafe { core::slice::from_raw_parts(range.start as *const u8, range.len()) })
    })
}

/// Whether the program, the first object, is written in Go. Looked at once, before it begins.
fn is_program_go(object: &libc::dl_phdr_info) -> bool {
    static IS_GO: OnceLock<bool> = OnceLock::new();
    *IS_GO.get_or_init(|| has_go(object) || has_build_information(object))
}

/// Whether an object has what Go's linker writes about its build, for which the note may be missing
/// (`-buildid=`).
fn has_build_information(object: &libc::dl_phdr_info) -> bool {
    const MAGIC: &[u8; 14] = b"\xff Go buildinf:";
    const ALIGN: usize = 16;
    let mut data = parts(object, libc::PT_LOAD).filter(|(part, _)| part.p_flags & libc::PF_W != 0);
    data.any(|(part, range)| {
        let start = range.start.next_multiple_of(ALIGN);
        let len = (range.start + part.p_filesz as usize).saturating_sub(start);
        // SAFETY: a segment that is mapped as long as the object; nothing of the program runs yet.
        let bytes = unsafe { core::slice::from_raw_parts(start as *const u8, len) };
        bytes.chunks_exact(ALIGN).any(|chunk| chunk.starts_with(MAGIC))
    })
}

/// Where an object's code is, whole pages.
fn code_of(object: &libc::dl_phdr_info) -> Vec<Range<usize>> {
    let code = parts(object, libc::PT_LOAD).filter(|(part, _)| part.p_flags & libc::PF_X != 0);
    let pages = |Range { start, end }: Range<usize>| {
        start / PAGE_LEN * PAGE_LEN..end.next_multiple_of(PAGE_LEN)
    };
    code.map(|(_, range)| pages(range)).collect()
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
        assert!(!has_go_runtime() && go_code().is_empty(), "this program has none");
    }
}
