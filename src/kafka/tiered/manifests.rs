//! The manifests that were read, so that each is read once.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use super::key_ring::DataKey;
use super::manifest::{Fault, Manifest};
use super::names::Object;
use crate::error::Result;
use crate::io::Location;
use crate::io::remote;
use crate::io::storage::{Status, read_file};

/// The manifests that were read.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    known: ArcSwap<HashMap<Location, (Status, Parsed)>>,
}

/// A manifest, and the key of its segment once it was decrypted.
#[derive(Debug)]
pub(super) struct Known {
    pub manifest: Manifest,
    pub data_key: OnceLock<Arc<DataKey>>,
}

type Parsed = Arc<std::result::Result<Arc<Known>, Fault>>;

impl Manifests {
    fn known(&self, object: &Object) -> Option<Parsed> {
        let known = self.known.load();
        let (status, manifest) = known.get(&object.path)?;
        is_same(status, &object.status).then(|| Arc::clone(manifest))
    }

    /// Takes note that these will be read.
    pub(super) fn expect<'a>(&self, objects: impl Iterator<Item = &'a Object>) {
        let unknown: Vec<Location> =
            objects.filter(|object| self.known(object).is_none()).map(|object| object.path.clone()).collect();
        remote::expect_heads(&unknown);
    }

    /// Reads a manifest.
    pub(super) fn read(&self, object: &Object) -> Result<Parsed> {
        if let Some(known) = self.known(object) {
            return Ok(known);
        }
        let parsed = Manifest::parse(&read_file(&object.path, None)?);
        let manifest: Parsed = Arc::new(parsed.map(|manifest| Arc::new(Known { manifest, data_key: OnceLock::new() })));
        self.known.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.insert(object.path.clone(), (object.status.clone(), Arc::clone(&manifest)));
            known
        });
        Ok(manifest)
    }
}

/// Returns whether two files are the same one, by their status.
fn is_same(one: &Status, other: &Status) -> bool {
    (one.len, &one.identity, one.modified) == (other.len, &other.identity, other.modified)
}
