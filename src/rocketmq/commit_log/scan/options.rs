//! What a scan returns.

use crate::rocketmq::commit_log::decode::batch::Bodies;
use crate::rocketmq::commit_log::decode::columns::Column;
use crate::rocketmq::commit_log::scan::filter::Filter;

/// What a scan does at a frame that a broker would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtDamage {
    /// The scan ends there, as a broker's walk does.
    Stop,
    /// The scan goes on at the next message. The column `suspect` comes after the others and holds what is wrong with
    /// each message.
    Salvage,
    /// The scan goes on at the next message, and leaves out messages that a broker truncated. Messages before `queue_end`
    /// are returned even if they look truncated: the consume queues lead to them.
    Skip {
        /// Offset in the log up to which queues lead; 0 without queues.
        queue_end: u64,
    },
}

/// What a scan returns.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// No message begins before this offset.
    pub begin_phy_offset: u64,
    /// No message begins at or after this offset.
    pub end_phy_offset: u64,
    /// The columns, in their order.
    pub columns: Vec<Column>,
    /// Rows of a batch, unless 64 MiB are reached before.
    pub batch_size: usize,
    /// What the body column holds.
    pub bodies: Bodies,
    /// What to do at a frame that a broker would refuse.
    pub at_damage: AtDamage,
    /// Body checksums are compared; otherwise a body with another checksum is returned as it is.
    pub check_crc: bool,
    /// Threads that check and decode beside the caller's, 1 for the caller's alone.
    pub threads: usize,
    /// Which messages are returned.
    pub filter: Filter,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            begin_phy_offset: 0,
            end_phy_offset: u64::MAX,
            columns: Column::ALL.to_vec(),
            batch_size: 8192,
            bodies: Bodies::Decoded,
            at_damage: AtDamage::Stop,
            check_crc: true,
            threads: 1,
            filter: Filter::default(),
        }
    }
}
