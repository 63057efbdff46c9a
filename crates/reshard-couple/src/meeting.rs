//! Where two jobs find each other: by a file that the producer writes, or at an address that both know.

use crate::greeting::SessionId;
use crate::secret::Secret;
use reshard::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Where two jobs find each other.
///
/// ```
/// use reshard_couple::{Meeting, Secret};
/// let by_file = Meeting::file("run.meet"); // the producer writes it
/// let secret = Secret::new("at least 16 bytes, the same in both jobs")?;
/// let by_address = Meeting::At { address: "localhost:7777".into(), secret };
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Meeting {
    /// A file that the producer writes and the consumer waits for. It carries address and secret, so only its owner may read it.
    File(PathBuf),
    /// An address, `HOST:PORT`, at which the producer listens; both know the secret.
    At {
        /// `HOST:PORT`, also `[::1]:PORT`.
        address: String,
        /// The secret.
        secret: Secret,
    },
    /// Both programs are of one world of MPI, which carries the data: see [`in_world`](Self::in_world).
    #[cfg(feature = "mpi")]
    World {
        /// The world.
        world: crate::world::World,
        /// The other program.
        partner: String,
    },
}

impl Meeting {
    /// A file that the producer writes and the consumer waits for.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File(path.into())
    }

    /// Another program of the same world of MPI, by its name.
    #[cfg(feature = "mpi")]
    pub fn in_world(world: &crate::world::World, partner: &str) -> Self {
        Self::World { world: world.clone(), partner: partner.into() }
    }

    /// An address that both know, and the secret in the environment variable `RESHARD_SECRET`.
    pub fn at(address: impl Into<String>) -> Result<Self> {
        Ok(Self::At { address: address.into(), secret: Secret::from_environment()? })
    }
}

/// What a consumer must know to come.
#[derive(Clone, Debug)]
pub struct Invitation {
    pub address: String,
    pub secret: Secret,
}

/// As it stands in the file.
#[derive(Serialize, Deserialize)]
struct Written {
    reshard: u32,
    address: String,
    session: String,
    secret: String,
}

/// The version of the file.
const FILE_VERSION: u32 = 1;

/// A longer file is none of ours.
const MAX_FILE_BYTES: u64 = 4096;

/// A meeting file that this process wrote. It is removed when this is dropped, if it is still the same.
pub struct WrittenFile {
    path: PathBuf,
    text: String,
}

impl WrittenFile {
    /// Writes the file at once, whole, readable by its owner alone.
    pub fn write(path: &Path, address: &str, session: &SessionId, secret: &Secret) -> Result<Self> {
        let session = session.iter().map(|byte| format!("{byte:02x}")).collect();
        let written =
            Written { reshard: FILE_VERSION, address: address.into(), session, secret: secret.to_hex() };
        let text = serde_json::to_string(&written).expect("texts and numbers") + "\n";
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let failed = |error: std::io::Error| {
            let _ = fs::remove_file(&beside);
            Error::new(
                ErrorKind::External,
                format!("the meeting file {} cannot be written: {error}", path.display()),
            )
        };
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&beside).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, path)).map_err(failed)?;
        Ok(Self { path: path.into(), text })
    }
}

impl Drop for WrittenFile {
    fn drop(&mut self) {
        // Another producer may have written its own there.
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads a meeting file; none if it is not there yet.
pub fn read_file(path: &Path) -> Result<Option<Invitation>> {
    let wrong = |why: String| {
        Err(Error::new(ErrorKind::External, format!("the meeting file {} {why}", path.display())))
    };
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return wrong(unreadable(error)),
    };
    // Of the file that was opened, whatever its name stands for by now.
    let meta = match file.metadata() {
        Ok(meta) => meta,
        Err(error) => return wrong(unreadable(error)),
    };
    if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
        return wrong("is not one that a producer wrote".into());
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if meta.mode() & 0o077 != 0 {
            return wrong(format!(
                "may be read by others (its mode is {:o}), and it carries a secret; let the producer write it anew",
                meta.mode() & 0o777
            ));
        }
        // Whose this process is; where that cannot be known, the mode must do.
        let own = fs::metadata("/proc/self").map(|own| own.uid());
        if own.is_ok_and(|own| own != meta.uid()) {
            return wrong("belongs to another user".into());
        }
    }
    let mut text = String::new();
    if let Err(error) = file.take(MAX_FILE_BYTES).read_to_string(&mut text) {
        return wrong(unreadable(error));
    }
    let written: Written = match serde_json::from_str(&text) {
        Ok(written) => written,
        Err(error) => return wrong(format!("is not one that a producer wrote: {error}")),
    };
    if written.reshard != FILE_VERSION {
        return wrong(format!(
            "has version {}, and this reshard reads version {FILE_VERSION}",
            written.reshard
        ));
    }
    match Secret::from_hex(&written.secret) {
        Some(secret) => Ok(Some(Invitation { address: written.address, secret })),
        None => wrong("has no secret in it".into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_they_are_written() {
        let folder = std::env::temp_dir().join(format!("reshard-meeting-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("run.meet");
        assert!(read_file(&path).unwrap().is_none());
        let secret = Secret::random().unwrap();
        let written = WrittenFile::write(&path, "127.0.0.1:5", &[3; 16], &secret).unwrap();
        let read = read_file(&path).unwrap().unwrap();
        assert_eq!((read.address.as_str(), &read.secret), ("127.0.0.1:5", &secret));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            assert!(read_file(&path).unwrap_err().to_string().contains("644"));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        // Another producer's is left alone.
        let other = WrittenFile::write(&path, "127.0.0.1:6", &[4; 16], &secret).unwrap();
        drop(written);
        assert_eq!(read_file(&path).unwrap().unwrap().address, "127.0.0.1:6");
        drop(other);
        assert!(read_file(&path).unwrap().is_none());
        for wrong in ["", "{}", "no json", r#"{"reshard":2,"address":"","session":"","secret":""}"#] {
            fs::write(&path, wrong).unwrap();
            #[cfg(unix)]
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            assert!(read_file(&path).is_err(), "{wrong}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
