//! A broker's store: its log, queues and index, searched and read as one.
//!
//! - `ranges`: sets of ranges of log offsets
//! - `index`: the index files, and the sealed index that may stand for some of them
//! - `unindexed`: entries of the log ranges that no index file covers
//! - `open`: the open store
//! - `search`: messages by key
//! - `queues`: the consume queues
//! - `plan`: the plan of a read, in pieces
//! - `stream`: the messages of a plan
//! - `tasks`: the plan cut into pieces for tasks of a cluster
//! - `page`: some messages next to a position in the log

mod index;
mod open;
mod page;
mod plan;
mod queues;
mod ranges;
mod search;
mod stream;
mod tasks;
mod unindexed;

pub use index::{Candidates, IndexView, SealedAnswer, StoreIndex};
pub use open::Store;
pub use page::{Page, PageQuery};
pub use plan::{KnownTopics, Piece, Plan, Policy, ScanChoice, Way};
pub use queues::{Directories, Queues};
pub use ranges::{Range, subtract, union, within};
pub use search::{BatchQuery, Found, FoundBatches, IndexedRanges, KeyView, Query};
pub use stream::{MessageStream, ReadOptions};
pub use tasks::{QueuePiece, TaskPiece, Units};
pub use unindexed::{Progress, no_progress};
