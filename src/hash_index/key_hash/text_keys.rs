//! Index keys as a column of text, hashed by the fastest kernel of the machine.

use super::java_hash::{KeySource, carry_utf8, finish, step};
use super::kernels::{Kernel, TEXTS};

/// Keys in one UTF-8 buffer, in the layout of an Arrow string column. `carry` is the text before each key.
///
/// ```
/// use logdex::hash_index::{KeySource, TextKeys, carry_utf8, key_hash};
/// let keys = TextKeys { carry: carry_utf8(0, b"TopicTest#"), text: b"MessageKeyMessageId", ends: &[0, 10, 19] };
/// let mut hashes = [0; 2];
/// keys.hash_block(0, &mut hashes);
/// assert_eq!(hashes, [key_hash("TopicTest#MessageKey"), key_hash("TopicTest#MessageId")]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TextKeys<'a> {
    /// `hashCode` of the text before every key (`topic#`), made with [`carry_utf8`]; 0: the keys are whole.
    pub carry: i32,
    /// The bytes of all keys. A key that is not UTF-8 is hashed as Java would decode it.
    pub text: &'a [u8],
    /// Key `i` is at `ends[i]..ends[i + 1]`, so there is one more end than keys. An invalid range is an empty key.
    pub ends: &'a [i32],
}

impl KeySource for TextKeys<'_> {
    fn len(&self) -> usize {
        self.ends.len().saturating_sub(1)
    }

    #[inline]
    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        self.hash_with(Kernel::best(), start, hashes);
    }
}

impl TextKeys<'_> {
    /// Hashes the keys from `start` on by a kernel. A kernel that does not run on this machine is replaced by another one.
    #[inline]
    pub fn hash_with(&self, kernel: Kernel, start: usize, hashes: &mut [i32]) {
        let mut at = start;
        for block in hashes.chunks_mut(TEXTS) {
            self.hash_texts(kernel, at, &|_| self.carry, block);
            at += block.len();
        }
    }

    /// Hashes the keys from `start` on, each after a text of its own: `carries` has the `hashCode` of each such text.
    #[inline]
    pub fn hash_behind(&self, carries: &[i32], start: usize, hashes: &mut [i32]) {
        let mut at = start;
        for (block, carries) in hashes.chunks_mut(TEXTS).zip(carries.chunks(TEXTS)) {
            self.hash_texts(Kernel::best(), at, &|i| carries.get(i).copied().unwrap_or(0), block);
            at += block.len();
        }
    }

    /// Hashes at most [`TEXTS`] keys; `carry` returns the `hashCode` of the text before each.
    #[inline]
    fn hash_texts(&self, kernel: Kernel, start: usize, carry: &impl Fn(usize) -> i32, hashes: &mut [i32]) {
        let ends = self.ends.get(start..).unwrap_or_default();
        let (ends, _) = ends.split_at_checked(hashes.len() + 1).unwrap_or((ends, &[]));
        let left = kernel.codes(self.text, ends, hashes);
        if left != u32::MAX {
            for ((i, code), (&begin, &end)) in hashes.iter_mut().enumerate().zip(ends.iter().zip(ends.iter().skip(1))) {
                // h(topic#key) = h(topic#) * 31^length + h(key)
                *code = finish(carry(i).wrapping_mul(power(end - begin)).wrapping_add(*code));
            }
        }
        if left != 0 {
            self.hash_plainly(kernel, left, ends, carry, hashes);
        }
    }

    /// Hashes the keys of the bit set `left` without vectors.
    #[inline(never)]
    fn hash_plainly(&self, kernel: Kernel, left: u32, ends: &[i32], carry: &impl Fn(usize) -> i32, to: &mut [i32]) {
        for ((i, hash), (&begin, &end)) in to.iter_mut().enumerate().zip(ends.iter().zip(ends.iter().skip(1))) {
            if left >> i & 1 == 1 {
                let range = usize::try_from(begin).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(0);
                let key = self.text.get(range).unwrap_or_default();
                *hash = finish(match kernel {
                    Kernel::Scalar => carry_units(carry(i), key),
                    _ => carry_utf8(carry(i), key),
                });
            }
        }
    }
}

/// The definition: `h = 31 * h + unit` over the UTF-16 units of the text that Java makes of the bytes.
fn carry_units(hash: i32, bytes: &[u8]) -> i32 {
    crate::java_text::decode_utf8(bytes).encode_utf16().fold(hash, step)
}

/// 31^exponent, of a length of 0 or more.
#[inline]
fn power(exponent: i32) -> i32 {
    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
    const KNOWN: [i32; 256] = {
        let mut powers = [1i32; 256];
        let mut exponent = 1;
        while exponent < powers.len() {
            powers[exponent] = powers[exponent - 1].wrapping_mul(31);
            exponent += 1;
        }
        powers
    };
    static POWERS: [i32; 256] = KNOWN;
    match usize::try_from(exponent).ok().and_then(|at| POWERS.get(at)) {
        Some(power) => *power,
        None => 31i32.wrapping_pow(exponent.unsigned_abs()),
    }
}
