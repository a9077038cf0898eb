//! No number in a file may cause a large allocation: a request above the limit ends the run.

use std::alloc::{GlobalAlloc, Layout, System};

/// More than a target with small inputs needs: windows are 256 KiB, a block of LZ4 at most 4 MiB.
const MOST: usize = 16 * 1024 * 1024;

struct Bounded;

fn check(bytes: usize) {
    if bytes > MOST {
        eprintln!("a request for {bytes} bytes of memory");
        std::process::abort();
    }
}

// SAFETY: every call is the system allocator's, unless the process ends.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check(size);
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static MEMORY: Bounded = Bounded;
