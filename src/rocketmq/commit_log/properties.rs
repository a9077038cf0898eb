//! The properties of a message: `name 01 value 02 name 01 value 02`.
//!
//! Source of the rules: upstream `MessageDecoder#string2messageProperties` since 4.9.1. The last separator may be
//! missing. An entry counts only with a name and a value; a value may hold further 01 bytes. A name that comes twice has
//! the last value.

use std::collections::HashMap;

use super::buffers::Piece;

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

/// The properties that have columns of their own, in the order of what [`split`] gives.
const KNOWN: [&str; 3] = [UNIQ_KEY, TAGS, KEYS];

/// Name and value of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// The text from the name on.
    from: &'a [u8],
    /// Bytes of the name; the value begins after the separator.
    name: usize,
    /// Bytes of the value.
    value: usize,
}

impl<'a> Entry<'a> {
    #[inline]
    pub(super) fn name(&self) -> Piece<'a> {
        Piece { from: self.from, len: self.name }
    }

    #[inline]
    pub(super) fn value(&self) -> Piece<'a> {
        Piece { from: self.from.get(self.name + 1..).unwrap_or_default(), len: self.value }
    }
}

/// The entries that count, each name once, in the order in which the names come first.
pub fn parse(text: &str) -> Vec<(&str, &str)> {
    let mut entries = Vec::with_capacity(16);
    split(Piece::whole(text.as_bytes()), &mut entries);
    entries.into_iter().map(|entry| (part(entry.name()), part(entry.value()))).collect()
}

/// A piece of a text between ASCII bytes, which is text itself.
fn part(piece: Piece<'_>) -> &str {
    std::str::from_utf8(piece.bytes()).unwrap_or_default()
}

/// Adds the entries that count to `entries`, each name once, in the order in which the names come first. Gives the numbers
/// of the entries of `UNIQ_KEY`, `TAGS` and `KEYS`, counted from the first of this text.
pub(super) fn split<'a>(text: Piece<'a>, entries: &mut Vec<Entry<'a>>) -> [Option<usize>; 3] {
    let mut names = Names { first: entries.len(), seen: 0, many: None, known: [None; 3] };
    let (mut begin, mut name_end) = (0, None);
    for chunk in (0..text.len).step_by(CHUNK) {
        let mut found = separators(&text, chunk);
        while found != 0 {
            let at = chunk + found.trailing_zeros() as usize;
            found &= found - 1;
            if text.from.get(at) == Some(&VALUE_END) {
                names.add(&text, begin, name_end.take(), at, entries);
                begin = at + 1;
            } else if name_end.is_none() {
                name_end = Some(at);
            }
        }
    }
    names.add(&text, begin, name_end, text.len, entries);
    names.known
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
        None => {
            let mut chunk = [0; CHUNK];
            chunk.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            separators_of(&chunk)
        }
    };
    if left < CHUNK { found & ((1 << left) - 1) } else { found }
}

#[inline]
fn separators_of(chunk: &[u8; CHUNK]) -> u64 {
    // All bytes at once: 1 where there is a separator.
    let ones = chunk.map(|byte| u8::from(byte.wrapping_sub(NAME_END) < 2));
    // The product gathers the lowest bits of eight bytes in the highest byte.
    let gather = |word: &[u8; 8]| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    ones.as_chunks().0.iter().rev().fold(0, |bits, word| bits << 8 | gather(word))
}

/// The names of one text that came before.
struct Names<'a> {
    /// Number of the text's first entry.
    first: usize,
    /// One bit for every kind of name, told by its length and first byte.
    seen: u64,
    /// The numbers of the entries by name, once there are many.
    many: Option<HashMap<&'a [u8], usize>>,
    known: [Option<usize>; 3],
}

impl<'a> Names<'a> {
    #[inline]
    fn add(
        &mut self,
        text: &Piece<'a>,
        begin: usize,
        name_end: Option<usize>,
        end: usize,
        entries: &mut Vec<Entry<'a>>,
    ) {
        let Some(name_end) = name_end.filter(|at| *at > begin && at + 1 < end) else {
            return;
        };
        let from = text.from.get(begin..).unwrap_or_default();
        let entry = Entry { from, name: name_end - begin, value: end - name_end - 1 };
        let name = entry.name().bytes();
        let number = entries.len() - self.first;
        if let Some(known) = self.place(name, entries) {
            *known = entry;
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
    fn place<'b>(&mut self, name: &'a [u8], entries: &'b mut [Entry<'a>]) -> Option<&'b mut Entry<'a>> {
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
        entries.get_mut(self.first..)?.iter_mut().find(|entry| entry.name().bytes() == name)
    }

    #[cold]
    fn place_of_many<'b>(
        &mut self,
        name: &'a [u8],
        count: usize,
        entries: &'b mut [Entry<'a>],
    ) -> Option<&'b mut Entry<'a>> {
        let known = entries.get(self.first..)?.iter().enumerate();
        let many = self.many.get_or_insert_with(|| known.map(|(place, entry)| (entry.name().bytes(), place)).collect());
        let place = *many.entry(name).or_insert(count);
        entries.get_mut(self.first + place)
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, Piece, VALUE_END, parse, separators};

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
