//! The commit log: all messages of a store, in one sequence of files.
//!
//! A log offset is a byte position in the log. A file's name is the log offset of its first byte. A file is a sequence
//! of frames ([`frame`]) without gaps, and ends with a BLANK frame. The end of the log is not recorded: it is the first
//! frame that a broker would refuse. Only [`mod@write`] and [`super::truncate`] create or change files.
//! docs/formats/rocketmq-commitlog.md describes the format.

mod cut_off;
mod decode;
pub mod frame;
mod frame_collector;
mod frames_at;

mod log;
mod lookup;
mod planned;
mod read;
pub(crate) mod recovery;
mod scan;
pub mod write;

pub(crate) use decode::batch::BatchBuilder;
pub use decode::batch::Bodies;
pub use decode::block::Place;
pub(crate) use decode::block::Row;
pub use decode::message::Message;
pub(crate) use decode::property_map;
pub use decode::property_map::PropertyMap;
pub use decode::search::Search;
pub use decode::suspect::{SplitMessages, Suspect, split_cut_off};
pub use decode::{body, columns, text};
pub use frame::{Stop, properties};
pub(crate) use frame_collector::{FrameCollector, KeptFrames};
pub(crate) use frames_at::{FramesAt, Wanted};
pub use log::{CommitLog, KnownEnd, Options};
pub use planned::{Lost, PlannedLog};
pub use read::HeadTimes;
pub use read::StoreTimes;
pub use recovery::{Recovery, Start};
pub use scan::filter::{AtDamage, ScanOptions};
pub use scan::filter::{Filter, TextSet};
pub use scan::reader::MessageReader;
pub use scan::walk::Scan;

/// Logs are shared between threads. Readers move between them.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn moved<T: Send>() {}
    shared::<CommitLog>();
    moved::<MessageReader<crate::io::FileSource>>();
};

#[cfg(test)]
mod tests;
