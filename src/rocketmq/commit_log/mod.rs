//! The commit log: every message of a store, in one sequence of files.
//!
//! Offsets are positions in the endless log; a file's name is the offset of its first byte. A file is a gapless sequence
//! of frames ([`frame`]) that ends with a BLANK frame; the end of the log is not recorded anywhere, it is where the first
//! frame stands that a broker would refuse. Only [`mod@write`] and [`super::truncate`] create or change files. The
//! format is written down in docs/formats/rocketmq-commitlog.md.

mod batch;
pub mod body;
mod column_builder;
pub mod columns;
mod cut_off;
pub mod frame;
mod gather;
mod log;
mod lookup;
mod message;
mod parallel;
pub mod properties;
pub(super) mod property_map;
mod reader;
mod recovery;
mod salvage;
mod scan;
mod suspect;
pub mod text;
mod window;
pub mod write;

pub use batch::Bodies;
pub(in crate::rocketmq) use batch::{BatchBuilder, Row};
pub(in crate::rocketmq) use gather::Gather;
pub use log::{CommitLog, Options, ScanOptions, StoreTimes};
pub use message::Message;
pub use property_map::PropertyMap;
pub use reader::MessageReader;
pub use recovery::{Recovery, Start, file_batch};
pub use scan::{Place, Scan, Stop};
pub use suspect::{SplitMessages, Suspect, split_cut_off};

/// Logs are shared between threads, readers move between them.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn moved<T: Send>() {}
    shared::<CommitLog>();
    moved::<MessageReader<crate::io::FileSource>>();
};

#[cfg(test)]
mod tests;
