//! Installs the libraries for programs that are not Rust's: where `--prefix` says, with the names by which linkers and loaders look.

use crate::tools::{Outcome, cargo, say};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A library: its package, its name, and what pkg-config says of it.
struct Library {
    package: &'static str,
    name: &'static str,
    description: &'static str,
}

const LIBRARIES: [Library; 2] = [
    Library {
        package: "reshard-scalapack-lp64",
        name: "reshard_scalapack",
        description: "ScaLAPACK's redistribution routines, integers of 4 bytes",
    },
    Library {
        package: "reshard-scalapack-ilp64",
        name: "reshard_scalapack_ilp64",
        description: "ScaLAPACK's redistribution routines, integers of 8 bytes",
    },
];

/// The version of what is binary compatible: the end of the SONAME.
const ABI: &str = "0";

/// Builds the libraries and installs them. A relative prefix counts from `here`.
pub fn install(prefix: &str, here: &Path) -> Outcome {
    let prefix = here.join(prefix);
    let packages = LIBRARIES.iter().flat_map(|library| ["--package", library.package]);
    let build: Vec<&str> = ["build", "--release", "--locked"].into_iter().chain(packages).collect();
    cargo(&build).run()?;
    let folder = prefix.join("lib");
    let config = folder.join("pkgconfig");
    fs::create_dir_all(&config).map_err(|error| format!("{}: {error}", config.display()))?;
    for library in &LIBRARIES {
        install_one(library, &prefix, &folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    say(&format!("installed into {}", folder.display()));
    Ok(())
}

fn install_one(library: &Library, prefix: &Path, folder: &Path) -> std::io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let built = target().join("release").join(format!("lib{}.so", library.name));
    let file = format!("lib{}.so.{version}", library.name);
    // A new file, not new contents of one that a program may have mapped.
    let place = folder.join(&file);
    let fresh = folder.join(format!("{file}.new"));
    fs::copy(built, &fresh)?;
    fs::rename(fresh, place)?;
    for link in [format!("lib{}.so.{ABI}", library.name), format!("lib{}.so", library.name)] {
        let link = folder.join(link);
        let _ = fs::remove_file(&link);
        symlink(&file, link)?;
    }
    let text = format!(
        "prefix={}\nlibdir=${{prefix}}/lib\n\nName: {name}\nDescription: {}\nVersion: {version}\nLibs: -L${{libdir}} -l{name}\n",
        prefix.display(),
        library.description,
        name = library.name,
    );
    fs::write(folder.join("pkgconfig").join(format!("{}.pc", library.name)), text)
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
