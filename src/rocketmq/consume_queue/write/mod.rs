//! Writing queues from the messages of a log: new ones, or from the ends of the existing ones on.

mod extension;
mod extension_check;
mod files;
mod queue;
mod recovery;
mod writer;

pub use writer::ConsumeQueueWriter;
