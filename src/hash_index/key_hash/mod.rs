//! The hash of an index key: the definition, and kernels that hash many texts at a time, and keys in Arrow columns.

pub(super) mod java_hash;
#[cfg(test)]
mod kernel_tests;
pub(super) mod kernels;
pub(super) mod key_columns;
pub(super) mod text_keys;
