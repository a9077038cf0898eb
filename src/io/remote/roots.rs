//! The stores that paths begin with, such as `s3://bucket`, and the options that lead to them.
//!
//! A path is text, and its options are kept here, for the whole process: credentials must not be in paths, which are in
//! messages, results and the plans of Spark. Each set of options has a root of its own, with a mark that is the same in each
//! process: `s3+1f00ba5e://bucket`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;

use super::process_stores;
use crate::error::{Error, Result};

/// Options by name, sorted; the names are those of the `object_store` crate.
pub type Options = Vec<(String, String)>;

/// The schemes that are read.
pub const SCHEMES: [&str; 11] = ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "hdfs"];

/// Returns whether the store of a path has directories of its own, which may be empty; in others only objects have names.
pub(super) fn has_directories(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("hdfs:") || text.starts_with("hdfs+"))
}

/// A lock would be held for ever in the child of a fork that another thread made meanwhile.
type Roots = LazyLock<ArcSwap<HashMap<String, Arc<Options>>>>;

/// The options of each root that has a mark.
static ROOTS: Roots = LazyLock::new(ArcSwap::default);

/// The options that each root without a mark was last located with.
static LAST: Roots = LazyLock::new(ArcSwap::default);

/// Returns the path that a URL means, with exactly these options; `None`: with those that its root was last located with.
///
/// # Errors
/// `InvalidArgument` for a scheme that is not read, or a URL without host or bucket.
pub fn locate(url: &str, options: Option<&Options>) -> Result<PathBuf> {
    let refused = |what: &str| Error::InvalidArgument(format!("{}: {what}", without_secrets(url)));
    let (scheme, rest) = url.split_once(':').ok_or_else(|| refused("expected a URL"))?;
    let rest = rest.trim_start_matches('/');
    // A path type may have removed a slash, and a path that came from here may have a mark.
    let (scheme, mark) = match scheme.split_once('+') {
        Some((scheme, mark)) => (scheme.to_ascii_lowercase(), Some(mark)),
        None => (scheme.to_ascii_lowercase(), None),
    };
    let own = format!("{scheme}://{}", rest.split('/').next().unwrap_or(rest));
    if process_stores::is_kept(&own) {
        return Ok(PathBuf::from(format!("{scheme}://{rest}")));
    }
    if scheme == process_stores::FILE_SYSTEM {
        return Err(refused(
            "expected a file system of this process; it is not pickled: open it again with filesystem=",
        ));
    }
    if !SCHEMES.contains(&scheme.as_str()) {
        let known = SCHEMES.join(", ");
        let expected = "expected a local path, a file: URL, or a URL of one of";
        return Err(refused(&format!("{expected} {known}; found the scheme {scheme:?}")));
    }
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.is_empty() {
        return Err(refused("expected a bucket, container or host after ://"));
    }
    if key.contains(['?', '#']) && scheme.starts_with("http") {
        return Err(refused("expected a URL without ? and #"));
    }
    let parts = key.split('/').filter(|part| !matches!(*part, "" | "."));
    let mut key = String::new();
    for part in parts {
        if part == ".." || part.contains(|letter: char| letter.is_ascii_control()) {
            return Err(refused("expected a path without .. and control characters"));
        }
        _ = write!(key, "/{part}");
    }
    let options = options.cloned().map(|mut options| {
        options.sort();
        options
    });
    let root = match mark {
        None => root_of(&scheme, authority, options),
        Some(mark) => {
            let root = format!("{scheme}+{mark}://{authority}");
            if let Some(options) = options {
                learn(&marked(&scheme, authority, &options), &Arc::new(options));
            }
            if !ROOTS.load().contains_key(&root) {
                return Err(refused(
                    "expected a URL without a mark, which stands for options that this process does not have",
                ));
            }
            root
        }
    };
    Ok(PathBuf::from(root + &key))
}

/// The root of these options. Without options given it is the one that the bucket had last, so that a file may be opened by
/// the path that something else has shown.
fn root_of(scheme: &str, authority: &str, options: Option<Options>) -> String {
    let plain = format!("{scheme}://{authority}");
    let options = match options {
        Some(options) => Arc::new(options),
        None => LAST.load().get(&plain).cloned().unwrap_or_default(),
    };
    replace(&plain, &options);
    if options.is_empty() {
        return plain;
    }
    let marked = marked(scheme, authority, &options);
    learn(&marked, &options);
    marked
}

/// The root that only these options have.
fn marked(scheme: &str, authority: &str, options: &Options) -> String {
    format!("{scheme}+{:08x}://{authority}", mark(options))
}

/// Keeps the options of a root, unless it has some.
fn learn(root: &str, options: &Arc<Options>) {
    if ROOTS.load().contains_key(root) {
        return;
    }
    ROOTS.rcu(|known| {
        let mut known = HashMap::clone(known);
        known.entry(root.to_owned()).or_insert_with(|| Arc::clone(options));
        known
    });
}

/// Keeps the options that a root was located with now.
fn replace(root: &str, options: &Arc<Options>) {
    if LAST.load().get(root) == Some(options) {
        return;
    }
    LAST.rcu(|known| {
        let mut known = HashMap::clone(known);
        known.insert(root.to_owned(), Arc::clone(options));
        known
    });
}

/// A mark of options that is the same in each process.
pub fn mark(options: &Options) -> u32 {
    let mut text = String::new();
    for (name, value) in options {
        _ = write!(text, "{}:{name}{}:{value}", name.len(), value.len());
    }
    crc32fast::hash(text.as_bytes())
}

/// The root of a path, the URL of its store without a mark, its options, and the key within the store.
pub(super) fn resolve(path: &Path) -> Option<(String, String, Arc<Options>, String)> {
    let text = path.to_str()?;
    let (scheme, rest) = text.split_once("://")?;
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    let root = format!("{scheme}://{authority}");
    let options = ROOTS.load().get(&root).cloned().unwrap_or_default();
    let url = format!("{}://{authority}", scheme.split('+').next().unwrap_or(scheme));
    Some((root, url, options, key.to_owned()))
}

/// Returns the options that a path was located with.
pub fn options(path: &Path) -> Options {
    resolve(path).map(|(_, _, options, _)| options.as_ref().clone()).unwrap_or_default()
}

/// Returns a path as the URL that a user would give: without the mark of its options.
pub fn url(path: &Path) -> Option<String> {
    resolve(path).map(|(_, url, _, key)| if key.is_empty() { url } else { format!("{url}/{key}") })
}

/// A URL for a message: what stands before `@` may be a password, and what stands after `?` a signature.
fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or(url);
    match url.split_once("://").map(|(scheme, rest)| (scheme, rest.split_once(':').zip(rest.split_once('@')))) {
        Some((scheme, Some(((user, _), (before, after))))) if user.len() < before.len() => {
            format!("{scheme}://***@{after}")
        }
        _ => url.to_owned(),
    }
}
