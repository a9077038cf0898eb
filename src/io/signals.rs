//! Handlers of signals, such as Ctrl-C, that run while a call waits for a remote store. The layers above provide the functions.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// The interval at which a wait checks for signals.
pub const LOOK: Duration = Duration::from_millis(100);

/// The functions that check for signals.
#[derive(Clone, Copy, Debug)]
pub struct Signals {
    /// Runs the handlers of pending signals. Returns an error if a handler ends the wait of this thread.
    pub look: fn() -> io::Result<()>,
    /// Returns that error again until it is raised: a caller may have treated the first one as a missing file.
    pub ended: fn() -> io::Result<()>,
}

static SIGNALS: OnceLock<Signals> = OnceLock::new();

/// Sets the functions that check for signals, once per process.
pub fn set(signals: Signals) {
    _ = SIGNALS.set(signals);
}

/// Runs the handlers of pending signals.
///
/// # Errors
/// A handler ends the wait of this thread.
pub fn look() -> io::Result<()> {
    SIGNALS.get().map_or(Ok(()), |signals| (signals.look)())
}

/// Returns the error of the last [`look`] until it is raised.
///
/// # Errors
/// As [`look`].
pub fn ended() -> io::Result<()> {
    SIGNALS.get().map_or(Ok(()), |signals| (signals.ended)())
}
