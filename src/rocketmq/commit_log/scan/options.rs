//! Options of a scan.

use crate::rocketmq::commit_log::decode::batch::Bodies;
use crate::rocketmq::commit_log::decode::columns::Column;
use crate::rocketmq::commit_log::scan::filter::Filter;

/// The behavior of a scan at a frame that a broker would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtDamage {
    /// The scan ends there, as a broker's walk does.
    Stop,
    /// The scan continues at the next message. The column `suspect` follows the others and holds the signs of each
    /// message.
    Salvage,
    /// The scan continues at the next message and skips messages that a broker truncated.
    ///
    /// Messages before `queue_end` are returned even if they seem truncated, because consume queues point to them.
    Skip {
        /// Log offset up to which consume queues point; 0 without queues.
        queue_end: u64,
    },
}

/// Options of a scan.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// Messages that begin before this offset are not returned.
    pub begin_phy_offset: u64,
    /// Messages that begin at or after this offset are not returned.
    pub end_phy_offset: u64,
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// Maximum rows of a batch. A batch ends earlier if it reaches 64 MiB.
    pub batch_size: usize,
    /// The content of the body column.
    pub bodies: Bodies,
    /// The behavior at a frame that a broker would refuse.
    pub at_damage: AtDamage,
    /// True: compare body checksums. False: return bodies whose checksum does not match.
    pub check_crc: bool,
    /// Number of threads that check and decode, in addition to the caller's thread. 1: only the caller's thread.
    pub threads: usize,
    /// Conditions on the returned messages.
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
