//! The output of a decoder: a buffer that grows while the input fills it, up to a limit.

/// The first allocation in bytes.
pub(crate) const FIRST: usize = 64 * 1024;
/// A buffer that grew beyond this for one input is freed.
const KEEP: usize = 16 * 1024 * 1024;

/// The reason why data cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The output is larger than the limit.
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The input is not in the format.
    Undecodable {
        /// Name of the codec.
        kind: &'static str,
        /// The decoder's message.
        reason: String,
    },
}

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

    /// Allocated bytes.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The largest output in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the filled bytes, and free space for `more` bytes, or for as many as the limit allows and one.
    pub(crate) fn free(&mut self, more: usize) -> (&[u8], &mut [u8]) {
        let most = self.limit.saturating_add(1);
        let wanted = self.filled.saturating_add(more).min(most);
        if self.bytes.len() < wanted {
            // The size doubles, so that many small pieces do not copy the output each time. The system zeroes a large allocation
            // lazily, so that only the filled part costs time.
            let doubled = self.filled.saturating_mul(2).max(FIRST).min(most);
            let mut bytes = vec![0; wanted.max(doubled)];
            if let (Some(to), Some(from)) = (bytes.get_mut(..self.filled), self.bytes.get(..self.filled)) {
                to.copy_from_slice(from);
            }
            self.bytes = bytes;
        }
        let (filled, free) = self.bytes.split_at_mut(self.filled);
        (filled, free)
    }

    /// Counts bytes that were written to the free space.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.filled = self.filled.saturating_add(bytes).min(self.bytes.len());
        if self.filled > self.limit { Err(self.too_long()) } else { Ok(()) }
    }

    /// Lets a decoder write its whole output into free space, first for `first` bytes, then for four times as many until it fits.
    ///
    /// `decode` returns the bytes that it wrote, or `None` if they do not fit; its own error ends this.
    pub(crate) fn write_whole<E>(
        &mut self,
        first: usize,
        mut decode: impl FnMut(&mut [u8]) -> Option<Result<usize, E>>,
    ) -> Result<Result<(), E>, DecodeError> {
        let mut more = first;
        loop {
            let (_, free) = self.free(more);
            let len = free.len();
            match decode(free) {
                Some(Ok(written)) => return self.add(written).map(Ok),
                Some(Err(error)) => return Ok(Err(error)),
                None if len > self.limit => return Err(self.too_long()),
                None => more = len.saturating_mul(4),
            }
        }
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

    #[test]
    fn small_pieces_copy_the_output_few_times() {
        let (piece, limit) = (64 * 1024, 16 * 1024 * 1024);
        let mut output = Output::new(limit);
        let mut moves = 0;
        loop {
            let before = output.capacity();
            output.free(piece);
            moves += usize::from(output.capacity() != before);
            assert!(output.capacity() <= limit + 1);
            if output.add(piece).is_err() {
                break;
            }
        }
        assert!(moves <= 10, "{moves}");
    }
}
