//! The 40 bytes at the head of an index file. Source: `IndexHeader`.

use std::io;

use super::geometry::HEADER_LEN;
use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::{Access, FileSource, ReadAt, WriteAt};

/// Byte offsets of the fields.
pub(crate) mod at {
    pub(crate) const BEGIN_TIMESTAMP: u64 = 0;
    pub(crate) const END_TIMESTAMP: u64 = BEGIN_TIMESTAMP + 8;
    pub(crate) const BEGIN_PHY_OFFSET: u64 = END_TIMESTAMP + 8;
    pub(crate) const END_PHY_OFFSET: u64 = BEGIN_PHY_OFFSET + 8;
    pub(crate) const HASH_SLOT_COUNT: u64 = END_PHY_OFFSET + 8;
    pub(crate) const INDEX_COUNT: u64 = HASH_SLOT_COUNT + 4;
}

/// The header as the bytes have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// Store time of the first entry in milliseconds, the base of every time difference; before it the seed, or 0.
    pub begin_timestamp: i64,
    /// Store time of the last entry put (not the largest) in milliseconds; before it the seed, or 0.
    pub end_timestamp: i64,
    /// Commit-log offset of the first entry; before it the seed, or 0.
    pub begin_phy_offset: i64,
    /// Commit-log offset of the last entry put; before it the seed, or 0.
    pub end_phy_offset: i64,
    /// Puts that found their slot empty (up to 4.7.0: all puts). For information only.
    pub hash_slot_count: i32,
    /// Position of the next entry, entries + 1. On disk 0 until the first put or flush.
    pub index_count: i32,
}

#[expect(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "bit patterns of the file"
)]
impl Header {
    /// Reads the fields as they are now, each in one piece, the counts last to first: entries below the count that is
    /// seen here can be read.
    ///
    /// # Errors
    /// An I/O error, or `UnexpectedEof` in a file without a whole header.
    pub fn read(source: &impl ReadAt) -> io::Result<Self> {
        let counts = source.long(at::HASH_SLOT_COUNT)?;
        Ok(Self {
            begin_timestamp: source.long(at::BEGIN_TIMESTAMP)? as i64,
            end_timestamp: source.long(at::END_TIMESTAMP)? as i64,
            begin_phy_offset: source.long(at::BEGIN_PHY_OFFSET)? as i64,
            end_phy_offset: source.long(at::END_PHY_OFFSET)? as i64,
            hash_slot_count: (counts >> 32) as i32,
            index_count: counts as i32,
        })
    }

    /// Reads the header of a file.
    ///
    /// # Errors
    /// An I/O error, or `UnexpectedEof`, with the path.
    pub fn of_file(path: &Location) -> Result<Self> {
        let source = FileSource::open(path, Access::Pread)?;
        let mut bytes = [0; HEADER_LEN as usize];
        source.read_exact_at(&mut bytes, 0).and_then(|()| Self::read(&bytes.to_vec())).map_err(|e| Error::io(path, e))
    }

    /// Stores the fields that are set before the first entry.
    pub(crate) fn write_begin(&self, target: &impl WriteAt) -> io::Result<()> {
        target.put_long(at::BEGIN_PHY_OFFSET, self.begin_phy_offset as u64)?;
        target.put_long(at::BEGIN_TIMESTAMP, self.begin_timestamp as u64)
    }

    /// Publishes the counts: entries below the new count can be seen from now on.
    pub(crate) fn write_counts(&self, target: &impl WriteAt) -> io::Result<()> {
        let counts = u64::from(self.hash_slot_count as u32) << 32 | u64::from(self.index_count as u32);
        target.put_long(at::HASH_SLOT_COUNT, counts)
    }

    /// Stores the fields that are set after the last entry.
    pub(crate) fn write_end(&self, target: &impl WriteAt) -> io::Result<()> {
        target.put_long(at::END_PHY_OFFSET, self.end_phy_offset as u64)?;
        target.put_long(at::END_TIMESTAMP, self.end_timestamp as u64)
    }

    /// Position of the next entry, at least 1. Source: `IndexHeader#load`.
    #[inline]
    pub fn next_position(&self) -> u32 {
        self.index_count.max(1) as u32
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        let fields = self
            .begin_timestamp
            .to_be_bytes()
            .into_iter()
            .chain(self.end_timestamp.to_be_bytes())
            .chain(self.begin_phy_offset.to_be_bytes())
            .chain(self.end_phy_offset.to_be_bytes())
            .chain(self.hash_slot_count.to_be_bytes())
            .chain(self.index_count.to_be_bytes());
        for (to, byte) in bytes.iter_mut().zip(fields) {
            *to = byte;
        }
        bytes
    }
}
