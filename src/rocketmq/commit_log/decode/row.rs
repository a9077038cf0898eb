//! A message frame and its location, as input of decoders and columns.

use std::path::Path;

use crate::rocketmq::commit_log::decode::body::BodyError;
use crate::rocketmq::commit_log::decode::suspect::Suspect;
use crate::rocketmq::commit_log::frame::Frame;

/// The location of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Log offset.
    pub phy_offset: u64,
    /// Name of the file.
    pub path: &'a Path,
    /// Offset in the file.
    pub file_offset: u64,
}

impl Place<'_> {
    /// Returns the message for a body that cannot be decoded.
    pub(crate) fn body_error(&self, error: &BodyError) -> String {
        format!("{} at byte {}: {error}", self.path.display(), self.file_offset)
    }
}

/// A message to add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) frame: Frame<'a>,
    pub(crate) place: Place<'a>,
    pub(crate) suspect: Suspect,
}
