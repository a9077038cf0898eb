//! Puts: one at a time, in blocks, and by several threads; the bytes are the same.

pub(super) mod bulk;
pub(super) mod entry_rows;
pub(super) mod put;
pub(super) mod put_batch;
#[cfg(test)]
mod put_tests;
