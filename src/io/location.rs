//! Locations of files: a path of this machine, or a path in a store with all that is needed to read it. A location is a value; nothing
//! else in the process has its options.

use std::any::Any;
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chunked_file::{ChunkedFile, StoredFile};
use super::regular_file::{NotAFile, not_written, open_file};
use super::remote::objects::Objects;
use super::remote::url::Options;
use super::remote::{RemoteEntry, RemoteFile};
use super::status::{Kind, Status};
use super::{Access, FileSource};
use crate::error::{Error, Result};

/// The identity of a store: all options that it was made of, by name. It may hold secrets.
pub type Identity = Arc<Options>;

/// A store that is not on this machine, or that is put together from several places.
pub trait Store: Any + fmt::Debug + Send + Sync {
    /// Lists a directory, in no order.
    ///
    /// # Errors
    /// `NotFound`; an error of the store, with the path.
    fn list(&self, directory: &Location) -> Result<Vec<Entry>>;

    /// Describes what is at a path.
    ///
    /// # Errors
    /// As [`Self::list`].
    fn status(&self, path: &Location) -> Result<Status>;

    /// Opens a file. `access` counts if it is on this machine.
    ///
    /// # Errors
    /// As [`Self::list`].
    fn open(&self, path: &Location, access: Access) -> Result<FileSource>;

    /// The identity of the store.
    fn identity(&self) -> &Identity;

    /// Returns the files that should be in a directory and are not: their names, and what is found instead.
    ///
    /// # Errors
    /// As [`Self::list`].
    fn missing(&self, _directory: &Location) -> Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    /// The store itself if it holds objects. Others have nothing to prepare, and are not written.
    fn objects(&self) -> Option<&Objects> {
        None
    }

    /// The store whose options count for URLs that are given without options.
    fn main(&self) -> Option<&Objects> {
        self.objects()
    }

    /// Forgets what was listed before the last second, so that a store that is opened again is seen as it is now.
    fn refresh(&self) {}
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The directory's path and the name.
    pub path: Location,
    /// The name.
    pub name: OsString,
    status: Option<Status>,
    /// As the directory lists it, without a further request.
    listed: Option<fs::FileType>,
}

impl Entry {
    /// An entry that the store has described.
    pub(crate) fn known(path: Location, status: Status) -> Self {
        Self { name: path.file_name().unwrap_or_default().to_owned(), path, status: Some(status), listed: None }
    }

    /// Describes the entry. `None`: it was deleted since it was listed. Links are followed; one that leads nowhere is of the
    /// kind [`Kind::Other`].
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn status(&self) -> Result<Option<Status>> {
        if let Some(known) = &self.status {
            return Ok(Some(known.clone()));
        }
        match self.path.status() {
            Err(error) if error.is_missing() => {
                let link = fs::symlink_metadata(&self.path).ok();
                Ok(link.map(|found| Status { kind: Kind::Other, ..Status::from(found) }))
            }
            found => found.map(Some),
        }
    }

    /// Returns whether it is a file, or a link to one.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn is_file(&self) -> Result<bool> {
        match self.listed.filter(|kind| !kind.is_symlink()) {
            Some(kind) => Ok(kind.is_file()),
            None => Ok(self.status()?.is_some_and(|found| found.kind == Kind::File)),
        }
    }

    /// Returns whether it is a directory, or a link to one.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn is_directory(&self) -> Result<bool> {
        match self.listed.filter(|kind| !kind.is_symlink()) {
            Some(kind) => Ok(kind.is_dir()),
            None => Ok(self.status()?.is_some_and(|found| found.kind == Kind::Directory)),
        }
    }
}

/// The location of a file or directory. It is shown, and compared with others, by its path; a URL as its path has no secret.
#[derive(Clone, Default)]
pub struct Location {
    path: PathBuf,
    store: Option<Arc<dyn Store>>,
}

impl Location {
    /// A path in a store.
    pub(crate) fn within(path: PathBuf, store: Arc<dyn Store>) -> Self {
        Self { path, store: Some(store) }
    }

    /// The directory of a whole store.
    pub fn whole(store: Objects) -> Self {
        Self { path: store.root().into(), store: Some(Arc::new(store)) }
    }

    /// The store of a path that is not on this machine.
    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        self.store.as_ref()
    }

    /// The store that holds this object, in which objects can be written.
    pub(crate) fn objects(&self) -> Option<&Objects> {
        self.store.as_ref()?.objects()
    }

    /// Returns whether it is not on this machine.
    pub fn is_remote(&self) -> bool {
        self.store.is_some()
    }

    /// Another path of the same store.
    pub(crate) fn at(&self, path: PathBuf) -> Self {
        if let Some(part) = self.parts().iter().find(|part| path.starts_with(part.as_path())) {
            return part.at(path);
        }
        Self { path, store: self.store.clone() }
    }

    /// Returns whether it is put together from files elsewhere.
    pub(crate) fn is_joined(&self) -> bool {
        self.is_remote() && self.objects().is_none()
    }

    /// The path of this machine, for a call that writes.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem`: it is not on this machine.
    pub(crate) fn local(&self) -> Result<&Path> {
        if self.is_remote() { Err(not_written(self)) } else { Ok(&self.path) }
    }

    /// The store that holds this object, for a call that writes.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem`: there is none that can be written.
    pub(crate) fn writable(&self) -> Result<&Objects> {
        self.objects().ok_or_else(|| not_written(self))
    }

    /// Describes what is at the path. Links are followed.
    ///
    /// # Errors
    /// `NotFound`; an I/O error, with the path.
    pub fn status(&self) -> Result<Status> {
        match &self.store {
            Some(store) => store.status(self),
            None => fs::metadata(self).map(Status::from).map_err(|e| Error::io(self, e)),
        }
    }

    /// Lists the directory, in no order.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn list(&self) -> Result<Vec<Entry>> {
        if let Some(store) = &self.store {
            return store.list(self);
        }
        let fail = |e| Error::io(self, e);
        let entry = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry.map_err(fail)?;
            let (name, listed) = (entry.file_name(), entry.file_type().ok());
            // A directory that was opened as "." has paths without it.
            Ok(Entry { path: self.join(&name), name, status: None, listed })
        };
        fs::read_dir(self).map_err(fail)?.map(entry).collect()
    }

    /// The path as it is shown.
    pub fn as_path(&self) -> &Path {
        &self.path
    }

    /// A path below.
    #[must_use]
    pub fn join(&self, below: impl AsRef<Path>) -> Self {
        Self { path: self.path.join(below), store: self.store.clone() }
    }

    /// The directory; `None` for that of a whole store.
    pub fn parent(&self) -> Option<Self> {
        let above = self.path.parent()?;
        // A URL without its host is invalid.
        (self.store.is_none() || above.components().nth(1).is_some()).then(|| self.at(above.to_owned()))
    }

    /// The same path with another name.
    #[must_use]
    pub fn with_file_name(&self, name: impl AsRef<OsStr>) -> Self {
        Self { path: self.path.with_file_name(name), store: self.store.clone() }
    }

    /// The same path with another extension.
    #[must_use]
    pub fn with_extension(&self, extension: impl AsRef<OsStr>) -> Self {
        Self { path: self.path.with_extension(extension), store: self.store.clone() }
    }

    /// Several directories as one value, which is shown with commas between them; of one, that one.
    pub fn several(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let texts: Vec<&OsStr> = parts.iter().map(|part| part.path.as_os_str()).collect();
        let path = PathBuf::from(texts.join(",".as_ref()));
        if !parts.iter().any(Self::is_remote) {
            return path.into();
        }
        let options = parts.iter().zip(0u32..).flat_map(|(part, number)| part.options_as(&number.to_string()));
        let identity = Arc::new(options.collect());
        Self::within(path, Arc::new(Several { parts, identity }))
    }

    /// The directories of [`Self::several`]; none if it is one of them.
    pub(crate) fn parts(&self) -> &[Self] {
        let several = self.store.as_deref().and_then(|store| (store as &dyn Any).downcast_ref::<Several>());
        several.map_or(&[], |several| &several.parts)
    }

    /// The location as options of a store that is made of it.
    pub(crate) fn options_as(&self, name: &str) -> Options {
        let of_store = self.store.iter().flat_map(|store| store.identity().iter());
        let options = of_store.map(|(of, value)| (format!("{name}.{of}"), value.clone()));
        options.chain([(name.to_owned(), self.path.to_string_lossy().into_owned())]).collect()
    }

    /// The same path, read with these options if there are any. They count for stores of other machines.
    #[must_use]
    pub fn with_options(self, options: &Options) -> Self {
        if !self.parts().is_empty() {
            return Self::several(self.parts().iter().map(|part| part.clone().with_options(options)).collect());
        }
        let objects = self.objects().filter(|objects| !options.is_empty() && objects.is_of_machines());
        let other = objects.map(|objects| Objects::at(objects.root(), options.clone()));
        match other.filter(|other| objects.is_none_or(|objects| !objects.is_alike(other))) {
            Some(other) => Self::within(self.path, Arc::new(other)),
            None => self,
        }
    }

    /// Forgets what was listed before the last second, so that a store that is opened again is seen as it is now.
    pub fn refresh(&self) {
        if let Some(store) = &self.store {
            store.refresh();
        }
    }

    /// Forgets all that was listed: other processes wrote for this one.
    pub fn forget_listings(&self) {
        if let Some(objects) = self.objects() {
            objects.forget_listings();
        }
    }
}

impl<P: Into<PathBuf>> From<P> for Location {
    /// A path of this machine.
    fn from(path: P) -> Self {
        Self { path: path.into(), store: None }
    }
}

impl From<&Self> for Location {
    fn from(location: &Self) -> Self {
        location.clone()
    }
}

impl Deref for Location {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for Location {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl PartialEq for Location {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Location {}

impl PartialOrd for Location {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Location {
    fn cmp(&self, other: &Self) -> Ordering {
        let identity = |location: &Self| location.store.as_ref().map(|store| Arc::clone(store.identity()));
        self.path.cmp(&other.path).then_with(|| identity(self).cmp(&identity(other)))
    }
}

impl Hash for Location {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path.hash(state);
    }
}

impl Store for Objects {
    fn list(&self, directory: &Location) -> Result<Vec<Entry>> {
        let entry = |entry: &RemoteEntry| Entry::known(directory.at(entry.path.clone()), entry.clone().into());
        Ok(self.list(directory)?.iter().map(entry).collect())
    }

    fn status(&self, path: &Location) -> Result<Status> {
        Ok(self.status(path)?.into())
    }

    fn open(&self, path: &Location, _: Access) -> Result<FileSource> {
        let status = self.status(path)?;
        if status.len.is_none() {
            return Err(NotAFile::Directory.error(path));
        }
        Ok(FileSource::Remote(RemoteFile::known(self, RemoteEntry { path: path.to_path_buf(), ..status })))
    }

    fn identity(&self) -> &Identity {
        self.options()
    }

    fn objects(&self) -> Option<&Objects> {
        Some(self)
    }

    fn refresh(&self) {
        self.forget_old_listings();
    }
}

/// Directories that only their reader takes apart.
#[derive(Debug)]
struct Several {
    parts: Vec<Location>,
    identity: Identity,
}

impl Several {
    fn none(path: &Location) -> Error {
        Error::io(path, std::io::ErrorKind::NotFound.into())
    }
}

impl Store for Several {
    fn list(&self, directory: &Location) -> Result<Vec<Entry>> {
        Err(Self::none(directory))
    }

    fn status(&self, path: &Location) -> Result<Status> {
        Err(Self::none(path))
    }

    fn open(&self, path: &Location, _: Access) -> Result<FileSource> {
        Err(Self::none(path))
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn main(&self) -> Option<&Objects> {
        self.parts.iter().find_map(|part| part.store.as_ref()?.main())
    }

    fn refresh(&self) {
        self.parts.iter().for_each(Location::refresh);
    }
}

/// The place of the bytes of a file.
#[derive(Clone, Debug)]
pub enum Content {
    /// In a file, as they are.
    Whole(Location),
    /// In a file, in chunks.
    Chunks(Location, StoredFile),
}

impl Content {
    /// The file.
    pub fn path(&self) -> &Location {
        let (Self::Whole(path) | Self::Chunks(path, _)) = self;
        path
    }
}

impl FileSource {
    /// Opens a file for reading by `access`, which counts for local files.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn open(path: &Location, access: Access) -> Result<Self> {
        match &path.store {
            Some(store) => store.open(path, access),
            None => Self::new(open_file(path, false)?, path, false, access),
        }
    }

    /// Opens the file that has these bytes.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn of(content: Content, access: Access) -> Result<Self> {
        match content {
            Content::Whole(path) => Self::open(&path, access),
            Content::Chunks(path, stored) => {
                Ok(Self::Chunked(Box::new(ChunkedFile::new(Self::open(&path, access)?, stored))))
            }
        }
    }
}
