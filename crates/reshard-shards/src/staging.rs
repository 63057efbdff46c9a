//! How a set comes to be: its files are written in a directory beside it, made durable, and then take the destination's name at once. So
//! the destination is absent or complete, whatever happens in between; what was begun can be continued.
//!
//! 1. The staging directory `.NAME.reshard-partial` is made, for its owner alone, and locked (`flock`): two who write one destination notice
//!    each other. One that was there must be of the same user, and nobody else may write in it; new files are nobody else's either (`O_EXCL`).
//! 2. Files and a journal are written there.
//! 3. All files are flushed, then the manifest is written and flushed, then the directory.
//! 4. The directory is renamed to the destination's name, which never replaces anything, and the parent directory is flushed. It gets its mode,
//!    and the journal is removed.
//!
//! After a power failure between 3 and 4 the staging directory is complete: whoever continues only has to rename it. If the process is killed
//! between the renaming and the end, the journal stays in the destination: whoever continues only has to remove it.
//!
//! A set of one file may be that file alone, without directory and manifest: the file is renamed instead, and the staging directory removed. If it
//! is still there, without the file, whoever continues only has to remove it.
//!
//! Where the file system cannot rename without replacing, a file is linked under its name, which fails if something has it, and then unlinked
//! from the staging directory; between the two it has both names, and whoever continues only has to remove the staging directory. A directory
//! is renamed, which replaces nothing but an empty directory: no data is ever lost. Where there are no links either, a file keeps its old name and
//! the sentence says where it is.
//!
//! A signal that interrupts a call is no failure: the call is made again.

use crate::access::{Modes, check_owner};
use crate::manifest::MANIFEST_NAME;
use crate::processes::Processes;
use reshard::{Error, ErrorKind, Result};
use rustix::fs::{self as sys, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

mod finish;

/// The leader's journal of a staging directory; those of others have a number after it.
pub const JOURNAL_NAME: &str = ".journal";

/// A longer journal is none of ours.
const MAX_JOURNAL_BYTES: u64 = 1 << 26;

/// How directories are opened.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Has a number that the other processes of a job must find, too. It is removed like a journal.
const TOKEN_NAME: &str = ".journal.token";

/// A directory in which a set is being written. The process that leads holds its lock, and nobody else.
pub struct Staging {
    destination: PathBuf,
    parent: OwnedFd,
    directory: OwnedFd,
    /// The names of the staging directory and of the destination in the parent.
    partial: OsString,
    name: OsString,
    /// It is the destination: it has its name, and only the journal is still in it.
    named: bool,
    /// The destination is a file.
    file: bool,
    /// True if a run that fails can be continued.
    resumable: bool,
    /// Of what gets the destination's name.
    modes: Modes,
}

/// What is known of a staging directory that was there.
#[derive(Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing: it was made anew.
    New,
    /// What its journals say, the leader's first.
    Journals(Vec<String>),
    /// Everything is written; only its name is missing. What its journals say.
    Complete(Vec<String>),
}

impl Begun {
    /// For other processes, with whether the directory is the destination already, and its token.
    fn to_text(&self, named: bool, token: u64) -> Result<Vec<u8>> {
        let (word, texts) = match self {
            Self::New => ("new", &[][..]),
            Self::Journals(texts) => ("journals", &texts[..]),
            Self::Complete(texts) => ("complete", &texts[..]),
        };
        serde_json::to_vec(&(word, texts, named, token)).map_err(|error| unreadable(&error))
    }

    fn from_text(text: &[u8]) -> Result<(Self, bool, u64)> {
        let (word, texts, named, token): (String, Vec<String>, bool, u64) =
            serde_json::from_slice(text).map_err(|error| unreadable(&error))?;
        let begun = match &word[..] {
            "journals" => Self::Journals(texts),
            "complete" => Self::Complete(texts),
            _ => Self::New,
        };
        Ok((begun, named, token))
    }
}

fn unreadable(error: &serde_json::Error) -> Error {
    Error::new(ErrorKind::Failed, format!("what ranks tell each other cannot be read: {error}"))
}

impl Staging {
    /// Begins as several processes: the leader makes or takes the directory by `begin`, the others open it. Collective.
    pub fn begin_by(
        processes: &Processes,
        destination: &Path,
        begin: impl FnOnce() -> Result<(Self, Begun)>,
    ) -> Result<(Self, Begun)> {
        let leader = || {
            let (staging, begun) = begin()?;
            let token = if processes.count() > 1 { staging.write_token()? } else { 0 };
            Ok((staging, begun, token))
        };
        let leader: Option<(Self, Begun, u64)> =
            processes.agree(processes.leads().then(leader).transpose())?;
        let text = leader.as_ref().map(|(staging, begun, token)| begun.to_text(staging.named, *token));
        let text = processes.broadcast(text.unwrap_or(Ok(Vec::new())))?;
        let others = || {
            let (begun, named, token) = Begun::from_text(&text)?;
            let staging = Self::opened(destination, named)?;
            match staging.text(TOKEN_NAME)? {
                Some(text) if text == token.to_string() => Ok((staging, begun)),
                _ => Err(external(format!(
                    "{} is not the same directory on all ranks; give one on a file system that all of them share",
                    destination.display()
                ))),
            }
        };
        processes.agree(leader.map_or_else(others, |(staging, begun, _)| Ok((staging, begun))))
    }

    /// Writes a number by which other processes know that they see the same directory.
    fn write_token(&self) -> Result<u64> {
        // Keys of hash maps are random.
        let token = RandomState::new().hash_one(std::process::id());
        let mut file = self.open(TOKEN_NAME, true)?;
        file.write_all(token.to_string().as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|error| self.failed(TOKEN_NAME, "cannot be written", &error))?;
        Ok(token)
    }

    /// The staging directory that another process has made, or the destination that it has become.
    fn opened(destination: &Path, named: bool) -> Result<Self> {
        let (parent, partial, name) = Self::names_of(destination)?;
        let open = |name: &OsString| {
            retry_on_intr(|| sys::openat(&parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()))
        };
        let directory = open(if named { &name } else { &partial });
        let failed = failed_of(destination);
        let directory = directory.map_err(|error| failed("its staging directory cannot be opened", error))?;
        Ok(Self {
            destination: destination.into(),
            parent,
            directory,
            partial,
            name,
            named,
            file: false,
            resumable: true,
            modes: Modes::default(),
        })
    }

    /// The directory in which a destination will be, open, and the names of its staging directory and of itself there.
    fn names_of(destination: &Path) -> Result<(OwnedFd, OsString, OsString)> {
        let Some(name) = destination.file_name() else {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "{} was given as the destination; give a name that does not exist yet",
                    destination.display()
                ),
            ));
        };
        let parent =
            destination.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let opened = retry_on_intr(|| sys::open(parent, DIRECTORY, Mode::empty()));
        let opened = opened.map_err(|error| {
            let what = format!("its directory {} cannot be opened; make it first", parent.display());
            failed_of(destination)(&what, error)
        })?;
        let mut partial = OsString::from(".");
        partial.push(name);
        partial.push(".reshard-partial");
        Ok((opened, partial, name.into()))
    }

    /// Makes the staging directory of a destination that does not exist, or takes one that was left behind if `resume` says so.
    /// `file` says whether the destination is one file.
    pub fn begin(destination: &Path, resume: bool, file: bool) -> Result<(Self, Begun)> {
        match Self::begin_or_find(destination, resume, file)? {
            (staging, begun) if begun != Begun::New && !resume => Err(external(format!(
                "a run that did not come to its end left {} behind; continue it with --resume, or remove it",
                staging.path().display()
            ))),
            found => Ok(found),
        }
    }

    /// Makes the staging directory of a run that is not continued but begun anew: what was left behind by one whose journal begins with
    /// `word` is removed.
    pub fn begin_anew(destination: &Path, word: &str) -> Result<Self> {
        let (staging, begun) = Self::begin_or_find(destination, false, false)?;
        let staging = Self { resumable: false, ..staging };
        match begun {
            Begun::New => Ok(staging),
            Begun::Journals(texts) | Begun::Complete(texts) if first_words(&texts).starts_with(word) => {
                staging.clear();
                Ok(staging)
            }
            _ => Err(external(format!(
                "another run left {} behind; continue it with `reshard convert --resume`, or remove it",
                staging.path().display()
            ))),
        }
    }

    fn begin_or_find(destination: &Path, resume: bool, file: bool) -> Result<(Self, Begun)> {
        let failed = failed_of(destination);
        let (parent, partial, name) = Self::names_of(destination)?;
        loop {
            let there = exists(&parent, &name).map_err(|error| failed("it cannot be looked for", error))?;
            if there && !resume {
                return Err(exists_already(destination));
            }
            // Of a complete set no more than the journal of its run is left to be removed; of a file, the staging directory.
            let partial = if there && !file { name.clone() } else { partial.clone() };
            let made = !there
                && match retry_on_intr(|| sys::mkdirat(&parent, &partial, Mode::RWXU)) {
                    Ok(()) => true,
                    Err(Errno::EXIST) => false,
                    Err(error) => return Err(failed("nothing can be written beside it", error)),
                };
            let flags = DIRECTORY | OFlags::NOFOLLOW;
            let opened = retry_on_intr(|| sys::openat(&parent, &partial, flags, Mode::empty()));
            let directory = match opened {
                Ok(directory) => directory,
                Err(Errno::NOENT) if there && file => return Err(exists_already(destination)),
                // Who had it has finished.
                Err(Errno::NOENT) => continue,
                Err(_) if there => return Err(exists_already(destination)),
                Err(error) => return Err(failed("its staging directory cannot be opened", error)),
            };
            match retry_on_intr(|| sys::flock(&directory, FlockOperation::NonBlockingLockExclusive)) {
                Ok(()) => {}
                // A file system without locks, as Lustre is by default: whoever made the directory has it, and --resume says that nobody does.
                Err(Errno::NOSYS | Errno::NOTSUP) if made || resume => {}
                Err(Errno::NOSYS | Errno::NOTSUP) => {
                    return Err(external(format!(
                        "{} is there, and this file system has no locks that say whether a process is writing it; if none is, continue \
                         it with --resume, or remove it",
                        destination.with_file_name(&partial).display()
                    )));
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::new(
                        ErrorKind::External,
                        format!(
                            "another process is writing {} right now; wait for it, or give another destination",
                            destination.display()
                        ),
                    ));
                }
                Err(error) => return Err(failed("its staging directory cannot be locked", error)),
            }
            if !made {
                check_owner(&directory, there).map_err(|why| {
                    let path = if there && !file {
                        destination.into()
                    } else {
                        destination.with_file_name(&partial)
                    };
                    external(format!("{} {why}; remove it, or give another destination", path.display()))
                })?;
            }
            // Between the opening and the lock it may have got its name, or been removed.
            if !is_still(&parent, &partial, &directory) {
                continue;
            }
            // Who had the lock before may have finished since the destination was looked for.
            if !there && matches!(exists(&parent, &name), Ok(true)) {
                let _ = sys::unlinkat(&parent, &partial, AtFlags::REMOVEDIR);
                return Err(exists_already(destination));
            }
            let destination = destination.to_path_buf();
            let (named, modes) = (there, Modes::default());
            let staging =
                Self { destination, parent, directory, partial, name, named, file, resumable: true, modes };
            let begun = staging.begun()?;
            // The file has its new name, and may have the old one still.
            let is_ours = !file
                || matches!(exists(&staging.directory, &staging.name), Ok(false))
                || is_same(&staging.directory, &staging.parent, &staging.name);
            if there && !(matches!(begun, Begun::Complete(_)) && is_ours) {
                if file && begun == Begun::New {
                    // Killed while it was removed, when the file had its name.
                    let _ = staging.remove();
                }
                return Err(staging.exists_already());
            }
            if begun == Begun::New {
                // Files of a run that was interrupted while it was discarded: no journal says what they are.
                staging.clear();
            }
            return Ok((staging, begun));
        }
    }

    /// Sets the modes of the destination.
    pub fn with_modes(self, modes: Modes) -> Self {
        let modes = modes.within(&self.directory);
        Self { modes, ..self }
    }

    /// The name of the destination.
    pub fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// True if it is the destination already.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// The destination is there, and is not of this run.
    pub fn exists_already(&self) -> Error {
        exists_already(&self.destination)
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.destination.with_file_name(&self.partial)
    }

    /// A journal that was cut off in its first line is that of a run that had not begun.
    fn begun(&self) -> Result<Begun> {
        let Some(first) = self.text(JOURNAL_NAME)?.filter(|text| text.contains('\n')) else {
            return Ok(Begun::New);
        };
        let mut texts = vec![first];
        let others = self.other_journals();
        let others = others.map_err(|error| self.failed("", "cannot be listed", &error.into()))?;
        for name in others.iter().filter(|name| !name.ends_with(".new")) {
            texts.extend(self.text(name)?);
        }
        let flushed = sys::statat(&self.directory, MANIFEST_NAME, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        Ok(if flushed { Begun::Complete(texts) } else { Begun::Journals(texts) })
    }

    /// The names of all journals but the leader's.
    fn other_journals(&self) -> rustix::io::Result<Vec<String>> {
        let names = self.names()?.into_iter().map(|name| name.to_string_lossy().into_owned());
        let is_other =
            |name: &String| name.strip_prefix(JOURNAL_NAME).is_some_and(|rest| rest.starts_with('.'));
        let mut others: Vec<String> = names.filter(is_other).collect();
        others.sort_unstable();
        Ok(others)
    }

    /// The names of everything in it.
    fn names(&self) -> rustix::io::Result<Vec<CString>> {
        let listed = || -> rustix::io::Result<Vec<CString>> {
            let entries = sys::Dir::read_from(&self.directory)?;
            entries.map(|entry| Ok(entry?.file_name().to_owned())).collect()
        };
        let mut names = retry_on_intr(listed)?;
        names.retain(|name| ![c".", c".."].contains(&name.as_c_str()));
        Ok(names)
    }

    fn text(&self, name: &str) -> Result<Option<String>> {
        let failed = |error: std::io::Error| self.failed(name, "cannot be read", &error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match retry_on_intr(|| sys::openat(&self.directory, name, flags, Mode::empty())) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(error.into())),
        };
        let mut text = Vec::new();
        file.take(MAX_JOURNAL_BYTES).read_to_end(&mut text).map_err(failed)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Opens a file of it, new or as it was left. What has the name of a new one is removed: it may be a link to something else.
    pub fn open(&self, name: &str, new: bool) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = if new { flags | OFlags::CREATE | OFlags::EXCL } else { flags };
        // The journal keeps the mode that the directory is to have, as the umask leaves it.
        let mode = if name.starts_with(JOURNAL_NAME) { self.modes.directory } else { self.modes.file };
        let mode = Mode::from_raw_mode(mode);
        let open = || retry_on_intr(|| sys::openat(&self.directory, name, flags, mode));
        let opened = match open() {
            Err(Errno::EXIST) if new => {
                retry_on_intr(|| sys::unlinkat(&self.directory, name, AtFlags::empty())).and_then(|()| open())
            }
            opened => opened,
        };
        opened.map(File::from).map_err(|error| self.failed(name, "cannot be written", &error.into()))
    }

    /// Makes the names of its files durable.
    pub fn sync(&self) -> Result<()> {
        durable(&self.directory).map_err(|error| self.failed("", "cannot be made durable", &error.into()))
    }

    /// Gives a file of it another name, in place of what has it.
    pub fn rename_in(&self, from: &str, to: &str) -> Result<()> {
        retry_on_intr(|| sys::renameat(&self.directory, from, &self.directory, to))
            .map_err(|error| self.failed(to, "cannot be written", &error.into()))
    }

    /// Writes the manifest: all files are durable.
    pub fn write_manifest(&self, manifest: &[u8]) -> Result<()> {
        // A manifest that is there is whole.
        // No file of a set has a name that begins with a dot.
        let new = format!(".{MANIFEST_NAME}.new");
        let mut file = self.open(&new, true)?;
        let mut found = Vec::new();
        file.write_all(manifest)
            .and_then(|()| file.sync_all())
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.read_to_end(&mut found))
            .map_err(|error| self.failed(&new, "cannot be written", &error))?;
        if found != manifest {
            return Err(external(format!(
                "{} is not what was written into it; the disk or another program changed it",
                self.path().join(new).display()
            )));
        }
        self.rename_in(&new, MANIFEST_NAME)
    }

    /// What went wrong with a file of it.
    pub fn failed(&self, name: &str, what: &str, error: &std::io::Error) -> Error {
        let then = if self.resumable { "then continue with --resume" } else { "then begin again" };
        let advice = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => format!("; make room, {then}"),
            Some(Errno::FBIG) => format!(
                "; files may not be as long here: allow more with `ulimit -f`, or write more files to another file system, {then}"
            ),
            Some(Errno::MFILE) => format!("; allow more with `ulimit -n`, {then}"),
            _ => String::new(),
        };
        external(format!("{} {what}: {error}{advice}", self.path().join(name).display()))
    }
}

/// Makes the names in a directory durable. Some file systems cannot, or need not, and say that it is no file.
fn durable(directory: &OwnedFd) -> rustix::io::Result<()> {
    match retry_on_intr(|| sys::fsync(directory)) {
        Err(Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// What the leader's journal says in its first line, after the checksum.
fn first_words(journals: &[String]) -> &str {
    journals
        .first()
        .and_then(|journal| journal.lines().next())
        .and_then(|line| line.split_once(' '))
        .map_or("", |(_, words)| words)
}

/// What went wrong with a destination.
fn failed_of(destination: &Path) -> impl Fn(&str, Errno) -> Error {
    move |what, error| external(format!("{}: {what}: {error}", destination.display()))
}

fn external(message: String) -> Error {
    Error::new(ErrorKind::External, message)
}

fn exists_already(destination: &Path) -> Error {
    external(format!(
        "{} exists already; give another destination, or remove it first",
        destination.display()
    ))
}

/// True if something has this name.
fn exists(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<bool> {
    match sys::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// True if a name stands for the same file in two directories.
fn is_same(one: &OwnedFd, other: &OwnedFd, name: &OsStr) -> bool {
    let [one, other] = [one, other].map(|directory| sys::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW));
    matches!((one, other), (Ok(one), Ok(other)) if one.st_ino == other.st_ino && one.st_dev == other.st_dev)
}

/// True if a name still stands for an open directory.
fn is_still(parent: &OwnedFd, name: &OsStr, directory: impl AsFd) -> bool {
    let named = sys::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    let open = sys::fstat(directory);
    matches!((named, open), (Ok(named), Ok(open)) if named.st_ino == open.st_ino && named.st_dev == open.st_dev)
}
