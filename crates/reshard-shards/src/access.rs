//! Who may read what is written, and whose directory it is written in.

use reshard::{Error, ErrorKind, Result};
use rustix::fs::{self as sys, Mode};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What group and others may do with a new set, before the umask takes some of it away; its owner reads and writes it.
#[derive(Clone, Copy)]
pub struct Modes {
    pub file: u32,
    pub directory: u32,
}

impl Default for Modes {
    /// Of a set that is made of nothing that has a mode.
    fn default() -> Self {
        Self { file: 0o666, directory: 0o777 }
    }
}

impl Modes {
    /// No more than with every file of a source and with the directory that has them.
    pub fn of<'f>(path: &Path, directory: &impl AsFd, files: impl Iterator<Item = &'f File>) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::External, format!("{} cannot be looked at: {error}", path.display()))
        };
        let directory = sys::fstat(directory).map_err(|error| failed(error.into()))?.st_mode & 0o777;
        let mut file = 0o666;
        for one in files {
            file &= one.metadata().map_err(failed)?.mode();
        }
        // Who may not enter a directory reads no file in it, whatever the file's mode is.
        for class in [0o070, 0o007] {
            if directory & class & 0o011 == 0 {
                file &= !class;
            }
        }
        Ok(Self { file: file | 0o600, directory: directory | 0o700 })
    }

    /// Gives a directory a mode.
    pub fn give(directory: &OwnedFd, wanted: u32) -> rustix::io::Result<()> {
        let now = sys::fstat(directory)?.st_mode & 0o7000;
        let mode = Mode::from_raw_mode(now | wanted & 0o777 | 0o700);
        match retry_on_intr(|| sys::fchmod(directory, mode)) {
            // A file system without modes, or one that gives its own.
            Err(Errno::PERM | Errno::NOSYS | Errno::NOTSUP) => Ok(()),
            done => done,
        }
    }
}

/// Fails unless a directory that was there is of the user who runs this, and nobody else may write in it: whoever may could put files there, or
/// own the set in the end.
pub fn check_owner(directory: &OwnedFd) -> std::result::Result<(), String> {
    let known = sys::fstat(directory).map_err(|error| format!("cannot be looked at: {error}"))?;
    let user = rustix::process::geteuid().as_raw();
    if known.st_uid != user {
        return Err(format!(
            "belongs to another user, number {}, and this one has number {user}",
            known.st_uid
        ));
    }
    match known.st_mode & 0o022 {
        0 => Ok(()),
        _ => Err(format!("has the mode {:o}, by which others may write in it", known.st_mode & 0o7777)),
    }
}
