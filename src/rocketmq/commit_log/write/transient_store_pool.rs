//! Buffers in memory to which puts append before their bytes are committed to a file (upstream `TransientStorePool`).

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::io::fork::Generation;
use crate::io::{FileMap, usize_of};

/// Upstream `transientStorePoolSize`.
const POOL_SIZE: usize = 5;

/// Buffers of the length of a log file. They are allocated when they are first borrowed.
#[derive(Debug)]
pub(super) struct TransientStorePool {
    buffers: Mutex<Buffers>,
    file_size: u64,
    lock_memory: bool,
    /// A forked child cannot return a buffer: the lock may be held for ever.
    process: Generation,
}

#[derive(Debug, Default)]
struct Buffers {
    available: Vec<FileMap>,
    allocated: usize,
}

/// A buffer in use. Dropping it returns it to its pool.
#[derive(Debug)]
pub(super) struct BorrowedBuffer {
    /// `None` only while it is dropped.
    memory: Option<FileMap>,
    pool: Arc<TransientStorePool>,
}

impl TransientStorePool {
    pub(super) fn new(file_size: u64, lock_memory: bool) -> Arc<Self> {
        Arc::new(Self { buffers: Mutex::default(), file_size, lock_memory, process: Generation::current() })
    }

    /// Returns the buffer that was returned last, or a new one; `None` if all are in use. Its bytes are those of its last use.
    ///
    /// # Errors
    /// An I/O error, with the path of the file that needs it: there is no memory, or it cannot be locked.
    pub(super) fn borrow_buffer(self: &Arc<Self>, path: &Path) -> Result<Option<BorrowedBuffer>> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = match buffers.available.pop() {
            None if buffers.allocated < POOL_SIZE => {
                // A file is shorter than 2 GiB.
                let memory = FileMap::anonymous(usize_of(self.file_size));
                let memory = memory.map_err(|e| Error::io(path, e))?;
                memory.prefer_large_pages();
                if self.lock_memory {
                    lock(&memory, path, self.file_size)?;
                }
                buffers.allocated += 1;
                Some(memory)
            }
            available => available,
        };
        Ok(memory.map(|memory| BorrowedBuffer { memory: Some(memory), pool: Arc::clone(self) }))
    }
}

impl BorrowedBuffer {
    pub(super) fn memory(&self) -> Option<&FileMap> {
        self.memory.as_ref()
    }
}

impl Drop for BorrowedBuffer {
    fn drop(&mut self) {
        if self.pool.process.is_current()
            && let Some(memory) = self.memory.take()
        {
            self.pool.buffers.lock().unwrap_or_else(PoisonError::into_inner).available.push(memory);
        }
    }
}

/// Locks a map or a buffer of a file in memory.
///
/// # Errors
/// An I/O error that names the limit.
pub(super) fn lock(memory: &FileMap, path: &Path, len: u64) -> Result<()> {
    memory.lock().map_err(|e| {
        let text = format!(
            "cannot lock {len} bytes in memory ({e}); raise RLIMIT_MEMLOCK (ulimit -l), or leave out lock_memory"
        );
        Error::io(path, std::io::Error::new(e.kind(), text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_lends_what_it_has_and_the_last_returned_first() {
        let pool = TransientStorePool::new(4096, false);
        let borrow = || pool.borrow_buffer(Path::new("file")).unwrap();
        let mut borrowed: Vec<_> = (0..POOL_SIZE).map(|_| borrow().unwrap()).collect();
        assert!(borrow().is_none(), "the pool is empty");
        borrowed[3].memory().unwrap().put_bytes(b"stale", 7).unwrap();
        drop(borrowed.remove(0));
        drop(borrowed.remove(2));
        let mut bytes = [0; 5];
        crate::io::ReadAt::read_exact_at(borrow().unwrap().memory().unwrap(), &mut bytes, 7).unwrap();
        assert_eq!(&bytes, b"stale");
    }
}
