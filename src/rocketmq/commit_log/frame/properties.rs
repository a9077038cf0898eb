//! The properties of a message: `name 01 value 02 name 01 value 02`.
//!
//! Source of the rules: upstream `MessageDecoder#string2messageProperties` since 4.9.1. The last separator may be
//! missing. An entry counts only with a name and a value; a value may hold further 01 bytes. A name that comes twice has
//! the last value.

use std::collections::HashMap;

use crate::arrow::byte_column::Piece;

/// The space-separated keys that a producer gave.
pub const KEYS: &str = "KEYS";
/// The tags that a producer gave.
pub const TAGS: &str = "TAGS";
/// The producer's own message id.
pub const UNIQ_KEY: &str = "UNIQ_KEY";

const NAME_END: u8 = 1;
const VALUE_END: u8 = 2;

/// The properties that have columns of their own, in the order of [`Names::known`].
const KNOWN: [&str; 3] = [UNIQ_KEY, TAGS, KEYS];

/// Name and value of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The text from the name on.
    from: &'a [u8],
    /// Bytes of the name; the value begins after the separator.
    name: usize,
    /// Bytes of the value.
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

/// The entries that count, each name once, in the order in which the names come first.
pub fn parse(text: &str) -> Vec<(&str, &str)> {
    let mut entries = Vec::with_capacity(16);
    split(Piece::whole(text.as_bytes()), &mut entries);
    merge(&mut entries, 0);
    entries.into_iter().map(|entry| (part(entry.name()), part(entry.value()))).collect()
}

/// The values of `UNIQ_KEY`, `TAGS` and `KEYS` in raw properties, as [`parse`] finds them.
///
/// Separators are ASCII, so splitting before decoding finds the same entries as splitting after it.
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

/// A piece of a text between ASCII bytes, which is text itself.
fn part(piece: Piece<'_>) -> &str {
    std::str::from_utf8(piece.bytes()).unwrap_or_default()
}

/// Adds the entries that count to `entries`, in their order, names that come twice twice.
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

/// The entry between two places of a text, if it counts.
#[inline]
fn entry(text: Piece<'_>, begin: usize, name_end: Option<usize>, end: usize) -> Option<Entry<'_>> {
    let name_end = name_end.filter(|at| *at > begin && at + 1 < end)?;
    let from = text.from.get(begin..)?;
    Some(Entry { from, name: name_end - begin, value: end - name_end - 1 })
}

/// Gives each name of the entries from `first` on its last value, at the place of its first.
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

/// So many bytes are searched in one go.
const CHUNK: usize = 64;

/// A bit for each byte 1 and 2 of the chunk that begins at `begin`, the first byte's the lowest.
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
    // All bytes at once: 1 where there is a separator.
    let ones = chunk.map(|byte| u8::from(byte.wrapping_sub(NAME_END) < 2));
    // The product gathers the lowest bits of eight bytes in the highest byte.
    let gather = |word: &[u8; 8]| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let shifted = |(at, word): (usize, &[u8; 8])| gather(word) << (8 * at);
    ones.as_chunks().0.iter().enumerate().map(shifted).fold(0, |all, bits| all | bits)
}

/// The names of a text in their order, each once: messages of one producer have the same.
#[derive(Debug)]
pub(crate) struct Names {
    each: Vec<Name>,
    /// Numbers of the entries of `UNIQ_KEY`, `TAGS` and `KEYS`.
    pub(crate) known: [Option<usize>; 3],
    /// All names behind each other, with space after them, and where each ends.
    text: Vec<u8>,
    ends: Vec<usize>,
}

#[derive(Debug)]
struct Name {
    text: Vec<u8>,
    /// The first bytes, and which bits of them count.
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

    /// True when the entries have these names in this order.
    #[inline]
    fn are_of(&self, entries: &[Entry<'_>]) -> bool {
        self.each.len() == entries.len() && self.each.iter().zip(entries).all(|(name, entry)| name.is_of(entry))
    }

    /// All names behind each other, and where each ends.
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

/// The names of texts that came before.
#[derive(Debug, Default)]
pub(crate) struct KnownNames {
    /// By a hash of the names' lengths, the number of names.
    places: Vec<usize>,
    names: Vec<Names>,
}

impl KnownNames {
    /// Bits of a place.
    const BITS: u32 = 6;
    /// So many are kept.
    const MOST: usize = 256;

    /// Forgets the names if they are many. Numbers that were given before then count no more.
    pub(crate) fn limit(&mut self) {
        self.places.resize(1 << Self::BITS, 0);
        if self.names.len() > Self::MOST {
            self.names.clear();
        }
    }

    /// The names of this number.
    pub(crate) fn get(&self, number: usize) -> Option<&Names> {
        self.names.get(number)
    }

    /// Adds the entries of a text as [`split`] does, each name once, and gives the number of the names.
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
        // A text with a name twice is not of its own names.
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
