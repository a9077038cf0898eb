//! The private keys of a user, and the data keys of segments that they decrypt.
//!
//! Each segment is encrypted with a key of its own: AES-256 in Galois/counter mode, each chunk with a nonce before it and a tag
//! after it. That key is in the manifest, encrypted with RSA-OAEP, whose hash is SHA3-512 for the message and for the mask. Source:
//! `AesEncryptionProvider`, `RsaEncryptionProvider`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rsa::pkcs1::DecodeRsaPrivateKey as _;
use rsa::pkcs8::DecodePrivateKey as _;
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPrivateKey};
use sha3::Sha3_512;

use super::manifest::{Encryption, Fault};
use crate::error::{Error, Result};
use crate::io::storage::read_file;

/// A part of each text that is a key, and not the path of one.
const PEM: &str = "-----BEGIN";

/// The private keys of key pairs, by their names.
#[derive(Default)]
pub struct KeyRing {
    /// The name "" stands for every key pair without a key of its own.
    keys: BTreeMap<String, RsaPrivateKey>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyRing").field(&self.keys.keys()).finish()
    }
}

/// Returns the text of a key: the text itself, or that of the file at this path.
///
/// # Errors
/// An I/O error.
pub(super) fn pem_text(key: &str) -> Result<String> {
    if key.contains(PEM) {
        return Ok(key.to_owned());
    }
    Ok(String::from_utf8_lossy(&read_file(&Path::new(key).into(), None)?).into_owned())
}

impl KeyRing {
    /// Parses private keys in PEM, each with the name of its key pair.
    ///
    /// # Errors
    /// `InvalidArgument` for a text that is not a private RSA key.
    pub fn parse<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let parse = |(name, pem): (&str, &str)| {
            let key = RsaPrivateKey::from_pkcs8_pem(pem).or_else(|_| RsaPrivateKey::from_pkcs1_pem(pem));
            key.map(|key| (name.to_owned(), key)).map_err(|_| {
                let of = if name.is_empty() { String::new() } else { format!(" of {name:?}") };
                let text = format!("the private key{of}: expected an RSA key in PEM, not encrypted by a password");
                Error::InvalidArgument(text)
            })
        };
        Ok(Self { keys: keys.into_iter().map(parse).collect::<Result<_>>()? })
    }

    /// Decrypt the data key of a segment, whose manifest is at this path.
    ///
    /// # Errors
    /// `InvalidArgument` if the key pair's private key is missing, or is another one.
    pub(super) fn data_key(&self, manifest: &Path, encryption: &Encryption) -> Result<DataKey> {
        let name = &encryption.key_id;
        let refuse = |found: &str| {
            let text = format!(
                "{}: the segment is encrypted with the key pair {name:?}; expected its private key in PEM \
                 (tiered_keys={{{name:?}: ...}}, --tiered-key {name}=FILE), found {found}",
                manifest.display()
            );
            Error::InvalidArgument(text)
        };
        let Some(private) = self.keys.get(name).or_else(|| self.keys.get("")) else {
            let names: Vec<&str> = self.keys.keys().map(String::as_str).collect();
            return Err(refuse(&if names.is_empty() {
                "no key".to_owned()
            } else {
                format!("only {}", names.join(", "))
            }));
        };
        // Blinded, because the time of the operation depends on the key.
        let key = private.decrypt_blinded(&mut OsRng, Oaep::new::<Sha3_512>(), &encryption.data_key);
        let key = key.ok().and_then(|key| UnboundKey::new(&AES_256_GCM, &key).ok());
        let key = key.ok_or_else(|| refuse("another key, or a damaged data key"))?;
        Ok(DataKey { key: LessSafeKey::new(key), aad: encryption.aad.clone() })
    }
}

/// The key of a segment.
pub(super) struct DataKey {
    key: LessSafeKey,
    aad: Vec<u8>,
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

/// Bytes of an encrypted chunk next to its content.
pub(super) const OVERHEAD: u64 = 12 + 16;

impl DataKey {
    /// Decrypt a chunk.
    pub(super) fn open(&self, mut chunk: Vec<u8>) -> std::result::Result<Vec<u8>, Fault> {
        let fault = |found: &str| ("a chunk that its key decrypts".to_owned(), found.to_owned());
        let (nonce, sealed) = chunk.split_at_mut_checked(NONCE_LEN).ok_or_else(|| fault("too few bytes"))?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| fault("too few bytes"))?;
        let len = self
            .key
            .open_in_place(nonce, Aad::from(&self.aad), sealed)
            .map_err(|_| fault("other bytes: its tag is wrong"))?
            .len();
        chunk.copy_within(NONCE_LEN..NONCE_LEN + len, 0);
        chunk.truncate(len);
        Ok(chunk)
    }
}
