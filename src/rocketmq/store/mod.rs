//! A broker's store: what a search by key needs of its log and its index, in one place.
//!
//! - `ranges`: sets of ranges of log offsets
//! - `index`: the index files, and the sealed index that may stand for some of them
//! - `unindexed`: entries of the log ranges that no index file covers
//! - `open`: the open store
//! - `search`: messages by key

mod index;
mod open;
mod ranges;
mod search;
mod unindexed;

pub use index::{Candidates, IndexView, SealedAnswer, StoreIndex};
pub use open::{Store, expect_end_after};
pub use ranges::{Range, subtract, union, within};
pub use search::{BatchQuery, Found, FoundBatches, IndexedRanges, KeyView, Query};
pub use unindexed::{Progress, no_progress};
