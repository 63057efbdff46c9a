//! Which MPI libraries to try, in which order.
//!
//! If the user chose a library, only that one. Otherwise first a library that is loaded in the process already, because
//! two MPI libraries cannot work in one process; then those that fit the launcher; then any that is known.

use crate::launch::Family;

/// Open MPI 3 to 5.
const OPEN_MPI: &[&str] = &["libmpi.so.40"];
/// MPICH, Intel MPI and MVAPICH share a name; Debian has its own; so has Cray.
const MPICH: &[&str] = &["libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12", "libmpi_gnu.so.12"];
/// The standard ABI.
const STANDARD: &[&str] = &["libmpi_abi.so.1", "libmpi_abi.so.0"];
/// Names without a version, which can be any MPI.
const UNKNOWN: &[&str] = &["libmpi.so", "libmpich.so", "libmpi_abi.so"];

/// The libraries to try.
#[derive(Debug, PartialEq, Eq)]
pub struct Search {
    /// True if a library that is loaded in the process already may be used.
    pub accepts_loaded: bool,
    /// File names to open, best first.
    pub names: Vec<String>,
}

/// The libraries to try for the user's choice: a family, a file, or none.
pub fn search(choice: Option<&str>, launcher: Option<Family>) -> Search {
    let chosen = match choice {
        Some("openmpi") => Some(vec![OPEN_MPI]),
        Some("mpich") => Some(vec![MPICH]),
        Some("abi") => Some(vec![STANDARD]),
        Some(file) => return Search { accepts_loaded: false, names: vec![file.to_string()] },
        None => None,
    };
    let accepts_loaded = chosen.is_none();
    let lists = chosen.unwrap_or_else(|| match launcher {
        Some(Family::Pmi) => vec![MPICH, STANDARD, OPEN_MPI, UNKNOWN],
        Some(Family::OpenMpi | Family::Pmix) | None => vec![OPEN_MPI, MPICH, STANDARD, UNKNOWN],
    });
    Search { accepts_loaded, names: lists.concat().into_iter().map(String::from).collect() }
}

/// All names of libraries whose interface is known.
pub fn known_names() -> impl Iterator<Item = &'static str> {
    [OPEN_MPI, MPICH, STANDARD].into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_chosen_library_is_tried() {
        assert_eq!(search(Some("openmpi"), Some(Family::Pmi)).names, OPEN_MPI);
        assert_eq!(search(Some("abi"), None).names, STANDARD);
        let file = search(Some("/opt/mpi/lib/libmpi.so"), Some(Family::OpenMpi));
        assert_eq!(file, Search { accepts_loaded: false, names: vec!["/opt/mpi/lib/libmpi.so".to_string()] });
    }

    #[test]
    fn without_a_choice_the_launchers_family_comes_first() {
        assert_eq!(search(None, Some(Family::Pmi)).names[0], "libmpi.so.12");
        assert_eq!(search(None, Some(Family::OpenMpi)).names[0], "libmpi.so.40");
        let any = search(None, None);
        assert!(any.accepts_loaded && known_names().all(|name| any.names.iter().any(|tried| tried == name)));
    }
}
