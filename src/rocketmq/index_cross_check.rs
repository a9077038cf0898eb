//! Compares the entries of index files with the keys of messages during a scan of the log. Every key must have an entry, and
//! every entry a message.
//!
//! Entries and messages are both in log order, so they are compared side by side and each is read once. Entries that are out of
//! order are checked at the end.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::commit_log::{CommitLog, FrameCollector};
use super::index_entries::{KeyTexts, for_each_key, is_indexed};
use crate::arrow::input_columns::{integers, null};
use crate::error::Result;
use crate::hash_index::{Entry, IndexFile};
use crate::io::u32_of;
use crate::java_text::decode_utf8;

/// Entries of a file that are in memory at a time.
const BLOCK: u32 = 4_096;

/// An offset in the log and the hash of a key.
type Link = (i64, i32);

/// The message that an entry refers to, and the place of the entry in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// Offset in the log.
    pub phy_offset: i64,
    /// Hash of the key.
    pub key_hash: i32,
    /// Position of the entry in its file.
    pub position: u32,
}

impl Lead {
    fn link(self) -> Link {
        (self.phy_offset, self.key_hash)
    }
}

/// A key without an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingKey {
    /// Offset of its message in the log.
    pub phy_offset: i64,
    /// The message's topic.
    pub topic: String,
    /// The key.
    pub key: String,
}

/// Reads the entries of one file in their order.
#[derive(Debug)]
struct Cursor {
    file: Arc<IndexFile>,
    /// Entries of the file from `position` on, and how many of them were taken.
    block: Vec<Entry>,
    position: u32,
    taken: usize,
    /// Offset of the last message, from the header.
    last: i64,
    late: Vec<Lead>,
    followed: u64,
}

impl Cursor {
    fn new(file: Arc<IndexFile>) -> Result<Self> {
        let last = file.header()?.end_phy_offset;
        Ok(Self { file, block: Vec::new(), position: 1, taken: 0, last, late: Vec::new(), followed: 0 })
    }

    /// The next entry.
    fn next(&mut self) -> Result<Option<Lead>> {
        if self.taken >= self.block.len() {
            self.position += u32_of(self.block.len());
            self.block = self.file.read_entries(self.position, BLOCK)?;
            self.taken = 0;
        }
        let position = self.position + u32_of(self.taken);
        let entry = self.block.get(self.taken);
        Ok(entry.map(|entry| Lead { phy_offset: entry.phy_offset, key_hash: entry.key_hash, position }))
    }

    /// Calls `take` with the entries that refer to a range of the log. Entries that are out of order are kept for later.
    fn take(&mut self, log_begin: i64, begin: i64, end: i64, mut take: impl FnMut(Lead)) -> Result<()> {
        while let Some(lead) = self.next()? {
            if lead.phy_offset >= end && lead.phy_offset <= self.last {
                break;
            }
            self.taken += 1;
            // Messages before the beginning of the log were deleted with their files.
            if lead.phy_offset >= log_begin {
                self.followed += 1;
                if (begin..end).contains(&lead.phy_offset) {
                    take(lead);
                } else {
                    self.late.push(lead);
                }
            }
        }
        Ok(())
    }

    /// Takes at most `most` of the remaining entries. Entries that were out of order come first.
    fn rest(&mut self, log_begin: i64, most: usize) -> Result<Vec<Lead>> {
        let late = self.late.len().min(most);
        let mut left: Vec<Lead> = self.late.drain(..late).collect();
        while left.len() < most {
            let Some(lead) = self.next()? else {
                break;
            };
            self.taken += 1;
            if lead.phy_offset >= log_begin {
                self.followed += 1;
                left.push(lead);
            }
        }
        Ok(left)
    }
}

/// Compares the keys of the messages of a log with the entries of its index files.
#[derive(Debug)]
pub struct IndexCrossCheck {
    cursors: Vec<Cursor>,
    /// True if the index holds tags, too.
    tags: bool,
    log_begin: i64,
    reached: i64,
    missing: BTreeMap<Link, (String, String)>,
}

impl IndexCrossCheck {
    /// Begins with the first entries of the files. Entries that refer to messages before `log_begin` are skipped.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn new(files: impl IntoIterator<Item = Arc<IndexFile>>, tags: bool, log_begin: i64) -> Result<Self> {
        let cursors = files.into_iter().map(Cursor::new).collect::<Result<_>>()?;
        Ok(Self { cursors, tags, log_begin, reached: log_begin, missing: BTreeMap::new() })
    }

    /// Compares the keys of the next batch of messages of the log with their entries. Returns the entries without a message, or
    /// whose message has no such key, with the numbers of their files.
    ///
    /// # Errors
    /// The errors of [`super::index_entries::index_entries`]; an I/O error, with the path.
    pub fn check(&mut self, messages: &RecordBatch) -> Result<Vec<(usize, Lead)>> {
        let Some(last) = messages.num_rows().checked_sub(1) else {
            return Ok(Vec::new());
        };
        let end = integers(messages, "phy_offset")?(last).ok_or_else(|| null("phy_offset", last))?.saturating_add(1);
        let mut wanted = links(messages, self.tags)?;
        let mut odd = Vec::new();
        for (number, cursor) in self.cursors.iter_mut().enumerate() {
            cursor.take(self.log_begin, self.reached, end, |lead| {
                if !wanted.take(lead.link()) {
                    odd.push((number, lead));
                }
            })?;
        }
        if wanted.left > 0 {
            let links: HashSet<Link> = wanted.rest().collect();
            for_each_key(messages, 0, self.tags, |key| {
                let link = (key.phy_offset, key.hash());
                if links.contains(&link) {
                    self.missing.insert(link, (key.topic.to_owned(), key.text()));
                }
            })?;
        }
        if !odd.is_empty() {
            // A key that occurs twice in a message has two entries. A tag may be indexed.
            let possible = links(messages, true)?;
            odd.retain(|(_, lead)| possible.find(lead.link()).is_none());
        }
        self.reached = end;
        Ok(odd)
    }

    /// Takes at most `most` entries of a file that are out of order; none at the end. The keys that they may refer to no longer
    /// count as missing.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn rest(&mut self, file: usize, most: usize) -> Result<Vec<Lead>> {
        let Some(cursor) = self.cursors.get_mut(file) else {
            return Ok(Vec::new());
        };
        let left = cursor.rest(self.log_begin, most)?;
        for lead in &left {
            self.missing.remove(&lead.link());
        }
        Ok(left)
    }

    /// Takes entries as [`Self::rest`] does and looks up their messages. Returns how many were taken, and those without a message
    /// that has such a key.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn check_rest(&mut self, file: usize, most: usize, log: &CommitLog) -> Result<(usize, Vec<Lead>)> {
        let mut left = self.rest(file, most)?;
        let taken = left.len();
        left.sort_by_key(|lead| lead.phy_offset);
        let mut offsets: Vec<i64> = left.iter().map(|lead| lead.phy_offset).collect();
        offsets.dedup();
        let mut wrong = Vec::new();
        let mut leads = left.into_iter().peekable();
        FrameCollector::new(log)?.read(&offsets, |number, frame| {
            let found = frame.as_ref().filter(|frame| is_indexed(frame.sys_flag()));
            let message = found.map(|f| (decode_utf8(f.topic()), KeyTexts::of_properties(f.properties())));
            while let Some(lead) = leads.next_if(|lead| offsets.get(number) == Some(&lead.phy_offset)) {
                let fits = message.as_ref().is_some_and(|(topic, texts)| texts.has_hash(topic, lead.key_hash, true));
                if !fits {
                    wrong.push(lead);
                }
            }
            false
        })?;
        wrong.sort_by_key(|lead| lead.position);
        Ok((taken, wrong))
    }

    /// Entries whose message is in the log or should be.
    pub fn followed(&self) -> u64 {
        self.cursors.iter().map(|cursor| cursor.followed).sum()
    }

    /// Number of keys without an entry of messages at an offset or after it.
    pub fn missing_from(&self, phy_offset: i64) -> usize {
        self.missing.range((phy_offset, i32::MIN)..).count()
    }

    /// Returns keys without an entry, of messages before an offset, in the order of the log; `None`: of all messages.
    pub fn missing_before(&self, phy_offset: Option<i64>) -> impl Iterator<Item = MissingKey> {
        let before = move |link: &Link| phy_offset.is_none_or(|end| link.0 < end);
        let missing = self.missing.iter().take_while(move |(link, _)| before(link));
        missing.map(|((phy_offset, _), (topic, key))| MissingKey {
            phy_offset: *phy_offset,
            topic: topic.clone(),
            key: key.clone(),
        })
    }
}

/// The links that the keys of a batch of messages need.
#[derive(Debug)]
struct Links {
    /// Each link once, and whether it was taken.
    sorted: Vec<(Link, bool)>,
    /// Number of the link that is expected next.
    next: usize,
    left: usize,
}

fn links(messages: &RecordBatch, tags: bool) -> Result<Links> {
    let mut links = Vec::new();
    for_each_key(messages, 0, tags, |key| links.push(((key.phy_offset, key.hash()), false)))?;
    links.sort_unstable();
    links.dedup();
    Ok(Links { left: links.len(), sorted: links, next: 0 })
}

impl Links {
    fn find(&self, link: Link) -> Option<usize> {
        self.sorted.binary_search_by_key(&link, |(link, _)| *link).ok()
    }

    /// Returns false if the link is missing or was taken before.
    fn take(&mut self, link: Link) -> bool {
        /// Entries of a message are adjacent, but in another order.
        const NEAR: usize = 4;
        let near =
            self.sorted.get(self.next..).and_then(|links| links.iter().take(NEAR).position(|(at, _)| *at == link));
        let Some(at) = near.map(|near| self.next + near).or_else(|| self.find(link)) else {
            return false;
        };
        let Some((_, taken)) = self.sorted.get_mut(at).filter(|(_, taken)| !taken) else {
            return false;
        };
        *taken = true;
        self.left -= 1;
        while self.sorted.get(self.next).is_some_and(|(_, taken)| *taken) {
            self.next += 1;
        }
        true
    }

    fn rest(&self) -> impl Iterator<Item = Link> {
        self.sorted.iter().filter(|(_, taken)| !taken).map(|(link, _)| *link)
    }
}

#[cfg(test)]
#[path = "index_cross_check_tests.rs"]
mod tests;
