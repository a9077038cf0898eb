//! Going on behind damage: what speaks against each message, and where the next one can be found.

use std::collections::HashMap;
use std::io;

use super::frame::{self, Frame, INNER_BATCH, Refusal, TRANSACTION_COMMIT, TRANSACTION_TYPE};
use super::scan::Stop;
use super::suspect::Suspect;
use super::window::Window;
use crate::rocketmq::commit_log::frame::{Found, Versions};
use crate::rocketmq::findings::Checked;
use crate::rocketmq::offset_files::OffsetFile;
use crate::source::ReadAt;

/// Bytes of a frame before its magic.
const BEFORE_MAGIC: u64 = 4;

/// What is remembered of the messages so far.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Latest store time.
    time: Option<i64>,
    /// Queue offset of the last message of each queue, by topic and number.
    queues: HashMap<Vec<u8>, HashMap<i32, i64>>,
    /// A broker's walk has ended.
    stopped: bool,
    /// A broker's walk has left the file, and goes on in the next.
    left_file: bool,
}

impl Past {
    /// What speaks against a message, which then is remembered itself.
    pub(super) fn judge(&mut self, frame: &Frame<'_>, phy_offset: u64) -> Suspect {
        let mut suspect = Suspect::default();
        let mut sign = |holds: bool, sign| {
            if holds {
                suspect = suspect.and(sign);
            }
        };
        sign(self.stopped || self.left_file, Suspect::AFTER_STOP);
        let time = frame.store_timestamp();
        sign(self.time.is_some_and(|latest| time < latest), Suspect::TIME_BACK);
        self.time = self.time.max(Some(time));
        let transaction = frame.sys_flag() & TRANSACTION_TYPE;
        if transaction == 0 || transaction == TRANSACTION_COMMIT {
            sign(self.is_queue_back(frame), Suspect::QUEUE_BACK);
        }
        sign(frame.stated_phy_offset() != phy_offset.cast_signed(), Suspect::PHY_OFFSET);
        sign(frame.prop_crc().is_some_and(|crc| crc.stored != Some(crc.computed)), Suspect::PROP_CRC);
        suspect
    }

    fn is_queue_back(&mut self, frame: &Frame<'_>) -> bool {
        // The offset of an inner batch is counted in messages that only its properties tell.
        if frame.sys_flag() & INNER_BATCH != 0 {
            return false;
        }
        if !self.queues.contains_key(frame.topic()) {
            self.queues.insert(frame.topic().to_vec(), HashMap::new());
        }
        let Some(queues) = self.queues.get_mut(frame.topic()) else {
            return false;
        };
        let offset = frame.queue_offset();
        let last = queues.entry(frame.queue_id()).or_insert(-1);
        let back = offset <= *last;
        *last = (*last).max(offset);
        back
    }

    /// A broker's walk ends here.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// A broker's walk goes on in the next file, whatever this one still holds.
    pub(super) fn leave_file(&mut self) {
        self.left_file = true;
    }

    pub(super) fn enter_file(&mut self) {
        self.left_file = false;
    }
}

/// The next place behind `after` where a message stands that states its own offset, or filling that ends with the file.
pub(super) fn next_frame<S: ReadAt + ?Sized>(
    source: &S,
    file: &OffsetFile,
    after: u64,
    versions: Versions,
    search: &mut Window,
    probe: &mut Window,
) -> io::Result<Option<u64>> {
    let mut magic = after + 1 + BEFORE_MAGIC;
    probe.clear();
    search.clear();
    while let Some(found) = search.find_magic(source, magic, file.len)? {
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

/// Says in a report what a broker refuses.
pub(super) fn tell(checked: &mut Checked, file: &OffsetFile, stop: &Stop) {
    let Some(refusal) = stop.refusal else {
        return;
    };
    let expected = match refusal {
        Refusal::Unwritten | Refusal::Magic(_) => "a message or a BLANK frame".to_owned(),
        Refusal::CutOff => "a frame that ends within its file".to_owned(),
        Refusal::Size { .. } => "fields that make the size of the frame".to_owned(),
        Refusal::BodyCrc { stored, .. } => format!("a body with checksum {stored:#010x}"),
        Refusal::DelayLevel => "a delay level that is a number".to_owned(),
    };
    let found = match refusal {
        Refusal::Unwritten => "nothing written, and messages behind it".to_owned(),
        Refusal::Magic(magic) => format!("magic {magic:#010x}"),
        Refusal::CutOff => "one that is longer".to_owned(),
        Refusal::Size { stated } => format!("size {stated}"),
        Refusal::BodyCrc { computed, .. } => format!("{computed:#010x}"),
        Refusal::DelayLevel => "another text".to_owned(),
    };
    checked.find(&file.path, stop.phy_offset.saturating_sub(file.start), "log-frame", expected, found);
}

/// True when a BLANK frame says that it ends with its file, as a broker writes it.
pub(super) fn is_whole_blank(head: &[u8], at: u64, file_len: u64) -> bool {
    frame::stated_size(head).is_some_and(|size| at.saturating_add(size) == file_len)
}
