//! Read messages at many offsets. Neighbours are read together, and only accepted frames are kept.

use std::path::PathBuf;

use crate::error::Result;
use crate::rocketmq::commit_log::decode::block::{Place, Row};
use crate::rocketmq::commit_log::decode::suspect::Suspect;
use crate::rocketmq::commit_log::frame::{Frame, Layout};
use crate::rocketmq::commit_log::log::CommitLog;
use crate::rocketmq::commit_log::lookup::LookUp;
use crate::rocketmq::commit_log::scan::window::{LOOKUP_WINDOW, SCAN_WINDOW};

/// If the average distance of the offsets is at most this, they are read through a large window.
const NEAR: u64 = 8 * 1024;

/// From this many offsets on, all of them are read ahead before the first is used.
const EXPECTED: usize = 8;

/// No more frames are read once those that are kept have more bytes.
const MOST_KEPT: usize = 64 << 20;

/// A kept frame.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Position of its bytes in the arena.
    at: usize,
    layout: Layout,
    phy_offset: u64,
    path: usize,
    file_offset: u64,
}

/// Copies of frames, by the number of their offset.
#[derive(Debug, Default)]
pub(crate) struct KeptFrames {
    arena: Vec<u8>,
    kept: Vec<Option<Kept>>,
    paths: Vec<PathBuf>,
}

/// Reads the frames at given offsets and keeps a copy of the accepted ones.
#[derive(Debug)]
pub(crate) struct FrameCollector<'a> {
    look_up: LookUp<'a>,
    frames: KeptFrames,
}

impl<'a> FrameCollector<'a> {
    /// Opens a reader of the log's files, as listed now.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn new(log: &'a CommitLog) -> Result<Self> {
        Ok(Self { look_up: LookUp::new(log)?, frames: KeptFrames::default() })
    }

    /// Reads the messages at ascending offsets and keep those that `accept` takes. Earlier messages are dropped.
    ///
    /// `accept` is called once for each offset, with its number. It gets `None` if no message begins there.
    /// Returns the number of offsets that were read: fewer than all if the kept frames take too much memory.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn read(
        &mut self,
        offsets: &[i64],
        mut accept: impl FnMut(usize, Option<Frame<'_>>) -> bool,
    ) -> Result<usize> {
        self.frames.arena.clear();
        self.frames.kept.clear();
        let span = offsets.first().zip(offsets.last()).map_or(0, |(first, last)| last.abs_diff(*first));
        let is_near = offsets.len() > 1 && span / (offsets.len() as u64) <= NEAR;
        self.look_up.set_window(if is_near { SCAN_WINDOW } else { LOOKUP_WINDOW });
        if offsets.len() >= EXPECTED && !is_near {
            self.look_up.expect(offsets)?;
        }
        let KeptFrames { arena, kept, paths } = &mut self.frames;
        for (number, offset) in offsets.iter().enumerate() {
            self.look_up.find(u64::try_from(*offset).ok(), |found| {
                let Some((frame, place)) = found else {
                    accept(number, None);
                    kept.push(None);
                    return;
                };
                if !accept(number, Some(frame)) {
                    kept.push(None);
                    return;
                }
                if paths.last().is_none_or(|last| last != place.path) {
                    paths.push(place.path.to_owned());
                }
                let (bytes, layout) = frame.into_parts();
                let (phy_offset, file_offset) = (place.phy_offset, place.file_offset);
                kept.push(Some(Kept { at: arena.len(), layout, phy_offset, path: paths.len() - 1, file_offset }));
                arena.extend_from_slice(bytes);
            })?;
            if arena.len() > MOST_KEPT {
                return Ok(number + 1);
            }
        }
        Ok(offsets.len())
    }

    /// Returns the frames of the last read.
    pub(crate) fn into_frames(self) -> KeptFrames {
        self.frames
    }
}

impl KeptFrames {
    /// Returns the message of this offset number, if it was kept.
    pub(crate) fn row(&self, number: usize) -> Option<Row<'_>> {
        let kept = self.kept.get(number)?.as_ref()?;
        let frame = Frame::new(self.arena.get(kept.at..).unwrap_or_default(), kept.layout);
        let path = self.paths.get(kept.path)?;
        let place = Place { phy_offset: kept.phy_offset, path, file_offset: kept.file_offset };
        Some(Row { frame, place, suspect: Suspect::default() })
    }
}
