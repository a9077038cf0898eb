//! The leader epochs of a log, and which segments in remote storage belong to it.
//!
//! A leader that was elected with an incomplete log goes on where its log ends. What an earlier leader wrote after that place is
//! no part of the log, but may have been moved to remote storage. The epochs show it: a leader of an epoch is the only one, so all
//! replicas agree on what is before a record of that epoch. Source: `RemoteLogManager#isRemoteSegmentWithinLeaderEpochs`.

use super::manifest::Range;

/// Leader epochs, each with its first offset, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lineage(Vec<(i64, i64)>);

impl Lineage {
    /// Takes the lines of a checkpoint of leader epochs.
    pub(super) fn new(mut epochs: Vec<(i64, i64)>) -> Self {
        epochs.sort_unstable();
        Self(epochs)
    }

    /// Returns the last epoch.
    pub(super) fn last_epoch(&self) -> Option<i64> {
        self.0.last().map(|(epoch, _)| *epoch)
    }

    /// Returns the first offset of the first epoch: where the log begins.
    pub(super) fn begin(&self) -> Option<i64> {
        self.0.first().map(|(_, begin)| *begin)
    }

    /// Returns the epochs from an offset on, the first one with this offset.
    pub(super) fn epochs_from(&self, offset: i64) -> Vec<(i64, i64)> {
        let first = self.0.partition_point(|(_, begin)| *begin <= offset).saturating_sub(1);
        self.0.iter().skip(first).map(|(epoch, begin)| (*epoch, offset.max(*begin))).collect()
    }

    /// Returns the offset after the last one that a segment has of this log; `None` if it has none. A segment that does not state its
    /// epochs or its end is taken as a whole.
    pub(super) fn extent(&self, range: &Range) -> Option<i64> {
        let mut extent = range.end_offset.map_or(i64::MAX, |end| end.saturating_add(1));
        let Some((oldest, _)) = self.0.first() else { return Some(extent) };
        for (epoch, begin) in &range.epochs {
            // What is older than the lineage was before the start of the log when it was written down.
            if epoch < oldest {
                continue;
            }
            let number = self.0.binary_search_by_key(epoch, |(known, _)| *known).ok()?;
            let (_, first) = self.0.get(number)?;
            if number > 0 && begin < first {
                return None;
            }
            if let Some((_, next)) = self.0.get(number + 1) {
                if begin >= next {
                    return None;
                }
                if Some(*epoch) == range.epochs.last().map(|(last, _)| *last) {
                    extent = extent.min(*next);
                }
            }
        }
        Some(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(end: i64, epochs: &[(i64, i64)]) -> Range {
        Range { end_offset: Some(end), epochs: epochs.to_vec() }
    }

    #[test]
    fn segments_of_a_leader_that_lost_its_records_do_not_belong_to_the_log() {
        // The leader of epoch 3 wrote up to offset 249; that of epoch 5 had them up to 149 only.
        let lineage = Lineage::new(vec![(5, 150), (3, 100), (2, 40)]);
        let extent = |end, epochs: &[(i64, i64)]| lineage.extent(&range(end, epochs));
        assert_eq!(extent(99, &[(2, 60)]), Some(100));
        assert_eq!(extent(149, &[(2, 90), (3, 100)]), Some(150));
        assert_eq!(extent(199, &[(3, 120)]), Some(150), "the part up to the next epoch");
        assert_eq!(extent(249, &[(3, 200)]), None, "after the next epoch began");
        assert_eq!(extent(199, &[(4, 150)]), None, "an epoch that the log does not have");
        assert_eq!(extent(199, &[(3, 90)]), None, "before the epoch began");
        assert_eq!(extent(180, &[(3, 100), (5, 150)]), Some(181));
        assert_eq!(extent(39, &[(0, 0), (1, 20)]), Some(40), "older than the lineage");
        assert_eq!(extent(60, &[(1, 20), (2, 30)]), Some(61), "the start of the first epoch moves with the log's");
        assert_eq!(lineage.extent(&Range::default()), Some(i64::MAX));
        assert_eq!(Lineage::default().extent(&range(7, &[(1, 2)])), Some(8));
    }

    #[test]
    fn a_segment_has_the_epochs_from_its_first_offset_on() {
        let lineage = Lineage::new(vec![(0, 0), (2, 30), (4, 60)]);
        assert_eq!(lineage.epochs_from(48), [(2, 48), (4, 60)]);
        assert_eq!(lineage.epochs_from(0), [(0, 0), (2, 30), (4, 60)]);
        assert_eq!(lineage.epochs_from(90), [(4, 90)]);
        assert_eq!(Lineage::default().epochs_from(1), []);
    }
}
