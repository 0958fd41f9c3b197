//! From the library's loading to the moment when the program's memory is paged.

use crate::paged_memory::{self, Memory, PagedMemory};
use crate::report::fail;
use crate::{fork, libc_functions, malloc, own_pager, protected, shutdown, stand_in, static_data};
#[cfg(target_arch = "x86_64")]
use crate::{go_program, loader_command, static_program, system_calls};
use core::ffi::{c_char, c_int};
use traceless_pager::paging::{Client, Result, Settings, VARIABLE};

type Init = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char);

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: Init = init;

extern "C" fn init(_: c_int, arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    // SAFETY: the dynamic loader passes the program's lists.
    unsafe { stand_in::look_at(arguments) };
    #[cfg(target_arch = "x86_64")]
    {
        loader_command::prepare();
        system_calls::trap::serve_inherited();
    }
    begin();
    #[cfg(target_arch = "x86_64")]
    if stand_in::loads_program() {
        // SAFETY: the same lists; nothing else of the process runs.
        unsafe { static_program::run(arguments, environment) }
    }
    let _ = environment;
}

fn begin() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    libc_functions::find_all();
    protected::protect_large_memory();
    malloc::find_user();
    let started = Settings::decode(&text).and_then(|settings| start(&settings));
    protected::wipe_stack();
    match started {
        Ok(memory) => {
            paged_memory::set(memory);
            #[cfg(target_arch = "x86_64")]
            go_program::trap();
            static_data::page_all();
            paged_memory::note_unpaged();
        }
        Err(e) => fail(&e),
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = fini;

extern "C" fn fini() {
    shutdown::finish();
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
