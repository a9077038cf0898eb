//! A log directory, of both sides, as a tree of directories.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::key_ring::{KeyRing, pem_text};
use super::manifests::Manifests;
use super::names::{Layout, object_name, partition_number, split_uuid};
use super::partition::{Partition, Sides, newest, nothing_at, topic_id};
use super::remote_segment::{Part, RemoteSegment};
use crate::error::{Error, Result, unmarked};
use crate::io::location::locate;
use crate::io::mounts::{self, Content, Place, Tree};
use crate::io::remote::roots::{self, Options};
use crate::io::remote::{self, RemoteEntry};
use crate::io::storage::{self, Identity};
use crate::kafka::format::names::topic_partition;

/// The directory that `LocalTieredStorage` makes below the one of its setting.
const LOCAL_ROOT: &str = "kafka-tiered-storage";

/// Names of the options from which a tree is made again in another process.
const LOCAL: &str = "local";
const REMOTE: &str = "tiered";
const KEY: &str = "key.";
const STORAGE: &str = ".storage.";

/// Where the two sides of a log directory are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The broker's log directory; `None`: remote storage alone.
    pub local: Option<PathBuf>,
    /// Remote storage.
    pub remote: PathBuf,
}

/// Make the log directory of these two sides, and return its path. The keys are PEM texts or paths of files, by the name of
/// their key pair; "" is for all others.
///
/// # Errors
/// `InvalidArgument` for a directory that no known plugin wrote, and for a key that is none; an I/O error.
pub fn mount(location: &Location, keys: &[(String, String)]) -> Result<PathBuf> {
    let mut options = Options::new();
    for (name, path) in [(LOCAL, location.local.as_ref()), (REMOTE, Some(&location.remote))] {
        let Some(path) = path else { continue };
        let text = path.to_str().ok_or_else(|| Error::InvalidArgument(format!("{}: no UTF-8", path.display())))?;
        // A mark is valid in this process only.
        options.push((name.to_owned(), unmarked(text).into_owned()));
        options.extend(roots::options(path).into_iter().map(|(key, value)| (format!("{name}{STORAGE}{key}"), value)));
    }
    for (name, key) in keys {
        options.push((format!("{KEY}{name}"), pem_text(key)?));
    }
    options.sort();
    let named = location.local.as_ref().unwrap_or(&location.remote).file_name().unwrap_or_default().to_string_lossy();
    let name = if named.is_empty() { REMOTE } else { named.as_ref() };
    mounts::mount(name, &options, |root| TieredDirectory::open(root, location, options.clone()))
}

/// Mounts a log directory of another process in this one, and returns its path. The path of the other process has the options.
///
/// # Errors
/// As [`mount`].
pub fn remount(options: &Options) -> Result<PathBuf> {
    let side = |name: &str| {
        let path = options.iter().find(|(of, _)| of == name).map(|(_, path)| path)?;
        let storage = options
            .iter()
            .filter_map(|(of, value)| Some((of.strip_prefix(name)?.strip_prefix(STORAGE)?.to_owned(), value.clone())));
        let storage: Options = storage.collect();
        Some(locate(Path::new(path), Some(&storage).filter(|storage| !storage.is_empty())))
    };
    let remote = side(REMOTE).ok_or_else(|| Error::InvalidArgument(format!("{REMOTE}: no such option")))??;
    let keys = options.iter().filter_map(|(name, key)| Some((name.strip_prefix(KEY)?.to_owned(), key.clone())));
    mount(&Location { local: side(LOCAL).transpose()?, remote }, &keys.collect::<Vec<_>>())
}

/// Return whether a directory holds segments as a plugin stores them.
///
/// # Errors
/// An I/O error.
pub fn holds_segments(directory: &Path) -> Result<bool> {
    Ok(layout(directory)?.1.is_some())
}

/// Find the directory with the segments, and how they are stored; `None` if none is there.
fn layout(directory: &Path) -> Result<(PathBuf, Option<Layout>)> {
    for entry in storage::list(directory)? {
        let name = entry.name.to_string_lossy();
        if name == LOCAL_ROOT && entry.is_directory() {
            let below = layout(&entry.path)?;
            return Ok((below.0, below.1.or(Some(Layout::Local))));
        }
        let Some((prefix, _)) = split_uuid(&name).filter(|_| entry.is_directory()) else { continue };
        for below in storage::list(&entry.path)? {
            let name = below.name.to_string_lossy();
            if topic_partition(Path::new(prefix)).is_some() && object_name(&name).is_some() {
                return Ok((directory.to_owned(), Some(Layout::Local)));
            }
            let is_partition = partition_number(&name).is_some() && below.is_directory();
            if is_partition
                && storage::list(&below.path)?.iter().any(|file| object_name(&file.name.to_string_lossy()).is_some())
            {
                return Ok((directory.to_owned(), Some(Layout::Aiven)));
            }
        }
    }
    Ok((directory.to_owned(), None))
}

/// A log directory of two sides.
#[derive(Debug)]
struct TieredDirectory {
    root: PathBuf,
    local: Option<PathBuf>,
    remote: PathBuf,
    layout: Layout,
    keys: KeyRing,
    options: Options,
    manifests: Manifests,
    /// As they were listed last.
    partitions: ArcSwap<HashMap<String, Arc<Partition>>>,
}

impl TieredDirectory {
    fn open(root: &Path, location: &Location, options: Options) -> Result<Self> {
        let (remote, found) = layout(&location.remote)?;
        if found.is_none() && !storage::list(&remote)?.is_empty() {
            let text = format!(
                "{}: expected the remote storage of Kafka, with <topic>-<topicId>/<partition>/<offset>-<segmentId>.rsm-manifest \
                 (Aiven's plugin) or <topic>-<partition>-<topicId>/<offset>-<segmentId>.log (LocalTieredStorage); found neither",
                remote.display()
            );
            return Err(Error::InvalidArgument(text));
        }
        let keys = options.iter().filter_map(|(name, key)| Some((name.strip_prefix(KEY)?, key.as_str())));
        Ok(Self {
            root: root.to_owned(),
            local: location.local.clone(),
            remote,
            layout: found.unwrap_or(Layout::Aiven),
            keys: KeyRing::parse(keys)?,
            options,
            manifests: Manifests::default(),
            partitions: ArcSwap::default(),
        })
    }

    /// Return the names of the partitions in remote storage.
    fn remote_partitions(&self) -> Result<Vec<String>> {
        let directories: Vec<(String, PathBuf)> = storage::list(&self.remote)?
            .into_iter()
            .filter(storage::Entry::is_directory)
            .filter_map(|entry| Some((split_uuid(&entry.name.to_string_lossy())?.0.to_owned(), entry.path)))
            .collect();
        if self.layout == Layout::Local {
            let names = directories.into_iter().map(|(name, _)| name);
            return Ok(names.filter(|name| topic_partition(Path::new(name)).is_some()).collect());
        }
        let paths: Vec<PathBuf> = directories.iter().map(|(_, path)| path.clone()).collect();
        remote::expect_lists(&paths);
        let mut names = Vec::new();
        for (topic, path) in directories {
            let below = storage::list(&path)?;
            let numbers = below.iter().filter_map(|entry| partition_number(&entry.name.to_string_lossy()));
            names.extend(numbers.map(|number| format!("{topic}-{number}")));
        }
        Ok(names)
    }

    /// Find a partition by the name of its directory.
    fn sides<'a>(&self, name: &'a str) -> Result<Option<Sides<'a>>> {
        let Some((topic, number)) = topic_partition(Path::new(name)).and_then(|(topic, _)| {
            let number = partition_number(name.get(topic.len() + 1..)?)?;
            Some((name.get(..topic.len())?, number))
        }) else {
            return Ok(None);
        };
        let local = self.local.as_ref().map(|log_dir| log_dir.join(name)).filter(|path| storage::is_directory(path));
        let mut remote = Vec::new();
        for entry in storage::list(&self.remote)? {
            let text = entry.name.to_string_lossy();
            let Some((prefix, id)) = split_uuid(&text) else { continue };
            let path = match self.layout {
                Layout::Local if prefix == name => entry.path.clone(),
                Layout::Aiven if prefix == topic => entry.path.join(number.to_string()),
                Layout::Local | Layout::Aiven => continue,
            };
            if storage::is_directory(&path) {
                remote.push((id.to_owned(), path));
            }
        }
        // A topic that was created again has another id. The broker's disk has the new one.
        if let Some(id) = local.as_deref().and_then(topic_id) {
            remote.retain(|(of, _)| *of == id);
        } else if remote.len() > 1 {
            let last = remote.into_iter().max_by_key(|(_, path)| newest(path));
            remote = last.into_iter().collect();
        }
        if local.is_none() && remote.is_empty() {
            return Ok(None);
        }
        let remote = remote.into_iter().map(|(_, path)| path).collect();
        Ok(Some(Sides { topic, number, local, remote, layout: self.layout }))
    }

    /// List a partition; `None` if there is none of this name.
    fn read_partition(&self, name: &str) -> Result<Option<Arc<Partition>>> {
        let Some(sides) = self.sides(name)? else { return Ok(None) };
        let partition = Arc::new(Partition::join(&sides, &self.keys, &self.manifests)?);
        self.partitions.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.insert(name.to_owned(), Arc::clone(&partition));
            known
        });
        Ok(Some(partition))
    }

    /// A partition as it was listed last.
    fn known_partition(&self, name: &str) -> Result<Option<Arc<Partition>>> {
        match self.partitions.load().get(name) {
            Some(known) => Ok(Some(Arc::clone(known))),
            None => self.read_partition(name),
        }
    }

    /// Find a file of a partition in remote storage.
    fn remote_file(&self, path: &str) -> Result<Option<(Arc<RemoteSegment>, Part)>> {
        let Some((partition, name)) = path.split_once('/') else { return Ok(None) };
        Ok(self.known_partition(partition)?.and_then(|partition| partition.remote.get(name).cloned()))
    }

    fn local_file(&self, path: &str) -> Result<PathBuf> {
        self.local.as_ref().map(|log_dir| log_dir.join(path)).ok_or_else(|| nothing_at(&self.root.join(path)))
    }

    fn entry(&self, path: &str, segment: &RemoteSegment, part: Part) -> Place {
        let status = segment.log().map(|log| &log.status);
        let etag = match status.map(|status| &status.identity) {
            Some(Identity::Remote(tag)) => tag.clone(),
            Some(Identity::Local(identity)) => Some(format!("{identity:?}")),
            None => None,
        };
        let modified = status.and_then(|status| status.modified);
        Place::Here(RemoteEntry { path: self.root.join(path), len: segment.len(part), modified, etag })
    }

    fn directory(&self, path: &str) -> Place {
        let path = if path.is_empty() { self.root.clone() } else { self.root.join(path) };
        Place::Here(RemoteEntry { path, len: None, modified: None, etag: None })
    }
}

impl Tree for TieredDirectory {
    fn list(&self, directory: &str) -> Result<Vec<(String, Place)>> {
        if directory.is_empty() {
            let mut names = self.remote_partitions()?;
            let mut listed = Vec::new();
            for entry in self.local.as_deref().map(storage::list).transpose()?.unwrap_or_default() {
                let name = entry.name.to_string_lossy().into_owned();
                if topic_partition(Path::new(&name)).is_some() && entry.is_directory() {
                    names.push(name);
                } else {
                    listed.push((name, Place::Elsewhere(entry.path)));
                }
            }
            names.sort_unstable();
            names.dedup();
            listed.extend(names.into_iter().map(|name| {
                let place = self.directory(&name);
                (name, place)
            }));
            return Ok(listed);
        }
        let Some(partition) = self.read_partition(directory)? else {
            return Err(nothing_at(&self.root.join(directory)));
        };
        let local = partition.local.iter();
        let local =
            local.map(|entry| (entry.name.to_string_lossy().into_owned(), Place::Elsewhere(entry.path.clone())));
        let remote = partition.remote.iter();
        let remote = remote
            .map(|(name, (segment, part))| (name.clone(), self.entry(&format!("{directory}/{name}"), segment, *part)));
        Ok(local.chain(remote).collect())
    }

    fn find(&self, path: &str) -> Result<Place> {
        if path.is_empty() || (!path.contains('/') && self.sides(path)?.is_some()) {
            return Ok(self.directory(path));
        }
        match self.remote_file(path)? {
            Some((segment, part)) => Ok(self.entry(path, &segment, part)),
            None => self.local_file(path).map(Place::Elsewhere),
        }
    }

    fn content(&self, path: &str) -> Result<Content> {
        let Some((segment, part)) = self.remote_file(path)? else { return self.local_file(path).map(Content::Whole) };
        segment.content(part, &self.keys)?.ok_or_else(|| nothing_at(&self.root.join(path)))
    }

    fn missing(&self, directory: &str) -> Result<Vec<(String, String)>> {
        let partition = self.known_partition(directory)?;
        let lost = partition.iter().flat_map(|partition| &partition.lost);
        Ok(lost.map(|lost| (format!("{:020}.log", lost.base_offset), lost.found.clone())).collect())
    }

    fn options(&self) -> Options {
        self.options.clone()
    }
}
