//! Index files for the benches, and operations on them outside the library.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use logdex::hash_index::{CreateOptions, Geometry, IndexFile, OpenOptions};

use super::calls;
use super::keys::Columns;

/// Bytes that [`touch_memory`] touches: more than two files of the default geometry need, because a host may take a part back.
const TOUCHED_MIB: usize = 1_024;

/// A geometry with the default ratio of slots to entries that `held` entries fill.
pub(crate) fn geometry(held: usize) -> Geometry {
    let held = u32::try_from(held).expect("few");
    Geometry::new(held.div_ceil(4), held + 1).expect("below 2^31 bytes")
}

/// Options with which the benches create files.
pub(crate) fn options(geometry: Geometry) -> CreateOptions {
    CreateOptions::new(geometry)
}

/// A file that holds all of `columns`, open for reading.
pub(crate) fn filled(path: &Path, columns: &Columns) -> IndexFile {
    let file = calls::create(path, columns.len(), false);
    assert_eq!(calls::put(&file, columns, columns.len(), 1), columns.len());
    drop(file);
    open(path, columns.len())
}

/// Opens a file that holds `held`, for reading.
pub(crate) fn open(path: &Path, held: usize) -> IndexFile {
    let options = OpenOptions { geometry: Some(geometry(held)), ..OpenOptions::default() };
    IndexFile::open(path, options).expect("a file of ours")
}

/// Touches the memory that files will use: on a virtual machine the first touch of a page costs the host's time.
pub(crate) fn touch_memory(path: &Path) -> io::Result<()> {
    let block = vec![0; 1 << 20];
    let mut file = File::create(path)?;
    for _ in 0..TOUCHED_MIB {
        file.write_all(&block)?;
    }
    drop(file);
    std::fs::remove_file(path)
}

/// Writes a file to the disk and drops it from the page cache. No map of it may exist.
#[cfg(target_os = "linux")]
pub(crate) fn evict(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}
