//! Objects that jobs write: each is there as a whole or not at all, and nothing is renamed.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use futures_util::{TryStreamExt as _, stream};
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion};

use super::client::Session;
use super::failure::Failure;
use super::objects::Objects;
use crate::error::{Error, Result};

/// Bytes of a part. A file of at most this many is one request.
const PART: usize = 16 << 20;
/// Parts of a file that are sent at the same time.
const MOST_PARTS: usize = 4;

/// Writes a small object. `replaces`: the `ETag` of the object that it replaces; `None`: there must be none.
///
/// A store that cannot compare replaces whatever is there.
///
/// # Errors
/// `AlreadyExists` if the object at the path is another one; errors of the store, with the path.
pub fn put(store: &Objects, path: &Path, content: Vec<u8>, replaces: Option<String>) -> Result<()> {
    let mode = match replaces {
        None => PutMode::Create,
        Some(etag) => PutMode::Update(UpdateVersion { e_tag: Some(etag), version: None }),
    };
    let payload = PutPayload::from(content);
    written(store, path, |session, key| {
        session.wait(async {
            let asked = session.connection.put_opts(&key, payload.clone(), PutOptions::from(mode));
            let put = match session.within(asked).await? {
                Err(object_store::Error::NotImplemented { .. }) => {
                    session.within(session.connection.put(&key, payload)).await?
                }
                put => put,
            };
            put.map(|_| ()).map_err(|e| session.failure(&e))
        })?
    })
}

/// Writes an object, whatever is there. Returns its `ETag`.
///
/// # Errors
/// Errors of the store, with the path.
pub fn replace(store: &Objects, path: &Path, content: Bytes) -> Result<Option<String>> {
    let mut etag = None;
    written(store, path, |session, key| {
        let put = session.wait(session.within(session.connection.put(&key, content.into())))??;
        etag = put.map_err(|e| session.failure(&e))?.e_tag;
        Ok(())
    })?;
    Ok(etag)
}

/// Copies a local file to an object.
///
/// # Errors
/// An I/O error with the path of the file; errors of the store, with the path of the object.
pub fn upload(file: &Path, store: &Objects, path: &Path) -> Result<()> {
    let mut content = File::open(file).map_err(|e| Error::io(file, e))?;
    let mut next = || -> Result<Bytes> {
        let mut part = Vec::with_capacity(PART);
        content.by_ref().take(PART as u64).read_to_end(&mut part).map_err(|e| Error::io(file, e))?;
        Ok(part.into())
    };
    let first = next()?;
    let fail = |e: io::Error| Error::io(path, e);
    let session = store.session().map_err(fail)?;
    let key = session.key(path).map_err(|e| fail(e.into()))?;
    let failed = |failure: Failure| Error::io(path, failure.into());
    let mut begun = None;
    let sent = session.wait(async {
        if first.len() < PART {
            let put = session.within(session.connection.put(&key, first.into())).await.map_err(failed)?;
            return put.map(|_| ()).map_err(|e| failed(session.failure(&e)));
        }
        send_parts(&session, &key, first, &mut next, &mut begun, &failed).await
    });
    session.forget_listings();
    sent.unwrap_or_else(|interrupted| {
        if let Some(mut upload) = begun {
            session.client.runtime.spawn(async move { upload.abort().await });
        }
        Err(failed(interrupted))
    })
}

/// Sends a file in parts; the object is there after the last call.
async fn send_parts(
    session: &Session,
    key: &Key,
    first: Bytes,
    next: &mut (dyn FnMut() -> Result<Bytes> + Send),
    begun: &mut Option<Box<dyn MultipartUpload>>,
    failed: &(dyn Fn(Failure) -> Error + Sync),
) -> Result<()> {
    let refused = |e: object_store::Error| failed(session.failure(&e));
    let upload = session.within(session.connection.put_multipart(key)).await.map_err(failed)?.map_err(refused)?;
    let upload = begun.insert(upload);
    let mut sending = FuturesUnordered::new();
    let mut part = first;
    let sent = async {
        while !part.is_empty() {
            if sending.len() >= MOST_PARTS
                && let Some(sent) = sending.next().await
            {
                let sent: std::result::Result<object_store::Result<()>, Failure> = sent;
                sent.map_err(failed)?.map_err(refused)?;
            }
            sending.push(session.within(upload.put_part(part.into())));
            part = next()?;
        }
        while let Some(sent) = sending.next().await {
            sent.map_err(failed)?.map_err(refused)?;
        }
        Ok(())
    }
    .await;
    let done = match sent {
        Ok(()) => session.within(upload.complete()).await.map_err(failed).and_then(|done| done.map_err(refused)),
        Err(error) => Err(error),
    };
    if done.is_err() {
        // Parts that stay cost money. The first error counts.
        _ = session.within(upload.abort()).await;
    }
    done.map(|_| ())
}

/// Deletes an object, or all objects below a directory. What is not there is deleted already.
///
/// # Errors
/// `InvalidInput` for the root of a store, because all its objects would be deleted; errors of the store, with the path.
pub fn delete(store: &Objects, path: &Path) -> Result<()> {
    written(store, path, |session, key| {
        if key.as_ref().is_empty() {
            return Err(Failure::input(
                "expected an object or a directory, found the root of a store: nothing was deleted",
            ));
        }
        let refused = |e: object_store::Error| session.failure(&e);
        session.wait(async {
            let below: Vec<Key> = session
                .within(session.connection.list(Some(&key)).map_ok(|object| object.location).try_collect())
                .await?
                .map_err(refused)?;
            let deleted =
                session.connection.delete_stream(stream::iter(below.into_iter().chain([key]).map(Ok)).boxed());
            let each = deleted.map(|deleted| match deleted {
                Err(object_store::Error::NotFound { .. }) | Ok(_) => Ok(()),
                Err(error) => Err(error),
            });
            session.within(each.try_collect::<Vec<()>>()).await?.map(|_| ()).map_err(refused)
        })?
    })
}

/// Calls what changes a store, and forgets what was listed.
fn written(
    store: &Objects,
    path: &Path,
    call: impl FnOnce(&Session, Key) -> std::result::Result<(), Failure>,
) -> Result<()> {
    let io = |e: io::Error| Error::io(path, e);
    let session = store.session().map_err(io)?;
    let done = session.key(path).and_then(|key| call(&session, key)).map_err(|failure| io(failure.into()));
    session.forget_listings();
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_a_store_is_not_deleted() {
        let names = ["a", "b/c"];
        let files = names.map(|name| (name.to_owned(), Bytes::from_static(b"bytes")));
        let store = Objects::in_memory(files).unwrap();
        let at = |name: &str| Path::new(store.root()).join(name);
        let refused = delete(&store, Path::new(store.root())).unwrap_err().to_string();
        assert!(refused.contains("found the root of a store"), "{refused}");
        let left = |name: &str| store.read_whole(&at(name), 100, &[]).map(|(_, bytes)| bytes);
        assert_eq!(names.map(|name| left(name).unwrap()), ["bytes"; 2]);
        delete(&store, &at("b")).unwrap();
        assert!(left("b/c").unwrap_err().to_string().contains("no such object"));
        assert_eq!(left("a").unwrap(), "bytes");
    }
}
