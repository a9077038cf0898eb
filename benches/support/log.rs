//! A commit log of messages with keys, tags and a unique key, in files as the broker rolls them, and operations on it.

use std::fs::{File, create_dir_all, read_dir};
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use logdex::rocketmq::commit_log::columns::Column;
use logdex::rocketmq::commit_log::frame::{MAGIC_BLANK, MAGIC_V1, body_crc};
use logdex::rocketmq::commit_log::{CommitLog, Options, ScanOptions};

/// Only the disk can cause an error here.
const OK: &str = "the disk has space, and numbers are small";
/// Bytes of one read, as in a program that copies files.
const READ: usize = 256 * 1024;

/// Counts of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    /// Messages.
    pub(crate) messages: u64,
    /// Bytes of messages, without the blanks at the ends of files.
    pub(crate) bytes: u64,
}

/// A frame: five properties, hosts of IPv4, a body of noise.
fn frame(number: u64, phy_offset: u64, body_len: usize, frame: &mut Vec<u8>) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let body: Vec<u8> = std::iter::repeat_with(&mut noise).flatten().take(body_len).collect();
    let topic = format!("orders_{:02}", number % 20);
    let unique = format!("7F000001{:08X}{:08X}{:08X}", 0x6484_5ffd, 0x2b27_68ac_u32, number);
    let properties = format!(
        "KEYS\u{1}order-{number:010}\u{2}UNIQ_KEY\u{1}{unique}\u{2}CLUSTER\u{1}DefaultCluster\u{2}TAGS\u{1}Tag{}\u{2}WAIT\u{1}true",
        number % 5
    );
    frame.clear();
    frame.extend([0; 4]);
    frame.extend(MAGIC_V1.to_be_bytes());
    frame.extend(body_crc(&body).to_be_bytes());
    frame.extend((u32::try_from(number % 8).expect(OK)).to_be_bytes());
    frame.extend(0u32.to_be_bytes());
    frame.extend((number / 8).to_be_bytes());
    frame.extend(phy_offset.to_be_bytes());
    frame.extend(0u32.to_be_bytes());
    frame.extend((1_700_000_000_000 + number / 10).to_be_bytes());
    frame.extend([10, 1, 2, u8::try_from(number % 3).expect(OK), 0, 0, 0x12, 0x34]);
    frame.extend((1_700_000_000_001 + number / 10).to_be_bytes());
    frame.extend([192, 168, 0, 9, 0, 0, 0x2a, 0x9f]);
    frame.extend([0; 12]);
    frame.extend(u32::try_from(body.len()).expect(OK).to_be_bytes());
    frame.extend(&body);
    frame.push(u8::try_from(topic.len()).expect(OK));
    frame.extend(topic.as_bytes());
    frame.extend(u16::try_from(properties.len()).expect(OK).to_be_bytes());
    frame.extend(properties.as_bytes());
    let total = u32::try_from(frame.len()).expect(OK);
    frame.splice(..4, total.to_be_bytes());
}

/// Writes `files` files of `file_len` bytes each, all of them full.
pub(crate) fn write(directory: &Path, files: u64, file_len: u64, body_len: usize) -> Written {
    create_dir_all(directory).expect(OK);
    let (mut written, mut bytes) = (Written::default(), Vec::new());
    for start in (0..files).map(|number| number * file_len) {
        let file = File::create(directory.join(format!("{start:020}"))).expect(OK);
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let mut at = 0;
        loop {
            frame(written.messages, start + at, body_len, &mut bytes);
            // The broker reserves space for the head of the padding.
            if at + bytes.len() as u64 + 8 > file_len {
                break;
            }
            out.write_all(&bytes).expect(OK);
            at += bytes.len() as u64;
            written.messages += 1;
        }
        written.bytes += at;
        let filling = u32::try_from(file_len - at).expect(OK);
        out.write_all(&[filling.to_be_bytes(), MAGIC_BLANK.to_be_bytes()].concat()).expect(OK);
        out.into_inner().expect(OK).set_len(file_len).expect(OK);
    }
    written
}

/// All columns, or all but the body.
pub(crate) fn columns(body: bool) -> Vec<Column> {
    Column::ALL.into_iter().filter(|column| body || *column != Column::Body).collect()
}

/// Result of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Rows.
    pub(crate) rows: u64,
    /// The sum of their offsets in their queues.
    pub(crate) sum: i64,
}

/// Reads the whole log into record batches; at most two exist at a time.
pub(crate) fn scan(directory: &Path, columns: &[Column], threads: usize, mut after: impl FnMut(u64)) -> Scanned {
    let log = CommitLog::open(directory, Options::default()).expect(OK);
    let options = ScanOptions { columns: columns.to_vec(), threads, ..ScanOptions::default() };
    let mut scanned = Scanned::default();
    for batch in log.scan(&options).expect(OK) {
        let batch = black_box(batch.expect(OK));
        scanned.rows += batch.num_rows() as u64;
        if let Some(offsets) = batch.column_by_name(Column::QueueOffset.name()) {
            scanned.sum += offsets.as_primitive::<Int64Type>().values().iter().sum::<i64>();
        }
        after(scanned.rows);
    }
    scanned
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = read_dir(directory).expect(OK).map(|entry| entry.expect(OK).path()).collect();
    files.sort();
    files
}

/// Reads the files of the whole log into one buffer, part by part, and adds up their words.
#[cfg(unix)]
pub(crate) fn read(directory: &Path) -> u64 {
    use std::os::unix::fs::FileExt as _;
    let (mut piece, mut sum) = (vec![0; READ], 0u64);
    for path in files(directory) {
        let file = File::open(path).expect(OK);
        let mut at = 0;
        loop {
            let len = file.read_at(&mut piece, at).expect(OK);
            let (words, _) = piece.get(..len).unwrap_or_default().as_chunks::<8>();
            sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
            at += len as u64;
            if len == 0 {
                break;
            }
        }
    }
    sum
}

#[cfg(not(unix))]
pub(crate) fn read(directory: &Path) -> u64 {
    files(directory).iter().map(|path| std::fs::read(path).expect(OK).len() as u64).sum()
}

/// MiB of memory of this process, without pages of files; 0 if the system does not report it.
pub(crate) fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u32>().ok());
    kib.map_or(0.0, |kib| f64::from(kib) / 1024.0)
}

/// Scans once and returns the memory after 10 %, 50 % and all of the rows.
pub(crate) fn resident(directory: &Path, columns: &[Column], threads: usize, messages: u64) -> [f64; 3] {
    let marks = [messages / 10, messages / 2, messages];
    let mut seen = [0.0; 3];
    scan(directory, columns, threads, |rows| {
        for (seen, mark) in seen.iter_mut().zip(marks) {
            if *seen == 0.0 && rows >= mark {
                *seen = resident_mib();
            }
        }
    });
    seen
}
