//! Python: an environment below `target/`, so that the system's stays as it is, with what the tests of files read and write with, and with our
//! wheel, built from the sources and tested.

use crate::binaries::{self, Passed};
use crate::mpi;
use crate::tools::{self, Outcome, Step, install, program, say};
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::time::Instant;

/// Says to the tests that they must not pass for want of NumPy and safetensors.
pub const NEEDED: &str = "RESHARD_NEEDS_NUMPY";

const FOLDER: &str = "target/python";
const PYTHON: &str = "target/python/bin/python";
const WHEELS: &str = "target/wheels";
const OLDEST: &str = "target/python-oldest";

/// Makes sure of an environment with NumPy and safetensors.
pub fn ready() -> bool {
    has(&["numpy", "safetensors"])
}

/// Makes sure of an environment with some packages of PyPI.
fn has(packages: &[&str]) -> bool {
    let here = || program(PYTHON, &["-c", &format!("import {}", packages.join(", "))]).works();
    if here() {
        return true;
    }
    say(&format!("making a Python with {} of PyPI in {FOLDER}", packages.join(", ")));
    let environment = || program("python3", &["-m", "venv", FOLDER]).works();
    let made = environment() || (install("python3-venv") && environment());
    let pip = [&["-m", "pip", "install", "--quiet"], packages].concat();
    made && program(PYTHON, &pip).works() && here()
}

/// Puts the package with its module, as the other tests are compiled, where a wheel is installed, and runs its tests. `--full` builds wheels.
pub fn tested(passed: Passed) -> Outcome {
    if let Err(missing) = prepared() {
        if std::env::var_os("CI").is_some() {
            return Err(missing);
        }
        say(&format!("{missing}: the package for Python is not tested"));
        return Ok(());
    }
    tools::build_libraries()?;
    let module = tools::built("lib_reshard.so");
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(binaries::hash_of_data(|path| !path.ends_with(".rs")));
    binaries::hash_file(&mut hasher, Path::new(&module));
    let hash = hasher.finish();
    if passed == Passed::Skip && binaries::is_kept("package for Python", hash) {
        say("the package for Python is skipped, as it passed before (--again runs it)");
        return Ok(());
    }
    let began = Instant::now();
    put_package(&module)?;
    tests(PYTHON).run()?;
    binaries::keep("package for Python", hash, began.elapsed());
    Ok(())
}

/// Replaces the installed package.
fn put_package(module: &str) -> Outcome {
    // A wheel of before, if there is one.
    program(PYTHON, &["-m", "pip", "uninstall", "--quiet", "--yes", "reshard"]).works();
    let place = program(PYTHON, &["-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]).says();
    let place = place.ok_or("the Python of the tests does not say where its packages are")?;
    let folder = Path::new(place.trim()).join("reshard");
    let copied = || -> std::io::Result<()> {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        for entry in std::fs::read_dir("python/package/reshard")? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
            }
        }
        std::fs::copy(module, folder.join("_reshard.abi3.so"))?;
        Ok(())
    };
    copied().map_err(|error| format!("{}: {error}", folder.display()))
}

/// The same with the whole sweeps, optimised; and with the oldest NumPy and mpi4py that are promised.
pub fn swept() -> Outcome {
    with_wheel()?;
    tests(PYTHON).env("RESHARD_FULL", "1").run()?;
    let old = format!("{OLDEST}/bin/python");
    let install = |packages: &[&str]| {
        let pip = [&["-m", "pip", "install", "--quiet"], packages].concat();
        // mpi4py 3 is compiled for one MPI.
        program(&old, &pip).env("MPICC", "mpicc.openmpi").run()
    };
    if !Path::new(&old).exists() {
        say(&format!("making a Python with the oldest NumPy and mpi4py in {OLDEST}"));
        program("python3", &["-m", "venv", OLDEST]).run()?;
        install(&["numpy==1.24.*", "pytest", "setuptools", "wheel", "cython<3"])?;
        install(&["--no-build-isolation", "mpi4py==3.1.*"])?;
    }
    install(
        &[&["--force-reinstall", "--no-deps"], &wheels()?.iter().map(String::as_str).collect::<Vec<_>>()[..]]
            .concat(),
    )?;
    tests(&old).env("RESHARD_MPI_FAMILIES", "openmpi").run()
}

/// A Python with the wheel as it is meant for use.
pub fn with_wheel() -> Result<&'static str, String> {
    prepared()?;
    install_wheel(&["--release"])?;
    Ok(PYTHON)
}

/// Makes sure of all that building and testing the wheel takes.
fn prepared() -> Outcome {
    if !program("python3", &["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).works() {
        return Err("there is no Python of 3.11 or newer".into());
    }
    match has(&["numpy", "safetensors", "mpi4py", "maturin", "mypy", "pytest", "scipy"]) {
        true => {
            if let Err(missing) = mpi::ready() {
                say(&format!("{missing}: Python is not tested between processes"));
            }
            Ok(())
        }
        false => Err("packages of PyPI cannot be had".into()),
    }
}

fn install_wheel(build: &[&str]) -> Outcome {
    // Wheels of before would be installed in its place.
    let _ = std::fs::remove_dir_all(WHEELS);
    let wheel = ["-m", "maturin", "build", "--quiet", "--locked", "--manifest-path", "python/Cargo.toml"];
    let place = ["--out", WHEELS, "--interpreter", PYTHON];
    program(PYTHON, &[&wheel[..], &place, build].concat()).run()?;
    let wheels = wheels()?;
    let wheels: Vec<&str> = wheels.iter().map(String::as_str).collect();
    let pip = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"];
    program(PYTHON, &[&pip[..], &wheels].concat()).run()
}

/// The wheel that was built.
fn wheels() -> Result<Vec<String>, String> {
    let found = std::fs::read_dir(WHEELS).map_err(|error| format!("{WHEELS}: {error}"))?;
    Ok(found.filter_map(|file| file.ok()?.path().to_str().map(String::from)).collect())
}

fn tests(python: &str) -> Step {
    let tests = program(python, &["-m", "pytest", "--quiet", "--durations=8", "python/tests"]);
    let tests = tests.env(binaries::SEED, &binaries::seed());
    // What the tests of Rust run on may have come from PyPI, without a launcher on the path.
    let launchers = ["/usr/bin/mpirun.openmpi", "/usr/bin/mpirun.mpich"];
    match launchers.iter().all(|name| Path::new(name).exists()) {
        true => tests.env(mpi::NEEDED, "1"),
        false => tests,
    }
}
