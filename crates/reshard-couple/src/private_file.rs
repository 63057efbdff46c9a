//! Files that only their owner may read: two jobs find each other by them, so they carry secrets, and nobody else may write them.

use reshard::{Error, ErrorKind, Result};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A longer file is none of ours.
const MAX_FILE_BYTES: u64 = 4096;

/// The beginning of the text of each of them.
const MARK: &str = "{\"reshard\":";

/// The files of this process that are there, and their texts.
static WRITTEN: Mutex<Vec<(PathBuf, String)>> = Mutex::new(Vec::new());

/// Removes the meeting files of this process, each if it is still its own: the last act of a program that a signal ends, which drops nothing.
/// Another job would find such a file, and wait at its address. Threads that write or remove meeting files wait for ever from then on, so
/// that none comes after it. It takes a lock: a thread may call it, a signal handler may not.
pub fn remove_meeting_files() {
    let written = written();
    for (path, text) in written.iter() {
        remove_own(path, text);
    }
    std::mem::forget(written);
}

fn written() -> MutexGuard<'static, Vec<(PathBuf, String)>> {
    WRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a file that has this text. False if it is gone already, or another's by now.
fn remove_own(path: &Path, text: &str) -> bool {
    let found = open(path).and_then(|(file, meta)| match is_short_file(&meta) {
        true => short_text(file),
        false => Ok(String::new()),
    });
    found.is_ok_and(|found| found == text) && fs::remove_file(path).is_ok()
}

/// A file that this process wrote. It is removed when this is dropped, if it is still the same.
pub struct WrittenFile {
    path: PathBuf,
    text: String,
    /// Locked, where the file system can do that.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    held: Option<fs::File>,
}

impl WrittenFile {
    /// Writes the file at once, whole, readable by its owner alone. It is locked as long as this lives. It replaces an earlier meeting file
    /// or an empty file, and nothing else: a path that was mistyped may name data, or a device.
    pub fn write(path: &Path, text: String) -> Result<Self> {
        check_replaceable(path)?;
        // Held until the file has its name: a signal that ends the program leaves neither.
        let mut written = written();
        let beside = beside(path);
        let failed = |error: io::Error| {
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
        let locked = file.try_lock().is_ok();
        file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, path)).map_err(failed)?;
        written.push((path.into(), text.clone()));
        Ok(Self { path: path.into(), text, held: Some(file).filter(|_| locked) })
    }

    /// What holds the lock, to keep it for longer.
    #[cfg(feature = "mpi")]
    pub fn take_lock(&mut self) -> Option<fs::File> {
        self.held.take()
    }

    /// Removes the file. False if it is gone already, or another's by now.
    pub fn remove(&self) -> bool {
        remove_own(&self.path, &self.text)
    }
}

impl Drop for WrittenFile {
    fn drop(&mut self) {
        let mut written = written();
        // Another producer may have written its own there.
        self.remove();
        if let Some(at) = written.iter().position(|(path, text)| *path == self.path && *text == self.text) {
            written.swap_remove(at);
        }
    }
}

/// Where a file is written before it has its name: appended, as files that differ in their last letters must differ here as well.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.to_path_buf().into_os_string();
    name.push(format!(".{}.new", std::process::id()));
    name.into()
}

/// Fails if a name is taken by anything but an empty file or a file that a producer or a consumer wrote.
fn check_replaceable(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        // What cannot be looked at cannot be written either, which is an error with its reason then.
        Err(_) => return Ok(()),
        Ok(meta) if meta.is_file() && meta.len() == 0 => return Ok(()),
        Ok(meta) if is_short_file(&meta) => {
            let text = open(path).and_then(|(file, _)| short_text(file));
            if text.is_ok_and(|text| text.starts_with(MARK)) {
                return Ok(());
            }
        }
        Ok(_) => {}
    }
    Err(wrong(path, "is there already, and is not one that reshard wrote; remove it, or name another"))
}

/// What is wrong with a meeting file.
pub fn wrong(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::External, format!("the meeting file {} {why}", path.display()))
}

/// Opens whatever has a name, without waiting for the other end of a pipe, and no symbolic link.
fn open(path: &Path) -> io::Result<(fs::File, fs::Metadata)> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits() as i32);
    }
    let file = options.open(path)?;
    // Of the file that was opened, whatever its name stands for by now.
    let meta = file.metadata()?;
    Ok((file, meta))
}

/// True for a regular file that may be one of ours.
fn is_short_file(meta: &fs::Metadata) -> bool {
    meta.is_file() && meta.len() <= MAX_FILE_BYTES
}

/// The text of a file, as far as it may be one of ours.
pub fn short_text(file: impl Read) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map(|_| text)
}

/// Reads such a file; none if it is not there yet.
pub fn read_private(path: &Path) -> Result<Option<String>> {
    let wrong = |why: String| Err(wrong(path, &why));
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    let (file, meta) = match open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        #[cfg(unix)]
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return wrong("is a symbolic link; name the file itself".into());
        }
        Err(error) => return wrong(unreadable(error)),
    };
    if !is_short_file(&meta) {
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
    match short_text(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) => wrong(unreadable(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Others put a pipe, a link or a long file where the meeting file is to be: nobody waits for it, follows it or reads all of it, and it
    /// is not removed.
    #[cfg(unix)]
    #[test]
    #[allow(clippy::unwrap_used)]
    fn what_others_put_there_is_neither_waited_for_nor_followed() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        use std::sync::mpsc;
        use std::time::Duration;
        let folder = std::env::temp_dir().join(format!("reshard-private-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        type Put = (&'static str, fn(&Path));
        let puts: [Put; 3] = [
            ("is not one that a producer wrote", |path| {
                mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            }),
            ("is a symbolic link", |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
            ("is not one that a producer wrote", |path| {
                fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
            }),
        ];
        for (number, (says, put)) in puts.into_iter().enumerate() {
            let path = folder.join(format!("{number}.meet"));
            let written = WrittenFile::write(&path, "ours".into()).unwrap();
            fs::remove_file(&path).unwrap();
            put(&path);
            let (tell, told) = mpsc::channel();
            let there = path.clone();
            // A thread that waits for ever is left behind.
            std::thread::spawn(move || {
                let read = read_private(&there).map(|_| ());
                tell.send((read, written.remove(), drop(written)))
            });
            let (read, removed, ()) =
                told.recv_timeout(Duration::from_secs(60)).expect("it waits, or reads on and on");
            let said = read.unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
            assert!(!removed && path.symlink_metadata().is_ok(), "{number}: it is not ours");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A path that was mistyped names data: it stays as it is. Only a meeting file and an empty file give way.
    #[test]
    fn nothing_but_a_meeting_file_is_replaced() {
        let folder = std::env::temp_dir().join(format!("reshard-replaced-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("results");
        let text = || format!("{MARK}1}}\n");
        for data in ["1,2,3\n".to_string(), "x".repeat(MAX_FILE_BYTES as usize + 1)] {
            fs::write(&path, &data).unwrap();
            let said = WrittenFile::write(&path, text()).err().unwrap().to_string();
            assert!(said.contains("is there already, and is not one that reshard wrote"), "{said}");
            assert!(fs::read_to_string(&path).unwrap() == data, "it was changed");
        }
        #[cfg(unix)]
        {
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("elsewhere", &path).unwrap();
            assert!(WrittenFile::write(&path, text()).is_err());
            assert!(path.is_symlink());
            fs::remove_file(&path).unwrap();
        }
        for earlier in [String::new(), text()] {
            fs::write(&path, earlier).unwrap();
            drop(WrittenFile::write(&path, text()).unwrap());
            assert!(!path.exists());
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_that_differ_in_their_extension_are_written_at_once() {
        let names = ["run.a", "run.b", "run"].map(|name| beside(Path::new("/folder").join(name).as_path()));
        assert!(names[0] != names[1] && names[1] != names[2]);
        assert!(names.iter().all(|name| name.starts_with("/folder/")), "{names:?}");
    }
}
