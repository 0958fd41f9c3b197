//! From the library's loading to the moment when the program's memory is paged.

use crate::own_threads::register_own_thread;
use crate::paged_memory::{self, Memory, PagedMemory};
use crate::report::{fail, print};
use crate::{fork, libc_functions, protected, shutdown};
use core::sync::atomic::Ordering;
use std::sync::Arc;
use traceless_pager::paging::{
    Client, Config, CounterFile, Counters, Error, PIN_PROGRAM_THREADS, Pager, Result, Settings,
    SharedCounters, VARIABLE, Wrapper,
};

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
    let counters: SharedCounters = match &settings.counters {
        Some(folder) => Arc::new(CounterFile::create(folder)?),
        None => Arc::new(Box::<Counters>::default()),
    };
    counters.limit.store(settings.fault_limit, Ordering::Relaxed);
    let config = Config {
        frames: settings.resident,
        policy: settings.policy,
        overflow: settings.overflow,
        pin_threads: PIN_PROGRAM_THREADS,
        pace: settings.pace,
        evict_method: settings.evict_method,
        lock: settings.lock,
        start: settings.start,
        counters,
        activity: settings.open_activity()?,
        on_thread: register_own_thread,
        on_failure: fail,
        ..Config::default()
    };
    let (scheme, recording) = settings.build()?;
    let pager = Pager::start(scheme, config)?;
    shutdown::continue_when_wrapper_ends(settings.starter);
    let wrapper = settings.counters.as_deref().and_then(Wrapper::find);
    shutdown::start_watcher(register_own_thread, wrapper).map_err(|_| {
        Error::Configuration("no thread can be started that looks for the program's end")
    })?;
    let (start, len) = (pager.start_of_memory() as usize, pager.len());
    PagedMemory::new(Memory::Own(pager, recording), start, len, settings.lock)
}
