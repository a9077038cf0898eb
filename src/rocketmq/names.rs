//! Names of topics, queues and properties with a meaning in a store.

/// The topic that holds scheduled messages until they are due.
pub(super) const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Topics with this prefix have one queue, number 0.
const LIGHT_QUEUE: &str = "%LMQ%";
/// The other queues of a message, separated by commas.
pub(super) const MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
/// The queue offsets of the message in these queues.
pub(super) const MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";

/// The delay level of a scheduled message.
pub(super) const DELAY: &str = "DELAY";
/// The number of messages in an inner batch.
pub(super) const INNER_NUM: &str = "INNER_NUM";
/// The queue offset of the first message of an inner batch.
pub(super) const INNER_BASE: &str = "INNER_BASE";
/// Bytes of the longest topic of a frame of version 1.
pub(super) const LONGEST_TOPIC_V1: usize = 127;
/// Bytes of the longest topic (upstream `HookUtils#checkBeforePutMessage`).
pub(super) const LONGEST_TOPIC: usize = 255;

/// Returns the number of another queue of a message (upstream `MultiDispatchUtils`).
pub(super) fn dispatched_queue_id(queue: &str, queue_id: i32) -> i32 {
    if queue.starts_with(LIGHT_QUEUE) { 0 } else { queue_id }
}

/// Returns whether a topic is valid as a folder name. In a damaged log a topic may be any text.
pub(super) fn is_folder_name(topic: &str) -> bool {
    !topic.is_empty()
        && topic != "."
        && topic != ".."
        && topic.len() <= LONGEST_TOPIC
        && !topic.contains(['/', '\\', '\0'])
}
