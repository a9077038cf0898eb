//! Reading messages of a log: scans, and look-ups at known offsets.

use arrow_array::RecordBatch;

use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::rocketmq::commit_log::decode::batch::{BatchBuilder, Bodies};
use crate::rocketmq::commit_log::decode::columns::Column;
use crate::rocketmq::commit_log::decode::message::Message;
use crate::rocketmq::commit_log::decode::row::Row;
use crate::rocketmq::commit_log::decode::suspect::Suspect;
use crate::rocketmq::commit_log::log::CommitLog;
use crate::rocketmq::commit_log::lookup::LookUp;
use crate::rocketmq::commit_log::scan::filter::Filter;
use crate::rocketmq::commit_log::scan::options::{AtDamage, ScanOptions};
use crate::rocketmq::commit_log::scan::parallel::Parallel;
use crate::rocketmq::commit_log::scan::reader::MessageReader;

impl CommitLog {
    /// The messages in log order, as record batches, up to the first frame that a broker would refuse.
    ///
    /// The walk starts at the offset asked for where a message begins there; else at the beginning of the file that
    /// holds it.
    ///
    /// # Errors
    /// The system's error, with the path; `InvalidArgument` when `batch_size` is 0.
    pub fn scan(&self, scan: &ScanOptions) -> Result<MessageReader<FileSource>> {
        let begin = scan.begin_phy_offset;
        let files = self.files()?;
        // Saves the walk of up to a whole file where a message is known to begin.
        let stops = scan.at_damage == AtDamage::Stop;
        let known = begin > 0 && stops && LookUp::new(self)?.is_message(begin)?;
        let first = files.iter().find(|file| file.end() > begin).is_none_or(|file| file.start >= begin);
        if scan.threads > 1 && scan.batch_size > 0 && stops && (known || first) {
            let parallel = Parallel::new(&files, begin, self.options, scan)?;
            return Ok(MessageReader::of_threads(parallel, &scan.columns));
        }
        let last = if stops { None } else { self.last_written(&files)? };
        let last_begin = last.and_then(|number| files.get(number)).map_or(0, |file| file.start);
        let walk = self.walk(files, begin, scan.end_phy_offset).checking(scan.check_crc);
        let mut walk = walk.filtering(scan.filter.clone());
        let mut columns = scan.columns.clone();
        match scan.at_damage {
            AtDamage::Stop => {}
            AtDamage::Salvage => {
                walk = walk.salvaging(last_begin);
                columns.push(Column::Suspect);
            }
            AtDamage::Skip { queue_end } => walk = walk.salvaging(last_begin).without_truncated(queue_end),
        }
        if known {
            walk = walk.starting_at_begin()?;
        }
        MessageReader::new(walk, &columns, scan.bodies, self.options.max_body_bytes, scan.batch_size)
    }

    /// The message that begins at this offset; `None` where none does, where its checksum is wrong, or where a broker cut it
    /// off and left it on the disk.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn message(&self, phy_offset: u64) -> Result<Option<Message>> {
        let mut look_up = LookUp::new(self)?;
        look_up.find(Some(phy_offset), |found| {
            found.map(|(frame, place)| Message::new(&frame, place, self.options.max_body_bytes))
        })
    }

    /// True when what begins at this offset is a whole message that a broker cut off; with [`Options::broker_end`] also when
    /// it only lies behind the end of the log.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn is_cut_off(&self, phy_offset: u64) -> Result<bool> {
        LookUp::new(self)?.is_cut_off(phy_offset)
    }

    /// One row for each offset, in their order: the message that begins there (see [`Self::message`]), or nulls and the offset.
    ///
    /// # Errors
    /// The system's error, with the path; `InvalidArgument` when the bodies together are too large for one batch.
    pub fn messages(
        &self,
        phy_offsets: impl IntoIterator<Item = Option<i64>>,
        columns: &[Column],
        bodies: Bodies,
    ) -> Result<RecordBatch> {
        let (batch, _, is_whole) = self.rows_of(phy_offsets, self.builder(columns, bodies).unbounded(), None)?;
        if !is_whole {
            let text = "these messages do not fit into one batch: ask for fewer offsets at a time";
            return Err(Error::InvalidArgument(text.to_owned()));
        }
        Ok(batch)
    }

    /// The messages that begin at the first of these offsets, as many as a batch holds, and how many of the offsets were read:
    /// one at least. Without a filter there is one row for each offset, as in [`Self::messages`].
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn first_messages(
        &self,
        phy_offsets: impl IntoIterator<Item = Option<i64>>,
        columns: &[Column],
        bodies: Bodies,
        filter: Option<&Filter>,
    ) -> Result<(RecordBatch, usize)> {
        let (batch, read, _) = self.rows_of(phy_offsets, self.builder(columns, bodies), filter)?;
        Ok((batch, read))
    }

    fn builder(&self, columns: &[Column], bodies: Bodies) -> BatchBuilder {
        BatchBuilder::new(columns, bodies, self.options.max_body_bytes)
    }

    /// The rows that fit into one batch, how many of the offsets they are of, and whether that is all of them.
    fn rows_of(
        &self,
        phy_offsets: impl IntoIterator<Item = Option<i64>>,
        mut builder: BatchBuilder,
        filter: Option<&Filter>,
    ) -> Result<(RecordBatch, usize, bool)> {
        let mut look_up = LookUp::new(self)?;
        let mut read = 0;
        for phy_offset in phy_offsets {
            let offset = phy_offset.and_then(|offset| u64::try_from(offset).ok());
            let fits = look_up.find(offset, |found| match found {
                Some((frame, place)) if filter.is_none_or(|filter| filter.passes(&frame, place.phy_offset)) => {
                    builder.append(&[Row { frame, place, suspect: Suspect::default() }]) == 1
                }
                _ => {
                    if filter.is_none() {
                        builder.append_missing(phy_offset);
                    }
                    true
                }
            })?;
            if !fits {
                return Ok((builder.take(), read, false));
            }
            read += 1;
        }
        Ok((builder.take(), read, true))
    }

    /// Look-ups of store times alone, with the files as they are listed now.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn store_times(&self) -> Result<StoreTimes<'_>> {
        Ok(StoreTimes(LookUp::new(self)?))
    }
}

/// Look-ups of store times.
#[derive(Debug)]
pub struct StoreTimes<'a>(LookUp<'a>);

impl StoreTimes<'_> {
    /// Offset of the first byte of the log.
    pub fn begin(&self) -> i64 {
        self.0.begin().cast_signed()
    }

    /// Store time of the message of `size` bytes that begins at an offset; `None` where no message's head is, or where
    /// its file ends before it does. Only the head is looked at.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn of(&mut self, phy_offset: i64, size: i32) -> Result<Option<i64>> {
        match (u64::try_from(phy_offset), u64::try_from(size)) {
            (Ok(phy_offset), Ok(size)) => self.0.store_timestamp(phy_offset, size),
            _ => Ok(None),
        }
    }
}
