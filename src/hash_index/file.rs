//! An index file on disk: opening, locking, and the calls that a user makes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::compat::Compat;
use super::entry::Entry;
use super::header::{Header, at};
use super::infer;
use super::key_hash::KeySource;
use super::layout::Geometry;
use super::put::{self, PutColumns};
use super::relink::{self, Overlay, ZeroExtended};
use super::select::{self, Damage, View};
use super::verify::{self, Checked};
use crate::error::{Error, Result};
use crate::mmap::{FileSource, MappedFile};
use crate::source::{Access, PlainFile, ReadAt, WriteAt, fcntl_lock_holder, lock_exclusive, open_file, reserve};
use crate::time_range::TimeRange;

/// How to create an index file.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Slots and entries.
    pub geometry: Geometry,
    /// Seed: the end time of the file before, in milliseconds; 0 or less is none.
    pub begin_timestamp: i64,
    /// Seed: the end offset of the file before; 0 or less is none.
    pub begin_phy_offset: i64,
    /// Map or `pwrite`.
    pub access: Access,
    /// Whose answers.
    pub compat: Option<Compat>,
}

/// How to open an index file.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// For puts as well.
    pub write: bool,
    /// Slots and entries; `None`: found from the content.
    pub geometry: Option<Geometry>,
    /// Map or `pread`.
    pub access: Access,
    /// Whose answers.
    pub compat: Option<Compat>,
    /// False after a crash of the machine: slots are linked anew from the entries, up to the first that cannot be true.
    pub last_exit_ok: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { write: false, geometry: None, access: Access::Auto, compat: None, last_exit_ok: true }
    }
}

/// The bytes of an open file.
#[derive(Debug)]
enum Bytes {
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
            Bytes::Mapped($source) => $call,
            Bytes::Plain($source) => $call,
            Bytes::Extended($source) => $call,
            Bytes::Mended($source) => $call,
        }
    };
}

/// An open index file. Any number of threads may read it; puts are taken one after the other.
#[derive(Debug)]
pub struct IndexFile {
    path: PathBuf,
    bytes: Bytes,
    /// Length on disk when it was opened.
    file_len: u64,
    geometry: Geometry,
    compat: Option<Compat>,
    last_exit_ok: bool,
    /// Puts, one at a time; holds the lock of the file.
    writer: Option<Mutex<File>>,
    /// Whether the directory has yet to be told of a new file.
    is_new: AtomicBool,
}

impl IndexFile {
    /// Creates a file of the full size, its space reserved, and opens it for puts.
    ///
    /// # Errors
    /// `AlreadyExists`, `StorageFull` and other errors of the system: then no file is left. `Locked` while a broker runs
    /// on the store that the directory belongs to.
    pub fn create(path: &Path, options: CreateOptions) -> Result<Self> {
        refuse_running_broker(path)?;
        let file =
            File::options().read(true).write(true).create_new(true).open(path).map_err(|e| Error::io(path, e))?;
        Self::fill_new(path, file, options).inspect_err(|_| {
            // The first error is the one to tell; a file that cannot be removed either is empty.
            let _ = fs::remove_file(path);
        })
    }

    #[expect(clippy::cast_sign_loss, reason = "bit patterns of the file")]
    fn fill_new(path: &Path, file: File, options: CreateOptions) -> Result<Self> {
        let geometry = options.geometry;
        let guard = file.try_clone().map_err(|e| Error::io(path, e))?;
        lock_exclusive(&guard).map_err(|e| Error::io(path, e))?;
        let bytes = writable_bytes(path, file, geometry, options.access)?;
        let seeded = |target: &dyn Fn(u64, u64) -> io::Result<()>| {
            if options.begin_phy_offset > 0 {
                target(at::BEGIN_PHY_OFFSET, options.begin_phy_offset as u64)?;
                target(at::END_PHY_OFFSET, options.begin_phy_offset as u64)?;
            }
            if options.begin_timestamp > 0 {
                target(at::BEGIN_TIMESTAMP, options.begin_timestamp as u64)?;
                target(at::END_TIMESTAMP, options.begin_timestamp as u64)?;
            }
            Ok(())
        };
        match &bytes {
            Bytes::Mapped(f) => seeded(&|at, value| f.put_long(at, value)),
            Bytes::Plain(f) => seeded(&|at, value| f.put_long(at, value)),
            Bytes::Extended(_) | Bytes::Mended(_) => Ok(()),
        }
        .map_err(|e| Error::io(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
            file_len: geometry.file_len(),
            geometry,
            compat: options.compat,
            last_exit_ok: true,
            writer: Some(Mutex::new(guard)),
            is_new: AtomicBool::new(true),
        })
    }

    /// Opens a file for reading, or for puts as well.
    ///
    /// Reading changes nothing. A file that is shorter than its geometry reads as if zeros followed. Opening for puts
    /// takes the lock of the file, reserves what space is missing, and, unless in compat, mends what a crash left.
    ///
    /// # Errors
    /// `Geometry` when it is not given and not to be told from the content; `Corrupt` when puts are asked for and the
    /// file is shorter than its geometry or its count is above it; `WouldBlock` when another writer has the file;
    /// `Locked` while a broker runs on the store; errors of the system.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self> {
        if options.write {
            refuse_running_broker(path)?;
        }
        let file = open_file(path, options.write)?;
        let file_len = file.metadata().map_err(|e| Error::io(path, e))?.len();
        let mut open = Self {
            path: path.to_owned(),
            bytes: Bytes::Plain(
                PlainFile::new(file.try_clone().map_err(|e| Error::io(path, e))?).map_err(|e| Error::io(path, e))?,
            ),
            file_len,
            geometry: Geometry::DEFAULT,
            compat: options.compat,
            last_exit_ok: options.last_exit_ok,
            writer: None,
            is_new: AtomicBool::new(false),
        };
        let mend = !options.last_exit_ok && options.compat.is_none();
        if options.write {
            let guard = file.try_clone().map_err(|e| Error::io(path, e))?;
            lock_exclusive(&guard).map_err(|e| Error::io(path, e))?;
            open.geometry = geometry_of(path, &file, options)?;
            open.check_appendable()?;
            open.bytes = writable_bytes(path, file, open.geometry, options.access)?;
            open.mend(mend)?;
            open.writer = Some(Mutex::new(guard));
        } else {
            open.geometry = geometry_of(path, &file, options)?;
            open.bytes = readable_bytes(path, file, open.geometry, options.access, mend)?;
        }
        Ok(open)
    }

    fn check_appendable(&self) -> Result<()> {
        if self.file_len < self.geometry.file_len() {
            let expected = format!("{} bytes", self.geometry.file_len());
            return Err(Error::corrupt(&self.path, self.file_len, expected, format!("{} bytes", self.file_len)));
        }
        let count = self.header()?.index_count;
        if self.compat.is_none() && (count < 0 || count.unsigned_abs() > self.geometry.max_entries()) {
            let expected = format!("a count of at most {}", self.geometry.max_entries());
            return Err(Error::corrupt(&self.path, at::INDEX_COUNT, expected, count.to_string()));
        }
        Ok(())
    }

    fn mend(&self, after_power_loss: bool) -> Result<()> {
        if self.compat.is_some() {
            return Ok(());
        }
        let mended = match &self.bytes {
            Bytes::Mapped(f) => mend_file(f, self.geometry, after_power_loss),
            Bytes::Plain(f) => mend_file(f, self.geometry, after_power_loss),
            Bytes::Extended(_) | Bytes::Mended(_) => Ok(()),
        };
        mended.map_err(|e| Error::io(&self.path, e))
    }

    /// Puts one key; false when the file is full, which changes nothing. Source: `IndexFile#putKey`.
    ///
    /// # Errors
    /// As [`Self::put_batch`].
    pub fn put_key(&self, key: &str, phy_offset: i64, store_timestamp: i64) -> Result<bool> {
        let (keys, phy_offsets, store_timestamps) = ([key], [phy_offset], [store_timestamp]);
        let columns = PutColumns { keys: &keys[..], phy_offsets: &phy_offsets, store_timestamps: &store_timestamps };
        self.put_batch(&columns, 0).map(|taken| taken == 1)
    }

    /// Puts the rows from `start` on; returns how many were taken, fewer than there are only when the file became full.
    ///
    /// # Errors
    /// `InvalidArgument` when the file is open for reading or the columns differ in length; errors of the system.
    pub fn put_batch<K: KeySource + ?Sized>(&self, columns: &PutColumns<'_, K>, start: usize) -> Result<usize> {
        let rows = columns.keys.len();
        if columns.phy_offsets.len() != rows || columns.store_timestamps.len() != rows {
            return Err(Error::InvalidArgument(format!(
                "columns differ in length: {rows} keys, {} phy_offsets, {} store_timestamps",
                columns.phy_offsets.len(),
                columns.store_timestamps.len()
            )));
        }
        let _one_at_a_time = self.writer()?.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.bytes {
            Bytes::Mapped(f) => put::put_batch(f, self.geometry, columns, start),
            Bytes::Plain(f) => put::put_batch(f, self.geometry, columns, start),
            Bytes::Extended(_) | Bytes::Mended(_) => Ok(0),
        }
        .map_err(|e| Error::io(&self.path, e))
    }

    fn writer(&self) -> Result<&Mutex<File>> {
        self.writer
            .as_ref()
            .ok_or_else(|| Error::InvalidArgument(format!("{} is open for reading", self.path.display())))
    }

    /// Candidates of one key hash, newest first, at most `max_num`. Source: `IndexFile#selectPhyOffset`.
    ///
    /// # Errors
    /// Errors of the system. Damage is no error by default: the answer is complete all the same. In compat, `Corrupt`
    /// where the broker would not return.
    pub fn select(
        &self,
        key_hash: i32,
        max_num: Option<usize>,
        range: TimeRange,
    ) -> Result<(Vec<i64>, Option<Damage>)> {
        let mut out = Vec::new();
        let damage =
            self.select_batch(std::iter::once(key_hash), max_num, range, |hits| out.extend_from_slice(hits))?;
        Ok((out, damage))
    }

    /// Candidates of each key hash; `each` is called once a hash, in order. Returns the first damage met.
    ///
    /// # Errors
    /// As [`Self::select`].
    pub fn select_batch(
        &self,
        key_hashes: impl Iterator<Item = i32>,
        max_num: Option<usize>,
        range: TimeRange,
        mut each: impl FnMut(&[i64]),
    ) -> Result<Option<Damage>> {
        let mut hits = Vec::new();
        self.append_hits(key_hashes, max_num, range, &mut hits, |hits| {
            each(hits);
            hits.clear();
        })
    }

    /// Appends the candidates of each key hash until `out` holds `max_num` in all; `done` is called after each hash.
    fn append_hits(
        &self,
        key_hashes: impl Iterator<Item = i32>,
        max_num: Option<usize>,
        range: TimeRange,
        out: &mut Vec<i64>,
        done: impl FnMut(&mut Vec<i64>),
    ) -> Result<Option<Damage>> {
        let damage = on_bytes!(&self.bytes, source => {
            View::new(source, self.geometry, self.file_len)
                .and_then(|view| self.walk(&view, key_hashes, max_num, range, out, done))
        })
        .map_err(|e| Error::io(&self.path, e))?;
        match damage {
            Some(Damage { offset, expected, found }) if self.compat.is_some() => {
                Err(Error::corrupt(&self.path, offset, expected, found))
            }
            damage => Ok(damage),
        }
    }

    fn walk<S: ReadAt>(
        &self,
        view: &View<'_, S>,
        key_hashes: impl Iterator<Item = i32>,
        max_num: Option<usize>,
        range: TimeRange,
        out: &mut Vec<i64>,
        mut done: impl FnMut(&mut Vec<i64>),
    ) -> io::Result<Option<Damage>> {
        let times = if range.is_all() { select::Times::unknown() } else { view.times()? };
        let mut first = None;
        for hash in key_hashes {
            let damage = if self.compat.is_some() {
                select::select_as_broker(view, hash, max_num, range, out)?
            } else {
                select::select(view, times, hash, max_num.unwrap_or(usize::MAX), range, out)?
            };
            first = first.or(damage);
            done(out);
        }
        Ok(first)
    }

    /// Whether the file can hold messages of a time range.
    ///
    /// By default false only when the range misses the span of the header's times widened by `clock_slack_ms`; in compat
    /// the broker's own test, without slack. Source: `IndexFile#isTimeMatched`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn is_time_matched(&self, range: TimeRange, clock_slack_ms: i64) -> Result<bool> {
        if self.compat.is_some() {
            return Ok(select::is_time_matched(&self.header()?, range));
        }
        on_bytes!(&self.bytes, source => {
            View::new(source, self.geometry, self.file_len).and_then(|view| select::may_hold(&view, range, clock_slack_ms))
        })
        .map_err(|e| Error::io(&self.path, e))
    }

    /// The header as it is now. A file without a whole header reads as if zeros followed.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn header(&self) -> Result<Header> {
        on_bytes!(&self.bytes, source => Header::read(source)).map_err(|e| Error::io(&self.path, e))
    }

    /// Entries held, as the count says.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn len(&self) -> Result<u32> {
        Ok(self.header()?.next_position() - 1)
    }

    /// True when there is no entry.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// True when no entry can be put any more. Source: `IndexFile#isWriteFull`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn is_full(&self) -> Result<bool> {
        Ok(self.header()?.next_position() >= self.geometry.max_entries())
    }

    /// The entries from `position` on that the count says and the file holds, at most `limit`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn read_entries(&self, position: u32, limit: u32) -> Result<Vec<Entry>> {
        let end = self.header()?.next_position().min(self.geometry.entries_within(self.file_len));
        let end = end.min(position.saturating_add(limit));
        on_bytes!(&self.bytes, source => {
            (position..end).map(|at| Entry::read(source, self.geometry, at)).collect::<io::Result<_>>()
        })
        .map_err(|e| Error::io(&self.path, e))
    }

    /// The store time to show for an entry, in milliseconds; in compat as the broker computes it for entry 1, too (B3).
    pub fn shown_time(&self, header: &Header, position: u32, entry: &Entry) -> i64 {
        if self.compat.is_some() {
            return super::entry::broker_time(header.begin_timestamp, entry.time_diff);
        }
        select::shown_time(header, position, entry.time_diff)
    }

    /// Looks through the whole file. Linear.
    ///
    /// # Errors
    /// Errors of the system; what is wrong with the bytes is in the result.
    pub fn verify(&self) -> Result<Checked> {
        on_bytes!(&self.bytes, source => verify::verify(source, self.geometry, self.file_len))
            .map_err(|e| Error::io(&self.path, e))
    }

    /// Rewrites the header as the broker does (a count of 0 becomes 1) and waits until all of the file is on the disk.
    ///
    /// Source: `IndexFile#flush`. Does nothing for a file that is open for reading.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn flush(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        {
            let _one_at_a_time = writer.lock().unwrap_or_else(PoisonError::into_inner);
            match &self.bytes {
                Bytes::Mapped(f) => flush_file(f),
                Bytes::Plain(f) => flush_file(f),
                Bytes::Extended(_) | Bytes::Mended(_) => Ok(()),
            }
            .map_err(|e| Error::io(&self.path, e))?;
        }
        if self.is_new.swap(false, Ordering::Relaxed) {
            sync_parent(&self.path)?;
        }
        Ok(())
    }

    /// Slots and entries.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose answers.
    pub fn compat(&self) -> Option<Compat> {
        self.compat
    }

    /// False when the file was opened as one that a crash left.
    pub fn last_exit_ok(&self) -> bool {
        self.last_exit_ok
    }

    /// True when puts are possible.
    pub fn is_writable(&self) -> bool {
        self.writer.is_some()
    }

    /// True when the bytes are reached by a map.
    pub fn is_mapped(&self) -> bool {
        match &self.bytes {
            Bytes::Mapped(_) => true,
            Bytes::Plain(_) => false,
            Bytes::Extended(f) => f.base.is_mapped(),
            Bytes::Mended(f) => f.is_mapped(FileSource::is_mapped),
        }
    }

    /// Disk space held for the file, in bytes.
    pub fn reserved_bytes(&self) -> u64 {
        if self.is_writable() { self.file_len } else { 0 }
    }
}

/// Candidates of each key hash over many files, given newest first: a key is done when it has `max_num`.
///
/// `each` is called once a hash, in order. Returns the first damage met, with its file.
///
/// # Errors
/// As [`IndexFile::select`].
pub fn select_files<'a>(
    files: &[&'a IndexFile],
    key_hashes: impl Iterator<Item = i32>,
    max_num: Option<usize>,
    range: TimeRange,
    mut each: impl FnMut(&[i64]),
) -> Result<Option<(&'a IndexFile, Damage)>> {
    let mut hits = Vec::new();
    let mut first = None;
    for hash in key_hashes {
        hits.clear();
        for file in files {
            if max_num.is_some_and(|most| hits.len() >= most) {
                break;
            }
            let damage = file.append_hits(std::iter::once(hash), max_num, range, &mut hits, |_| ())?;
            first = first.or(damage.map(|damage| (*file, damage)));
        }
        each(&hits);
    }
    Ok(first)
}

/// Asks for the lock that a broker holds on its store, where the directory of `path` is the index of one.
fn refuse_running_broker(path: &Path) -> Result<()> {
    let Some(root) = path.parent().and_then(Path::parent) else { return Ok(()) };
    if !root.join("commitlog").is_dir() {
        return Ok(());
    }
    let lock = root.join("lock");
    match fcntl_lock_holder(&lock)? {
        Some(pid) => Err(Error::Locked { path: lock, pid }),
        None => Ok(()),
    }
}

fn geometry_of(path: &Path, file: &File, options: OpenOptions) -> Result<Geometry> {
    if let Some(geometry) = options.geometry {
        return Ok(geometry);
    }
    let file = file.try_clone().map_err(|e| Error::io(path, e))?;
    infer_geometry(path, &FileSource::new(file, path, false, options.access)?)
}

/// Finds the geometry of an index file from its content. Linear in the worst case.
///
/// # Errors
/// `Geometry` when none or several fit; errors of the system.
pub(crate) fn infer_geometry(path: &Path, source: &FileSource) -> Result<Geometry> {
    let fits = match source {
        FileSource::Mapped(f) => infer::infer(f),
        FileSource::Plain(f) => infer::infer(f),
    }
    .map_err(|e| Error::io(path, e))?;
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
fn writable_bytes(path: &Path, file: File, geometry: Geometry, access: Access) -> Result<Bytes> {
    let reserved = reserve(&file, geometry.file_len()).map_err(|e| Error::io(path, e))?;
    // Without the space behind it, a store into a map can end in SIGBUS; pwrite ends in an error.
    let access = if access == Access::Auto && !reserved { Access::Pread } else { access };
    Ok(match FileSource::new(file, path, true, access)? {
        FileSource::Mapped(f) => Bytes::Mapped(f),
        FileSource::Plain(f) => Bytes::Plain(f),
    })
}

fn readable_bytes(path: &Path, file: File, geometry: Geometry, access: Access, mend: bool) -> Result<Bytes> {
    let source = FileSource::new(file, path, false, access)?;
    if source.len() < geometry.file_len() {
        return Ok(Bytes::Extended(ZeroExtended { base: source, len: geometry.file_len() }));
    }
    if mend {
        let found = match &source {
            FileSource::Mapped(f) => relink::relink(f, geometry, geometry.max_entries(), true),
            FileSource::Plain(f) => relink::relink(f, geometry, geometry.max_entries(), true),
        }
        .map_err(|e| Error::io(path, e))?;
        return Ok(Bytes::Mended(Overlay::new(source, geometry, found)));
    }
    Ok(match source {
        FileSource::Mapped(f) => Bytes::Mapped(f),
        FileSource::Plain(f) => Bytes::Plain(f),
    })
}

fn mend_file(target: &impl WriteAt, geometry: Geometry, after_power_loss: bool) -> io::Result<()> {
    if after_power_loss {
        let found = relink::relink(target, geometry, geometry.max_entries(), false)?;
        return relink::apply(target, geometry, &found);
    }
    relink::mend_tail(target, geometry)
}

fn flush_file(target: &impl WriteAt) -> io::Result<()> {
    let mut header = Header::read(target)?;
    if header.index_count <= 0 {
        header.index_count = 1;
        header.write_counts(target)?;
    }
    target.flush(0, target.len())
}

/// Puts the name of a new file on the disk, too.
#[cfg(unix)]
fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|e| Error::io(parent, e))
}

#[cfg(not(unix))]
fn sync_parent(_path: &Path) -> Result<()> {
    Ok(())
}
