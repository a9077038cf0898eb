//! A log directory, of both sides, as a tree of directories.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::key_ring::{KeyRing, pem_text};
use super::manifests::Manifests;
use super::names::{Layout, object_name, partition_number, split_uuid};
use super::partition::{Partition, Sides, newest, nothing_at, topic_id};
use super::remote_segment::{Part, RemoteSegment};
use crate::error::{Error, Result};
use crate::io::location::{Identity, Store};
use crate::io::remote::Objects;
use crate::io::storage::{self, Entry, Identity as FileIdentity, Kind, Status};
use crate::io::{Access, Content, FileSource, Location, remote};
use crate::kafka::format::names::topic_partition;

/// The directory that `LocalTieredStorage` makes below the one of its setting.
const LOCAL_ROOT: &str = "kafka-tiered-storage";

/// Of what a log directory is made: its two sides, and the keys of segments.
#[derive(Clone)]
pub struct Sources {
    /// The broker's log directory; `None`: remote storage alone.
    pub local: Option<Location>,
    /// Remote storage.
    pub remote: Location,
    /// Private keys as texts in PEM, by the names of their key pairs; "" is for all others.
    pub keys: Vec<(String, String)>,
}

/// Makes the log directory of these two sides. The keys may be paths of files as well.
///
/// # Errors
/// `InvalidArgument` for a directory that no known plugin wrote, and for an invalid key; an I/O error.
pub fn join(mut sources: Sources) -> Result<Location> {
    for (_, key) in &mut sources.keys {
        *key = pem_text(key)?;
    }
    let named = sources.local.as_ref().unwrap_or(&sources.remote).file_name().unwrap_or_default().to_string_lossy();
    let root = PathBuf::from(format!("tiered://{}", if named.is_empty() { "logs" } else { named.as_ref() }));
    Ok(Location::within(root.clone(), Arc::new(TieredDirectory::open(root, sources)?)))
}

/// Of what the log directory of a path is made, and the path below it; `None` for a path of another kind.
pub fn sources(path: &Location) -> Option<(&Sources, &Path)> {
    let joined = (path.store()?.as_ref() as &dyn Any).downcast_ref::<TieredDirectory>()?;
    Some((&joined.sources, path.strip_prefix(&joined.root).ok()?))
}

/// Returns whether a directory holds segments as a plugin stores them.
///
/// # Errors
/// An I/O error.
pub fn holds_segments(directory: &Location) -> Result<bool> {
    Ok(layout(directory)?.1.is_some())
}

/// Finds the directory with the segments, and how they are stored; `None` if none is there.
fn layout(directory: &Location) -> Result<(Location, Option<Layout>)> {
    for entry in storage::list(directory)? {
        let name = entry.name.to_string_lossy();
        if name == LOCAL_ROOT && entry.is_directory()? {
            let below = layout(&entry.path)?;
            return Ok((below.0, below.1.or(Some(Layout::Local))));
        }
        let Some((prefix, _)) = split_uuid(&name) else { continue };
        if !entry.is_directory()? {
            continue;
        }
        for below in storage::list(&entry.path)? {
            let name = below.name.to_string_lossy();
            if topic_partition(Path::new(prefix)).is_some() && object_name(&name).is_some() {
                return Ok((directory.to_owned(), Some(Layout::Local)));
            }
            let is_partition = partition_number(&name).is_some() && below.is_directory()?;
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
struct TieredDirectory {
    root: PathBuf,
    sources: Sources,
    /// The directory with the segments.
    remote: Location,
    layout: Layout,
    keys: KeyRing,
    identity: Identity,
    manifests: Manifests,
    /// As they were listed last.
    partitions: ArcSwap<HashMap<String, Arc<Partition>>>,
}

impl fmt::Debug for TieredDirectory {
    // The keys are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TieredDirectory").field(&self.root).finish()
    }
}

impl TieredDirectory {
    fn open(root: PathBuf, sources: Sources) -> Result<Self> {
        let (remote, found) = layout(&sources.remote)?;
        if found.is_none() && !storage::list(&remote)?.is_empty() {
            let text = format!(
                "{}: expected the remote storage of Kafka, with <topic>-<topicId>/<partition>/<offset>-<segmentId>.rsm-manifest \
                 (Aiven's plugin) or <topic>-<partition>-<topicId>/<offset>-<segmentId>.log (LocalTieredStorage); found neither",
                remote.display()
            );
            return Err(Error::InvalidArgument(text));
        }
        let local = sources.local.iter().flat_map(|local| local.options_as("local"));
        let keys = sources.keys.iter().map(|(name, key)| (format!("key.{name}"), key.clone()));
        let identity = Arc::new(local.chain(sources.remote.options_as("tiered")).chain(keys).collect());
        Ok(Self {
            root,
            remote,
            layout: found.unwrap_or(Layout::Aiven),
            keys: KeyRing::parse(sources.keys.iter().map(|(name, key)| (name.as_str(), key.as_str())))?,
            sources,
            identity,
            manifests: Manifests::default(),
            partitions: ArcSwap::default(),
        })
    }

    /// The path below the root.
    fn below<'a>(&self, path: &'a Location) -> Result<&'a str> {
        let below = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
        below.ok_or_else(|| nothing_at(path))
    }

    /// Returns the names of the partitions in remote storage.
    fn remote_partitions(&self) -> Result<Vec<String>> {
        let mut directories = Vec::new();
        for entry in storage::list(&self.remote)? {
            if let Some((name, _)) = split_uuid(&entry.name.to_string_lossy())
                && entry.is_directory()?
            {
                directories.push((name.to_owned(), entry.path));
            }
        }
        if self.layout == Layout::Local {
            let names = directories.into_iter().map(|(name, _)| name);
            return Ok(names.filter(|name| topic_partition(Path::new(name)).is_some()).collect());
        }
        remote::expect_lists(directories.iter().map(|(_, path)| path));
        let mut names = Vec::new();
        for (topic, path) in directories {
            let below = storage::list(&path)?;
            let numbers = below.iter().filter_map(|entry| partition_number(&entry.name.to_string_lossy()));
            names.extend(numbers.map(|number| format!("{topic}-{number}")));
        }
        Ok(names)
    }

    /// Finds a partition by the name of its directory.
    fn sides<'a>(&self, name: &'a str) -> Result<Option<Sides<'a>>> {
        let Some((topic, number)) = topic_partition(Path::new(name)).and_then(|(topic, _)| {
            let number = partition_number(name.get(topic.len() + 1..)?)?;
            Some((name.get(..topic.len())?, number))
        }) else {
            return Ok(None);
        };
        let local = match &self.sources.local {
            Some(log_dir) => storage::if_directory(log_dir.join(name))?,
            None => None,
        };
        let mut remote = Vec::new();
        for entry in storage::list(&self.remote)? {
            let text = entry.name.to_string_lossy();
            let Some((prefix, id)) = split_uuid(&text) else { continue };
            let path = match self.layout {
                Layout::Local if prefix == name => entry.path.clone(),
                Layout::Aiven if prefix == topic => entry.path.join(number.to_string()),
                Layout::Local | Layout::Aiven => continue,
            };
            if storage::is_directory(&path)? {
                remote.push((id.to_owned(), path));
            }
        }
        // A topic that was created again has another id. The broker's disk has the new one.
        if let Some(id) = local.as_ref().map_or(Ok(None), topic_id)? {
            remote.retain(|(of, _)| *of == id);
        } else if remote.len() > 1 {
            let aged = remote.into_iter().map(|each| Ok((newest(&each.1)?, each))).collect::<Result<Vec<_>>>()?;
            remote = aged.into_iter().max_by_key(|(changed, _)| *changed).map(|(_, each)| each).into_iter().collect();
        }
        if local.is_none() && remote.is_empty() {
            return Ok(None);
        }
        let remote = remote.into_iter().map(|(_, path)| path).collect();
        Ok(Some(Sides { topic, number, local, remote, layout: self.layout }))
    }

    /// Lists a partition; `None` if there is none of this name.
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

    /// Finds a file of a partition in remote storage.
    fn remote_file(&self, path: &str) -> Result<Option<(Arc<RemoteSegment>, Part)>> {
        let Some((partition, name)) = path.split_once('/') else { return Ok(None) };
        Ok(self.known_partition(partition)?.and_then(|partition| partition.remote.get(name).cloned()))
    }

    fn local_file(&self, path: &str) -> Result<Location> {
        let local = self.sources.local.as_ref().map(|log_dir| log_dir.join(path));
        local.ok_or_else(|| nothing_at(&self.root.join(path)))
    }
}

/// A file of a segment in remote storage.
fn file(segment: &RemoteSegment, part: Part) -> Status {
    let log = segment.log().map(|log| &log.status);
    let etag = match log.map(|log| &log.identity) {
        Some(FileIdentity::Remote(tag)) => tag.clone(),
        Some(FileIdentity::Local(identity)) => Some(format!("{identity:?}")),
        None => None,
    };
    let len = segment.len(part).unwrap_or_default();
    Status { kind: Kind::File, len, modified: log.and_then(|log| log.modified), identity: FileIdentity::Remote(etag) }
}

fn directory() -> Status {
    Status { kind: Kind::Directory, len: 0, modified: None, identity: FileIdentity::Remote(None) }
}

impl Store for TieredDirectory {
    fn list(&self, path: &Location) -> Result<Vec<Entry>> {
        let name = self.below(path)?;
        if name.is_empty() {
            let mut names = self.remote_partitions()?;
            let mut listed = Vec::new();
            for entry in self.sources.local.as_ref().map(storage::list).transpose()?.unwrap_or_default() {
                let name = entry.name.to_string_lossy().into_owned();
                if topic_partition(Path::new(&name)).is_some() && entry.is_directory()? {
                    names.push(name);
                } else {
                    listed.push(entry);
                }
            }
            names.sort_unstable();
            names.dedup();
            listed.extend(names.into_iter().map(|name| Entry::known(path.join(name), directory())));
            return Ok(listed);
        }
        let partition = self.read_partition(name)?.ok_or_else(|| nothing_at(path))?;
        let remote = partition.remote.iter();
        let remote = remote.map(|(name, (segment, part))| Entry::known(path.join(name), file(segment, *part)));
        Ok(partition.local.iter().cloned().chain(remote).collect())
    }

    fn status(&self, path: &Location) -> Result<Status> {
        let name = self.below(path)?;
        if name.is_empty() || (!name.contains('/') && self.sides(name)?.is_some()) {
            return Ok(directory());
        }
        match self.remote_file(name)? {
            Some((segment, part)) => Ok(file(&segment, part)),
            None => storage::status(&self.local_file(name)?),
        }
    }

    fn open(&self, path: &Location, access: Access) -> Result<FileSource> {
        let name = self.below(path)?;
        let content = match self.remote_file(name)? {
            Some((segment, part)) => segment.content(part, &self.keys)?.ok_or_else(|| nothing_at(path))?,
            None => Content::Whole(self.local_file(name)?),
        };
        FileSource::of(content, access)
    }

    fn missing(&self, directory: &Location) -> Result<Vec<(String, String)>> {
        let partition = self.known_partition(self.below(directory)?)?;
        let lost = partition.iter().flat_map(|partition| &partition.lost);
        Ok(lost.map(|lost| (format!("{:020}.log", lost.base_offset), lost.found.clone())).collect())
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn main(&self) -> Option<&Objects> {
        self.sources.remote.objects()
    }

    fn refresh(&self) {
        self.sources.local.iter().chain([&self.sources.remote]).for_each(Location::refresh);
    }
}
