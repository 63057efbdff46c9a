//! What the launcher tells a process through the environment, before any MPI is loaded.
//!
//! `mpirun`, `mpiexec` and `srun` tell each process its rank through the environment. From that a program knows whether it
//! runs under MPI at all, which library fits, and, once MPI has begun, whether launcher and library understood each
//! other: if not, each process believes to be the only one.

use std::fmt;

/// The family of a launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// A launcher that speaks PMI: Hydra of MPICH, Intel MPI, MVAPICH; Slurm with `--mpi=pmi2`; Flux.
    Pmi,
    /// A launcher that speaks PMIx, which libraries of all families may understand: Slurm with `--mpi=pmix`.
    Pmix,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI's launcher",
            Self::Pmi => "a PMI launcher (MPICH, Intel MPI)",
            Self::Pmix => "a PMIx launcher",
        })
    }
}

/// What the launcher tells this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The rank of this process among those launched together.
    pub rank: u64,
    /// The number of processes launched together.
    pub size: u64,
    /// The family of the launcher.
    pub family: Family,
}

/// The environment variables of rank and size in each family; the first pair that is set is used.
const VARIABLES: [(Family, &str, &str); 5] = [
    (Family::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    (Family::Pmi, "PMI_RANK", "PMI_SIZE"),
    (Family::Pmi, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    (Family::Pmix, "PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
    (Family::Pmix, "PMIX_RANK", "SLURM_NTASKS"),
];

/// What the launcher tells this process; none if it was started by hand. Loads no MPI.
pub fn launched() -> Option<Launcher> {
    read(|name| std::env::var(name).ok())
}

fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    let number = |name| variable(name)?.trim().parse::<u64>().ok();
    VARIABLES.into_iter().find_map(|(family, rank, size)| {
        let launcher = Launcher { rank: number(rank)?, size: number(size)?, family };
        (launcher.rank < launcher.size).then_some(launcher)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<(Family, u64, u64)> {
        let found = read(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_string())
        });
        found.map(|launcher| (launcher.family, launcher.rank, launcher.size))
    }

    #[test]
    fn each_launcher_is_understood() {
        let ompi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "1")];
        assert_eq!(of(&ompi), Some((Family::OpenMpi, 1, 4)));
        assert_eq!(of(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some((Family::Pmi, 0, 2)));
        assert_eq!(of(&[("PMIX_RANK", "5"), ("SLURM_NTASKS", "6")]), Some((Family::Pmix, 5, 6)));
    }

    #[test]
    fn a_process_started_by_hand_has_no_launcher() {
        assert_eq!(of(&[]), None);
        // A batch script of Slurm is no MPI process.
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "6")]), None);
        assert_eq!(of(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]), None);
        assert_eq!(of(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]), None);
    }
}
