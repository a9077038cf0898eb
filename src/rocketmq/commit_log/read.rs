//! Read messages: scans, and look-ups at known offsets.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};

use crate::error::{Error, Result};
use crate::io::{FileSource, ReadAt as _, usize_of};
use crate::java_text::decode_utf8;
use crate::report::Report;
use crate::rocketmq::commit_log::decode::batch::{BatchBuilder, Bodies};
use crate::rocketmq::commit_log::decode::columns::Column;
use crate::rocketmq::commit_log::decode::message::Message;
use crate::rocketmq::commit_log::decode::suspect::Suspect;
use crate::rocketmq::commit_log::frame;
use crate::rocketmq::commit_log::frames_at::{OffsetReader, add_messages};
use crate::rocketmq::commit_log::log::CommitLog;
use crate::rocketmq::commit_log::lookup::LookUp;
use crate::rocketmq::commit_log::scan::filter::Filter;
use crate::rocketmq::commit_log::scan::filter::{AtDamage, ScanOptions};
use crate::rocketmq::commit_log::scan::parallel::Parallel;
use crate::rocketmq::commit_log::scan::reader::MessageReader;
use crate::rocketmq::commit_log::scan::walk::Scan;
use crate::rocketmq::offset_files::{Listing, OffsetFile};

impl CommitLog {
    /// Returns the messages in log order as record batches, up to the first frame that a broker would refuse.
    ///
    /// If a message begins at the first offset, the walk starts there. Otherwise it starts at the beginning of the file
    /// that holds this offset.
    ///
    /// # Errors
    /// An I/O error, with the path; `InvalidArgument` when `batch_size` is 0.
    pub fn scan(&self, scan: &ScanOptions) -> Result<MessageReader<FileSource>> {
        let begin = scan.begin_phy_offset;
        let files = self.listing()?;
        let last_begin = self.last_begin(scan.at_damage, &files)?;
        let known = self.is_known_begin(begin, scan.at_damage, &files, last_begin)?;
        let is_frame = known || files.iter().find(|file| file.end() > begin).is_none_or(|file| file.start >= begin);
        let walk = self.scan_walk(scan, &files, last_begin)?;
        if scan.threads > 1 && scan.batch_size.rows > 0 && scan.at_damage != AtDamage::Salvage && is_frame {
            let rest = (scan.at_damage != AtDamage::Stop).then_some(walk);
            let parallel = Parallel::new(&files, self.gaps_between(&files)?, begin, self.options, scan, rest);
            return Ok(MessageReader::of_threads(parallel, &scan.columns));
        }
        let mut columns = scan.columns.clone();
        if scan.at_damage == AtDamage::Salvage {
            columns.push(Column::Suspect);
        }
        let walk = if known { walk.starting_at_begin()? } else { walk };
        MessageReader::new(walk, &columns, scan.bodies, self.options.max_body_bytes, scan.batch_size)
    }

    /// Returns whether a walk may start at this offset, which saves the walk from the beginning of the file.
    ///
    /// It may if a message begins there, or the log ends there. A walk that skips truncated messages may do so only in
    /// the last file, where no message before the end of the log was truncated.
    fn is_known_begin(
        &self,
        begin: u64,
        at_damage: AtDamage,
        files: &[OffsetFile],
        last_begin: Option<u64>,
    ) -> Result<bool> {
        if begin == 0 || files.iter().any(|file| file.start == begin) {
            return Ok(false);
        }
        let is_message = || LookUp::new(self)?.is_message(begin);
        match at_damage {
            AtDamage::Salvage => Ok(false),
            AtDamage::Stop => is_message(),
            AtDamage::Skip { .. } => {
                let last = files.iter().find(|file| Some(file.start) == last_begin);
                if last.is_none_or(|last| begin < last.start || begin >= last.end()) {
                    return Ok(false);
                }
                let end = self.max_offset()?;
                Ok(begin == end || (begin < end && is_message()?))
            }
        }
    }

    /// Returns the start of the last file that holds messages, if the scan continues after damage.
    fn last_begin(&self, at_damage: AtDamage, files: &[OffsetFile]) -> Result<Option<u64>> {
        match at_damage {
            AtDamage::Stop => Ok(None),
            AtDamage::Salvage | AtDamage::Skip { .. } => {
                match self.pinned.as_ref().and_then(|pinned| pinned.last_written) {
                    Some(start) => Ok(Some(start)),
                    None => Ok(self.last_written(files)?.and_then(|number| files.get(number)).map(|file| file.start)),
                }
            }
        }
    }

    /// Returns the walk of a scan. It starts with the file that holds the first offset.
    fn scan_walk(&self, scan: &ScanOptions, files: &Listing, last_begin: Option<u64>) -> Result<Scan<FileSource>> {
        let last_begin = last_begin.unwrap_or(0);
        let gaps = self.gaps_between(files)?;
        let walk = self.walk(files.to_vec(), scan.begin_phy_offset, scan.end_phy_offset).checking(scan.check_crc);
        let walk = walk.filtering(scan.filter.clone()).reporting(gaps);
        Ok(match scan.at_damage {
            AtDamage::Stop => walk,
            AtDamage::Salvage => walk.salvaging(last_begin),
            AtDamage::Skip { queue_end } => walk.salvaging(last_begin).without_truncated(queue_end),
        })
    }

    /// Returns the topics of all messages, sorted, and a report of the corrupt regions. Reads the whole log.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn topics(&self, at_damage: AtDamage) -> Result<(Vec<String>, Report)> {
        let files = self.listing()?;
        let last_begin = self.last_begin(at_damage, &files)?;
        let mut walk = self.scan_walk(&ScanOptions { at_damage, ..ScanOptions::default() }, &files, last_begin)?;
        let mut topics = BTreeSet::new();
        while walk.advance()? {
            let is_truncated = walk.suspect().has(Suspect::CUT_OFF);
            if let Some((_, frame)) = walk.message().filter(|_| !is_truncated)
                && !topics.contains(frame.topic())
            {
                topics.insert(frame.topic().to_vec());
            }
        }
        let topics: BTreeSet<String> = topics.iter().map(|topic| decode_utf8(topic).into_owned()).collect();
        Ok((topics.into_iter().collect(), walk.checked().clone()))
    }

    /// Returns the end of a batch of messages from `begin` on, at most `end`: the offset of the first message that does not fit
    /// into this many bytes of log or messages. The first message always fits.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn batch_end(&self, begin: u64, end: u64, max_bytes: Option<u64>, max_messages: Option<u64>) -> Result<u64> {
        let limit = max_bytes.map_or(u64::MAX, |bytes| begin.saturating_add(bytes));
        if end <= limit && max_messages.is_none() {
            return Ok(end);
        }
        let scan = ScanOptions {
            begin_phy_offset: begin,
            end_phy_offset: end,
            columns: vec![Column::PhyOffset, Column::StoreSize],
            at_damage: AtDamage::Skip { queue_end: 0 },
            ..ScanOptions::default()
        };
        let mut reader = self.scan(&scan)?;
        let mut messages = 0;
        while let Some(batch) = reader.next_batch()? {
            let offsets = batch.column(0).as_primitive::<Int64Type>().values();
            let sizes = batch.column(1).as_primitive::<Int32Type>().values();
            for (offset, size) in offsets.iter().zip(sizes) {
                let offset = offset.cast_unsigned();
                let is_full = max_messages.is_some_and(|most| messages >= most);
                if messages > 0 && (is_full || offset.saturating_add_signed(i64::from(*size)) > limit) {
                    return Ok(offset);
                }
                messages += 1;
            }
        }
        Ok(end)
    }

    /// Returns the message that begins at this offset.
    ///
    /// `None` if no message begins there, its checksum is wrong, or a broker truncated it.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn message(&self, phy_offset: u64) -> Result<Option<Message>> {
        let mut look_up = LookUp::new(self)?;
        look_up.find(Some(phy_offset), |found| {
            found.map(|(frame, place)| Message::new(&frame, place, self.options.max_body_bytes))
        })
    }

    /// Returns the frames at these offsets as the log holds them, ascending, without those where no message begins.
    ///
    /// If they are more than `max_bytes`, those at the later offsets of the argument are left out.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn stored_frames(&self, phy_offsets: impl IntoIterator<Item = Option<i64>>, max_bytes: u64) -> Result<Vec<u8>> {
        let mut look_up = LookUp::new(self)?;
        let (mut found, mut bytes) = (Vec::new(), 0u64);
        for phy_offset in phy_offsets.into_iter().flatten().filter_map(|offset| u64::try_from(offset).ok()) {
            let frame =
                look_up.find(Some(phy_offset), |found| found.map(|(frame, _)| frame.into_parts().0.to_vec()))?;
            let Some(frame) = frame else { continue };
            bytes += frame.len() as u64;
            if bytes > max_bytes {
                break;
            }
            found.push((phy_offset, frame));
        }
        found.sort_by_key(|(phy_offset, _)| *phy_offset);
        Ok(found.into_iter().flat_map(|(_, frame)| frame).collect())
    }

    /// Returns whether a complete message that a broker truncated begins at this offset.
    ///
    /// With the option `broker_end`, every message after the end of the log counts as truncated.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn is_cut_off(&self, phy_offset: u64) -> Result<bool> {
        LookUp::new(self)?.is_cut_off(phy_offset)
    }

    /// Returns one row for each offset, in order: the message that begins there (see [`Self::message`]), or nulls and
    /// the offset.
    ///
    /// # Errors
    /// An I/O error, with the path; `InvalidArgument` if the bodies are too large for one batch.
    pub fn messages(
        &self,
        phy_offsets: impl IntoIterator<Item = Option<i64>>,
        columns: &[Column],
        bodies: Bodies,
    ) -> Result<RecordBatch> {
        let mut builder = self.builder(columns, bodies).unbounded();
        let (_, is_whole) = add_messages(self, phy_offsets, &mut builder, None)?;
        if !is_whole {
            let text = "the messages do not fit into one batch: request fewer offsets";
            return Err(Error::InvalidArgument(text.to_owned()));
        }
        Ok(builder.take())
    }

    /// Returns the messages at these offsets, in order, as a stream of batches.
    ///
    /// Without a filter there is one row for each offset, as in [`Self::messages`].
    pub fn message_batches(
        log: &Arc<Self>,
        phy_offsets: Vec<Option<i64>>,
        columns: &[Column],
        bodies: Bodies,
        filter: Option<Filter>,
    ) -> MessageReader<FileSource> {
        let search = filter.as_ref().and_then(|filter| filter.search.as_ref());
        let builder = log.builder(columns, bodies).searching(search);
        MessageReader::of_offsets(OffsetReader::new(Arc::clone(log), phy_offsets, builder, filter), columns)
    }

    /// Returns a walk over the frames of a range of the log.
    ///
    /// If a message begins at `begin`, the walk starts there. Otherwise it starts at the beginning of the file that
    /// holds `begin`. With `salvage` it continues after a corrupt region.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn frames(&self, begin: u64, end: u64, salvage: bool) -> Result<Scan<FileSource>> {
        let at_damage = if salvage { AtDamage::Salvage } else { AtDamage::Stop };
        let options = ScanOptions { begin_phy_offset: begin, end_phy_offset: end, at_damage, ..ScanOptions::default() };
        let files = self.listing()?;
        let last_begin = self.last_begin(at_damage, &files)?;
        let walk = self.scan_walk(&options, &files, last_begin)?;
        let known = !salvage && begin > 0 && LookUp::new(self)?.is_message(begin)?;
        if known { walk.starting_at_begin() } else { Ok(walk) }
    }

    pub(crate) fn builder(&self, columns: &[Column], bodies: Bodies) -> BatchBuilder {
        BatchBuilder::new(columns, bodies, self.options.max_body_bytes)
    }

    /// Returns a reader of store times, for the files as listed now.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn store_times(&self) -> Result<StoreTimes<'_>> {
        Ok(StoreTimes(LookUp::new(self)?))
    }
}

/// Reads store times of single messages.
#[derive(Debug)]
pub struct StoreTimes<'a>(LookUp<'a>);

impl StoreTimes<'_> {
    /// Returns the log offset of the first byte of the log.
    pub fn begin(&self) -> i64 {
        self.0.begin().cast_signed()
    }

    /// Returns the store time of the message of `size` bytes that begins at this offset. Only its head is read.
    ///
    /// `None` if there is no message head, or the file ends before the message does.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn of(&mut self, phy_offset: i64, size: i32) -> Result<Option<i64>> {
        match (u64::try_from(phy_offset), u64::try_from(size)) {
            (Ok(phy_offset), Ok(size)) => self.0.store_timestamp(phy_offset, size),
            _ => Ok(None),
        }
    }
}

/// Bytes of a read if the next head is near the one before, as in most logs.
const FAR: usize = 1 << 20;
/// Bytes of a read otherwise.
const SHORT: usize = 4 << 10;
/// Distance up to which reading on costs less than another read.
const NEAR: u64 = 64 << 10;

/// Reads store times. Rising offsets read each part of the log once.
#[derive(Debug)]
pub struct HeadTimes {
    log: Arc<CommitLog>,
    files: Listing,
    current: Option<(usize, Arc<FileSource>)>,
    /// Offset in the file of the bytes that are held.
    begin: u64,
    bytes: Vec<u8>,
}

impl HeadTimes {
    /// Prepares to read the files as they are listed now.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn new(log: Arc<CommitLog>) -> Result<Self> {
        Ok(Self { files: log.listing()?, log, current: None, begin: 0, bytes: Vec::new() })
    }

    /// Returns the store time of the message at an offset; `None` if none begins there.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn of(&mut self, phy_offset: i64) -> Result<Option<i64>> {
        let Ok(offset) = u64::try_from(phy_offset) else { return Ok(None) };
        let number = self.files.partition_point(|file| file.start <= offset).checked_sub(1);
        let found = number.and_then(|number| Some((number, self.files.get(number)?)));
        let Some((number, file)) = found.filter(|(_, file)| offset < file.end()) else { return Ok(None) };
        let (at, file) = (offset - file.start, file.clone());
        if self.current.as_ref().is_none_or(|(current, _)| *current != number) {
            let Some(source) = self.log.open_file(&file)? else { return Ok(None) };
            self.current = Some((number, source));
            self.bytes.clear();
        }
        if self.head(at, file.len).is_none() {
            self.read(at, &file)?;
        }
        let Some(head) = self.head(at, file.len) else { return Ok(None) };
        if frame::stated_phy_offset_of_head(head) != Some(phy_offset) {
            return Ok(None);
        }
        Ok(frame::store_timestamp_of_head(head, self.log.options.versions))
    }

    /// The head of the frame at an offset of the file, if it is held.
    fn head(&self, at: u64, file_len: u64) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.begin)?).ok()?;
        let len = usize_of(file_len - at).min(frame::HEAD);
        self.bytes.get(from..from.checked_add(len)?)
    }

    fn read(&mut self, at: u64, file: &OffsetFile) -> Result<()> {
        let Some((_, source)) = &self.current else { return Ok(()) };
        let end = self.begin + self.bytes.len() as u64;
        let is_near = !self.bytes.is_empty() && at >= self.begin && at <= end + NEAR;
        let len = if is_near { FAR } else { SHORT };
        let len = len.min(usize_of(file.len - at));
        self.bytes.resize(len, 0);
        self.begin = at;
        source.read_exact_at(&mut self.bytes, at).map_err(|e| Error::io(&file.path, e))
    }
}
