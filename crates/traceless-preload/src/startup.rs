//! From the library's loading to the moment when the program's memory is paged.

use crate::paged_memory::{self, Memory, PagedMemory};
use crate::report::{fail, print};
use crate::{fork, libc_functions, own_pager, protected};
use traceless_pager::paging::{Client, Result, Settings, VARIABLE};

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

extern "C" fn init() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    libc_functions::find_all();
    protected::protect_large_memory();
    let started = Settings::decode(&text).and_then(|settings| start(&settings));
    protected::wipe_stack();
    match started {
        Ok(memory) => {
            paged_memory::set(memory);
            paged_memory::note_unpaged();
        }
        Err(e) => fail(&e),
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = fini;

/// Completes what is recorded. Later page moves are not.
extern "C" fn fini() {
    paged_memory::note_unpaged();
    let Some(recording) = paged_memory::recording() else { return };
    if let Err(e) = recording.finish() {
        print(&format!("the trace is not complete: {e}"));
    }
}

fn start(settings: &Settings) -> Result<PagedMemory> {
    if let Some(name) = &settings.pager {
        let client = Client::connect(name, settings.pages, settings.lock)?;
        let (start, len) = (client.start_of_memory() as usize, client.len());
        fork::register_handlers();
        return PagedMemory::new(Memory::OtherProcess(client), start, len, settings.lock);
    }
    let own = own_pager::start(settings)?;
    let (start, len) = (own.pager.start_of_memory() as usize, own.pager.len());
    fork::register_handlers();
    PagedMemory::new(Memory::Own(own), start, len, settings.lock)
}
