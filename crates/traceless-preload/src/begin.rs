//! From the library's loading to the moment when the program's memory is paged.

use crate::{ending, fork, kept, refusals, theirs};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{
    Client, Config, CounterFile, Counters, Error, HOLDS_PROGRAMS, Heap, Lock, Pager, Pages,
    Recording, Result, Settings, SharedCounters, VARIABLE, Way, Wrapper,
};

/// What a pager that failed leaves as the program's status.
const FAILED: i32 = 125;

/// The paged memory, and who has which part of it.
pub struct Paged {
    memory: Memory,
    heap: Mutex<Heap>,
    start: usize,
    len: usize,
}

/// Who pages it.
enum Memory {
    /// A thread of this process.
    Own(Pager, Option<Recording>),
    /// Another process.
    Served(Client),
}

static PAGED: OnceLock<Paged> = OnceLock::new();

/// The threads of the pager, by what they call themselves; 0 is none.
static OWN_THREADS: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

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
        // Nobody else begins it.
        Ok(paged) => drop(PAGED.set(paged)),
        Err(e) => fail(&e),
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// What was recorded is written out. Pages that move later are not seen.
extern "C" fn end() {
    let Some(Memory::Own(_, Some(recording))) = PAGED.get().map(|paged| &paged.memory) else {
        return;
    };
    if let Err(e) = recording.finish() {
        say(&format!("the trace is not complete: {e}"));
    }
}

fn start(settings: &Settings) -> Result<Paged> {
    if let Some(name) = &settings.pager {
        let client = Client::connect(name, settings.pages, settings.lock)?;
        let (start, len) = (client.start_of_memory() as usize, client.len());
        fork::see_all();
        return Paged::new(Memory::Served(client), start, len, settings.lock);
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
    Paged::new(Memory::Own(pager, recording), start, len, settings.lock)
}

/// Ends the program: a page that it waits for cannot come.
pub fn fail(error: &Error) -> ! {
    say(&format!("paging cannot go on: {error}"));
    // SAFETY: it ends the process at once, without any of the program's own endings.
    unsafe { libc::_exit(FAILED) }
}

/// One line for whoever runs the program.
pub fn say(what: &str) {
    let line = format!("traceless: {what}\n");
    // There is nobody to tell that nobody could be told.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

pub fn own_name() -> usize {
    // SAFETY: it has no conditions.
    unsafe { libc::pthread_self() as usize }
}

fn note_own_thread() {
    let name = own_name();
    let vacant = |slot: &&AtomicUsize| {
        slot.compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    assert!(OWN_THREADS.iter().any(|slot| vacant(&slot)), "the pager has few threads");
    kept::keep_stack();
}

/// Threads of the pager, by what they call themselves.
fn own_names() -> impl Iterator<Item = usize> {
    let names = OWN_THREADS.iter().map(|slot| slot.load(Ordering::Relaxed));
    names.take_while(|&name| name != 0)
}

/// How many threads are the pager's.
pub fn own_threads() -> usize {
    own_names().count()
}

/// Whether this thread is one of them.
pub fn is_own_thread() -> bool {
    let name = own_name();
    own_names().any(|other| other == name)
}

/// The paged memory, for the program's own threads, once there is any.
pub fn paged() -> Option<&'static Paged> {
    let paged = PAGED.get()?;
    (!is_own_thread()).then_some(paged)
}

/// The paged memory that an address lies in, and how far from its start.
pub fn paged_at(address: usize) -> Option<(&'static Paged, usize)> {
    let paged = PAGED.get()?;
    let at = address.checked_sub(paged.start)?;
    (at < paged.len).then_some((paged, at))
}

/// Whether any byte of a range is paged.
pub fn is_paged(address: usize, len: usize) -> bool {
    PAGED.get().is_some_and(|paged| {
        address < paged.start + paged.len && address.saturating_add(len) > paged.start
    })
}

impl Paged {
    fn new(memory: Memory, start: usize, len: usize, lock: Lock) -> Result<Self> {
        let heap = Mutex::new(Heap::new(start, len / PAGE_LEN));
        let paged = Self { memory, heap, start, len };
        if !paged.is_locked() {
            match lock {
                Lock::Strict => return Err(Error::Unlocked(rustix::io::Errno::NOMEM)),
                Lock::Auto => {
                    say("resident pages may be swapped out: the limit of locked memory is too low");
                }
                Lock::Off => {}
            }
        }
        if paged.loses_pinned() {
            refusals::begin().map_err(Error::Configuration)?;
        }
        Ok(paged)
    }

    /// Whether it has so many bytes from `at` on.
    pub fn reaches(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Who has what.
    pub fn heap(&self) -> MutexGuard<'_, Heap> {
        // Nothing panics while it holds the records, but for bugs, which end the program.
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a byte of it.
    pub fn address(&self, at: usize) -> *mut u8 {
        (self.start + at) as *mut u8
    }

    /// Pages that nobody has any more become zeros, and others may have them.
    pub fn release(&self, pages: Pages) {
        self.wipe_in_copies(pages, false);
        self.forget(pages);
        self.heap().give(pages);
    }

    /// Pages become zeros.
    pub fn forget(&self, pages: Pages) {
        let Pages { first, count } = pages;
        let discarded = match &self.memory {
            // SAFETY: the program has freed them, unmapped them, or asked for it.
            Memory::Own(own, _) => unsafe { own.discard(first, count) },
            // SAFETY: as above.
            Memory::Served(client) => unsafe { client.discard(first, count) },
        };
        if let Err(e) = discarded {
            fail(&e);
        }
    }

    /// Runs `work`, which changes how memory is mapped, while no page comes or leaves. It is told
    /// where paged memory begins, and how long it is with what the pager has beside it.
    pub fn hold<T>(&self, work: impl FnOnce(usize, usize) -> T) -> T {
        match &self.memory {
            Memory::Own(own, _) => own.hold(work),
            Memory::Served(client) => client.hold(work),
        }
    }

    /// Locks what is resident in memory, from now on, or tells why not.
    pub fn lock(&self) -> core::result::Result<(), rustix::io::Errno> {
        match &self.memory {
            Memory::Own(own, _) => {
                own.lock()?;
                kept::lock_again();
                if kept::is_locked() { Ok(()) } else { Err(rustix::io::Errno::NOMEM) }
            }
            Memory::Served(client) => client.lock(),
        }
    }

    /// Whether that is locked.
    pub fn is_locked(&self) -> bool {
        match &self.memory {
            // Levels of a tree that are in memory hold pages, too.
            Memory::Own(own, _) => own.is_locked() && kept::is_locked(),
            Memory::Served(client) => client.is_locked(),
        }
    }

    /// Pages will be zeros in copies of the process, or what they are here.
    pub fn wipe_in_copies(&self, Pages { first, count }: Pages, wipes: bool) {
        // Where a thread of the program pages it there are no copies.
        if let Memory::Served(client) = &self.memory
            && let Err(e) = client.wipe_in_copies(first, count, wipes)
        {
            fail(&e);
        }
    }

    /// Lets a thread of the program run where the program wants, for some faults or for good.
    pub fn let_go(&self, thread: u32, for_good: bool) {
        match &self.memory {
            Memory::Own(own, _) => own.let_go(thread, for_good),
            Memory::Served(client) => client.let_go(thread, for_good),
        }
    }

    /// Whether a page that is pinned may leave, so that what a device writes to it is lost.
    pub fn loses_pinned(&self) -> bool {
        match &self.memory {
            Memory::Own(own, _) => own.way() != Way::Move,
            Memory::Served(_) => true,
        }
    }

    /// The other process that pages it, if it is one.
    pub fn client(&self) -> Option<&Client> {
        match &self.memory {
            Memory::Own(..) => None,
            Memory::Served(client) => Some(client),
        }
    }
}
