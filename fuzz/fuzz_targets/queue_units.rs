//! Any bytes as units of a queue: a valid unit is written as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use logdex::rocketmq::consume_queue::unit::{BATCH_UNIT_LEN, BatchUnit, UNIT_LEN, Unit};
use logdex_fuzz as _;

fuzz_target!(|bytes: &[u8]| {
    for piece in bytes.chunks(UNIT_LEN) {
        let unit = Unit::parse(piece);
        assert!(!unit.is_message() || unit.is_valid());
        assert!(!unit.is_valid() || unit.end() > unit.phy_offset || unit.phy_offset == i64::MAX);
        assert_eq!(Unit::parse(&unit.encode()), unit);
        assert!(piece.len() < UNIT_LEN || unit.encode() == *piece);
    }
    for piece in bytes.chunks(BATCH_UNIT_LEN) {
        let unit = BatchUnit::parse(piece);
        assert_eq!(BatchUnit::parse(&unit.encode()), unit);
        assert!(!unit.is_valid() || unit.end_offset() > unit.base_offset || unit.base_offset == i64::MAX);
    }
});
