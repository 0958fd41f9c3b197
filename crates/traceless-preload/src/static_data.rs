//! Variables of the program and of its libraries, which lie where their files are mapped: they are
//! copied to memory that is paged, at the same addresses, before the program begins.
//!
//! The variables of objects that the pager uses stay in ordinary memory: a thread serving faults
//! must not wait for one. This library's references say which objects it uses: the C library, the
//! loader, and any other one that replaces functions of these, also for the C library.

use crate::advice::mprotect;
use crate::libc_functions::functions_found;
use crate::mappings::mmap;
use crate::own_threads::has_one_other_thread;
use crate::paged_memory::paged;
use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::ptr::copy_nonoverlapping;
use libc::Elf64_Phdr;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{Ranges, mapped_range, without_signals};

/// A loaded object.
struct Object {
    base: usize,
    table: &'static [Elf64_Phdr],
}

/// Pages the variables of all objects that are loaded so far, where a thread of this process is the
/// pager. Called before the program begins, by its only thread.
pub fn page_all() {
    let has_own_pager = paged().is_some_and(|paged| paged.own_pager().is_some());
    if !has_own_pager || !has_one_other_thread() {
        return;
    }
    let objects = loaded();
    let own = page_all as *const () as usize;
    let Some(this) = objects.iter().find(|object| object.contains(own)) else { return };
    let mut used = this.references();
    used.extend(functions_found());
    used.push(own);
    // What is called calls further functions: a program may have a `malloc` of its own, and another
    // preloaded library may replace functions of the C library. The program is the first object; it
    // calls all of them.
    loop {
        let count = used.len();
        for object in objects.iter().skip(1) {
            if used.iter().any(|&address| object.executes(address)) {
                used.extend(object.references());
            }
        }
        used.sort_unstable();
        used.dedup();
        if used.len() <= count {
            break;
        }
    }
    let protections = Protections::read();
    for object in &objects {
        // What matters is code: variables that a program shares with the C library, as
        // `environ`, are not the pager's.
        let code: Vec<_> = used.iter().filter(|&&address| object.executes(address)).collect();
        // Programs at fixed addresses have jumps to functions of the C library, by which all
        // objects call these functions.
        let slots: Option<Vec<usize>> = code.into_iter().map(|&at| slot_of_jump(at)).collect();
        if let Some(slots) = slots {
            without_signals(|| object.page(&slots, &protections));
        }
    }
}

fn loaded() -> Vec<Object> {
    unsafe extern "C" fn add(
        object: *mut libc::dl_phdr_info,
        _: libc::size_t,
        all: *mut c_void,
    ) -> c_int {
        // SAFETY: the C library's description of an object, with a table that stays as long as it.
        let object = unsafe {
            let object = &*object;
            let len = usize::from(object.dlpi_phnum);
            let table = core::slice::from_raw_parts(object.dlpi_phdr, len);
            Object { base: object.dlpi_addr as usize, table }
        };
        // SAFETY: the caller's list.
        unsafe { (*all.cast::<Vec<Object>>()).push(object) };
        0
    }
    let mut all = Vec::new();
    // SAFETY: the function has that type, and the list lives as long as the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut all).cast()) };
    all
}

impl Object {
    fn parts(&self, kind: u32) -> impl Iterator<Item = &Elf64_Phdr> {
        self.table.iter().filter(move |part| part.p_type == kind)
    }

    /// Where a part lies in memory.
    fn range(&self, part: &Elf64_Phdr) -> Range<usize> {
        let start = self.base.wrapping_add(part.p_vaddr as usize);
        start..start + part.p_memsz as usize
    }

    fn contains(&self, address: usize) -> bool {
        self.parts(libc::PT_LOAD).any(|part| self.range(part).contains(&address))
    }

    /// Whether an address is in the object's code.
    fn executes(&self, address: usize) -> bool {
        let mut code = self.parts(libc::PT_LOAD).filter(|part| part.p_flags & libc::PF_X != 0);
        code.any(|part| self.range(part).contains(&address))
    }

    /// The addresses of functions and variables that the object uses, which the loader has looked
    /// up.
    fn references(&self) -> Vec<usize> {
        const KINDS: [u64; 2] = if cfg!(target_arch = "x86_64") { [6, 7] } else { [1025, 1026] };
        const DT_PLTRELSZ: usize = 2;
        const DT_RELA: usize = 7;
        const DT_RELASZ: usize = 8;
        const DT_JMPREL: usize = 23;
        let word = |at: usize| {
            // SAFETY: words of a loaded object's tables.
            unsafe { (at as *const usize).read_unaligned() }
        };
        let Some(dynamic) = self.parts(libc::PT_DYNAMIC).next() else { return Vec::new() };
        let dynamic = self.range(dynamic);
        let entry = |kind: usize| {
            let mut entries = dynamic.clone().step_by(16);
            entries.find(|&at| word(at) == kind).map(|at| word(at + 8))
        };
        // The loader may have added the base, or not.
        let address = |at: usize| if at < self.base { at + self.base } else { at };
        let tables = [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)];
        let entries = tables.into_iter().filter_map(|(start, len)| {
            let start = address(entry(start)?);
            Some((start..start + entry(len)?).step_by(24))
        });
        let is_reference = |&at: &usize| KINDS.contains(&(word(at + 8) as u64 & 0xffff_ffff));
        let slots = entries.flatten().filter(is_reference);
        slots.map(|at| word(self.base.wrapping_add(word(at)))).collect()
    }

    /// Copies the object's variables to memory that is paged, but for pages with these addresses.
    fn page(&self, kept: &[usize], protections: &Protections) {
        let is_variables = |part: &&Elf64_Phdr| {
            part.p_flags & (libc::PF_W | libc::PF_X) == libc::PF_W && part.p_memsz > 0
        };
        for part in self.parts(libc::PT_LOAD).filter(is_variables) {
            let range = self.range(part);
            let mut pages = Ranges::default();
            pages.add(range.start / PAGE_LEN * PAGE_LEN..range.end.next_multiple_of(PAGE_LEN));
            for address in kept {
                let page = address / PAGE_LEN * PAGE_LEN;
                pages.remove(page..page + PAGE_LEN);
            }
            if !pages.iter().all(|pages| replace(&pages, protections)) {
                return;
            }
        }
    }
}

/// What the process's mappings may be used for.
#[derive(Default)]
struct Protections {
    /// Memory of the process's own that can be read.
    readable: Ranges,
    /// The part of it that cannot be written: the loader has relocated it.
    constant: Vec<Range<usize>>,
}

impl Protections {
    fn read() -> Self {
        let mut all = Self::default();
        let list = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        for line in list.lines() {
            let Some(range) = mapped_range(line) else { continue };
            let kinds = line.split_ascii_whitespace().nth(1).unwrap_or_default();
            if kinds == "rw-p" || kinds == "r--p" {
                all.readable.add(range.clone());
            }
            if kinds == "r--p" {
                all.constant.push(range);
            }
        }
        all
    }
}

/// The address of the word from which the code at an address jumps, if it is a mere jump.
fn slot_of_jump(at: usize) -> Option<usize> {
    /// The beginning of code that may be called, where the processor checks that.
    const BRANCH_TARGET: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const BOUNDED: u8 = 0xf2;
    const JUMP: [u8; 2] = [0xff, 0x25];
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    // SAFETY: code that can be called is longer than a jump.
    let code = unsafe { core::slice::from_raw_parts(at as *const u8, 12) };
    let mut rest = code.strip_prefix(&BRANCH_TARGET).unwrap_or(code);
    rest = rest.strip_prefix(&[BOUNDED]).unwrap_or(rest);
    let (distance, _) = rest.strip_prefix(&JUMP)?.split_first_chunk::<4>()?;
    let end = at + code.len() - (rest.len() - 6);
    Some(end.wrapping_add_signed(i32::from_le_bytes(*distance) as isize))
}

/// Puts memory that is paged in the place of pages, with the same contents and protection.
fn replace(pages: &Range<usize>, protections: &Protections) -> bool {
    /// Bytes that are copied at a time: variables may be sparse, and longer than all memory.
    const PIECE: usize = 64 * PAGE_LEN;
    if !protections.readable.covers(pages) {
        return false;
    }
    let mut copy = vec![0; PIECE];
    for start in pages.clone().step_by(PIECE) {
        let piece = start..pages.end.min(start + PIECE);
        let len = piece.len();
        if !replace_piece(&piece, &mut copy[..len]) {
            return false;
        }
    }
    for constant in &protections.constant {
        let part = constant.start.max(pages.start)..constant.end.min(pages.end);
        if !part.is_empty() {
            // SAFETY: it was readable only.
            unsafe { mprotect(part.start as *mut c_void, part.len(), libc::PROT_READ) };
        }
    }
    true
}

fn replace_piece(piece: &Range<usize>, copy: &mut [u8]) -> bool {
    let (start, len) = (piece.start as *mut u8, piece.len());
    // SAFETY: mapped memory that can be read, which nothing else uses meanwhile.
    copy.copy_from_slice(unsafe { core::slice::from_raw_parts(start, len) });
    let usable = libc::PROT_READ | libc::PROT_WRITE;
    let fixed = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the contents are put back before anything uses them.
    if unsafe { mmap(start.cast(), len, usable, fixed, -1, 0) } == libc::MAP_FAILED {
        return false;
    }
    for (nth, page) in copy.chunks(PAGE_LEN).enumerate() {
        if page.iter().any(|&byte| byte != 0) {
            // SAFETY: a page of the memory above.
            unsafe { copy_nonoverlapping(page.as_ptr(), start.add(nth * PAGE_LEN), page.len()) };
        }
    }
    true
}
