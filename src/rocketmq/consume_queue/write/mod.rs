//! Writing queues: from the messages of a log, anew or from the ends of the queues on.

mod extension;
mod extension_check;
mod files;
mod queue;
mod recovery;
mod writer;

pub use writer::ConsumeQueueWriter;
