//! Signals that must not wait for a store of another machine, such as Ctrl-C. What runs their handlers is known to the layers above.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// A wait looks for signals after this time, and again after each such time.
pub const LOOK: Duration = Duration::from_millis(100);

/// What is asked about signals.
#[derive(Clone, Copy, Debug)]
pub struct Signals {
    /// Runs the handlers of signals that came; an error if one of them ends what this thread waits for.
    pub look: fn() -> io::Result<()>,
    /// The same error again, as long as nobody has heard of it: a caller may have taken the first one for a missing file.
    pub ended: fn() -> io::Result<()>,
}

static SIGNALS: OnceLock<Signals> = OnceLock::new();

/// Sets what is asked about signals, once for the process.
pub fn set(signals: Signals) {
    _ = SIGNALS.set(signals);
}

/// Runs the handlers of signals that came.
///
/// # Errors
/// A handler ends what this thread waits for.
pub fn look() -> io::Result<()> {
    SIGNALS.get().map_or(Ok(()), |signals| (signals.look)())
}

/// Returns the error of the last [`look`] as long as nobody has heard of it.
///
/// # Errors
/// See above.
pub fn ended() -> io::Result<()> {
    SIGNALS.get().map_or(Ok(()), |signals| (signals.ended)())
}
