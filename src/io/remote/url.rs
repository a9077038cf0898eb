//! URLs of stores on other machines, such as `s3://bucket/key`, and their options.

use std::fmt::Write as _;

use crate::error::{Error, Result, without_users};

/// Options by name, sorted; the names are those of the `object_store` crate.
pub type Options = Vec<(String, String)>;

/// The schemes that are read.
pub const SCHEMES: [&str; 11] = ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "hdfs"];

/// The beginning of paths in stores of one process.
const OWN: [(&str, &str); 3] = [
    ("filesystem", "expected a file system of this process; it is not pickled: open it again with filesystem="),
    ("memory", "expected bytes in memory, which are gone with their handle; they are not pickled"),
    ("tiered", "expected a directory that this process opened with tiered="),
];

/// Returns the store that a URL begins with, and the whole path.
///
/// # Errors
/// `InvalidArgument` for an unsupported scheme, a URL without a host or bucket, and a URL with a user name or a password.
pub fn parse(url: &str) -> Result<(String, String)> {
    let refused = |what: &str| Error::InvalidArgument(format!("{}: {what}", without_secrets(url)));
    let (scheme, rest) = url.split_once(':').ok_or_else(|| refused("expected a URL"))?;
    let rest = rest.trim_start_matches('/');
    // A path type may have removed a slash.
    let scheme = scheme.to_ascii_lowercase();
    if let Some((_, expected)) = OWN.iter().find(|(own, _)| *own == scheme) {
        return Err(refused(expected));
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
    let root = format!("{scheme}://{authority}");
    let path = format!("{root}{key}");
    Ok((root, path))
}

/// Returns whether a user name or a password precedes the host or bucket. Azure's `container@account` has neither.
fn has_user(scheme: &str, authority: &str) -> bool {
    let port = authority.rsplit(']').next().and_then(|host| host.split_once(':')).map(|(_, port)| port);
    let is_port = port.is_none_or(|port| port.bytes().all(|digit| digit.is_ascii_digit()));
    let is_azure = scheme.starts_with("abfs") || scheme.starts_with("az") || scheme == "adl";
    !is_port || authority.contains('@') && !is_azure
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
