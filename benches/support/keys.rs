//! Keys in the form of an Arrow column: one text and the offsets of its parts.

use logdex::hash_index::{PutColumns, TextKeys};

const TOPIC: &[u8] = b"TopicTest#";
const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
/// Bytes of a key: all have the same length.
pub(crate) const KEY_LEN: usize = TOPIC.len() + 32;
/// No file has keys with this number or a higher one.
pub(crate) const ABSENT: u64 = 1 << 61;
const T0: i64 = 1_700_000_000_000;

/// One step of splitmix64.
pub(crate) fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A column of keys.
pub(crate) struct Keys {
    text: Vec<u8>,
    ends: Vec<i32>,
}

impl Keys {
    /// The keys of these numbers.
    pub(crate) fn of(numbers: impl ExactSizeIterator<Item = u64>) -> Self {
        let mut text = Vec::with_capacity(numbers.len() * KEY_LEN);
        let mut ends = Vec::with_capacity(numbers.len() + 1);
        ends.push(0);
        for number in numbers {
            text.extend_from_slice(TOPIC);
            for half in [mix(2 * number), mix(2 * number + 1)] {
                let digits = half.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
                text.extend(digits.filter_map(|digit| DIGITS.get(usize::from(digit))));
            }
            ends.push(i32::try_from(text.len()).expect("less than 2 GiB of keys"));
        }
        Self { text, ends }
    }

    /// The keys of a file that holds `held`, in the order of their puts.
    pub(crate) fn held(held: usize) -> Self {
        Self::of((0..held).map(|number| number as u64))
    }

    /// Random keys of a file with `held` keys, or as many random keys that it does not hold.
    pub(crate) fn asked(held: usize, asked: usize, round: u64, present: bool) -> Self {
        let first = 777_000_000 + round * asked as u64;
        let from = if present { 0 } else { ABSENT };
        Self::of((0..asked).map(|query| from + mix(first + query as u64) % held as u64))
    }

    /// In the form that the library takes.
    pub(crate) fn all(&self) -> TextKeys<'_> {
        TextKeys { carry: 0, text: &self.text, ends: &self.ends }
    }

    /// Row by row.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.text.chunks_exact(KEY_LEN).map(|key| std::str::from_utf8(key).expect("ASCII"))
    }

    /// The text alone.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }
}

/// The rows that fill a file: keys with their offsets and times.
pub(crate) struct Columns {
    /// The keys.
    pub(crate) keys: Keys,
    phy_offsets: Vec<i64>,
    store_timestamps: Vec<i64>,
}

impl Columns {
    /// The first `rows` puts.
    pub(crate) fn new(rows: usize) -> Self {
        let numbers = 0..i64::try_from(rows).expect("few");
        Self {
            keys: Keys::held(rows),
            phy_offsets: numbers.clone().map(|number| 1024 * number).collect(),
            store_timestamps: numbers.map(|number| T0 + number / 10).collect(),
        }
    }

    /// Number of puts.
    pub(crate) fn len(&self) -> usize {
        self.phy_offsets.len()
    }

    /// Offsets and times.
    pub(crate) fn numbers(&self) -> (&[i64], &[i64]) {
        (&self.phy_offsets, &self.store_timestamps)
    }

    /// In batches of `rows`, the last one shorter.
    pub(crate) fn batches(&self, rows: usize) -> impl Iterator<Item = Batch<'_>> {
        let numbers = self.phy_offsets.chunks(rows).zip(self.store_timestamps.chunks(rows));
        numbers.zip((0..).step_by(rows)).map(|((phy_offsets, store_timestamps), first)| {
            let ends = self.keys.ends.get(first..=first + phy_offsets.len()).unwrap_or_default();
            Batch { keys: TextKeys { ends, ..self.keys.all() }, phy_offsets, store_timestamps }
        })
    }
}

/// Some rows of the columns.
pub(crate) struct Batch<'a> {
    keys: TextKeys<'a>,
    phy_offsets: &'a [i64],
    store_timestamps: &'a [i64],
}

impl<'a> Batch<'a> {
    /// In the form that the library takes.
    pub(crate) fn columns(&self) -> PutColumns<'_, TextKeys<'a>> {
        PutColumns { keys: &self.keys, phy_offsets: self.phy_offsets, store_timestamps: self.store_timestamps }
    }
}
