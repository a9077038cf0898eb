//! The sealed index next to the index file that it is made of: `cargo bench --bench sealed -- --entries 5000000`.
//!
//! Prints a line for sealing and size, and one for each number of keys. Times are processor time of all threads, so that both
//! sides are compared on one processor. With `--directory DIR` the index file is kept for the next run.
#![allow(missing_docs, reason = "a program")]
#![allow(clippy::cast_precision_loss, reason = "times and numbers of entries")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use logdex::hash_index::sealed::{SealedKeys, place};
use logdex::hash_index::{Hits, IndexFile, KeySource, select_files};
use logdex::rocketmq::commit_log::{CommitLog, Options};
use logdex::rocketmq::seal::{IndexSource, sealing};
use logdex::time_range::TimeRange;
use support::keys::{Columns, Keys};
use support::{files, is_trial, timed};

/// The processor time of a call, in seconds, and what it returned.
fn processor<T>(call: impl FnOnce() -> T) -> (f64, T) {
    #[cfg(unix)]
    {
        use rustix::time::{ClockId, clock_gettime};
        let now = || clock_gettime(ClockId::ProcessCPUTime);
        let begun = now();
        let answer = call();
        let took = now() - begun;
        (took.tv_sec as f64 + took.tv_nsec as f64 / 1e9, answer)
    }
    #[cfg(not(unix))]
    {
        let (took, answer) = timed(call);
        (took.as_secs_f64(), answer)
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn index_file(root: &Path, entries: usize) -> IndexFile {
    let path = root.join("index/20260101000000000");
    if path.exists() {
        return files::open(&path, entries);
    }
    for name in ["index", "commitlog"] {
        std::fs::create_dir_all(root.join(name)).expect("a directory that takes files");
    }
    files::filled(&path, &Columns::new(entries))
}

/// Seals the index file, without the times of a log.
fn seal(root: &Path, directory: &Path, log: &Arc<CommitLog>, file: &Arc<IndexFile>) {
    let mut sealing =
        sealing(&root.into(), &directory.into(), Arc::clone(log), vec![Arc::clone(file)]).expect("readable");
    sealing.add(&IndexSource { log: Arc::clone(log), file: Arc::clone(file) }).expect("readable");
    sealing.finish(None).expect("writable");
}

/// The candidates of keys in the index file, and in the sealed index.
fn compare(file: &IndexFile, sealed: &SealedKeys, entries: usize, asked: usize) {
    let (mut by_file, mut by_sealed, mut waited) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..(200_000 / asked).clamp(5, 2_000) as u64 {
        let keys = Keys::asked(entries, asked, round, true);
        let (took, expected) = processor(|| {
            let mut hits = Hits::new();
            select_files(&[file], &keys.all(), 0..asked, None, TimeRange::ALL, &mut hits).expect("readable");
            hits
        });
        by_file.push(took);
        let (waiting, (took, found)) = timed(|| {
            processor(|| {
                let mut hashes = vec![0; asked];
                keys.all().hash_block(0, &mut hashes);
                sealed.offsets(&hashes, false, |_| true).expect("readable")
            })
        });
        by_sealed.push(took);
        waited.push(waiting.as_secs_f64());
        assert_eq!(found, expected);
    }
    let [file, sealed, waited] = [by_file, by_sealed, waited].map(|times| median(times) / asked as f64 * 1e9);
    let ratio = file / sealed;
    println!(
        "{asked:>9} keys: {sealed:>6.0} ns a key sealed ({waited:.0} passed), {file:>6.0} ns in the index file, {ratio:.2}x"
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().position(|each| each == name).and_then(|at| arguments.get(at + 1));
    let entries = if is_trial() { 20_000 } else { 5_000_000 };
    let entries = value("--entries").map_or(entries, |entries| entries.parse().expect("a number of entries"));
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let root = value("--directory").map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let file = Arc::new(index_file(&root, entries));
    let directory = root.join(place::DIRECTORY);
    let log = Arc::new(CommitLog::open(root.join("commitlog"), Options::default()).expect("an empty log"));
    let took = median((0..3).map(|_| processor(|| seal(&root, &directory, &log, &file)).0).collect());
    let catalog = place::read_catalog(&directory.as_path().into(), &[]).expect("readable");
    let bytes: i64 = catalog.keys.iter().map(|file| file.size).sum();
    let catalog_bytes = std::fs::metadata(directory.join(place::CATALOG)).expect("readable").len();
    let (rate, each) = (entries as f64 / took / 1e6, bytes as f64 / entries as f64);
    println!("{entries} entries: {rate:.2} M/s sealed, {each:.2} bytes an entry, a catalog of {catalog_bytes} bytes");
    let sealed = SealedKeys::new(&directory.as_path().into(), &catalog).expect("in order");
    let most = if is_trial() { 1_000 } else { 1_000_000 };
    for asked in [1, 1_000, 250_000, 1_000_000].into_iter().filter(|asked| *asked <= most) {
        compare(&file, &sealed, entries, asked);
    }
}
