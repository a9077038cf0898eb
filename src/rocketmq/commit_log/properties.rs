//! The properties of a message: `name 01 value 02 name 01 value 02`.
//!
//! Source of the rules: upstream `MessageDecoder#string2messageProperties` since 4.9.1. The last separator may be
//! missing. An entry counts only with a name and a value; a value may hold further 01 bytes. A name that comes twice has
//! the last value.

use std::collections::HashMap;
use std::ops::Range;

/// The space-separated keys that a producer gave.
pub const KEYS: &str = "KEYS";
/// The tags that a producer gave.
pub const TAGS: &str = "TAGS";
/// The producer's own message id.
pub const UNIQ_KEY: &str = "UNIQ_KEY";

const NAME_END: u8 = 1;
const VALUE_END: u8 = 2;

/// Up to this many entries, names are compared pair by pair.
const FEW: usize = 32;

/// The properties that have columns of their own, in the order of [`Split::known`].
const KNOWN: [&str; 3] = [UNIQ_KEY, TAGS, KEYS];

/// Where an entry's name and value stand in the text.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Range<usize>,
    pub(super) value: Range<usize>,
}

impl Entry {
    fn name_in<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.name.clone()).unwrap_or_default()
    }
}

/// What was found in one text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Split {
    /// Every byte is ASCII.
    pub(super) is_ascii: bool,
    /// Numbers of the entries of `UNIQ_KEY`, `TAGS` and `KEYS`, counted from the first of this text.
    pub(super) known: [Option<usize>; 3],
}

/// The entries that count, each name once, in the order in which the names come first.
pub fn parse(text: &str) -> Vec<(&str, &str)> {
    let mut entries = Vec::with_capacity(16);
    split(text.as_bytes(), &mut entries);
    let part = |range: Range<usize>| text.get(range).unwrap_or_default();
    entries.into_iter().map(|entry| (part(entry.name), part(entry.value))).collect()
}

/// Adds the entries that count to `entries`, each name once, in the order in which the names come first.
pub(super) fn split(text: &[u8], entries: &mut Vec<Entry>) -> Split {
    let mut names = Names { text, first: entries.len(), seen: 0, many: HashMap::new(), known: [None; 3] };
    let (mut begin, mut name_end) = (0, None);
    let is_ascii = separators(text, |at, byte| {
        if byte == VALUE_END {
            names.add(begin, name_end.take(), at, entries);
            begin = at + 1;
        } else if name_end.is_none() {
            name_end = Some(at);
        }
    });
    names.add(begin, name_end, text.len(), entries);
    Split { is_ascii, known: names.known }
}

/// Calls `found` with the place of every byte 1 and 2, in order, and says whether all bytes are ASCII. Eight bytes are
/// looked at in one go.
#[inline]
fn separators(bytes: &[u8], mut found: impl FnMut(usize, u8)) -> bool {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    let (mut begin, mut seen) = (0, 0);
    for word in words {
        let value = u64::from_le_bytes(*word);
        seen |= value;
        // The high bit of every byte below 3; of the byte after such a one perhaps, too.
        let mut hits = value.wrapping_sub(3 * LOW) & !value & (LOW << 7);
        while hits != 0 {
            let shift = hits.trailing_zeros() & !7;
            let byte = (value >> shift).to_le_bytes()[0];
            if byte == NAME_END || byte == VALUE_END {
                found(begin + shift as usize / 8, byte);
            }
            hits &= hits - 1;
        }
        begin += 8;
    }
    for (at, &byte) in rest.iter().enumerate() {
        seen |= u64::from(byte);
        if byte == NAME_END || byte == VALUE_END {
            found(begin + at, byte);
        }
    }
    seen & (LOW << 7) == 0
}

/// The names of one text that came before.
struct Names<'a> {
    text: &'a [u8],
    /// Number of the text's first entry.
    first: usize,
    /// One bit for every kind of name, told by its length and first byte.
    seen: u64,
    /// The numbers of the entries by name, once there are many.
    many: HashMap<&'a [u8], usize>,
    known: [Option<usize>; 3],
}

impl<'a> Names<'a> {
    #[inline]
    fn add(&mut self, begin: usize, name_end: Option<usize>, end: usize, entries: &mut Vec<Entry>) {
        let Some(name_end) = name_end.filter(|at| *at > begin && at + 1 < end) else {
            return;
        };
        let entry = Entry { name: begin..name_end, value: name_end + 1..end };
        let name = entry.name_in(self.text);
        let number = entries.len() - self.first;
        if let Some(known) = self.place(name, entries) {
            known.value = entry.value;
            return;
        }
        for (known, wanted) in self.known.iter_mut().zip(KNOWN) {
            if name == wanted.as_bytes() {
                *known = Some(number);
            }
        }
        entries.push(entry);
    }

    /// The entry of the same name; remembers the name where there is none.
    #[inline]
    fn place<'b>(&mut self, name: &'a [u8], entries: &'b mut [Entry]) -> Option<&'b mut Entry> {
        let count = entries.len() - self.first;
        if count >= FEW {
            return self.place_of_many(name, count, entries);
        }
        let kind = name.len().wrapping_mul(5) ^ usize::from(name.first().copied().unwrap_or_default());
        let bit = 1 << (kind % 64);
        if self.seen & bit == 0 {
            self.seen |= bit;
            return None;
        }
        let text = self.text;
        entries.get_mut(self.first..)?.iter_mut().find(|entry| entry.name_in(text) == name)
    }

    #[cold]
    fn place_of_many<'b>(&mut self, name: &'a [u8], count: usize, entries: &'b mut [Entry]) -> Option<&'b mut Entry> {
        if self.many.is_empty() {
            let text = self.text;
            let known = entries.get(self.first..)?;
            self.many = known.iter().enumerate().map(|(place, entry)| (entry.name_in(text), place)).collect();
        }
        let place = *self.many.entry(name).or_insert(count);
        entries.get_mut(self.first + place)
    }
}

#[cfg(test)]
mod tests {
    use super::{VALUE_END, parse, separators};

    fn of(text: &str) -> Vec<(String, String)> {
        let text = text.replace('^', "\u{1}").replace('|', "\u{2}");
        parse(&text).into_iter().map(|(n, v)| (n.replace('\u{1}', "^"), v.replace('\u{1}', "^"))).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn entries_without_name_or_value_are_dropped() {
        assert_eq!(of("A^"), pairs(&[]));
        assert_eq!(of("^1"), pairs(&[]));
        assert_eq!(of(""), pairs(&[]));
        assert_eq!(of("|||"), pairs(&[]));
        assert_eq!(of("A"), pairs(&[]));
        assert_eq!(of("A^|B^2"), pairs(&[("B", "2")]));
    }

    #[test]
    fn only_the_first_separator_splits() {
        assert_eq!(of("A^b^c|D^e|"), pairs(&[("A", "b^c"), ("D", "e")]));
        assert_eq!(of("A^^"), pairs(&[("A", "^")]));
    }

    #[test]
    fn both_tails_and_doubled_separators_are_read() {
        assert_eq!(of("A^1||B^2"), pairs(&[("A", "1"), ("B", "2")]));
        assert_eq!(of("A^1|B^2|"), pairs(&[("A", "1"), ("B", "2")]));
    }

    #[test]
    fn last_value_of_a_name_wins() {
        assert_eq!(of("A^1|B^2|A^3"), pairs(&[("A", "3"), ("B", "2")]));
        let many: Vec<String> = (0..100).map(|i| format!("k{}^{i}|", i % 50)).collect();
        let read = of(&many.concat());
        assert_eq!(read.len(), 50);
        assert_eq!(read.first().map(|(n, v)| (n.as_str(), v.as_str())), Some(("k0", "50")));
        assert_eq!(read.last().map(|(n, v)| (n.as_str(), v.as_str())), Some(("k49", "99")));
    }

    #[test]
    fn separators_are_found_at_every_place_and_nothing_else_is() {
        for bytes in [[0u8, 1, 2, 3], [1, 3, 2, 3], [2, 2, 1, 1], [0x81, 0x82, 0, 3], [3, 3, 3, 1], [2, 0, 0, 3]] {
            for before in 0..9 {
                for after in 0..9 {
                    let text = [vec![b'x'; before], bytes.to_vec(), vec![b'x'; after]].concat();
                    let wanted: Vec<_> =
                        text.iter().copied().enumerate().filter(|(_, b)| (1..=VALUE_END).contains(b)).collect();
                    let mut found = Vec::new();
                    separators(&text, |at, byte| found.push((at, byte)));
                    assert_eq!(found, wanted, "{text:?}");
                }
            }
        }
    }
}
