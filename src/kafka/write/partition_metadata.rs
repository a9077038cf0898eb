//! `partition.metadata`: the id of the topic. Source: `PartitionMetadataFile`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::refusal::Refusal;
use crate::error::{Error, Result};
use crate::io::disk;

/// The name of the file.
pub(super) const FILE: &str = "partition.metadata";
/// Letters of an id: 16 bytes in URL-safe base64.
const ID_LEN: usize = 22;

fn is_id(id: &str) -> bool {
    id.len() == ID_LEN && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

fn check_id(id: &str) -> Result<()> {
    if is_id(id) {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!("topic_id={id:?}: expected {ID_LEN} letters of URL-safe base64")))
}

/// The id of a topic, and its file.
#[derive(Debug)]
pub(super) struct PartitionMetadata {
    path: PathBuf,
    pub(super) topic_id: Option<String>,
    is_written: bool,
}

impl PartitionMetadata {
    /// Reads the file of a partition.
    ///
    /// # Errors
    /// `Corrupt`; `Refused` if it has another id; `InvalidArgument` for an invalid id.
    pub(super) fn open(directory: &Path, topic_id: Option<String>) -> Result<Self> {
        let path = directory.join(FILE);
        if let Some(id) = &topic_id {
            check_id(id)?;
        }
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { path, topic_id, is_written: false });
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => String::new(),
            Err(error) => return Err(Error::io(&path, error)),
        };
        let found = text.strip_prefix("version: 0\ntopic_id: ").map(str::trim_end).filter(|id| is_id(id));
        let Some(found) = found else {
            let short: String = text.chars().take(60).collect();
            return Err(Error::corrupt(&path, 0, "version 0 and a topic id", format!("{short:?}")));
        };
        let mut metadata = Self { path, topic_id: Some(found.to_owned()), is_written: true };
        topic_id.map_or(Ok(()), |id| metadata.assign(id))?;
        Ok(metadata)
    }

    /// Sets the id, unless it is set.
    ///
    /// # Errors
    /// `Refused` if another one is set; `InvalidArgument` for an invalid id.
    pub(super) fn assign(&mut self, id: String) -> Result<()> {
        check_id(&id)?;
        match &self.topic_id {
            Some(found) if *found != id => {
                let text = format_args!("{}: topic id {found}, expected {id}", self.path.display()).to_string();
                Err(Refusal::INCONSISTENT_TOPIC_ID.because(text))
            }
            _ => {
                self.topic_id = Some(id);
                Ok(())
            }
        }
    }

    /// Writes the file if an id is known and it is not there.
    pub(super) fn write(&mut self) -> Result<()> {
        if let (Some(id), false) = (&self.topic_id, self.is_written) {
            disk::replace_file(&self.path, format!("version: 0\ntopic_id: {id}").as_bytes())?;
            self.is_written = true;
        }
        Ok(())
    }
}
