//! A page: some messages next to a position in the log, newest or oldest first, for a person who reads on from there.

use std::ops;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;

use super::open::Store;
use super::plan::{Piece, Plan, Policy, Way};
use super::ranges::{Range, in_time, signed, unsigned, within};
use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::io::signals;
use crate::report::{Finding, Kind};
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::commit_log::{AtDamage, Bodies, CommitLog, Filter, MessageReader, ScanOptions};
use crate::rocketmq::consume_queue::{ConsumeQueue, messages_near};
use crate::time_range::TimeRange;

/// Bytes of the log that are read together, at first and at most: a page without filters needs few.
const FIRST_WINDOW: i64 = 256 << 10;
const MOST_WINDOW: i64 = 64 << 20;
/// While a pattern is searched, windows grow only if one takes less than this: a stranger may have chosen a slow pattern.
const LONG_STEP: Duration = Duration::from_millis(200);
/// The most units of queues that are read together.
const MOST_UNITS: usize = 8_192;
/// Bytes of the log in which a time is not looked for more exactly.
const SHORT: i64 = 64 << 10;

/// A wanted page.
#[derive(Clone, Debug)]
pub struct PageQuery {
    /// Conditions on the messages.
    pub filter: Filter,
    /// Offset of the log next to which they are; `None`: the end of the log that the order begins with.
    pub position: Option<i64>,
    /// The columns.
    pub columns: Vec<Column>,
    /// The most messages.
    pub limit: usize,
    /// The newest first.
    pub backwards: bool,
    /// After this time the page ends with what it has.
    pub most_time: Duration,
    /// Number of threads that read the ends of queues.
    pub threads: usize,
}

/// Some messages next to a position in the log.
#[derive(Clone, Debug)]
pub struct Page {
    /// The messages, in the order asked for.
    pub batch: RecordBatch,
    /// The position of the next page; `None`: nothing is left in this direction.
    pub next_position: Option<i64>,
    /// Bytes of the log from where the filter lets a reader begin to where this page ends.
    pub done: i64,
    /// Bytes of the log that the filter leaves.
    pub total: i64,
    /// The messages were read through the queues of their topic.
    pub by_queues: bool,
    /// The missing and damaged places that were passed over.
    pub findings: Vec<Finding>,
}

impl Store {
    /// Reads the messages next to a position. It ends when it has its messages, at the end of the log, or when its time is over.
    ///
    /// Times are found by bisection. If the broker's clock stepped back, messages of the range may be elsewhere in the log.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn page(&self, query: PageQuery) -> Result<Page> {
        // Times only choose where in the log to look.
        let filter = Filter { times: TimeRange::ALL, ..query.filter.clone() };
        let plan = self.plan(&filter, None, Policy::of_page(query.threads), &|| Ok(None))?;
        let end = signed(plan.log.max_offset()?);
        let ranges = in_time(&plan.log, query.filter.times, self.slack_ms)?;
        let reader = PageReader {
            log: Arc::clone(&plan.log),
            starts: plan.log.files()?.iter().map(|file| signed(file.start)).collect(),
            end,
            salvage: !self.index.is_brokers(),
            until: Instant::now() + query.most_time,
            query,
            has_begun: false,
            offsets: Vec::new(),
            findings: Vec::new(),
        };
        reader.page(plan, ranges)
    }
}

/// A queue and its queue offsets.
type Units = (Arc<ConsumeQueue>, ops::Range<i64>);

struct PageReader {
    log: Arc<CommitLog>,
    /// The first offsets of the files.
    starts: Vec<i64>,
    /// The end of the log.
    end: i64,
    salvage: bool,
    until: Instant,
    query: PageQuery,
    has_begun: bool,
    /// The messages so far.
    offsets: Vec<i64>,
    findings: Vec<Finding>,
}

impl PageReader {
    fn page(mut self, plan: Plan, ranges: Vec<Range>) -> Result<Page> {
        let backwards = self.query.backwards;
        let ranges = self.in_times(ranges)?;
        // After the end there is nothing, or damage with messages after it. These bytes are not counted.
        let before_end: Vec<Range> = within((0, self.end), &ranges);
        let total: i64 = before_end.iter().map(|(low, high)| high - low).sum();
        let pieces = queued(plan.pieces)?;
        let by_queues = pieces.iter().any(|(_, units)| units.is_some());
        let left = self.clipped(&ranges, self.query.position);
        let mut parts: Vec<(Range, Option<&[Units]>)> = Vec::new();
        for (range, units) in &pieces {
            for side in [(range.0, range.1.min(self.end)), (range.0.max(self.end), range.1)] {
                parts.extend(within(side, &left).into_iter().map(|part| (part, units.as_deref())));
            }
        }
        if backwards {
            parts.reverse();
        }
        let mut at = parts.first().map(|((low, high), _)| if backwards { *high } else { *low });
        for ((low, high), units) in parts {
            if self.is_over() {
                // Where the part before ended.
                break;
            }
            at = Some(match units {
                Some(units) => self.read_queues(units, low, high)?,
                None => self.read_log(low, high)?,
            });
        }
        let rest = at.map_or_else(Vec::new, |at| self.clipped(&ranges, Some(at)));
        let not_done: i64 = within((0, self.end), &rest).iter().map(|(low, high)| high - low).sum();
        let mut is_left = false;
        for (low, high) in rest {
            is_left = is_left || self.may_hold_messages(low, high)?;
        }
        let offsets = self.offsets.iter().take(self.query.limit).copied().map(Some);
        Ok(Page {
            batch: self.log.messages(offsets, &self.query.columns, Bodies::Decoded)?,
            next_position: at.filter(|_| is_left),
            done: total - not_done,
            total,
            by_queues,
            findings: [self.findings, self.query.filter.take_unsearched()].concat(),
        })
    }

    /// Returns whether a range may hold messages. After the end of the log there are some only if it is damaged.
    fn may_hold_messages(&mut self, low: i64, high: i64) -> Result<bool> {
        if low < self.end {
            return Ok(low < high);
        }
        Ok(!self.walk(low, high, AtDamage::Skip { queue_end: 0 })?.0.is_empty())
    }

    /// Returns the parts of ranges on the wanted side of a position.
    fn clipped(&self, ranges: &[Range], position: Option<i64>) -> Vec<Range> {
        match position {
            None => ranges.to_vec(),
            Some(position) if self.query.backwards => within((i64::MIN, position), ranges),
            Some(position) => within((position, i64::MAX), ranges),
        }
    }

    /// Returns whether the page has its messages, or its time is over. Each page makes at least one step, however slow the disk
    /// is: otherwise its reader would ask for it again and again.
    fn is_over(&self) -> bool {
        self.offsets.len() >= self.query.limit || (self.has_begun && Instant::now() >= self.until)
    }

    fn begin_step(&mut self) -> Result<()> {
        self.has_begun = true;
        signals::look().map_err(|e| Error::InvalidArgument(e.to_string()))
    }

    /// Returns the parts of ranges that have the messages of the wanted times, if the broker's clock never stepped back.
    fn in_times(&self, ranges: Vec<Range>) -> Result<Vec<Range>> {
        let times = self.query.filter.times;
        let Some((low, high)) = ranges.first().zip(ranges.last()).map(|(first, last)| (first.0, last.1.min(self.end)))
        else {
            return Ok(ranges);
        };
        if times.is_all() {
            return Ok(ranges);
        }
        let first = if times.begin_ms == i64::MIN { low } else { self.bisect(low, high, times.begin_ms)?.0 };
        let last = match times.end_ms.checked_add(1) {
            Some(after) => self.bisect(first, high, after)?.1,
            None => high,
        };
        Ok(within((first, last), &ranges))
    }

    /// Returns a short range of the log that has the first message of a time or later.
    fn bisect(&self, mut low: i64, mut high: i64, store_time: i64) -> Result<Range> {
        while high - low > SHORT {
            let middle = low + (high - low) / 2;
            let at = self.log.next_message(unsigned(middle), unsigned(high))?;
            let message = at.map_or(Ok(None), |at| self.log.message(at))?;
            match at.zip(message) {
                Some((at, message)) if message.store_timestamp < store_time => low = signed(at),
                _ => high = middle,
            }
        }
        Ok((low, high))
    }

    /// Reads messages of [low, high) through their units. Returns the position where to read on.
    fn read_queues(&mut self, units: &[Units], low: i64, high: i64) -> Result<i64> {
        let (backwards, limit) = (self.query.backwards, self.query.limit);
        let far_end = if backwards { low } else { high };
        let (mut at, mut most) = (if backwards { high } else { low }, limit);
        while !self.is_over() {
            self.begin_step()?;
            let (near, _) = messages_near(units, at, most, backwards)?;
            let inside: Vec<i64> = near.iter().copied().filter(|offset| (low..high).contains(offset)).collect();
            let Some(mut last) = inside.last().copied() else { return Ok(far_end) };
            let is_whole = inside.len() == near.len();
            let (wanted, columns) = (inside.into_iter().map(Some).collect(), [Column::PhyOffset]);
            let filter = Some(self.query.filter.clone());
            let reader = CommitLog::message_batches(&self.log, wanted, &columns, Bodies::Decoded, filter);
            self.offsets.extend(offsets_of(reader)?.0);
            if self.offsets.len() > limit {
                self.offsets.truncate(limit);
                last = self.offsets.last().copied().unwrap_or(last);
            } else if !is_whole {
                return Ok(far_end);
            }
            at = if backwards { last } else { last + 1 };
            most = (most * 4).min(MOST_UNITS);
        }
        Ok(at)
    }

    /// Reads messages of [low, high) from the log. Returns the position where to read on.
    fn read_log(&mut self, mut low: i64, mut high: i64) -> Result<i64> {
        let mut window = if low < self.end { FIRST_WINDOW } else { high - low };
        let is_search = self.query.filter.search.is_some();
        while low < high && !self.is_over() {
            self.begin_step()?;
            let begun = Instant::now();
            if self.query.backwards {
                high = self.step_back(low, high, window)?;
            } else {
                low = self.step_on(low, high.min(low.saturating_add(window)))?;
            }
            if !is_search || begun.elapsed() < LONG_STEP {
                window = window.saturating_mul(2).min(MOST_WINDOW);
            }
        }
        Ok(if self.query.backwards { high } else { low })
    }

    /// Reads the messages of one window before `high`. Returns its begin, or the last message that is wanted.
    fn step_back(&mut self, low: i64, high: i64, window: i64) -> Result<i64> {
        let file = self.starts.partition_point(|start| *start < high).saturating_sub(1);
        let least = low.max(self.starts.get(file).copied().unwrap_or(0));
        let mut begin = least.max(high.saturating_sub(window));
        if begin > least {
            // Frames are only found by walking, or by the offset that they state.
            match self.log.next_message(unsigned(begin), unsigned(high))? {
                Some(first) => begin = signed(first),
                None => return Ok(begin),
            }
        }
        let mut found = self.scan(begin, high)?.0;
        found.reverse();
        Ok(self.take(found).unwrap_or(begin))
    }

    /// Reads the messages of one window. Returns where the next begins, or the first message that is not wanted.
    fn step_on(&mut self, low: i64, end: i64) -> Result<i64> {
        let (found, reached) = self.scan(low, end)?;
        let need = self.query.limit - self.offsets.len();
        let next = found.get(need).copied();
        self.take(found);
        Ok(next.unwrap_or(reached))
    }

    /// Takes as many messages as the page needs. Returns the last one if there were more.
    fn take(&mut self, mut found: Vec<i64>) -> Option<i64> {
        let need = self.query.limit - self.offsets.len();
        let is_more = found.len() > need;
        found.truncate(need);
        self.offsets.extend(&found);
        found.last().copied().filter(|_| is_more)
    }

    /// Returns the offsets of the messages of a range that pass the filter, and where the next message begins.
    fn scan(&mut self, begin: i64, end: i64) -> Result<(Vec<i64>, i64)> {
        let (mut found, mut reached) = (Vec::new(), begin);
        if begin < self.end {
            (found, reached) = self.walk(begin, end, AtDamage::Stop)?;
        }
        if reached < end && self.salvage {
            // Damage, or a missing file.
            let (more, after) = self.walk(reached, end, AtDamage::Skip { queue_end: 0 })?;
            found.extend(more);
            reached = after;
        }
        Ok((found, reached.max(end)))
    }

    fn walk(&mut self, begin: i64, end: i64, at_damage: AtDamage) -> Result<(Vec<i64>, i64)> {
        let reader = self.log.scan(&ScanOptions {
            begin_phy_offset: unsigned(begin),
            end_phy_offset: unsigned(end),
            columns: vec![Column::PhyOffset],
            at_damage,
            filter: self.query.filter.clone(),
            ..ScanOptions::default()
        })?;
        let (found, reader) = offsets_of(reader)?;
        let is_salvage = at_damage != AtDamage::Stop;
        let of_page = reader.checked().findings.iter().filter(|found| is_within(found, begin, end));
        self.findings.extend(of_page.filter(|found| is_salvage || found.kind == Kind::FileGap).cloned());
        Ok((found, reader.stop().map_or(end, |stop| signed(stop.phy_offset))))
    }
}

/// Returns the ranges of pieces, with the units of those that are read through queues.
///
/// Units are counted from the first one that exists. If a file of a queue is missing they belong to other messages, and the log is
/// read instead.
fn queued(pieces: Vec<Piece>) -> Result<Vec<(Range, Option<Vec<Units>>)>> {
    let mut found = Vec::with_capacity(pieces.len());
    for Piece { range, way } in pieces {
        let units = match way {
            Way::Queues(parts) => {
                let mut is_whole = true;
                for part in &parts {
                    is_whole = is_whole && part.queue.gaps()?.is_empty();
                }
                let units = parts.into_iter().map(|part| (part.queue, part.begin..part.end)).collect();
                Some(units).filter(|_| is_whole)
            }
            Way::Log | Way::Offsets(_) => None,
        };
        found.push((range, units));
    }
    Ok(found)
}

/// Returns the offsets of the messages of a reader, and the reader at its end.
fn offsets_of(mut reader: MessageReader<FileSource>) -> Result<(Vec<i64>, MessageReader<FileSource>)> {
    let mut found = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        found.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
    }
    Ok((found, reader))
}

/// Returns whether a finding in a file of the log is in a range. A missing file always counts.
fn is_within(finding: &Finding, begin: i64, end: i64) -> bool {
    let name = Path::new(&finding.path).file_name().and_then(|name| name.to_str()?.parse::<i64>().ok());
    let place = name.zip(i64::try_from(finding.offset).ok());
    let is_inside = place.is_none_or(|(start, offset)| (begin..end).contains(&start.saturating_add(offset)));
    finding.kind == Kind::FileGap || is_inside
}
