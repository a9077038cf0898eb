//! The regions of an index file and its length.
//!
//! ```text
//! 0            header, 40 bytes
//! 40           slot table, S words
//! 40 + 4*S     entry array, N entries of 20 bytes; entry 0 exists and is never used
//! 40 + 4*S + 20*N
//! ```
//!
//! S (`hash_slots`) and N (`max_entries`) are not stored in the file. Source: `IndexFile` constants and constructor.

use crate::error::{Error, Result};
use crate::io::u32_of;

/// Length of the header in bytes.
pub(crate) const HEADER_LEN: u64 = 40;
/// Length of a slot in bytes.
pub(crate) const SLOT_LEN: u64 = 4;
/// Length of an entry in bytes.
pub(crate) const ENTRY_LEN: u64 = 20;

/// The numbers of slots and entries: the broker's `maxHashSlotNum` and `maxIndexNum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Geometry {
    hash_slots: u32,
    max_entries: u32,
    /// 2^64 / S, rounded up; follows from S. See [`Self::slot_of`].
    inverse: u64,
}

impl Geometry {
    /// The broker's default: 5,000,000 slots and 20,000,000 entries, 420,000,040 bytes.
    pub const DEFAULT: Self = Self::of(5_000_000, 20_000_000);

    const fn of(hash_slots: u32, max_entries: u32) -> Self {
        let inverse = if hash_slots == 0 { 0 } else { (u64::MAX / hash_slots as u64).wrapping_add(1) };
        Self { hash_slots, max_entries, inverse }
    }

    /// A geometry that a broker could open: at least one slot and one entry, and a size below 2^31, because the broker
    /// computes the size in 32 bits.
    ///
    /// # Errors
    /// `InvalidArgument` names the broken bound.
    pub fn new(hash_slots: u32, max_entries: u32) -> Result<Self> {
        let geometry = Self::of(hash_slots, max_entries);
        if hash_slots == 0 {
            return Err(Error::InvalidArgument("hash_slots=0: expected 1 or more".into()));
        }
        if max_entries == 0 {
            return Err(Error::InvalidArgument("max_entries=0: expected 1 or more".into()));
        }
        if geometry.file_len() > u64::from(i32::MAX as u32) {
            return Err(Error::InvalidArgument(format!(
                "{hash_slots} slots and {max_entries} entries make {} bytes; a broker cannot open 2^31 bytes or more",
                geometry.file_len()
            )));
        }
        Ok(geometry)
    }

    /// S, the number of slots.
    pub const fn hash_slots(self) -> u32 {
        self.hash_slots
    }

    /// N; the file holds N - 1 entries, because position 0 means "none".
    pub const fn max_entries(self) -> u32 {
        self.max_entries
    }

    /// Length of the file in bytes.
    pub const fn file_len(self) -> u64 {
        self.entry(self.max_entries)
    }

    /// The slot of a key hash, `key_hash mod S`. A hash is never negative.
    ///
    /// S is not known when this is compiled, so `%` would be a division. Two multiplications do the same: the product of
    /// the hash and the inverse, modulo 2^64, is the fraction that is left of hash / S, and S times that is the remainder
    /// (D. Lemire, O. Kaser, N. Kurz: Faster remainder by direct computation, 2019; exact for 32-bit numbers).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "below S")]
    pub const fn slot_of(self, key_hash: i32) -> u32 {
        let fraction = self.inverse.wrapping_mul(key_hash.unsigned_abs() as u64);
        ((fraction as u128 * self.hash_slots as u128) >> 64) as u32
    }

    /// 2^64 / S, rounded up: the factor that replaces the division by S in [`Self::slot_of`].
    pub(crate) const fn inverse(self) -> u64 {
        self.inverse
    }

    /// Byte offset of a slot.
    #[inline]
    pub const fn slot(self, slot: u32) -> u64 {
        HEADER_LEN + SLOT_LEN * slot as u64
    }

    /// Byte offset of an entry.
    #[inline]
    pub const fn entry(self, position: u32) -> u64 {
        HEADER_LEN + SLOT_LEN * self.hash_slots as u64 + ENTRY_LEN * position as u64
    }

    /// Number of entries, including entry 0, that are whole within `len` bytes.
    pub fn entries_within(self, len: u64) -> u32 {
        let entries = len.saturating_sub(self.entry(0)) / ENTRY_LEN;
        u32_of(entries).min(self.max_entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_file_is_420_000_040_bytes() {
        assert_eq!(Geometry::DEFAULT.file_len(), 420_000_040);
        assert_eq!(Geometry::DEFAULT.entry(1), 20_000_060);
        assert_eq!(Geometry::DEFAULT.slot(3_804_929), 15_219_756);
    }

    #[test]
    fn slots_are_remainders() {
        let mut random = 1u32;
        for slots in [1, 2, 3, 7, 501, 4096, 5_000_000, (1 << 29) - 1, 1 << 29, i32::MAX.unsigned_abs() - 1] {
            let geometry = Geometry::of(slots, 1);
            let edges =
                [0, 1, slots - 1, slots, slots + 1, slots.wrapping_mul(2).wrapping_sub(1), u32::MAX, u32::MAX - 2];
            let random = std::iter::repeat_with(|| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                random
            });
            for hash in edges.into_iter().chain(random.take(10_000)) {
                let hash = (hash & i32::MAX.unsigned_abs()).cast_signed();
                assert_eq!(geometry.slot_of(hash), hash.unsigned_abs() % slots, "{hash} of {slots}");
            }
        }
    }

    #[test]
    fn sizes_that_a_broker_cannot_compute_are_refused() {
        assert!(Geometry::new(5_000_000, 106_374_180).is_ok());
        assert!(Geometry::new(5_000_000, 106_374_181).is_err());
        assert!(Geometry::new(0, 8).is_err());
        assert!(Geometry::new(8, 0).is_err());
    }

    #[test]
    fn only_whole_entries_count() {
        let geometry = Geometry::new(10, 8).unwrap();
        assert_eq!(geometry.entries_within(240), 8);
        assert_eq!(geometry.entries_within(239), 7);
        assert_eq!(geometry.entries_within(81), 0);
        assert_eq!(geometry.entries_within(0), 0);
        assert_eq!(geometry.entries_within(1000), 8);
    }
}
