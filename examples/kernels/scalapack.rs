//! ScaLAPACK and its BLACS, loaded at run time: the three kernels, and everything unsafe of this example.

#![allow(unsafe_code)]

use crate::matrix::Matrix;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use reshard::{Error, ErrorKind, Result};
use reshard_mpi::Comm;
use std::ffi::{CStr, c_char, c_int};

type Get = unsafe extern "C" fn(c_int, c_int, *mut c_int);
type GridInit = unsafe extern "C" fn(*mut c_int, *const c_char, c_int, c_int);
type Letter = *const c_char;
type Int = *const c_int;
/// A matrix is passed as its part, its first row and column, and its descriptor.
type Gemm = unsafe extern "C" fn(
    Letter,
    Letter,
    Int,
    Int,
    Int,
    *const f64,
    *const f64,
    Int,
    Int,
    Int,
    *const f64,
    Int,
    Int,
    Int,
    *const f64,
    *mut f64,
    Int,
    Int,
    Int,
);
type Getrf = unsafe extern "C" fn(Int, Int, *mut f64, Int, Int, Int, *mut c_int, *mut c_int);
type Getrs = unsafe extern "C" fn(
    Letter,
    Int,
    Int,
    *const f64,
    Int,
    Int,
    Int,
    *const c_int,
    *mut f64,
    Int,
    Int,
    Int,
    *mut c_int,
    usize,
);

const ONE: c_int = 1;

/// The library; it stays loaded as long as the process.
pub struct Scalapack {
    gemm: Gemm,
    getrf: Getrf,
    getrs: Getrs,
    get: Get,
    grid_init: GridInit,
    /// The BLAS that does the work, and how many threads it has on a rank.
    pub blas: String,
}

impl Scalapack {
    /// Loads the build for the MPI of this process. BLAS gets one thread on a rank.
    pub fn load(comm: &Comm) -> Result<Self> {
        let family = if comm.mpi().version().starts_with("Open MPI") { "openmpi" } else { "mpich" };
        let names = [format!("libscalapack-{family}.so.2.2"), format!("libscalapack-{family}.so.2.1")];
        // SAFETY: a well-known library whose initialisers are harmless.
        let open = |name: &String| unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.ok();
        let library = names.iter().find_map(open).ok_or_else(|| {
            Error::new(
                ErrorKind::External,
                format!(
                    "{} was not found; on Debian: apt-get install libscalapack-{family}2.2 libopenblas0-pthread",
                    names[0]
                ),
            )
        })?;
        let missing = |error: libloading::Error| Error::new(ErrorKind::External, error.to_string());
        // SAFETY: the routines have these types.
        let loaded = unsafe {
            Self {
                gemm: *library.get::<Gemm>(b"pdgemm_").map_err(missing)?,
                getrf: *library.get::<Getrf>(b"pdgetrf_").map_err(missing)?,
                getrs: *library.get::<Getrs>(b"pdgetrs_").map_err(missing)?,
                get: *library.get::<Get>(b"Cblacs_get").map_err(missing)?,
                grid_init: *library.get::<GridInit>(b"Cblacs_gridinit").map_err(missing)?,
                blas: blas_with_one_thread(),
            }
        };
        // Closing it would take the routines away.
        std::mem::forget(library);
        Ok(loaded)
    }

    /// A BLACS context of all processes, numbered row by row. Collective.
    pub fn context(&self, grid: [usize; 2]) -> c_int {
        let mut context = 0;
        // SAFETY: called by all processes, with a grid of as many.
        unsafe {
            (self.get)(0, 0, &raw mut context);
            (self.grid_init)(&raw mut context, c"Row".as_ptr(), grid[0] as c_int, grid[1] as c_int);
        }
        context
    }

    /// `c = a * b`, all of one grid and block size.
    pub fn multiply(&self, a: &Matrix, b: &Matrix, c: &mut Matrix) {
        let [m, n, k] = [c.descriptor[2], c.descriptor[3], a.descriptor[3]];
        let (one, zero, no) = (1.0, 0.0, c"N".as_ptr());
        // SAFETY: parts are as long as their descriptors say, and all processes call it.
        unsafe {
            (self.gemm)(
                no,
                no,
                &raw const m,
                &raw const n,
                &raw const k,
                &raw const one,
                a.part.as_ptr(),
                &ONE,
                &ONE,
                a.descriptor.as_ptr(),
                b.part.as_ptr(),
                &ONE,
                &ONE,
                b.descriptor.as_ptr(),
                &raw const zero,
                c.part.as_mut_ptr(),
                &ONE,
                &ONE,
                c.descriptor.as_ptr(),
            );
        }
    }

    /// `a` becomes its factors L and U. Returns which row was swapped with each row of this process, counted from 1.
    pub fn factor(&self, a: &mut Matrix) -> Result<Vec<c_int>> {
        let [n, block, rows] = [a.descriptor[2], a.descriptor[4], a.descriptor[8]];
        let mut pivots = vec![0; (rows + block) as usize];
        let mut info = 0;
        // SAFETY: the part is as long as its descriptor says, pivots as the routine wants them; all processes call it.
        unsafe {
            (self.getrf)(
                &raw const n,
                &raw const n,
                a.part.as_mut_ptr(),
                &ONE,
                &ONE,
                a.descriptor.as_ptr(),
                pivots.as_mut_ptr(),
                &raw mut info,
            );
        }
        done("pdgetrf", info).map(|()| pivots)
    }

    /// Solves with the factors `a`: right-hand sides `c` become solutions.
    pub fn solve(&self, a: &Matrix, pivots: &[c_int], c: &mut Matrix) -> Result<()> {
        let [n, columns] = [c.descriptor[2], c.descriptor[3]];
        assert!(pivots.len() as c_int >= a.descriptor[8] + a.descriptor[4], "pivots of this layout");
        let mut info = 0;
        // SAFETY: as for `factor`.
        unsafe {
            (self.getrs)(
                c"N".as_ptr(),
                &raw const n,
                &raw const columns,
                a.part.as_ptr(),
                &ONE,
                &ONE,
                a.descriptor.as_ptr(),
                pivots.as_ptr(),
                c.part.as_mut_ptr(),
                &ONE,
                &ONE,
                c.descriptor.as_ptr(),
                &raw mut info,
                1,
            );
        }
        done("pdgetrs", info)
    }
}

fn done(routine: &str, info: c_int) -> Result<()> {
    match info {
        0 => Ok(()),
        _ => Err(Error::new(ErrorKind::Failed, format!("{routine} returned INFO = {info} instead of 0"))),
    }
}

/// Sets OpenBLAS to one thread, and says which BLAS is loaded. Others read their variables: `OMP_NUM_THREADS=1`, say.
fn blas_with_one_thread() -> String {
    type Set = unsafe extern "C" fn(c_int);
    type Config = unsafe extern "C" fn() -> *const c_char;
    let all = Library::this();
    // SAFETY: functions of OpenBLAS with these types, if it is there; its answer is a text that is never freed.
    unsafe {
        if let (Ok(set), Ok(config)) =
            (all.get::<Set>(b"openblas_set_num_threads"), all.get::<Config>(b"openblas_get_config"))
        {
            set(1);
            let config = CStr::from_ptr(config()).to_string_lossy().into_owned();
            let words: Vec<&str> = config.split_whitespace().collect();
            let version = words.get(1).copied().unwrap_or_default();
            let kernels = words.iter().rev().find(|word| !word.contains('=')).copied().unwrap_or_default();
            return format!("OpenBLAS {version} ({kernels}), one thread on each rank");
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.split_whitespace().last());
    let name = |word: &str| files.clone().find(|file| file.contains(word)).map(ToString::to_string);
    name("mkl").or_else(|| name("blis")).or_else(|| name("libblas")).unwrap_or_else(|| "unknown".to_string())
}
