//! Reading a queue: its units, the extension units, and the queue offset of a store time.

mod batch_blocks;
mod batch_time_lookup;
mod extension;
mod queue;
mod time_lookup;
mod totals;
mod unit_batch;

pub(crate) use batch_blocks::BatchBlocks;
pub(crate) use extension::{END_BLANK, ExtensionReader, HEAD, SHORTEST_EXTENSION_FILE, offset_of};
pub use extension::{ExtensionUnit, is_extension_address};
pub(crate) use queue::{BATCH_FOLDER, Numbered, describe};
pub use queue::{Boundary, ConsumeQueue, Kind, Options, messages_near, start_of_last};
pub use totals::{TopicTotals, Totals};
pub(crate) use unit_batch::batch;
pub use unit_batch::extension_batch;
