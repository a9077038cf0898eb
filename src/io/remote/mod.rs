//! Stores in object stores, on HTTP servers and in HDFS.
//!
//! A remote file has a path like a local one, which begins with its URL: `s3://bucket/store/commitlog/00000000000000000000`.
//! Names are joined to it as they are, so nothing in it is percent-encoded: `%RETRY%group` is the name of a directory. The code
//! above asks [`super::storage`] and [`super::FileSource`], and need not know which kind a path is.
//!
//! - [`roots`]: which stores there are, with the options that lead to them
//! - `object`: what a store says about files
//! - `client`: the runtime of the process, and its requests
//! - `failure`: why requests fail, and how long they may take
//! - `machines`: stores on other machines; `http`: their HTTP clients; `no_machines`: a build without them
//! - `blocks`: what was read, and what is read ahead
//! - `file`: an open file
//! - [`memory`]: files that are bytes in memory
//! - [`file_system`]: file systems that callers bring
//! - `process_stores`: both, by their roots
//! - [`upload`]: objects that jobs write

mod blocks;
mod client;
mod failure;
mod file;
pub mod file_system;
#[cfg(feature = "remote")]
mod http;
#[cfg(feature = "remote")]
mod machines;
pub mod memory;
#[cfg(not(feature = "remote"))]
mod no_machines;
mod object;
mod process_stores;
pub mod roots;
pub mod upload;

use std::path::{Path, PathBuf};

use bytes::Bytes;
#[cfg(not(feature = "remote"))]
use no_machines as machines;

pub use super::regular_file::is_remote;
use super::source::ReadAt as _;
use crate::error::{Error, Result};
pub use file::RemoteFile;
pub use object::RemoteEntry;

/// Forgets what was listed before the last second, so that a store that is opened again is seen as it is now.
pub fn refresh() {
    if let Some(client) = client::Client::existing() {
        client.refresh();
    }
}

/// Forgets all that was listed: other processes wrote for this one.
pub fn forget_listings() {
    if let Some(client) = client::Client::existing() {
        client.forget_listings();
    }
}

/// Lists a directory, sorted by name. What was listed in the last seconds is not asked again.
///
/// # Errors
/// `NotFound` if there is nothing below the path; errors of the store, with the path.
pub fn list(directory: &Path) -> Result<Vec<RemoteEntry>> {
    let listed = client::client().and_then(|client| client.list(directory)).map_err(|e| Error::io(directory, e))?;
    Ok(listed.as_ref().clone())
}

/// Lists a directory with all below it, so that [`list`] needs no request for the next seconds. An error is left to [`list`].
pub fn expect_tree(directory: &Path) {
    _ = client::client().and_then(|client| client.list_tree(directory));
}

/// Begins to list several directories at the same time, so that [`list`] and [`status`] need no request for them for the next seconds.
/// Local paths are left out; an error is left to [`list`].
pub fn expect_lists(directories: &[PathBuf]) {
    let remote: Vec<PathBuf> = directories.iter().filter(|path| is_remote(path)).cloned().collect();
    if let (false, Ok(client)) = (remote.is_empty(), client::client()) {
        client.begin_lists(remote);
    }
}

/// Reads a whole object of at most `most` bytes with one request, and lists directories at the same time as [`expect_lists`] does.
///
/// # Errors
/// `NotFound`, and errors of the store, with the path.
pub fn read_whole(path: &Path, most: u64, directories: &[PathBuf]) -> Result<(RemoteEntry, Bytes)> {
    client::client().and_then(|client| client.read_whole(path, most, directories)).map_err(|e| Error::io(path, e))
}

/// Begins to read a whole object of at most `most` bytes, so that the next [`read_whole`] of it needs no request. A local path is left
/// out; an error is left to [`read_whole`].
pub fn expect_whole(path: &Path, most: u64) {
    if let (true, Ok(client)) = (is_remote(path), client::client()) {
        client.begin_whole(path.to_owned(), most);
    }
}

/// Takes note that the heads of files will be read; the first read asks for all of them. Local paths are left out.
pub fn expect_heads(files: &[PathBuf]) {
    for file in files.iter().filter(|path| is_remote(path)).filter_map(|path| RemoteFile::open(path).ok()) {
        file.will_need(0, HEAD);
    }
}

/// Takes note that the last bytes of files will be read; the first read asks for all of them. Local paths are left out.
pub fn expect_ends(files: &[PathBuf]) {
    for file in files.iter().filter(|path| is_remote(path)).filter_map(|path| RemoteFile::open(path).ok()) {
        file.will_need(file.len().saturating_sub(HEAD), HEAD);
    }
}

/// Bytes of a head, or an end.
const HEAD: u64 = 64;

/// Describes what is at a path.
///
/// # Errors
/// `NotFound`, and errors of the store, with the path.
pub fn status(path: &Path) -> Result<RemoteEntry> {
    client::client().and_then(|client| client.status(path)).map_err(|e| Error::io(path, e))
}
