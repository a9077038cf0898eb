//! The stores that paths begin with, such as `s3://bucket`, and the options that lead to them.
//!
//! A path is text, and its options are kept here, for the whole process: credentials must not be in paths, which are in
//! messages, results and the plans of Spark. Each set of options has its own root with a random mark: `s3+1f00ba5e://bucket`.
//! Another process has other marks, so pickled objects carry the options.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;

use super::process_stores;
use crate::error::{Error, Result, without_users};

/// Options by name, sorted; the names are those of the `object_store` crate.
pub type Options = Vec<(String, String)>;

/// The schemes that are read.
pub const SCHEMES: [&str; 11] = ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "hdfs"];

/// Returns whether the store of a path has directories of its own, which may be empty; in others only objects have names.
pub(super) fn has_directories(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("hdfs:") || text.starts_with("hdfs+"))
}

/// Returns whether the store of a path has only objects, so that no directory can be empty.
pub(super) fn has_objects_only(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("s3") || text.starts_with("gs"))
}

/// A lock would be held for ever in the child of a fork that another thread made meanwhile.
type Roots = LazyLock<ArcSwap<HashMap<String, Arc<Options>>>>;

/// The options of each root that has a mark.
static ROOTS: Roots = LazyLock::new(ArcSwap::default);

/// Returns the path of a URL with exactly these options. `None`: the options of the mark if the path has one, else no options.
///
/// # Errors
/// `InvalidArgument` for an unsupported scheme, a URL without a host or bucket, and a URL with a user name or a password.
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
    if has_user(&scheme, authority) {
        return Err(refused(if scheme.starts_with("http") {
            "expected a URL without user name and password: give them as the storage options username and password"
        } else {
            "expected a URL without user name and password: give credentials as storage options"
        }));
    }
    let root = match (mark, options.filter(|options| !options.is_empty())) {
        (_, Some(options)) => root_of(&scheme, authority, options.clone()),
        (None, None) => format!("{scheme}://{authority}"),
        (Some(mark), None) => {
            let root = format!("{scheme}+{mark}://{authority}");
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

/// Returns whether a user name or a password precedes the host or bucket. Azure's `container@account` has neither.
fn has_user(scheme: &str, authority: &str) -> bool {
    let port = authority.rsplit(']').next().and_then(|host| host.split_once(':')).map(|(_, port)| port);
    let is_port = port.is_none_or(|port| port.bytes().all(|digit| digit.is_ascii_digit()));
    let is_azure = scheme.starts_with("abfs") || scheme.starts_with("az") || scheme == "adl";
    !is_port || authority.contains('@') && !is_azure
}

/// The root that only these options have.
fn root_of(scheme: &str, authority: &str, mut options: Options) -> String {
    options.sort();
    let options = Arc::new(options);
    let begin = format!("{scheme}+");
    let end = format!("://{authority}");
    let of_options = |known: &HashMap<String, Arc<Options>>| {
        let is_same = |root: &&String| {
            root.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(&end)).is_some_and(|mark| mark.len() == MARK)
        };
        known.iter().find(|(root, of)| **of == options && is_same(root)).map(|(root, _)| root.clone())
    };
    if let Some(root) = of_options(&ROOTS.load()) {
        return root;
    }
    let new = loop {
        let new = format!("{begin}{}{end}", new_mark());
        if !ROOTS.load().contains_key(&new) {
            break new;
        }
    };
    ROOTS.rcu(|known| {
        let mut known = HashMap::clone(known);
        // Another thread may have added it meanwhile.
        if of_options(&known).is_none() {
            known.insert(new.clone(), Arc::clone(&options));
        }
        known
    });
    of_options(&ROOTS.load()).unwrap_or(new)
}

/// Number of letters in a mark.
const MARK: usize = 8;

/// Returns a random mark that other processes are very unlikely to have. A path of another process without options is refused.
pub fn new_mark() -> String {
    let random = RandomState::new().hash_one(std::process::id());
    format!("{:08x}", random & u64::from(u32::MAX))
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

/// Returns a URL for a message. Text before `@`, or a port that is not a number, may be a password; text after `?` a signature.
pub fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    // Python's or Rust's path type may have removed a slash.
    let whole = format!("{scheme}://{}", rest.trim_start_matches('/'));
    let masked = without_users(&whole);
    let authority = masked.split("://").nth(1).and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if has_user("", authority) && !authority.contains('@') {
        return format!("{scheme}://***");
    }
    let shown = if masked == whole { url } else { &masked };
    shown.split(['?', '#']).next().unwrap_or(shown).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_in_a_message_has_no_secret() {
        for plain in ["s3:/bucket/x", "s3://b/../x", "hdfs://host:8020/a@b", "abfss://c@a.dfs/x", "http://[::1]:80/x"] {
            assert_eq!(without_secrets(plain), plain);
        }
        for (given, shown) in [
            ("s3a:/KEY:PW@bucket/x", "s3a://***@bucket/x"),
            ("s3a://KEY:P?W@bucket/x", "s3a://***@bucket/x"),
            ("s3a://KEY:P/W@bucket/x", "s3a://***@bucket/x"),
            ("s3a://KEY:PW/x", "s3a://***"),
            ("http://TOKEN@host/x?signature", "http://***@host/x"),
        ] {
            assert_eq!(without_secrets(given), shown);
        }
    }
}
