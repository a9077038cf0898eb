//! Walk a log message by message, over the files in the order of their offsets.

use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::io::{ReadAt, usize_of};
use crate::report::{Kind, Report};
use crate::rocketmq::commit_log::decode::block::{Place, Row};
use crate::rocketmq::commit_log::decode::suspect::Suspect;
use crate::rocketmq::commit_log::frame::{self, Found, Frame, Layout, Refusal, Stop, Versions};
use crate::rocketmq::commit_log::scan::filter::Filter;
use crate::rocketmq::commit_log::scan::salvage::{self, Past};
use crate::rocketmq::commit_log::scan::window::{LOOKUP_WINDOW, SCAN_WINDOW, Window};
use crate::rocketmq::offset_files::{Gap, GapsAhead, OffsetFile};

/// A message in the current file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located {
    at: u64,
    layout: Layout,
    suspect: Suspect,
}

/// The number of waits, and the length of each, for a batch whose writer may be about to complete it.
const PATIENCE: usize = 10;
const MOMENT: Duration = Duration::from_millis(10);

/// The bytes after a batch that is not completed.
enum Following {
    Nothing,
    /// Only messages of the store time of the batch. A batch that is put now has one.
    SameTime,
    /// Messages of later puts. Its writer would have put none.
    Later,
}

/// Returns the store time of a batch that begins at a position in a file and that its writer never completed; `None` for anything
/// else.
///
/// # Errors
/// An I/O error, with the path.
pub(crate) fn uncommitted(source: &impl ReadAt, file: &OffsetFile, at: u64) -> Result<Option<i64>> {
    let mut head = [0; frame::HEAD];
    let len = usize_of(file.len.saturating_sub(at)).min(head.len());
    let (head, _) = head.split_at_mut(len);
    source.read_exact_at(head, at).map_err(|e| Error::io(&file.path, e))?;
    let is_batch = frame::is_uncommitted(head, file.start.saturating_add(at));
    Ok(frame::store_timestamp_without_magic(head).filter(|_| is_batch))
}

/// Opens a file of the log.
type Opener<S> = Box<dyn FnMut(&OffsetFile) -> Result<S> + Send>;

/// A walk over messages, as a broker does it.
///
/// A BLANK frame ends the file, and the walk continues in the next one, whatever its number. The walk ends at the first
/// frame that a broker would refuse. Source: upstream `CommitLog#checkMessageAndReturnSize`, `#recoverNormally`.
pub struct Scan<S> {
    files: Vec<OffsetFile>,
    /// Number of the file after the current one.
    next_file: usize,
    open: Opener<S>,
    versions: Versions,
    window: Window,
    begin: u64,
    end: u64,
    current: Option<(OffsetFile, S)>,
    /// In the current file: start of the current message, and start of the next frame.
    at: u64,
    next: u64,
    layout: Option<Layout>,
    /// Log offset of the current position.
    position: u64,
    last_blank: Option<u64>,
    /// Log offset of the last refused frame that was read again.
    looked_again: Option<u64>,
    stop: Option<Stop>,
    salvage: Option<Box<Salvage>>,
    checked: Report,
    filter: Filter,
    /// Truncated messages from this offset on are skipped.
    truncated_from: Option<u64>,
    /// True if padding that does not end with its file ends the walk.
    ends_at_odd_blank: bool,
    /// Missing files inside the range.
    gaps: GapsAhead,
}

/// The state of a walk that continues after a corrupt region.
#[derive(Debug)]
struct Salvage {
    past: Past,
    suspect: Suspect,
    search: Window,
    probe: Window,
    /// Unwritten space: the regular end, unless messages follow.
    unwritten: Option<(OffsetFile, Stop)>,
    /// `past` holds all messages from the file of this number on; `None`: no message was judged yet.
    judged_from: Option<usize>,
}

impl<S> std::fmt::Debug for Scan<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("begin", &self.begin).field("end", &self.end).finish_non_exhaustive()
    }
}

impl<S: ReadAt> Scan<S> {
    /// Creates a walk over `files`, sorted by offset, that returns the messages whose first byte is in `begin..end`.
    ///
    /// Frames are only found by walking, so it starts at the beginning of the file that holds `begin`.
    pub fn new(
        files: Vec<OffsetFile>,
        open: impl FnMut(&OffsetFile) -> Result<S> + Send + 'static,
        versions: Versions,
        begin: u64,
        end: u64,
    ) -> Self {
        let mut files = files;
        let first = files.partition_point(|file| file.end() <= begin);
        files.drain(..first);
        Self {
            files,
            next_file: 0,
            open: Box::new(open),
            versions,
            window: Window::new(SCAN_WINDOW),
            begin,
            end,
            current: None,
            at: 0,
            next: 0,
            layout: None,
            position: begin,
            last_blank: None,
            looked_again: None,
            stop: None,
            salvage: None,
            checked: Report::default(),
            filter: Filter::default(),
            truncated_from: None,
            ends_at_odd_blank: false,
            gaps: GapsAhead::default(),
        }
    }

    /// Continue after a refused frame, at the next message that states its own offset.
    ///
    /// Each message has its signs. The last file that holds messages begins at `last_begin`.
    #[must_use]
    pub fn salvaging(mut self, last_begin: u64) -> Self {
        self.salvage = Some(Box::new(Salvage {
            past: Past::new(last_begin),
            suspect: Suspect::default(),
            search: Window::new(SCAN_WINDOW),
            probe: Window::new(LOOKUP_WINDOW),
            unwritten: None,
            judged_from: Some(0),
        }));
        self
    }

    /// Sets whether the checksums of bodies are checked.
    #[must_use]
    pub fn checking(mut self, crc: bool) -> Self {
        self.window.crc = crc;
        self
    }

    /// Returns only messages that pass a filter. The walk still reads all others, because the signs of later messages
    /// depend on them.
    #[must_use]
    pub fn filtering(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Returns the filter of the walk.
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Skips truncated messages from this offset on, in a salvaging walk.
    ///
    /// Only messages after damage can be truncated. So messages are judged only then: the walk goes back for those before it.
    #[must_use]
    pub fn without_truncated(mut self, from: u64) -> Self {
        self.truncated_from = Some(from);
        if let Some(salvage) = &mut self.salvage {
            salvage.judged_from = None;
        }
        self
    }

    /// End the walk at padding that does not end with its file, too.
    #[must_use]
    pub(crate) fn ending_at_odd_blank(mut self) -> Self {
        self.ends_at_odd_blank = true;
        self
    }

    /// Reports these gaps between the files when the walk passes them.
    #[must_use]
    pub fn reporting(mut self, gaps: Vec<Gap>) -> Self {
        self.gaps = GapsAhead::within(gaps, self.begin, self.end);
        self
    }

    /// Returns the report of what was refused so far.
    pub fn checked(&self) -> &Report {
        &self.checked
    }

    /// Starts the walk at `begin`, which must be the start of a frame. All messages before it in the file must be valid.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn starting_at_begin(self) -> Result<Self> {
        let begin = self.begin;
        self.starting_at(begin)
    }

    /// Starts the walk at this offset, which must be the start of a frame. All messages before it must be valid.
    ///
    /// A walk that skips truncated messages goes back from there if it needs the messages before it.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn starting_at(mut self, begin: u64) -> Result<Self> {
        self.begin = begin;
        self.next_file = self.files.partition_point(|file| file.end() <= begin);
        self.enter_next_file()?;
        if let Some((file, _)) = &self.current {
            self.next = begin.saturating_sub(file.start);
        }
        Ok(self)
    }

    /// Goes back to the beginning of the file of this number, unless the messages from there on were judged. Messages that were
    /// already returned are not returned again.
    fn went_back(&mut self, number: usize) -> bool {
        let Some(salvage) = &mut self.salvage else {
            return false;
        };
        if salvage.judged_from.is_some_and(|from| from <= number) {
            return false;
        }
        salvage.judged_from = Some(number);
        salvage.past.restart();
        if number == 0 {
            // All of it is found again.
            (salvage.unwritten, self.checked) = (None, Report::default());
            self.gaps.restart();
        }
        self.begin = self.begin.max(self.position);
        (self.current, self.next_file) = (None, number);
        true
    }

    /// Goes to the next message. Returns false at the end; [`Self::stop`] then has the reason.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn advance(&mut self) -> Result<bool> {
        self.layout = None;
        while self.stop.is_none() {
            let Some((file, source)) = &self.current else {
                self.enter_next_file()?;
                continue;
            };
            self.position = file.start.saturating_add(self.next);
            if self.position >= self.end {
                self.stop = Some(Stop { phy_offset: self.position, refusal: None });
                break;
            }
            let found = self.window.check(source, self.next, file.len, self.versions);
            match found.map_err(|e| Error::io(&file.path, e))? {
                Found::Message(layout) => {
                    self.at = self.next;
                    self.next += u64::from(layout.total());
                    if let Some((file, stop)) = self.salvage.as_mut().and_then(|salvage| salvage.unwritten.take()) {
                        if self.is_written_since(&file, &stop)? {
                            self.stop = Some(Stop { phy_offset: stop.phy_offset, refusal: None });
                            break;
                        }
                        salvage::tell(&mut self.checked, &file, &stop);
                    }
                    if let Some(salvage) = &mut self.salvage
                        && salvage.judged_from.is_some()
                    {
                        let frame = self.window.frame(self.at, layout);
                        salvage.suspect = salvage.past.judge(&frame, self.position);
                    }
                    if self.position >= self.begin {
                        self.layout = Some(layout);
                        return Ok(true);
                    }
                }
                Found::Blank => {
                    self.last_blank = Some(self.position);
                    let head = self.window.head(self.next);
                    if salvage::is_whole_blank(head, self.next, file.len) {
                        self.position = file.end();
                        self.current = None;
                    } else {
                        self.meet_odd_blank()?;
                    }
                }
                Found::Refused(refusal) => {
                    if refusal == Refusal::Unwritten
                        && let Some(time) = self.uncommitted()?
                        && self.ends_at_uncommitted(time)?
                    {
                        break;
                    }
                    let following = self.next_frame()?;
                    if (refusal != Refusal::Unwritten || following.is_some()) && self.is_written_by_now()? {
                        continue;
                    }
                    // Truncated messages follow only in the last file, and only its messages show them.
                    if following.is_some() && self.is_in_last_file() && self.went_back(self.next_file.saturating_sub(1))
                    {
                        continue;
                    }
                    self.refuse(refusal, following)?;
                }
            }
        }
        Ok(false)
    }

    /// Returns the store time of a batch that begins here and that its writer has not completed.
    fn uncommitted(&self) -> Result<Option<i64>> {
        let Some((file, source)) = &self.current else { return Ok(None) };
        uncommitted(source, file, self.next)
    }

    /// Ends the walk at a batch of this store time that is not completed. Returns false if it is damage: messages of later puts
    /// follow, or it was completed meanwhile.
    fn ends_at_uncommitted(&mut self, time: i64) -> Result<bool> {
        let stop = Stop { phy_offset: self.position, refusal: Some(Refusal::Unwritten) };
        let file = self.current.as_ref().map(|(file, _)| file.clone());
        if let Some(file) = file.filter(|_| self.salvage.is_some()) {
            match self.following_uncommitted(time)? {
                Following::Nothing => {}
                Following::Later => return Ok(false),
                Following::SameTime => {
                    for _ in 0..PATIENCE {
                        if self.is_written_since(&file, &stop)? {
                            self.window.clear();
                            return Ok(false);
                        }
                        thread::sleep(MOMENT);
                    }
                    // They are of this batch, or were put in the same millisecond.
                    salvage::tell(&mut self.checked, &file, &stop);
                }
            }
        }
        self.stop = Some(stop);
        Ok(true)
    }

    /// Returns which messages follow a batch of this store time that is not completed, here or in later files.
    fn following_uncommitted(&mut self, time: i64) -> Result<Following> {
        let mut following = Following::Nothing;
        let (mut search, mut probe) = (Window::new(SCAN_WINDOW), Window::new(LOOKUP_WINDOW));
        let here = self.next_file.saturating_sub(1);
        for number in here..self.files.len() {
            let Some(file) = self.files.get(number).cloned() else { break };
            let fail = |e| Error::io(&file.path, e);
            let source = (self.open)(&file)?;
            let mut at = if number == here { self.next } else { 0 };
            probe.clear();
            loop {
                match probe.check(&source, at, file.len, self.versions).map_err(fail)? {
                    Found::Message(layout) if probe.frame(at, layout).store_timestamp() == time => {
                        following = Following::SameTime;
                        at += u64::from(layout.total());
                    }
                    Found::Message(_) => return Ok(Following::Later),
                    Found::Blank => break,
                    Found::Refused(_) => {
                        let (len, versions) = (file.len, self.versions);
                        let next = salvage::next_frame(&source, &file, at, len, versions, &mut search, &mut probe);
                        let Some(next) = next.map_err(fail)? else { break };
                        at = next;
                    }
                }
            }
        }
        Ok(following)
    }

    /// Handles padding that does not end with its file. A broker goes to the next file.
    fn meet_odd_blank(&mut self) -> Result<()> {
        if self.ends_at_odd_blank {
            self.stop = Some(Stop { phy_offset: self.position, refusal: None });
            return Ok(());
        }
        let following = self.next_frame()?;
        // The messages of all files show which of the messages in the padding are older.
        if following.is_some() && self.went_back(0) {
            return Ok(());
        }
        if let (Some((file, _)), Some(salvage)) = (&self.current, &mut self.salvage) {
            let expected = "filling that ends with its file";
            let size = frame::stated_size(self.window.head(self.next)).map_or(-1, u64::cast_signed);
            self.checked.find(&file.path, self.next, Kind::LogBlank, expected, format!("size {size}"));
            salvage.past.leave_file();
        }
        self.go_on(following);
        Ok(())
    }

    /// Returns whether the current file is the last one that holds messages.
    fn is_in_last_file(&self) -> bool {
        let (current, salvage) = (self.current.as_ref(), self.salvage.as_ref());
        current.zip(salvage).is_some_and(|((file, _), salvage)| salvage.past.is_last_file(file.start))
    }

    /// Handles a refused frame: ends the walk, or skips the frame.
    fn refuse(&mut self, refusal: Refusal, following: Option<u64>) -> Result<()> {
        let Some(file) = self.current.as_ref().map(|(file, _)| file.clone()) else { return Ok(()) };
        let stop = Stop { phy_offset: self.position, refusal: Some(refusal) };
        let unwritten = refusal == Refusal::Unwritten;
        if !unwritten {
            salvage::tell(&mut self.checked, &file, &stop);
        }
        let Some(salvage) = &mut self.salvage else {
            self.stop = Some(stop);
            return Ok(());
        };
        salvage.past.stop();
        if unwritten && following.is_none() && salvage.past.is_before_last(file.start) {
            if self.is_written_since(&file, &stop)? {
                self.stop = Some(Stop { phy_offset: stop.phy_offset, refusal: None });
                return Ok(());
            }
            salvage::tell(&mut self.checked, &file, &stop);
        } else if unwritten {
            salvage.unwritten.get_or_insert((file, stop));
        }
        self.go_on(following);
        Ok(())
    }

    /// Returns the position of the next frame in the file after a refused one, for a salvaging walk.
    fn next_frame(&mut self) -> Result<Option<u64>> {
        let (Some((file, source)), Some(salvage)) = (&self.current, &mut self.salvage) else {
            return Ok(None);
        };
        let Salvage { search, probe, .. } = salvage.as_mut();
        let found = salvage::next_frame(source, file, self.next, file.len, self.versions, search, probe);
        found.map_err(|e| Error::io(&file.path, e))
    }

    /// Reads a refused frame again, once: a broker may have written it since.
    ///
    /// A broker writes messages in order. If a later message exists, this one is complete.
    fn is_written_by_now(&mut self) -> Result<bool> {
        let Some((file, source)) = self.current.as_ref().filter(|_| self.looked_again != Some(self.position)) else {
            return Ok(false);
        };
        self.looked_again = Some(self.position);
        let is_written = self.is_frame(source, file, self.next)?;
        if is_written {
            self.window.clear();
        }
        Ok(is_written)
    }

    /// Reads unwritten space again that seemed to be the end, if a later file holds messages.
    ///
    /// A broker may have written there since and continued in that file. In this case the walk ends at this space: the
    /// later messages would be returned with a gap before them.
    fn is_written_since(&mut self, file: &OffsetFile, stop: &Stop) -> Result<bool> {
        let source = (self.open)(file)?;
        self.is_frame(&source, file, stop.phy_offset.saturating_sub(file.start))
    }

    /// Reads a position again and returns whether it holds a valid frame.
    fn is_frame(&self, source: &S, file: &OffsetFile, at: u64) -> Result<bool> {
        let mut probe = Window::new(LOOKUP_WINDOW);
        probe.crc = self.window.crc;
        let found = probe.check(source, at, file.len, self.versions).map_err(|e| Error::io(&file.path, e))?;
        Ok(!matches!(found, Found::Refused(_)))
    }

    /// Goes to this position in the file. `None`: goes to the next file.
    fn go_on(&mut self, following: Option<u64>) {
        if let Some(at) = following {
            self.next = at;
        } else if let Some((file, _)) = self.current.take() {
            self.position = file.end();
        }
    }

    /// Goes over the next messages that are already in memory, until this many pass the filter.
    ///
    /// Replaces `found`. It may be empty although more messages follow.
    ///
    /// # Errors
    /// An I/O error, with the path. `found` then holds the messages before it.
    pub(crate) fn advance_block(&mut self, most: usize, found: &mut Vec<Located>) -> Result<()> {
        found.clear();
        if self.advance()?
            && let Some(layout) = self.layout
        {
            let suspect = self.suspect();
            if self.is_wanted(&self.window.frame(self.at, layout), self.position, suspect) {
                found.push(Located { at: self.at, layout, suspect });
            }
            self.advance_in_window(most, found);
        }
        Ok(())
    }

    /// Returns whether a message is to be returned.
    #[inline]
    fn is_wanted(&self, frame: &Frame<'_>, phy_offset: u64, suspect: Suspect) -> bool {
        let is_truncated = self.truncated_from.is_some_and(|from| phy_offset >= from && suspect.has(Suspect::CUT_OFF));
        !is_truncated && self.filter.passes(frame, phy_offset)
    }

    /// Goes over the next complete messages in memory, until this many were found.
    fn advance_in_window(&mut self, most: usize, found: &mut Vec<Located>) {
        let Some((file, _)) = &self.current else {
            return;
        };
        let end = file.len.min(self.end.saturating_sub(file.start));
        let mut held = self.window.head(self.next);
        while found.len() < most && self.next < end {
            let checked = frame::check_with(held, file.len - self.next, self.versions, self.window.crc);
            let Ok(Found::Message(layout)) = checked else {
                // `advance` reads this frame again and handles all cases.
                break;
            };
            let frame = Frame::new(held, layout);
            let phy_offset = file.start.saturating_add(self.next);
            if let Some(salvage) = &mut self.salvage
                && salvage.judged_from.is_some()
            {
                salvage.suspect = salvage.past.judge(&frame, phy_offset);
            }
            let suspect = self.suspect();
            if self.is_wanted(&frame, phy_offset, suspect) {
                found.push(Located { at: self.next, layout, suspect });
            }
            self.layout = Some(layout);
            self.at = self.next;
            self.next += u64::from(layout.total());
            held = held.get(layout.total() as usize..).unwrap_or_default();
        }
        self.position = file.start.saturating_add(self.at);
    }

    /// Returns the messages that [`Self::advance_block`] found.
    pub(crate) fn rows<'a>(&'a self, found: &[Located]) -> Vec<Row<'a>> {
        let Some((file, _)) = &self.current else {
            return Vec::new();
        };
        let row = |located: &Located| Row {
            frame: self.window.frame(located.at, located.layout),
            place: Place {
                phy_offset: file.start.saturating_add(located.at),
                path: &file.path,
                file_offset: located.at,
            },
            suspect: located.suspect,
        };
        found.iter().map(row).collect()
    }

    fn enter_next_file(&mut self) -> Result<()> {
        self.window.clear();
        self.next = 0;
        let file = self.files.get(self.next_file).cloned();
        self.next_file += 1;
        if let Some(file) = file {
            self.gaps.report(file.start, &mut self.checked);
            if let Some(salvage) = &mut self.salvage {
                salvage.past.enter_file(file.start);
            }
            let source = (self.open)(&file)?;
            self.current = Some((file, source));
        } else {
            self.gaps.report(u64::MAX, &mut self.checked);
            self.stop = Some(Stop { phy_offset: self.position, refusal: None });
        }
        Ok(())
    }

    /// Returns the message that [`Self::advance`] went to.
    pub fn message(&self) -> Option<(Place<'_>, Frame<'_>)> {
        let (file, _) = self.current.as_ref()?;
        let place = Place { phy_offset: file.start.saturating_add(self.at), path: &file.path, file_offset: self.at };
        Some((place, self.window.frame(self.at, self.layout?)))
    }

    /// Returns the signs of this message, if the walk salvages.
    pub fn suspect(&self) -> Suspect {
        self.salvage.as_ref().map_or(Suspect::default(), |salvage| salvage.suspect)
    }

    /// Returns the bytes that the walk holds in memory.
    #[cfg(test)]
    pub(crate) fn window_len(&self) -> usize {
        self.window.len()
    }

    /// Returns the log offset of the current position.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the log offset of the last BLANK frame of the walk.
    pub(crate) fn last_blank(&self) -> Option<u64> {
        self.last_blank
    }

    /// Returns why and where the walk ended; `None` before its end.
    pub fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }
}
