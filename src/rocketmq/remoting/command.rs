//! Commands: requests and answers, read from frames and written as frames.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write as _;

use super::json_header::{Fields, JsonHeader};
use crate::io::u32_of;

/// The most bytes of a frame with its length field (`com.rocketmq.remoting.frameMaxLength`).
pub const MAX_FRAME: usize = 16_777_216;
/// The longest header that is read: its fields become objects one by one, so a long one would keep other clients waiting. The
/// properties of a message take 32 KiB at most. A broker has no limit.
const MAX_HEADER: usize = 1 << 20;
/// The ordinal of `V4_9_3` in upstream's `MQVersion`.
pub const VERSION: i32 = 399;
/// The bit of [`Command::flag`] of an answer.
pub const ANSWER: i32 = 1;
/// The bit of [`Command::flag`] of a request that wants no answer.
pub const ONE_WAY: i32 = 2;

/// Bytes of the length field, and of the field with the length of the header.
const LENGTH: usize = 4;
const LANGUAGES: [&str; 12] =
    ["JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS"];
const OTHER: &str = "OTHER";

/// A request or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// The code of the request, or of the result.
    pub code: i32,
    /// The language of the sender.
    pub language: Cow<'a, str>,
    /// The version of the sender, as its ordinal in `MQVersion`.
    pub version: i32,
    /// The number of a request, which its answer repeats.
    pub opaque: i32,
    /// [`ANSWER`], [`ONE_WAY`].
    pub flag: i32,
    /// A text for people.
    pub remark: Option<Cow<'a, str>>,
    /// The fields. A name that comes twice counts as it comes last.
    pub ext: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// Returns the bytes of a frame, with its length field, that begins with these.
///
/// # Errors
/// The fault: no frame is this short or this long.
pub fn frame_length(head: [u8; LENGTH]) -> Result<usize, String> {
    let length = i32::from_be_bytes(head);
    let whole = usize::try_from(length).ok().map(|length| length + LENGTH);
    let found = whole.filter(|length| (2 * LENGTH..=MAX_FRAME).contains(length));
    found.ok_or_else(|| format!("frame of length {length}: expected {LENGTH} to {}", MAX_FRAME - LENGTH))
}

/// Returns the command of a whole frame.
///
/// # Errors
/// The fault in it.
pub fn decode(frame: &[u8]) -> Result<Command<'_>, String> {
    let mut rest = Rest(frame);
    rest.take(LENGTH)?;
    let word = rest.u32()?;
    let length = (word & 0x00FF_FFFF) as usize;
    let header = rest.take(length).map_err(|_| format!("header of {length} bytes in a frame of {}", frame.len()))?;
    if length > MAX_HEADER {
        return Err(format!("header of {length} bytes: expected at most {MAX_HEADER}"));
    }
    match word >> 24 {
        0 => of_json(header, rest.0),
        1 => of_binary(header, rest.0),
        kind => Err(format!("serialize type {kind}: expected 0 (JSON) or 1 (ROCKETMQ)")),
    }
    .map_err(|error| format!("header: {error}"))
}

fn of_json<'a>(header: &'a [u8], body: &'a [u8]) -> Result<Command<'a>, String> {
    let JsonHeader { code, version, opaque, flag, language, remark, ext } = JsonHeader::parse(header)?;
    let language = language.unwrap_or(Cow::Borrowed(OTHER));
    Ok(Command { code, language, version, opaque, flag, remark, ext, body })
}

fn of_binary<'a>(header: &'a [u8], body: &'a [u8]) -> Result<Command<'a>, String> {
    let mut rest = Rest(header);
    let (code, language, version) = (rest.i16()?, rest.take(1)?, rest.i16()?);
    let (opaque, flag) = (rest.i32()?, rest.i32()?);
    let remark = rest.text(LENGTH)?;
    let length = rest.u32()? as usize;
    let mut fields = Rest(rest.take(length)?);
    let mut ext = Fields::new();
    while !fields.0.is_empty() {
        let (name, value) = (fields.text(LENGTH / 2)?, fields.text(LENGTH)?);
        ext.push((name, value));
    }
    let language = language.first().and_then(|number| LANGUAGES.get(usize::from(*number)));
    Ok(Command {
        code: i32::from(code),
        language: Cow::Borrowed(language.map_or(OTHER, |language| language)),
        version: i32::from(version),
        opaque,
        flag,
        remark: Some(remark).filter(|remark| !remark.is_empty()),
        ext,
        body,
    })
}

/// Bytes that are not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let too_few = || format!("expected {length} bytes more, found {}", self.0.len());
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(too_few)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().map_err(|_| String::new())
    }

    fn i16(&mut self) -> Result<i16, String> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_be_bytes)
    }

    /// A text after its length, of 2 bytes or 4.
    fn text(&mut self, length: usize) -> Result<Cow<'a, str>, String> {
        let length = self.take(length)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        self.take(length).map(String::from_utf8_lossy)
    }
}

/// The header of a command that this side sends.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// The code of the request, or of the result.
    pub code: i32,
    /// The number of the request.
    pub opaque: i32,
    /// [`ANSWER`], [`ONE_WAY`].
    pub flag: i32,
    /// A text for people.
    pub remark: Option<&'a str>,
}

impl Header<'_> {
    /// Returns the head of a frame: all that comes before a body of this many bytes. `None`: a command without a table of fields.
    ///
    /// The header is JSON, as that of a broker is: clients read both.
    pub fn head<'f>(&self, ext: Option<impl Iterator<Item = (&'f str, &'f str)>>, body_len: usize) -> Vec<u8> {
        let mut head = vec![0; 2 * LENGTH];
        put(&mut head, format_args!("{{\"code\":{}", self.code));
        if let Some(ext) = ext {
            let mut before = ",\"extFields\":{";
            let mut is_empty = true;
            for (name, value) in ext {
                put(&mut head, before);
                put_text(&mut head, name);
                put(&mut head, ":");
                put_text(&mut head, value);
                (before, is_empty) = (",", false);
            }
            put(&mut head, if is_empty { ",\"extFields\":{}" } else { "}" });
        }
        put(&mut head, format_args!(",\"flag\":{},\"language\":\"PYTHON\",\"opaque\":{}", self.flag, self.opaque));
        if let Some(remark) = self.remark {
            put(&mut head, ",\"remark\":");
            put_text(&mut head, remark);
        }
        put(&mut head, format_args!(",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":{VERSION}}}"));
        let header_len = head.len() - 2 * LENGTH;
        let lengths = [head.len() - LENGTH + body_len, header_len];
        for (to, length) in head.chunks_exact_mut(LENGTH).zip(lengths) {
            to.copy_from_slice(&u32_of(length).to_be_bytes());
        }
        head
    }
}

fn put(head: &mut Vec<u8>, text: impl Display) {
    // A vector takes all.
    _ = write!(head, "{text}");
}

fn put_text(head: &mut Vec<u8>, text: &str) {
    _ = serde_json::to_writer(head, text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(header: &Header<'_>, ext: Option<&[(String, String)]>, body: &[u8]) -> Vec<u8> {
        let fields = ext.map(|ext| ext.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        [header.head(fields, body.len()), body.to_vec()].concat()
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            code: i32,
            opaque: i32,
            flag: i32,
            remark: Option<String>,
            ext: std::collections::BTreeMap<String, String>,
            body: Vec<u8>,
        ) {
            let header = Header { code, opaque, flag, remark: remark.as_deref() };
            let ext: Vec<_> = ext.into_iter().collect();
            let frame = encode(&header, Some(&ext), &body);
            prop_assert_eq!(frame_length(*frame.first_chunk().unwrap()), Ok(frame.len()));
            let (language, version) = (Cow::Borrowed("PYTHON"), VERSION);
            let (remark, ext) = (remark.map(Cow::Owned), ext.into_iter().map(|(name, value)| (name.into(), value.into())));
            let expected = Command { code, language, version, opaque, flag, remark, ext: ext.collect(), body: &body };
            prop_assert_eq!(decode(&frame), Ok(expected));
        }

        #[test]
        fn any_bytes_are_a_command_or_an_error(kind in 0..3u8, header: Vec<u8>, body: Vec<u8>) {
            let length = u32::try_from(header.len()).unwrap().to_be_bytes();
            let frame = [&[0; 4], &[kind][..], &length[1..], &header, &body].concat();
            _ = decode(&frame);
        }
    }

    #[test]
    fn a_long_header_is_refused_unread() {
        let length = MAX_HEADER + 1;
        let frame = [&[0; 4], &u32::try_from(length).unwrap().to_be_bytes()[..], &vec![b'['; length]].concat();
        assert_eq!(decode(&frame).unwrap_err(), "header of 1048577 bytes: expected at most 1048576");
    }

    #[test]
    fn a_command_without_fields_has_no_table() {
        let header = Header { code: 0, opaque: 3, flag: ANSWER, remark: None };
        let json =
            br#"{"code":0,"flag":1,"language":"PYTHON","opaque":3,"serializeTypeCurrentRPC":"JSON","version":399}"#;
        let frame = encode(&header, None, b"{}");
        assert_eq!(frame.get(8..), Some([&json[..], b"{}"].concat().as_slice()));
        assert_eq!(frame.get(..8), Some([0, 0, 0, 103, 0, 0, 0, 97].as_slice()));
        assert!(encode(&header, Some(&[]), b"").windows(14).any(|part| part == b"\"extFields\":{}"));
    }
}
