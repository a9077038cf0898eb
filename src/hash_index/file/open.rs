//! Creating and opening index files: exclusive names, locks, reserved space, repair.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::bytes::{Bytes, infer_geometry, on_writable, readable_bytes, repair_file, writable_bytes};
use super::index_file::IndexFile;
use super::last_warm::LastWarm;
use crate::error::{Error, Result};
use crate::hash_index::format::answers::Answers;
use crate::hash_index::format::geometry::Geometry;
use crate::hash_index::format::header::{Header, at};
use crate::io::Location;
use crate::io::disk::{NewFile, lock_writer, settle};
use crate::io::fork::Generation;
use crate::io::regular_file::open_file;
use crate::io::{Access, FileSource, FirstFailure, PlainFile, ReadAt, WriteAt};

/// Options to create an index file.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Slots and entries.
    pub geometry: Geometry,
    /// Seed: the end time of the previous file, in milliseconds; 0 or less: none.
    pub begin_timestamp: i64,
    /// Seed: the end offset of the previous file; 0 or less: none.
    pub begin_phy_offset: i64,
    /// Map or `pwrite`.
    pub access: Access,
    /// Whose answers.
    pub answers: Answers,
}

impl CreateOptions {
    /// Returns the options of a file without a file before it.
    pub fn new(geometry: Geometry) -> Self {
        let (access, answers) = (Access::Auto, Answers::Complete);
        Self { geometry, begin_timestamp: 0, begin_phy_offset: 0, access, answers }
    }
}

/// Options to open an index file.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// For puts as well.
    pub write: bool,
    /// Slots and entries; `None`: inferred from the content.
    pub geometry: Option<Geometry>,
    /// Map or `pread`.
    pub access: Access,
    /// Whose answers.
    pub answers: Answers,
    /// False after a crash of the machine: slots are rebuilt from the entries, up to the first impossible one.
    pub last_exit_ok: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { write: false, geometry: None, access: Access::Auto, answers: Answers::Complete, last_exit_ok: true }
    }
}

impl IndexFile {
    /// Creates a file of the full size, reserves its space, and opens it for puts.
    ///
    /// # Errors
    /// `AlreadyExists`, `StorageFull` and other I/O errors: then no file is left.
    pub fn create(path: &Path, options: CreateOptions) -> Result<Self> {
        let new = NewFile::create(path)?;
        let writer = lock_writer(path, new.file())?;
        let bytes = writable_bytes(path, clone(path, new.file())?, options.geometry, options.access)?;
        on_writable!(&bytes, target => write_seeds(target, options)).map_err(|e| Error::io(path, e))?;
        new.publish()?;
        Ok(Self::created(path, options, bytes, writer))
    }

    /// The handle of a file that was just created.
    pub(super) fn created(path: &Path, options: CreateOptions, bytes: Bytes, writer: File) -> Self {
        Self {
            path: path.into(),
            bytes,
            file_len: options.geometry.file_len(),
            geometry: options.geometry,
            answers: options.answers,
            last_exit_ok: true,
            repaired: false,
            writer: Some(Mutex::new(writer)),
            process: Generation::current(),
            is_new: AtomicBool::new(true),
            last_warm: LastWarm::default(),
            failure: FirstFailure::default(),
        }
    }

    /// Opens a file for reading, or for puts as well.
    ///
    /// Reading changes nothing. A file shorter than its geometry reads as if it were extended with zeros. Opening for puts takes
    /// the lock of the file, reserves missing space and, for complete answers, repairs the effects of a crash.
    ///
    /// # Errors
    /// `Geometry` if it is not given and cannot be inferred; `Corrupt` if the file is opened for puts and is shorter than its geometry or its count is above it; `WouldBlock` if another writer has the file; errors of
    /// the system.
    pub fn open(path: impl Into<Location>, options: OpenOptions) -> Result<Self> {
        let path = &path.into();
        let repair = !options.last_exit_ok && !options.answers.are_the_brokers();
        if !options.write {
            let source = FileSource::open(path, options.access)?;
            let file_len = source.len();
            let geometry = options.geometry.map_or_else(|| infer_geometry(path, &source, None), Ok)?;
            let bytes = readable_bytes(path, source, geometry, repair)?;
            return Ok(Self::opened(path, options, bytes, file_len, geometry, None));
        }
        let file = open_file(path.local()?, true)?;
        let writer = lock_writer(path, &file)?;
        let file_len = file.metadata().map_err(|e| Error::io(path, e))?.len();
        let geometry = geometry_of(path, &file, options)?;
        if repair {
            settle(path, &file)?;
        }
        check_appendable(path, &file, geometry, options.answers)?;
        let bytes = writable_bytes(path, file, geometry, options.access)?;
        let mut open = Self::opened(path, options, bytes, file_len, geometry, Some(writer));
        open.repaired = open.repair(repair)?;
        Ok(open)
    }

    fn opened(
        path: &Location,
        options: OpenOptions,
        bytes: Bytes,
        file_len: u64,
        geometry: Geometry,
        writer: Option<File>,
    ) -> Self {
        Self {
            path: path.into(),
            bytes,
            file_len,
            geometry,
            answers: options.answers,
            last_exit_ok: options.last_exit_ok,
            repaired: false,
            writer: writer.map(Mutex::new),
            process: Generation::current(),
            is_new: AtomicBool::new(false),
            last_warm: LastWarm::default(),
            failure: FirstFailure::default(),
        }
    }

    fn repair(&self, after_power_loss: bool) -> Result<bool> {
        if self.answers.are_the_brokers() {
            return Ok(false);
        }
        on_writable!(&self.bytes, target => repair_file(target, self.geometry, after_power_loss))
            .map_err(|e| Error::io(&self.path, e))
    }
}

pub(super) fn clone(path: &Path, file: &File) -> Result<File> {
    file.try_clone().map_err(|e| Error::io(path, e))
}

/// Stores the end of the previous file. Source: the constructor of `IndexFile`.
#[expect(clippy::cast_sign_loss, reason = "above 0")]
pub(super) fn write_seeds(target: &impl WriteAt, options: CreateOptions) -> io::Result<()> {
    if options.begin_phy_offset > 0 {
        target.put_long(at::BEGIN_PHY_OFFSET, options.begin_phy_offset as u64)?;
        target.put_long(at::END_PHY_OFFSET, options.begin_phy_offset as u64)?;
    }
    if options.begin_timestamp > 0 {
        target.put_long(at::BEGIN_TIMESTAMP, options.begin_timestamp as u64)?;
        target.put_long(at::END_TIMESTAMP, options.begin_timestamp as u64)?;
    }
    Ok(())
}

/// Checks that the file has its whole length and, for complete answers, a possible count.
fn check_appendable(path: &Path, file: &File, geometry: Geometry, answers: Answers) -> Result<()> {
    let plain = PlainFile::new(clone(path, file)?).map_err(|e| Error::io(path, e))?;
    if plain.len() < geometry.file_len() {
        let expected = format!("{} bytes", geometry.file_len());
        return Err(Error::corrupt(path, plain.len(), expected, format!("{} bytes", plain.len())));
    }
    let count = Header::read(&plain).map_err(|e| Error::io(path, e))?.index_count;
    if !answers.are_the_brokers() && (count < 0 || count.unsigned_abs() > geometry.max_entries()) {
        let expected = format!("a count of at most {}", geometry.max_entries());
        return Err(Error::corrupt(path, at::INDEX_COUNT, expected, count.to_string()));
    }
    Ok(())
}

fn geometry_of(path: &Path, file: &File, options: OpenOptions) -> Result<Geometry> {
    if let Some(geometry) = options.geometry {
        return Ok(geometry);
    }
    infer_geometry(path, &FileSource::new(clone(path, file)?, path, false, options.access)?, None)
}
