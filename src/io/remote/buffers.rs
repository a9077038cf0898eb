//! Buffers of scans, which are used again: to get fresh memory from the system costs as much as to fill it.

use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

/// The buffers of one client that nobody uses at the moment. All have the same capacity.
#[derive(Debug)]
pub(super) struct Buffers {
    capacity: usize,
    free: Mutex<Vec<Vec<u8>>>,
}

/// A buffer, which goes back when it is dropped.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    home: Weak<Buffers>,
}

impl Buffers {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, free: Mutex::default() }
    }

    /// Returns an empty buffer for so many bytes. A shorter one than the others is not kept.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Buffer {
        if len != self.capacity {
            return Buffer { bytes: Vec::with_capacity(len), home: Weak::new() };
        }
        // Nobody waits, because a thread that held the lock is lost in the child of a fork.
        let free = self.free.try_lock().ok().and_then(|mut free| free.pop());
        Buffer { bytes: free.unwrap_or_else(|| Vec::with_capacity(len)), home: Arc::downgrade(self) }
    }

    /// Gives the memory back to the system.
    pub(super) fn clear(&self) {
        if let Ok(mut free) = self.free.try_lock() {
            free.clear();
        }
    }
}

impl Buffer {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade()
            && let Ok(mut free) = home.free.try_lock()
        {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_its_bytes_are_gone() {
        let buffers = Arc::new(Buffers::new(4));
        let mut buffer = buffers.take(4);
        buffer.push(b"abcd");
        let place = buffer.bytes.as_ptr();
        let bytes = buffer.into_bytes();
        assert_ne!(buffers.take(4).bytes.as_ptr(), place);
        assert_eq!(bytes, b"abcd"[..]);
        buffers.clear();
        drop(bytes);
        let again = buffers.take(4);
        assert_eq!((again.bytes.len(), again.bytes.as_ptr()), (0, place));
        drop(buffers.take(3));
        drop(again);
        assert_eq!(buffers.free.lock().unwrap().len(), 1);
    }
}
