//! From the library's loading to the moment when the program's memory is paged.

use crate::own::note_own_thread;
use crate::paged::{self, Memory, PagedMemory};
use crate::report::{fail, say};
use crate::{ending, fork, kept, theirs};
use core::sync::atomic::Ordering;
use std::sync::Arc;
use traceless_pager::paging::{
    Client, Config, CounterFile, Counters, Error, HOLDS_PROGRAMS, Pager, Result, Settings,
    SharedCounters, VARIABLE, Wrapper,
};

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    theirs::find_all();
    kept::keep_large();
    let started = Settings::decode(&text).and_then(|settings| start(&settings));
    kept::wipe_stack();
    match started {
        Ok(memory) => paged::set(memory),
        Err(e) => fail(&e),
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Completes the recording. Later page moves are not recorded.
extern "C" fn end() {
    let Some(recording) = paged::recording() else { return };
    if let Err(e) = recording.finish() {
        say(&format!("the trace is not complete: {e}"));
    }
}

fn start(settings: &Settings) -> Result<PagedMemory> {
    if let Some(name) = &settings.pager {
        let client = Client::connect(name, settings.pages, settings.lock)?;
        let (start, len) = (client.start_of_memory() as usize, client.len());
        fork::see_all();
        return PagedMemory::new(Memory::Served(client), start, len, settings.lock);
    }
    let counters: SharedCounters = match &settings.counters {
        Some(folder) => Arc::new(CounterFile::create(folder)?),
        None => Arc::new(Box::<Counters>::default()),
    };
    counters.limit.store(settings.counted, Ordering::Relaxed);
    let config = Config {
        frames: settings.resident,
        policy: settings.policy,
        overflow: settings.overflow,
        holds: HOLDS_PROGRAMS,
        way: settings.way,
        lock: settings.lock,
        start: settings.start,
        counters,
        on_thread: note_own_thread,
        on_failure: fail,
        ..Config::default()
    };
    let (scheme, recording) = settings.build()?;
    let pager = Pager::start(scheme, config)?;
    ending::follow(settings.first);
    let wrapper = settings.counters.as_deref().and_then(Wrapper::find);
    ending::look_for_it(note_own_thread, wrapper).map_err(|_| {
        Error::Configuration("no thread can be started that looks for the program's end")
    })?;
    let (start, len) = (pager.start_of_memory() as usize, pager.len());
    PagedMemory::new(Memory::Own(pager, recording), start, len, settings.lock)
}
