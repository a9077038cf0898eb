//! The open store.

use std::sync::Arc;

use super::index::{IndexView, StoreIndex};
use super::queues::Queues;
use super::unindexed::Unindexed;
use crate::error::Result;
use crate::io::{Location, ProcessMutex, storage};
use crate::rocketmq::commit_log::{BatchBuilder, CommitLog};
use crate::rocketmq::consume_queue::is_dispatched;

/// The log, the queues and the index of a store.
#[derive(Debug)]
pub struct Store {
    pub(super) log: Arc<CommitLog>,
    pub(super) queues: Arc<Queues>,
    pub(super) index: StoreIndex,
    /// How far the broker's clock may have stepped within a file, in ms.
    pub(super) slack_ms: i64,
    pub(super) unindexed: Unindexed,
    /// The builder of a small answer.
    pub(super) builder: ProcessMutex<Option<BatchBuilder>>,
}

impl Store {
    /// Uses the log and the queues of a store, and its index, and passes the end of the log in the index on to the log. A sealed index that replaces no file any
    /// more is not used.
    ///
    /// # Errors
    /// `Geometry` if slots and entries are not given and cannot be inferred; `InvalidArgument` if they are others; an I/O error.
    pub fn open(queues: Arc<Queues>, index: StoreIndex) -> Result<Self> {
        let (root, log, slack_ms) = (queues.root().clone(), Arc::clone(queues.log()), queues.options().clock_slack_ms);
        let mut store =
            Self { log, queues, index, slack_ms, unindexed: Unindexed::default(), builder: ProcessMutex::new() };
        let view = store.index.view()?;
        if view.as_ref().is_none_or(IndexView::is_unsealed) {
            store.index.drop_sealed(view.is_some());
        }
        let Some(view) = view else { return Ok(store) };
        if store.index.is_brokers() {
            return Ok(store);
        }
        // A crashed broker may have truncated its log, and queues and index may still refer to messages after the end.
        let is_clean = || storage::exists(&root.join("abort")).map(|abort| !abort);
        if let Some(sealed) = store.index.sealed() {
            // An `ETag` shows that the last file did not change, crash or not.
            if sealed.has_etags() || is_clean()? {
                sealed.tell_end(&store.log)?;
            }
            if store.log.is_end_known()? {
                return Ok(store);
            }
        }
        if is_clean()? {
            expect_end_after(&store.log, &root, view.last_message()?);
        }
        Ok(store)
    }

    /// The log.
    pub fn log(&self) -> &Arc<CommitLog> {
        &self.log
    }

    /// The queues.
    pub fn queues(&self) -> &Arc<Queues> {
        &self.queues
    }

    /// The index.
    pub fn index(&self) -> &StoreIndex {
        &self.index
    }

    /// Returns the texts for the log since the last call.
    pub fn take_notes(&self) -> Vec<String> {
        self.index.take_notes()
    }
}

/// Makes a log search its end from the message of the last index entry on, if it also has a unit in a consume queue of the store.
///
/// Without this, up to 1 GiB of the log is walked before the first answer. If this fails, the error is ignored, and the end is found
/// from the beginning of the last file. If the offset is after the last file, the last files are missing, and the log has a gap up
/// to it.
fn expect_end_after(log: &CommitLog, root: &Location, last: i64) {
    let Ok(phy_offset) = u64::try_from(last) else { return };
    log.lead_to(phy_offset);
    let root = root.to_owned();
    let find = move |log: &CommitLog| {
        if is_dispatched(&root, log, phy_offset)? { log.expect_message(phy_offset) } else { Ok(()) }
    };
    if log.path().is_remote() {
        log.find_end(find);
    } else {
        _ = find(log);
    }
}
