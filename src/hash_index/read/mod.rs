//! Lookups in one index file: the plain walk of a chain, and many walks at a time.

pub(super) mod hits;
pub(super) mod lanes;
pub(super) mod select;
