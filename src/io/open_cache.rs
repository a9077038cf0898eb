//! Open files, and what was read from them, kept from one call to the next: for a bounded number of owners in the process.
//!
//! A directory may hold more files than a process may have open. Only the owners that most recently opened something keep it.
//! A call that uses an open file keeps it until the call ends.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::ProcessMutex;

/// The open files of one owner.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    state: ProcessMutex<State<T>>,
}

impl<T: Default> Default for Slot<T> {
    fn default() -> Self {
        Self { state: ProcessMutex::new() }
    }
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
    slots: ProcessMutex<VecDeque<Weak<Slot<T>>>>,
    capacity: usize,
}

impl<T: Default> OpenCache<T> {
    pub(crate) const fn new(capacity: usize) -> Self {
        Self { slots: ProcessMutex::new(), capacity }
    }

    /// Calls `open_or_get` with what the slot keeps, and counts the slot as open from then on.
    pub(crate) fn with<R, E>(
        &self,
        slot: &Arc<Slot<T>>,
        open_or_get: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<R, E> {
        let (result, listed) = slot.state.with(|state| {
            let result = open_or_get(&mut state.open)?;
            Ok((result, std::mem::replace(&mut state.listed, true)))
        })?;
        if !listed {
            self.list(slot);
        }
        Ok(result)
    }

    /// Calls with what each listed slot keeps.
    pub(crate) fn for_each(&self, call: impl Fn(&mut T)) {
        let slots: Vec<_> = self.slots.with(|slots| slots.iter().filter_map(Weak::upgrade).collect());
        // Only one lock is held at a time.
        for slot in slots {
            slot.state.with(|state| call(&mut state.open));
        }
    }

    /// Adds a slot to the list, and closes the oldest slot if there are too many.
    fn list(&self, slot: &Arc<Slot<T>>) {
        let oldest = self.slots.with(|slots| {
            slots.retain(|slot| slot.strong_count() > 0);
            slots.push_back(Arc::downgrade(slot));
            if slots.len() > self.capacity { slots.pop_front() } else { None }
        });
        // Only one lock is held at a time.
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            oldest.state.with(|state| *state = State::default());
        }
    }
}

impl<T: Default> Slot<T> {
    /// Looks at what is open now.
    #[cfg(test)]
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        self.state.with(|state| look(&state.open))
    }
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
