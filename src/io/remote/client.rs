//! The runtime of the process, its connections, and the requests that are made on them.
//!
//! Requests that fail for a moment are repeated by the `object_store` crate with growing pauses; a body that breaks off is
//! requested again here. All of it ends with the deadline of the options.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::path::Path as Key;
use object_store::{GetOptions, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt as _};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::failure::{Failure, MOST_DEADLINES, deadline, hidden, late, within};
use super::file_system::{self, FileSystem};
use super::machines;
use super::object::{Object, RemoteEntry};
use super::url::Options;
use crate::io::fork::Generation;
use crate::io::{signals, usize_of};

/// Requests in flight.
const MOST_REQUESTS: usize = 16;
/// The number of further requests for a body that broke off.
const MOST_BODIES: u32 = 5;
/// Listings of a directory that is empty in its own listing but present in the listing of its parent.
const MOST_LISTS: u32 = 3;
/// The time for which a listing is used. Opening a store lists the same directories several times.
const LISTING_HOLDS: Duration = Duration::from_secs(10);

/// Connections by URL and options.
type Connections = HashMap<(String, Arc<Options>), Arc<dyn ObjectStore>>;

/// The client of a process. A process that was forked makes its own, as threads and connections stay with the parent.
pub(super) struct Client {
    process: Generation,
    pub(super) runtime: Runtime,
    /// Callers with the same URL and options may share a connection.
    connections: Mutex<Connections>,
    requests: Arc<Semaphore>,
}

/// The place of the objects of a store.
pub(super) enum Source {
    /// On other machines, at the URL that is the root.
    Machine,
    /// In memory.
    Memory(Arc<dyn ObjectStore>),
    /// In a file system that a caller brings, in this process.
    Caller(Generation, Arc<dyn FileSystem>),
}

/// A store in this process: a connection, and what was listed.
pub(super) struct Session {
    pub(super) client: Arc<Client>,
    root: String,
    options: Arc<Options>,
    pub(super) connection: Arc<dyn ObjectStore>,
    /// The file system of a caller, whose calls may need a lock that this thread has.
    caller: Option<Arc<dyn FileSystem>>,
    is_machine: bool,
    /// Each listing with its time, and whether it has an object with the directory's own name.
    listings: Mutex<HashMap<PathBuf, (Instant, Listing, bool)>>,
    /// Listings that were started.
    coming: Mutex<Vec<JoinHandle<()>>>,
    /// Reads of whole objects that were started, with their times. The next read of the object takes the result.
    coming_objects: Mutex<HashMap<PathBuf, (Instant, JoinHandle<Whole>)>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.client.is_of_this_process() {
            // The runtime of the tasks is not here.
            std::mem::forget((std::mem::take(&mut self.coming), std::mem::take(&mut self.coming_objects)));
        }
    }
}

type Listing = Arc<Vec<RemoteEntry>>;

/// An object with all its bytes.
type Whole = Result<(RemoteEntry, Bytes), Failure>;

/// The facts about a path in the listings.
enum Known {
    /// The entries of the directory; empty: there is no directory.
    Listed(Listing),
    /// A name in the listing of its directory.
    Entry(RemoteEntry),
    /// It is not there.
    None,
}

fn none() -> Failure {
    Failure { kind: io::ErrorKind::NotFound, text: "no such file or directory".to_owned() }
}

static CLIENT: ArcSwapOption<Client> = ArcSwapOption::const_empty();

/// Returns the client of this process.
pub(super) fn client() -> io::Result<Arc<Client>> {
    let process = Generation::current();
    let held = CLIENT.load_full();
    if let Some(client) = held.as_ref().filter(|client| client.process == process) {
        return Ok(Arc::clone(client));
    }
    let new = Arc::new(Client::new(process)?);
    let before = CLIENT.compare_and_swap(&held, Some(Arc::clone(&new)));
    match before.as_ref() {
        // Another thread was faster.
        Some(other) if other.process == process => Ok(Arc::clone(other)),
        _ => {
            // The parent's threads are not here, so its runtime cannot be shut down.
            std::mem::forget(held);
            Ok(new)
        }
    }
}

impl Client {
    fn new(process: Generation) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("logdex-remote")
            .enable_all()
            .build()?;
        Ok(Self { process, runtime, connections: Mutex::default(), requests: Arc::new(Semaphore::new(MOST_REQUESTS)) })
    }

    /// Returns whether this process made it, so that its runtime is here.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// The connection to a store of another machine.
    fn connection(&self, url: &str, options: &Arc<Options>) -> Result<Arc<dyn ObjectStore>, Failure> {
        let mut connections = lock(&self.connections);
        let key = (url.to_owned(), Arc::clone(options));
        if let Some(connection) = connections.get(&key) {
            return Ok(Arc::clone(connection));
        }
        // HDFS's client starts tasks when it is made.
        let _guard = self.runtime.enter();
        let connection = machines::connect(url, options)?;
        connections.insert(key, Arc::clone(&connection));
        Ok(connection)
    }
}

impl Session {
    /// Begins to use a store in this process.
    pub(super) fn new(
        client: Arc<Client>,
        root: &str,
        options: &Arc<Options>,
        source: &Source,
    ) -> Result<Self, Failure> {
        let (connection, caller) = match source {
            Source::Machine => (client.connection(root, options)?, None),
            Source::Memory(files) => (Arc::clone(files), None),
            Source::Caller(process, ..) if !process.is_current() => {
                // Its connections and threads stayed with the parent.
                let text = "expected a file system of this process, found one from before a fork; open it again with filesystem=";
                return Err(Failure { kind: io::ErrorKind::NotFound, text: text.to_owned() });
            }
            Source::Caller(_, files) => {
                (Arc::new(file_system::Store(Arc::clone(files))) as Arc<dyn ObjectStore>, Some(Arc::clone(files)))
            }
        };
        Ok(Self {
            client,
            root: root.to_owned(),
            options: Arc::clone(options),
            connection,
            caller,
            is_machine: matches!(source, Source::Machine),
            listings: Mutex::default(),
            coming: Mutex::default(),
            coming_objects: Mutex::default(),
        })
    }

    /// Returns whether the store has directories of its own, which may be empty; in others only objects have names.
    fn has_directories(&self) -> bool {
        self.root.starts_with("hdfs:")
    }

    /// Returns whether the store has only objects, so that no directory can be empty.
    fn has_objects_only(&self) -> bool {
        self.root.starts_with("s3") || self.root.starts_with("gs")
    }

    /// The error of a request.
    pub(super) fn failure(&self, error: &object_store::Error) -> Failure {
        Failure::of(error, &self.options)
    }

    /// Waits for an answer, but not for ever.
    pub(super) async fn within<T>(
        &self,
        answer: impl Future<Output = object_store::Result<T>>,
    ) -> Result<object_store::Result<T>, Failure> {
        within(&self.options, answer).await
    }

    /// Waits for responses, and checks for signals meanwhile.
    pub(super) fn wait<F: Future<Output: Send> + Send>(&self, answer: F) -> Result<F::Output, Failure> {
        let interrupted = |error: io::Error| Failure::other(error.to_string());
        let mut answer = std::pin::pin!(answer);
        signals::ended().map_err(interrupted)?;
        loop {
            // A handler runs outside the runtime, because it may make a call that waits.
            let part = async { tokio::time::timeout(signals::LOOK, answer.as_mut()).await };
            match file_system::waiting(self.caller.as_deref(), || self.client.runtime.block_on(part)) {
                Ok(answer) => return Ok(answer),
                Err(_) => signals::look().map_err(interrupted)?,
            }
        }
    }

    /// The key of a path.
    pub(super) fn key(&self, path: &Path) -> Result<Key, Failure> {
        let key = path.to_str().and_then(|text| text.strip_prefix(&self.root));
        let key = key.ok_or_else(|| Failure::other("expected a URL in UTF-8"))?;
        Key::parse(key).map_err(|e| Failure::input(e.to_string()))
    }

    /// Lists a directory.
    pub(super) fn list(&self, directory: &Path) -> io::Result<Listing> {
        let is_directory = match self.known(directory) {
            Some(Known::Listed(listing)) if !listing.is_empty() => return Ok(listing),
            Some(Known::None) => return Err(none().into()),
            Some(Known::Entry(entry)) => entry.len.is_none(),
            Some(Known::Listed(_)) | None => false,
        };
        let listing = match self.held_listing(directory) {
            Some(listing) => listing,
            None => self.ask_list(directory)?,
        };
        if listing.is_empty() && is_directory && self.has_objects_only() && !self.is_marked(directory) {
            return self.ask_again(directory);
        }
        // Nothing is listed below a path that is not there.
        if listing.is_empty() && !is_directory && !self.is_empty_directory(directory)? {
            return Err(none().into());
        }
        Ok(listing)
    }

    fn ask_list(&self, directory: &Path) -> io::Result<Listing> {
        let prefix = self.key(directory)?;
        let listed = self.wait(async {
            let _permit = self.client.requests.acquire().await;
            self.within(self.connection.list_with_delimiter(Some(&prefix))).await
        })?;
        Ok(self.keep_listed(directory, &prefix, &listed?.map_err(|e| self.failure(&e))?))
    }

    /// Lists a directory again if its listing is empty although its parent lists it. One of the listings is wrong, or the
    /// last object was deleted between them.
    fn ask_again(&self, directory: &Path) -> io::Result<Listing> {
        let key = self.key(directory)?;
        let mut above: Vec<_> = key.parts().collect();
        above.pop();
        let above: Key = above.into_iter().collect();
        for _ in 0..MOST_LISTS {
            let ask = |key| self.wait(self.within(self.connection.list_with_delimiter(Some(key))));
            let listed = ask(&key)??.map_err(|e| self.failure(&e))?;
            if !(listed.objects.is_empty() && listed.common_prefixes.is_empty()) {
                return Ok(self.keep_listed(directory, &key, &listed));
            }
            let above = ask(&above)??.map_err(|e| self.failure(&e))?;
            if !above.common_prefixes.contains(&key) {
                return Err(none().into());
            }
        }
        let text = "expected objects, because the parent directory lists this one; its own listing is empty";
        Err(Failure::other(text).into())
    }

    /// Returns whether a path below which nothing is listed is a directory, from the listing of the one above. That listing is not
    /// kept, because most often the path is not there, and what is next to it may not be there yet.
    fn is_empty_directory(&self, path: &Path) -> io::Result<bool> {
        if !self.has_directories() {
            return Ok(false);
        }
        let key = self.key(path)?;
        let mut above: Vec<_> = key.parts().collect();
        if above.pop().is_none() {
            return Ok(true);
        }
        let above: Key = above.into_iter().collect();
        let listed = self.wait(self.within(self.connection.list_with_delimiter(Some(&above))))??;
        Ok(listed.map_err(|e| self.failure(&e))?.common_prefixes.contains(&key))
    }

    /// Begins to list directories. Errors are left to [`Self::list`].
    pub(super) fn begin_lists(self: &Arc<Self>, directories: Vec<PathBuf>) {
        let session = Arc::clone(self);
        let task = self.client.runtime.spawn(async move { session.list_all(&directories).await });
        lock(&self.coming).push(task);
    }

    /// Waits for the listings that were begun.
    fn finish_lists(&self) {
        let coming = std::mem::take(&mut *lock(&self.coming));
        for task in coming {
            // A task that failed kept nothing.
            _ = self.wait(task);
        }
    }

    async fn list_all(&self, directories: &[PathBuf]) {
        let asked = directories.iter().filter(|directory| self.said(directory).is_none()).filter_map(|directory| {
            let prefix = self.key(directory).ok()?;
            Some(async move {
                let _permit = self.client.requests.acquire().await;
                let listed = self.within(self.connection.list_with_delimiter(Some(&prefix))).await;
                (directory, prefix, listed)
            })
        });
        for (directory, prefix, listed) in futures_util::future::join_all(asked).await {
            if let Ok(Ok(listed)) = listed {
                self.keep_listed(directory, &prefix, &listed);
            }
        }
    }

    /// Begins to read a whole object, for the next [`Session::read_whole`] of it.
    pub(super) fn begin_whole(self: &Arc<Self>, path: PathBuf, most: u64) {
        let (session, object) = (Arc::clone(self), path.clone());
        let task = self.client.runtime.spawn(async move { session.whole(&object, most).await });
        lock(&self.coming_objects).insert(path, (Instant::now(), task));
    }

    /// Reads a whole object with one request, and lists directories at the same time.
    pub(super) fn read_whole(
        &self,
        path: &Path,
        most: u64,
        directories: &[PathBuf],
    ) -> io::Result<(RemoteEntry, Bytes)> {
        let begun = lock(&self.coming_objects).remove(path);
        let read = async {
            match begun {
                Some((_, task)) => task.await.map_err(|e| Failure::other(e.to_string()))?,
                None => self.whole(path, most).await,
            }
        };
        let (read, ()) = self.wait(futures_util::future::join(read, self.list_all(directories)))?;
        Ok(read?)
    }

    async fn whole(&self, path: &Path, most: u64) -> Whole {
        let key = self.key(path)?;
        let _permit = self.client.requests.acquire().await;
        let mut round = 0;
        loop {
            round += 1;
            let answer = self.within(self.connection.get(&key)).await?.map_err(|e| self.failure(&e))?;
            let found = entry(path.to_owned(), &answer.meta);
            if answer.meta.size > most {
                let text = format!("expected at most {most} bytes, found {}", answer.meta.size);
                return Err(Failure { kind: io::ErrorKind::InvalidData, text });
            }
            match self.within(answer.bytes()).await? {
                Ok(bytes) if Some(bytes.len() as u64) == found.len => return Ok((found, bytes)),
                Err(error) if round >= MOST_BODIES => return Err(self.failure(&error)),
                Ok(_) if round >= MOST_BODIES => return Err(Failure::other("a body that is too short")),
                _ => tokio::time::sleep(Duration::from_millis(50 << round)).await,
            }
        }
    }

    /// Keeps what a directory holds; also that there is none.
    fn keep_listed(&self, directory: &Path, prefix: &Key, listed: &ListResult) -> Listing {
        let directories = listed.common_prefixes.iter().filter_map(|prefix| {
            let path = directory.join(prefix.filename()?);
            Some(RemoteEntry { path, len: None, modified: None, etag: None })
        });
        // The mark of a directory is an object with the directory's own name.
        let files = listed.objects.iter().filter(|object| object.location != *prefix);
        let files = files.filter_map(|object| Some(entry(directory.join(object.location.filename()?), object)));
        let entries: Vec<RemoteEntry> = directories.chain(files).collect();
        self.keep_listing(directory.to_owned(), entries, listed.objects.iter().any(|object| object.location == *prefix))
    }

    fn keep_listing(&self, directory: PathBuf, mut entries: Vec<RemoteEntry>, is_marked: bool) -> Listing {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let listing = Arc::new(entries);
        let mut listings = lock(&self.listings);
        listings.retain(|_, (since, ..)| since.elapsed() < LISTING_HOLDS);
        listings.insert(directory, (Instant::now(), Arc::clone(&listing), is_marked));
        listing
    }

    /// Lists a directory with all below it.
    pub(super) fn list_tree(&self, directory: &Path) -> io::Result<()> {
        if self.has_directories() {
            self.list_levels(directory);
            return Ok(());
        }
        let prefix = self.key(directory)?;
        let objects: Vec<ObjectMeta> = self
            .wait(self.within(self.connection.list(Some(&prefix)).try_collect()))??
            .map_err(|e: object_store::Error| self.failure(&e))?;
        let mut listings: HashMap<PathBuf, HashMap<PathBuf, RemoteEntry>> = HashMap::new();
        for object in &objects {
            let Some(parts) = object.location.prefix_match(&prefix) else { continue };
            let mut path = directory.to_owned();
            let mut parts = parts.peekable();
            while let Some(part) = parts.next() {
                let parent = path.clone();
                path.push(part.as_ref());
                let found = match parts.peek() {
                    None => entry(path.clone(), object),
                    Some(_) => RemoteEntry { path: path.clone(), len: None, modified: None, etag: None },
                };
                listings.entry(parent).or_default().entry(path.clone()).or_insert(found);
            }
        }
        for (directory, entries) in listings {
            self.keep_listing(directory, entries.into_values().collect(), false);
        }
        Ok(())
    }

    /// Lists directories level by level, each level together, so that empty directories are seen.
    fn list_levels(&self, directory: &Path) {
        let mut level = vec![directory.to_owned()];
        while !level.is_empty() {
            if self.wait(self.list_all(&level)).is_err() {
                return;
            }
            let listings: Vec<Listing> = level.iter().filter_map(|directory| self.held_listing(directory)).collect();
            let below = listings.iter().flat_map(|listing| listing.iter()).filter(|entry| entry.len.is_none());
            level = below.map(|entry| entry.path.clone()).collect();
        }
    }

    fn held_listing(&self, directory: &Path) -> Option<Listing> {
        let listings = lock(&self.listings);
        listings
            .get(directory)
            .filter(|(since, ..)| since.elapsed() < LISTING_HOLDS)
            .map(|(_, listing, _)| Arc::clone(listing))
    }

    /// Returns whether the directory exists because of an object with its own name.
    fn is_marked(&self, directory: &Path) -> bool {
        lock(&self.listings).get(directory).is_some_and(|(.., is_marked)| *is_marked)
    }

    /// Returns the facts about a path in the listings: its own, that of its directory, or that of one above. Those that come are waited
    /// for only if the others do not have it.
    fn known(&self, path: &Path) -> Option<Known> {
        let found = self.said(path);
        if matches!(&found, Some(Known::Listed(listing)) if listing.is_empty()) || found.is_none() {
            self.finish_lists();
            return self.said(path);
        }
        found
    }

    fn said(&self, path: &Path) -> Option<Known> {
        let own = self.held_listing(path);
        if let Some(listing) = own.as_ref().filter(|listing| !listing.is_empty()) {
            return Some(Known::Listed(Arc::clone(listing)));
        }
        let mut below = path;
        while let Some(above) = below.parent() {
            if let Some(listing) = self.held_listing(above) {
                let found = listing.binary_search_by(|entry| entry.path.as_path().cmp(below));
                return match found.ok().and_then(|number| listing.get(number)) {
                    None => Some(Known::None),
                    Some(entry) => (below == path).then(|| Known::Entry(entry.clone())),
                };
            }
            below = above;
        }
        own.map(Known::Listed)
    }

    /// Describes what is at a path: from the listing of its directory if there is one; else by a request for a file, then for
    /// what is below.
    pub(super) fn status(&self, path: &Path) -> io::Result<RemoteEntry> {
        let directory = || RemoteEntry { path: path.to_owned(), len: None, modified: None, etag: None };
        match self.known(path) {
            Some(Known::Listed(listing)) if !listing.is_empty() => return Ok(directory()),
            Some(Known::Entry(entry)) => return Ok(entry),
            Some(Known::None) => return Err(none().into()),
            // It holds nothing, but may be a file.
            Some(Known::Listed(_)) | None => {}
        }
        let key = self.key(path)?;
        if !key.as_ref().is_empty() {
            match self.wait(self.within(self.connection.head(&key)))?? {
                // Directories of Azure's hierarchical namespace are objects without bytes.
                Ok(object) if !(object.size == 0 && self.list(path).is_ok()) => {
                    return Ok(entry(path.to_owned(), &object));
                }
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failure(&error).into()),
            }
        }
        self.list(path).map(|_| directory())
    }

    /// Forgets all that was listed: this process wrote.
    pub(super) fn forget_listings(&self) {
        for task in std::mem::take(&mut *lock(&self.coming)) {
            task.abort();
        }
        lock(&self.coming_objects).clear();
        lock(&self.listings).clear();
    }

    /// Forgets what was listed before the last second, so that a store that is opened again is seen as it is now.
    pub(super) fn refresh(&self) {
        let is_new = |since: &Instant| since.elapsed() < Duration::from_secs(1);
        lock(&self.listings).retain(|_, (since, ..)| is_new(since));
        lock(&self.coming_objects).retain(|_, (since, task)| is_new(since) || !task.is_finished());
    }

    /// A request for a range of an object, to be run on the runtime.
    pub(super) fn fetch(
        &self,
        object: &Object,
        range: Range<u64>,
    ) -> Result<impl Future<Output = Result<Bytes, Failure>> + Send + 'static, Failure> {
        let key = self.key(&object.path)?;
        let (store, options) = (Arc::clone(&self.connection), Arc::clone(&self.options));
        let requests = Arc::clone(&self.client.requests);
        let identity = (object.len, object.etag.clone(), object.modified_ms, !self.is_machine);
        Ok(async move {
            let deadline = deadline(&options)?;
            let mut begun = None;
            let mut round = 0;
            loop {
                round += 1;
                let permit = requests.acquire().await;
                // Not while it waits in line.
                let begun = *begun.get_or_insert_with(Instant::now);
                let most = deadline * MOST_DEADLINES;
                let asked = get(store.as_ref(), &key, range.clone(), &identity, &options);
                let got = tokio::time::timeout(most, asked).await.unwrap_or_else(|_| Err(Broken::Refused(late(most))));
                drop(permit);
                match got {
                    Err(Broken::Body(_)) if round < MOST_BODIES && begun.elapsed() < deadline => {
                        tokio::time::sleep(Duration::from_millis(50 << round)).await;
                    }
                    Err(Broken::Body(failure) | Broken::Refused(failure)) => return Err(failure),
                    Ok(bytes) => return Ok(bytes),
                }
            }
        })
    }
}

enum Broken {
    /// The answer came, but not its whole body.
    Body(Failure),
    Refused(Failure),
}

/// Requests a range of an object that must be the one that was opened.
async fn get(
    store: &dyn ObjectStore,
    key: &Key,
    range: Range<u64>,
    (len, etag, modified_ms, is_own): &(u64, Option<String>, Option<u128>, bool),
    options: &Options,
) -> Result<Bytes, Broken> {
    let changed = |found: &str| {
        let text = format!("expected the object as it was when it was opened, {len} bytes; found {found}");
        Broken::Refused(Failure { kind: io::ErrorKind::StaleNetworkFileHandle, text: hidden(&text, options) })
    };
    let asked = GetOptions { range: Some(range.clone().into()), if_match: etag.clone(), ..GetOptions::default() };
    let answer = match store.get_opts(key, asked).await {
        Ok(answer) => answer,
        Err(object_store::Error::Precondition { .. }) => return Err(changed("another one")),
        Err(object_store::Error::NotFound { .. }) => return Err(changed("none")),
        Err(error) => return Err(Broken::Refused(Failure::of(&error, options))),
    };
    let found = &answer.meta;
    if found.size != *len {
        return Err(changed(&format!("{} bytes", found.size)));
    }
    let is_other = match (etag, &found.e_tag, modified_ms, milliseconds(found)) {
        (Some(expected), Some(found), ..) => expected != found,
        // A server may send an `ETag` only in listings, or only in responses.
        (.., Some(expected), Some(found)) => !is_same_time(*expected, found),
        // The caller's file system may have no times.
        _ if *is_own || (etag.is_none() && modified_ms.is_none()) => false,
        _ => {
            return Err(changed(
                "an answer with neither its ETag nor its Last-Modified, so that a change could not be detected",
            ));
        }
    };
    if is_other {
        return Err(changed("another one"));
    }
    let wanted = usize_of(range.end - range.start);
    match answer.bytes().await {
        Ok(bytes) if bytes.len() == wanted => Ok(bytes),
        Ok(bytes) => Err(Broken::Body(Failure::other(format!(
            "expected {wanted} bytes at byte {}, got {}",
            range.start,
            bytes.len()
        )))),
        Err(error) => Err(Broken::Body(Failure::of(&error, options))),
    }
}

/// Returns the time of an object. If the server sends none, the crate has 1970.
fn modified(object: &ObjectMeta) -> Option<SystemTime> {
    Some(SystemTime::from(object.last_modified)).filter(|time| *time != UNIX_EPOCH)
}

fn milliseconds(object: &ObjectMeta) -> Option<u128> {
    modified(object)?.duration_since(UNIX_EPOCH).ok().map(|since| since.as_millis())
}

/// Returns whether two times are the same. Times in response headers are whole seconds; times in listings may be finer.
fn is_same_time(one: u128, other: u128) -> bool {
    one == other || (one / 1000 == other / 1000 && (one.is_multiple_of(1000) || other.is_multiple_of(1000)))
}

fn entry(path: PathBuf, object: &ObjectMeta) -> RemoteEntry {
    RemoteEntry { path, len: Some(object.size), modified: modified(object), etag: object.e_tag.as_deref().map(quoted) }
}

/// Returns an `ETag` as answers have it: Azure lists them without quotes.
fn quoted(etag: &str) -> String {
    if etag.starts_with("0x") { format!("\"{etag}\"") } else { etag.to_owned() }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
