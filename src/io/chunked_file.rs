//! A file that is stored in chunks of another form, one after the other: compressed, encrypted.
//!
//! ```text
//! file:    | chunk 0 | chunk 1 | chunk 2 |      all of one length, but for the last
//! stored:  | 0 | 1 | 2 |
//! ```
//!
//! A read fetches and decodes the chunks that it needs. The chunks that were decoded last are kept for the next reads, for all
//! files together.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;

use super::remote::url::Options;
use super::source::usize_of;
use super::source::{ReadAt, words_by_copy};
use crate::error::Undecodable;

/// The longest chunk that is decoded. Its length comes from a file.
const MOST_CHUNK: u64 = 256 << 20;
/// Bytes of the chunks that are kept.
const MOST_KEPT: usize = 64 << 20;
/// Chunks that are kept however long they are: a batch may begin in one and end in the next.
const LEAST_KEPT: usize = 2;

/// The place of the chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// All chunks have this stored length, the last one has another.
    Even {
        /// Of each but the last.
        chunk: u64,
        /// Of the last.
        last: u64,
    },
    /// The end of each stored chunk.
    Ends(Vec<u64>),
}

/// The chunks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Length of the file.
    pub len: u64,
    /// Length of each chunk but the last; not 0.
    pub chunk_len: u64,
    /// Their place.
    pub stored: Stored,
}

/// A chunk: where it is in the file, and where it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chunk {
    begin: u64,
    len: u64,
    stored_begin: u64,
    stored_len: u64,
}

impl Chunks {
    /// A file that is stored in one piece.
    pub fn one(len: u64, stored_len: u64) -> Self {
        Self { len, chunk_len: len.max(1), stored: Stored::Even { chunk: 0, last: stored_len } }
    }

    fn chunk(&self, number: u64) -> Option<Chunk> {
        let begin = number.checked_mul(self.chunk_len).filter(|begin| *begin < self.len)?;
        let len = self.chunk_len.min(self.len - begin);
        let (stored_begin, stored_len) = match &self.stored {
            Stored::Even { chunk, last } => {
                (number.checked_mul(*chunk)?, if begin + len == self.len { *last } else { *chunk })
            }
            Stored::Ends(ends) => {
                let number = usize::try_from(number).ok()?;
                let stored_begin = number.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())?;
                (stored_begin, ends.get(number)?.checked_sub(stored_begin)?)
            }
        };
        Some(Chunk { begin, len, stored_begin, stored_len })
    }
}

/// Decodes a stored chunk to at most this many bytes; an error is what was expected, and what was found.
pub type Decode = dyn Fn(Vec<u8>, usize) -> Result<Vec<u8>, (String, String)> + Send + Sync;

/// A file as it is stored.
#[derive(Clone)]
pub struct StoredFile {
    /// The file that has the chunks.
    pub path: PathBuf,
    /// The start of the first one in it.
    pub begin: u64,
    /// Distinguishes that file from others, with the path; changes with its content.
    pub tag: (Option<Arc<Options>>, String),
    /// Their place.
    pub chunks: Chunks,
    /// The way to decode them.
    pub decode: Arc<Decode>,
}

impl fmt::Debug for StoredFile {
    // The decoder has a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredFile").field("path", &self.path).field("chunks", &self.chunks).finish_non_exhaustive()
    }
}

/// The identity of a stored file: path, begin and tag.
type Key = (PathBuf, u64, (Option<Arc<Options>>, String));
/// A chunk that was decoded: its file, its number, and its bytes.
type Kept = (Arc<Key>, u64, Arc<Vec<u8>>);

/// A lock would be held for ever in the child of a fork that another thread made meanwhile.
static KEPT: LazyLock<ArcSwap<Vec<Kept>>> = LazyLock::new(ArcSwap::default);

/// A file that is stored in chunks, open for reading.
#[derive(Debug)]
pub struct ChunkedFile<S> {
    source: S,
    stored: StoredFile,
    key: Arc<Key>,
}

impl<S: ReadAt> ChunkedFile<S> {
    /// Reads a file whose chunks are in `source`.
    pub fn new(source: S, stored: StoredFile) -> Self {
        let key = Arc::new((stored.path.clone(), stored.begin, stored.tag.clone()));
        Self { source, stored, key }
    }

    fn undecodable(&self, offset: u64, expected: String, found: String) -> io::Error {
        Undecodable { path: self.stored.path.clone(), offset, expected, found }.into()
    }

    fn kept(&self, number: u64) -> Option<Arc<Vec<u8>>> {
        let kept = KEPT.load();
        let found = kept.iter().find(|(key, of, _)| *of == number && *key == self.key);
        found.map(|(_, _, bytes)| Arc::clone(bytes))
    }

    fn decoded(&self, number: u64) -> io::Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.kept(number) {
            return Ok(bytes);
        }
        let chunk = self.stored.chunks.chunk(number).ok_or(io::ErrorKind::UnexpectedEof)?;
        let at = self.stored.begin.saturating_add(chunk.stored_begin);
        let fail = |expected, found| self.undecodable(at, expected, found);
        if chunk.len > MOST_CHUNK {
            return Err(fail(format!("chunks of at most {MOST_CHUNK} bytes"), format!("{} bytes", chunk.len)));
        }
        if at.checked_add(chunk.stored_len).is_none_or(|end| end > self.source.len()) {
            let found = format!("the end of the file at byte {}", self.source.len());
            return Err(fail(format!("a chunk of {} bytes", chunk.stored_len), found));
        }
        let too_long = || io::Error::from(io::ErrorKind::OutOfMemory);
        let mut stored = vec![0; usize::try_from(chunk.stored_len).map_err(|_| too_long())?];
        self.source.read_exact_at(&mut stored, at)?;
        let most = usize::try_from(chunk.len).map_err(|_| too_long())?;
        let bytes = (self.stored.decode)(stored, most).map_err(|(expected, found)| fail(expected, found))?;
        if bytes.len() != most {
            return Err(fail(format!("a chunk of {most} bytes when decoded"), format!("{} bytes", bytes.len())));
        }
        let bytes = Arc::new(bytes);
        KEPT.rcu(|kept| {
            let mut held = vec![(Arc::clone(&self.key), number, Arc::clone(&bytes))];
            let mut total = bytes.len();
            for other in kept.iter() {
                total += other.2.len();
                if held.len() >= LEAST_KEPT && total > MOST_KEPT {
                    break;
                }
                held.push(other.clone());
            }
            held
        });
        Ok(bytes)
    }

    fn numbers(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let end = offset.saturating_add(len).min(self.stored.chunks.len);
        offset / self.stored.chunks.chunk_len..end.div_ceil(self.stored.chunks.chunk_len)
    }
}

impl<S: ReadAt> ReadAt for ChunkedFile<S> {
    fn len(&self) -> u64 {
        self.stored.chunks.len
    }

    fn read_exact_at(&self, mut buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.stored.chunks.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = offset;
        while !buf.is_empty() {
            let number = at / self.stored.chunks.chunk_len;
            let chunk = self.decoded(number)?;
            let skip = usize_of(at - number * self.stored.chunks.chunk_len);
            let from = chunk.get(skip..).unwrap_or_default();
            let len = from.len().min(buf.len());
            let (Some(from), Some((to, rest))) = (from.get(..len).filter(|_| len > 0), buf.split_at_mut_checked(len))
            else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            to.copy_from_slice(from);
            (buf, at) = (rest, at + len as u64);
        }
        Ok(())
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        words_by_copy(self, offset)
    }

    fn is_in_memory(&self, offset: u64) -> bool {
        self.kept(offset / self.stored.chunks.chunk_len).is_some()
    }

    fn is_far(&self) -> bool {
        self.source.is_far()
    }

    fn will_need(&self, offset: u64, len: u64) {
        let range = self.numbers(offset, len);
        let (first, last) =
            (self.stored.chunks.chunk(range.start), self.stored.chunks.chunk(range.end.saturating_sub(1)));
        if let (Some(first), Some(last)) = (first, last) {
            let stored = (last.stored_begin + last.stored_len).saturating_sub(first.stored_begin);
            self.source.will_need(self.stored.begin.saturating_add(first.stored_begin), stored);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn file(source: &[u8], chunks: Chunks, decode: Arc<Decode>) -> ChunkedFile<Vec<u8>> {
        ChunkedFile::new(
            source.to_vec(),
            StoredFile {
                path: "object".into(),
                begin: 1,
                tag: (None, format!("{source:?} {chunks:?}")),
                chunks,
                decode,
            },
        )
    }

    /// Chunks are stored with each byte twice.
    fn halved(stored: Vec<u8>, _: usize) -> Result<Vec<u8>, (String, String)> {
        if stored.contains(&b'!') {
            return Err(("letters".to_owned(), "a mark".to_owned()));
        }
        Ok(stored.into_iter().step_by(2).collect())
    }

    #[test]
    fn any_range_is_read_and_chunks_are_decoded_once() {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let decode = move |stored: Vec<u8>, most: usize| {
            counted.fetch_add(1, Ordering::Relaxed);
            halved(stored, most)
        };
        for stored in [Stored::Even { chunk: 6, last: 4 }, Stored::Ends(vec![6, 12, 16])] {
            count.store(0, Ordering::Relaxed);
            let chunks = Chunks { len: 8, chunk_len: 3, stored };
            let file = file(b"xaabbccddeeffgghh", chunks, Arc::new(decode.clone()));
            for begin in 0..=8 {
                for end in begin..=8 {
                    let mut buf = vec![0; end - begin];
                    file.read_exact_at(&mut buf, begin as u64).unwrap();
                    assert_eq!(buf, b"abcdefgh"[begin..end]);
                }
                assert!(file.read_exact_at(&mut vec![0; 9 - begin], begin as u64).is_err());
            }
            assert_eq!(count.load(Ordering::Relaxed), 3);
            // Another handle of the same file reads what was kept.
            let again = ChunkedFile::new(Vec::new(), file.stored.clone());
            again.read_exact_at(&mut [0; 8], 0).unwrap();
            assert_eq!(count.load(Ordering::Relaxed), 3);
        }
    }

    #[test]
    fn damage_is_named_with_its_place_in_the_stored_file() {
        let chunks = || Chunks { len: 8, chunk_len: 3, stored: Stored::Even { chunk: 6, last: 4 } };
        let says = |stored: &[u8], chunks: Chunks, at: u64| {
            let file = file(stored, chunks, Arc::new(halved));
            let error = file.read_exact_at(&mut [0; 1], at).unwrap_err();
            let cause: Undecodable = error.downcast().unwrap();
            (cause.offset, cause.expected, cause.found)
        };
        let whole = b"xaabbccdd!!ffgghh";
        assert_eq!(says(whole, chunks(), 4), (7, "letters".to_owned(), "a mark".to_owned()));
        let cut = (13, "a chunk of 4 bytes".to_owned(), "the end of the file at byte 16".to_owned());
        assert_eq!(says(&whole[..16], chunks(), 7), cut);
        let short = Chunks { stored: Stored::Ends(vec![6, 6, 10]), ..chunks() };
        assert_eq!(says(whole, short, 3).2, "0 bytes");
        let long = Chunks { len: MOST_CHUNK + 1, chunk_len: MOST_CHUNK + 1, stored: Stored::Ends(vec![4]) };
        assert_eq!(says(whole, long, 3).2, "268435457 bytes");
    }
}
