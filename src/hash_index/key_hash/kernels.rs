//! Hash kernels: Java's `String.hashCode` of many short texts at once. With `mmap`, `fork` and
//! `python/signals`, the only file with unsafe code.
//!
//! `hashCode` is a number in base 31 whose digits are the characters, modulo 2^32:
//!
//! ```text
//! h = c0 * 31^(n-1) + ... + c(n-2) * 31 + c(n-1)
//! ```
//!
//! so digits can be weighted separately and added in any order. One vector of plain ASCII is folded in three steps, each of
//! which halves the number of lanes and squares the base:
//!
//! ```text
//! bytes    c0 c1 c2 c3 ...    weights 31, 1 in turn         -> sums of two in lanes of 16 bits (at most 8,160)
//! pairs    p0    p1    ...    weights 31^2, 1 in turn       -> sums of four in lanes of 32 bits
//! fours    f0          ...    weights 31^28, ..., 31^4, 1   -> one sum at the very end
//! ```
//!
//! A longer text is processed one vector at a time: the lanes of fours are multiplied by 31^32 before the next vector is
//! added. The *first* vector is the partial one. It is loaded so that it ends at the right place; the bytes before the text
//! are masked to 0, and leading zeros do not count. So the load may begin up to one vector before the text. That is inside the
//! column for all but the first texts, which are left to the caller.
//!
//! Adding the lanes of one vector costs as much as hashing a short text. So four texts are added together, by pairwise
//! additions that end with one hash per lane.
//!
//! All bytes are also combined by "or". If the result has a top bit, one of the four texts is not plain ASCII: then the four
//! are left to the caller, which hashes UTF-16 units.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// Texts hashed by one call of a kernel, at most.
pub(super) const TEXTS: usize = 32;

/// Ways to compute the same hashes. [`Kernel::best`] is what the crate uses; the others are for tests and benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// 32 bytes at a time, four texts together: x86-64 with AVX2.
    Avx2,
    /// 16 bytes at a time, four texts together: every x86-64.
    Sse2,
    /// 16 bytes at a time, four texts together: 64-bit ARM. Compiled for that processor, but never run in our tests.
    Neon,
    /// 8 bytes at a time in an ordinary register.
    Swar,
    /// One UTF-16 unit at a time: the definition, the reference of the others.
    Scalar,
}

impl Kernel {
    /// The kernels that this machine can run, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        [Self::Avx2, Self::Sse2, Self::Neon, Self::Swar, Self::Scalar].into_iter().filter(|kernel| kernel.runs_here())
    }

    /// The fastest kernel that this machine can run; detected once.
    #[inline]
    pub fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().next().unwrap_or(Self::Scalar))
    }

    fn runs_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Sse2 => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            Self::Swar | Self::Scalar => true,
            #[allow(unreachable_patterns, reason = "kernels of other processors")]
            _ => false,
        }
    }

    /// Computes the `hashCode` of up to [`TEXTS`] texts by vectors; text `i` is at `ends[i]..ends[i + 1]` of `column`.
    ///
    /// Returns the texts that are left to the caller, as bits: those that are not plain ASCII, those too near to the
    /// beginning of the column, a remainder of less than four, and all of them if `ends` leads out of the column, or if this
    /// kernel has no vectors or does not run on this machine.
    #[inline]
    pub(super) fn codes(self, column: &[u8], ends: &[i32], codes: &mut [i32]) -> u32 {
        if codes.len() > TEXTS || ends.len() != codes.len() + 1 || !lie_within(column, ends) {
            return u32::MAX;
        }
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has the feature; the texts were just checked to be within the column.
            Self::Avx2 if self.runs_here() => unsafe { x86_64::avx2(column, ends, codes) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Sse2 => unsafe { x86_64::sse2(column, ends, codes) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Self::Neon if self.runs_here() => unsafe { aarch64::neon(column, ends, codes) },
            _ => u32::MAX,
        }
    }
}

/// A bit for each of `count` texts, at most 32.
#[expect(clippy::cast_possible_truncation, reason = "32 bits are left")]
const fn all(count: usize) -> u32 {
    (1u64 << count).wrapping_sub(1) as u32
}

/// Returns whether `ends` rises from 0 or more to the length of the column or less.
#[inline]
fn lie_within(column: &[u8], ends: &[i32]) -> bool {
    // A count without an early exit, so that the compiler uses vectors.
    let falls = ends.iter().zip(ends.iter().skip(1)).map(|(begin, end)| i32::from(begin > end)).sum::<i32>();
    let (first, last) = (ends.first().copied().unwrap_or(-1), ends.last().copied().unwrap_or(-1));
    falls == 0 && first >= 0 && usize::try_from(last).is_ok_and(|last| last <= column.len())
}

/// The distance by which the column is prefetched, in bytes. The processor prefetches by itself, but not across pages.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 2048;
/// Bytes that come from memory together.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Weights of pairs of bytes: 31, then 1.
#[cfg(target_arch = "x86_64")]
const OF_BYTES: i16 = 0x01_1f;
/// Weights of pairs of pairs: 31^2, then 1.
#[cfg(target_arch = "x86_64")]
const OF_PAIRS: i32 = 0x0001_03c1;

/// 31^(4 * (L - 1)), ..., 31^4, 1: the weights of the sums of four in L lanes.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn weights_of_fours<const LANES: usize>() -> [i32; LANES] {
    let mut weights = [1; LANES];
    let mut lane = LANES - 1;
    while lane > 0 {
        weights[lane - 1] = 31i32.pow(4).wrapping_mul(weights[lane]);
        lane -= 1;
    }
    weights
}

/// A mask loaded from byte `n` of this keeps the last `n` bytes of a vector.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn keep_last<const TWICE: usize>() -> [u8; TWICE] {
    let mut mask = [0; TWICE];
    let mut at = TWICE / 2;
    while at < TWICE {
        mask[at] = 0xff;
        at += 1;
    }
    mask
}

/// Number of bytes of a text of `len` in the first vector, so that the rest is whole vectors: 1 to `width`; 0 for 0.
#[inline]
const fn head(len: usize, width: usize) -> usize {
    if len == 0 { 0 } else { (len - 1) % width + 1 }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    #[allow(clippy::wildcard_imports, reason = "intrinsics")]
    use std::arch::x86_64::*;

    use super::{AHEAD, LINE, OF_BYTES, OF_PAIRS, all, head, keep_last, weights_of_fours};

    /// # Safety
    /// The processor has AVX2; `ends` rises and stays within `column`.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2(column: &[u8], ends: &[i32], codes: &mut [i32]) -> u32 {
        let mut left = all(codes.len());
        let (groups, _) = codes.as_chunks_mut::<4>();
        for (number, (codes, ends)) in groups.iter_mut().zip(ends.windows(5).step_by(4)).enumerate() {
            let &[first, second, third, fourth, end] = ends else { break };
            if first < 32 {
                continue;
            }
            prefetch_ahead(column, first, end);
            let mut seen = _mm256_setzero_si256();
            // SAFETY: the texts are within the column, and 32 bytes or more of it come before them.
            let (a, b, c, d) = unsafe {
                (
                    lanes_avx2(column, first, second, &mut seen),
                    lanes_avx2(column, second, third, &mut seen),
                    lanes_avx2(column, third, fourth, &mut seen),
                    lanes_avx2(column, fourth, end, &mut seen),
                )
            };
            let sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
            let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
            // SAFETY: `codes` is four times 32 bits.
            unsafe { _mm_storeu_si128(codes.as_mut_ptr().cast(), sums) };
            if _mm256_movemask_epi8(seen) == 0 {
                left &= !(0b1111 << (4 * number));
            }
        }
        left
    }

    /// The lanes whose sum is the hash of the text at `begin..end`; joins its bytes to `seen`.
    ///
    /// # Safety
    /// The processor has AVX2; `32 <= begin <= end <= column.len()`.
    #[target_feature(enable = "avx2")]
    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "32 or more")]
    unsafe fn lanes_avx2(column: &[u8], begin: i32, end: i32, seen: &mut __m256i) -> __m256i {
        static KEEP_LAST: [u8; 64] = keep_last();
        static WEIGHTS: [i32; 8] = weights_of_fours();
        const NEXT: i32 = 31i32.wrapping_pow(32);
        let (begin, end) = (begin as usize, end as usize);
        let head = head(end - begin, 32);
        let mut at = begin + head;
        // SAFETY: `at` is 32 or more and in the column, so the vector that ends there is as well; `head` is at most 32.
        let first = unsafe {
            let vector = _mm256_loadu_si256(column.as_ptr().add(at - 32).cast());
            _mm256_and_si256(vector, _mm256_loadu_si256(KEEP_LAST.as_ptr().add(head).cast()))
        };
        *seen = _mm256_or_si256(*seen, first);
        let mut sums = fours_avx2(first);
        while at < end {
            // SAFETY: whole vectors are left until the end of the text.
            let vector = unsafe { _mm256_loadu_si256(column.as_ptr().add(at).cast()) };
            *seen = _mm256_or_si256(*seen, vector);
            sums = _mm256_add_epi32(_mm256_mullo_epi32(sums, _mm256_set1_epi32(NEXT)), fours_avx2(vector));
            at += 32;
        }
        // SAFETY: eight times 32 bits.
        _mm256_mullo_epi32(sums, unsafe { _mm256_loadu_si256(WEIGHTS.as_ptr().cast()) })
    }

    /// Sums of four bytes, in lanes of 32 bits.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn fours_avx2(bytes: __m256i) -> __m256i {
        let pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(OF_BYTES));
        _mm256_madd_epi16(pairs, _mm256_set1_epi32(OF_PAIRS))
    }

    /// Prefetches the texts that follow those at `first..end`.
    #[inline]
    fn prefetch_ahead(column: &[u8], first: i32, end: i32) {
        for at in (first..end).step_by(LINE) {
            let ahead = column.as_ptr().wrapping_add(at.unsigned_abs() as usize + AHEAD);
            // SAFETY: a prefetch reads and writes nothing that the program can see, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.cast()) };
        }
    }

    /// # Safety
    /// `ends` rises and stays within `column`.
    #[target_feature(enable = "sse2")]
    pub(super) unsafe fn sse2(column: &[u8], ends: &[i32], codes: &mut [i32]) -> u32 {
        let mut left = all(codes.len());
        let (groups, _) = codes.as_chunks_mut::<4>();
        for (number, (codes, ends)) in groups.iter_mut().zip(ends.windows(5).step_by(4)).enumerate() {
            let &[first, second, third, fourth, end] = ends else { break };
            if first < 16 {
                continue;
            }
            prefetch_ahead(column, first, end);
            let mut seen = _mm_setzero_si128();
            // SAFETY: the texts are within the column, and 16 bytes or more of it come before them.
            let (a, b, c, d) = unsafe {
                (
                    lanes_sse2(column, first, second, &mut seen),
                    lanes_sse2(column, second, third, &mut seen),
                    lanes_sse2(column, third, fourth, &mut seen),
                    lanes_sse2(column, fourth, end, &mut seen),
                )
            };
            let (ab, cd) = (add_halves(a, b), add_halves(c, d));
            let sums = _mm_add_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
            // SAFETY: `codes` is four times 32 bits.
            unsafe { _mm_storeu_si128(codes.as_mut_ptr().cast(), sums) };
            if _mm_movemask_epi8(seen) == 0 {
                left &= !(0b1111 << (4 * number));
            }
        }
        left
    }

    /// As [`lanes_avx2`], with vectors of 16 bytes.
    ///
    /// # Safety
    /// `16 <= begin <= end <= column.len()`.
    #[target_feature(enable = "sse2")]
    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "16 or more")]
    unsafe fn lanes_sse2(column: &[u8], begin: i32, end: i32, seen: &mut __m128i) -> __m128i {
        static KEEP_LAST: [u8; 32] = keep_last();
        static WEIGHTS: [i32; 4] = weights_of_fours();
        const NEXT: i32 = 31i32.wrapping_pow(16);
        let (begin, end) = (begin as usize, end as usize);
        let head = head(end - begin, 16);
        let mut at = begin + head;
        // SAFETY: `at` is 16 or more and in the column, so the vector that ends there is as well; `head` is at most 16.
        let first = unsafe {
            let vector = _mm_loadu_si128(column.as_ptr().add(at - 16).cast());
            _mm_and_si128(vector, _mm_loadu_si128(KEEP_LAST.as_ptr().add(head).cast()))
        };
        *seen = _mm_or_si128(*seen, first);
        let mut sums = fours_sse2(first);
        while at < end {
            // SAFETY: whole vectors are left until the end of the text.
            let vector = unsafe { _mm_loadu_si128(column.as_ptr().add(at).cast()) };
            *seen = _mm_or_si128(*seen, vector);
            sums = _mm_add_epi32(multiply(sums, _mm_set1_epi32(NEXT)), fours_sse2(vector));
            at += 16;
        }
        // SAFETY: four times 32 bits.
        multiply(sums, unsafe { _mm_loadu_si128(WEIGHTS.as_ptr().cast()) })
    }

    /// Sums of four bytes, in lanes of 32 bits. What AVX2 does to bytes in one instruction takes four here.
    #[target_feature(enable = "sse2")]
    #[inline]
    fn fours_sse2(bytes: __m128i) -> __m128i {
        let first = _mm_and_si128(bytes, _mm_set1_epi16(0xff));
        let second = _mm_srli_epi16::<8>(bytes);
        let pairs = _mm_add_epi16(_mm_sub_epi16(_mm_slli_epi16::<5>(first), first), second);
        _mm_madd_epi16(pairs, _mm_set1_epi32(OF_PAIRS))
    }

    /// Products of lanes of 32 bits, modulo 2^32: those in even places and those in odd ones, joined again.
    #[target_feature(enable = "sse2")]
    #[inline]
    fn multiply(a: __m128i, b: __m128i) -> __m128i {
        let even = _mm_mul_epu32(a, b);
        let odd = _mm_mul_epu32(_mm_srli_epi64::<32>(a), _mm_srli_epi64::<32>(b));
        _mm_unpacklo_epi32(_mm_shuffle_epi32::<0b10_00>(even), _mm_shuffle_epi32::<0b10_00>(odd))
    }

    /// `a0 + a2, b0 + b2, a1 + a3, b1 + b3`.
    #[target_feature(enable = "sse2")]
    #[inline]
    fn add_halves(a: __m128i, b: __m128i) -> __m128i {
        _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b))
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    #[allow(clippy::wildcard_imports, reason = "intrinsics")]
    use std::arch::aarch64::*;

    use super::{all, head, keep_last, weights_of_fours};

    /// # Safety
    /// The processor has NEON; `ends` rises and stays within `column`.
    #[target_feature(enable = "neon")]
    pub(super) unsafe fn neon(column: &[u8], ends: &[i32], codes: &mut [i32]) -> u32 {
        let mut left = all(codes.len());
        let (groups, _) = codes.as_chunks_mut::<4>();
        for (number, (codes, ends)) in groups.iter_mut().zip(ends.windows(5).step_by(4)).enumerate() {
            let &[first, second, third, fourth, end] = ends else { break };
            if first < 16 {
                continue;
            }
            let mut seen = vdupq_n_u8(0);
            // SAFETY: the texts are within the column, and 16 bytes or more of it come before them.
            let (a, b, c, d) = unsafe {
                (
                    lanes(column, first, second, &mut seen),
                    lanes(column, second, third, &mut seen),
                    lanes(column, third, fourth, &mut seen),
                    lanes(column, fourth, end, &mut seen),
                )
            };
            let sums = vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
            // SAFETY: `codes` is four times 32 bits.
            unsafe { vst1q_s32(codes.as_mut_ptr(), sums) };
            if vmaxvq_u8(seen) < 0x80 {
                left &= !(0b1111 << (4 * number));
            }
        }
        left
    }

    /// The lanes whose sum is the hash of the text at `begin..end`; joins its bytes to `seen`.
    ///
    /// # Safety
    /// The processor has NEON; `16 <= begin <= end <= column.len()`.
    #[target_feature(enable = "neon")]
    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "16 or more")]
    unsafe fn lanes(column: &[u8], begin: i32, end: i32, seen: &mut uint8x16_t) -> int32x4_t {
        static KEEP_LAST: [u8; 32] = keep_last();
        static WEIGHTS: [i32; 4] = weights_of_fours();
        const NEXT: i32 = 31i32.wrapping_pow(16);
        let (begin, end) = (begin as usize, end as usize);
        let head = head(end - begin, 16);
        let mut at = begin + head;
        // SAFETY: `at` is 16 or more and in the column, so the vector that ends there is as well; `head` is at most 16.
        let first = unsafe { vandq_u8(vld1q_u8(column.as_ptr().add(at - 16)), vld1q_u8(KEEP_LAST.as_ptr().add(head))) };
        *seen = vorrq_u8(*seen, first);
        let mut sums = fours(first);
        while at < end {
            // SAFETY: whole vectors are left until the end of the text.
            let vector = unsafe { vld1q_u8(column.as_ptr().add(at)) };
            *seen = vorrq_u8(*seen, vector);
            sums = vmlaq_n_s32(fours(vector), sums, NEXT);
            at += 16;
        }
        // SAFETY: four times 32 bits.
        vmulq_s32(sums, unsafe { vld1q_s32(WEIGHTS.as_ptr()) })
    }

    /// Sums of four bytes, in lanes of 32 bits.
    #[target_feature(enable = "neon")]
    #[inline]
    fn fours(bytes: uint8x16_t) -> int32x4_t {
        // Pairs: the even bytes times 31, each with the odd byte after it.
        let (even, odd) = (vuzp1q_u8(bytes, bytes), vuzp2q_u8(bytes, bytes));
        let pairs = vmlal_u8(vmovl_u8(vget_low_u8(odd)), vget_low_u8(even), vdup_n_u8(31));
        let (even, odd) = (vuzp1q_u16(pairs, pairs), vuzp2q_u16(pairs, pairs));
        let fours = vmlal_n_u16(vmovl_u16(vget_low_u16(odd)), vget_low_u16(even), 961);
        vreinterpretq_s32_u32(fours)
    }
}

/// Runs `test` on a copy of `column` that begins at the beginning of a page, and on one that ends at the end of a page,
/// between pages that may not be touched.
#[cfg(all(test, unix))]
#[expect(clippy::unwrap_used, reason = "a test")]
pub(super) fn on_page_edges(column: &[u8], test: impl Fn(&[u8])) {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
    const PAGE: usize = 1 << 16; // a multiple of every page size
    assert!(column.len() <= PAGE);
    let none = std::ptr::null_mut();
    // SAFETY: the pages are ours alone; the copies and the slices are within the middle one, which is readable.
    unsafe {
        let pages = mmap_anonymous(none, 3 * PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).unwrap();
        for forbidden in [0, 2] {
            mprotect(pages.byte_add(forbidden * PAGE), PAGE, MprotectFlags::empty()).unwrap();
        }
        for begin in [PAGE, 2 * PAGE - column.len()] {
            let copy = pages.byte_add(begin).cast::<u8>();
            copy.copy_from_nonoverlapping(column.as_ptr(), column.len());
            test(std::slice::from_raw_parts(copy, column.len()));
        }
        munmap(pages, 3 * PAGE).unwrap();
    }
}
