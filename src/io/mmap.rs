//! Mapped files. With `fork`, the hash kernels and `python/signals`, the only file with unsafe code.
//!
//! Other processes share the mapped file: a broker may be writing it, another process may truncate it. Therefore:
//!
//! - No reference into the map is lent. Every read copies bytes out through a raw pointer. Words are read and written with
//!   atomic operations, so a reader never sees a half-written word.
//! - The length is fixed when the map is made, and every access is checked against it.
//! - A file that shrinks under its map raises SIGBUS at the next access beyond the new end. A process
//!   cannot prevent that: use `Access::Pread` for files that may shrink. A full disk raises the same signal at a
//!   store into a hole, so writers reserve the space first ([`crate::io::disk::reserve`]).
#![allow(unsafe_code)]
#![expect(clippy::cast_ptr_alignment, reason = "alignment is checked before each cast")]

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(unix)]
use memmap2::Advice;
use memmap2::{MmapOptions, MmapRaw};

use super::source::usize_of;
use super::source::{ReadAt, WriteAt};

/// A whole file in the address space, from its first byte to the length it had when it was mapped.
#[derive(Debug)]
pub struct FileMap {
    map: MmapRaw,
    writable: bool,
    /// Bytes up to here were brought into memory by [`WriteAt::populate`].
    populated: AtomicU64,
}

impl FileMap {
    /// Maps an open file. An empty file cannot be mapped.
    ///
    /// # Errors
    /// An I/O error, `OutOfMemory` where the address space is limited.
    pub fn new(file: &File, writable: bool) -> io::Result<Self> {
        let options = MmapOptions::new();
        let map = if writable { options.map_raw(file)? } else { options.map_raw_read_only(file)? };
        Ok(Self { map, writable, populated: AtomicU64::new(0) })
    }

    /// Maps memory of zeros that belongs to no file.
    ///
    /// # Errors
    /// An I/O error, `OutOfMemory` where the address space is limited.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(len).map_anon()?.into();
        Ok(Self { map, writable: true, populated: AtomicU64::new(0) })
    }

    /// Locks the pages in memory, all of them at once (`mlock`).
    ///
    /// # Errors
    /// An I/O error, mainly where `RLIMIT_MEMLOCK` is lower; `Unsupported` if the system cannot lock.
    pub fn lock(&self) -> io::Result<()> {
        #[cfg(unix)]
        return self.map.lock();
        #[cfg(not(unix))]
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Copies bytes into the map. Stores of earlier calls come first, also for other processes.
    ///
    /// # Errors
    /// `PermissionDenied` for a map that is not writable, `UnexpectedEof` outside of it.
    #[inline]
    pub fn put_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let at = self.at(offset, bytes.len())?;
        std::sync::atomic::fence(Ordering::Release);
        // SAFETY: `at` checked that the bytes are inside the map, and `bytes` is no part of it, because none is lent. No thread of
        // this process reads them before the caller publishes their end; another process must expect any bytes in a file.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.as_mut_ptr().add(at), bytes.len()) };
        Ok(())
    }

    /// Requests large pages from the operating system for pages that are not in memory yet.
    pub fn prefer_large_pages(&self) {
        // A file system without large pages refuses it.
        #[cfg(target_os = "linux")]
        let _ = self.map.advise(Advice::HugePage);
    }

    /// The words of the map, without up to 3 bytes at the end of the file.
    pub fn words_of_map(&self) -> Words<'_> {
        // SAFETY: the map starts on a page, lives as long as `self` and holds this many whole words; as in `atomics`, they
        // are only ever touched as atomics or by the byte copy of `read_exact_at`.
        Words(unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU32>(), self.map.len() / 4) })
    }

    /// Position of `len` bytes at `offset`, if they are inside.
    fn at(&self, offset: u64, len: usize) -> io::Result<usize> {
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        match offset.checked_add(len) {
            Some(end) if end <= self.map.len() => Ok(offset),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The words from `offset` on, if they are inside and aligned.
    fn atomics<const N: usize>(&self, offset: u64) -> io::Result<&[AtomicU32; N]> {
        let at = self.at(offset, 4 * N)?;
        if !at.is_multiple_of(4) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: `at` checked that the bytes are inside the map, which lives as long as `self`; the map starts on a
        // page and `at` is a multiple of 4, so the words are aligned. They are only ever touched as atomics or by the
        // byte copy of `read_exact_at`, never through a plain reference. Atomic loads are allowed on read-only memory;
        // stores go through `WriteAt`, which refuses a map that is not writable.
        Ok(unsafe { &*self.map.as_ptr().add(at).cast::<[AtomicU32; N]>() })
    }

    /// The 8 bytes at `offset`, if they are inside and aligned.
    fn atomic_long(&self, offset: u64) -> io::Result<&AtomicU64> {
        let at = self.at(offset, 8)?;
        if !at.is_multiple_of(8) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: as in `atomics`, with 8 bytes. Header fields are only ever reached in this size while they can change
        // (`Header::read`), so atomics of different sizes do not race on them.
        Ok(unsafe { &*self.map.as_ptr().add(at).cast::<AtomicU64>() })
    }

    fn writable<const N: usize>(&self, offset: u64) -> io::Result<&[AtomicU32; N]> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.atomics(offset)
    }

    /// The table of words at `offset`, if it is aligned, and how many words the map has from there on.
    #[inline]
    fn table(&self, offset: u64) -> io::Result<(*const AtomicU32, u64)> {
        let at = self.at(offset, 0)?;
        if !at.is_multiple_of(4) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: `at` checked that the table begins inside the map.
        Ok((unsafe { self.map.as_ptr().add(at) }.cast::<AtomicU32>(), (self.len() - offset) / 4))
    }
}

impl ReadAt for FileMap {
    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    #[inline]
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let at = self.at(offset, buf.len())?;
        // SAFETY: `at` checked that the bytes are inside the map, and `buf` is ours alone. Another process may be
        // writing them: then the copy holds old and new bytes mixed, which every caller must expect of a file.
        unsafe { std::ptr::copy_nonoverlapping(self.map.as_ptr().add(at), buf.as_mut_ptr(), buf.len()) };
        Ok(())
    }

    #[inline]
    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        let words = self.atomics::<N>(offset)?;
        Ok(std::array::from_fn(|i| words.get(i).map_or(0, |w| u32::from_be(w.load(Ordering::Relaxed)))))
    }

    fn word_run(&self, offset: u64, words: &mut [u32]) -> io::Result<()> {
        let mut at = offset;
        let (many, rest) = words.as_chunks_mut::<16>();
        for chunk in many {
            for (word, read) in chunk.iter_mut().zip(self.atomics::<16>(at)?) {
                *word = u32::from_be(read.load(Ordering::Acquire));
            }
            at += 64;
        }
        for word in rest {
            *word = self.acquire(at)?;
            at += 4;
        }
        Ok(())
    }

    #[inline]
    fn long(&self, offset: u64) -> io::Result<u64> {
        Ok(u64::from_be(self.atomic_long(offset)?.load(Ordering::Acquire)))
    }

    #[inline]
    fn acquire(&self, offset: u64) -> io::Result<u32> {
        let [word] = self.atomics::<1>(offset)?;
        Ok(u32::from_be(word.load(Ordering::Acquire)))
    }

    #[inline]
    fn gather(&self, table: u64, numbers: &[u32], words: &mut [u32]) -> io::Result<()> {
        let (table, len) = self.table(table)?;
        for (word, &number) in words.iter_mut().zip(numbers) {
            if u64::from(number) >= len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // SAFETY: the word is inside the map; else as in `atomics`.
            *word = u32::from_be(unsafe { &*table.add(number as usize) }.load(Ordering::Relaxed));
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn is_in_memory(&self, offset: u64) -> bool {
        self.has_page_of(offset)
    }

    #[cfg(unix)]
    fn will_need(&self, offset: u64, len: u64) {
        self.begin_to_read(offset, len);
    }

    #[cfg(unix)]
    fn load(&self) {
        self.read_all();
    }
}

impl WriteAt for FileMap {
    #[inline]
    fn put_words<const N: usize>(&self, offset: u64, words: [u32; N]) -> io::Result<()> {
        for (to, word) in self.writable::<N>(offset)?.iter().zip(words) {
            to.store(word.to_be(), Ordering::Relaxed);
        }
        Ok(())
    }

    #[inline]
    fn put_long(&self, offset: u64, value: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.atomic_long(offset)?.store(value.to_be(), Ordering::Release);
        Ok(())
    }

    #[inline]
    fn publish(&self, offset: u64, word: u32) -> io::Result<()> {
        let [to] = self.writable::<1>(offset)?;
        to.store(word.to_be(), Ordering::Release);
        Ok(())
    }

    #[inline]
    fn put_records<const N: usize>(
        &self,
        offset: u64,
        count: usize,
        records: impl Iterator<Item = [u8; N]>,
    ) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let at = self.at(offset, count.saturating_mul(N))?;
        if !at.is_multiple_of(4) || !N.is_multiple_of(4) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: `at` checked that all records are inside the map; the pointer stays within them or at their end. They
        // are not published yet, so no reader in this process reads them; another process must
        // expect any bytes in a file. Straight from registers: through a buffer, each copy would wait for the stores to it.
        unsafe {
            let mut to = self.map.as_mut_ptr().add(at);
            for record in records.take(count) {
                to.cast::<[u8; N]>().write(record);
                to = to.add(N);
            }
        }
        Ok(())
    }

    #[inline]
    fn scatter(&self, table: u64, numbers: &[u32], words: impl Iterator<Item = u32>) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (table, len) = self.table(table)?;
        for (word, &number) in words.zip(numbers) {
            if u64::from(number) >= len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // SAFETY: the word is inside the map; else as in `atomics`.
            unsafe { &*table.add(number as usize) }.store(word.to_be(), Ordering::Release);
        }
        Ok(())
    }

    #[inline]
    fn prefetch_to_store(&self, offset: u64) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(at) = self.at(offset, 1) {
            // SAFETY: a prefetch of an address inside the map reads and writes nothing that the program can see.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_ET0>(self.map.as_ptr().add(at).cast::<i8>());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    fn populate(&self, offset: u64, len: u64) {
        #[cfg(target_os = "linux")]
        if self.writable
            && let (Ok(at), Ok(len)) = (usize::try_from(offset), usize::try_from(len))
            && at < self.map.len()
        {
            // Refused by a kernel before 5.14; the first store then does the work.
            let _ = self.map.advise_range(Advice::PopulateWrite, at, len.min(self.map.len() - at));
        }
        self.populated.fetch_max(offset.saturating_add(len), Ordering::Relaxed);
    }

    fn populated(&self) -> u64 {
        self.populated.load(Ordering::Relaxed)
    }

    fn flush(&self, offset: u64, len: u64) -> io::Result<()> {
        let len = usize_of(len.min(self.len().saturating_sub(offset)));
        self.map.flush_range(self.at(offset, len)?, len)
    }
}

/// Bytes requested at a time when a whole file is.
#[cfg(unix)]
const WINDOW: usize = 1 << 20;

/// Hints to the system about memory and disk. A system without the hint, and every error, counts as "nothing to do".
impl FileMap {
    /// Announces random reads: a page fault then reads one page and not its neighbours as well.
    pub fn expect_random_reads(&self, random: bool) {
        #[cfg(unix)]
        let _ = self.map.advise(if random { Advice::Random } else { Advice::Normal });
        #[cfg(not(unix))]
        let _ = random;
    }

    #[cfg(unix)]
    fn begin_to_read(&self, offset: u64, len: u64) {
        let len = len.min(self.len().saturating_sub(offset));
        if let (Ok(offset), Ok(len)) = (usize::try_from(offset), usize::try_from(len))
            && len > 0
        {
            let _ = self.map.advise_range(Advice::WillNeed, offset, len);
        }
    }

    /// Faults all pages in, large ones if the file system has them.
    #[cfg(unix)]
    fn read_all(&self) {
        // With advice for random reads, each fault would read 4 KiB.
        self.expect_random_reads(false);
        #[cfg(target_os = "linux")]
        let done = {
            let _ = self.map.advise(Advice::HugePage);
            self.map.advise(Advice::PopulateRead).is_ok()
        };
        #[cfg(not(target_os = "linux"))]
        let done = false;
        if !done {
            // Linux shortens a longer request to its read-ahead window.
            (0..self.len()).step_by(WINDOW).for_each(|at| self.begin_to_read(at, WINDOW as u64));
        }
        // A writer also reads sequentially.
        self.expect_random_reads(!self.writable);
    }

    /// NOTE: Linux reports this only to the owner of the file or a process that may write it. To others it reports every page
    /// as in memory.
    #[cfg(target_os = "linux")]
    fn has_page_of(&self, offset: u64) -> bool {
        let Ok(at) = self.at(offset, 1) else { return true };
        // SAFETY: returns a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let start = self.map.as_mut_ptr().wrapping_add(at / page * page);
        let mut state = 1u8;
        // SAFETY: the page begins inside the map, and one page has one byte of state.
        let told = unsafe { libc::mincore(start.cast(), 1, &raw mut state) };
        told != 0 || state & 1 == 1
    }
}

/// The words of a map, for code that reads many of them: one bounds check per read, and no `Result`.
///
/// Words are counted from the first byte of the file. Reads are those of [`ReadAt`].
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(&'a [AtomicU32]);

impl Words<'_> {
    /// Copies `N` words from word `at` on, each read in one piece; `None` if the map ends before them.
    #[inline]
    pub fn copy<const N: usize>(self, at: usize) -> Option<[u32; N]> {
        let words = self.0.get(at..)?.first_chunk::<N>()?;
        Some(words.each_ref().map(|word| u32::from_be(word.load(Ordering::Relaxed))))
    }

    /// Reads one word. Stores that preceded its [`WriteAt::publish`] are visible afterwards.
    #[inline]
    pub fn acquire(self, at: usize) -> Option<u32> {
        self.0.get(at).map(|word| u32::from_be(word.load(Ordering::Acquire)))
    }

    /// Makes the processor fetch the cache line of word `at`. A word outside the map is ignored.
    #[inline]
    pub fn prefetch(self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads and writes nothing that the program can see, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.0.as_ptr().wrapping_add(at).cast::<i8>());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            let line = self.0.as_ptr().wrapping_add(at);
            std::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line, options(nostack, readonly, preserves_flags));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = at;
    }
}
