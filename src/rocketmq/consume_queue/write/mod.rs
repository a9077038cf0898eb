//! Writes queues from the messages of a log: new queues, or existing ones from their ends.

mod expiry;
mod extension;
mod files;
mod queue;
mod recovery;
mod writer;

pub use writer::ConsumeQueueWriter;
