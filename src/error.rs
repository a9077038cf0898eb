//! The error type of the crate. Variants carry data; the text is formatted when it is shown.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

/// Result of all fallible functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error. `Corrupt` and `Geometry` are about a file, `InvalidArgument` about the caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", shown(path))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// A write or an fsync failed. What the disk holds is unknown: Linux drops the pages of a failed fsync, and a later fsync
    /// succeeds without them.
    #[error("{}: {source}", shown(path))]
    WriteFailed {
        /// The file or directory.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// A file holds impossible bytes.
    #[error("{} at byte {offset}: expected {expected}, found {found}", shown(path))]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// What the format or its neighbours ask for.
        expected: String,
        /// What the file holds.
        found: String,
    },
    /// The geometry of an index file cannot be inferred from its content.
    #[error("{} ({size} bytes): {count} geometries fit its content", shown(path))]
    Geometry {
        /// The file.
        path: PathBuf,
        /// The first of the fits, as (`hash_slots`, `max_entries`).
        fits: Vec<(u32, u32)>,
        /// How many geometries fit.
        count: usize,
        /// Length of the file in bytes.
        size: u64,
    },
    /// A running broker, or another writer, holds the lock of the store.
    #[error("{} is held by {}", path.display(), if *pid == 0 { "another process".to_owned() } else { format!("process {pid}") })]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it; 0 if the system does not report it.
        pid: u32,
    },
    /// An index cannot hold another entry.
    #[error("{} is full: it holds {entries} entries", shown(path))]
    IndexFull {
        /// The file.
        path: PathBuf,
        /// Entries that it holds.
        entries: u64,
    },
    /// An argument of the caller is invalid.
    #[error("{0}")]
    InvalidArgument(String),
}

impl Error {
    /// An I/O error with its path; [`Undecodable`] is about the bytes of its own file.
    pub fn io(path: &Path, source: io::Error) -> Self {
        match source.downcast::<Undecodable>() {
            Ok(Undecodable { path, offset, expected, found }) => Self::Corrupt { path, offset, expected, found },
            Err(source) => Self::Io { path: path.to_owned(), source },
        }
    }

    /// A write or an fsync that failed, with its path.
    pub fn write_failed(path: &Path, source: io::Error) -> Self {
        Self::WriteFailed { path: path.to_owned(), source }
    }

    /// An error about the bytes of a file.
    pub fn corrupt(path: &Path, offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), offset, expected: expected.into(), found: found.into() }
    }
}

/// Bytes that a storage returned and that cannot be decoded, as a cause of an [`io::Error`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} at byte {offset}: expected {expected}, found {found}", shown(path))]
pub struct Undecodable {
    /// The file that is stored.
    pub path: PathBuf,
    /// Byte offset in that file.
    pub offset: u64,
    /// What its bytes should be.
    pub expected: String,
    /// What they are.
    pub found: String,
}

impl From<Undecodable> for io::Error {
    fn from(cause: Undecodable) -> Self {
        Self::new(io::ErrorKind::InvalidData, cause)
    }
}

/// A path for users: without the mark of its options.
pub(crate) fn shown(path: &Path) -> String {
    unmarked(&path.display().to_string()).into_owned()
}

/// Returns a text for users, without the marks of URLs in it: a path of a remote store tells with what options it is read, as in
/// `s3+1f00ba5e://bucket`. Passwords in URLs are masked.
pub fn unmarked(text: &str) -> Cow<'_, str> {
    let is_mark =
        |mark: &str| mark.strip_prefix('+').is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let mut shown = Cow::Borrowed(text);
    let mut from = 0;
    while let Some(end) = shown.get(from..).and_then(|rest| rest.find("://")).map(|at| from + at) {
        from = end + 3;
        if let Some(begin) = end.checked_sub(MARK_LEN).filter(|begin| shown.get(*begin..end).is_some_and(is_mark)) {
            shown.to_mut().replace_range(begin..end, "");
            from -= MARK_LEN;
        }
    }
    match without_users(&shown) {
        Cow::Borrowed(_) => shown,
        Cow::Owned(masked) => Cow::Owned(masked),
    }
}

/// Returns the text with `***` instead of user names and passwords in URLs. A password may contain slashes, as S3 keys do.
pub fn without_users(text: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    let mut from = 0;
    while let Some(begin) = shown.get(from..).and_then(|rest| rest.find("://")).map(|at| from + at + 3) {
        from = begin;
        let is_http = shown.get(..begin).is_some_and(|head| head.ends_with("http://") || head.ends_with("https://"));
        let rest = shown.get(begin..).unwrap_or_default();
        let url = rest.split(|letter: char| letter.is_whitespace() || "\"'<>".contains(letter)).next().unwrap_or(rest);
        let authority = url.split('/').next().unwrap_or(url);
        let end = match (authority.rfind('@'), authority.split_once(':')) {
            // Azure's `container@account` has no user name.
            (Some(end), colon) if is_http || colon.is_some_and(|(user, _)| user.len() < end) => Some(end),
            (None, Some((_, port))) if !port.bytes().all(|digit| digit.is_ascii_digit()) => url.rfind('@'),
            _ => None,
        };
        if let Some(end) = end {
            shown.to_mut().replace_range(begin..begin + end, "***");
        }
    }
    shown
}

/// Letters of a mark with its plus sign.
const MARK_LEN: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_see_no_marks() {
        for plain in ["", "a", "://", "s3://b/c", "a+b://c", "x+1234567://b", "/data/s3+1f00ba5e"] {
            assert_eq!(unmarked(plain), plain);
        }
        assert_eq!(unmarked("s3+1f00ba5e://b/c"), "s3://b/c");
        assert_eq!(unmarked("at s3+1f00ba5e://b: not az+00000000://c/d"), "at s3://b: not az://c/d");
    }

    #[test]
    fn users_see_no_passwords() {
        for plain in
            ["http://h:80/a@b", "abfss://container@account.dfs/x", "s3://b/a:b/c@d", "http://[::1]:80/x", "a@b:c"]
        {
            assert_eq!(unmarked(plain), plain);
        }
        for (given, shown) in [
            ("http://bob:PW@host/x: no", "http://***@host/x: no"),
            ("'https://TOKEN@host' and s3a://KEY:PW@bucket", "'https://***@host' and s3a://***@bucket"),
            ("s3a://KEY:P/W@bucket/x", "s3a://***@bucket/x"),
            ("s3+1f00ba5e://KEY:P@W@bucket/x", "s3://***@bucket/x"),
        ] {
            assert_eq!(unmarked(given), shown);
        }
    }
}
