//! The constants of the three binary interfaces (ABIs) of MPI, side by side.
//!
//! | | handles | predefined handles |
//! |---|---|---|
//! | Open MPI 4 and 5 | pointers | addresses of symbols |
//! | MPICH 3 to 5, Intel MPI, MVAPICH, Cray | C integers | numbers |
//! | the standard ABI of MPI-5 | pointers | small numbers |
//!
//! Every number here was printed by a C program compiled with the header it belongs to. Those of Open MPI 4.1 and 5.0 are
//! equal, those of MPICH 4.0 and 5.0 as well.

use std::ffi::c_int;

/// A handle of any kind, as a number: the integer itself, or the address.
pub type Raw = usize;

/// One of the three interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    OpenMpi,
    Mpich,
    Standard,
}

/// The constants of one interface, as far as they are needed here.
pub struct Abi {
    pub handles: Handles,
    pub numbers: Numbers,
}

/// The constants that are not handles.
pub struct Numbers {
    pub any_source: c_int,
    /// The colour of a rank that gets no communicator in a split (`MPI_UNDEFINED`).
    pub undefined: c_int,
    /// The address `MPI_IN_PLACE`: the input is in the output buffer.
    pub in_place: usize,
    pub thread_serialized: c_int,
    pub thread_multiple: c_int,
    pub order_c: c_int,
    pub order_fortran: c_int,
    pub distribute_cyclic: c_int,
    pub distribute_none: c_int,
    pub distribute_default: c_int,
    /// Offset in bytes of the source in a status.
    pub status_source_at: usize,
    /// Bytes of a status; at most [`STATUS_BYTES`].
    pub status_bytes: usize,
}

/// Success is 0 in MPI by definition.
pub const SUCCESS: c_int = 0;

/// Bytes that hold a status of any interface.
pub const STATUS_BYTES: usize = 64;

/// Bytes that hold the text of an error in any interface; the longest is 512.
pub const ERROR_TEXT_BYTES: usize = 1024;

/// Bytes that hold the name of a port in any interface; the longest is 1024.
pub const PORT_NAME_BYTES: usize = 1024;

/// Bytes that hold the text that describes the library in any interface; the longest is 8192.
pub const VERSION_TEXT_BYTES: usize = 16384;

impl Interface {
    /// The constants of the interface. Handles of Open MPI are addresses of symbols: `address` looks them up by name.
    pub fn abi<E>(self, address: impl Fn(&'static str) -> Result<Raw, E>) -> Result<Abi, E> {
        Ok(match self {
            Self::OpenMpi => Abi { handles: Handles::open_mpi(address)?, numbers: OPEN_MPI },
            Self::Mpich => Abi { handles: MPICH_HANDLES, numbers: MPICH },
            Self::Standard => Abi { handles: STANDARD_HANDLES, numbers: STANDARD },
        })
    }
}

const OPEN_MPI: Numbers = Numbers {
    any_source: -1,
    undefined: -32766,
    in_place: 1,
    thread_serialized: 2,
    thread_multiple: 3,
    order_c: 0,
    order_fortran: 1,
    distribute_cyclic: 1,
    distribute_none: 2,
    distribute_default: -1,
    status_source_at: 0,
    status_bytes: 24,
};

const MPICH: Numbers = Numbers {
    any_source: -2,
    undefined: -32766,
    in_place: usize::MAX,
    thread_serialized: 2,
    thread_multiple: 3,
    order_c: 56,
    order_fortran: 57,
    distribute_cyclic: 122,
    distribute_none: 123,
    distribute_default: -49767,
    status_source_at: 8,
    status_bytes: 20,
};

const STANDARD: Numbers = Numbers {
    any_source: -1,
    undefined: -32766,
    in_place: 1,
    thread_serialized: 2048,
    thread_multiple: 4096,
    order_c: 12,
    order_fortran: 15,
    distribute_cyclic: 18,
    distribute_none: 16,
    distribute_default: 19,
    status_source_at: 0,
    status_bytes: 32,
};

/// True if a status fits into [`STATUS_BYTES`], and its source lies inside.
const fn status_fits(numbers: &Numbers) -> bool {
    numbers.status_bytes <= STATUS_BYTES && numbers.status_source_at + 4 <= numbers.status_bytes
}
const _: () = assert!(status_fits(&OPEN_MPI) && status_fits(&MPICH) && status_fits(&STANDARD));

macro_rules! handles {
    ($($name:ident: $symbol:literal, $mpich:literal, $standard:literal;)*) => {
        /// The predefined handles.
        #[derive(Clone, Copy)]
        pub struct Handles { $(pub $name: Raw,)* }

        impl Handles {
            fn open_mpi<E>(address: impl Fn(&'static str) -> Result<Raw, E>) -> Result<Self, E> {
                Ok(Self { $($name: address($symbol)?,)* })
            }
        }

        const MPICH_HANDLES: Handles = Handles { $($name: $mpich,)* };
        const STANDARD_HANDLES: Handles = Handles { $($name: $standard,)* };
    };
}

// name          Open MPI                    MPICH        standard
handles! {
    comm_world: "ompi_mpi_comm_world", 0x4400_0000, 0x101;
    comm_self: "ompi_mpi_comm_self", 0x4400_0001, 0x102;
    comm_null: "ompi_mpi_comm_null", 0x0400_0000, 0x100;
    request_null: "ompi_request_null", 0x2c00_0000, 0x180;
    errors_return: "ompi_mpi_errors_return", 0x5400_0001, 0x143;
    info_null: "ompi_mpi_info_null", 0x1c00_0000, 0x130;
    byte: "ompi_mpi_byte", 0x4c00_010d, 0x247;
    uint64: "ompi_mpi_uint64_t", 0x4c00_083e, 0x259;
    max: "ompi_mpi_op_max", 0x5800_0001, 0x23;
    min: "ompi_mpi_op_min", 0x5800_0002, 0x22;
    sum: "ompi_mpi_op_sum", 0x5800_0003, 0x21;
    bor: "ompi_mpi_op_bor", 0x5800_0008, 0x29;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_symbol_is_named() {
        let missing = Interface::OpenMpi.abi(|name| if name.ends_with("op_bor") { Err(name) } else { Ok(1) });
        assert_eq!(missing.err(), Some("ompi_mpi_op_bor"));
    }
}
