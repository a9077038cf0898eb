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
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// A write or an fsync failed. What the disk holds is unknown: Linux drops the pages of a failed fsync, and a later fsync
    /// succeeds without them.
    #[error("{}: {source}", path.display())]
    WriteFailed {
        /// The file or directory.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// A file holds impossible bytes.
    #[error("{} at byte {offset}: expected {expected}, found {found}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// The value that the format or its neighbours require.
        expected: String,
        /// The content of the file.
        found: String,
    },
    /// The geometry of an index file cannot be inferred from its content.
    #[error("{} ({size} bytes): {count} geometries fit its content", path.display())]
    Geometry {
        /// The file.
        path: PathBuf,
        /// The first of the fits, as (`hash_slots`, `max_entries`).
        fits: Vec<(u32, u32)>,
        /// The number of geometries that fit.
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
    #[error("{} is full: it holds {entries} entries", path.display())]
    IndexFull {
        /// The file.
        path: PathBuf,
        /// Entries that it holds.
        entries: u64,
    },
    /// A broker would refuse the operation with this error.
    #[error("{error}: {text}")]
    Refused {
        /// The name of the class of Kafka's error.
        error: &'static str,
        /// Its number in Kafka's protocol; -1 for an error without one.
        code: i16,
        /// The refused input, and the reason.
        text: String,
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

    /// Returns whether there is no such file or directory.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the value; `None` if its file is missing or damaged.
    ///
    /// # Errors
    /// Others, such as one of the disk or of a request: the file may be there and whole.
    pub fn unless_lost<T>(read: Result<T>) -> Result<Option<T>> {
        match read {
            Err(Self::Corrupt { .. }) => Ok(None),
            Err(error) if error.is_missing() => Ok(None),
            read => read.map(Some),
        }
    }

    /// An error about the bytes of a file.
    pub fn corrupt(path: &Path, offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), offset, expected: expected.into(), found: found.into() }
    }
}

/// Bytes that a storage returned and that cannot be decoded, as a cause of an [`io::Error`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} at byte {offset}: expected {expected}, found {found}", path.display())]
pub struct Undecodable {
    /// The file that is stored.
    pub path: PathBuf,
    /// Byte offset in that file.
    pub offset: u64,
    /// The expected bytes.
    pub expected: String,
    /// The found bytes.
    pub found: String,
}

impl From<Undecodable> for io::Error {
    fn from(cause: Undecodable) -> Self {
        Self::new(io::ErrorKind::InvalidData, cause)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_see_no_passwords() {
        for plain in
            ["http://h:80/a@b", "abfss://container@account.dfs/x", "s3://b/a:b/c@d", "http://[::1]:80/x", "a@b:c"]
        {
            assert_eq!(without_users(plain), plain);
        }
        for (given, shown) in [
            ("http://bob:PW@host/x: no", "http://***@host/x: no"),
            ("'https://TOKEN@host' and s3a://KEY:PW@bucket", "'https://***@host' and s3a://***@bucket"),
            ("s3a://KEY:P/W@bucket/x", "s3a://***@bucket/x"),
            ("s3://KEY:P@W@bucket/x", "s3://***@bucket/x"),
        ] {
            assert_eq!(without_users(given), shown);
        }
    }
}
