//! Installs the libraries for programs that are not Rust's: where `--prefix` says, with the names by which linkers and loaders look, the
//! header, the Fortran module as source, and files for pkg-config and CMake.

use crate::tools::{self, Outcome, cargo, say};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A library: its package, the file that cargo makes of it, its name, and what pkg-config says of it.
struct Library {
    package: &'static str,
    built: &'static str,
    name: &'static str,
    description: &'static str,
    /// It has a header, and an archive to link statically.
    for_c: bool,
}

const LIBRARIES: [Library; 3] = [
    Library {
        package: "reshard-capi",
        built: "reshard_capi",
        name: "reshard",
        description: "Moves distributed arrays between layouts",
        for_c: true,
    },
    Library {
        package: "reshard-scalapack-lp64",
        built: "reshard_scalapack",
        name: "reshard_scalapack",
        description: "ScaLAPACK's redistribution routines, integers of 4 bytes",
        for_c: false,
    },
    Library {
        package: "reshard-scalapack-ilp64",
        built: "reshard_scalapack_ilp64",
        name: "reshard_scalapack_ilp64",
        description: "ScaLAPACK's redistribution routines, integers of 8 bytes",
        for_c: false,
    },
];

/// The version of what is binary compatible: the end of the SONAME, as the libraries' build.rs say.
const ABI: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is installed as it stands, or with the version filled in: the file in `crates/reshard-capi`, and its folder below the prefix.
const TEXTS: [(&str, &str); 4] = [
    ("include/reshard.h", "include"),
    ("fortran/reshard.f90", "include"),
    ("cmake/reshardConfig.cmake", "lib/cmake/reshard"),
    ("cmake/reshardConfigVersion.cmake", "lib/cmake/reshard"),
];

/// Builds the libraries and installs them. A relative prefix counts from `here`.
pub fn install(prefix: &str, here: &Path) -> Outcome {
    let prefix = here.join(prefix);
    build()?;
    let folder = prefix.join("lib");
    let config = folder.join("pkgconfig");
    fs::create_dir_all(&config).map_err(|error| format!("{}: {error}", config.display()))?;
    for library in &LIBRARIES {
        install_one(library, &prefix, &folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    for (text, below) in TEXTS {
        let folder = prefix.join(below);
        install_text(text, &folder).map_err(|error| format!("{text} into {}: {error}", folder.display()))?;
    }
    say(&format!("installed into {}", prefix.display()));
    Ok(())
}

/// Set by tests, which want the libraries as `cargo test` compiles the workspace, and not all of it once more.
const AS_TESTED: &str = "RESHARD_INSTALL_AS_TESTED";

/// Builds the libraries.
fn build() -> Outcome {
    if std::env::var_os(AS_TESTED).is_some() {
        return cargo(&[&["build", "--lib", "--tests"], &tools::WORKSPACE[..]].concat()).run();
    }
    let packages = LIBRARIES.iter().flat_map(|library| ["--package", library.package]);
    cargo(&["build", "--release", "--locked"].into_iter().chain(packages).collect::<Vec<_>>()).run()
}

fn install_one(library: &Library, prefix: &Path, folder: &Path) -> std::io::Result<()> {
    let built = |ending: &str| target().join(format!("lib{}.{ending}", library.built));
    let file = format!("lib{}.so.{VERSION}", library.name);
    install_file(&built("so"), &folder.join(&file))?;
    for link in [format!("lib{}.so.{ABI}", library.name), format!("lib{}.so", library.name)] {
        let link = folder.join(link);
        let _ = fs::remove_file(&link);
        symlink(&file, link)?;
    }
    let (mut headers, mut private) = ("", "");
    if library.for_c {
        install_file(&built("a"), &folder.join(format!("lib{}.a", library.name)))?;
        (headers, private) = ("Cflags: -I${prefix}/include\n", "Libs.private: -lpthread -ldl -lm\n");
    }
    let text = format!(
        "prefix={}\nlibdir=${{prefix}}/lib\n\nName: {name}\nDescription: {}\nVersion: {VERSION}\n{headers}Libs: -L${{libdir}} \
         -l{name}\n{private}",
        prefix.display(),
        library.description,
        name = library.name,
    );
    fs::write(folder.join("pkgconfig").join(format!("{}.pc", library.name)), text)
}

/// A new file, not new contents of one that a program may have mapped.
fn install_file(built: &Path, place: &Path) -> std::io::Result<()> {
    let fresh = PathBuf::from(format!("{}.new", place.display()));
    fs::copy(built, &fresh)?;
    fs::rename(fresh, place)
}

fn install_text(text: &str, folder: &Path) -> std::io::Result<()> {
    let source = Path::new("crates/reshard-capi").join(text);
    let mut filled = fs::read_to_string(&source)?.replace("@VERSION@", VERSION).replace("@ABI@", ABI);
    let parts: Vec<&str> = VERSION.split('.').collect();
    for (word, part) in ["@MAJOR@", "@MINOR@"].iter().zip(parts) {
        filled = filled.replace(word, part);
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join(source.file_name().unwrap_or_default()), filled)
}

/// Where cargo has built them.
fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    target.join(if std::env::var_os(AS_TESTED).is_some() { "debug" } else { "release" })
}
