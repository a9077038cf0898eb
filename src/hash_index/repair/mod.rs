//! Checks of an index file and its recovery after a crash, and the inference of its geometry.

#[cfg(test)]
mod crash_tests;
pub(super) mod infer;
pub(super) mod relink;
pub(super) mod verify;
