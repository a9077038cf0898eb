//! Any bytes as a frame of the remoting protocol: what is decoded, is encoded and decoded again alike.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use logdex::rocketmq::remoting::{Command, Frames, Header, SendTable, decode, frame_length, frames};
use logdex_fuzz as _;

fn fields<'a>(command: &'a Command<'_>) -> BTreeMap<&'a str, &'a str> {
    command.ext.iter().map(|(name, value)| (&**name, &**value)).collect()
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(head) = bytes.first_chunk() {
        _ = frame_length(*head);
    }
    let mut table = SendTable::default();
    table.learn("T", 4);
    for found in frames(bytes, Some(&table)).unwrap_or_default() {
        match found {
            Frames::Other(place) => assert!(bytes.get(place).is_some()),
            Frames::Sends(sends) => assert!(sends.bytes() <= bytes.len()),
        }
    }
    let Ok(command) = decode(bytes) else { return };
    let Command { code, opaque, flag, .. } = command;
    let header = Header { code, opaque, flag, remark: command.remark.as_deref() };
    let ext = fields(&command);
    let head = header.head(Some(ext.iter().map(|(name, value)| (*name, *value))), command.body.len());
    let frame = [&head, command.body].concat();
    let again = decode(&frame).expect("what was encoded here");
    assert_eq!(fields(&again), ext);
    let facts = |command: &Command<'_>| {
        (command.code, command.opaque, command.flag, command.remark.as_deref().map(str::to_owned))
    };
    assert_eq!(facts(&again), facts(&command));
    assert_eq!(again.body, command.body);
});
