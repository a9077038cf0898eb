//! The commit log: all messages of a store, in one sequence of files.
//!
//! A log offset is a byte position in the log. A file's name is the log offset of its first byte. A file is a sequence
//! of frames ([`frame`]) without gaps, and ends with a BLANK frame. The end of the log is not recorded: it is the first
//! frame that a broker would refuse. Only [`mod@write`] and [`super::truncate`] create or change files.
//! docs/formats/rocketmq-commitlog.md describes the format.

mod decode;
pub mod frame;
mod frames_at;
mod gather;
mod head_times;
mod left_over;
mod log;
mod lookup;
mod offset_reader;
mod planned;
mod read;
mod repair;
mod scan;
pub mod write;

pub(crate) use decode::batch::BatchBuilder;
pub use decode::batch::Bodies;
pub use decode::message::Message;
pub(crate) use decode::property_map;
pub use decode::property_map::PropertyMap;
pub use decode::row::Place;
pub(crate) use decode::row::Row;
pub use decode::suspect::{SplitMessages, Suspect, split_cut_off};
pub use decode::{body, columns, text};
pub use frame::{Stop, properties};
pub(crate) use frames_at::{FramesAt, Wanted};
pub(crate) use gather::{Gather, KeptFrames};
pub use head_times::HeadTimes;
pub use log::{CommitLog, KnownEnd, Options};
pub use planned::{Lost, PlannedLog};
pub use read::StoreTimes;
pub(crate) use repair::recovery;
pub use repair::recovery::{Recovery, Start};
pub use scan::filter::{Filter, TextSet};
pub use scan::options::{AtDamage, ScanOptions};
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
