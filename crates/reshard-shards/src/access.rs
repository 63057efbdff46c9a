//! The modes of new sets, and the owner of the directory in which one is written.

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
    /// The group that the source belongs to; none if there is no source.
    group: Option<u32>,
}

impl Default for Modes {
    /// Of a set that is made of nothing that has a mode.
    fn default() -> Self {
        Self { file: 0o666, directory: 0o777, group: None }
    }
}

impl Modes {
    /// No more than with every file of a source and with the directory that has them.
    pub fn of<'f>(path: &Path, directory: &impl AsFd, files: impl Iterator<Item = &'f File>) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::External, format!("{} cannot be looked at: {error}", path.display()))
        };
        let known = sys::fstat(directory).map_err(|error| failed(error.into()))?;
        let (mut directory, mut file) = (known.st_mode & 0o777, 0o666);
        for one in files {
            let one = one.metadata().map_err(failed)?;
            file &= one.mode();
            if one.gid() != known.st_gid {
                // No group is that of all of it.
                directory &= !0o070;
            }
        }
        // Who may not enter a directory reads no file in it, whatever the file's mode is.
        for class in [0o070, 0o007] {
            if directory & class & 0o011 == 0 {
                file &= !class;
            }
        }
        Ok(Self { file: file | 0o600, directory: directory | 0o700, group: Some(known.st_gid) })
    }

    /// The modes in a directory: where new files belong to another group than the source, that group gets no more than all others.
    pub fn within(self, directory: &OwnedFd) -> Self {
        let is_same =
            self.group.is_none_or(|group| sys::fstat(directory).is_ok_and(|known| known.st_gid == group));
        let as_others = |mode: u32| mode & !0o070 | mode & (mode & 0o007) << 3;
        match is_same {
            true => self,
            false => Self { file: as_others(self.file), directory: as_others(self.directory), ..self },
        }
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

/// Fails unless a directory that was there belongs to the user of this process, and no other user may write in it, as files could be put there,
/// and the set would be another user's in the end. One that `is_done` has the mode of a new set already, and is only read.
pub fn check_owner(directory: &OwnedFd, is_done: bool) -> std::result::Result<(), String> {
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
        _ if is_done => Ok(()),
        _ => Err(format!("has the mode {:o}, by which others may write in it", known.st_mode & 0o7777)),
    }
}
