//! Writing a partition's log, with the bytes of a broker.
//!
//! ```text
//! sent batches --Validator--> offsets --Producers--> state --WritableSegment--> .log .index .timeindex .txnindex
//! Arrow columns --NewBatch--^            LeaderEpochs          PartitionLog: rolls, snapshots, truncation, retention
//! ```
//!
//! [`BatchSpool`] makes the batches of many partitions before their offsets are known.
//!
//! `load` opens a log as a broker's start does. [`LogWriter`] is the handle: it serialises calls, and makes the first failed write or
//! fsync final. Source: `UnifiedLog`, `LogLoader` of 3.9.2 and 4.3.1; docs/formats/kafka-log.md has the rules.

mod bootstrap;
mod copy;
mod given_batches;
mod leader_epochs;
mod load;
mod log;
mod new_batch;
mod new_records;
mod partition_metadata;
mod producers;
mod refusal;
mod repair;
mod segment;
mod spool;
mod topic_config;
mod validator;
mod writer;

pub use bootstrap::{NewTopic, Replica, with_topics};
pub use copy::{Copied, Transactions};
pub use log::{AppendResult, LogOptions};
pub use new_records::{COLUMNS, NewRecords};
pub use repair::{RepairOptions, Repaired, repair};
pub use spool::{BatchSpool, Chunk, SpoolOptions, Spooled};
pub use topic_config::TopicConfig;
pub use validator::{AppendOptions, Origin};
pub use writer::{LogService, LogWriter, Offsets, now_ms};
