//! The bytes of an index file: mapped, read by position, or through one of two views that show a changed file without
//! changing it.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::hash_index::format::geometry::Geometry;
use crate::hash_index::repair::infer;
use crate::hash_index::repair::relink::{self, Overlay, ZeroExtended};
use crate::io::disk::reserve;
use crate::io::{Access, FileMap, FileSource, PlainFile, ReadAt, WriteAt};

/// The bytes of an open file.
#[derive(Debug)]
pub(super) enum Bytes {
    Mapped(FileMap),
    Plain(PlainFile),
    Remote(FileSource),
    /// A short file, read as if it were extended with zeros.
    Extended(ZeroExtended<FileSource>),
    /// A file after a crash, read as if its links had been repaired.
    Repaired(Overlay<FileSource>),
}

/// Runs the same code on each kind of bytes, compiled for each.
macro_rules! on_bytes {
    ($bytes:expr, $source:ident => $call:expr) => {
        match $bytes {
            $crate::hash_index::file::bytes::Bytes::Mapped($source) => $call,
            $crate::hash_index::file::bytes::Bytes::Plain($source) => $call,
            $crate::hash_index::file::bytes::Bytes::Remote($source) => $call,
            $crate::hash_index::file::bytes::Bytes::Extended($source) => $call,
            $crate::hash_index::file::bytes::Bytes::Repaired($source) => $call,
        }
    };
}

pub(super) use on_bytes;

/// Runs the same code on each writable kind of bytes. A writer never has the other kinds; they do nothing.
macro_rules! on_writable {
    ($bytes:expr, $target:ident => $call:expr) => {
        match $bytes {
            $crate::hash_index::file::bytes::Bytes::Mapped($target) => $call,
            $crate::hash_index::file::bytes::Bytes::Plain($target) => $call,
            $crate::hash_index::file::bytes::Bytes::Remote(_)
            | $crate::hash_index::file::bytes::Bytes::Extended(_)
            | $crate::hash_index::file::bytes::Bytes::Repaired(_) => Ok(Default::default()),
        }
    };
}

pub(super) use on_writable;

impl From<FileSource> for Bytes {
    fn from(source: FileSource) -> Self {
        match source {
            FileSource::Mapped(f) => Self::Mapped(f),
            FileSource::Plain(f) => Self::Plain(f),
            FileSource::Remote(_) | FileSource::Chunked(_) => Self::Remote(source),
        }
    }
}

/// Infers the geometry of an index file from its content, or confirms the given one. Linear in the worst case.
///
/// # Errors
/// `Geometry` if none or several fit; errors of the system.
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

/// Returns bytes for puts: reserves the whole size, and maps the file if possible.
pub(super) fn writable_bytes(path: &Path, file: File, geometry: Geometry, access: Access) -> Result<Bytes> {
    let reserved = reserve(&file, geometry.file_len()).map_err(|e| Error::io(path, e))?;
    // Without reserved space, a store into a map can raise SIGBUS; pwrite returns an error.
    let access = if access == Access::Auto && !reserved { Access::Pread } else { access };
    let source = FileSource::new(file, path, true, access)?;
    if let FileSource::Mapped(map) = &source {
        // Puts access random slots: with small pages, each would also miss the TLB.
        map.prefer_large_pages();
    }
    Ok(source.into())
}

pub(super) fn readable_bytes(path: &Path, source: FileSource, geometry: Geometry, repair: bool) -> Result<Bytes> {
    if source.len() < geometry.file_len() {
        return Ok(Bytes::Extended(ZeroExtended { base: source, len: geometry.file_len() }));
    }
    if repair {
        let found = relink::relink(&source, geometry, geometry.max_entries(), true).map_err(|e| Error::io(path, e))?;
        return Ok(Bytes::Repaired(Overlay::new(source, geometry, found)));
    }
    if let FileSource::Mapped(map) = &source {
        map.expect_random_reads(true);
    }
    Ok(source.into())
}

/// Repairs the effects of a crash and returns whether the file changed. It is unchanged if only the process was killed.
pub(super) fn repair_file(target: &impl WriteAt, geometry: Geometry, after_power_loss: bool) -> io::Result<bool> {
    if after_power_loss {
        let found = relink::relink(target, geometry, geometry.max_entries(), false)?;
        return relink::apply(target, geometry, &found);
    }
    relink::repair_tail(target, geometry).map(|()| false)
}
