//! A copy of the sources, where bugs can be planted while others work on them.

use crate::tools::program;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Makes the copy equal to the sources that git knows or does not ignore, and returns their hash.
pub fn refresh(tree: &str) -> Result<u64, String> {
    let list = program("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).says();
    let list = list.ok_or("git does not list the files of the repository")?;
    let files: BTreeSet<&str> =
        list.split('\0').filter(|name| !name.is_empty() && Path::new(name).exists()).collect();
    let mut hasher = DefaultHasher::new();
    for &name in &files {
        let (from, to) = (Path::new(name), Path::new(tree).join(name));
        let failed = |error: std::io::Error| format!("{}: {error}", to.display());
        let bytes = fs::read(from).map_err(|error| format!("{name}: {error}"))?;
        // Neither pages nor this program change what becomes of a bug.
        if !name.starts_with("xtask/") && !name.ends_with(".md") {
            (name, &bytes).hash(&mut hasher);
        }
        // What is the same keeps its time, so that it is not compiled again.
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            fs::create_dir_all(to.parent().unwrap_or(Path::new(tree))).map_err(failed)?;
            fs::copy(from, &to).map_err(failed)?;
        }
    }
    let mut folders = vec![PathBuf::from(tree)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let inside = path.strip_prefix(tree).unwrap_or(&path).to_string_lossy();
            if path.is_dir() && !["target", "fuzz/target"].contains(&&*inside) {
                folders.push(path);
            } else if path.is_file() && !files.contains(&*inside) {
                fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
    }
    Ok(hasher.finish())
}
