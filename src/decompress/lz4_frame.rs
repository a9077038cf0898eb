//! The LZ4 frame format: a header, blocks, an end mark, and optional checksums; frames may follow each other.
//!
//! `lz4_flex` decodes blocks; the frame is parsed here. Allocations are bounded by the input, because a block cannot grow more
//! than 255 times. A frame without an end mark is an error, not shorter data.
//! Format: `lz4_Frame_format.md` of the LZ4 project, version 1.6.

use lz4_flex::block::{DecompressError, decompress_into, decompress_into_with_dict};
use twox_hash::XxHash32;

use super::{DecodeError, Output};
use crate::io::usize_of;

const MAGIC: u32 = 0x184d_2204;
const SKIPPABLE_MAGIC: u32 = 0x184d_2a50;
/// The history of a block that is linked to the blocks before it.
const WINDOW: usize = 64 * 1024;
/// The most output bytes for one byte of a block.
const MOST_GROWTH: usize = 255;

fn fail(reason: &str) -> DecodeError {
    DecodeError::Undecodable { kind: "LZ4", reason: reason.to_owned() }
}

fn take<'a>(input: &mut &'a [u8], len: usize) -> Result<&'a [u8], DecodeError> {
    let (head, rest) = input.split_at_checked(len).ok_or_else(|| fail("it ends inside a frame"))?;
    *input = rest;
    Ok(head)
}

fn take_u32(input: &mut &[u8]) -> Result<u32, DecodeError> {
    let (word, rest) = input.split_first_chunk().ok_or_else(|| fail("it ends inside a frame"))?;
    *input = rest;
    Ok(u32::from_le_bytes(*word))
}

/// True if to check the checksum of a frame's header: old writers computed it over another range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderChecksum {
    Checked,
    Ignored,
}

/// True if to check the size and checksum of a frame's whole content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Checked,
    Ignored,
}

/// Decodes all frames of `input`.
pub(crate) fn decode(mut input: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    frame(&mut input, HeaderChecksum::Checked, Content::Checked, output)?;
    // Java's reader ignores a rest that is shorter than a magic.
    while input.len() >= 4 {
        frame(&mut input, HeaderChecksum::Checked, Content::Checked, output)?;
    }
    Ok(())
}

/// Decodes the first frame of `input`. Ignores the bytes after it, and the size and checksum of its content, as Kafka's reader
/// does: batches have a checksum of their own. Source: `Lz4BlockInputStream#readHeader`, `#readBlock`.
pub(crate) fn decode_first(mut input: &[u8], checksum: HeaderChecksum, output: &mut Output) -> Result<(), DecodeError> {
    frame(&mut input, checksum, Content::Ignored, output)
}

fn frame(input: &mut &[u8], checksum: HeaderChecksum, whole: Content, output: &mut Output) -> Result<(), DecodeError> {
    let magic = take_u32(input)?;
    if magic & !0xf == SKIPPABLE_MAGIC {
        let len = take_u32(input)?;
        return take(input, usize_of(len)).map(|_| ());
    }
    if magic != MAGIC {
        return Err(fail("it does not begin with the magic of a frame"));
    }
    let descriptor = *input;
    let &[flags, block_size] = take(input, 2)? else {
        return Err(fail("it ends inside a frame"));
    };
    if flags & 0b1100_0010 != 0b0100_0000 || block_size & 0b1000_1111 != 0 {
        return Err(fail("unknown version or reserved bits in the frame header"));
    }
    let has = |bit: u8| flags & bit != 0;
    let (independent, block_checksum, content_checksum) = (has(0x20), has(0x10), has(0x04));
    let most = match block_size >> 4 {
        4 => 64 * 1024,
        5 => 256 * 1024,
        6 => 1024 * 1024,
        7 => 4 * 1024 * 1024,
        _ => return Err(fail("unknown block size")),
    };
    let content_size = if has(0x08) {
        let (size, rest) = input.split_first_chunk().ok_or_else(|| fail("it ends inside a frame"))?;
        *input = rest;
        Some(u64::from_le_bytes(*size))
    } else {
        None
    };
    if has(0x01) {
        return Err(fail("it needs a dictionary"));
    }
    let described = descriptor.get(..descriptor.len() - input.len()).unwrap_or_default();
    let stored = take(input, 1)?;
    if checksum == HeaderChecksum::Checked && stored != [xxh32(described).to_le_bytes()[1]] {
        return Err(fail("wrong checksum of the frame header"));
    }

    let begin = output.filled().len();
    loop {
        let word = take_u32(input)?;
        if word == 0 {
            break;
        }
        let len = usize_of(word & 0x7fff_ffff);
        if len > most {
            return Err(fail("a block is larger than the frame allows"));
        }
        let block = take(input, len)?;
        if block_checksum && take_u32(input)? != xxh32(block) {
            return Err(fail("wrong checksum of a block"));
        }
        if word >> 31 == 1 {
            let (_, free) = output.free(len);
            let Some(free) = free.get_mut(..len) else {
                return Err(output.too_long());
            };
            free.copy_from_slice(block);
            output.add(len)?;
        } else {
            let before = if independent { usize::MAX } else { begin };
            compressed_block(block, most, before, output)?;
        }
    }
    if whole == Content::Ignored {
        return Ok(());
    }
    let content = output.filled().get(begin..).unwrap_or_default();
    if content_size.is_some_and(|size| size != content.len() as u64) {
        return Err(fail("the size of the content is not that in the header"));
    }
    if content_checksum && take_u32(input)? != xxh32(content) {
        return Err(fail("wrong checksum of the content"));
    }
    Ok(())
}

/// Decodes a block of at most `most` bytes whose history begins at `begin`.
fn compressed_block(block: &[u8], most: usize, begin: usize, output: &mut Output) -> Result<(), DecodeError> {
    let wanted = most.min(block.len().saturating_mul(MOST_GROWTH));
    let (filled, free) = output.free(wanted);
    let is_enough = free.len() >= wanted;
    let free = free.get_mut(..wanted.min(free.len())).unwrap_or_default();
    let history = filled.get(begin.max(filled.len().saturating_sub(WINDOW))..).unwrap_or_default();
    let decoded =
        if history.is_empty() { decompress_into(block, free) } else { decompress_into_with_dict(block, free, history) };
    match decoded {
        Ok(len) => output.add(len),
        Err(DecompressError::OutputTooSmall { .. }) if !is_enough => Err(output.too_long()),
        Err(e) => Err(fail(&e.to_string())),
    }
}

/// The checksum of the format: xxHash, 32 bits, seed 0.
fn xxh32(bytes: &[u8]) -> u32 {
    XxHash32::oneshot(0, bytes)
}
