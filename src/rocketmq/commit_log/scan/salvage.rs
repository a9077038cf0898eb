//! Continue after a corrupt region: mark truncated messages, and find the next valid one.

use std::collections::HashMap;
use std::io;

use crate::io::ReadAt;
use crate::report::{Kind, Report};
use crate::rocketmq::commit_log::decode::suspect::Suspect;
use crate::rocketmq::commit_log::frame::Stop;
use crate::rocketmq::commit_log::frame::{self, Frame, INNER_BATCH, Refusal, is_in_queue};
use crate::rocketmq::commit_log::frame::{Found, Versions};
use crate::rocketmq::commit_log::scan::window::Window;
use crate::rocketmq::offset_files::OffsetFile;

/// Bytes of a frame before its magic.
const BEFORE_MAGIC: u64 = 4;

/// The latest queue offsets of a queue: in all files, and in the last file that holds messages.
#[derive(Clone, Copy, Debug)]
struct LastOffsets {
    of_all: i64,
    of_last_file: i64,
}

/// The queues of the messages so far.
#[derive(Debug, Default)]
struct Queues {
    /// Latest queue offsets. The key is the queue id, then the topic.
    offsets: HashMap<Vec<u8>, LastOffsets>,
    /// The current key, a reused buffer.
    key: Vec<u8>,
}

impl Queues {
    /// Returns whether the queue had this queue offset before: in any file, and in the last file. Then stores it.
    fn is_back(&mut self, frame: &Frame<'_>, is_last_file: bool) -> (bool, bool) {
        // An inner batch takes one queue offset per inner message, and only its properties have their number.
        if frame.sys_flag() & INNER_BATCH != 0 || !is_in_queue(frame.sys_flag()) {
            return (false, false);
        }
        self.key.clear();
        self.key.extend_from_slice(&frame.queue_id().to_be_bytes());
        self.key.extend_from_slice(frame.topic());
        let Some(last) = self.offsets.get_mut(&self.key) else {
            let offset = frame.queue_offset();
            let of_last_file = if is_last_file { offset.max(-1) } else { -1 };
            self.offsets.insert(self.key.clone(), LastOffsets { of_all: offset.max(-1), of_last_file });
            return (offset <= -1, is_last_file && offset <= -1);
        };
        let is_back = |last: &mut i64| {
            let back = frame.queue_offset() <= *last;
            *last = frame.queue_offset().max(*last);
            back
        };
        (is_back(&mut last.of_all), is_last_file && is_back(&mut last.of_last_file))
    }

    /// Removes the queue offsets of the last file.
    fn enter_last_file(&mut self) {
        self.offsets.values_mut().for_each(|last| last.of_last_file = -1);
    }
}

/// State of the last file that holds messages.
///
/// Only this file can hold truncated messages after the end of the log, because truncation deletes all later files.
#[derive(Debug, Default)]
struct LastFile {
    /// Latest store time.
    time: Option<i64>,
    /// Latest store time before the last stop. Truncated messages are older. Valid messages after a corrupt one are
    /// not, even if the clock steps back there.
    time_at_stop: Option<i64>,
    stopped: bool,
}

/// State of the messages so far.
#[derive(Debug)]
pub(crate) struct Past {
    queues: Queues,
    /// Latest store time.
    time: Option<i64>,
    /// A broker's walk has ended.
    stopped: bool,
    /// A broker's walk has left the file and continues in the next one.
    left_file: bool,
    /// Start of the last file that holds messages.
    last_begin: u64,
    last: Option<LastFile>,
}

impl Past {
    /// Creates an empty state. The last file that holds messages begins at `last_begin`.
    pub(crate) fn new(last_begin: u64) -> Self {
        Self { queues: Queues::default(), time: None, stopped: false, left_file: false, last_begin, last: None }
    }

    /// Returns the signs of a message, then adds the message to the state.
    pub(crate) fn judge(&mut self, frame: &Frame<'_>, phy_offset: u64) -> Suspect {
        let mut signs = Suspect::default();
        let mut sign = |holds: bool, sign| {
            if holds {
                signs = signs.and(sign);
            }
        };
        let time = frame.store_timestamp();
        let is_elsewhere = frame.stated_phy_offset() != phy_offset.cast_signed();
        let is_half = frame.prop_crc().is_some_and(|crc| crc.stored != Some(crc.computed));
        let is_time_back = self.time.is_some_and(|latest| time < latest);
        self.time = self.time.max(Some(time));
        let (is_queue_back, is_back_in_last_file) = self.queues.is_back(frame, self.last.is_some());
        sign(self.stopped || self.left_file, Suspect::AFTER_STOP);
        sign(is_time_back, Suspect::TIME_BACK);
        sign(is_queue_back, Suspect::QUEUE_BACK);
        sign(is_elsewhere, Suspect::PHY_OFFSET);
        sign(is_half, Suspect::PROP_CRC);
        if let Some(last) = &mut self.last {
            let is_before_stop = last.time_at_stop.is_some_and(|latest| time < latest);
            let is_back = is_back_in_last_file || is_before_stop;
            sign(last.stopped && (is_back || is_elsewhere || is_half), Suspect::CUT_OFF);
            last.time = last.time.max(Some(time));
        }
        // The padding of a file may hold older messages.
        let is_odd = is_time_back || is_queue_back || is_elsewhere || is_half;
        sign(self.left_file && is_odd, Suspect::CUT_OFF);
        signs
    }

    /// Returns whether the file that begins at `begin` is full: a later file holds messages.
    pub(crate) fn is_before_last(&self, begin: u64) -> bool {
        begin < self.last_begin
    }

    /// Records that a broker's walk ends here.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        if let Some(last) = &mut self.last {
            last.stopped = true;
            last.time_at_stop = last.time;
        }
    }

    /// Records that a broker's walk continues in the next file, whatever follows in this one.
    pub(crate) fn leave_file(&mut self) {
        self.left_file = true;
    }

    /// Clears the state. The walk starts again with a file.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.last_begin);
    }

    /// Returns whether the file that begins at `begin` is the last one that holds messages.
    pub(crate) fn is_last_file(&self, begin: u64) -> bool {
        begin == self.last_begin
    }

    pub(crate) fn enter_file(&mut self, begin: u64) {
        self.left_file = false;
        self.last = self.is_last_file(begin).then(LastFile::default);
        if self.last.is_some() {
            self.queues.enter_last_file();
        }
    }
}

/// Returns the first position after `after` and before `until` with a message that states its own offset, or padding that ends
/// with the file.
pub(crate) fn next_frame<S: ReadAt + ?Sized>(
    source: &S,
    file: &OffsetFile,
    after: u64,
    until: u64,
    versions: Versions,
    search: &mut Window,
    probe: &mut Window,
) -> io::Result<Option<u64>> {
    let mut magic = after + 1 + BEFORE_MAGIC;
    probe.clear();
    search.clear();
    let end = until.saturating_add(2 * BEFORE_MAGIC - 1).min(file.len);
    while let Some(found) = search.find_magic(source, magic, end)? {
        let at = found - BEFORE_MAGIC;
        let phy_offset = file.start.saturating_add(at);
        if probe.begins_frame(source, at, file.len, phy_offset)? {
            match probe.check(source, at, file.len, versions)? {
                Found::Message(_) | Found::Blank => return Ok(Some(at)),
                Found::Refused(_) => {}
            }
        }
        magic = found + 1;
    }
    Ok(None)
}

/// Adds the refusal to the report.
pub(crate) fn tell(checked: &mut Report, file: &OffsetFile, stop: &Stop) {
    // An empty file is reported elsewhere.
    let Some(refusal) = stop.refusal.filter(|_| file.len > 0) else {
        return;
    };
    let is_end = stop.phy_offset >= file.end();
    let expected = match refusal {
        Refusal::Unwritten | Refusal::Magic(_) => "a message or a BLANK frame".to_owned(),
        Refusal::CutOff if is_end => "a message or a BLANK frame".to_owned(),
        Refusal::CutOff => format!("a frame that ends with its file, at byte {}", file.len),
        Refusal::Size { .. } => "field lengths that match the size of the frame".to_owned(),
        Refusal::BodyCrc { stored, .. } => format!("a body with checksum {stored:#010x}"),
        Refusal::DelayLevel => "a delay level that is a number".to_owned(),
    };
    let found = match refusal {
        Refusal::Unwritten => "unwritten space before later messages".to_owned(),
        Refusal::Magic(magic) => format!("magic {magic:#010x}"),
        Refusal::CutOff if is_end => "the end of the file".to_owned(),
        Refusal::CutOff => "a frame that is longer".to_owned(),
        Refusal::Size { stated } => format!("size {stated}"),
        Refusal::BodyCrc { computed, .. } => format!("{computed:#010x}"),
        Refusal::DelayLevel => "another text".to_owned(),
    };
    checked.find(&file.path, stop.phy_offset.saturating_sub(file.start), Kind::LogFrame, expected, found);
}

/// Returns whether the stated size of a BLANK frame ends with its file, as a broker writes it.
pub(crate) fn is_whole_blank(head: &[u8], at: u64, file_len: u64) -> bool {
    frame::stated_size(head).is_some_and(|size| at.saturating_add(size) == file_len)
}
