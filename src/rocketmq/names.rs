//! Names of topics and queues that mean something to a store.

/// The topic that holds delayed messages until their time.
pub(super) const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Queues whose names begin so have one queue, number 0.
pub(super) const LIGHT_QUEUE: &str = "%LMQ%";
/// The queues besides its own that a message goes to, with commas, and their offsets.
pub(super) const MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
/// The offsets of the message in those queues.
pub(super) const MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";

/// True where a topic can name a folder; a damaged log may hold anything for a topic.
pub(super) fn is_folder_name(topic: &str) -> bool {
    !topic.is_empty() && topic != "." && topic != ".." && topic.len() <= 255 && !topic.contains(['/', '\\', '\0'])
}
