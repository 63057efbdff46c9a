//! Where two jobs find each other: by a file that the producer writes, or at an address that both know.

use crate::greeting::SessionId;
use crate::private_file::{WrittenFile, read_private, wrong};
use crate::secret::Secret;
use reshard::Result;
use serde::{Deserialize, Serialize};
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
    #[serde(default)]
    address: String,
    #[serde(default)]
    session: String,
    #[serde(default)]
    secret: String,
    /// Of producers that meet over MPI.
    #[serde(default, skip_serializing)]
    port: Option<String>,
}

/// The version of the file.
pub const FILE_VERSION: u32 = 1;

/// Writes the file of a producer that listens.
pub fn write_file(path: &Path, address: &str, session: &SessionId, secret: &Secret) -> Result<WrittenFile> {
    WrittenFile::write(path, print(address, session, secret))
}

/// The text of the file of a producer that listens.
pub fn print(address: &str, session: &SessionId, secret: &Secret) -> String {
    let (address, session, secret) = (address.into(), hex(session), secret.to_hex());
    let written = Written { reshard: FILE_VERSION, address, session, secret, port: None };
    serde_json::to_string(&written).expect("texts and numbers") + "\n"
}

/// A session in hexadecimal digits.
pub fn hex(session: &SessionId) -> String {
    session.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a meeting file; none if it is not there yet.
pub fn read_file(path: &Path) -> Result<Option<Invitation>> {
    let Some(text) = read_private(path)? else { return Ok(None) };
    parse(&text).map(Some).map_err(|why| wrong(path, &why))
}

/// Reads the text of a meeting file. The error says what is wrong with it.
pub fn parse(text: &str) -> std::result::Result<Invitation, String> {
    let written: Written =
        serde_json::from_str(text).map_err(|error| format!("is not one that a producer wrote: {error}"))?;
    check_version(written.reshard)?;
    if written.port.is_some() {
        return Err(
            "is of a producer that meets over MPI, and here it is to be TCP; let both meet the same way"
                .into(),
        );
    }
    match Secret::from_hex(&written.secret) {
        Some(secret) => Ok(Invitation { address: written.address, secret }),
        None => Err("has no secret in it".into()),
    }
}

/// Fails if a file has another version.
pub fn check_version(version: u32) -> std::result::Result<(), String> {
    match version {
        FILE_VERSION => Ok(()),
        _ => Err(format!("has version {version}, and this reshard reads version {FILE_VERSION}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_are_read_as_they_are_written() {
        let folder = std::env::temp_dir().join(format!("reshard-meeting-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("run.meet");
        assert!(read_file(&path).unwrap().is_none());
        let secret = Secret::random().unwrap();
        let written = write_file(&path, "127.0.0.1:5", &[3; 16], &secret).unwrap();
        let read = read_file(&path).unwrap().unwrap();
        assert_eq!((read.address.as_str(), &read.secret), ("127.0.0.1:5", &secret));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            let said = read_file(&path).unwrap_err().to_string();
            assert!(said.contains("644"), "{said}");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        // Another producer's is left alone.
        let other = write_file(&path, "127.0.0.1:6", &[4; 16], &secret).unwrap();
        drop(written);
        assert_eq!(read_file(&path).unwrap().unwrap().address, "127.0.0.1:6");
        drop(other);
        assert!(read_file(&path).unwrap().is_none());
        for wrong in [
            "",
            "{}",
            "no json",
            r#"{"reshard":1}"#,
            r#"{"reshard":1,"port":"here"}"#,
            r#"{"reshard":2,"address":"","session":"","secret":""}"#,
        ] {
            fs::write(&path, wrong).unwrap();
            #[cfg(unix)]
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            assert!(read_file(&path).is_err(), "{wrong}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
