//! The output of a decoder: a buffer that grows as far as the input really fills it, up to a limit.

use super::DecodeError;

/// The first piece of output that room is made for.
pub(crate) const FIRST: usize = 64 * 1024;
/// A buffer that grew beyond this for one input is given back.
const KEEP: usize = 16 * 1024 * 1024;

/// Output that grows up to a limit.
#[derive(Debug)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    filled: usize,
    limit: usize,
}

impl Output {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), filled: 0, limit }
    }

    pub(crate) fn clear(&mut self) {
        self.filled = 0;
        if self.bytes.len() > KEEP {
            self.bytes = Vec::new();
        }
    }

    /// Memory that it holds.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The most bytes that it takes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// What is filled, and room for at least `more` bytes, or as many as the limit leaves, and one.
    pub(crate) fn room(&mut self, more: usize) -> (&[u8], &mut [u8]) {
        let most = self.limit.saturating_add(1);
        let wanted = self.filled.saturating_add(more).min(most);
        if self.bytes.len() < wanted {
            // Twice as much each time, or small pieces would copy all that is there once for each of them. Zeroed by the system
            // where it is large, so only what is filled costs anything.
            let doubled = self.filled.saturating_mul(2).max(FIRST).min(most);
            let mut bytes = vec![0; wanted.max(doubled)];
            if let (Some(to), Some(from)) = (bytes.get_mut(..self.filled), self.bytes.get(..self.filled)) {
                to.copy_from_slice(from);
            }
            self.bytes = bytes;
        }
        let (filled, room) = self.bytes.split_at_mut(self.filled);
        (filled, room)
    }

    /// Says how much of the room was used.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.filled = self.filled.saturating_add(bytes).min(self.bytes.len());
        if self.filled > self.limit { Err(self.too_long()) } else { Ok(()) }
    }

    pub(crate) fn filled(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }

    pub(crate) fn too_long(&self) -> DecodeError {
        DecodeError::TooLong { limit: self.limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of many small blocks once copied all of its output for each block.
    #[test]
    fn small_pieces_move_the_output_a_few_times_only() {
        let (piece, limit) = (64 * 1024, 16 * 1024 * 1024);
        let mut output = Output::new(limit);
        let mut moves = 0;
        loop {
            let before = output.capacity();
            output.room(piece);
            moves += usize::from(output.capacity() != before);
            assert!(output.capacity() <= limit + 1);
            if output.add(piece).is_err() {
                break;
            }
        }
        assert!(moves <= 10, "{moves}");
    }
}
