//! Allocating in the caller's memory.
//!
//! Schemes allocate when they are made, and trees now and then a little more. All of it is to come
//! from the memory of their pager. There is one global allocator, so a thread that calls into a
//! pager *enters* its heap first: one thread at a time, the other ones wait. Refreshes of helpers
//! allocate nothing and enter no heap. Calculations before there is a pager use a little memory of
//! the library's own. With `std` the heaps stay empty, as there is another allocator.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use linked_list_allocator::Heap;

/// The heap that a thread has entered.
static ENTERED: AtomicPtr<CallersHeap> = AtomicPtr::new(ptr::null_mut());

/// Bytes for calculating sizes: numbers for each level of a tree.
const SCRATCH_BYTES: usize = 16 << 10;

static SCRATCH: Scratch = Scratch {
    heap: CallersHeap::empty(),
    memory: UnsafeCell::new([MaybeUninit::uninit(); SCRATCH_BYTES]),
};

struct Scratch {
    heap: CallersHeap,
    memory: UnsafeCell<[MaybeUninit<u8>; SCRATCH_BYTES]>,
}

// SAFETY: used only by the thread that has entered its heap, which is one at a time.
unsafe impl Sync for Scratch {}

/// Runs a calculation that keeps no memory: what it allocates is gone in the end.
pub fn calculate<T: Copy>(calculation: impl FnOnce() -> T) -> T {
    let _inside = SCRATCH.heap.enter();
    // SAFETY: this thread has entered it, and nothing is left there from an earlier calculation.
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

// SAFETY: the heap is used only by the thread that has entered it, which is one at a time.
unsafe impl Sync for CallersHeap {}

impl CallersHeap {
    /// A heap without memory.
    pub const fn empty() -> Self {
        Self { heap: UnsafeCell::new(Heap::empty()), most_used: AtomicUsize::new(0) }
    }

    /// Gives the heap memory.
    ///
    /// # Safety
    ///
    /// No other thread has entered the heap, it holds nothing, and no other code uses the memory as
    /// long as the heap lives.
    pub unsafe fn give(&self, memory: NonNull<[u8]>) {
        // SAFETY: as the caller promises.
        unsafe { (*self.heap.get()).init(memory.cast().as_ptr(), memory.len()) };
    }

    /// Enters the heap; waits while any heap is entered.
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

/// A guard: a heap is entered, and is left when this is dropped.
pub struct Inside<'a>(&'a CallersHeap);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // SAFETY: only this thread has entered it.
        let used = unsafe { (*self.0.heap.get()).used() };
        self.0.most_used.fetch_max(used, Relaxed);
        ENTERED.store(ptr::null_mut(), Release);
    }
}

#[cfg(not(any(feature = "std", test)))]
mod global {
    use super::{ENTERED, NonNull, Relaxed, ptr};
    use core::alloc::{GlobalAlloc, Layout};

    /// Allocates in the heap that is entered, and fails if none is.
    struct EnteredHeapAllocator;

    #[global_allocator]
    static ALLOCATOR: EnteredHeapAllocator = EnteredHeapAllocator;

    // SAFETY: the heap does what an allocator must, and one thread at a time has entered it.
    unsafe impl GlobalAlloc for EnteredHeapAllocator {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: a heap stays where it is while it is entered.
            let Some(heap) = (unsafe { ENTERED.load(Relaxed).as_ref() }) else {
                return ptr::null_mut();
            };
            // SAFETY: the thread that allocates is the one that has entered it.
            let allocated = unsafe { (*heap.heap.get()).allocate_first_fit(layout) };
            allocated.map_or(ptr::null_mut(), NonNull::as_ptr)
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: a heap stays where it is while it is entered.
            let heap = unsafe { ENTERED.load(Relaxed).as_ref() };
            if let (Some(heap), Some(memory)) = (heap, NonNull::new(memory)) {
                // SAFETY: it comes from there, since each pager is used inside its own heap.
                unsafe { (*heap.heap.get()).deallocate(memory, layout) };
            }
        }
    }
}
