//! An open index file: creating, opening, preparing the next one, puts, lookups in one file and in many.

pub(super) mod bytes;
pub(super) mod chains;
pub(super) mod cold;
pub(super) mod entry_batches;
pub(super) mod index_file;
mod last_warm;
pub(super) mod lookup;
pub(super) mod open;
pub(super) mod prepared;
