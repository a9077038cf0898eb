//! Failures of requests, and their deadlines.

use std::fmt;
use std::io;
use std::time::Duration;

use super::url::Options;
use crate::error::without_users;

/// Time after which a request is not repeated, unless the option [`RETRY_TIMEOUT`] sets another.
const DEADLINE: Duration = Duration::from_secs(60);
/// The option of ours; all others are those of the `object_store` crate.
pub(super) const RETRY_TIMEOUT: &str = "retry_timeout";
/// A request ends after this many deadlines even if bytes still come.
pub(super) const MOST_DEADLINES: u32 = 4;

/// The failure of a request, for each thread that waits for it.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) kind: io::ErrorKind,
    pub(super) text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        Self::new(failure.kind, failure)
    }
}

/// Returns whether an error is the answer of a store, which has no numbers of errors.
#[cfg(feature = "python")]
pub(crate) fn is_answer(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Failure>)
}

impl Failure {
    pub(super) fn other(text: impl Into<String>) -> Self {
        Self { kind: io::ErrorKind::Other, text: text.into() }
    }

    pub(super) fn input(text: impl Into<String>) -> Self {
        Self { kind: io::ErrorKind::InvalidInput, text: text.into() }
    }

    /// Without the values of options, which may be credentials, and without queries, which may be signatures.
    pub(super) fn of(error: &object_store::Error, options: &Options) -> Self {
        use object_store::Error as E;
        let kind = match error {
            E::NotFound { .. } => io::ErrorKind::NotFound,
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
            E::InvalidPath { .. } => io::ErrorKind::InvalidInput,
            E::AlreadyExists { .. } | E::Precondition { .. } => io::ErrorKind::AlreadyExists,
            // Otherwise a missing store would be read as an empty one.
            other if NO_BUCKET.iter().any(|code| other.to_string().contains(code)) => io::ErrorKind::Other,
            // The crate has no error kind for a rejected listing or a missing path.
            other if other.to_string().contains("status code: 404") => io::ErrorKind::NotFound,
            other if other.to_string().contains("status code: 403") => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        };
        let mut text = match kind {
            io::ErrorKind::NotFound => "no such object".to_owned(),
            _ => with_cause(error),
        };
        if NO_BUCKET.iter().any(|code| text.contains(code)) {
            text = format!("no such bucket: {text}");
        }
        if REDIRECTS.iter().any(|status| text.contains(status)) {
            text += " (a redirect to another server, or of S3, is not followed)";
        }
        if text.contains("169.254.169.254") || text.contains("metadata.google.internal") {
            // The address at which a cloud's machines request their credentials.
            text = format!(
                "no credentials: give them as storage options or in the environment; or skip_signature=true \
                 for what is public ({text})"
            );
        }
        Self { kind, text: hidden(&text, options) }
    }
}

/// Error codes of servers for a missing bucket or container.
const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];
/// Redirects.
const REDIRECTS: [&str; 5] =
    ["status code: 301", "status code: 302", "status code: 303", "status code: 307", "status code: 308"];

/// Returns an error with its first cause, which is often the helpful one: "Connection refused".
fn with_cause(error: &object_store::Error) -> String {
    let text = error.to_string();
    let mut first: &dyn std::error::Error = error;
    while let Some(cause) = first.source() {
        first = cause;
    }
    let cause = first.to_string();
    if text.contains(&cause) { text } else { format!("{text}: {cause}") }
}

/// Returns the deadline of requests: that of the options, such as `30s` or `500ms`.
pub(super) fn deadline(options: &Options) -> Result<Duration, Failure> {
    let Some((_, text)) = options.iter().find(|(name, _)| name.eq_ignore_ascii_case(RETRY_TIMEOUT)) else {
        return Ok(DEADLINE);
    };
    let units = [("ms", 1), ("s", 1000), ("m", 60_000)];
    let number = |(unit, ms): (&str, u64)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(ms);
    let found = units.into_iter().find_map(number).filter(|ms| *ms > 0);
    found.map(Duration::from_millis).ok_or_else(|| {
        Failure::input(format!("storage option {RETRY_TIMEOUT:?}: expected a time such as 30s, 500ms or 2m"))
    })
}

/// Waits for an answer, but not for ever.
pub(super) async fn within<T>(
    options: &Options,
    answer: impl Future<Output = object_store::Result<T>>,
) -> Result<object_store::Result<T>, Failure> {
    let most = deadline(options)? * MOST_DEADLINES;
    tokio::time::timeout(most, answer).await.map_err(|_| late(most))
}

pub(super) fn late(most: Duration) -> Failure {
    Failure { kind: io::ErrorKind::TimedOut, text: format!("expected the whole answer within {} s", most.as_secs()) }
}

/// A shorter value is not a secret worth the name, and may be part of any word.
const SHORTEST_SECRET: usize = 6;

/// Removes option values, and the users and queries of URLs, from a text.
pub(super) fn hidden(text: &str, options: &Options) -> String {
    let mut text = text.to_owned();
    for (_, value) in options.iter().filter(|(name, value)| is_secret(name) && value.len() >= SHORTEST_SECRET) {
        text = text.replace(value.as_str(), "***");
    }
    let text = without_users(&text);
    let words: Vec<&str> = text
        .split(' ')
        .map(|word| if word.contains("://") { word.split('?').next().unwrap_or(word) } else { word })
        .collect();
    words.join(" ")
}

/// Returns whether the value of an option is a credential.
fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 8] = ["secret", "key", "token", "password", "sas", "credential", "signature", "proxy"];
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}
