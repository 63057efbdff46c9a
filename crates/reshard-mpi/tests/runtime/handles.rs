//! A program's own use of MPI: the library as a linked program has it, and communicators as the headers have them. Two tests use it,
//! each some of it.

#![allow(dead_code, unsafe_code)]

use libloading::os::unix::{Library, Symbol};
use reshard_mpi::{Mpi, RawComm};
use std::ffi::{c_int, c_void};

/// A handle of either kind: libraries whose handles are C integers read and write its first half.
pub type AnyHandle = usize;

type Duplicate = unsafe extern "C" fn(AnyHandle, *mut AnyHandle) -> c_int;
type Split = unsafe extern "C" fn(AnyHandle, c_int, c_int, *mut AnyHandle) -> c_int;
type Create = unsafe extern "C" fn(AnyHandle, c_int, AnyHandle, c_int, c_int, *mut AnyHandle) -> c_int;
type Free = unsafe extern "C" fn(*mut AnyHandle) -> c_int;

/// `MPI_UNDEFINED`, the same in all libraries.
const UNDEFINED: c_int = -32766;

/// A host's own use of MPI.
pub struct Host {
    pub library: Library,
    pub mpi: &'static Mpi,
}

impl Host {
    /// Finds the library, as a linked program has it from the beginning.
    pub fn new() -> Self {
        let asked = std::env::var("RESHARD_MPI").unwrap();
        let names = match asked.as_str() {
            "openmpi" => vec!["libmpi.so.40"],
            "mpich" => vec!["libmpi.so.12", "libmpich.so.12"],
            "" if std::env::var_os("OMPI_COMM_WORLD_SIZE").is_some() => vec!["libmpi.so.40"],
            "" => vec!["libmpi.so.12", "libmpich.so.12"],
            path => vec![path],
        };
        // SAFETY: the test runs alone in its process.
        unsafe { std::env::remove_var("RESHARD_MPI") };
        let (now, global) = (libc::RTLD_NOW, libc::RTLD_GLOBAL);
        // SAFETY: an MPI library.
        let open = |name: &&str| unsafe { Library::open(Some(*name), now | global).ok() };
        let library = names.iter().find_map(open).unwrap();
        Self { library, mpi: Mpi::load(None).unwrap() }
    }

    pub fn init(&self) {
        let null = std::ptr::null_mut();
        // SAFETY: the function has this type.
        unsafe {
            let init =
                self.library.get::<unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int>(b"MPI_Init");
            assert_eq!((init.unwrap())(null, null.cast()), 0);
        }
    }

    pub fn finalize(&self) {
        // SAFETY: begun before, and the function has this type.
        unsafe {
            let finalize = self.library.get::<unsafe extern "C" fn() -> c_int>(b"MPI_Finalize").unwrap();
            assert_eq!(finalize(), 0);
        }
    }

    /// The handle of the world or of `MPI_COMM_SELF`, as the headers have it.
    pub fn predefined(&self, own: bool) -> AnyHandle {
        let debug = format!("{:?}", self.mpi);
        match () {
            () if debug.contains("OpenMpi") => {
                let name: &[u8] = if own { b"ompi_mpi_comm_self" } else { b"ompi_mpi_comm_world" };
                // SAFETY: a variable, of which only the address is used.
                let variable: Symbol<*mut u8> = unsafe { self.library.get(name) }.unwrap();
                variable.into_raw().addr()
            }
            () if debug.contains("Standard") => 0x101 + usize::from(own),
            () => 0x4400_0000 + usize::from(own),
        }
    }

    pub fn raw(&self, handle: AnyHandle) -> RawComm {
        match self.mpi.has_integer_handles() {
            true => RawComm::Integer(handle as c_int),
            false => RawComm::Pointer(std::ptr::with_exposed_provenance_mut(handle)),
        }
    }

    fn call<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the callers name functions of these types.
        unsafe { *self.library.get::<T>(name.as_bytes()).unwrap() }
    }

    /// Makes a duplicate of a communicator. Collective, as all that follow.
    pub fn duplicate(&self, comm: AnyHandle) -> AnyHandle {
        let mut made = 0;
        // SAFETY: the function has this type, the handle is valid, and the result has a place of its own.
        assert_eq!(unsafe { self.call::<Duplicate>("MPI_Comm_dup")(comm, &raw mut made) }, 0);
        made
    }

    /// Splits a communicator; a rank without a colour gets none.
    pub fn split(&self, comm: AnyHandle, color: Option<u32>, key: u32) -> Option<AnyHandle> {
        let (mut made, number) = (0, color.map_or(UNDEFINED, |color| color as c_int));
        // SAFETY: as for `duplicate`.
        let code = unsafe { self.call::<Split>("MPI_Comm_split")(comm, number, key as c_int, &raw mut made) };
        assert_eq!(code, 0);
        color.map(|_| made)
    }

    /// Makes a communicator between `own`, of which rank 0 leads, and the other group, whose rank 0 is `other` in `all`.
    pub fn between(&self, own: AnyHandle, all: AnyHandle, other: usize) -> AnyHandle {
        let mut made = 0;
        let create = self.call::<Create>("MPI_Intercomm_create");
        // SAFETY: as for `duplicate`.
        assert_eq!(unsafe { create(own, 0, all, other as c_int, 1, &raw mut made) }, 0);
        made
    }

    /// Frees a communicator.
    pub fn free(&self, mut comm: AnyHandle) {
        // SAFETY: as for `duplicate`; nobody uses the handle any more.
        assert_eq!(unsafe { self.call::<Free>("MPI_Comm_free")(&raw mut comm) }, 0);
    }
}
