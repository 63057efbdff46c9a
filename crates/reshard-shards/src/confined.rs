//! Files of a set, opened by name in an open directory and nowhere else.
//!
//! A name may come from a manifest of a stranger, and so may what it stands for: symbolic links are not followed, and whatever is no
//! regular file (a pipe that would block, a device that would act on being opened) is refused before it is opened, and again after.

use crate::element::shown;
use crate::manifest::{MANIFEST_NAME, Manifest, check_name};
use reshard::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// How names of files end, and none of directories.
const ENDINGS: [&str; 3] = [".npy", ".bin", ".safetensors"];

/// The directory of a set, open: it stays the same one, whatever happens to its name.
pub struct Directory {
    handle: OwnedFd,
    shown: String,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Directory {
    /// Opens a directory that the user named.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        if let Some(text) = shown.contains('\0').then(|| shown.escape_debug()) {
            return Err(Error::new(
                ErrorKind::External,
                format!("the path {text} has a zero byte, which ends names; give one without"),
            ));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())) {
            Ok(handle) => Ok(Self { handle, shown }),
            // The user meant a file, which is tried as a directory when it is no file.
            Err(Errno::NOENT) if ENDINGS.iter().any(|ending| shown.ends_with(ending)) => {
                Err(Error::new(ErrorKind::External, format!("there is no {shown}")))
            }
            Err(errno) => Err(Error::new(
                ErrorKind::External,
                format!("the directory {shown} cannot be opened: {errno}"),
            )),
        }
    }

    /// Opens a file of the set to be read, and says how long it is.
    pub fn open_file(&self, name: &str) -> Result<(File, u64)> {
        check_name(name)?;
        self.open_regular(name)
    }

    /// The names of all that is in it but directories, where they are texts.
    pub fn names(&self) -> Result<Vec<String>> {
        let list = || -> rustix::io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in Dir::read_from(&self.handle)? {
                let entry = entry?;
                if let Ok(name) = entry.file_name().to_str()
                    && entry.file_type() != FileType::Directory
                {
                    names.push(name.to_string());
                }
            }
            Ok(names)
        };
        // From the first name again: a listing does not go on after a failure.
        retry_on_intr(list).map_err(|errno| {
            let found = format!("the directory {} cannot be read: {errno}", self.shown);
            Error::new(ErrorKind::External, found)
        })
    }

    /// Creates a file of the set; one that exists is not touched.
    pub fn create_file(&self, name: &str) -> Result<File> {
        check_name(name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let created = retry_on_intr(|| rustix::fs::openat(&self.handle, name, flags, mode));
        created.map(File::from).map_err(|errno| self.failed(name, "cannot be created", errno))
    }

    /// The text of the manifest, if it is not too long.
    pub fn read_manifest(&self) -> Result<Vec<u8>> {
        let (file, bytes) = self.open_regular(MANIFEST_NAME)?;
        let too_long = |bytes| {
            Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the file {MANIFEST_NAME} in {} has {bytes} bytes; at most {} are read",
                    self.shown,
                    Manifest::MAX_BYTES
                ),
            ))
        };
        if bytes > Manifest::MAX_BYTES {
            return too_long(bytes);
        }
        let mut text = Vec::new();
        // One more than is allowed: a file that grows is found out, too.
        let read = file.take(Manifest::MAX_BYTES + 1).read_to_end(&mut text);
        read.map_err(|error| {
            Error::new(
                ErrorKind::External,
                format!("the file {MANIFEST_NAME} in {} cannot be read: {error}", self.shown),
            )
        })?;
        match text.len() as u64 {
            bytes if bytes > Manifest::MAX_BYTES => too_long(bytes),
            _ => Ok(text),
        }
    }

    fn failed(&self, name: &str, what: &str, errno: Errno) -> Error {
        let why = match errno {
            Errno::LOOP => "it is a symbolic link, and files of a set are not".to_string(),
            Errno::MFILE => format!("{errno}; a set has all its files open, so allow more with `ulimit -n`"),
            errno => errno.to_string(),
        };
        Error::new(ErrorKind::External, format!("the file '{}' in {} {what}: {why}", shown(name), self.shown))
    }

    fn open_regular(&self, name: &str) -> Result<(File, u64)> {
        let failed = |errno| self.failed(name, "cannot be opened", errno);
        let before = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        self.check_regular(name, &before)?;
        // Something else may stand there by now: a pipe must not block, and what was opened is looked at again.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = || rustix::fs::openat(&self.handle, name, flags, Mode::empty());
        let handle = retry_on_intr(opened).map_err(failed)?;
        let opened = rustix::fs::fstat(&handle).map_err(failed)?;
        self.check_regular(name, &opened)?;
        let bytes = u64::try_from(opened.st_size).map_err(|_| failed(Errno::INVAL))?;
        Ok((File::from(handle), bytes))
    }

    fn check_regular(&self, name: &str, stat: &rustix::fs::Stat) -> Result<()> {
        let what = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => return Ok(()),
            FileType::Symlink => "a symbolic link",
            FileType::Directory => "a directory",
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            _ => "of an unknown kind",
        };
        Err(Error::new(
            ErrorKind::Mismatch,
            format!(
                "the file '{}' in {} is {what}; files of a set are regular files",
                shown(name),
                self.shown
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A directory that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("reshard-shards-{}-{name}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn regular_files_are_opened_and_nothing_else() {
        let folder = Folder::new("kinds");
        let inside = |name: &str| folder.0.join(name);
        fs::create_dir_all(inside("set/folder")).unwrap();
        fs::write(inside("outside"), b"secret").unwrap();
        fs::write(inside("set/good"), b"12345").unwrap();
        symlink("good", inside("set/inner")).unwrap();
        symlink("../outside", inside("set/outer")).unwrap();
        symlink("nothing", inside("set/dangling")).unwrap();
        symlink("/dev/zero", inside("set/device")).unwrap();
        symlink(inside("set"), inside("link")).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, inside("set/pipe"), FileType::Fifo, mode, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(inside("set/socket")).unwrap();
        // The user may name a link to the directory; what is in it may not be one.
        for set in ["set", "link"] {
            let directory = Directory::open(&inside(set)).unwrap();
            let (mut file, bytes) = directory.open_file("good").unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!((text.as_str(), bytes), ("12345", 5));
            for (name, expected) in [
                ("inner", "a symbolic link"),
                ("outer", "a symbolic link"),
                ("dangling", "a symbolic link"),
                ("device", "a symbolic link"),
                ("folder", "a directory"),
                ("pipe", "a pipe"),
                ("socket", "a socket"),
                ("absent", "No such file"),
                ("../outside", "a slash"),
                ("/etc/passwd", "a slash"),
                ("folder/x", "a slash"),
                ("..", "a dot"),
                (".", "a dot"),
                ("", "empty"),
                ("good\0", "a control character"),
                ("reshard.json", "the manifest"),
            ] {
                let error = directory.open_file(name).unwrap_err().to_string();
                assert!(error.contains(expected), "{name}: {error}");
            }
        }
        let mut names = Directory::open(&inside("set")).unwrap().names().unwrap();
        names.sort_unstable();
        assert_eq!(names, ["dangling", "device", "good", "inner", "outer", "pipe", "socket"]);
        for (absent, expected) in [("x.npy", "there is no"), ("x", "cannot be opened: No such file")] {
            let error = Directory::open(&inside(absent)).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(Directory::open(&inside("outside")).is_err());
        let devices = Directory::open(Path::new("/dev")).unwrap();
        let said = devices.open_file("zero").unwrap_err().to_string();
        assert!(said.contains("a device"), "{said}");
    }

    #[test]
    fn files_are_created_once() {
        let folder = Folder::new("created");
        symlink("elsewhere", folder.0.join("link")).unwrap();
        let directory = Directory::open(&folder.0).unwrap();
        directory.create_file("new").unwrap().write_all(b"x").unwrap();
        assert_eq!(directory.open_file("new").unwrap().1, 1);
        for name in ["new", "link", "../new"] {
            assert!(directory.create_file(name).is_err(), "{name}");
        }
        assert!(!folder.0.join("elsewhere").exists());
    }

    #[test]
    fn manifests_are_read_up_to_their_longest() {
        let folder = Folder::new("manifest");
        let directory = Directory::open(&folder.0).unwrap();
        let said = directory.read_manifest().unwrap_err().to_string();
        assert!(said.contains("reshard.json"), "{said}");
        let path = folder.0.join(MANIFEST_NAME);
        symlink("/etc/passwd", &path).unwrap();
        let said = directory.read_manifest().unwrap_err().to_string();
        assert!(said.contains("a symbolic link"), "{said}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"{}").unwrap();
        assert_eq!(directory.read_manifest().unwrap(), b"{}");
        // Of a file with holes no more is read than is allowed.
        File::create(&path).unwrap().set_len(Manifest::MAX_BYTES + 1).unwrap();
        assert_eq!(directory.read_manifest().unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
