//! The next offset of each queue, as in the broker's topic-queue table.

use std::collections::HashMap;

/// Next offsets by topic and queue. Offsets taken since the last [`QueueTable::keep`] can be returned.
#[derive(Debug, Default)]
pub(super) struct QueueTable {
    /// Index of each queue in `next`.
    places: HashMap<String, HashMap<i32, usize>>,
    next: Vec<i64>,
    /// Indexes, and their former values.
    changed: Vec<(usize, i64)>,
}

impl QueueTable {
    fn place(&mut self, topic: &str, queue_id: i32) -> usize {
        let new = self.next.len();
        let place = match self.places.get_mut(topic) {
            Some(queues) => *queues.entry(queue_id).or_insert(new),
            None => *self.places.entry(topic.to_owned()).or_default().entry(queue_id).or_insert(new),
        };
        if place == new {
            self.next.push(0);
        }
        place
    }

    fn at(&mut self, place: usize) -> &mut i64 {
        self.next.get_mut(place).expect("every place has its offset")
    }

    /// Sets the next offset of a queue, unless it has one.
    pub(super) fn set_new(&mut self, topic: &str, queue_id: i32, offset: i64) {
        if self.places.get(topic).is_none_or(|queues| !queues.contains_key(&queue_id)) {
            self.set(topic, queue_id, offset);
        }
    }

    /// Sets the next offset of a queue.
    pub(super) fn set(&mut self, topic: &str, queue_id: i32, offset: i64) {
        let place = self.place(topic, queue_id);
        *self.at(place) = offset;
    }

    /// Returns the next offset of a queue, 0 for a new one, and advances it by `step`.
    pub(super) fn take(&mut self, topic: &str, queue_id: i32, step: i64) -> i64 {
        let place = self.place(topic, queue_id);
        let next = self.at(place);
        let offset = *next;
        *next = offset.saturating_add(step);
        self.changed.push((place, offset));
        offset
    }

    /// Keeps the offsets that were taken.
    pub(super) fn keep(&mut self) {
        self.changed.clear();
    }

    /// Returns the offsets that were taken since the last [`Self::keep`].
    pub(super) fn undo(&mut self) {
        self.undo_to(0);
    }

    /// The number of offsets that were taken since the last [`Self::keep`], for [`Self::undo_to`].
    pub(super) fn taken(&self) -> usize {
        self.changed.len()
    }

    /// Returns the offsets that were taken after the first ones.
    pub(super) fn undo_to(&mut self, taken: usize) {
        while self.changed.len() > taken {
            let Some((place, offset)) = self.changed.pop() else { return };
            *self.at(place) = offset;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::QueueTable;

    #[test]
    fn offsets_go_up_by_queue_and_can_be_taken_back() {
        let mut table = QueueTable::default();
        table.set("T", 1, 7);
        assert_eq!([table.take("T", 0, 1), table.take("T", 1, 3), table.take("U", 1, 0)], [0, 7, 0]);
        table.keep();
        assert_eq!([table.take("T", 1, 1), table.take("T", 1, 1), table.take("V", 0, 1)], [10, 11, 0]);
        table.undo();
        assert_eq!([table.take("T", 1, 1), table.take("T", 0, 1), table.take("V", 0, 1)], [10, 1, 0]);
    }
}
