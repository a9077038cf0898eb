//! One frame of the commit log.
//!
//! The module `layout` describes the fields. [`check()`] returns whether a broker would accept the frame. [`Frame`]
//! reads its fields, and [`properties`] splits the properties.

mod check;
mod fields;
mod layout;
pub mod properties;

pub use check::{Found, Needs, Refusal, Stop, UNCOMMITTED_LEN, check, check_with, is_uncommitted};
pub use fields::{Frame, Layout, PropCrc, body_crc};
pub use layout::Versions;
pub(crate) use layout::{
    BEFORE_BODY_LENGTH, BORN_HOST_V6, FrameBytes, HEAD, STORE_HOST_V6, stated_phy_offset_of_head, stated_size,
    store_timestamp_of_head, store_timestamp_without_magic,
};
pub use layout::{
    BLANK_LEN, COMPRESSED, COMPRESSION_TYPE, INNER_BATCH, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, NEED_UNWRAP,
    TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, TRANSACTION_TYPE, is_in_queue,
};

#[cfg(test)]
mod tests;
