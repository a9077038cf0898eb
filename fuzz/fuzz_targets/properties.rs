//! Any text as the properties of a message: the entries are those of a simple parser.
#![no_main]

use libfuzzer_sys::fuzz_target;
use logdex::java_text::decode_utf8;
use logdex::rocketmq::commit_log::properties::parse;

fn plain(text: &str) -> Vec<(&str, &str)> {
    let mut entries: Vec<(&str, &str)> = Vec::new();
    for entry in text.split('\u{2}') {
        let Some((name, value)) = entry.split_once('\u{1}') else {
            continue;
        };
        if name.is_empty() || value.is_empty() {
            continue;
        }
        match entries.iter_mut().find(|(known, _)| *known == name) {
            Some(known) => known.1 = value,
            None => entries.push((name, value)),
        }
    }
    entries
}
use logdex_fuzz as _;

fuzz_target!(|bytes: &[u8]| {
    let text = decode_utf8(bytes);
    assert_eq!(parse(&text), plain(&text));
});
