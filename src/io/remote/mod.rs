//! Stores in object stores, on HTTP servers and in HDFS.
//!
//! A remote file has a path like a local one, which begins with its URL: `s3://bucket/store/commitlog/00000000000000000000`.
//! Names are joined to it as they are, so nothing in it is percent-encoded: `%RETRY%group` is the name of a directory. The code
//! above calls [`super::storage`] and [`super::FileSource`] with a [`Location`] of either kind.
//!
//! - [`objects`]: a store as a value, with the options that lead to it
//! - [`url`]: URLs of stores
//! - `object`: the descriptions of files in a store
//! - `client`: the runtime of the process, the sessions of stores in it, and their requests
//! - `failure`: why requests fail, and how long they may take
//! - `machines`: stores on other machines; `http`: their HTTP clients; `no_machines`: a build without them
//! - `blocks`: what was read, and what is read ahead
//! - `file`: an open file
//! - [`file_system`]: file systems that callers bring
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
#[cfg(not(feature = "remote"))]
mod no_machines;
mod object;
pub mod objects;
pub mod upload;
pub mod url;

use std::path::PathBuf;

#[cfg(not(feature = "remote"))]
use no_machines as machines;

use super::location::Location;
use super::source::ReadAt as _;
use super::{Access, FileSource};
#[cfg(feature = "python")]
pub(crate) use failure::is_answer;
pub use file::RemoteFile;
pub use object::RemoteEntry;
pub use objects::Objects;
pub use url::Options;

/// Begins to list several directories at the same time, so that [`super::storage::list`] and [`super::storage::status`] need no
/// request for them for the next seconds. Local paths are left out; an error is left to these.
pub fn expect_lists<'a>(directories: impl IntoIterator<Item = &'a Location>) {
    let mut lists: Vec<(&Objects, Vec<PathBuf>)> = Vec::new();
    for directory in directories {
        let Some(store) = directory.objects() else { continue };
        match lists.iter_mut().find(|(of, _)| of.is_same(store)) {
            Some((_, paths)) => paths.push(directory.to_path_buf()),
            None => lists.push((store, vec![directory.to_path_buf()])),
        }
    }
    for (store, paths) in lists {
        store.expect_lists(paths);
    }
}

/// Begins to read a whole object of at most `most` bytes, so that the next [`super::storage::read_whole`] of it needs no request. A
/// local path is left out; an error is left to that call.
pub fn expect_whole(path: &Location, most: u64) {
    if let Some(store) = path.objects() {
        store.expect_whole(path, most);
    }
}

/// Takes note that the heads of files will be read; the first read requests all of them. Local paths are left out.
pub fn expect_heads<'a>(files: impl IntoIterator<Item = &'a Location>) {
    for file in remote_files(files) {
        file.will_need(0, HEAD);
    }
}

/// Takes note that the last bytes of files will be read; the first read requests all of them. Local paths are left out.
pub fn expect_ends<'a>(files: impl IntoIterator<Item = &'a Location>) {
    for file in remote_files(files) {
        file.will_need(file.len().saturating_sub(HEAD), HEAD);
    }
}

fn remote_files<'a>(files: impl IntoIterator<Item = &'a Location>) -> impl Iterator<Item = FileSource> {
    let files = files.into_iter().filter(|file| file.objects().is_some());
    files.filter_map(|file| FileSource::open(file, Access::Pread).ok())
}

/// Bytes of a head, or an end.
const HEAD: u64 = 64;
