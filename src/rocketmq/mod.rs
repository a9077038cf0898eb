//! The parts of a RocketMQ store other than the index files: the commit log, the consume queues, the checkpoint, and the rules
//! that turn a message into index entries.

pub mod candidates;
pub mod checkpoint;
pub mod commit_log;
pub mod consume_queue;
pub mod entry_table;
pub mod fastjson;
pub mod file_name;
pub mod index_cross_check;
pub mod index_entries;
pub mod index_recovery;
pub mod index_rows;
pub mod log_entries;
pub mod message_columns;
mod names;
pub mod offset_files;
pub mod queue_stream;
pub mod release;
pub mod remoting;
pub mod schedule;
pub mod seal;
pub mod store;
pub mod store_parts;
pub mod stored_frames;
pub mod truncate;
