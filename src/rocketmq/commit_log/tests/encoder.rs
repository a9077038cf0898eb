//! A small writer of logs, for tests only.

use crate::rocketmq::commit_log::frame::{MAGIC_BLANK, MAGIC_V1, MAGIC_V2, body_crc};

/// The parts of a frame; the sizes follow from it.
#[derive(Clone, Debug)]
pub(super) struct TestMessage {
    pub(super) topic: String,
    pub(super) body: Vec<u8>,
    pub(super) properties: Vec<(String, String)>,
    pub(super) trailing_separator: bool,
    pub(super) version_2: bool,
    pub(super) born_host: Vec<u8>,
    pub(super) store_host: Vec<u8>,
    pub(super) numbers: [i64; 8],
}

impl TestMessage {
    pub(super) fn new(topic: &str, body: &[u8], properties: &[(&str, &str)]) -> Self {
        Self {
            topic: topic.to_owned(),
            body: body.to_vec(),
            properties: properties.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            trailing_separator: false,
            version_2: false,
            born_host: vec![10, 1, 2, 3, 0, 0, 0x12, 0x34],
            store_host: vec![192, 168, 0, 9, 0, 0, 0x2a, 0x9f],
            numbers: [3, 0, 7, 0, 1_700_000_000_000, 1_700_000_000_001, 0, 0],
        }
    }

    pub(super) fn queue_id(&self) -> i32 {
        i32::try_from(self.numbers[0]).unwrap()
    }

    pub(super) fn flag(&self) -> i32 {
        i32::try_from(self.numbers[1]).unwrap()
    }

    pub(super) fn sys_flag(&self) -> i32 {
        let v6 = |host: &[u8], bit| if host.len() == 20 { bit } else { 0 };
        i32::try_from(self.numbers[3]).unwrap() | v6(&self.born_host, 0x10) | v6(&self.store_host, 0x20)
    }

    pub(super) fn encode(&self, phy_offset: u64) -> Vec<u8> {
        let [_, _, queue_offset, _, born, stored, reconsume, prepared] = self.numbers;
        let entries: Vec<String> = self.properties.iter().map(|(n, v)| format!("{n}\u{1}{v}")).collect();
        let mut properties = entries.join("\u{2}");
        if self.trailing_separator && !properties.is_empty() {
            properties.push('\u{2}');
        }
        let mut bytes = vec![0; 4];
        bytes.extend(if self.version_2 { MAGIC_V2 } else { MAGIC_V1 }.to_be_bytes());
        bytes.extend(body_crc(&self.body).to_be_bytes());
        bytes.extend(self.queue_id().to_be_bytes());
        bytes.extend(self.flag().to_be_bytes());
        bytes.extend(queue_offset.to_be_bytes());
        bytes.extend(phy_offset.to_be_bytes());
        bytes.extend(self.sys_flag().to_be_bytes());
        bytes.extend(born.to_be_bytes());
        bytes.extend(&self.born_host);
        bytes.extend(stored.to_be_bytes());
        bytes.extend(&self.store_host);
        bytes.extend(i32::try_from(reconsume).unwrap().to_be_bytes());
        bytes.extend(prepared.to_be_bytes());
        bytes.extend(u32::try_from(self.body.len()).unwrap().to_be_bytes());
        bytes.extend(&self.body);
        if self.version_2 {
            bytes.extend(i16::try_from(self.topic.len()).unwrap().to_be_bytes());
        } else {
            bytes.extend(i8::try_from(self.topic.len()).unwrap().to_be_bytes());
        }
        bytes.extend(self.topic.as_bytes());
        bytes.extend(i16::try_from(properties.len()).unwrap().to_be_bytes());
        bytes.extend(properties.as_bytes());
        let total = u32::try_from(bytes.len()).unwrap();
        bytes.splice(..4, total.to_be_bytes());
        bytes
    }
}

/// A log: files of one size, and where each message begins.
#[derive(Clone, Debug)]
pub(super) struct TestLog {
    pub(super) file_size: u64,
    pub(super) files: Vec<(u64, Vec<u8>)>,
    pub(super) offsets: Vec<u64>,
    pub(super) end: u64,
}

impl TestLog {
    /// Writes messages as a broker does: 8 bytes are always left for a BLANK frame.
    pub(super) fn write(begin: u64, file_size: u64, messages: &[TestMessage]) -> Self {
        let mut files = vec![(begin, Vec::new())];
        let mut offsets = Vec::new();
        for message in messages {
            let (start, file) = files.last_mut().unwrap();
            let mut phy_offset = *start + file.len() as u64;
            let mut frame = message.encode(phy_offset);
            let left = file_size - file.len() as u64;
            assert!(frame.len() as u64 + 8 <= file_size, "the message does not fit into a file");
            if frame.len() as u64 + 8 > left {
                file.extend(u32::try_from(left).unwrap().to_be_bytes());
                file.extend(MAGIC_BLANK.to_be_bytes());
                // Never to be read: a message that stood here before.
                let stale = message.encode(phy_offset);
                file.extend(stale.into_iter().cycle().take(usize::try_from(left).unwrap() - 8));
                phy_offset = *start + file_size;
                frame = message.encode(phy_offset);
                files.push((phy_offset, Vec::new()));
            }
            offsets.push(phy_offset);
            files.last_mut().unwrap().1.extend(frame);
        }
        let (start, file) = files.last_mut().unwrap();
        let end = *start + file.len() as u64;
        for (_, file) in &mut files {
            file.resize(usize::try_from(file_size).unwrap(), 0);
        }
        Self { file_size, files, offsets, end }
    }
}
