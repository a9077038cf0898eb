//! File systems that callers bring: one that lists directories and reads ranges is enough.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use object_store::path::Path as Key;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// A file or directory.
#[derive(Clone, Debug)]
pub struct Described {
    /// Its name in the directory.
    pub name: String,
    /// Length in bytes; `None` for a directory.
    pub len: Option<u64>,
    /// Time of the last change, if it is known.
    pub modified: Option<SystemTime>,
    /// Changes with the content, if it is known.
    pub etag: Option<String>,
}

/// A file system. Its calls may block; they come from several threads. Paths are relative to its root, whose path is empty.
pub trait FileSystem: fmt::Debug + Send + Sync + 'static {
    /// Lists a directory.
    ///
    /// # Errors
    /// `NotFound`; any other.
    fn list(&self, directory: &str) -> io::Result<Vec<Described>>;

    /// Describes what is at a path.
    ///
    /// # Errors
    /// As [`Self::list`].
    fn status(&self, path: &str) -> io::Result<Described>;

    /// Reads a range of a file.
    ///
    /// # Errors
    /// As [`Self::list`].
    fn read(&self, path: &str, range: Range<u64>) -> io::Result<Bytes>;

    /// Runs a call that waits for this file system. If the thread holds a lock that the file system needs in other threads, it is
    /// released during the call.
    fn wait(&self, call: &mut (dyn FnMut() + Send));
}

/// Runs a call that waits for responses, which may be those of a caller's file system.
pub(super) fn waiting<T: Send>(files: Option<&dyn FileSystem>, call: impl FnOnce() -> T + Send) -> T {
    let Some(files) = files else { return call() };
    let (mut call, mut done) = (Some(call), None);
    files.wait(&mut || done = call.take().map(|call| call()));
    done.expect("the call was made")
}

/// A file system as an object store that is only read.
#[derive(Debug)]
pub(super) struct Store(pub(super) Arc<dyn FileSystem>);

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("file system")
    }
}

fn failed(path: &str, error: io::Error) -> Error {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::NotFound => Error::NotFound { path, source: error.into() },
        ErrorKind::PermissionDenied => Error::PermissionDenied { path, source: error.into() },
        _ => Error::Generic { store: "file system", source: error.into() },
    }
}

fn unwritable() -> Error {
    Error::NotSupported { source: "files that are read with filesystem= are not written".into() }
}

fn described(location: Key, found: Described) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: found.modified.unwrap_or(SystemTime::UNIX_EPOCH).into(),
        size: found.len.unwrap_or(0),
        e_tag: found.etag,
        version: None,
    }
}

impl Store {
    /// Calls what may block, on a thread of its own.
    async fn call<T: Send + 'static>(
        &self,
        path: &Key,
        call: impl FnOnce(&dyn FileSystem, &str) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (files, name) = (Arc::clone(&self.0), path.as_ref().to_owned());
        let called = tokio::task::spawn_blocking(move || call(files.as_ref(), &name)).await;
        let called = called.unwrap_or_else(|_| Err(io::Error::other("the call was given up")));
        called.map_err(|error| failed(path.as_ref(), error))
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn get_opts(&self, location: &Key, options: GetOptions) -> Result<GetResult> {
        let asked = options.range.clone().filter(|_| !options.head);
        let (found, range, bytes) = self
            .call(location, move |files, path| {
                let found = files.status(path)?;
                let Some(len) = found.len else { return Err(ErrorKind::NotFound.into()) };
                let range = asked.map_or(Ok(0..len), |range| range.as_range(len)).map_err(io::Error::other)?;
                let bytes = if options.head { Bytes::new() } else { files.read(path, range.clone())? };
                Ok((found, range, bytes))
            })
            .await?;
        let meta = described(location.clone(), found);
        options.check_preconditions(&meta)?;
        let payload = GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed());
        Ok(GetResult { payload, meta, range, attributes: Attributes::default(), extensions: Extensions::default() })
    }

    fn list(&self, _: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        // Only to spare requests.
        stream::iter([Err(Error::NotSupported { source: "one directory at a time".into() })]).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        let directory = prefix.cloned().unwrap_or_default();
        let listed = self.call(&directory, FileSystem::list).await?;
        let (mut objects, mut common_prefixes) = (Vec::new(), Vec::new());
        for found in listed {
            // A name that no path can have is no file of ours.
            let Ok(location) = Key::parse(format!("{directory}/{}", found.name)) else { continue };
            match found.len {
                Some(_) => objects.push(described(location, found)),
                None => common_prefixes.push(location),
            }
        }
        Ok(ListResult { common_prefixes, objects, extensions: Extensions::default() })
    }

    async fn put_opts(&self, _: &Key, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(unwritable())
    }

    async fn put_multipart_opts(&self, _: &Key, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(unwritable())
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Key>>) -> BoxStream<'static, Result<Key>> {
        stream::iter([Err(unwritable())]).boxed()
    }

    async fn copy_opts(&self, _: &Key, _: &Key, _: CopyOptions) -> Result<()> {
        Err(unwritable())
    }
}
