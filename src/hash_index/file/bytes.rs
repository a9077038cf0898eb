//! How the bytes of an index file are reached: by a map, by position, and through the two views that stand in for a
//! change of the file where it must not be changed.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::hash_index::format::geometry::Geometry;
use crate::hash_index::repair::infer;
use crate::hash_index::repair::relink::{self, Overlay, ZeroExtended};
use crate::io::disk::reserve;
use crate::io::{Access, FileSource, MappedFile, PlainFile, ReadAt, WriteAt};

/// The bytes of an open file.
#[derive(Debug)]
pub(super) enum Bytes {
    Mapped(MappedFile),
    Plain(PlainFile),
    /// A short file, read as if zeros followed.
    Extended(ZeroExtended<FileSource>),
    /// A file after a crash, read as if its links had been mended.
    Mended(Overlay<FileSource>),
}

/// Runs the same code on each kind of bytes, compiled for each.
macro_rules! on_bytes {
    ($bytes:expr, $source:ident => $call:expr) => {
        match $bytes {
            $crate::hash_index::file::bytes::Bytes::Mapped($source) => $call,
            $crate::hash_index::file::bytes::Bytes::Plain($source) => $call,
            $crate::hash_index::file::bytes::Bytes::Extended($source) => $call,
            $crate::hash_index::file::bytes::Bytes::Mended($source) => $call,
        }
    };
}

pub(super) use on_bytes;

/// Runs the same code on each kind of bytes that takes stores; on the others, which no writer has, nothing happens.
macro_rules! on_writable {
    ($bytes:expr, $target:ident => $call:expr) => {
        match $bytes {
            $crate::hash_index::file::bytes::Bytes::Mapped($target) => $call,
            $crate::hash_index::file::bytes::Bytes::Plain($target) => $call,
            $crate::hash_index::file::bytes::Bytes::Extended(_) | $crate::hash_index::file::bytes::Bytes::Mended(_) => {
                Ok(Default::default())
            }
        }
    };
}

pub(super) use on_writable;

impl From<FileSource> for Bytes {
    fn from(source: FileSource) -> Self {
        match source {
            FileSource::Mapped(f) => Self::Mapped(f),
            FileSource::Plain(f) => Self::Plain(f),
        }
    }
}

/// Finds the geometry of an index file from its content; the given one, where it fits. Linear in the worst case.
///
/// # Errors
/// `Geometry` when none or several fit; errors of the system.
pub(crate) fn infer_geometry(path: &Path, source: &FileSource, given: Option<Geometry>) -> Result<Geometry> {
    if let FileSource::Mapped(map) = source {
        map.expect_random_reads(true);
    }
    let fits = infer::infer(source, given).map_err(|e| Error::io(path, e))?;
    match fits.first.as_slice() {
        [one] if fits.count == 1 => Ok(*one),
        several => Err(Error::Geometry {
            path: path.to_owned(),
            fits: several.iter().map(|g| (g.hash_slots(), g.max_entries())).collect(),
            count: fits.count,
            size: source.len(),
        }),
    }
}

/// Bytes for puts: the whole size reserved, mapped where that may be.
pub(super) fn writable_bytes(path: &Path, file: File, geometry: Geometry, access: Access) -> Result<Bytes> {
    let reserved = reserve(&file, geometry.file_len()).map_err(|e| Error::io(path, e))?;
    // Without the space behind it, a store into a map can end in SIGBUS; pwrite ends in an error.
    let access = if access == Access::Auto && !reserved { Access::Pread } else { access };
    let source = FileSource::new(file, path, true, access)?;
    if let FileSource::Mapped(map) = &source {
        // Puts go anywhere in the slots: on small pages, each would wait for the address of its page as well.
        map.prefer_large_pages();
    }
    Ok(source.into())
}

pub(super) fn readable_bytes(path: &Path, file: File, geometry: Geometry, access: Access, mend: bool) -> Result<Bytes> {
    let source = FileSource::new(file, path, false, access)?;
    if source.len() < geometry.file_len() {
        return Ok(Bytes::Extended(ZeroExtended { base: source, len: geometry.file_len() }));
    }
    if mend {
        let found = relink::relink(&source, geometry, geometry.max_entries(), true).map_err(|e| Error::io(path, e))?;
        return Ok(Bytes::Mended(Overlay::new(source, geometry, found)));
    }
    if let FileSource::Mapped(map) = &source {
        map.expect_random_reads(true);
    }
    Ok(source.into())
}

pub(super) fn mend_file(target: &impl WriteAt, geometry: Geometry, after_power_loss: bool) -> io::Result<()> {
    if after_power_loss {
        let found = relink::relink(target, geometry, geometry.max_entries(), false)?;
        return relink::apply(target, geometry, &found);
    }
    relink::mend_tail(target, geometry)
}
