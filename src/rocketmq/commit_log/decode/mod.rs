//! Convert frames to values: bodies, texts, and Arrow columns.

pub(crate) mod batch;
pub(crate) mod block;
pub mod body;
pub(crate) mod column_builder;
pub mod columns;
pub(crate) mod message;
pub(crate) mod property_map;
pub(crate) mod search;
pub(crate) mod suspect;
pub mod text;
