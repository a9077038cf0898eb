//! Objects that jobs write: each is there as a whole or not at all, and nothing is renamed.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use futures_util::{TryStreamExt as _, stream};
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion};

use super::client::{Client, client};
use super::failure::{Failure, within};
use super::roots::Options;
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
pub fn put(path: &Path, content: Vec<u8>, replaces: Option<String>) -> Result<()> {
    let mode = match replaces {
        None => PutMode::Create,
        Some(etag) => PutMode::Update(UpdateVersion { e_tag: Some(etag), version: None }),
    };
    let payload = PutPayload::from(content);
    written(path, |client| {
        let (store, key, options) = client.store(path)?;
        client.wait(path, async {
            let asked = store.put_opts(&key, payload.clone(), PutOptions::from(mode));
            let put = match within(&options, asked).await? {
                Err(object_store::Error::NotImplemented { .. }) => within(&options, store.put(&key, payload)).await?,
                put => put,
            };
            put.map(|_| ()).map_err(|e| Failure::of(&e, &options))
        })?
    })
}

/// Writes an object, whatever is there. Returns its `ETag`.
///
/// # Errors
/// Errors of the store, with the path.
pub fn replace(path: &Path, content: Bytes) -> Result<Option<String>> {
    let mut etag = None;
    written(path, |client| {
        let (store, key, options) = client.store(path)?;
        let put = client.wait(path, within(&options, store.put(&key, content.into())))??;
        etag = put.map_err(|e| Failure::of(&e, &options))?.e_tag;
        Ok(())
    })?;
    Ok(etag)
}

/// Copies a local file to an object.
///
/// # Errors
/// An I/O error with the path of the file; errors of the store, with the path of the object.
pub fn upload(file: &Path, path: &Path) -> Result<()> {
    let mut content = File::open(file).map_err(|e| Error::io(file, e))?;
    let mut next = || -> Result<Bytes> {
        let mut part = Vec::with_capacity(PART);
        content.by_ref().take(PART as u64).read_to_end(&mut part).map_err(|e| Error::io(file, e))?;
        Ok(part.into())
    };
    let first = next()?;
    let store = |e: io::Error| Error::io(path, e);
    let client = client().map_err(store)?;
    let (to, key, options) = client.store(path).map_err(|e| store(e.into()))?;
    let failed = |failure: Failure| Error::io(path, failure.into());
    let mut begun = None;
    let sent = client.wait(path, async {
        if first.len() < PART {
            let put = within(&options, to.put(&key, first.into())).await.map_err(failed)?;
            return put.map(|_| ()).map_err(|e| failed(Failure::of(&e, &options)));
        }
        send_parts(to.as_ref(), &key, &options, first, &mut next, &mut begun, &failed).await
    });
    client.forget_listings();
    sent.unwrap_or_else(|interrupted| {
        if let Some(mut upload) = begun {
            client.runtime.spawn(async move { upload.abort().await });
        }
        Err(failed(interrupted))
    })
}

/// Sends a file in parts; the object is there after the last call.
async fn send_parts(
    store: &dyn ObjectStore,
    key: &Key,
    options: &Options,
    first: Bytes,
    next: &mut (dyn FnMut() -> Result<Bytes> + Send),
    begun: &mut Option<Box<dyn MultipartUpload>>,
    failed: &(dyn Fn(Failure) -> Error + Sync),
) -> Result<()> {
    let refused = |e: object_store::Error| failed(Failure::of(&e, options));
    let upload = within(options, store.put_multipart(key)).await.map_err(failed)?.map_err(refused)?;
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
            sending.push(within(options, upload.put_part(part.into())));
            part = next()?;
        }
        while let Some(sent) = sending.next().await {
            sent.map_err(failed)?.map_err(refused)?;
        }
        Ok(())
    }
    .await;
    let done = match sent {
        Ok(()) => within(options, upload.complete()).await.map_err(failed).and_then(|done| done.map_err(refused)),
        Err(error) => Err(error),
    };
    if done.is_err() {
        // Parts that stay cost money. The first error counts.
        _ = within(options, upload.abort()).await;
    }
    done.map(|_| ())
}

/// Deletes an object, or all objects below a directory. What is not there is deleted already.
///
/// # Errors
/// `InvalidInput` for the root of a store, because all its objects would be deleted; errors of the store, with the path.
pub fn delete(path: &Path) -> Result<()> {
    written(path, |client| {
        let (store, key, options) = client.store(path)?;
        if key.as_ref().is_empty() {
            return Err(Failure::input(
                "expected an object or a directory, found the root of a store: nothing was deleted",
            ));
        }
        let refused = |e: object_store::Error| Failure::of(&e, &options);
        client.wait(path, async {
            let below: Vec<Key> =
                within(&options, store.list(Some(&key)).map_ok(|object| object.location).try_collect())
                    .await?
                    .map_err(refused)?;
            let deleted = store.delete_stream(stream::iter(below.into_iter().chain([key]).map(Ok)).boxed());
            let each = deleted.map(|deleted| match deleted {
                Err(object_store::Error::NotFound { .. }) | Ok(_) => Ok(()),
                Err(error) => Err(error),
            });
            within(&options, each.try_collect::<Vec<()>>()).await?.map(|_| ()).map_err(refused)
        })?
    })
}

/// Calls what changes a store, and forgets what was listed.
fn written(path: &Path, call: impl FnOnce(&Client) -> std::result::Result<(), Failure>) -> Result<()> {
    let client = client().map_err(|e| Error::io(path, e))?;
    let done = call(&client).map_err(|failure| Error::io(path, failure.into()));
    client.forget_listings();
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::remote::memory::MemoryFiles;

    #[test]
    fn the_root_of_a_store_is_not_deleted() {
        let names = ["a", "b/c"];
        let files = MemoryFiles::keep(names.map(|name| (name.to_owned(), Bytes::from_static(b"bytes")))).unwrap();
        for root in [files.path(""), files.path("a").parent().unwrap().to_owned()] {
            let refused = delete(&root).unwrap_err().to_string();
            assert!(refused.contains("found the root of a store"), "{refused}");
        }
        let left = |name: &str| client().unwrap().read_whole(&files.path(name), 100, &[]).map(|(_, bytes)| bytes);
        assert_eq!(names.map(|name| left(name).unwrap()), ["bytes"; 2]);
        delete(&files.path("b")).unwrap();
        assert_eq!(left("b/c").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(left("a").unwrap(), "bytes");
    }
}
