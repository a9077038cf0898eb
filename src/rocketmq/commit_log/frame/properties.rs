//! The properties of a message: `name 01 value 02 name 01 value 02`.
//!
//! Source: upstream `MessageDecoder#string2messageProperties` since 4.9.1. The last separator may be missing. An entry
//! without a name or a value is ignored. A value may contain further 01 bytes. If a name is repeated, the last value
//! counts.

use std::collections::HashMap;

use crate::arrow::columns::Piece;

/// The producer's keys, separated by spaces.
pub const KEYS: &str = "KEYS";
/// The producer's tags.
pub const TAGS: &str = "TAGS";
/// The producer's message id.
pub const UNIQ_KEY: &str = "UNIQ_KEY";

const NAME_END: u8 = 1;
const VALUE_END: u8 = 2;

/// The properties with their own columns, in the order of [`Names::known`].
const KNOWN: [&str; 3] = [UNIQ_KEY, TAGS, KEYS];

/// Name and value of a property.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The text from the start of the name.
    from: &'a [u8],
    /// Length of the name in bytes. The value begins after the separator.
    name: usize,
    /// Length of the value in bytes.
    value: usize,
}

impl<'a> Entry<'a> {
    #[inline]
    pub(crate) fn name(&self) -> Piece<'a> {
        Piece { from: self.from, len: self.name }
    }

    #[inline]
    pub(crate) fn value(&self) -> Piece<'a> {
        Piece { from: self.from.get(self.name + 1..).unwrap_or_default(), len: self.value }
    }
}

/// Returns the valid entries. Each name occurs once, at its first position.
pub fn parse(text: &str) -> Vec<(&str, &str)> {
    let mut entries = Vec::with_capacity(16);
    split(Piece::whole(text.as_bytes()), &mut entries);
    merge(&mut entries, 0);
    entries.into_iter().map(|entry| (part(entry.name()), part(entry.value()))).collect()
}

/// Returns the values of `UNIQ_KEY`, `TAGS` and `KEYS` in raw properties, as [`parse`] finds them.
///
/// The separators are ASCII, so the bytes can be split before they are decoded.
pub fn key_values(bytes: &[u8]) -> [Option<&[u8]>; 3] {
    let mut values = [None; 3];
    for entry in bytes.split(|byte| *byte == VALUE_END) {
        let Some(name_end) = memchr::memchr(NAME_END, entry) else {
            continue;
        };
        let (name, value) = entry.split_at(name_end);
        let place = KNOWN.iter().position(|known| known.as_bytes() == name);
        if let (Some(found), Some(value @ [_, ..])) = (place.and_then(|at| values.get_mut(at)), value.get(1..)) {
            *found = Some(value);
        }
    }
    values
}

/// Returns the part of a text between two ASCII bytes. It is valid UTF-8.
fn part(piece: Piece<'_>) -> &str {
    std::str::from_utf8(piece.bytes()).unwrap_or_default()
}

/// Adds the valid entries to `entries`, in order. Repeated names are kept.
pub(crate) fn split<'a>(text: Piece<'a>, entries: &mut Vec<Entry<'a>>) {
    let (mut begin, mut name_end) = (0, None);
    for chunk in (0..text.len).step_by(CHUNK) {
        let mut found = separators(&text, chunk);
        while found != 0 {
            let at = chunk + found.trailing_zeros() as usize;
            found &= found - 1;
            if text.from.get(at) == Some(&VALUE_END) {
                entries.extend(entry(text, begin, name_end.take(), at));
                begin = at + 1;
            } else if name_end.is_none() {
                name_end = Some(at);
            }
        }
    }
    entries.extend(entry(text, begin, name_end, text.len));
}

/// Returns the entry between two positions of a text, if it is valid.
#[inline]
fn entry(text: Piece<'_>, begin: usize, name_end: Option<usize>, end: usize) -> Option<Entry<'_>> {
    let name_end = name_end.filter(|at| *at > begin && at + 1 < end)?;
    let from = text.from.get(begin..)?;
    Some(Entry { from, name: name_end - begin, value: end - name_end - 1 })
}

/// Keeps each name of the entries from `first` on once: at its first position, with its last value.
#[cold]
fn merge(entries: &mut Vec<Entry<'_>>, first: usize) {
    let mut places = HashMap::new();
    let mut merged: Vec<Entry<'_>> = Vec::new();
    for entry in entries.drain(first..) {
        let place = *places.entry(entry.name().bytes()).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(before) => *before = entry,
            None => merged.push(entry),
        }
    }
    entries.extend(merged);
}

/// Number of bytes per search step.
const CHUNK: usize = 64;

/// Returns a bit for each byte 1 or 2 of the chunk at `begin`. The first byte has the lowest bit.
#[inline]
fn separators(text: &Piece<'_>, begin: usize) -> u64 {
    let left = text.len - begin;
    let rest = text.from.get(begin..).unwrap_or_default();
    let found = match rest.first_chunk() {
        Some(chunk) => separators_of(chunk),
        None => separators_of_rest(rest),
    };
    if left < CHUNK { found & ((1 << left) - 1) } else { found }
}

#[cold]
fn separators_of_rest(rest: &[u8]) -> u64 {
    let mut chunk = [0; CHUNK];
    chunk.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    separators_of(&chunk)
}

#[inline]
fn separators_of(chunk: &[u8; CHUNK]) -> u64 {
    // For all bytes at once: 1 for a separator.
    let ones = chunk.map(|byte| u8::from(byte.wrapping_sub(NAME_END) < 2));
    // The product collects the lowest bits of eight bytes in the highest byte.
    let gather = |word: &[u8; 8]| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let shifted = |(at, word): (usize, &[u8; 8])| gather(word) << (8 * at);
    ones.as_chunks().0.iter().enumerate().map(shifted).fold(0, |all, bits| all | bits)
}

/// The names of a text in order, each once. Messages of one producer have the same names.
#[derive(Debug)]
pub(crate) struct Names {
    each: Vec<Name>,
    /// Entry numbers of `UNIQ_KEY`, `TAGS` and `KEYS`.
    pub(crate) known: [Option<usize>; 3],
    /// All names joined, with spare bytes after them, and the end of each name.
    text: Vec<u8>,
    ends: Vec<usize>,
}

#[derive(Debug)]
struct Name {
    text: Vec<u8>,
    /// The first bytes, and a mask of the bits to compare.
    head: u128,
    mask: u128,
}

impl Names {
    fn new(entries: &[Entry<'_>]) -> Self {
        let names = || entries.iter().map(|entry| entry.name().bytes());
        let place = |name: &str| names().position(|known| known == name.as_bytes());
        let ends = names().scan(0, |end, name| {
            *end += name.len();
            Some(*end)
        });
        Self {
            each: names().map(Name::new).collect(),
            known: KNOWN.map(place),
            text: names().flatten().copied().chain([0; CHUNK]).collect(),
            ends: ends.collect(),
        }
    }

    /// Returns whether the entries have these names in this order.
    #[inline]
    fn are_of(&self, entries: &[Entry<'_>]) -> bool {
        self.each.len() == entries.len() && self.each.iter().zip(entries).all(|(name, entry)| name.is_of(entry))
    }

    /// Returns all names joined, and the end of each name.
    pub(crate) fn joined(&self) -> (Piece<'_>, &[usize]) {
        (Piece { from: &self.text, len: self.text.len() - CHUNK }, &self.ends)
    }
}

impl Name {
    fn new(name: &[u8]) -> Self {
        let mut head = [0; 16];
        let mut mask = [0; 16];
        for ((head, mask), byte) in head.iter_mut().zip(&mut mask).zip(name) {
            (*head, *mask) = (*byte, u8::MAX);
        }
        Self { text: name.to_vec(), head: u128::from_le_bytes(head), mask: u128::from_le_bytes(mask) }
    }

    #[inline]
    fn is_of(&self, entry: &Entry<'_>) -> bool {
        if entry.name != self.text.len() {
            return false;
        }
        match entry.from.first_chunk() {
            Some(head) if entry.name <= head.len() => u128::from_le_bytes(*head) & self.mask == self.head,
            _ => entry.name().bytes() == self.text,
        }
    }
}

/// A cache of the names of earlier texts.
#[derive(Debug, Default)]
pub(crate) struct KnownNames {
    /// The number of the names, by a hash of their lengths.
    places: Vec<usize>,
    names: Vec<Names>,
}

impl KnownNames {
    /// Bits of a slot number.
    const BITS: u32 = 6;
    /// Maximum number of cached names.
    const MOST: usize = 256;

    /// Clears the cache if it is full. Numbers returned earlier are then invalid.
    pub(crate) fn limit(&mut self) {
        self.places.resize(1 << Self::BITS, 0);
        if self.names.len() > Self::MOST {
            self.names.clear();
        }
    }

    /// Returns the names of this number.
    pub(crate) fn get(&self, number: usize) -> Option<&Names> {
        self.names.get(number)
    }

    /// Adds the entries of a text as [`split`] does, each name once. Returns the number of the names.
    #[inline]
    pub(crate) fn split<'a>(&mut self, text: Piece<'a>, entries: &mut Vec<Entry<'a>>) -> usize {
        let first = entries.len();
        split(text, entries);
        let of_text = entries.get(first..).unwrap_or_default();
        let mixed = of_text.iter().fold(0, |hash: u64, entry| hash.wrapping_add(entry.name as u64).wrapping_mul(31));
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - Self::BITS);
        let place = usize::try_from(mixed).unwrap_or_default();
        let number = self.places.get(place).copied().unwrap_or_default();
        match self.names.get(number) {
            Some(names) if names.are_of(of_text) => number,
            _ => self.add(place, entries, first),
        }
    }

    #[cold]
    fn add(&mut self, place: usize, entries: &mut Vec<Entry<'_>>, first: usize) -> usize {
        let read = entries.len();
        merge(entries, first);
        self.names.push(Names::new(entries.get(first..).unwrap_or_default()));
        let number = self.names.len() - 1;
        // A text with a repeated name does not match its own names.
        if entries.len() == read
            && let Some(known) = self.places.get_mut(place)
        {
            *known = number;
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, KNOWN, Piece, VALUE_END, key_values, parse, separators};

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
    fn key_values_are_those_of_all_properties() {
        for text in
            ["", "KEYS^a b|TAGS^t|UNIQ_KEY^u|", "KEYS^a|KEYS^b", "KEYS^a|KEYS^|TAGS^|", "KEYS^a^b|^KEYS^c", "KEYS|TAGS"]
        {
            let text = text.replace('^', "\u{1}").replace('|', "\u{2}");
            let all = parse(&text);
            let wanted =
                KNOWN.map(|name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes()));
            assert_eq!(key_values(text.as_bytes()), wanted, "{text:?}");
        }
    }

    #[test]
    fn separators_are_found_at_every_place_and_nothing_else_is() {
        for bytes in [[0u8, 1, 2, 3], [1, 3, 2, 3], [2, 2, 1, 1], [0x81, 0x82, 0, 3], [3, 3, 3, 1], [2, 0, 0, 3]] {
            for before in (0..9).chain(55..70) {
                for after in (0..9).chain([60, 64, 65]) {
                    let text = [vec![b'x'; before], bytes.to_vec(), vec![b'x'; after]].concat();
                    let wanted: Vec<_> =
                        text.iter().copied().enumerate().filter(|(_, b)| (1..=VALUE_END).contains(b)).collect();
                    let found: Vec<_> = (0..text.len())
                        .filter(|at| separators(&Piece::whole(&text), at / CHUNK * CHUNK) >> (at % CHUNK) & 1 == 1)
                        .map(|at| (at, text[at]))
                        .collect();
                    assert_eq!(found, wanted, "{text:?}");
                }
            }
        }
    }
}
