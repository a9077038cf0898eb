//! The output of the decoders of bodies: a buffer that grows up to a limit, and why it stays empty.

use std::fmt;

/// The first piece of output that room is made for.
pub(super) const FIRST: usize = 64 * 1024;
/// A buffer that grew beyond this for one body is given back.
const KEEP: usize = 16 * 1024 * 1024;

/// Why a body cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// More than the limit of bytes would come out.
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The bytes are not what the system flag says.
    Undecodable {
        /// Name of the compression.
        kind: &'static str,
        /// What the decoder says.
        reason: String,
    },
    /// The system flag names a compression that does not exist.
    UnknownType(u8),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { limit } => write!(f, "body of more than {limit} bytes"),
            Self::Undecodable { kind, reason } => write!(f, "body is no {kind} data: {reason}"),
            Self::UnknownType(kind) => write!(f, "body of unknown compression type {kind}"),
        }
    }
}

/// Output that grows up to a limit.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    filled: usize,
    pub(super) limit: usize,
}

impl Output {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), filled: 0, limit }
    }

    pub(super) fn clear(&mut self) {
        self.filled = 0;
        if self.bytes.len() > KEEP {
            self.bytes = Vec::new();
        }
    }

    /// What is filled, and room for at least `more` bytes, or as many as the limit leaves, and one.
    pub(super) fn room(&mut self, more: usize) -> (&[u8], &mut [u8]) {
        let most = self.limit.saturating_add(1);
        let wanted = self.filled.saturating_add(more).min(most);
        if self.bytes.len() < wanted {
            // Zeroed by the system where it is large, so only what is filled costs anything.
            let mut bytes = vec![0; wanted.max(FIRST.min(most))];
            if let (Some(to), Some(from)) = (bytes.get_mut(..self.filled), self.bytes.get(..self.filled)) {
                to.copy_from_slice(from);
            }
            self.bytes = bytes;
        }
        let (filled, room) = self.bytes.split_at_mut(self.filled);
        (filled, room)
    }

    /// Says how much of the room was used.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), BodyError> {
        self.filled = self.filled.saturating_add(bytes).min(self.bytes.len());
        if self.filled > self.limit { Err(self.too_long()) } else { Ok(()) }
    }

    pub(super) fn filled(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }

    pub(super) fn too_long(&self) -> BodyError {
        BodyError::TooLong { limit: self.limit }
    }
}
