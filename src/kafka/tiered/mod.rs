//! Segments that brokers moved to remote storage, joined with those on the broker's disk into one log directory.
//!
//! Kafka leaves to a plugin where a segment is stored, and keeps the catalogue in a topic of its own. Two plugins store what is
//! needed to do without that topic; docs/formats/kafka-tiered.md describes what they write:
//!
//! - `LocalTieredStorage`, which Kafka has for its tests: the files of a segment as they are
//! - Aiven's plugin: a log in chunks that may be compressed and encrypted, the indexes in one object, and a manifest
//!
//! [`join`] makes a tree of directories like those of a broker, a store of its own, which everything that reads logs reads.
//!
//! - `names`: which object belongs to which segment
//! - `manifest`: where the parts of a segment are, and which offsets it has
//! - `manifests`: those that were read
//! - `key_ring`: private keys, and the data keys that they decrypt
//! - `lineage`: the leader epochs of a log, and which segments belong to it
//! - `remote_segment`: a segment in remote storage, and its files
//! - `partition`: the files of a partition, of both sides
//! - `tree`: the log directory

mod key_ring;
mod lineage;
mod manifest;
mod manifests;
mod names;
mod partition;
mod remote_segment;
mod tree;

pub use key_ring::KeyRing;
pub use tree::{Sources, holds_segments, join, sources};
