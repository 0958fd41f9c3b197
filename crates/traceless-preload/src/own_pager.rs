//! Starting a pager that is a thread of this process: at the beginning, and in copies of it.

use crate::own_threads::register_own_thread;
use crate::paged_memory::OwnPager;
use crate::report::fail;
use crate::{protected, shutdown, stand_in};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use traceless_pager::paging::{
    Config, CounterFile, Counters, Error, Lock, PIN_PROGRAM_THREADS, Pager, PagerThread, PagesCopy,
    Result, Settings, SharedCounters, Wrapper, has_go_runtime,
};

/// Whether all threads of the program are started by functions of this library. Programs that are
/// linked statically, and Go, start threads by themselves.
static STARTS_ALL_THREADS: AtomicBool = AtomicBool::new(false);

/// Starts the pager of a program.
pub fn start(settings: &Settings) -> Result<OwnPager> {
    // In a copy the loader may be locked by a thread that is not there.
    STARTS_ALL_THREADS.store(!stand_in::loads_program() && !has_go_runtime(), Ordering::Relaxed);
    let config = config(settings)?;
    let (scheme, recording) = settings.build()?;
    let pager = Pager::start(scheme, config)?;
    watch_for_end(settings)?;
    Ok(OwnPager { pager, recording, settings: Box::new(settings.clone()) })
}

/// Starts the thread of a pager in a copy of the process, while memory that is missing there is
/// brought one page at a time.
pub fn start_thread_of_copy(settings: &Settings) -> Result<(PagerThread, Config)> {
    let config = config(settings)?;
    Ok((PagerThread::start(&config, true)?, config))
}

/// Has that thread page a copy of the process, which has this copy of the pages.
pub fn start_copy(
    copy: PagesCopy,
    (thread, config): (PagerThread, Config),
    settings: &Settings,
) -> Result<OwnPager> {
    protected::lock_again();
    if settings.lock == Lock::Strict && !protected::is_locked() {
        return Err(Error::Unlocked(rustix::io::Errno::NOMEM));
    }
    let (pager, recording) = copy.start(thread, config)?;
    watch_for_end(settings)?;
    Ok(OwnPager { pager, recording, settings: Box::new(settings.clone()) })
}

/// The configuration of a pager that is a thread of this process.
fn config(settings: &Settings) -> Result<Config> {
    let counters: SharedCounters = match &settings.counters {
        Some(folder) => Arc::new(CounterFile::create(folder)?),
        None => Arc::new(Box::<Counters>::default()),
    };
    counters.limit.store(settings.fault_limit, Ordering::Relaxed);
    Ok(Config {
        frames: settings.resident,
        policy: settings.policy,
        overflow: settings.overflow,
        pin_threads: PIN_PROGRAM_THREADS && STARTS_ALL_THREADS.load(Ordering::Relaxed),
        pace: settings.pace,
        evict_method: settings.evict_method,
        lock: settings.lock,
        start: settings.start,
        counters,
        activity: settings.open_activity()?,
        on_thread: register_own_thread,
        on_failure: fail,
        ..Config::default()
    })
}

fn watch_for_end(settings: &Settings) -> Result {
    shutdown::continue_when_wrapper_ends(settings.starter);
    let wrapper = settings.counters.as_deref().and_then(Wrapper::find);
    shutdown::start_watcher(register_own_thread, wrapper).map_err(|_| {
        Error::Configuration("no thread can be started that looks for the program's end")
    })
}
