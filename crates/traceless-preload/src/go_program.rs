//! Programs that are written in Go and have the dynamic loader. Go's runtime maps memory by the C
//! library if the program has code in C, and else by system calls of its own; it discards pages by
//! system calls in any case, and relies on zeros afterwards.

use crate::paged_memory::paged;
use crate::report::print;
use crate::system_calls::{libc_context, trap};
use traceless_pager::paging::{go_code, note_program_trapped};

/// Has the system calls of the program's own code trapped, if it is written in Go. If that fails,
/// what its runtime reserves will not be paged.
pub fn trap() {
    if paged().is_none_or(|paged| paged.own_pager().is_none()) {
        return;
    }
    let code = go_code();
    if code.is_empty() {
        return;
    }
    let trapped = libc_context::share().map_err(|_| "there is no memory for a stack");
    match trapped.and_then(|()| trap::install(&code)) {
        Ok(()) => note_program_trapped(),
        Err(why) => print(why),
    }
}
