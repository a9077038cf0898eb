//! What a RocketMQ store holds besides the index: the commit log, the checkpoint, and the rules that turn a message into
//! index entries.

pub mod checkpoint;
pub mod commit_log;
pub mod file_name;
pub mod index_entries;
