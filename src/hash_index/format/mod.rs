//! The layout of an index file: header, slots, entries, and what follows from the numbers of slots and entries.

pub(super) mod answers;
pub(super) mod entry;
pub(super) mod geometry;
pub(super) mod header;
