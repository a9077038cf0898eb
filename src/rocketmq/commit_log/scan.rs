//! The walk of a log: message after message, over the files in the order of their offsets.

use std::path::Path;

use super::batch::Row;
use super::body::BodyError;
use super::frame::{Found, Frame, Layout, Refusal, Versions};
use super::suspect::Suspect;
use super::window::{SCAN_WINDOW, Window};
use crate::error::{Error, Result};
use crate::rocketmq::offset_files::OffsetFile;
use crate::source::ReadAt;

/// Where a walk ended, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Offset in the log.
    pub phy_offset: u64,
    /// What stands there; `None` at the end of the range asked for, or after the last file.
    pub refusal: Option<Refusal>,
}

/// Where a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Offset in the log.
    pub phy_offset: u64,
    /// Name of the file.
    pub path: &'a Path,
    /// Offset in the file.
    pub file_offset: u64,
}

impl Place<'_> {
    /// What is said where a body cannot be decoded.
    pub(super) fn body_error(&self, error: &BodyError) -> String {
        format!("{} at byte {}: {error}", self.path.display(), self.file_offset)
    }
}

/// Where in the current file a message lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    at: u64,
    layout: Layout,
}

/// Opens a file of the log.
type Opener<S> = Box<dyn FnMut(&OffsetFile) -> Result<S> + Send>;

/// A walk over messages, as the broker walks: a BLANK frame leads to the next file, whatever its number; the first
/// frame that a broker would refuse ends the walk (upstream `CommitLog#checkMessageAndReturnSize`, `#recoverNormally`).
pub struct Scan<S> {
    files: std::vec::IntoIter<OffsetFile>,
    open: Opener<S>,
    versions: Versions,
    window: Window,
    begin: u64,
    end: u64,
    current: Option<(OffsetFile, S)>,
    /// In the current file: the message at hand, and where the next frame begins.
    at: u64,
    next: u64,
    layout: Option<Layout>,
    /// In the log: where the walk has come to.
    position: u64,
    last_blank: Option<u64>,
    stop: Option<Stop>,
}

impl<S> std::fmt::Debug for Scan<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("begin", &self.begin).field("end", &self.end).finish_non_exhaustive()
    }
}

impl<S: ReadAt> Scan<S> {
    /// A walk over `files`, sorted by their starts, that gives the messages whose first byte is in `begin..end`.
    ///
    /// Frames are only known by walking, so it starts at the beginning of the file that holds `begin`.
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
            files: files.into_iter(),
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
            stop: None,
        }
    }

    /// Starts the walk at `begin` itself, which the caller knows to be the beginning of a frame.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub(super) fn starting_at_begin(mut self) -> Result<Self> {
        self.enter_next_file()?;
        if let Some((file, _)) = &self.current {
            self.next = self.begin.saturating_sub(file.start);
        }
        Ok(self)
    }

    /// Goes to the next message. False at the end; [`Self::stop`] then says why.
    ///
    /// # Errors
    /// The system's error, with the path.
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
                    if self.position >= self.begin {
                        self.layout = Some(layout);
                        return Ok(true);
                    }
                }
                Found::Blank => {
                    self.last_blank = Some(self.position);
                    self.position = file.end();
                    self.current = None;
                }
                Found::Refused(refusal) => {
                    self.stop = Some(Stop { phy_offset: self.position, refusal: Some(refusal) });
                }
            }
        }
        Ok(false)
    }

    /// Goes over the next messages, at most so many, as far as they are in memory already; at least one if there is one.
    /// Replaces what `found` held.
    ///
    /// # Errors
    /// The system's error, with the path; the messages before it are found then.
    pub(super) fn advance_block(&mut self, most: usize, found: &mut Vec<Located>) -> Result<()> {
        found.clear();
        while found.len() < most && (found.is_empty() || self.is_next_held()) {
            if !self.advance()? {
                break;
            }
            if let Some(layout) = self.layout {
                found.push(Located { at: self.at, layout });
            }
        }
        Ok(())
    }

    /// True when the next frame is in the window: looking at it then leaves those before it there.
    fn is_next_held(&self) -> bool {
        self.stop.is_none() && self.window.holds_frame(self.next)
    }

    /// The messages that [`Self::advance_block`] found.
    pub(super) fn rows<'a>(&'a self, found: &'a [Located]) -> impl Iterator<Item = Row<'a>> {
        let file = self.current.as_ref().map(|(file, _)| file);
        file.into_iter().flat_map(|file| {
            found.iter().map(|located| Row {
                frame: self.window.frame(located.at, located.layout),
                place: Place {
                    phy_offset: file.start.saturating_add(located.at),
                    path: &file.path,
                    file_offset: located.at,
                },
                suspect: Suspect::default(),
            })
        })
    }

    fn enter_next_file(&mut self) -> Result<()> {
        self.window.clear();
        self.next = 0;
        match self.files.next() {
            Some(file) => {
                let source = (self.open)(&file)?;
                self.current = Some((file, source));
            }
            None => self.stop = Some(Stop { phy_offset: self.position, refusal: None }),
        }
        Ok(())
    }

    /// The message that [`Self::advance`] came to.
    pub fn message(&self) -> Option<(Place<'_>, Frame<'_>)> {
        let (file, _) = self.current.as_ref()?;
        let place = Place { phy_offset: file.start.saturating_add(self.at), path: &file.path, file_offset: self.at };
        Some((place, self.window.frame(self.at, self.layout?)))
    }

    /// Bytes that the walk holds in memory.
    #[cfg(test)]
    pub(super) fn window_len(&self) -> usize {
        self.window.len()
    }

    /// In the log: where the last BLANK frame stood that the walk came to.
    pub(super) fn last_blank(&self) -> Option<u64> {
        self.last_blank
    }

    /// Why and where the walk ended; `None` while it goes on.
    pub fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }
}
