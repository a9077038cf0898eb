//! Writes queues from the messages of a log: new queues, or existing ones from their ends.

mod expiry;
mod extension;
mod extension_check;
mod files;
mod queue;
mod recovery;
mod writer;

pub use writer::ConsumeQueueWriter;
