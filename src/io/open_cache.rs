//! Open files, and what was read from them, kept from one call to the next: for a bounded number of owners in the process.
//!
//! A directory may hold more files than a process may have open. Only the owners that most recently opened something keep it.
//! A call that uses an open file keeps it until the call ends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What one owner keeps open.
#[derive(Debug, Default)]
pub(crate) struct Slot<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug, Default)]
struct State<T> {
    open: T,
    /// The slot is in the cache's list.
    listed: bool,
}

/// The slots that keep something open, oldest first.
#[derive(Debug)]
pub(crate) struct OpenCache<T> {
    slots: Mutex<VecDeque<Weak<Slot<T>>>>,
    capacity: usize,
}

impl<T: Default> OpenCache<T> {
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { slots: Mutex::new(VecDeque::new()), capacity }
    }

    /// Call `open_or_get` with what the slot keeps, and count the slot as open from then on.
    pub(crate) fn with<R, E>(
        &self,
        slot: &Arc<Slot<T>>,
        open_or_get: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut state = lock(&slot.state);
        let result = open_or_get(&mut state.open)?;
        let listed = std::mem::replace(&mut state.listed, true);
        drop(state);
        if !listed {
            self.list(slot);
        }
        Ok(result)
    }

    /// Add a slot to the list, and close the oldest slot if there are too many.
    fn list(&self, slot: &Arc<Slot<T>>) {
        let mut slots = lock(&self.slots);
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push_back(Arc::downgrade(slot));
        let oldest = if slots.len() > self.capacity { slots.pop_front() } else { None };
        // Only one lock is held at a time.
        drop(slots);
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            *lock(&oldest.state) = State::default();
        }
    }
}

impl<T> Slot<T> {
    /// Look at what is open now.
    #[cfg(test)]
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&lock(&self.state).open)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_slot_is_closed_when_the_capacity_is_reached() {
        static CACHE: OpenCache<Option<u32>> = OpenCache::new(3);
        let slots: Vec<Arc<Slot<Option<u32>>>> = (0..8).map(|_| Arc::default()).collect();
        for round in 0..2 {
            for (slot, number) in slots.iter().zip(0u32..) {
                let got = CACHE.with(slot, |open| Ok::<_, ()>(*open.get_or_insert(number))).unwrap();
                assert_eq!(got, number, "round {round}");
            }
            let open: Vec<bool> = slots.iter().map(|slot| slot.peek(Option::is_some)).collect();
            assert_eq!(open, [false, false, false, false, false, true, true, true]);
        }
    }

    #[test]
    fn a_slot_that_could_not_be_opened_takes_no_place() {
        static CACHE: OpenCache<Option<u32>> = OpenCache::new(1);
        let (open, failed) = (Arc::default(), Arc::default());
        CACHE.with(&open, |slot: &mut Option<u32>| Ok::<_, ()>(*slot.get_or_insert(1))).unwrap();
        CACHE.with(&failed, |_: &mut Option<u32>| Err::<(), _>(())).unwrap_err();
        assert!(open.peek(Option::is_some));
    }
}
