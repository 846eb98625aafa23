//! The shared key, which signs messages.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a signature.
pub(super) const MAC: usize = 32;
/// Shortest key that is taken from a file.
const SHORTEST: usize = 16;

/// A secret that signs messages (HMAC-SHA256). Never shown.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Reason why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or made.
    #[error("cannot read the key {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Others can read it.
    #[error("the key {0} can be read by others")]
    Open(PathBuf),
    /// It is short enough to be guessed.
    #[error("the key {0} is shorter than {SHORTEST} bytes")]
    Short(PathBuf),
}

impl Key {
    /// A key of these bytes.
    pub fn new(bytes: &[u8]) -> Key {
        // HMAC takes keys of any length; other constructions of the trait do not.
        Key(Hmac::new_from_slice(bytes).expect("HMAC takes keys of any length"))
    }

    /// Reads the key in a file that only its owner can read.
    ///
    /// # Errors
    /// If there is none, if others can read it, or if it is too short.
    pub fn read(path: &Path) -> Result<Key, KeyError> {
        let fail = |source| KeyError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.mode() & 0o077 != 0 {
            return Err(KeyError::Open(path.to_owned()));
        }
        let mut bytes = Vec::new();
        (&mut file)
            .take(4096)
            .read_to_end(&mut bytes)
            .map_err(fail)?;
        let trimmed = bytes.trim_ascii_end();
        if trimmed.len() < SHORTEST {
            return Err(KeyError::Short(path.to_owned()));
        }
        Ok(Key::new(trimmed))
    }

    /// Makes a file with a new key; `false`: there is a file already.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(path: &Path) -> Result<bool, KeyError> {
        let fail = |source| KeyError::Io {
            path: path.to_owned(),
            source,
        };
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let mut file = match created {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(fail(error)),
        };
        let hex: String = random::<32>()
            .map_err(fail)?
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        file.write_all(format!("{hex}\n").as_bytes())
            .map_err(fail)?;
        Ok(true)
    }

    /// The signature of some bytes.
    pub(super) fn sign(&self, parts: &[&[u8]]) -> [u8; MAC] {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// True if `signature` is of these bytes; takes the same time wherever they differ.
    pub(super) fn verifies(&self, bytes: &[u8], signature: &[u8]) -> bool {
        let mut mac = self.0.clone();
        mac.update(bytes);
        mac.verify_slice(signature).is_ok()
    }

    /// A key for one purpose, derived from this one.
    pub(super) fn derived(&self, parts: &[&[u8]]) -> Key {
        Key::new(&self.sign(parts))
    }
}

/// Random bytes of the system.
///
/// # Errors
/// When the system has none.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_from_others() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert!(Key::make(&path).unwrap());
        assert!(!Key::make(&path).unwrap());
        let key = Key::read(&path).unwrap();
        assert!(key.verifies(b"ab", &key.sign(&[b"a", b"b"])));
        assert!(!key.verifies(b"ac", &key.sign(&[b"ab"])));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Key::read(&path), Err(KeyError::Open(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short\n").unwrap();
        assert!(matches!(Key::read(&path), Err(KeyError::Short(_))));
    }

    /// RFC 4231, test case 2.
    #[test]
    fn signatures_are_hmac_sha256() {
        let signature = Key::new(b"Jefe").sign(&[b"what do ya want for nothing?"]);
        assert_eq!(signature[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    }
}
