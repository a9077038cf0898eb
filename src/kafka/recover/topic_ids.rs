//! The ids of topics, by a broker's copy of the cluster's metadata.
//!
//! ```text
//! <log dir>/__cluster_metadata-0/<end offset>-<epoch>.checkpoint, the state at an offset, and the log segments
//! value of a record    uvarint 1 | uvarint type | uvarint version | fields
//! 2 TOPIC_RECORD            name, compact | id, 16 bytes
//! 9 REMOVE_TOPIC_RECORD     id, 16 bytes
//! ```
//!
//! Source: `Snapshots#parse`, `TopicRecord.json`, `RemoveTopicRecord.json`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::Result;
use crate::io::{Location, storage};
use crate::kafka::format::fields::Fields;
use crate::kafka::format::names::base_offset;
use crate::kafka::read::record_columns::Column;
use crate::kafka::read::record_reader::RecordScan;
use crate::kafka::read::segment::{Segment, SegmentOptions};
use crate::kafka::read::segment_range::SegmentRange;
use crate::kafka::read::segment_reader::{OnError, SegmentReader};

const TOPIC: usize = 2;
const REMOVE_TOPIC: usize = 9;

/// Reads the ids of topics, in 22 letters of URL-safe base64, by name. `directory`: that of the partition `__cluster_metadata-0`; if
/// it does not exist, there are none. Damaged batches are skipped.
///
/// # Errors
/// An I/O error.
pub fn topic_ids(directory: &Location) -> Result<BTreeMap<String, String>> {
    let mut ids = BTreeMap::new();
    for path in files(directory)? {
        let segment = Arc::new(Segment::open(path, SegmentOptions::default())?);
        let scan = RecordScan { columns: vec![Column::Value], on_error: OnError::Skip, ..RecordScan::default() };
        let mut reader = SegmentReader::records(vec![SegmentRange::whole(segment)], scan)?;
        while let Some(batch) = reader.next_batch()? {
            for value in batch.column(0).as_binary::<i32>().iter().flatten() {
                apply(&mut ids, value);
            }
        }
    }
    Ok(ids)
}

/// Returns the newest snapshot and all segments. A segment may begin before the snapshot: its records lead to the same state.
fn files(directory: &Location) -> Result<Vec<Location>> {
    let listed = match storage::list(directory) {
        Err(error) if error.is_missing() => Vec::new(),
        listed => listed?,
    };
    let mut paths: Vec<Location> = listed.into_iter().map(|entry| entry.path).collect();
    paths.sort();
    let has_suffix = |path: &Location, wanted| path.extension().is_some_and(|suffix| suffix == wanted);
    // Not `bootstrap.checkpoint`.
    let has_end = |path: &Location| path.file_stem().is_some_and(|stem| stem.to_string_lossy().contains('-'));
    let is_snapshot = |path: &&Location| has_suffix(path, "checkpoint") && has_end(path);
    let snapshot = paths.iter().rfind(is_snapshot).cloned();
    let is_segment = |path: &Location| has_suffix(path, "log") && base_offset(path).is_some();
    Ok(snapshot.into_iter().chain(paths.into_iter().filter(is_segment)).collect())
}

/// Applies a record; one of another kind changes nothing.
fn apply(ids: &mut BTreeMap<String, String>, value: &[u8]) -> Option<()> {
    let mut fields = Fields(value);
    let (frame, kind, _) = (fields.varint()?, fields.varint()?, fields.varint()?);
    match (frame, kind) {
        (1, TOPIC) => {
            let name = std::str::from_utf8(fields.compact()?).ok()?.to_owned();
            ids.insert(name, id(&mut fields)?);
        }
        (1, REMOVE_TOPIC) => {
            let removed = id(&mut fields)?;
            ids.retain(|_, id| *id != removed);
        }
        _ => {}
    }
    Some(())
}

fn id(fields: &mut Fields<'_>) -> Option<String> {
    Some(URL_SAFE_NO_PAD.encode(fields.take::<16>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::test_data::{T, batch, record};

    fn log(values: &[Vec<u8>]) -> Vec<u8> {
        let mut records = Vec::new();
        for (delta, value) in (0..).zip(values) {
            record(0, delta, None, Some(value), &mut records);
        }
        let count = i32::try_from(values.len()).unwrap();
        batch(0, count - 1, count, 0, (T, T), &records)
    }

    fn created(name: &str, id: u8) -> Vec<u8> {
        [&[1, 2, 0, u8::try_from(name.len()).unwrap() + 1], name.as_bytes(), &[id; 16], &[0]].concat()
    }

    fn removed(id: u8) -> Vec<u8> {
        [&[1, 9, 0], &[id; 16][..], &[0]].concat()
    }

    #[test]
    fn the_log_goes_on_from_the_newest_snapshot() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, values: &[Vec<u8>]| std::fs::write(home.path().join(name), log(values)).unwrap();
        let read = || topic_ids(&home.path().into()).unwrap().into_keys().collect::<Vec<_>>();
        assert!(read().is_empty());
        write("00000000000000000005-0000000001.checkpoint", &[created("old", 1)]);
        assert_eq!(read(), ["old"]);
        write("00000000000000000009-0000000001.checkpoint", &[created("a", 2), created("b", 3), vec![1, 3, 0], vec![]]);
        write("00000000000000000000.log", &[created("a", 2), removed(2), created("c", 4), removed(3)]);
        write("00000000000000000012.log", &[created("a", 5)]);
        write("notes.log", &[created("no segment", 6)]);
        assert_eq!(read(), ["a", "c"]);
        let ids = topic_ids(&home.path().into()).unwrap();
        assert_eq!(ids["a"], URL_SAFE_NO_PAD.encode([5; 16]));
        assert!(topic_ids(&home.path().join("absent").as_path().into()).unwrap().is_empty());
    }
}
