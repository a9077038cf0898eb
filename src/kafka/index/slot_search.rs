//! Search in a sorted table: the broker's search, and a faster one for a column of targets.

use crate::io::u32_of;
use std::hint::select_unpredictable;

/// Targets that are searched together, so that their memory accesses overlap.
const LANES: usize = 16;

/// Slots of the largest value at or below the target, and of the smallest at or above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) lower: Option<usize>,
    pub(crate) upper: Option<usize>,
}

/// The broker's search over `n` slots, which begins with the last `warm` ones.
///
/// COMPAT(kafka `AbstractIndex#indexSlotRangeFor`): on sorted slots the result is that of any search, except for the upper
/// slot of a target equal to slot 0, which is missed. On unsorted slots the result is the broker's.
pub(crate) fn slot_range(n: usize, warm: usize, target: i64, value: impl Fn(usize) -> i64) -> SlotRange {
    if n == 0 {
        return SlotRange { lower: None, upper: None };
    }
    let hot = (n - 1).saturating_sub(warm);
    if value(hot) < target {
        return bisect(hot, n - 1, n, target, value);
    }
    if value(0) > target {
        return SlotRange { lower: None, upper: Some(0) };
    }
    bisect(0, hot, n, target, value)
}

fn bisect(begin: usize, end: usize, n: usize, target: i64, value: impl Fn(usize) -> i64) -> SlotRange {
    let (mut low, mut high) = (begin, end);
    while low < high {
        let middle = (low + high).div_ceil(2);
        let found = value(middle);
        if found == target {
            return SlotRange { lower: Some(middle), upper: Some(middle) };
        }
        if found > target {
            high = middle - 1;
        } else {
            low = middle;
        }
    }
    SlotRange { lower: Some(low), upper: (low + 1 < n).then_some(low + 1) }
}

/// For each target, return how many of the ascending keys are at or below it: the slot after its lower one.
///
/// All lanes take the same steps, without branches, so that the processor waits for several memory accesses at once.
pub(crate) fn ranks<K: Copy + Ord>(keys: &[K], targets: &[K], out: &mut Vec<u32>) {
    out.clear();
    out.reserve(targets.len());
    let mut groups = targets.chunks_exact(LANES);
    for group in &mut groups {
        let Some(group) = group.first_chunk::<LANES>() else { break };
        out.extend(ranks_of(keys, group));
    }
    for target in groups.remainder() {
        out.extend(ranks_of(keys, &[*target]));
    }
}

fn ranks_of<K: Copy + Ord, const N: usize>(keys: &[K], targets: &[K; N]) -> [u32; N] {
    let mut base = [0u32; N];
    let Some(last) = keys.last() else { return base };
    let mut size = keys.len();
    while size > 1 {
        let half = size / 2;
        let step = u32_of(half);
        // For all lanes: the key `half` after the lane's position.
        let Some(middles) = keys.get(half..) else { break };
        for (at, target) in base.iter_mut().zip(targets) {
            let key = middles.get(*at as usize).unwrap_or(last);
            *at += select_unpredictable(key <= target, step, 0);
        }
        size -= half;
    }
    let mut ranks = [0u32; N];
    for ((rank, at), target) in ranks.iter_mut().zip(base).zip(targets) {
        let here = keys.get(at as usize).is_some_and(|key| key <= target);
        *rank = at + u32::from(here);
    }
    ranks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn warm_section_is_searched_first() {
        // 3000 entries of (10 i + 9): the first warm slot is 1975.
        let value = |slot: usize| 10 * i64::try_from(slot).unwrap() + 9;
        for (target, slot) in [(19758, 1974), (19759, 1975), (19760, 1975), (29999, 2999)] {
            assert_eq!(slot_range(3000, 1024, target, value).lower, Some(slot), "{target}");
        }
        assert_eq!(slot_range(3000, 1024, 5, value), SlotRange { lower: None, upper: Some(0) });
        assert_eq!(slot_range(3000, 1024, 9, value).upper, Some(1), "slot 0 is not compared for equality");
        assert_eq!(slot_range(3000, 1024, 19, value).upper, Some(1));
        assert_eq!(slot_range(3000, 1024, 29999, value).upper, Some(2999));
        assert_eq!(slot_range(3000, 1024, 30000, value).upper, None);
        assert_eq!(slot_range(0, 1024, 29999, value), SlotRange { lower: None, upper: None });
    }

    proptest! {
        #[test]
        fn all_searches_agree(mut keys: Vec<i32>, targets: Vec<i32>, warm in 0usize..20) {
            keys.sort_unstable();
            keys.dedup();
            let mut found = Vec::new();
            ranks(&keys, &targets, &mut found);
            for (target, rank) in targets.iter().zip(found) {
                let expected = keys.iter().filter(|key| *key <= target).count();
                prop_assert_eq!(usize::try_from(rank).unwrap(), expected);
                let range = slot_range(keys.len(), warm, i64::from(*target), |slot| i64::from(keys[slot]));
                prop_assert_eq!(range.lower.map_or(0, |slot| slot + 1), expected);
            }
        }
    }
}
