//! Files that only their owner may read: two jobs find each other by them, so they carry secrets, and nobody else may write them.

use reshard::{Error, ErrorKind, Result};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// A longer file is none of ours.
const MAX_FILE_BYTES: u64 = 4096;

/// A file that this process wrote. It is removed when this is dropped, if it is still the same.
pub struct WrittenFile {
    path: PathBuf,
    text: String,
    /// Locked, where the file system can do that.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code))]
    held: Option<fs::File>,
}

impl WrittenFile {
    /// Writes the file at once, whole, readable by its owner alone. It is locked as long as this lives.
    pub fn write(path: &Path, text: String) -> Result<Self> {
        let beside = beside(path);
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
        let locked = file.try_lock().is_ok();
        file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, path)).map_err(failed)?;
        Ok(Self { path: path.into(), text, held: Some(file).filter(|_| locked) })
    }

    /// What holds the lock, to keep it for longer.
    #[cfg(feature = "mpi")]
    pub fn take_lock(&mut self) -> Option<fs::File> {
        self.held.take()
    }

    /// Removes the file. False if it is gone already, or another's by now.
    pub fn remove(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| text == self.text)
            && fs::remove_file(&self.path).is_ok()
    }
}

impl Drop for WrittenFile {
    fn drop(&mut self) {
        // Another producer may have written its own there.
        self.remove();
    }
}

/// Where a file is written before it has its name: appended, as files that differ in their last letters must differ here as well.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.to_path_buf().into_os_string();
    name.push(format!(".{}.new", std::process::id()));
    name.into()
}

/// What is wrong with a meeting file.
pub fn wrong(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::External, format!("the meeting file {} {why}", path.display()))
}

/// Reads such a file; none if it is not there yet.
pub fn read_private(path: &Path) -> Result<Option<String>> {
    let wrong = |why: String| Err(wrong(path, &why));
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
    match file.take(MAX_FILE_BYTES).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text)),
        Err(error) => wrong(unreadable(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_differ_in_their_extension_are_written_at_once() {
        let names = ["run.a", "run.b", "run"].map(|name| beside(Path::new("/folder").join(name).as_path()));
        assert!(names[0] != names[1] && names[1] != names[2]);
        assert!(names.iter().all(|name| name.starts_with("/folder/")), "{names:?}");
    }
}
