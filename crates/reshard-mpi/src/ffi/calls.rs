//! The functions of MPI, as pointers with their true types, for either kind of handle.
//!
//! In Open MPI and in the standard ABI a handle is a pointer, in the MPICH family a C integer; nothing else about the
//! functions differs. So there is one list of signatures, generic over the handle, and one `match` in [`call!`].

use crate::abi::{Raw, STATUS_BYTES};
use libloading::os::unix::Library;
use reshard_plan::{Error, ErrorKind, Result};
use std::ffi::{c_char, c_int, c_void};

/// A handle as C passes it.
pub trait Handle: Copy + 'static {
    /// The handle of a number.
    fn of(raw: Raw) -> Self;
    /// The handle as a number.
    fn raw(self) -> Raw;
}

impl Handle for c_int {
    fn of(raw: Raw) -> Self {
        // The number came from a C integer: only the low half is used.
        raw as u32 as c_int
    }

    fn raw(self) -> Raw {
        self as u32 as Raw
    }
}

impl Handle for *mut c_void {
    fn of(raw: Raw) -> Self {
        std::ptr::with_exposed_provenance_mut(raw)
    }

    fn raw(self) -> Raw {
        self.expose_provenance()
    }
}

/// A status of any interface: at least as long as the longest, and aligned for all.
#[repr(C, align(8))]
pub struct Status([u8; STATUS_BYTES]);

impl Status {
    pub fn new() -> Self {
        Self([0; STATUS_BYTES])
    }

    /// The C integer at an offset.
    pub fn int(&self, at: usize) -> c_int {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[at..at + 4]);
        c_int::from_ne_bytes(bytes)
    }
}

pub type CopyAttribute<H> =
    unsafe extern "C" fn(H, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
pub type DeleteAttribute<H> = unsafe extern "C" fn(H, c_int, *mut c_void, *mut c_void) -> c_int;

macro_rules! calls {
    ($($name:ident = $symbol:ident($($argument:ty),*);)*) => {
        /// The functions of a library whose handles are of type `H`.
        pub struct Calls<H> { $(pub $name: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        /// Their names in MPI.
        #[allow(non_upper_case_globals, dead_code)]
        pub mod name { $(pub const $name: &str = stringify!($symbol);)* }

        impl<H: Handle> Calls<H> {
            /// Looks all of them up.
            ///
            /// # Safety
            /// The library is an MPI whose handles are of type `H`.
            pub unsafe fn find(library: &Library) -> Result<Self> {
                // SAFETY: an MPI library's functions of these names have these types.
                Ok(unsafe { Self { $($name: *find(library, stringify!($symbol))?,)* } })
            }
        }
    };
}

/// Looks a symbol up.
///
/// # Safety
/// The symbol has type `T`.
unsafe fn find<T>(library: &Library, name: &str) -> Result<libloading::os::unix::Symbol<T>> {
    // SAFETY: promised by the caller.
    unsafe { library.get(name.as_bytes()) }.map_err(|_| {
        Error::new(ErrorKind::External, format!("the MPI library has no {name}: MPI 3.0 or later is needed"))
    })
}

calls! {
    get_library_version = MPI_Get_library_version(*mut c_char, *mut c_int);
    error_string = MPI_Error_string(c_int, *mut c_char, *mut c_int);
    initialized = MPI_Initialized(*mut c_int);
    finalized = MPI_Finalized(*mut c_int);
    init_thread = MPI_Init_thread(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    query_thread = MPI_Query_thread(*mut c_int);
    is_thread_main = MPI_Is_thread_main(*mut c_int);
    finalize = MPI_Finalize();
    abort = MPI_Abort(H, c_int);

    comm_rank = MPI_Comm_rank(H, *mut c_int);
    comm_size = MPI_Comm_size(H, *mut c_int);
    comm_test_inter = MPI_Comm_test_inter(H, *mut c_int);
    comm_compare = MPI_Comm_compare(H, H, *mut c_int);
    comm_idup = MPI_Comm_idup(H, *mut H, *mut H);
    comm_split = MPI_Comm_split(H, c_int, c_int, *mut H);
    comm_free = MPI_Comm_free(*mut H);
    comm_set_errhandler = MPI_Comm_set_errhandler(H, H);
    comm_create_keyval = MPI_Comm_create_keyval(CopyAttribute<H>, DeleteAttribute<H>, *mut c_int, *mut c_void);
    comm_set_attr = MPI_Comm_set_attr(H, c_int, *mut c_void);
    comm_get_attr = MPI_Comm_get_attr(H, c_int, *mut c_void, *mut c_int);
    comm_delete_attr = MPI_Comm_delete_attr(H, c_int);

    open_port = MPI_Open_port(H, *mut c_char);
    close_port = MPI_Close_port(*const c_char);
    comm_accept = MPI_Comm_accept(*const c_char, H, c_int, H, *mut H);
    comm_connect = MPI_Comm_connect(*const c_char, H, c_int, H, *mut H);
    intercomm_merge = MPI_Intercomm_merge(H, c_int, *mut H);

    isend = MPI_Isend(*const c_void, c_int, H, c_int, c_int, H, *mut H);
    issend = MPI_Issend(*const c_void, c_int, H, c_int, c_int, H, *mut H);
    irecv = MPI_Irecv(*mut c_void, c_int, H, c_int, c_int, H, *mut H);
    iprobe = MPI_Iprobe(c_int, c_int, H, *mut c_int, *mut Status);
    test = MPI_Test(*mut H, *mut c_int, *mut Status);
    cancel = MPI_Cancel(*mut H);
    get_count = MPI_Get_count(*const Status, H, *mut c_int);

    barrier = MPI_Barrier(H);
    ibarrier = MPI_Ibarrier(H, *mut H);
    bcast = MPI_Bcast(*mut c_void, c_int, H, c_int, H);
    allgather = MPI_Allgather(*const c_void, c_int, H, *mut c_void, c_int, H, H);
    iallgather = MPI_Iallgather(*const c_void, c_int, H, *mut c_void, c_int, H, H, *mut H);
    allreduce = MPI_Allreduce(*const c_void, *mut c_void, c_int, H, H, H);
    iallreduce = MPI_Iallreduce(*const c_void, *mut c_void, c_int, H, H, H, *mut H);
    alltoallv = MPI_Alltoallv(
        *const c_void, *const c_int, *const c_int, H, *mut c_void, *const c_int, *const c_int, H, H
    );
    alltoallw = MPI_Alltoallw(
        *const c_void, *const c_int, *const c_int, *const H, *mut c_void, *const c_int, *const c_int, *const H, H
    );

    type_contiguous = MPI_Type_contiguous(c_int, H, *mut H);
    type_vector = MPI_Type_vector(c_int, c_int, c_int, H, *mut H);
    type_hvector = MPI_Type_create_hvector(c_int, c_int, isize, H, *mut H);
    type_hindexed = MPI_Type_create_hindexed(c_int, *const c_int, *const isize, H, *mut H);
    type_struct = MPI_Type_create_struct(c_int, *const c_int, *const isize, *const H, *mut H);
    type_subarray = MPI_Type_create_subarray(c_int, *const c_int, *const c_int, *const c_int, c_int, H, *mut H);
    type_darray = MPI_Type_create_darray(
        c_int, c_int, c_int, *const c_int, *const c_int, *const c_int, *const c_int, c_int, H, *mut H
    );
    type_resized = MPI_Type_create_resized(H, isize, isize, *mut H);
    type_size = MPI_Type_size(H, *mut c_int);
    type_commit = MPI_Type_commit(*mut H);
    type_free = MPI_Type_free(*mut H);
}

/// The functions of the library, for its kind of handle.
pub enum CallTable {
    Integers(Calls<c_int>),
    Pointers(Calls<*mut c_void>),
}

/// Runs a block for the library's kind of handle, with `$calls` as its functions.
macro_rules! each {
    ($mpi:expr, $calls:ident => $body:expr) => {
        match &$mpi.calls {
            $crate::ffi::calls::CallTable::Integers($calls) => $body,
            $crate::ffi::calls::CallTable::Pointers($calls) => $body,
        }
    };
}

/// Calls a function of MPI and turns its return code into a `Result`. To be used inside `unsafe`.
///
/// - `call!(mpi, barrier(..))` returns nothing;
/// - `call!(mpi, isend(..) -> handle)` appends an output argument for a new handle, and returns it;
/// - `call!(mpi, &mut raw, comm_free(..))` prepends a handle that the call may change.
macro_rules! call {
    ($mpi:expr, $call:ident($($argument:expr),* $(,)?)) => {{
        let _guard = $mpi.enter()?;
        let code = $crate::ffi::calls::each!($mpi, calls => (calls.$call)($($argument),*));
        $mpi.check($crate::ffi::calls::name::$call, code)
    }};
    ($mpi:expr, $call:ident($($argument:expr),* $(,)?) -> handle) => {{
        let _guard = $mpi.enter()?;
        let (code, made) = $crate::ffi::calls::each!($mpi, calls => {
            let mut made = $crate::ffi::calls::Handle::of(0);
            let code = (calls.$call)($($argument,)* &mut made);
            (code, $crate::ffi::calls::Handle::raw(made))
        });
        $mpi.check($crate::ffi::calls::name::$call, code).map(|()| made)
    }};
    ($mpi:expr, &mut $raw:expr, $call:ident($($argument:expr),* $(,)?)) => {{
        let _guard = $mpi.enter()?;
        let (code, changed) = $crate::ffi::calls::each!($mpi, calls => {
            let mut changed = $crate::ffi::calls::Handle::of($raw);
            let code = (calls.$call)(&mut changed $(, $argument)*);
            (code, $crate::ffi::calls::Handle::raw(changed))
        });
        $raw = changed;
        $mpi.check($crate::ffi::calls::name::$call, code)
    }};
}
pub(crate) use {call, each};

/// Fails if a count is negative. Checked here, as not every library does.
pub(super) fn none_negative(call: &str, counts: &[i32]) -> Result<()> {
    match counts.iter().find(|count| **count < 0) {
        Some(count) => Err(Error::new(
            ErrorKind::OutOfRange,
            format!("{call}: {count} is not a number of things to move"),
        )),
        None => Ok(()),
    }
}
