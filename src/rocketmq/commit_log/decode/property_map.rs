//! The column of properties, built from names and values.

use std::ops::Range;

use arrow_array::builder::{MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{Array as _, MapArray};

use crate::rocketmq::commit_log::decode::columns::map_fields;

/// Builds the column `properties` row by row.
#[derive(Debug)]
pub struct PropertyMap(MapBuilder<StringBuilder, StringBuilder>);

impl Default for PropertyMap {
    fn default() -> Self {
        let [key, value] = map_fields();
        let names = MapFieldNames { entry: "entries".to_owned(), key: key.name().clone(), value: value.name().clone() };
        let map = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
        Self(map.with_keys_field(key).with_values_field(value))
    }
}

impl PropertyMap {
    /// Adds a property to the current row.
    pub fn push(&mut self, name: &str, value: Option<&str>) {
        self.0.keys().append_value(name);
        self.0.values().append_option(value);
    }

    /// Ends the current row. If it is not `valid`, it is null.
    pub fn end_row(&mut self, valid: bool) {
        self.0.append(valid).expect("every name has its value");
    }

    /// Returns the column.
    pub fn finish(mut self) -> MapArray {
        self.0.finish()
    }
}

/// Returns the range of a row's names and values; empty for a null row.
pub(in crate::rocketmq) fn entries(properties: &MapArray, row: usize) -> Range<usize> {
    let offset = |row: usize| properties.value_offsets().get(row).and_then(|at| usize::try_from(*at).ok());
    match (offset(row), offset(row + 1)) {
        (Some(begin), Some(end)) if properties.is_valid(row) => begin..end,
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array as _;

    use super::PropertyMap;
    use crate::rocketmq::commit_log::decode::columns::Column;

    #[test]
    fn it_is_the_column_of_a_scan() {
        let mut map = PropertyMap::default();
        map.push("TAGS", Some("a"));
        map.push("KEYS", None);
        map.end_row(true);
        map.end_row(false);
        map.end_row(true);
        let column = map.finish();
        assert_eq!(column.data_type(), &Column::Properties.data_type());
        assert_eq!((column.len(), column.null_count(), column.value_length(0), column.value_length(2)), (3, 1, 2, 0));
    }
}
