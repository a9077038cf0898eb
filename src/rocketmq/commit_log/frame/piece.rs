//! A part of a buffer, with the bytes behind it.

/// The first `len` bytes of `from`, which should go on behind them: a copy may then take more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece<'a> {
    pub(crate) from: &'a [u8],
    pub(crate) len: usize,
}

impl<'a> Piece<'a> {
    pub(crate) fn whole(from: &'a [u8]) -> Self {
        Self { from, len: from.len() }
    }

    /// True when all bytes that count are ASCII.
    #[inline]
    pub(crate) fn is_ascii(&self) -> bool {
        let (words, rest) = self.bytes().as_chunks::<8>();
        let seen = words.iter().fold(0, |seen, word| seen | u64::from_le_bytes(*word));
        let seen = rest.iter().fold(seen, |seen, byte| seen | u64::from(*byte));
        seen & 0x8080_8080_8080_8080 == 0
    }

    /// The bytes that count.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.from.get(..self.len).unwrap_or_default()
    }
}
