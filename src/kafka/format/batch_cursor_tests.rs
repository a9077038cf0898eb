//! Records of the broker's batches, and batches with false fields.

use super::*;
use crate::kafka::test_data::{
    APPEND_TIME, EMPTIED, MAGIC_0, MAGIC_1, MARKER, PLAIN, T, batch, hex, message, record as encode, varint,
};

type Row = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn header(bytes: &[u8]) -> Header {
    Header::parse(bytes, 0, u32::try_from(bytes.len()).unwrap()).unwrap()
}

fn rows(bytes: &[u8]) -> Result<Vec<Row>, Flaw> {
    let header = header(bytes);
    let mut cursor = BatchCursor::new(1 << 20);
    let mut rows = Vec::new();
    cursor.each(&header, bytes, Wants::All, |r, bytes| {
        let field = |f| record::field(f, bytes).map(<[u8]>::to_vec);
        rows.push((r.offset, r.timestamp, field(r.key), field(r.value)));
        true
    })?;
    Ok(rows)
}

#[expect(clippy::unnecessary_wraps, reason = "the rows have options")]
fn some(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(bytes.to_vec())
}

#[test]
fn records_of_the_broker_are_parsed() {
    assert_eq!(
        rows(&hex(PLAIN)).unwrap(),
        [(1000, T, some(b"k1"), some(b"value-1")), (1001, T + 5, None, some(b"v2")), (1002, T - 10, some(b"k3"), None)]
    );
    assert_eq!(rows(&hex(MARKER)).unwrap(), [(42, T + 100, some(&[0, 0, 0, 1]), some(&[0, 0, 0, 0, 0, 3]))]);
    let times: Vec<_> = rows(&hex(APPEND_TIME)).unwrap().into_iter().map(|r| (r.0, r.1)).collect();
    assert_eq!(times, [(500, T + 99_999), (501, T + 99_999)]);
    assert_eq!(rows(&hex(EMPTIED)).unwrap(), []);
    assert_eq!(rows(&hex(MAGIC_0)).unwrap(), [(5, -1, some(b"k"), some(b"v"))]);
    assert_eq!(rows(&hex(MAGIC_1)).unwrap(), [(6, 1_500_000_000_000, None, some(b"hello"))]);
}

#[test]
fn headers_of_the_broker_are_parsed() {
    let bytes = hex(PLAIN);
    let head = header(&bytes);
    let mut headers = Vec::new();
    BatchCursor::new(0)
        .each(&head, &bytes, Wants::All, |r, bytes| {
            let read = r.each_header(bytes, |key, value| {
                let copy = |place| record::field(place, bytes).map(<[u8]>::to_vec);
                headers.push((r.offset, copy(key), copy(value)));
            });
            read.is_some()
        })
        .unwrap();
    assert_eq!(headers, [(1000, some(b"h1"), some(b"x")), (1000, some(b"h2"), None)]);
}

#[test]
fn parsing_continues_after_a_full_chunk() {
    let bytes = hex(PLAIN);
    let head = header(&bytes);
    let mut cursor = BatchCursor::new(0);
    cursor.begin(&head, &bytes).unwrap();
    let mut spans = Vec::new();
    for (most, wants) in [(1, Wants::Times), (1, Wants::All), (2, Wants::All), (3, Wants::Times), (9, Wants::All)] {
        let ended = cursor.fill(&head, &bytes, wants, most, &mut spans);
        assert_eq!(ended, Ok(most >= 3));
    }
    let offsets: Vec<_> = spans.iter().map(|span| span.offset).collect();
    assert_eq!(offsets, [1000, 1001, 1002]);
}

#[test]
fn false_counts_and_lengths_are_errors_before_memory_is_allocated() {
    let mut one = Vec::new();
    encode(0, 0, Some(b"k"), Some(b"v"), &mut one);
    for count in [2, i32::MAX, i32::MIN, -1] {
        let flaw = rows(&batch(0, 0, count, 0, (T, T), &one)).unwrap_err();
        assert_eq!(flaw.kind, Kind::Records, "{count}");
    }
    // A count below what is there, a varint without end, a length beyond the end, a negative one.
    assert!(rows(&batch(0, 0, 0, 0, (T, T), &one)).is_err());
    for bad in [&[0xff; 40][..], &[0x7e; 20], &[0x01; 20], &[0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0]] {
        assert!(rows(&batch(0, 0, 1, 0, (T, T), bad)).is_err(), "{bad:?}");
    }
    // A record that claims 2^30 headers.
    let mut body = vec![0, 0, 0, 1, 1];
    varint(1 << 30, &mut body);
    let mut claims = Vec::new();
    varint(i64::try_from(body.len()).unwrap(), &mut claims);
    claims.extend(body);
    assert!(rows(&batch(0, 0, 1, 0, (T, T), &claims)).is_err());
    // Codecs that do not exist, and data that is none.
    for codec in 1..8 {
        assert_eq!(rows(&batch(0, 0, 1, codec, (T, T), &one)).unwrap_err().kind, Kind::Records, "{codec}");
    }
}

#[test]
fn wrappers_of_magic_0_and_1_are_unpacked() {
    let snappy = |set: &[u8]| snap::raw::Encoder::new().compress_vec(set).unwrap();
    let set = |magic: i8, from: i64| {
        (0..3).flat_map(|i| message(from + i, magic, 0, T + i, Some(b"k"), Some(&[u8::try_from(i).unwrap()]))).collect()
    };
    let zero: Vec<u8> = set(0, 10);
    let wrapped = rows(&message(12, 0, 2, 0, None, Some(&snappy(&zero)))).unwrap();
    assert_eq!(wrapped.iter().map(|r| (r.0, r.1)).collect::<Vec<_>>(), [(10, -1), (11, -1), (12, -1)]);
    let one: Vec<u8> = set(1, 0);
    let offsets = |offset, attributes| {
        let rows = rows(&message(offset, 1, attributes, T + 77, None, Some(&snappy(&one))))?;
        Ok::<_, Flaw>(rows.into_iter().map(|r| (r.0, r.1)).collect::<Vec<_>>())
    };
    assert_eq!(offsets(12, 2).unwrap(), [(10, T), (11, T + 1), (12, T + 2)]);
    assert_eq!(offsets(12, 2 | 8).unwrap(), [(10, T + 77), (11, T + 77), (12, T + 77)], "time of the append");
    assert_eq!(offsets(0, 2).unwrap(), [(0, T), (1, T + 1), (2, T + 2)], "some clients sent 0");
    assert!(offsets(1, 2).is_err(), "below what is inside");
    let nested = snappy(&message(0, 1, 2, T, None, Some(&snappy(&one))));
    for bad in [Some(&nested[..]), Some(&snappy(&[])[..]), None, Some(b"nothing")] {
        assert!(rows(&message(12, 1, 2, T, None, bad)).is_err());
    }
    assert!(rows(&message(12, 1, 4, T, None, Some(&zstd::stream::encode_all(&one[..], 3).unwrap()))).is_err());
}

#[test]
fn memory_stays_within_the_limit() {
    let mut many = Vec::new();
    for delta in 0..1000 {
        encode(0, delta, None, Some(&[7; 5000]), &mut many);
    }
    let bytes = batch(0, 999, 1000, 4, (T, T), &zstd::stream::encode_all(&many[..], 3).unwrap());
    let mut cursor = BatchCursor::new(1 << 20);
    assert!(cursor.begin(&header(&bytes), &bytes).is_err());
    assert!(cursor.capacity() <= 4 << 20, "{}", cursor.capacity());
}
