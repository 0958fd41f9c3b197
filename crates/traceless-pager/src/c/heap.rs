//! Allocating in the caller's memory.
//!
//! Schemes allocate when they are made, and trees now and then a little more. All of it is to come
//! from the memory of their pager. An allocator is one for all, so whoever calls into a pager
//! *enters* its heap first: one at a time, others wait. Refreshes of helpers allocate nothing and
//! enter none. What is calculated before there is a pager has a little memory of the library's own.
//! With `std` heaps stay empty, as there is another allocator.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use linked_list_allocator::Heap;

/// The heap that somebody is in.
static ENTERED: AtomicPtr<CallersHeap> = AtomicPtr::new(ptr::null_mut());

/// Bytes for calculating sizes: what is known of each level of a tree.
const SCRATCH_BYTES: usize = 16 << 10;

static SCRATCH: Scratch = Scratch {
    heap: CallersHeap::empty(),
    memory: UnsafeCell::new([MaybeUninit::uninit(); SCRATCH_BYTES]),
};

struct Scratch {
    heap: CallersHeap,
    memory: UnsafeCell<[MaybeUninit<u8>; SCRATCH_BYTES]>,
}

// SAFETY: used only by who is in its heap, which is one at a time.
unsafe impl Sync for Scratch {}

/// Calculates something that keeps no memory: what it allocates is gone in the end.
pub fn calculate<T: Copy>(calculation: impl FnOnce() -> T) -> T {
    let _inside = SCRATCH.heap.enter();
    // SAFETY: we are in it, and nothing is left there of whoever was before.
    unsafe {
        *SCRATCH.heap.heap.get() = Heap::empty();
        let memory = NonNull::new(SCRATCH.memory.get()).expect("a static is somewhere");
        SCRATCH.heap.give(NonNull::slice_from_raw_parts(memory.cast(), SCRATCH_BYTES));
    }
    calculation()
}

/// Memory of one pager.
pub struct CallersHeap {
    heap: UnsafeCell<Heap>,
    most_used: AtomicUsize,
}

// SAFETY: the heap is used only by who is in it, which is one at a time.
unsafe impl Sync for CallersHeap {}

impl CallersHeap {
    /// A heap without memory.
    pub const fn empty() -> Self {
        Self { heap: UnsafeCell::new(Heap::empty()), most_used: AtomicUsize::new(0) }
    }

    /// Gives it memory.
    ///
    /// # Safety
    ///
    /// Nobody else is in it, nothing is, and nobody else uses the memory as long as it lives.
    pub unsafe fn give(&self, memory: NonNull<[u8]>) {
        // SAFETY: as the caller promises.
        unsafe { (*self.heap.get()).init(memory.cast().as_ptr(), memory.len()) };
    }

    /// Enters it; waits while somebody is in another one.
    pub fn enter(&self) -> Inside<'_> {
        let own = ptr::from_ref(self).cast_mut();
        while ENTERED.compare_exchange_weak(ptr::null_mut(), own, Acquire, Relaxed).is_err() {
            spin_loop();
        }
        Inside(self)
    }

    /// The most bytes that were in use at a time.
    pub fn most_used(&self) -> usize {
        self.most_used.load(Relaxed)
    }
}

/// That somebody is in a heap; he leaves it when this is dropped.
pub struct Inside<'a>(&'a CallersHeap);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // SAFETY: only we are in it.
        let used = unsafe { (*self.0.heap.get()).used() };
        self.0.most_used.fetch_max(used, Relaxed);
        ENTERED.store(ptr::null_mut(), Release);
    }
}

#[cfg(not(any(feature = "std", test)))]
mod global {
    use super::{ENTERED, NonNull, Relaxed, ptr};
    use core::alloc::{GlobalAlloc, Layout};

    /// Allocates in the heap that somebody is in, and nowhere if nobody is.
    struct InEntered;

    #[global_allocator]
    static ALLOCATOR: InEntered = InEntered;

    // SAFETY: the heap does what is asked of an allocator, and one thread at a time is in it.
    unsafe impl GlobalAlloc for InEntered {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: a heap stays where it is while somebody is in it.
            let Some(heap) = (unsafe { ENTERED.load(Relaxed).as_ref() }) else {
                return ptr::null_mut();
            };
            // SAFETY: whoever allocates is who is in it.
            let allocated = unsafe { (*heap.heap.get()).allocate_first_fit(layout) };
            allocated.map_or(ptr::null_mut(), NonNull::as_ptr)
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: as above.
            let heap = unsafe { ENTERED.load(Relaxed).as_ref() };
            if let (Some(heap), Some(memory)) = (heap, NonNull::new(memory)) {
                // SAFETY: it comes from there, since each pager is used inside its own heap.
                unsafe { (*heap.heap.get()).deallocate(memory, layout) };
            }
        }
    }
}
