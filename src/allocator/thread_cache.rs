//! Keeps free blocks for each thread, in front of the allocator of glibc. glibc has such a cache itself, but it holds only
//! seven blocks of each size, none larger than a kilobyte: calls that are in flight at the same time need more and larger
//! ones. All blocks are blocks of glibc, whichever thread they come from, so every one can be given back to it.

#![allow(unsafe_code)] // An allocator has no safe interface.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Larger blocks are not kept.
const LARGEST: usize = 8 * 1024;
/// The most bytes that a thread keeps, in all and in blocks of one size.
const MOST_KEPT: usize = 512 * 1024;
const MOST_OF_SIZE: usize = 64 * 1024;
const ALIGNMENT: usize = 16;
const CLASSES: usize = Class::of_size(LARGEST).0 + 1;

/// Incremented to make all threads return what they keep.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// The pthread key whose destructor runs when a thread ends.
static AT_THREAD_END: AtomicU32 = AtomicU32::new(NO_KEY);
/// Before [`set_up`].
const NO_KEY: u32 = u32::MAX;

thread_local! {
    // Without a destructor of its own, so that it can be used for as long as the thread allocates.
    static CACHE: Cache = const { Cache::new() };
}

/// The allocator of the program.
pub struct Allocator;

/// Blocks of one size that glibc does not round up: a multiple of 16, plus 8.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Class(usize);

impl Class {
    const fn of_size(size: usize) -> Self {
        let class = (size + 7) / ALIGNMENT;
        Self(if class == 0 { 1 } else { class })
    }

    /// The class of a block; `None` if such blocks are not kept.
    fn of(size: usize, alignment: usize) -> Option<Self> {
        (size <= LARGEST && alignment <= ALIGNMENT).then(|| Self::of_size(size))
    }

    const fn size(self) -> usize {
        self.0 * ALIGNMENT + 8
    }

    /// What glibc is asked for.
    fn layout(self) -> Layout {
        // SAFETY: the alignment is a power of two, and the size is far from the limit.
        unsafe { Layout::from_size_align_unchecked(self.size(), ALIGNMENT) }
    }
}

// SAFETY: every block comes from the system's allocator with at least the size that was asked for: that of its class, if
// it has one. A block is kept only after its owner returned it, and leaves the cache before it is given out.
// Its functions are called from everywhere, so they are not inlined: the program has each of them once.
unsafe impl GlobalAlloc for Allocator {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Class::of(layout.size(), layout.align()) else {
            return unsafe { System.alloc(layout) };
        };
        match CACHE.with(|cache| cache.take(class)) {
            block if block.is_null() => unsafe { System.alloc(class.layout()) },
            block => block,
        }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(class) = Class::of(layout.size(), layout.align()) else {
            return unsafe { System.dealloc(block, layout) };
        };
        // SAFETY: the block is free from now on, and has the size of its class.
        if !CACHE.with(|cache| unsafe { cache.put(block, class) }) {
            unsafe { System.dealloc(block, class.layout()) }
        }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Class::of(layout.size(), layout.align()).is_none() {
            return unsafe { System.alloc_zeroed(layout) };
        }
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: it has the size of the layout.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (old, new) = (Class::of(layout.size(), layout.align()), Class::of(size, layout.align()));
        match (old, new) {
            (Some(old), Some(new)) if old == new => block,
            // Both from the cache and to it, so that no size fills it.
            (Some(_), Some(_)) => {
                // SAFETY: the alignment is that of a layout, and the size is far from the limit.
                let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
                if !moved.is_null() {
                    // SAFETY: both blocks have at least this size, and the caller does not use the old one any more.
                    unsafe {
                        ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                }
                moved
            }
            (old, new) => {
                let old = old.map_or(layout, Class::layout);
                unsafe { System.realloc(block, old, new.map_or(size, Class::size)) }
            }
        }
    }
}

/// A free block, which has the address of the next one.
struct FreeBlock {
    next: *mut FreeBlock,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing was kept yet.
    New,
    Open,
    /// The thread is ending.
    Closed,
}

/// What one thread keeps.
struct Cache {
    state: Cell<State>,
    generation: Cell<u32>,
    /// The bytes of all blocks in it.
    kept: Cell<usize>,
    blocks: [Blocks; CLASSES],
}

/// The blocks of one class.
struct Blocks {
    first: Cell<*mut FreeBlock>,
    count: Cell<usize>,
}

impl Blocks {
    const fn none() -> Self {
        Self { first: Cell::new(ptr::null_mut()), count: Cell::new(0) }
    }
}

impl Cache {
    const fn new() -> Self {
        Self {
            state: Cell::new(State::New),
            generation: Cell::new(0),
            kept: Cell::new(0),
            blocks: [const { Blocks::none() }; CLASSES],
        }
    }

    /// A block of the class; null if there is none.
    fn take(&self, class: Class) -> *mut u8 {
        let blocks = &self.blocks[class.0];
        let first = blocks.first.get();
        if !first.is_null() {
            // SAFETY: a block in the cache is free, and begins with the address of the next one.
            blocks.first.set(unsafe { (*first).next });
            blocks.count.set(blocks.count.get() - 1);
            self.kept.set(self.kept.get() - class.size());
        }
        first.cast()
    }

    /// Keeps a block; false if it must be returned.
    ///
    /// # Safety
    ///
    /// The block must be free, and have the size of the class.
    unsafe fn put(&self, block: *mut u8, class: Class) -> bool {
        match self.state.get() == State::Open && self.generation.get() == GENERATION.load(Ordering::Relaxed) {
            // SAFETY: as for this function.
            true => unsafe { self.keep(block, class) },
            false => unsafe { self.prepare_and_keep(block, class) },
        }
    }

    /// # Safety
    ///
    /// As for [`Cache::put`].
    unsafe fn keep(&self, block: *mut u8, class: Class) -> bool {
        let blocks = &self.blocks[class.0];
        let (kept, count) = (self.kept.get() + class.size(), blocks.count.get() + 1);
        if kept > MOST_KEPT || count * class.size() > MOST_OF_SIZE {
            return false;
        }
        let block: *mut FreeBlock = block.cast();
        // SAFETY: blocks of all classes are large enough for an address, and aligned.
        unsafe { (*block).next = blocks.first.replace(block) };
        blocks.count.set(count);
        self.kept.set(kept);
        true
    }

    /// # Safety
    ///
    /// As for [`Cache::put`].
    #[cold]
    unsafe fn prepare_and_keep(&self, block: *mut u8, class: Class) -> bool {
        let key = AT_THREAD_END.load(Ordering::Acquire);
        if key == NO_KEY {
            return false;
        }
        self.generation.set(GENERATION.load(Ordering::Relaxed));
        match self.state.get() {
            State::New => {
                // The destructor runs only in threads that have a value.
                // SAFETY: the key exists.
                let set = unsafe { libc::pthread_setspecific(key, ptr::from_ref(self).cast()) };
                self.state.set(if set == 0 { State::Open } else { State::Closed });
            }
            State::Open => self.empty(),
            State::Closed => {}
        }
        // SAFETY: as for this function.
        self.state.get() == State::Open && unsafe { self.keep(block, class) }
    }

    /// Returns all blocks.
    fn empty(&self) {
        self.kept.set(0);
        for (class, blocks) in self.blocks.iter().enumerate() {
            blocks.count.set(0);
            let mut block = blocks.first.replace(ptr::null_mut());
            while !block.is_null() {
                // SAFETY: a block in the cache is free, and begins with the address of the next one.
                let next = unsafe { (*block).next };
                // SAFETY: it came from there, with the size of its class.
                unsafe { System.dealloc(block.cast(), Class(class).layout()) };
                block = next;
            }
        }
    }
}

/// Begins to keep blocks.
pub fn set_up() {
    extern "C" fn close(_: *mut libc::c_void) {
        CACHE.with(|cache| {
            cache.state.set(State::Closed);
            cache.empty();
        });
        #[cfg(test)]
        tests::note_end_of_thread();
    }
    let mut key = NO_KEY;
    // SAFETY: the destructor uses only what lives as long as its thread. Without a key, nothing is kept.
    unsafe { libc::pthread_key_create(&mut key, Some(close)) };
    AT_THREAD_END.store(key, Ordering::Release);
}

/// Returns the blocks that this thread keeps, and those of other threads when they free something the next time.
pub fn give_back() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    CACHE.with(Cache::empty);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// The threads that kept something and have ended.
    static ENDED: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());
    /// One test at a time: `give_back` is for all threads.
    static ALONE: Mutex<()> = Mutex::new(());

    pub fn note_end_of_thread() {
        ENDED.lock().unwrap().push(this_thread());
    }

    fn this_thread() -> libc::pid_t {
        // SAFETY: it may be called at any time.
        unsafe { libc::gettid() }
    }

    fn layout(size: usize, alignment: usize) -> Layout {
        Layout::from_size_align(size, alignment).unwrap()
    }

    fn kept() -> usize {
        CACHE.with(|cache| cache.kept.get())
    }

    /// Fills a block with a pattern.
    fn fill(block: *mut u8, size: usize, with: u8) {
        unsafe { block.write_bytes(with, size) };
    }

    fn has(block: *mut u8, size: usize, with: u8) -> bool {
        unsafe { std::slice::from_raw_parts(block, size) }.iter().all(|byte| *byte == with)
    }

    #[test]
    fn a_class_fits_all_sizes_in_it() {
        for size in 1..=LARGEST {
            let class = Class::of(size, 16).unwrap();
            assert!(class.size() >= size && class.size() - size <= 23 && class.0 < CLASSES, "{size}");
        }
        assert!(Class::of(LARGEST + 1, 1).is_none() && Class::of(1, 32).is_none());
    }

    #[test]
    fn blocks_keep_what_is_written() {
        let _alone = ALONE.lock().unwrap();
        set_up();
        let sizes = [1, 8, 24, 25, 300, 1_032, 5_840, LARGEST, LARGEST + 1, 100_000];
        for round in 0..3u8 {
            let mut blocks = Vec::new();
            for (nth, size) in sizes.into_iter().cycle().take(200).enumerate() {
                let (layout, with) = (layout(size, 1 << (nth % 6)), round.wrapping_add(nth as u8));
                let block = unsafe { Allocator.alloc(layout) };
                assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
                fill(block, size, with);
                blocks.push((block, layout, with));
            }
            for (nth, (block, layout, with)) in blocks.into_iter().enumerate() {
                assert!(has(block, layout.size(), with), "{nth} {layout:?}");
                let size = sizes[nth * 7 % sizes.len()];
                let block = unsafe { Allocator.realloc(block, layout, size) };
                assert!(has(block, layout.size().min(size), with), "{nth} {layout:?} {size}");
                fill(block, size, 0xff);
                unsafe { Allocator.dealloc(block, self::layout(size, layout.align())) };
                assert!(kept() <= MOST_KEPT);
            }
            let zeroed = unsafe { Allocator.alloc_zeroed(layout(5_840, 8)) };
            assert!(has(zeroed, 5_840, 0));
            unsafe { Allocator.dealloc(zeroed, layout(5_840, 8)) };
            assert!(kept() >= 5_840);
        }
        give_back();
        assert_eq!(kept(), 0);
    }

    #[test]
    fn blocks_are_used_again_up_to_a_limit() {
        let _alone = ALONE.lock().unwrap();
        set_up();
        let first = unsafe { Allocator.alloc(layout(700, 8)) };
        unsafe { Allocator.dealloc(first, layout(700, 8)) };
        assert_eq!(unsafe { Allocator.alloc(layout(710, 16)) }, first);
        unsafe { Allocator.dealloc(first, layout(710, 16)) };
        give_back();
        let many: Vec<_> = (0..20).map(|_| unsafe { Allocator.alloc(layout(LARGEST, 8)) }).collect();
        many.into_iter().for_each(|block| unsafe { Allocator.dealloc(block, layout(LARGEST, 8)) });
        assert!((MOST_OF_SIZE / 2..=MOST_OF_SIZE).contains(&kept()));
        give_back();
    }

    #[test]
    fn blocks_may_be_freed_by_another_thread_and_a_thread_that_ends_keeps_none() {
        let _alone = ALONE.lock().unwrap();
        set_up();
        let blocks: Vec<usize> =
            (0..50).map(|_| unsafe { Allocator.alloc(layout(600, 8)) }.expose_provenance()).collect();
        let thread = std::thread::spawn(move || {
            for block in blocks {
                unsafe { Allocator.dealloc(ptr::with_exposed_provenance_mut(block), layout(600, 8)) };
            }
            (this_thread(), kept())
        });
        let (thread, kept) = thread.join().unwrap();
        assert!(kept >= 50 * 600);
        assert!(ENDED.lock().unwrap().contains(&thread));
        give_back();
    }
}
