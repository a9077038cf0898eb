//! Integer arguments from Python: a `ValueError` names the one that does not fit.
//!
//! Python's own error is an `OverflowError`, which is no `ValueError` and names no argument. Use the functions of [`named!`]
//! as `#[pyo3(from_py_with = integer::offset)]` before the argument `offset`.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

/// The type of an argument: an integer of Rust, or an option of one where `None` is allowed.
pub(super) trait Integer: Sized {
    /// The rule that an argument breaks, in words.
    const RANGE: &str;

    fn extract(value: &Bound<'_, PyAny>) -> PyResult<Self>;
}

macro_rules! integers {
    ($($kind:ty: $range:literal),*) => {$(
        impl Integer for $kind {
            const RANGE: &str = $range;

            fn extract(value: &Bound<'_, PyAny>) -> PyResult<Self> {
                value.extract()
            }
        }
    )*};
}

integers!(i32: "must fit in a signed 32-bit integer",
    i64: "must fit in a signed 64-bit integer",
    u64: "must be an integer from 0 to 2^64 - 1");

impl<T: Integer> Integer for Option<T> {
    const RANGE: &str = T::RANGE;

    fn extract(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if value.is_none() { Ok(None) } else { T::extract(value).map(Some) }
    }
}

/// The integer value of a Python object.
pub(super) fn integer<T: Integer>(value: &Bound<'_, PyAny>, name: &str) -> PyResult<T> {
    T::extract(value).map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            PyValueError::new_err(format!("{name} {}", T::RANGE))
        } else {
            error
        }
    })
}

macro_rules! named {
    ($($name:ident)*) => {$(
        pub(super) fn $name<T: Integer>(value: &Bound<'_, PyAny>) -> PyResult<T> {
            integer(value, stringify!($name))
        }
    )*};
}

named! {
    as_of base_offset batch_bytes batch_file_size batch_size begin begin_offset begin_phy_offset begin_position born_timestamp clock_slack_ms delay_ms end epoch
    end_offset end_phy_offset end_position extension_file_size fetch_size file_size flag hash_slots index_interval_bytes leader_epoch level levels limit
    log_start_offset    log_end max_batch_bytes max_body_bytes max_bytes max_entries max_index_bytes max_num max_position min_phy_offset n now num offset partition partitions
    piece_bytes previous_end
    phy_offset position prepared_transaction_offset producer_id_expiration_ms queue_end queue_id queue_offset reconsume_times recovery_point size start
    starting_offset starting_position step store_timestamp sys_flag task threads timestamp to transaction_version
}
