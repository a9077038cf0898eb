//! The layout of an index file: header, slots, entries, and the geometry.

pub(super) mod answers;
pub(super) mod entry;
pub(super) mod geometry;
pub(super) mod header;
