//! The end of a staging directory: it gets the destination's name, or is removed.

use super::{JOURNAL_NAME, Staging, durable, exists, exists_already, external, is_same};
use crate::access::Modes;
use reshard::Result;
use rustix::fs::{self as sys, AtFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};

impl Staging {
    /// Gives a staging directory that has all its files their name.
    pub fn finish(self) -> Result<()> {
        if !self.named {
            self.sync()?;
            self.rename()?;
        }
        let synced = durable(&self.parent);
        let given = synced.and_then(|()| self.give_mode());
        given.and_then(|()| self.remove_journals()).map_err(|error| {
            external(format!(
                "{} is complete, but its name could not be made durable, its mode given, or its journal removed: {error}{}",
                self.destination.display(),
                if self.resumable { "; run this again with --resume" } else { "" }
            ))
        })?;
        // Without a journal nothing is continued, so a manifest that is left says nothing.
        let removed = if self.file { self.remove() } else { Ok(()) };
        removed.map_err(|error| {
            external(format!(
                "{} is complete, but {} could not be removed: {error}; remove it",
                self.destination.display(),
                self.path().display()
            ))
        })
    }

    fn rename(&self) -> Result<()> {
        let Self { parent, directory, partial, name, .. } = self;
        let (from, old) = if self.file { (directory, name) } else { (parent, partial) };
        let flags = RenameFlags::NOREPLACE;
        let renamed = match retry_on_intr(|| sys::renameat_with(from, old, parent, name, flags)) {
            // A file system that cannot, as NFS.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if self.file => self.link(),
            // A directory takes the place of an empty one and of nothing else.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match exists(parent, name) {
                Ok(false) => retry_on_intr(|| sys::renameat(from, old, parent, name)),
                Ok(true) => Err(Errno::EXIST),
                Err(error) => Err(error),
            },
            done => done,
        };
        match renamed {
            Ok(()) => Ok(()),
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) if self.resumable => Err(external(format!(
                "{} exists already, and did not when this run began; what was written is in {}: remove the first and continue with \
                 --resume, or remove the second",
                self.destination.display(),
                self.path().display()
            ))),
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {
                let _ = self.remove();
                Err(exists_already(&self.destination))
            }
            Err(error) if self.file => {
                let name = self.name();
                let what = format!("is whole, and cannot be given the name {}", self.destination.display());
                Err(self.failed(&name, &what, &error.into()))
            }
            Err(error) => Err(self.failed("", "cannot be given its name", &error.into())),
        }
    }

    /// Gives the file its name by a link, which never replaces anything, and takes the old name away.
    fn link(&self) -> rustix::io::Result<()> {
        let Self { parent, directory, name, .. } = self;
        match retry_on_intr(|| sys::linkat(directory, name, parent, name, AtFlags::empty())) {
            // Over a network the answer to a call may be lost, and the call made again.
            Err(Errno::EXIST) if is_same(directory, parent, name) => {}
            done => done?,
        }
        retry_on_intr(|| sys::unlinkat(directory, name, AtFlags::empty()))
    }

    /// Removes it, with everything in it: what went wrong will go wrong again.
    pub fn discard(self) {
        if !self.named {
            let _ = self.remove();
        }
    }

    /// Removes the directory.
    pub(super) fn remove(&self) -> rustix::io::Result<()> {
        self.clear();
        retry_on_intr(|| sys::unlinkat(&self.parent, &self.partial, AtFlags::REMOVEDIR))
    }

    /// Removes everything in it, the leader's journal last.
    pub(super) fn clear(&self) {
        let mut names = self.names().unwrap_or_default();
        names.sort_by_key(|name| name.to_bytes() == JOURNAL_NAME.as_bytes());
        for name in names {
            let _ = retry_on_intr(|| sys::unlinkat(&self.directory, &name, AtFlags::empty()));
        }
    }

    /// Removes the leader's journal last: as long as it is there, somebody may continue.
    fn remove_journals(&self) -> rustix::io::Result<()> {
        let others = self.other_journals()?;
        for name in others.iter().map(|name| &name[..]).chain([JOURNAL_NAME]) {
            match retry_on_intr(|| sys::unlinkat(&self.directory, name, AtFlags::empty())) {
                Ok(()) | Err(Errno::NOENT) => {}
                failed => return failed,
            }
        }
        Ok(())
    }

    /// Gives the destination the mode that it is to have, if it is a directory: until then it is its owner's alone.
    fn give_mode(&self) -> rustix::io::Result<()> {
        match sys::statat(&self.directory, JOURNAL_NAME, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(journal) if !self.file => Modes::give(&self.directory, journal.st_mode),
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
