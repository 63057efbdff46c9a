//! ScaLAPACK's `pdgemr2d` as a baseline, if its library is installed.
//!
//! Loaded at run time like MPI, and only the build for the MPI that this process runs on.

use crate::ffi::comm::Comm;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use reshard_plan::{Error, ErrorKind, Layout, MemoryOrder, Result};
use std::ffi::{c_char, c_int};

/// A redistribution of a matrix of doubles by ScaLAPACK.
pub struct Scalapack {
    library: Library,
    shape: [c_int; 2],
    /// The array descriptors of source and destination.
    descriptors: [[c_int; 9]; 2],
    /// Elements that this rank's source and destination parts span; 0 if it has none.
    lens: [usize; 2],
    /// The BLACS context of all processes.
    world_context: c_int,
}

/// Debian's builds for one MPI, and the name that others give theirs.
const FOR_OPEN_MPI: [&str; 2] = ["libscalapack-openmpi.so.2.2", "libscalapack-openmpi.so.2.1"];
const FOR_MPICH: [&str; 2] = ["libscalapack-mpich.so.2.2", "libscalapack-mpich.so.2.1"];
const FOR_ANY: [&str; 2] = ["libscalapack.so.2.2", "libscalapack.so"];

/// The names of ScaLAPACK's libraries that can be loaded. They load their MPI with them, so this is for processes that do nothing else.
pub fn scalapack_libraries() -> Vec<&'static str> {
    let names = [FOR_OPEN_MPI, FOR_MPICH, FOR_ANY].into_iter().flatten();
    // SAFETY: a well-known library whose initialisers are harmless.
    names.filter(|name| unsafe { Library::open(Some(*name), libc::RTLD_LAZY) }.is_ok()).collect()
}

type Get = unsafe extern "C" fn(c_int, c_int, *mut c_int);
type Gridmap = unsafe extern "C" fn(*mut c_int, *mut c_int, c_int, c_int, c_int);
type Gridinit = unsafe extern "C" fn(*mut c_int, *const c_char, c_int, c_int);
type Gemr2d = unsafe extern "C" fn(
    c_int,
    c_int,
    *const f64,
    c_int,
    c_int,
    *const c_int,
    *mut f64,
    c_int,
    c_int,
    *const c_int,
    c_int,
);

impl Scalapack {
    /// Makes the process grids for two layouts of a whole matrix of doubles. Returns none if the library is not installed
    /// or cannot do it: the communicator must be the world, by whose ranks the BLACS number the processes of a grid.
    /// Collective over all processes.
    pub fn new(comm: &Comm, from: &Layout, to: &Layout) -> Option<Self> {
        if !comm.is_world() {
            return None;
        }
        let own = if comm.mpi().version().starts_with("Open MPI") { FOR_OPEN_MPI } else { FOR_MPICH };
        let names = own.into_iter().chain(FOR_ANY);
        let is_supported = |layout: &Layout| {
            let distribution = layout.distribution();
            let cyclic = distribution.axes().iter().all(|axis| axis.cyclic_parameters().is_some());
            cyclic && layout.order() == MemoryOrder::ColMajor && distribution.dims() == 2
        };
        // The BLACS abort the process if a grid has ranks that do not exist.
        let ranks_exist = |layout: &Layout| {
            layout.distribution().grid().sorted_ranks().last().is_none_or(|&rank| rank < comm.size() as u64)
        };
        let same_shape = from.distribution().shape() == to.distribution().shape();
        if !same_shape || ![from, to].into_iter().all(|layout| is_supported(layout) && ranks_exist(layout)) {
            return None;
        }
        // SAFETY: a well-known library whose initialisers are harmless.
        let open = |name: &str| unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.ok();
        let library = names.into_iter().find_map(open)?;
        // SAFETY: the BLACS' functions have these types, and are called by all processes, as they must be.
        unsafe {
            let get = *library.get::<Get>(b"Cblacs_get").ok()?;
            let gridmap = *library.get::<Gridmap>(b"Cblacs_gridmap").ok()?;
            let gridinit = *library.get::<Gridinit>(b"Cblacs_gridinit").ok()?;
            library.get::<Gemr2d>(b"Cpdgemr2d").ok()?;
            let mut world_context = 0;
            get(0, 0, &raw mut world_context);
            gridinit(&raw mut world_context, c"Row".as_ptr(), 1, comm.size() as c_int);
            let descriptor = |layout: &Layout| -> Option<[c_int; 9]> {
                let grid = layout.distribution().grid();
                let [rows, columns] = [grid.extents()[0], grid.extents()[1]];
                let mut map: Vec<c_int> = Vec::new();
                for column in 0..columns {
                    for row in 0..rows {
                        map.push(c_int::try_from(grid.rank(&[row, column])?).ok()?);
                    }
                }
                let mut context = 0;
                get(0, 0, &raw mut context);
                let rows_of_map = c_int::try_from(rows).ok()?;
                gridmap(
                    &raw mut context,
                    map.as_mut_ptr(),
                    rows_of_map,
                    rows_of_map,
                    c_int::try_from(columns).ok()?,
                );
                let mine = layout.distribution().grid().contains(comm.rank() as u64);
                let (blocks, shape) = (layout.distribution().axes(), layout.distribution().shape());
                let (block, first) = (blocks[0].cyclic_parameters()?, blocks[1].cyclic_parameters()?);
                let local = layout.distribution().local_shape(comm.rank() as u64).map_or(1, |shape| shape[0]);
                let int = |number: u64| c_int::try_from(number).ok();
                Some([
                    1,
                    if mine { context } else { -1 },
                    int(shape[0])?,
                    int(shape[1])?,
                    int(block.0)?,
                    int(first.0)?,
                    int(block.1)?,
                    int(first.1)?,
                    int(local.max(1))?,
                ])
            };
            let descriptors = [descriptor(from)?, descriptor(to)?];
            let shape = [descriptors[0][2], descriptors[0][3]];
            let len = |layout: &Layout| layout.span(comm.rank() as u64).map_or(0, |span| span as usize);
            Some(Self { library, shape, descriptors, lens: [len(from), len(to)], world_context })
        }
    }

    /// Moves the matrix. Collective over all processes.
    pub fn run(&self, from: &[f64], to: &mut [f64]) -> Result<()> {
        for (side, part, len) in
            [("source", from.len(), self.lens[0]), ("destination", to.len(), self.lens[1])]
        {
            if part < len {
                let message =
                    format!("the {side} part has {part} elements, but its layout reaches over {len}");
                return Err(Error::new(ErrorKind::Mismatch, message));
            }
        }
        // SAFETY: the function's type is known; descriptors were made for these layouts, whose parts the caller gives whole.
        unsafe {
            let gemr2d = self
                .library
                .get::<Gemr2d>(b"Cpdgemr2d")
                .map_err(|error| Error::new(ErrorKind::Unsupported, error.to_string()))?;
            gemr2d(
                self.shape[0],
                self.shape[1],
                from.as_ptr(),
                1,
                1,
                self.descriptors[0].as_ptr(),
                to.as_mut_ptr(),
                1,
                1,
                self.descriptors[1].as_ptr(),
                self.world_context,
            );
        }
        Ok(())
    }
}
