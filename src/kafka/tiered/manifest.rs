//! The manifest of Aiven's plugin: where the parts of a segment are, and which offsets it has.
//!
//! Source: `SegmentManifestV1`, `AbstractChunkIndex`, `ChunkSizesBinaryCodec`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::decompress::{Output, zstd_frame};
use crate::io::chunked_file::{Chunks, Stored};

/// The longest list of chunk sizes, uncompressed. Source: `TransformedChunksDeserializer`.
const MOST_SIZES: usize = 10 << 20;
/// The largest segment.
const MOST_BYTES: u64 = i32::MAX as u64;

/// A part of the object with the indexes, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexPart {
    pub position: u64,
    pub size: u64,
}

/// The encryption of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Encryption {
    /// Which key pair encrypted the data key.
    pub key_id: String,
    pub data_key: Vec<u8>,
    /// Data that each chunk is authenticated with.
    pub aad: Vec<u8>,
}

/// The offsets of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    /// Its last offset.
    pub end_offset: Option<i64>,
    /// Leader epochs of its records, each with the first offset in it.
    pub epochs: Vec<(i64, i64)>,
}

/// A manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub chunks: Chunks,
    pub is_compressed: bool,
    pub encryption: Option<Encryption>,
    pub offset_index: IndexPart,
    pub time_index: IndexPart,
    pub producer_snapshot: IndexPart,
    pub leader_epochs: IndexPart,
    /// `None`: no transaction was aborted.
    pub transaction_index: Option<IndexPart>,
    pub range: Range,
}

/// The expected and the found value.
pub(super) type Fault = (String, String);

fn fault(expected: impl Into<String>, found: impl Into<String>) -> Fault {
    (expected.into(), found.into())
}

impl Manifest {
    /// Parses a manifest.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let root: Value = serde_json::from_slice(bytes).map_err(|e| fault("a manifest in JSON", e.to_string()))?;
        let version = field(&root, "version")?;
        if version.as_str() != Some("1") {
            return Err(fault("a manifest of version \"1\"", format!("version {version}")));
        }
        let indexes = field(&root, "segmentIndexes")?;
        let compression = field(&root, "compression")?;
        let transaction_index = match indexes.get("transaction") {
            None | Some(Value::Null) => None,
            Some(_) => Some(part(indexes, "transaction")?),
        };
        Ok(Self {
            chunks: chunks(field(&root, "chunkIndex")?)?,
            is_compressed: compression
                .as_bool()
                .ok_or_else(|| fault("compression: true or false", compression.to_string()))?,
            encryption: match root.get("encryption") {
                None | Some(Value::Null) => None,
                Some(encryption) => Some(Encryption::parse(encryption)?),
            },
            offset_index: part(indexes, "offset")?,
            time_index: part(indexes, "timestamp")?,
            producer_snapshot: part(indexes, "producerSnapshot")?,
            leader_epochs: part(indexes, "leaderEpoch")?,
            transaction_index,
            range: root.get("remoteLogSegmentMetadata").map(Range::of).unwrap_or_default(),
        })
    }

    /// Returns whether the object with the log is the log, byte for byte.
    pub(super) fn is_plain(&self) -> bool {
        !self.is_compressed && self.encryption.is_none()
    }
}

impl Encryption {
    fn parse(value: &Value) -> Result<Self, Fault> {
        let key = text(value, "dataKey")?;
        let expected = || fault("dataKey: the name of a key pair, a colon and Base64", "another text");
        let (key_id, data_key) = key.split_once(':').ok_or_else(expected)?;
        Ok(Self {
            key_id: key_id.to_owned(),
            data_key: STANDARD.decode(data_key).map_err(|_| expected())?,
            aad: STANDARD.decode(text(value, "aad")?).map_err(|_| fault("aad: Base64", "another text"))?,
        })
    }
}

impl Range {
    /// Manifests of the first releases have none.
    fn of(metadata: &Value) -> Self {
        let end_offset = metadata.get("endOffset").and_then(Value::as_i64);
        let epochs = metadata.get("segmentLeaderEpochs").and_then(Value::as_object);
        let mut epochs: Vec<(i64, i64)> = epochs
            .into_iter()
            .flatten()
            .filter_map(|(epoch, offset)| Some((epoch.parse().ok()?, offset.as_i64()?)))
            .collect();
        epochs.sort_unstable();
        Self { end_offset, epochs }
    }
}

fn field<'a>(value: &'a Value, name: &str) -> Result<&'a Value, Fault> {
    value.get(name).ok_or_else(|| fault(name, "no such field"))
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, Fault> {
    field(value, name)?.as_str().ok_or_else(|| fault(format!("{name}: a text"), "another value"))
}

fn number(value: &Value, name: &str) -> Result<u64, Fault> {
    let found = field(value, name)?;
    let number = found.as_u64().filter(|number| *number <= MOST_BYTES);
    number.ok_or_else(|| fault(format!("{name}: a number up to {MOST_BYTES}"), found.to_string()))
}

fn part(indexes: &Value, name: &str) -> Result<IndexPart, Fault> {
    let part = field(indexes, name)?;
    Ok(IndexPart { position: number(part, "position")?, size: number(part, "size")? })
}

fn chunks(index: &Value) -> Result<Chunks, Fault> {
    let (chunk_len, len) = (number(index, "originalChunkSize")?, number(index, "originalFileSize")?);
    if chunk_len == 0 {
        return Err(fault("originalChunkSize: more than 0", "0"));
    }
    let stored = match text(index, "type")? {
        "fixed" => {
            let (chunk, last) = (number(index, "transformedChunkSize")?, number(index, "finalTransformedChunkSize")?);
            Stored::Even { chunk, last }
        }
        "variable" => {
            let sizes = chunk_sizes(text(index, "transformedChunks")?)?;
            let expected = len.div_ceil(chunk_len);
            if sizes.len() as u64 != expected {
                return Err(fault(format!("the sizes of {expected} chunks"), format!("{} sizes", sizes.len())));
            }
            let mut end = 0;
            let ends = sizes.into_iter().map(|size| {
                end += u64::from(size);
                end
            });
            Stored::Ends(ends.collect())
        }
        other => return Err(fault("a chunk index of the type \"fixed\" or \"variable\"", format!("{other:?}"))),
    };
    Ok(Chunks { len, chunk_len, stored })
}

/// Decodes the stored sizes of all chunks: Base64 of Zstandard of a count, the smallest size, a width, what each size but the last has
/// above the smallest, and the last size.
fn chunk_sizes(text: &str) -> Result<Vec<u32>, Fault> {
    let expected = || fault("transformedChunks: sizes of chunks in Base64 and Zstandard", "another text");
    let packed = STANDARD.decode(text).map_err(|_| expected())?;
    let mut output = Output::new(MOST_SIZES);
    let mut decoder = zstd::zstd_safe::DCtx::create();
    zstd_frame::decode(&mut decoder, &packed, &mut output).map_err(|_| expected())?;
    sizes_of(output.filled()).ok_or_else(expected)
}

fn sizes_of(bytes: &[u8]) -> Option<Vec<u32>> {
    let (count, rest) = take(bytes, 4)?;
    let count = usize::try_from(count).ok()?;
    match count {
        0 => return Some(Vec::new()),
        1 => return Some(vec![take(rest, 4)?.0]),
        _ => {}
    }
    let (base, rest) = take(rest, 4)?;
    let (width, rest) = take(rest, 1)?;
    let width = usize::try_from(width).ok().filter(|width| (1..=4).contains(width))?;
    let (differences, last) = rest.split_at_checked((count - 1).checked_mul(width)?)?;
    let mut sizes = Vec::with_capacity(count);
    for difference in differences.chunks_exact(width) {
        sizes.push(base.checked_add(take(difference, width)?.0)?);
    }
    sizes.push(take(last, 4)?.0);
    Some(sizes)
}

/// Takes a number of this many bytes, big-endian.
fn take(bytes: &[u8], width: usize) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_at_checked(width)?;
    Some((number.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the plugin of release 1.0.0 wrote it; the key and the Base64 of the data key are shortened.
    const ENCRYPTED: &str = r#"{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":1000,"originalFileSize":1018,
        "transformedChunkSize":1028,"finalTransformedChunkSize":46},"segmentIndexes":{"offset":{"position":0,"size":0},
        "timestamp":{"position":0,"size":40},"producerSnapshot":{"position":40,"size":84},
        "leaderEpoch":{"position":124,"size":36},"transaction":null},"compression":false,
        "encryption":{"dataKey":"key-1:VcTr","aad":"VGUL"},"remoteLogSegmentMetadata":{"startOffset":0,"endOffset":5,
        "segmentLeaderEpochs":{"10":4,"2":0}}}"#;
    const PACKED: &str = r#"{"version":"1","chunkIndex":{"type":"variable","originalChunkSize":1000,"originalFileSize":3952,
        "transformedChunks":"KLUv/SAQgQAAAAAABAAAAYYBABQQAAABjA=="},"segmentIndexes":{"offset":{"position":0,"size":56},
        "timestamp":{"position":56,"size":96},"producerSnapshot":{"position":152,"size":56},
        "leaderEpoch":{"position":208,"size":8},"transaction":{"position":216,"size":34}},"compression":true}"#;

    #[test]
    fn manifests_of_the_plugin_are_parsed() {
        let manifest = Manifest::parse(ENCRYPTED.as_bytes()).unwrap();
        let stored = Stored::Even { chunk: 1028, last: 46 };
        assert_eq!(manifest.chunks, Chunks { len: 1018, chunk_len: 1000, stored });
        assert_eq!(manifest.range, Range { end_offset: Some(5), epochs: vec![(2, 0), (10, 4)] });
        assert_eq!(manifest.encryption.as_ref().unwrap().key_id, "key-1");
        assert_eq!((manifest.leader_epochs, manifest.transaction_index), (IndexPart { position: 124, size: 36 }, None));
        assert!(!manifest.is_plain());

        let manifest = Manifest::parse(PACKED.as_bytes()).unwrap();
        let stored = Stored::Ends(vec![390, 410 + 390, 390 + 410 + 406, 390 + 410 + 406 + 396]);
        assert_eq!(manifest.chunks, Chunks { len: 3952, chunk_len: 1000, stored });
        assert_eq!(manifest.range, Range::default());
        assert_eq!(manifest.transaction_index, Some(IndexPart { position: 216, size: 34 }));
    }

    #[test]
    fn faults_are_named() {
        let says = |from: &str, to: &str, text: &str| {
            let changed = text.replace(from, to);
            assert_ne!(changed, text);
            Manifest::parse(changed.as_bytes()).map(|_| ()).unwrap_err()
        };
        assert_eq!(says("\"1\"", "\"2\"", PACKED).1, "version \"2\"");
        assert_eq!(says("3952", "4001", PACKED), fault("the sizes of 5 chunks", "4 sizes"));
        assert_eq!(says("KLUv", "KLUu", PACKED).1, "another text");
        assert_eq!(says("1000", "0", PACKED).1, "0");
        assert_eq!(says("1018", "-1", ENCRYPTED), fault("originalFileSize: a number up to 2147483647", "-1"));
        assert_eq!(says("key-1:", "key-1", ENCRYPTED).1, "another text");
        assert_eq!(says("\"offset\"", "\"other\"", ENCRYPTED), fault("offset", "no such field"));
        assert!(Manifest::parse(b"[").is_err() && Manifest::parse(b"").is_err() && Manifest::parse(b"[]").is_err());
    }

    #[test]
    fn sizes_are_those_of_the_codec() {
        assert_eq!(sizes_of(&[0, 0, 0, 0]), Some(vec![]));
        assert_eq!(sizes_of(&[0, 0, 0, 1, 0, 0, 1, 2]), Some(vec![258]));
        let three = [0, 0, 0, 3, 0, 15, 66, 64, 1, 0, 10, 0, 0, 0, 7];
        assert_eq!(sizes_of(&three), Some(vec![1_000_000, 1_000_010, 7]));
        for cut in 0..three.len() {
            assert_eq!(sizes_of(&three[..cut]), None, "{cut}");
        }
        assert_eq!(sizes_of(&[255, 255, 255, 255, 0, 0, 0, 1, 4, 0]), None);
    }
}
