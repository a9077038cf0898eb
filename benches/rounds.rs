//! The native half of `make bench-report`: answers one JSON object a line, so that its rounds can take turns with those
//! of other programs. `rounds serve` starts it; `op` names the operation, listed in `answer`.
//!
//! Every operation on an index file takes `path` and `held`, the number of puts that fill it; those on segments are listed in
//! `benches/support/segments.rs`. Only the operation is timed; making keys, creating and mapping files are not.
#![allow(missing_docs, reason = "a program")]
#![allow(clippy::panic, reason = "a question that makes no sense ends it")]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow_array::RecordBatch;
use logdex::hash_index::Kernel;
use serde_json::{Value, json};
use support::calls::{self, Found};
use support::keys::{Columns, Keys};
use support::question::Question;
use support::{files, limit, log, log_put, segments, timed};

/// Values that are made once and used in every round.
#[derive(Default)]
struct Kept {
    columns: Option<(Columns, Vec<u32>)>,
    accesses: HashMap<(PathBuf, bool), limit::Accesses>,
    messages: HashMap<(PathBuf, usize), Vec<RecordBatch>>,
}

impl Kept {
    /// The columns that fill a file, and the slot of each put.
    fn columns(&mut self, held: usize) -> &(Columns, Vec<u32>) {
        if self.columns.as_ref().is_none_or(|(columns, _)| columns.len() != held) {
            let columns = Columns::new(held);
            let slots = limit::slots(&columns, files::geometry(held));
            self.columns = Some((columns, slots));
        }
        self.columns.as_ref().expect("made above")
    }

    fn answer(&mut self, question: &Question) -> Value {
        match question.text("op") {
            "touch_memory" => {
                let (took, touched) = timed(|| files::touch_memory(&question.path()));
                touched.expect("space on the disk");
                json!({"seconds": took.as_secs_f64()})
            }
            "put" => self.put(question),
            "put_one" => self.put_one(question),
            "put_limit" => self.put_limit(question),
            "select" => select(question),
            "select_one" => select_one(question),
            "select_limit" => self.select_limit(question),
            "select_cold" => select_cold(question),
            "select_serial" => select_serial(question),
            "log_write" => log_write(question),
            "log_scan" => log_scan(question),
            "log_read" => log_read(question),
            "log_put" => self.log_put(question),
            "log_put_each" => self.log_put_each(question),
            "log_resident" => log_resident(question),
            "evict" => {
                evict(&question.path());
                json!({})
            }
            other => segments::answer(other, question).unwrap_or_else(|| panic!("no such operation: {other:?}")),
        }
    }

    /// `prepared`, `kernel`, `batch`, `threads`: puts all rows into a new file, which remains if `keep` is true.
    fn put(&mut self, question: &Question) -> Value {
        let held = question.number("held");
        let (path, batch, threads) = (question.path(), question.number("batch"), question.number("threads"));
        let (columns, _) = self.columns(held);
        let file = calls::create(&path, held, question.flag("prepared"));
        let (took, taken) = match question.text("kernel") {
            "swar" => timed(|| calls::put_with(Kernel::Swar, &file, columns)),
            "sse2" => timed(|| calls::put_with(Kernel::Sse2, &file, columns)),
            _ => timed(|| calls::put(&file, columns, batch, threads)),
        };
        drop(file);
        if !question.flag("keep") {
            std::fs::remove_file(path).expect("ours");
        }
        json!({"seconds": took.as_secs_f64(), "taken": taken})
    }

    /// Puts all rows into a new file, one in each call.
    fn put_one(&mut self, question: &Question) -> Value {
        let held = question.number("held");
        let path = question.path();
        let (columns, _) = self.columns(held);
        let file = calls::create(&path, held, false);
        let (took, taken) = timed(|| calls::put_one_by_one(&file, columns));
        drop(file);
        std::fs::remove_file(path).expect("ours");
        json!({"seconds": took.as_secs_f64(), "taken": taken})
    }

    /// `prepared`: the accesses of the same puts into a new file.
    fn put_limit(&mut self, question: &Question) -> Value {
        let held = question.number("held");
        let path = question.path();
        let geometry = files::geometry(held);
        let mut map = limit::create(&path, geometry, question.flag("prepared"));
        let (columns, slots) = self.columns(held);
        let (took, ()) = timed(|| limit::put(&mut map, geometry, columns, slots));
        drop(map);
        std::fs::remove_file(path).expect("ours");
        json!({"seconds": took.as_secs_f64()})
    }

    /// `source`, `count`, `batch`: puts the first messages of a log into a new one, in batches.
    fn log_put(&mut self, question: &Question) -> Value {
        let (source, count) = (PathBuf::from(question.text("source")), question.number("count"));
        let messages =
            self.messages.entry((source, count)).or_insert_with_key(|(path, count)| log_put::read(path, *count));
        let (took, end) = log_put::put(&question.path(), messages, question.number("batch"));
        json!({"seconds": took.as_secs_f64(), "end": end})
    }

    /// `source`, `count`, and those of [`log_put::put_each`].
    fn log_put_each(&mut self, question: &Question) -> Value {
        let (source, count) = (PathBuf::from(question.text("source")), question.number("count"));
        let messages =
            self.messages.entry((source, count)).or_insert_with_key(|(path, count)| log_put::read(path, *count));
        let log_put::Latencies { messages, took, puts, rolls } = log_put::put_each(question, messages);
        json!({"messages": messages, "seconds": took.as_secs_f64(), "puts": puts, "rolls": rolls})
    }

    /// `asked`, `present`, `threads`: the accesses of the lookups of round 0.
    fn select_limit(&mut self, question: &Question) -> Value {
        let (held, present, path) = (question.number("held"), question.flag("present"), question.path());
        let accesses = self.accesses.entry((path, present)).or_insert_with_key(|(path, present)| {
            let keys = Keys::asked(held, question.number("asked"), 0, *present);
            limit::Accesses::of(path, files::geometry(held), keys.all())
        });
        let (took, ()) = timed(|| accesses.run(question.number("threads")));
        json!({"seconds": took.as_secs_f64(), "accesses": accesses.per_lookup()})
    }
}

fn answer_of(took: Duration, found: Found) -> Value {
    json!({"seconds": took.as_secs_f64(), "found": found.count, "sum": found.sum})
}

/// `asked`, `present`, `round`, `batch`, `max_num`, `threads`: lookups in a file whose pages are mapped.
fn select(question: &Question) -> Value {
    let held = question.number("held");
    let keys = Keys::asked(held, question.number("asked"), question.number("round") as u64, question.flag("present"));
    let file = files::open(&question.path(), held);
    let (batch, max_num, threads) = (question.number("batch"), question.number("max_num"), question.number("threads"));
    // The first pass maps the pages, as they are in a reader that stays open.
    calls::select(&file, keys.all(), batch, max_num, 1);
    let (took, found) = timed(|| calls::select(&file, keys.all(), batch, max_num, threads));
    answer_of(took, found)
}

/// `asked`, `present`, `round`, `max_num`: lookups, one in each call, in a file whose pages are mapped.
fn select_one(question: &Question) -> Value {
    let held = question.number("held");
    let keys = Keys::asked(held, question.number("asked"), question.number("round") as u64, question.flag("present"));
    let file = files::open(&question.path(), held);
    let max_num = question.number("max_num");
    calls::select_one_by_one(&file, &keys, max_num);
    let (took, found) = timed(|| calls::select_one_by_one(&file, &keys, max_num));
    answer_of(took, found)
}

/// `asked`, `round`, `batch`: lookups, one thread, in a file that is not in memory.
fn select_cold(question: &Question) -> Value {
    let held = question.number("held");
    let path = question.path();
    let keys = Keys::asked(held, question.number("asked"), question.number("round") as u64, true);
    evict(&path);
    let file = files::open(&path, held);
    let (took, found) = timed(|| calls::select(&file, keys.all(), question.number("batch"), 32, 1));
    answer_of(took, found)
}

/// `asked`, `round`: the reads of lookups, one after another, in a file that is not in memory and that is opened for random
/// reads.
fn select_serial(question: &Question) -> Value {
    let held = question.number("held");
    let path = question.path();
    let keys = Keys::asked(held, question.number("asked"), question.number("round") as u64, true);
    evict(&path);
    let (took, read) = timed(|| limit::read_serially(&path, files::geometry(held), keys.all()));
    json!({"seconds": took.as_secs_f64(), "accesses": read})
}

/// `files`, `file_len`, `body_len`: writes a commit log.
fn log_write(question: &Question) -> Value {
    let [files, file_len] = ["files", "file_len"].map(|name| question.number(name) as u64);
    let written = log::write(&question.path(), files, file_len, question.number("body_len"));
    json!({"messages": written.messages, "bytes": written.bytes})
}

/// `body`, `threads`: reads a commit log to record batches.
fn log_scan(question: &Question) -> Value {
    let columns = log::columns(question.flag("body"));
    let (took, scanned) = timed(|| log::scan(&question.path(), &columns, question.number("threads"), |_| {}));
    json!({"seconds": took.as_secs_f64(), "rows": scanned.rows, "sum": scanned.sum})
}

/// Reads the files of a commit log and adds up their words.
fn log_read(question: &Question) -> Value {
    let (took, sum) = timed(|| log::read(&question.path()));
    json!({"seconds": took.as_secs_f64(), "sum": sum})
}

/// `body`, `threads`, `messages`: MiB of memory after 10 %, 50 % and all of a scan.
fn log_resident(question: &Question) -> Value {
    let columns = log::columns(question.flag("body"));
    let (threads, messages) = (question.number("threads"), question.number("messages") as u64);
    json!({"mib": log::resident(&question.path(), &columns, threads, messages)})
}

#[cfg(target_os = "linux")]
fn evict(path: &Path) {
    files::evict(path).expect("a file of ours");
}

#[cfg(not(target_os = "linux"))]
fn evict(path: &Path) {
    panic!("{} cannot be evicted on this system", path.display());
}

fn main() {
    if std::env::args().nth(1).as_deref() != Some("serve") {
        println!("rounds: part of `make bench-report`, which starts it with `serve`");
        return;
    }
    let mut kept = Kept::default();
    for line in stdin().lock().lines() {
        let question = Question(serde_json::from_str(&line.expect("text")).expect("JSON"));
        let mut out = stdout().lock();
        writeln!(out, "{}", kept.answer(&question)).and_then(|()| out.flush()).expect("somebody listens");
    }
}
