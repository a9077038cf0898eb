//! The check of a sealed index: its rows against those that they were made from.

use std::path::Path;

use super::keys_file::Layout;
use super::lookup::SealedKeys;
use super::rows::{self, Row, Rows};
use crate::error::{Error, Result};
use crate::report::{Kind, Report};

/// Differences that are reported one by one.
const MOST_FINDINGS: u64 = 100;

/// Compares the rows that are `wanted` with the expected ones. Differences are findings at the path of the catalog.
///
/// # Errors
/// The system's error, with the path. A damaged file of keys is a finding.
pub fn compare(
    keys: &SealedKeys,
    catalog: &Path,
    expected: Rows,
    mut wanted: impl FnMut(&Row) -> bool,
) -> Result<Report> {
    let mut report = Report::default();
    let mut sealed = Rows::new(&std::env::temp_dir());
    if let Err(error) = keys.for_each(|rows| {
        let rows: Vec<Row> = rows.iter().filter(|row| wanted(row)).copied().collect();
        sealed.push(&rows)?;
        sealed.keep();
        Ok(())
    }) {
        let Error::Corrupt { path, offset, expected, found } = &error else { return Err(error) };
        report.find(path, *offset, Kind::SealedFile, expected, found);
        return Ok(report);
    }
    report.count("sealed_rows", sealed.len() as u64);
    let mut differences = 0;
    rows::compare(expected, sealed, |row, is_expected| {
        differences += 1;
        if differences <= MOST_FINDINGS {
            let text = text_of(keys.layout(), row);
            let (expected, found) = if is_expected { (text, "none".to_owned()) } else { ("none".to_owned(), text) };
            report.find(catalog, 0, Kind::SealedRow, expected, found);
        }
    })?;
    if differences > MOST_FINDINGS {
        report.count("sealed_rows_wrong", differences);
    }
    Ok(report)
}

fn text_of(layout: &Layout, row: &Row) -> String {
    let numbers = format!("hash {}, offset {} and time {}", row.key_hash, row.offset, row.time);
    match layout {
        Layout::OneLog => format!("a row of {numbers}"),
        Layout::Partitions(parts) => {
            let part = usize::try_from(row.part).ok().and_then(|part| parts.get(part));
            let name = part.map_or_else(|| "?".to_owned(), |(topic, partition)| format!("{topic}-{partition}"));
            format!("a row of {name}, {numbers}")
        }
    }
}
