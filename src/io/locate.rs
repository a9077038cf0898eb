//! Paths and URLs from users. This is the only parser of both.
//!
//! A text is a URL if it begins with a scheme and a slash: `s3a://bucket/x`, `dbfs:/x`, and also `s3a:/bucket/x`, which is what
//! remains of the first after a path type removed a slash. A scheme has at least two letters: `C:/x` is a path. `dbfs:/x` is the
//! directory at which such files are mounted, `/dbfs/x`. Other schemes are read ([`super::remote`]) and not written. A path with
//! `://` in it is refused, because writing to it would create local directories with the names of a bucket.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::location::Location;
use super::remote::objects::Objects;
use super::remote::url::{self, Options};
use crate::error::{Error, Result};

/// Returns where a path or URL is. Files at URLs are read with these options.
///
/// # Errors
/// [`Error::InvalidArgument`] for an unknown scheme, and for a URL that is not valid.
pub fn locate(given: &Path, options: &[(String, String)]) -> Result<Location> {
    let text = given.to_string_lossy();
    match scheme(&text) {
        Some((scheme, _)) if !is_local(scheme) => {
            let (root, path) = url::parse(&text)?;
            Ok(Location::within(path.into(), Arc::new(Objects::at(&root, options.to_owned()))))
        }
        _ => local_path(given).map(Location::from),
    }
}

fn is_local(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("file") || scheme.eq_ignore_ascii_case("dbfs")
}

/// Returns the local path that a path or a `file:` URL means.
///
/// # Errors
///
/// [`Error::InvalidArgument`] for another scheme, another host, and a URL that is not valid.
pub fn local_path(given: &Path) -> Result<PathBuf> {
    let text = given.to_string_lossy();
    let Some((scheme, rest)) = scheme(&text) else {
        if text.contains("://") {
            return Err(refused(&text, "expected a local path or a file: URL, found a path with :// in it"));
        }
        return Ok(given.to_owned());
    };
    if !is_local(scheme) {
        let found = format!(
            "expected a local path or a file: URL, found the scheme {scheme:?}, which this call does not take (docs/guides/bucket.md)"
        );
        return Err(refused(&text, &found));
    }
    let path = match rest.strip_prefix("//") {
        // file:/path
        None => rest,
        Some(authority) => {
            let (host, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
            if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
                let found = format!("expected file:///path or file://localhost/path, found the host {host:?}");
                return Err(refused(&text, &found));
            }
            path
        }
    };
    if !path.starts_with('/') {
        return Err(refused(&text, "expected file: and an absolute path"));
    }
    if path.contains(['?', '#', char::REPLACEMENT_CHARACTER]) {
        return Err(refused(
            &text,
            "expected a URL without ? and # and in UTF-8; in a file name ? is %3F and # is %23",
        ));
    }
    let bytes = decoded(path.as_bytes()).ok_or_else(|| {
        refused(&text, "expected two hexadecimal digits after each %, and no %00; a % in a file name is %25")
    })?;
    let path = os_string(bytes).map(PathBuf::from).ok_or_else(|| refused(&text, "expected UTF-8 after decoding %"))?;
    let is_mounted = scheme.eq_ignore_ascii_case("dbfs");
    Ok(if is_mounted { Path::new("/dbfs").join(path.strip_prefix("/").unwrap_or(&path)) } else { path })
}

/// Returns where a path or URL is that a user gives together with another one; without options, those of that store count.
///
/// # Errors
/// As [`locate`].
pub fn beside(root: &Location, given: &Path, options: &Options) -> Result<Location> {
    let Some(main) = root.store().and_then(|store| store.main()) else { return locate(given, options) };
    let located = locate(given, if options.is_empty() { main.options() } else { options })?;
    // This store uses the listings and writes of that one.
    let is_same = located.objects().is_some_and(|other| other.is_alike(main));
    Ok(if is_same { Location::within(located.to_path_buf(), Arc::new(main.clone())) } else { located })
}

/// Returns where several paths or URLs with commas between are.
///
/// # Errors
/// As [`locate`], for each of them.
pub fn locate_all(given: &Path, options: &[(String, String)]) -> Result<Location> {
    let Some(text) = given.to_str().filter(|text| text.contains(',')) else { return locate(given, options) };
    let parts = text.split(',').map(|part| locate(Path::new(part.trim()), options));
    parts.collect::<Result<_>>().map(Location::several)
}

fn refused(text: &str, found: &str) -> Error {
    let is_remote = scheme(text).is_some_and(|(scheme, _)| !is_local(scheme));
    let shown = if is_remote { url::without_secrets(text) } else { text.to_owned() };
    Error::InvalidArgument(format!("{shown}: {found}"))
}

/// The scheme of a URL, and what follows its colon, which begins with a slash.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut letters = scheme.chars();
    let is_scheme = scheme.len() > 1
        && letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'));
    // `orders:1` is a file name. `file:1` is a URL that someone got wrong.
    (is_scheme && (rest.starts_with('/') || scheme.eq_ignore_ascii_case("file"))).then_some((scheme, rest))
}

/// Percent-decoded bytes; `None` if an escape is incomplete, or stands for a zero byte.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, next) = match (first, after) {
            (b'%', [high, low, next @ ..]) => (hex(*high)? << 4 | hex(*low)?, next),
            (b'%', _) => return None,
            _ => (first, after),
        };
        if byte == 0 {
            return None;
        }
        bytes.push(byte);
        rest = next;
    }
    Some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "only a path of Unix holds any bytes")]
fn os_string(bytes: Vec<u8>) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt as _;
    Some(OsString::from_vec(bytes))
}

#[cfg(not(unix))]
fn os_string(bytes: Vec<u8>) -> Option<OsString> {
    String::from_utf8(bytes).ok().map(OsString::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(given: &str) -> String {
        local_path(Path::new(given)).unwrap().to_str().unwrap().to_owned()
    }

    fn refusal(given: &str) -> String {
        local_path(Path::new(given)).unwrap_err().to_string()
    }

    #[test]
    fn paths_stay_as_they_are() {
        for path in
            ["", "store", "./store", "/data/a%20b", "../x", "orders:1", "C:/x", "/s3a:/x", "x?y#z", "1a:/x", ":/"]
        {
            assert_eq!(local(path), path);
        }
    }

    #[test]
    fn every_form_of_a_file_url_is_its_path() {
        for url in ["file:/a/b", "file:///a/b", "FILE:///a/b", "File:/a/b"] {
            assert_eq!(local(url), "/a/b", "{url}");
        }
        assert_eq!(local("file://localhost/a/b"), "/a/b");
        assert_eq!(local("File://LOCALHOST/a/b"), "/a/b");
        assert_eq!(local("dbfs:/a/b"), "/dbfs/a/b");
        assert_eq!(local("file:/a%20b/%C3%A9%25/%2c"), "/a b/\u{e9}%/,");
    }

    #[cfg(unix)]
    #[test]
    fn an_escape_may_stand_for_any_byte_of_a_file_name() {
        use std::os::unix::ffi::OsStrExt as _;
        let path = local_path(Path::new("file:///caf%E9")).unwrap();
        assert_eq!(path.as_os_str().as_bytes(), b"/caf\xe9");
    }

    #[test]
    fn other_schemes_are_refused_with_their_names() {
        for url in ["s3://b/x", "s3a://b/x", "S3A://b", "hdfs://host:8020/x", "s3a:/b/x", "abfss://c@a/x", "http://h"] {
            let text = refusal(url);
            assert!(
                text.starts_with(&format!("{url}: expected a local path or a file: URL, found the scheme")),
                "{text}"
            );
        }
        assert!(refusal("./s3a://b/x").contains("found a path with ://"));
        assert!(refusal("/data/gs://x").contains("found a path with ://"));
    }

    #[test]
    fn a_file_url_that_is_not_valid_is_refused() {
        assert!(refusal("file://host/x").contains("found the host \"host\""));
        for url in ["file:", "file:x", "file://", "file://localhost", "file:///x?y", "file:/x#y"] {
            assert!(refusal(url).starts_with(&format!("{url}: expected")), "{url}");
        }
        for url in ["file:/%", "file:/%4", "file:/%zz", "file:/a%00b", "file:/%+1"] {
            assert!(refusal(url).contains("hexadecimal"), "{url}");
        }
    }

    #[test]
    fn each_of_several_paths_is_parsed() {
        let several = |given: &str| locate_all(Path::new(given), &[]).map(|path| path.to_str().unwrap().to_owned());
        assert_eq!(several("/a,file:/b%20c, d").unwrap(), "/a,/b c,d");
        assert_eq!(several("file:///a").unwrap(), "/a");
        assert_eq!(several("/a,s3://b/c").unwrap(), "/a,s3://b/c");
        let parts = locate_all(Path::new("/a,s3://b/c"), &[]).unwrap();
        assert_eq!(parts.parts().iter().map(Location::is_remote).collect::<Vec<_>>(), [false, true]);
        assert!(several("/a,x9://b").unwrap_err().to_string().starts_with("x9://b: "));
    }
}
