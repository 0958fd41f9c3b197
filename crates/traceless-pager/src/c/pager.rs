//! One pager in its caller's memory, and which calls may run at the same time.

use super::heap::CallersHeap;
use super::plan::Plan;
use super::store::{Callbacks, secret_from};
use super::{Refusal, StoreTable};
use crate::Page;
use crate::scheme::{NoJournal, PageScheme, RefreshPool};
use crate::slots::Buffer;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use traceless::error::Error;
use zeroize::Zeroize;

/// What a pager's memory begins with. It distinguishes a pager from other memory.
const MARK: u64 = u64::from_le_bytes(*b"TRLSPAGE");

/// Bytes for what does not grow with the number of pages: ciphers, buffers, and the allocator's
/// records.
const FIXED_BYTES: usize = 24 << 10;

/// Bytes that a helper takes: its buffer, and the allocator's records.
const HELPER_BYTES: usize = size_of::<Exclusive<Buffer>>() + crate::PAGE_LEN + 256;

/// The beginning of a pager's memory. Its heap is the rest.
#[repr(C)]
pub struct Head {
    mark: u64,
    len: usize,
    heap: CallersHeap,
    pager: Option<Box<CPager>>,
}

impl Head {
    /// Bytes of memory that a pager takes.
    pub fn len_for(plan: &Plan) -> usize {
        let helpers = plan.helpers as usize * HELPER_BYTES;
        size_of::<Self>() + FIXED_BYTES + helpers + plan.scheme_size
    }

    /// Makes a pager in `len` bytes of memory.
    ///
    /// # Safety
    ///
    /// The same as for [`traceless_pager_init`](super::traceless_pager_init).
    pub unsafe fn place(
        memory: *mut c_void,
        len: usize,
        plan: &Plan,
        table: &StoreTable,
    ) -> Result<(), Refusal> {
        let head = NonNull::new(memory.cast::<Self>()).filter(|head| head.is_aligned());
        let head = head.ok_or(Refusal::Invalid)?;
        if len < Self::len_for(plan) {
            return Err(Refusal::TooSmall);
        }
        // SAFETY: as the caller promises.
        let (store, seed) =
            unsafe { (Callbacks::new(table, plan.store_size)?, secret_from(table)?) };
        #[cfg(not(any(feature = "std", test)))]
        super::runtime::halt_with(table);
        // SAFETY: the memory is ours, aligned, and long enough.
        let placed = unsafe {
            head.write(Self { mark: MARK, len, heap: CallersHeap::empty(), pager: None });
            let rest = head.cast::<u8>().add(size_of::<Self>());
            let head = &mut *head.as_ptr();
            head.heap.give(NonNull::slice_from_raw_parts(rest, len - size_of::<Self>()));
            let built = {
                let _inside = head.heap.enter();
                plan.build(store, &seed).map(|built| Box::new(CPager::new(plan, built)))
            };
            built.map(|pager| head.pager = Some(pager))
        };
        placed.map_err(|error| {
            // SAFETY: the memory is the pager's, and nothing of it is in use any more.
            unsafe { wipe(memory, len) };
            refusal_of(&error)
        })
    }

    /// The head in that memory, if it holds a pager.
    ///
    /// # Safety
    ///
    /// `memory` is null, or aligned and holds a pager, which is there as long as what is returned.
    pub unsafe fn at<'a>(memory: *mut c_void) -> Result<&'a Self, Refusal> {
        let head = NonNull::new(memory.cast::<Self>()).filter(|head| head.is_aligned());
        let head = head.ok_or(Refusal::Invalid)?;
        // SAFETY: as the caller promises; where a pager was, there is no mark any more.
        unsafe {
            if *head.cast::<u64>().as_ref() == MARK {
                Ok(head.as_ref())
            } else {
                Err(Refusal::Invalid)
            }
        }
    }

    /// Ends the pager in that memory.
    ///
    /// # Safety
    ///
    /// The same as for [`Head::at`], and no other code uses the pager.
    pub unsafe fn destroy(memory: *mut c_void) -> Result<(), Refusal> {
        // SAFETY: as the caller promises.
        let len = unsafe { Self::at(memory)?.len };
        let head = memory.cast::<Self>();
        // SAFETY: as the caller promises; the heap outlives what is in it.
        unsafe {
            let pager = (*head).pager.take();
            {
                let _inside = (*head).heap.enter();
                drop(pager);
            }
            wipe(memory, len);
        }
        Ok(())
    }

    /// The most bytes that the pager has used.
    pub fn used(&self) -> usize {
        size_of::<Self>() + self.heap.most_used()
    }

    /// Puts the page `out` from `frame` into the store, and the page `wanted` into `frame`.
    pub fn swap(
        &self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> Result<(), Refusal> {
        let pager = self.pager()?;
        if [out, wanted].into_iter().flatten().any(|page| page >= pager.pages)
            || out.is_some() && out == wanted
        {
            return Err(Refusal::Invalid);
        }
        let mut working = pager.work()?;
        let _inside = self.heap.enter();
        let scheme = &mut working.get().scheme;
        let swapped = scheme.swap(out, wanted, frame).and_then(|()| scheme.settle());
        swapped.map_err(|error| {
            let refusal = refusal_of(&error);
            pager.failed.store(refusal != Refusal::Misplaced, Relaxed);
            refusal
        })
    }

    /// Forgets a page: its contents do not matter any more.
    pub fn forget(&self, page: u64) -> Result<(), Refusal> {
        let pager = self.pager()?;
        if page >= pager.pages {
            return Err(Refusal::Invalid);
        }
        pager.work()?.get().scheme.forget(page);
        Ok(())
    }

    /// Does up to `at_most` of the postponed refreshes, and returns how many it did.
    pub fn eager_step(&self, at_most: u32) -> Result<c_int, Refusal> {
        let pager = self.pager()?;
        let Some(pool) = &pager.refresh_pool else { return Ok(0) };
        let (mut working, mut done) = (pager.work()?, 0);
        while done < at_most && pool.refresh_one(&NoJournal, &mut working.get().buffer) {
            done += 1;
        }
        Ok(c_int::try_from(done).unwrap_or(c_int::MAX))
    }

    /// Does one postponed refresh, as one of several threads, and returns how many it did.
    pub fn refresh_one(&self, helper: u32) -> Result<c_int, Refusal> {
        let pager = self.pager()?;
        let helper = pager.helpers.get(helper as usize).ok_or(Refusal::Invalid)?;
        let mut buffer = helper.take().ok_or(Refusal::Busy)?;
        let pool = pager.refresh_pool.as_ref();
        Ok(c_int::from(pool.is_some_and(|pool| pool.refresh_one(&NoJournal, buffer.get()))))
    }

    fn pager(&self) -> Result<&CPager, Refusal> {
        self.pager.as_deref().ok_or(Refusal::Invalid)
    }
}

/// Overwrites the memory with zeros.
///
/// # Safety
///
/// No code uses the memory.
unsafe fn wipe(memory: *mut c_void, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts_mut(memory.cast::<u8>(), len) }.zeroize();
}

/// Something that one caller at a time may use. A second caller is refused, not kept waiting: it
/// may be the same thread, in a fault within a fault.
struct Exclusive<T> {
    taken: AtomicBool,
    of: UnsafeCell<T>,
}

// SAFETY: it is given to one at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// A guard: the value is taken, and is free again when this is dropped.
struct ExclusiveGuard<'a, T>(&'a Exclusive<T>);

impl<T> Exclusive<T> {
    fn new(of: T) -> Self {
        Self { taken: AtomicBool::new(false), of: UnsafeCell::new(of) }
    }

    fn take(&self) -> Option<ExclusiveGuard<'_, T>> {
        let was_free = self.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        was_free.then(|| ExclusiveGuard(self))
    }
}

impl<T> ExclusiveGuard<'_, T> {
    fn get(&mut self) -> &mut T {
        // SAFETY: only one guard exists at a time.
        unsafe { &mut *self.0.of.get() }
    }
}

impl<T> Drop for ExclusiveGuard<'_, T> {
    fn drop(&mut self) {
        self.0.taken.store(false, Release);
    }
}

/// One pager.
struct CPager {
    working: Exclusive<Working>,
    /// The postponed refreshes, which helpers may do meanwhile, if the scheme has any.
    refresh_pool: Option<Arc<RefreshPool>>,
    helpers: Box<[Exclusive<Buffer>]>,
    pages: u64,
    /// Set by a failure: from then on the pager can only be destroyed.
    failed: AtomicBool,
}

struct Working {
    scheme: Box<dyn PageScheme>,
    buffer: Buffer,
}

impl CPager {
    fn new(plan: &Plan, (scheme, refresh_pool): super::plan::Built) -> Self {
        let helpers = (0..plan.helpers).map(|_| Exclusive::new(Buffer::default())).collect();
        Self {
            pages: scheme.pages(),
            working: Exclusive::new(Working { scheme, buffer: Buffer::default() }),
            refresh_pool,
            helpers,
            failed: AtomicBool::new(false),
        }
    }

    /// Takes the scheme, which one call at a time may use.
    fn work(&self) -> Result<ExclusiveGuard<'_, Working>, Refusal> {
        let working = self.working.take().ok_or(Refusal::Busy)?;
        if self.failed.load(Relaxed) { Err(Refusal::Failed) } else { Ok(working) }
    }
}

fn refusal_of(error: &Error) -> Refusal {
    match error {
        Error::Tampered { .. } => Refusal::Tampered,
        Error::Misplaced { .. } => Refusal::Misplaced,
        Error::StashOverflow { .. } => Refusal::StashFull,
        Error::Poisoned | Error::EarlierDamage | Error::EarlierAbort => Refusal::Failed,
        Error::Geometry(_) | Error::OutOfRange { .. } => Refusal::Invalid,
        _ => Refusal::Store,
    }
}
