//! Which MPI libraries to try, in which order.
//!
//! What was asked for comes first, and then nothing else. Otherwise a library that is in the process already, because two of
//! them in one process cannot work; then those that fit the launcher; then any that is known.

use crate::launch::Family;

/// Open MPI 3 to 5.
const OPEN_MPI: &[&str] = &["libmpi.so.40"];
/// MPICH, Intel MPI and MVAPICH share a name; Debian has its own; so has Cray.
const MPICH: &[&str] = &["libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12", "libmpi_gnu.so.12"];
/// The standard ABI.
const STANDARD: &[&str] = &["libmpi_abi.so.1", "libmpi_abi.so.0"];
/// Whatever a system calls its MPI.
const UNKNOWN: &[&str] = &["libmpi.so", "libmpich.so", "libmpi_abi.so"];

/// What to try.
#[derive(Debug, PartialEq, Eq)]
pub struct Search {
    /// Whether a library that is in the process already will do.
    pub present: bool,
    /// Files or names to open, best first.
    pub names: Vec<String>,
}

/// What to try for a choice: a family, a file, or nothing in particular.
pub fn search(choice: Option<&str>, launcher: Option<Family>) -> Search {
    let asked = match choice {
        Some("openmpi") => Some(vec![OPEN_MPI]),
        Some("mpich") => Some(vec![MPICH]),
        Some("abi") => Some(vec![STANDARD]),
        Some(file) => return Search { present: false, names: vec![file.to_string()] },
        None => None,
    };
    let present = asked.is_none();
    let lists = asked.unwrap_or_else(|| match launcher {
        Some(Family::Pmi) => vec![MPICH, STANDARD, OPEN_MPI, UNKNOWN],
        Some(Family::OpenMpi | Family::Pmix) | None => vec![OPEN_MPI, MPICH, STANDARD, UNKNOWN],
    });
    Search { present, names: lists.concat().into_iter().map(String::from).collect() }
}

/// All names a library in the process may have.
pub fn known() -> impl Iterator<Item = &'static str> {
    [OPEN_MPI, MPICH, STANDARD].into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_and_nothing_else() {
        assert_eq!(search(Some("openmpi"), Some(Family::Pmi)).names, OPEN_MPI);
        assert_eq!(search(Some("abi"), None).names, STANDARD);
        let file = search(Some("/opt/mpi/lib/libmpi.so"), Some(Family::OpenMpi));
        assert_eq!(file, Search { present: false, names: vec!["/opt/mpi/lib/libmpi.so".to_string()] });
    }

    #[test]
    fn otherwise_what_fits_the_launcher_comes_first() {
        assert_eq!(search(None, Some(Family::Pmi)).names[0], "libmpi.so.12");
        assert_eq!(search(None, Some(Family::OpenMpi)).names[0], "libmpi.so.40");
        let any = search(None, None);
        assert!(any.present && known().all(|name| any.names.iter().any(|tried| tried == name)));
    }
}
